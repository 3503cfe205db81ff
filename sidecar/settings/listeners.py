"""The listeners of a node: how connections of clients begin, names, addresses and protocols in Kafka's syntax, and the
settings that one of them may have of its own (KIP-103). Pure, without pydantic: a running node imports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from typing import Annotated, Final, NamedTuple

from sidecar.settings.checks import (
    HTTP_URL,
    Address,
    File,
    Needs,
    Protocol,
    RequiredText,
    Text,
    as_it_is,
    check_http_url,
    one_of,
    optional,
    setting,
)

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols. A listener called like one has it without being in the map."""


ClientAuth = Annotated[str, one_of("none", "requested", "required")]
Authentication = Annotated[str, one_of("relay", "file", "jwks")]


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Listener:
    """How connections of clients begin: of all listeners in `Settings`, of one in `ListenerSettings`."""

    security_protocol: Protocol = setting("PLAINTEXT", "How connections of clients begin: TLS or not, login or not.")
    ssl_certificate: File = optional(
        "PEM file of the certificate that clients are shown, its chain after it.", "/etc/sidecar/tls.pem"
    )
    ssl_key: File = optional(
        "PEM file of that certificate's key, where it is not in the same file.", "/etc/sidecar/tls.key"
    )
    ssl_key_password: Text = optional("Password of that key, where it is encrypted.", "change-me", secret=True)
    ssl_ca: File = optional(
        "PEM file of the certificates that clients' are checked against.", "/etc/sidecar/clients-ca.pem"
    )
    ssl_client_auth: ClientAuth = setting("none", "Whether clients show a certificate: Kafka's `ssl.client.auth`.")
    ssl_principal_mapping_rules: Annotated[
        str, Needs("DEFAULT, or RULE:pattern/replacement/[LU], separated by commas", "DEFAULT|RULE:")
    ] = setting("DEFAULT", "What the holder of a certificate is called: Kafka's `ssl.principal.mapping.rules`.")
    sasl_mechanisms: Annotated[
        str | None,
        Needs("PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, separated by commas", "^[A-Z0-9, -]+$"),
    ] = optional("How clients may log in; by default with whatever brokers, or the file, take.", "SCRAM-SHA-512")
    sasl_authentication: Authentication = setting(
        "relay", "Who checks logins: a broker (relay), or this node with a file of users or a set of keys (jwks)."
    )
    sasl_users_file: File = optional("file: the TOML file of users.", "/etc/sidecar/users.toml")
    sasl_jwks_url: Annotated[str | None, replace(HTTP_URL, check=as_it_is(check_http_url))] = optional(
        "jwks: where the keys are that sign tokens of OAUTHBEARER.", "https://login.example/keys"
    )
    sasl_audience: Text = optional("jwks: the audience that tokens have to name.", "kafka")
    sasl_issuer: Text = optional("jwks: the issuer that tokens have to name.", "https://login.example")
    sasl_principal_claim: RequiredText = setting(
        "sub", "The claim of a token that names the principal; with relay, that which brokers take."
    )


OWN_SETTINGS: Final = tuple(each.name for each in fields(Listener) if each.name != "security_protocol")
"""The settings that a listener may have of its own: `listener_<name>_` in front of them."""

PREFIX: Final = "listener_"
_OWN: Final = re.compile(rf"{PREFIX}(?P<listener>[a-z0-9_]+?)_(?P<setting>{'|'.join(OWN_SETTINGS)})")
_NAME: Final = re.compile(r"[A-Z0-9_-]{1,64}")
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - what an empty host means in Kafka's syntax
NAME_PATTERN: Final = "[A-Za-z0-9_-]{1,64}"


class NamedAddress(NamedTuple):
    """One of `listeners` or `advertised_listeners`: NAME://host:port."""

    name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


class NamedProtocol(NamedTuple):
    """One of `listener_security_protocol_map`: NAME:PROTOCOL."""

    name: str
    protocol: str

    def __str__(self) -> str:
        return f"{self.name}:{self.protocol}"


@dataclass(frozen=True)
class ListenerSettings(Listener):
    """One listener with everything that is set for it, its own settings laid over those of all listeners.

    Port 0 of `listen` means any free one; `advertise` then has port 0 as well and means the same.
    """

    name: str
    listen: Address
    advertise: Address

    @property
    def clients_authenticate(self) -> bool:
        """Whether clients are asked who they are: by a login, or by a certificate."""
        by_certificate = self.security_protocol == "SSL" and self.ssl_client_auth != "none"
        return by_certificate or self.security_protocol.startswith("SASL_")


def own_setting(name: str) -> tuple[str, str] | None:
    """Listener, as settings write it, and setting of `listener_<name>_<setting>`; None for another name."""
    found = _OWN.fullmatch(name)
    return None if found is None else (found["listener"], found["setting"])


def key_of(listener: str) -> str:
    """A listener's name as the names of its own settings have it: lower case, `_` for what variables cannot hold."""
    return listener.lower().replace("-", "_")


def parse_listeners(text: str, *, bound: bool) -> tuple[NamedAddress, ...]:
    """`NAME://host:port,…` as Kafka reads it: names in upper case, an empty host is every interface, each name once.

    `bound`: these are listened at, so each port may stand once, unless one address is IPv4 and the other IPv6
    (KIP-797). Raises ValueError.
    """
    found = tuple(_parse_one(part) for part in _parts(text))
    if not found:
        raise ValueError("names no listener")
    if twice := _first_twice(key_of(each.name) for each in found):
        raise ValueError(f"has the listener {twice.upper()} twice: each needs a name of its own")
    if bound:
        _check_ports(found)
    return found


def parse_protocols(text: str) -> tuple[NamedProtocol, ...]:
    """`NAME:PROTOCOL,…` as Kafka reads it. Raises ValueError."""
    found: list[NamedProtocol] = []
    for part in _parts(text):
        name, colon, protocol = (each.strip().upper() for each in part.rpartition(":"))
        if not colon:
            raise ValueError(f"{part!r} is not of the form NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise ValueError(f"gives {name} the protocol {protocol!r}, which is none of {', '.join(PROTOCOLS)}")
        found.append(NamedProtocol(_checked(name), protocol))
    if twice := _first_twice(each.name for each in found):
        raise ValueError(f"has {twice} twice")
    return tuple(found)


def protocol_of(listener: str, protocols: Iterable[NamedProtocol]) -> str | None:
    """The security protocol of a listener: what the map says, else its name where that is one; None: nothing says."""
    for each in protocols:
        if each.name == listener:
            return each.protocol
    return listener if listener in PROTOCOLS else None


def own_of(listener: str, own: Mapping[str, str]) -> dict[str, str]:
    """The own settings of a listener, by the names that all listeners have them under."""
    found = {setting: own.get(f"{PREFIX}{key_of(listener)}_{setting}") for setting in OWN_SETTINGS}
    return {setting: value for setting, value in found.items() if value is not None}


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_one(text: str) -> NamedAddress:
    name, mark, rest = text.rpartition("://")
    if not mark:
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    name = _checked(name.upper())
    try:
        return NamedAddress(name, Address.parse(f"{_EVERYWHERE}{rest}" if rest.startswith(":") else rest))
    except ValueError as error:
        raise ValueError(f"the address of {name} {error}") from None


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a listener: 1 to 64 letters, digits, - or _")
    return name


def _first_twice(names: Iterator[str] | Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _check_ports(found: tuple[NamedAddress, ...]) -> None:
    by_port: dict[int, list[NamedAddress]] = {}
    for each in found:
        if each.address.port:
            by_port.setdefault(each.address.port, []).append(each)
    for port, those in by_port.items():
        if len(those) > 1 and sorted(map(_ip_version, those)) != [4, 6]:
            names = " and ".join(each.name for each in those)
            raise ValueError(f"has port {port} for {names}: each listener needs a port of its own")


def _ip_version(listener: NamedAddress) -> int:
    try:
        return ip_address(listener.address.host).version
    except ValueError:
        return 0
