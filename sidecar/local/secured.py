"""The certificates, passwords and tokens of an embedded Kafka and Valkey and a node in front of them, and the rights of
each user.

Each secret is a file of mode 0600 in a directory of mode 0700, created when it is first needed and kept. None is ever
an argument of a program. Certificates of servers are new at each start; their authority is kept.
"""

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path

from sidecar.local.certificates import Authority, private_directory, write_private
from sidecar.local.kafka_config import SCRAM_MODULE, BrokerSecurity
from sidecar.local.ports import HOST

BROKER = "kafka"
"""The common name of the brokers' certificate: brokers identify each other by it, and users are created with it."""
NODE = "sidecar"
"""The user name of a node at Kafka and at Redis."""
ADMIN = "admin"
APPLICATION = "app"
PREFIX = "app-"
"""The prefix of the application's topics, groups and transactional ids."""
SUPER_USERS = (f"User:{NODE}", f"User:CN={BROKER}")
USERS = (NODE, ADMIN, APPLICATION)
REDIS_RIGHTS = (
    "resetkeys ~sidecar:* resetchannels -@all +auth +hello +ping +select +info +time +client|setinfo +client|setname"
    " +eval +evalsha +script|load +get +set +del +exists +hget +hset +hdel +hgetall +hkeys +hexists +hmget +zadd +zrem"
    " +zscore +zrangebyscore"
)
"""The commands that a node uses in Redis (docs/operate/operations.md)."""


class Secrets:
    """The secrets in one directory."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError where the directory cannot be written to."""
        self.directory = private_directory(directory)
        self._authority = Authority(directory, f"kafka-sidecar {secrets.token_hex(4)}")

    @property
    def ca(self) -> Path:
        """The certificate that clients trust."""
        return self._authority.ca

    def certificate(self, name: str, hosts: Sequence[str] = ()) -> Path:
        """Create a key and its certificate for this machine and other hosts, in `NAME.pem`."""
        return self.write(f"{name}.pem", self._authority.issue(name, (HOST, "localhost", *hosts)))

    def write(self, name: str, content: bytes | str) -> Path:
        """Write a file that only its owner may read."""
        return write_private(self.directory / name, content)

    def file(self, name: str) -> Path:
        """The file of a password or a token, created if it is missing. It has no line break at its end."""
        path = self.directory / name
        return path if path.exists() else self.write(name, secrets.token_hex(32))

    def text(self, name: str) -> str:
        """The password or token itself."""
        return self.file(name).read_text()

    def password(self, user: str) -> str:
        """The password with which a user logs in at Kafka."""
        return self.text(f"{user}.password")

    def broker_security(self, *hosts: str) -> BrokerSecurity:
        """The security of a Kafka on this machine, or on other hosts; creates a new certificate."""
        return BrokerSecurity(self.certificate(BROKER, hosts), self.ca, SUPER_USERS)

    def redis_users(self) -> Path:
        """A file with ACLs for a Redis: a user for nodes. All others may only check whether it responds."""
        digest = hashlib.sha256(self.text("redis.password").encode()).hexdigest()
        nobody = "user default on nopass resetkeys resetchannels -@all +ping +info|server\n"
        return self.write("redis.acl", f"{nobody}user {NODE} on #{digest} {REDIS_RIGHTS}\n")

    def client_files(self, bootstrap: str, ca: str) -> dict[str, str]:
        """The content, by file name, of `USER.properties` for Java and `USER.conf` for librdkafka, for each user except
        nodes. `ca`: the path under which clients find the certificate.
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
