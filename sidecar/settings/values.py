"""Settings as a running node has them, checked, and what is said of those that cannot be used. Imports no pydantic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from sidecar.settings.access import Admin, Rules, TowardsKafka
from sidecar.settings.basics import Basics
from sidecar.settings.checks import Address
from sidecar.settings.limits import Limits
from sidecar.settings.listeners import (
    OWN_SETTINGS,
    Listener,
    ListenerSettings,
    NamedAddress,
    NamedProtocol,
    own_of,
    protocol_of,
)

ENV_PREFIX: Final = "SIDECAR_"
CONFIG_FILES: Final = (Path("sidecar.toml"), Path("/etc/sidecar/sidecar.toml"))
"""Where a file is looked for without `--config`; the first that exists is read, alone."""

DEDUPLICATES_ALL: Final = (
    "governs every topic but internal ones, whatever else their policies say: transactions are refused on all of them"
    " (error 48). "
    "Where applications use transactions, set it by topic or prefix instead: sidecar topic set TOPIC --dedup"
)
"""What SIDECAR_DEDUPLICATION=true brings with it; reported wherever settings are checked, and by a node that starts."""


@dataclass(frozen=True, kw_only=True)
class Settings(TowardsKafka, Limits, Rules, Admin, Basics, Listener):
    """All settings of a node, checked. Durations are milliseconds, sizes bytes.

    `listen` and `admin_listen` may have port 0: any free one; `advertise` then has port 0 as well and means the same.
    `listen`, `advertise` and `security_protocol` are those of the first listener; `all_listeners` has all of them.
    """

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
