"""Kafka's client quotas (KIP-13, KIP-55): which one holds for a client, and how long a client that is over it waits.
Pure.

The rules are those of Kafka's `ClientQuotaManager` (entities, shared rates), `Rate` and `SampledStat` (windows) and
`QuotaUtils` (throttle times). `request_percentage` and `controller_mutation_rate` are left out: a node cannot measure
the time of brokers' threads, and changes of topics reach brokers under their client's name.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple, TypeAlias

from sidecar.protocol.calls.security import QuotaEntry
from sidecar.protocol.limits import SLICE
from sidecar.protocol.primitives import at_once

WINDOWS: Final = 11
"""Kafka's default of `quota.window.num`."""
WINDOW_MS: Final = 1_000
"""Kafka's default of `quota.window.size.seconds`, in ms."""
_LONGEST_MS: Final = 2**31 - 1
"""A throttle time is an int32. Brokers do not bound it either: one large request may cost minutes."""


class Quota(StrEnum):
    """A quota's key in Kafka. Values are bytes per second."""

    PRODUCER = "producer_byte_rate"
    CONSUMER = "consumer_byte_rate"


class _Part(Enum):
    """What an entity says of the user, or of the client id, if it gives no name."""

    DEFAULT = 0
    """All that have no quota by name."""
    ABSENT = 1
    """The entity does not look at it."""
    OWN = 2
    """In `_ORDER`: the client's own name."""


_DEFAULT, _ABSENT, _OWN = _Part.DEFAULT, _Part.ABSENT, _Part.OWN
_Name: TypeAlias = str | _Part
_ORDER: Final = (
    (_OWN, _OWN),
    (_OWN, _DEFAULT),
    (_OWN, _ABSENT),
    (_DEFAULT, _OWN),
    (_DEFAULT, _DEFAULT),
    (_DEFAULT, _ABSENT),
    (_ABSENT, _OWN),
    (_ABSENT, _DEFAULT),
)
"""Entities (user, client id) from the most to the least specific; the first that has the quota holds."""
_BY_USER: Final = ((_OWN, _ABSENT), (_DEFAULT, _ABSENT))
_USER: Final = "user"
_CLIENT_ID: Final = "client-id"


class Who(NamedTuple):
    """A client as quotas see it: its user without `User:`, and its client id without settings."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """The quota of a client. `shared_by`: all clients with this user and client id use one rate; "" stands for any.
    `level`: the kind of entity, for metrics.
    """

    quota: Quota
    shared_by: Who
    per_second: float
    level: str


@dataclass(frozen=True, slots=True)
class ClientQuotas:
    """The quotas of a cluster. False if there are none."""

    _limits: Mapping[Quota, Mapping[tuple[_Name, _Name], float]] = field(
        default_factory=dict[Quota, Mapping[tuple[_Name, _Name], float]]
    )

    @classmethod
    def of(cls, entries: Iterable[QuotaEntry]) -> ClientQuotas:
        """From what brokers describe. Quotas by address (`ip`), and of other keys, are left out."""
        return at_once(cls.of_steps(entries))

    @classmethod
    def of_steps(cls, entries: Iterable[QuotaEntry]) -> Generator[None, None, ClientQuotas]:
        """As `of`, in slices."""
        limits: dict[Quota, dict[tuple[_Name, _Name], float]] = {}
        for number, (entity, values) in enumerate(entries, 1):
            if not number % SLICE:
                yield
            names = tuple(_name(entity, kind) for kind in (_USER, _CLIENT_ID))
            for quota in Quota:
                if names != (_ABSENT, _ABSENT) and (value := values.get(quota, 0.0)) > 0:
                    limits.setdefault(quota, {})[names[0], names[1]] = value
        return cls(limits)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def __len__(self) -> int:
        return sum(map(len, self._limits.values()))

    def limit(self, quota: Quota, who: Who) -> Limit | None:
        """The quota that holds for a client; None if none does."""
        limits = self._limits.get(quota)
        if limits is None:
            return None
        for of_user, of_client in _ORDER:
            value = limits.get(_entity(who, of_user, of_client))
            if value is None:
                continue
            if of_client is not _ABSENT and not who.client_id:
                return _of_nameless(limits, quota, who)
            return _limit(quota, who, of_user, of_client, value)
        return None

    def uncounted(self, quota: Quota, who: Who, seen: Who) -> Limit | None:
        """The client's quota, if brokers do not count its traffic against it themselves, because they see `seen`."""
        limit = self.limit(quota, who)
        if limit is None:
            return None
        counted = self.limit(quota, seen)
        return None if counted is not None and counted.shared_by == limit.shared_by else limit


def _name(entity: Mapping[str, str | None], kind: str) -> _Name:
    if kind not in entity:
        return _ABSENT
    name = entity[kind]
    return _DEFAULT if name is None else name


def _entity(who: Who, of_user: _Part, of_client: _Part) -> tuple[_Name, _Name]:
    return who.user if of_user is _OWN else of_user, who.client_id if of_client is _OWN else of_client


def _of_nameless(limits: Mapping[tuple[_Name, _Name], float], quota: Quota, who: Who) -> Limit | None:
    """For a client without a client id, Kafka takes the user's quota if an entity with a client id matches first."""
    for of_user, of_client in _BY_USER:
        value = limits.get(_entity(who, of_user, of_client))
        if value is not None:
            return _limit(quota, who, of_user, of_client, value)
    return None


def _limit(quota: Quota, who: Who, of_user: _Part, of_client: _Part, value: float) -> Limit:
    shared_by = Who("" if of_user is _ABSENT else who.user, "" if of_client is _ABSENT else who.client_id)
    parts = ((_USER, of_user), (_CLIENT_ID, of_client))
    return Limit(quota, shared_by, value, ",".join(kind for kind, part in parts if part is not _ABSENT))


@dataclass(slots=True)
class _Sample:
    began: int
    last: int
    amount: float = 0.0

    def restart(self, now: int) -> None:
        self.began = self.last = now
        self.amount = 0.0


class Window:
    """The rate of those who share a quota, over the last `windows` periods of `window_ms`. Times are in ms of any
    clock that never goes back.
    """

    __slots__ = ("_current", "_samples", "_window_ms", "_windows")

    def __init__(self, windows: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def use(self, amount: float, per_second: float, now: int) -> int:
        """Count an amount. Returns the throttle time in ms: after it the rate is within `per_second` again."""
        self._take(amount, now)
        self._forget(now)
        elapsed = self._elapsed(now)
        used = sum(each.amount for each in self._samples)
        if used * 1_000 <= per_second * elapsed:
            return 0
        return min(_LONGEST_MS, round(used * 1_000 / per_second - elapsed))

    def _take(self, amount: float, now: int) -> None:
        samples = self._samples
        if not samples:
            samples.append(_Sample(now, now))
        sample = samples[self._current]
        if now - sample.began >= self._window_ms:
            self._current = (self._current + 1) % (self._windows + 1)  # one more overlaps the beginning of the window
            if self._current == len(samples):
                samples.append(_Sample(now, now))
            sample = samples[self._current]
            sample.restart(now)
        sample.amount += amount
        sample.last = now

    def _forget(self, now: int) -> None:
        for each in self._samples:
            if now - each.last >= self._windows * self._window_ms:
                each.restart(now)

    def _elapsed(self, now: int) -> int:
        """The time of which the rate is the average: all periods but one at the least, as if nothing came before."""
        elapsed = now - min(each.began for each in self._samples)
        lacking = max(0, self._windows - 1 - elapsed // self._window_ms)
        return max(1, elapsed + lacking * self._window_ms)
