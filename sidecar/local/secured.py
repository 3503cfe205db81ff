"""What secures an embedded Kafka and Valkey and a node before them: certificates, passwords, tokens, who has what.

Each is a file of mode 0600 in a directory of mode 0700, made when it is asked for first and used again later. None is
ever an argument of a program. Certificates of servers are made anew at each start, their authority stays.
"""

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path

from sidecar.local.certificates import Authority, private_directory, write_private
from sidecar.local.kafka_config import SCRAM_MODULE, BrokerSecurity
from sidecar.local.ports import HOST

BROKER = "kafka"
"""The common name of the brokers' certificate: with it they know each other, and users are made."""
NODE = "sidecar"
"""As whom a node logs in at Kafka and at Redis."""
ADMIN = "admin"
APPLICATION = "app"
PREFIX = "app-"
"""How topics, groups and transactional ids of the application begin."""
SUPER_USERS = (f"User:{NODE}", f"User:CN={BROKER}")
USERS = (NODE, ADMIN, APPLICATION)
REDIS_RIGHTS = (
    "resetkeys ~sidecar:* resetchannels -@all +auth +hello +ping +select +info +time +client|setinfo +client|setname"
    " +eval +evalsha +script|load +get +set +del +exists +hget +hset +hdel +hgetall +hkeys +hexists +hmget +zadd +zrem"
    " +zscore +zrangebyscore"
)
"""What a node does in Redis (docs/operations.md)."""


class Secrets:
    """Those in one directory."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError where the directory cannot be written to."""
        self.directory = private_directory(directory)
        self._authority = Authority(directory, f"kafka-sidecar {secrets.token_hex(4)}")

    @property
    def ca(self) -> Path:
        """The certificate that clients trust."""
        return self._authority.ca

    def certificate(self, name: str, hosts: Sequence[str] = ()) -> Path:
        """A new key with its certificate for this machine and other hosts, in `NAME.pem`."""
        return self.write(f"{name}.pem", self._authority.issue(name, (HOST, "localhost", *hosts)))

    def write(self, name: str, content: bytes | str) -> Path:
        """A file that only its owner may read."""
        return write_private(self.directory / name, content)

    def file(self, name: str) -> Path:
        """Where a password or a token is; made where it is missing. There is no line break behind it."""
        path = self.directory / name
        return path if path.exists() else self.write(name, secrets.token_hex(32))

    def text(self, name: str) -> str:
        """The same itself."""
        return self.file(name).read_text()

    def password(self, user: str) -> str:
        """With which a user logs in at Kafka."""
        return self.text(f"{user}.password")

    def broker_security(self, *hosts: str) -> BrokerSecurity:
        """For a Kafka on this machine, or on other hosts; with a new certificate."""
        return BrokerSecurity(self.certificate(BROKER, hosts), self.ca, SUPER_USERS)

    def redis_users(self) -> Path:
        """ACLs for a Redis: a user for nodes. All others may ask whether it is there."""
        digest = hashlib.sha256(self.text("redis.password").encode()).hexdigest()
        nobody = "user default on nopass resetkeys resetchannels -@all +ping +info|server\n"
        return self.write("redis.acl", f"{nobody}user {NODE} on #{digest} {REDIS_RIGHTS}\n")

    def client_files(self, bootstrap: str, ca: str) -> dict[str, str]:
        """For each user but nodes `USER.properties` for Java and `USER.conf` for librdkafka: the files' content by
        name. `ca`: the path under which clients find the certificate.
        """
        found: dict[str, str] = {}
        common = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_SSL"}
        for user in (ADMIN, APPLICATION):
            password = self.password(user)
            java = common | {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{SCRAM_MODULE} username="{user}" password="{password}";',
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": ca,
            }
            librdkafka = common | {
                "sasl.mechanisms": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": password,
                "ssl.ca.location": ca,
            }
            found |= {f"{user}.properties": _lines(java), f"{user}.conf": _lines(librdkafka)}
        return found


def _lines(properties: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
