"""Who may do what over HTTP: a table of credentials and their rights. Pure.

There are two tokens; the operator's token is valid for reads too. If no operator's token is set, only programs on the
node's own machine may write, except a browser that runs another site's page. Such a request carries the page's origin,
or a host name that was made to resolve to this node (DNS rebinding). Without a reader's token reads are open, but not
under such a host name. Health is open to everybody. If the port requires client certificates, everything but health
needs one; a certificate identifies the client but replaces no token.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
"""Headers with which a proxy marks a forwarded request (RFC 7239, RFC 9110 §7.6.3, and usage)."""


class Right(IntEnum):
    """The right that a request needs; each includes those before it."""

    HEALTH = 0
    """Whether the node runs and can serve: for orchestrators, from anywhere, without credentials."""
    FILES = 1
    """What is equal on every node: the page, the OpenAPI document."""
    READ = 2
    OPERATE = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: its address, and the headers that identify it ("" if absent)."""

    peer: str
    host: str
    origin: str = ""
    authorization: str = ""
    forwarded: bool = False
    """True if a proxy marked the request as forwarded; `peer` is the proxy then."""
    certificate: str = ""
    """The subject of the client's trusted certificate."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the port. `hosts`: the host names allowed in requests without a token; `.name` includes all names
    below it, `*` any. With `tls` they are not checked, because browsers compare the name with the certificate.
    """

    operate: str | None
    read: str | None
    hosts: frozenset[str] = frozenset()
    tls: bool = False
    certificates: bool = False


class Refusal(NamedTuple):
    """The reason of a refusal: an HTTP status (401 or 403) and what to do."""

    status: int
    message: str


class Judged(NamedTuple):
    """Who sends the request, in the words of the audit log, and the reason why it is refused; None: it is allowed."""

    who: str
    refusal: Refusal | None = None


OPERATOR: Final = "token"
READER: Final = "read-token"
LOCAL: Final = "loopback"
ANYBODY: Final = "anonymous"


def judge(caller: Caller, right: Right, rules: Rules) -> Judged:
    """Who the caller is, and whether the caller has this right."""
    who = _who(caller, rules)
    return Judged(who, None if right is Right.HEALTH else _refusal(caller, right, rules, who))


def granted(who: str, right: Right, rules: Rules) -> Refusal | None:
    """None if a token has this right, also a token that was shown to the node that passed the request on."""
    if who == OPERATOR or (who == READER and right <= Right.READ):
        return None
    if right is Right.OPERATE:
        return _NEEDS_OPERATOR
    return _NEEDS_READER if rules.read is not None and right is Right.READ else None


def sees_producer_ids(who: str, rules: Rules) -> bool:
    """Whether answers contain producer ids: with a token; if the node has no tokens, for programs on its own machine,
    which may do everything there.
    """
    return who in (OPERATOR, READER) or (who == LOCAL and rules.operate is None and rules.read is None)


def _who(caller: Caller, rules: Rules) -> str:
    scheme, _, shown = caller.authorization.partition(" ")
    shown = shown.strip() if scheme.lower() == "bearer" else ""
    is_operator, is_reader = same(shown, rules.operate), same(shown, rules.read)  # both, so that the time is equal
    if is_operator:
        return OPERATOR
    if is_reader:
        return READER
    return LOCAL if not caller.forwarded and _is_loopback(caller.peer) else ANYBODY


def _refusal(caller: Caller, right: Right, rules: Rules, who: str) -> Refusal | None:
    if rules.certificates and not caller.certificate:
        return Refusal(403, "this port asks for a client certificate (SIDECAR_ADMIN_SSL_CA on the node)")
    if who in (OPERATOR, READER):
        return granted(who, right, rules)
    if right is Right.OPERATE:
        return _NEEDS_OPERATOR if rules.operate is not None else _of_write(caller, who)
    if right is Right.READ and rules.read is not None:
        return _NEEDS_READER
    if not rules.tls and not is_known(caller.host, rules.hosts):
        return Refusal(
            403,
            f"this node is not called {_hostname(caller.host)[:100] or 'that'}: name it in SIDECAR_ADMIN_HOSTS, use its"
            " address, or show a token",
        )
    return None


def _of_write(caller: Caller, who: str) -> Refusal | None:
    if who != LOCAL:
        return Refusal(
            403,
            "without SIDECAR_ADMIN_TOKEN set on the node, it accepts writes only from its own machine or container: set"
            " one, or run the command there (docker compose exec sidecar-1 sidecar …, kubectl exec POD -- sidecar …)",
        )
    if not _names_this_machine(caller.host) or (caller.origin and _place(caller.origin) != caller.host):
        return Refusal(403, "without SIDECAR_ADMIN_TOKEN set on the node, writes through another web site are refused")
    return None


_NEEDS_OPERATOR: Final = Refusal(401, "this needs the node's token: Authorization: Bearer SIDECAR_ADMIN_TOKEN")
_NEEDS_READER: Final = Refusal(
    401, "this needs a token of the node: Authorization: Bearer SIDECAR_ADMIN_READ_TOKEN or SIDECAR_ADMIN_TOKEN"
)


def same(shown: str, token: str | None) -> bool:
    """Whether `shown` equals the token, compared in a time that does not depend on where they differ."""
    return token is not None and hmac.compare_digest(shown.encode(errors="surrogateescape"), token.encode())


def own_hosts(names: Iterable[str], more: str) -> frozenset[str]:
    """The names for `Rules.hosts`: the node's own, and those in SIDECAR_ADMIN_HOSTS."""
    return frozenset(each.strip().lower() for each in (*names, *more.split(",")) if each.strip())


def is_known(host: str, hosts: frozenset[str]) -> bool:
    """Whether no foreign name server can have pointed this name at the node. That holds for an address, for a name
    without a dot, which no public name server answers for, and for one of `hosts`.
    """
    name = _hostname(host)
    if not name:
        return False
    if "*" in hosts or "." not in name or name.endswith(".localhost") or _is_address(name):
        return True
    return name in hosts or any(each.startswith(".") and name.endswith(each) for each in hosts)


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_loopback(address: str) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _names_this_machine(host: str) -> bool:
    """Whether the host is an IP address or localhost: no name server can redirect these."""
    name = _hostname(host)
    return name == "localhost" or _is_address(name)
