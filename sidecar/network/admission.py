"""Limits on client connections: their number in all, per address and per principal, and the rate of new ones.

`Admission` decides and counts, and closes nothing: a listener or a handler requests a `Seat` for each connection, and
closes the connection if it gets none. Limits are per node, as Kafka's `max.connections` and `max.connections.per.ip`
are per broker. Some of the process's open files are reserved for the node's own connections to brokers and Redis, and
for the admin port: otherwise a client that opens sockets until no file is left would block health checks, too.
"""

import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from typing import Final

from sidecar.protocol.limits import MOST_CONNECTIONS

BURST_S: Final = 10
"""Seconds of the rate that may be used at once, as Kafka's quota window allows: clients of a node that died all
reconnect at the same time."""
_ADDRESSES: Final = 10_000
"""Addresses whose rate is remembered. With one more, the oldest is forgotten and starts with an unused rate."""
_UNLIMITED_FILES: Final = 1_048_576
_ADMIN_PART: Final = 4
_ADMIN_MOST: Final = 256
_OWN_PART: Final = 8
_OWN_MOST: Final = 256


class Refusal(StrEnum):
    """Why a connection is closed as soon as it is accepted."""

    TOTAL = "total"
    ADDRESS = "address"
    PRINCIPAL = "principal"
    RATE = "rate"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one node.

    `connections`: in all; `per_address`; `per_principal` and `rate` (new connections per second, of which one address
    may use half): 0 for no limit. `files`: open files for clients and for the connections to brokers made for them;
    `address_files`: the same for one address. `overrides`: limits that replace `per_address`, by `address_group`; such
    an address may use all files.
    """

    connections: int
    per_address: int
    per_principal: int
    rate: int
    files: int
    address_files: int
    overrides: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(
        cls,
        open_files: int,
        *,
        connections: int = 0,
        per_address: int = 0,
        per_principal: int = 0,
        rate: int = 0,
        reserved: int = 0,
        overrides: Mapping[str, int] | None = None,
    ) -> "ConnectionLimits":
        """Return the limits of a process that may open `open_files` files.

        0 stands for a default: `connections`: one for each file that is not reserved; `per_address`: half of that, and
        then one address may also use half of the files, with its connections to brokers. An address in `overrides` may
        use all files.
        """
        files = max(2, open_files - (reserved or reserved_files(open_files)))
        most = min(connections or files, files)
        one = min(per_address or max(1, most // 2), most)
        files_of_one = files if per_address else max(2, files // 2)
        return cls(most, one, per_principal, rate, files, files_of_one, overrides or {})

    def connections_of(self, group: str) -> int:
        """The limit of connections from an address."""
        return self.overrides.get(group, self.per_address)

    def files_of(self, group: str) -> int:
        """The limit of open files for an address."""
        return self.files if group in self.overrides else self.address_files


def open_files() -> int:
    """Return how many files this process may open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED_FILES if soft == resource.RLIM_INFINITY else soft


def admin_connections(files: int) -> int:
    """Return the connection limit of the admin port; its connections use reserved files."""
    return max(1, min(_ADMIN_MOST, files // _ADMIN_PART))


def reserved_files(files: int) -> int:
    """Return how many of a process's files clients cannot use: those of the admin port and of the node itself."""
    return admin_connections(files) + min(_OWN_MOST, files // _OWN_PART)


def address_group(host: str) -> str:
    """Return the group in which an address is counted: itself, or its /64 for IPv6, as one machine has a whole /64."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def parse_overrides(text: str) -> dict[str, int]:
    """Parse `address:limit,…` into limits by `address_group`. An IPv6 address may be in brackets. Raises ValueError.
    Kafka resolves host names when it starts; here they are refused, as they may resolve to other addresses later.
    """
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        host, colon, limit = (each.strip() for each in part.rpartition(":"))
        if not colon or not (limit.isascii() and limit.isdigit()) or int(limit) > MOST_CONNECTIONS:
            raise ValueError(f"{part!r} is not of the form address:limit, with a limit from 0 to {MOST_CONNECTIONS}")
        try:
            group = address_group(str(ip_address(host[1:-1] if host[:1] + host[-1:] == "[]" else host)))
        except ValueError:
            raise ValueError(f"{host!r} is no IP address, and names are not looked up") from None
        if group in found:
            raise ValueError(f"has {group} twice")
        found[group] = int(limit)
    return found


class _Bucket:
    """A token bucket: `rate` per second, and up to `BURST_S` seconds of unused rate at once."""

    __slots__ = ("at", "left", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.left = rate * BURST_S
        self.at = now

    def take(self, now: float) -> bool:
        self.left = min(self.rate * BURST_S, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Seat:
    """One connection's share of the limits. `leave` may be called more than once."""

    __slots__ = ("_admission", "group", "principal")

    def __init__(self, admission: "Admission", group: str) -> None:
        self._admission: Admission | None = admission
        self.group = group
        self.principal: str | None = None

    @property
    def is_left(self) -> bool:
        """Whether the connection has ended."""
        return self._admission is None

    def leave(self) -> None:
        """Return the seat: the connection has ended."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.left(self)


class Admission:
    """Counts connections and refuses those beyond a limit. `refused` is called with each reason and address."""

    def __init__(
        self,
        limits: ConnectionLimits,
        refused: Callable[[Refusal, str], None] = lambda _reason, _host: None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limits = limits
        self.connections = 0
        self.links = 0
        """Connections to brokers that were opened for clients."""
        self._links_by_group: Counter[str] = Counter()
        self._refused = refused
        self._clock = clock or time.monotonic
        self._by_group: Counter[str] = Counter()
        self._by_principal: Counter[str] = Counter()
        self._rates: dict[str, _Bucket] = {}
        self._rate = _Bucket(limits.rate, self._clock())

    def enter(self, host: str) -> Seat | None:
        """Return a seat for a connection from this address; None if the connection has to be closed."""
        group = address_group(host)
        reason = self._judge(group)
        if reason is not None:
            self._refused(reason, host)
            return None
        self.connections += 1
        self._by_group[group] += 1
        return Seat(self, group)

    def _judge(self, group: str) -> Refusal | None:
        """Check the limits of the address first: a refused address then uses nothing of the limits for all."""
        limits = self.limits
        now = self._clock()
        if limits.rate and not self._rate_of(group, now).take(now):
            return Refusal.RATE
        if self._by_group.get(group, 0) >= limits.connections_of(group) or self._has_files(group):
            return Refusal.ADDRESS
        if self.connections >= limits.connections:
            return Refusal.TOTAL
        if self.connections + self.links >= limits.files:
            return Refusal.FILES
        if limits.rate and not self._rate.take(now):
            return Refusal.RATE
        return None

    def _rate_of(self, group: str, now: float) -> _Bucket:
        bucket = self._rates.get(group)
        if bucket is None:
            if len(self._rates) >= _ADDRESSES:
                del self._rates[next(iter(self._rates))]
            bucket = self._rates[group] = _Bucket(self.limits.rate / 2, now)
        return bucket

    def name(self, seat: Seat, principal: str, host: str) -> bool:
        """Count the seat for a principal. Return False if the principal has too many connections, or if the connection
        ended during its login: nothing would subtract it from the count again.
        """
        if seat.is_left:
            return False
        if seat.principal == principal:
            return True
        most = self.limits.per_principal
        if most and self._by_principal.get(principal, 0) >= most:
            self._refused(Refusal.PRINCIPAL, host)
            return False
        self._unname(seat)
        seat.principal = principal
        self._by_principal[principal] += 1
        return True

    def left(self, seat: Seat) -> None:
        """See `Seat.leave`."""
        self.connections -= 1
        _less(self._by_group, seat.group)
        self._unname(seat)

    def _unname(self, seat: Seat) -> None:
        if seat.principal is not None:
            _less(self._by_principal, seat.principal)
            seat.principal = None

    # Connections to brokers -----------------------------------------------------------------------------------------

    def may_link(self, group: str) -> bool:
        """Return whether enough files are left to open one more connection to a broker for a client of this group."""
        if self._has_files(group):
            self._refused(Refusal.ADDRESS, group)
        elif self.connections + self.links >= self.limits.files:
            self._refused(Refusal.FILES, group)
        else:
            return True
        return False

    def linked(self, group: str) -> None:
        """Count a connection to a broker that was opened."""
        self.links += 1
        self._links_by_group[group] += 1

    def unlinked(self, group: str) -> None:
        """Count a connection to a broker that has ended."""
        self.links -= 1
        _less(self._links_by_group, group)

    def _has_files(self, group: str) -> bool:
        """Whether an address uses all files that it may use."""
        return self._by_group.get(group, 0) + self._links_by_group.get(group, 0) >= self.limits.files_of(group)


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
