"""Settings as a running node has them, checked, and what is said of those that cannot be used. Imports none of the
others here, and no pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from sidecar.settings.address import Address
from sidecar.settings.listeners import (
    OWN_SETTINGS,
    ListenerSecurity,
    ListenerSettings,
    NamedAddress,
    NamedProtocol,
    own_of,
    protocol_of,
)

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


@dataclass(frozen=True, slots=True)
class Settings(ListenerSecurity):
    """All settings of a node, checked. Durations are milliseconds, sizes bytes.

    `listen` and `admin_listen` may have port 0: any free one; `advertise` then has port 0 as well and means the same.
    `listen`, `advertise` and `security_protocol` are those of the first listener; `all_listeners` has all of them.
    """

    bootstrap_servers: tuple[Address, ...]
    redis_url: str = field(repr=False)
    listen: Address
    advertise: Address
    listeners: tuple[NamedAddress, ...]
    """Empty where `listen` names the only one."""
    advertised_listeners: tuple[NamedAddress, ...]
    listener_security_protocol_map: tuple[NamedProtocol, ...]
    admin_listen: Address
    admin_advertise: Address
    node_id: int
    cluster: str
    lease_ms: int
    reconnect_grace_ms: int
    disconnect_grace_ms: int
    admin_url: str
    deduplication: bool
    sequence_id_header: str
    producer_name_header: str
    producer_names_limit: int
    linger_ms: int
    linger_bytes: int
    retry_buffer_bytes: int
    queue_limit: int
    shared_fetch_max_wait_ms: int
    shared_fetch_min_readers: int
    schema_registry_url: str | None = field(repr=False)
    kafka_connect_timeout_ms: int
    kafka_request_timeout_ms: int
    redis_timeout_ms: int
    max_request_bytes: int
    log_level: str
    log_format: str
    admin_token: str | None = field(repr=False)
    admin_read_token: str | None = field(default=None, repr=False)
    admin_hosts: str = ""
    admin_ssl_certificate: str | None = None
    admin_ssl_key: str | None = None
    admin_ssl_ca: str | None = None
    admin_client_ssl_ca: str | None = None
    admin_client_ssl_certificate: str | None = None
    admin_client_ssl_key: str | None = None
    authorizer: str | None = None
    super_users: str = ""
    allow_if_no_acl_found: bool = False
    govern_by_client_id: bool = True
    take_over_operation: str = "ALTER"
    max_connections: int = 0
    max_connections_per_ip: int = 0
    max_connections_per_ip_overrides: str = ""
    max_connections_per_principal: int = 0
    max_connection_creation_rate: int = 1_000
    reserved_files: int = 0
    connections_max_idle_ms: int = 600_000
    login_timeout_ms: int = 10_000
    max_unfinished_handshakes: int = 1_024
    logins_at_once: int = 64
    queued_max_request_bytes: int = 64 * 1024 * 1024
    queued_max_response_bytes: int = 80 * 1024 * 1024
    max_request_elements: int = 110_000
    turn_elements: int = 256
    decompression_byte_rate: int = 128 * 1024 * 1024
    quota_producer_byte_rate: int = 0
    quota_consumer_byte_rate: int = 0
    quota_request_rate: int = 0
    shadow_max_readers: int = 0
    shadow_consumer_byte_rate: int = 0
    log_limit: int = 100
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
    kafka_delegation_tokens: str | None = None
    listener_settings: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Settings that one listener has of its own, by their names: `listener_inside_ssl_client_auth`."""

    @property
    def all_listeners(self) -> tuple[ListenerSettings, ...]:
        """Every listener, at least one. Without `listeners` the only one is called like its protocol, as in Kafka."""
        common = {name: getattr(self, name) for name in OWN_SETTINGS}
        if not self.listeners:
            protocol = self.security_protocol
            return (ListenerSettings(protocol, self.listen, self.advertise, security_protocol=protocol, **common),)
        advertised = {each.name: each.address for each in self.advertised_listeners}
        return tuple(
            ListenerSettings(
                each.name,
                each.address,
                advertised.get(each.name, each.address),
                security_protocol=protocol_of(each.name, self.listener_security_protocol_map) or "",
                **{**common, **own_of(each.name, self.listener_settings)},
            )
            for each in self.listeners
        )

    @property
    def clients_authenticate(self) -> bool:
        """Whether any listener asks clients who they are. The others' clients are User:ANONYMOUS, as with Kafka."""
        return any(each.clients_authenticate for each in self.all_listeners)

    @property
    def enforces_acls(self) -> bool:
        """Whether clients may only do what Kafka's ACLs allow: where they authenticate, unless configured otherwise."""
        return self.clients_authenticate if self.authorizer is None else self.authorizer == "kafka"

    def for_worker(self, index: int) -> Settings:
        """The settings of worker `index`: node id and all ports are higher by it."""
        return replace(
            self,
            node_id=self.node_id + index,
            listen=_moved(self.listen, index),
            advertise=_moved(self.advertise, index),
            listeners=tuple(each._replace(address=_moved(each.address, index)) for each in self.listeners),
            advertised_listeners=tuple(
                each._replace(address=_moved(each.address, index)) for each in self.advertised_listeners
            ),
            admin_listen=_moved(self.admin_listen, index),
            admin_advertise=_moved(self.admin_advertise, index),
        )

    @classmethod
    def from_plain(cls, found: Mapping[str, Any]) -> Settings:
        """From what JSON leaves of `asdict`; checks nothing."""
        addresses = {name: Address(*found[name]) for name in ("listen", "advertise", "admin_listen", "admin_advertise")}
        servers = tuple(Address(*each) for each in found["bootstrap_servers"])
        listeners = {
            key: tuple(NamedAddress(name, Address(*address)) for name, address in found[key])
            for key in ("listeners", "advertised_listeners")
        }
        protocols = tuple(NamedProtocol(*each) for each in found["listener_security_protocol_map"])
        return cls(
            **{
                **found,
                **addresses,
                **listeners,
                "bootstrap_servers": servers,
                "listener_security_protocol_map": protocols,
            }
        )


def _moved(address: Address, ports: int) -> Address:
    return address._replace(port=address.port + ports)


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


class Misfit(NamedTuple):
    """A setting, by its field's name, that does not fit to others, and what to do."""

    setting: str
    advice: str


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


def local_url(admin_listen: Address, *, tls: bool = False) -> str:
    """The URL of a node's HTTP side for programs on its own machine."""
    scheme = "https" if tls else "http"
    return f"{scheme}://{admin_listen._replace(host='127.0.0.1') if admin_listen.wildcard else admin_listen}"


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
