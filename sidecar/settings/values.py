"""Settings as a running node has them, checked, and what is said of those that cannot be used. Imports none of the
others here, and no pydantic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENV_PREFIX: Final = "SIDECAR_"
CONFIG_FILES: Final = (Path("sidecar.toml"), Path("/etc/sidecar/sidecar.toml"))
"""Where a file is looked for without `--config`; the first that exists is read, alone."""

DEFAULT_ADMIN_URL: Final = "http://127.0.0.1:18080"
DEDUPLICATES_ALL: Final = (
    "governs every topic but internal ones, whatever else their policies say: transactions are refused on all of them"
    " (error 48). "
    "Where applications use transactions, set it by topic or prefix instead: sidecar topic set TOPIC --dedup"
)
"""What SIDECAR_DEDUPLICATION=true brings with it; reported wherever settings are checked, and by a node that starts."""


class Address(NamedTuple):
    """A host, by name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def wildcard(self) -> bool:
        """True for 0.0.0.0 and ::, at which nobody can be reached."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def loopback(self) -> bool:
        """True where only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def parse(cls, text: str) -> Address:
        """From `host:port` or `[IPv6]:port`. Raises ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError("an IPv6 address stands in brackets, as in [::1]:19092")
        if not colon or not host or any(c.isspace() or c in "/@," for c in host):
            raise ValueError("is not of the form host:port")
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            raise ValueError(f"has no port from 0 to 65535 behind the last colon but {port!r}")
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a node, checked. Durations are milliseconds, sizes bytes.

    `listen` and `admin_listen` may have port 0: any free one; `advertise` then has port 0 as well and means the same.
    """

    bootstrap_servers: tuple[Address, ...]
    redis_url: str = field(repr=False)
    listen: Address
    advertise: Address
    admin_listen: Address
    admin_advertise: Address
    node_id: int
    cluster: str
    lease_ms: int
    reconnect_grace_ms: int
    disconnect_grace_ms: int
    admin_url: str
    admin_token: str | None = field(repr=False)
    deduplication: bool
    sequence_id_header: str
    producer_name_header: str
    producer_names_limit: int
    linger_ms: int
    linger_bytes: int
    retry_buffer_bytes: int
    queue_limit: int
    schema_registry_url: str | None = field(repr=False)
    kafka_connect_timeout_ms: int
    kafka_request_timeout_ms: int
    redis_timeout_ms: int
    max_request_bytes: int
    log_level: str
    log_format: str
    security_protocol: str = "PLAINTEXT"
    ssl_certificate: str | None = None
    ssl_key: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_ca: str | None = None
    ssl_client_auth: str = "none"
    ssl_principal_mapping_rules: str = "DEFAULT"
    sasl_mechanisms: str | None = None
    sasl_authentication: str = "relay"
    sasl_users_file: str | None = None
    sasl_jwks_url: str | None = None
    sasl_audience: str | None = None
    sasl_issuer: str | None = None
    sasl_principal_claim: str = "sub"
    authorizer: str | None = None
    super_users: str = ""
    allow_if_no_acl_found: bool = False
    take_over_operation: str = "ALTER"
    kafka_security_protocol: str = "PLAINTEXT"
    kafka_ssl_ca: str | None = None
    kafka_ssl_certificate: str | None = None
    kafka_ssl_key: str | None = None
    kafka_ssl_key_password: str | None = field(default=None, repr=False)
    kafka_ssl_check_hostname: bool = True
    kafka_sasl_mechanism: str | None = None
    kafka_sasl_username: str | None = None
    kafka_sasl_password: str | None = field(default=None, repr=False)
    kafka_sasl_password_file: str | None = None
    kafka_sasl_token_url: str | None = None
    kafka_sasl_client_id: str | None = None
    kafka_sasl_client_secret: str | None = field(default=None, repr=False)
    kafka_sasl_scope: str | None = None
    kafka_sasl_token_provider: str | None = None

    @property
    def clients_authenticate(self) -> bool:
        """Whether the listener authenticates clients: by a login, or by a certificate."""
        by_certificate = self.security_protocol == "SSL" and self.ssl_client_auth != "none"
        return by_certificate or self.security_protocol.startswith("SASL_")

    @property
    def enforces_acls(self) -> bool:
        """Whether clients may only do what Kafka's ACLs allow: where they authenticate, unless configured otherwise."""
        return self.clients_authenticate if self.authorizer is None else self.authorizer == "kafka"

    def for_worker(self, index: int) -> Settings:
        """The settings of worker `index`: node id and all ports are higher by it."""
        return replace(
            self,
            node_id=self.node_id + index,
            listen=self.listen._replace(port=self.listen.port + index),
            advertise=self.advertise._replace(port=self.advertise.port + index),
            admin_listen=self.admin_listen._replace(port=self.admin_listen.port + index),
            admin_advertise=self.admin_advertise._replace(port=self.admin_advertise.port + index),
        )

    @classmethod
    def from_plain(cls, found: Mapping[str, Any]) -> Settings:
        """From what JSON leaves of `asdict`; checks nothing."""
        addresses = {name: Address(*found[name]) for name in ("listen", "advertise", "admin_listen", "admin_advertise")}
        servers = tuple(Address(*each) for each in found["bootstrap_servers"])
        return cls(**{**found, **addresses, "bootstrap_servers": servers})


class Problem(NamedTuple):
    """One thing that is wrong: the setting's full name, where its value was found, the value as text ("" where there is
    none, masked where it is secret) and what to do.
    """

    setting: str
    origin: str
    value: str
    advice: str

    def __str__(self) -> str:
        shown = f" = {self.value}" if self.value else ""
        return f"{self.setting}{shown} ({self.origin}): {self.advice}"


class SettingsError(Exception):
    """The settings cannot be used; `problems` holds all that is wrong with them, `warnings` what is merely odd."""

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


def find_config(config: Path | None) -> Path | None:
    """The file to read: the one asked for, or the first of `CONFIG_FILES` that exists."""
    if config is not None:
        return config
    return next((path for path in CONFIG_FILES if path.is_file()), None)


def check_token(token: str | None) -> str | None:
    """The same. Raises ValueError, without the token in it, for one that no HTTP header can carry."""
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise ValueError("has spaces or characters outside ASCII, which no HTTP header can carry")
    return token


def local_url(admin_listen: Address) -> str:
    """The URL of a node's HTTP side for programs on its own machine."""
    return f"http://{admin_listen._replace(host='127.0.0.1') if admin_listen.wildcard else admin_listen}"


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a file. Raises SettingsError where there is none."""
    import tomllib  # noqa: PLC0415 - a node has no file to read, and most commands have none

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        advice = f"cannot be read: {error.strerror or error}. Correct the path, or leave it out."
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        advice = f"is not valid TOML: {error}"
    raise SettingsError([Problem("file", str(path), "", advice)])
