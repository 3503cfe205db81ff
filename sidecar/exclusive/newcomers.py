"""Everybody at a topic but its owner: who waits, who was deposed or struck back, whose own ghost may hold it, and which
sequences were refused. Bounded by what is connected, or by number; decides nothing (`claims` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.forwarder.sequences import RefusedSequences

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from sidecar.exclusive.claims import Claimant
    from sidecar.exclusive.domain import Domain
    from sidecar.protocol.batch import BatchHeader

_PATIENCE_S: Final = 5.0
"""Who waits tries again within this, as clients do by themselves."""
_PRUNE_S: Final = 0.25
_REFUSED_KEPT: Final = 10_000
_STRUCK_KEPT: Final = 1_000
_PLAIN: Final = "conn:"


class Refusals:
    """Sequences refused for good, by session and partition of one topic, until they are written down with a slot."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, RefusedSequences]] = {}

    def add(self, claimant: Claimant, partition: int, header: BatchHeader) -> None:
        """A final error that is not the end of the session: its client counts these sequences as used."""
        if header.producer_id >= 0:
            self.note(claimant.session, partition, header.producer_epoch, header.base_sequence, header.records)

    def note(self, session: str, partition: int, client_epoch: int, first: int, records: int) -> None:
        """As `add`, for an idempotent session."""
        if session not in self._found and len(self._found) >= _REFUSED_KEPT:
            del self._found[next(iter(self._found))]
        by_partition = self._found.setdefault(session, {})
        found = by_partition.setdefault(partition, RefusedSequences(client_epoch))
        found.refused(client_epoch, first, records)

    def has(self, session: str) -> bool:
        """Whether anything of a session was refused that is not written down."""
        return session in self._found

    def of(self, session: str, domain: Domain) -> dict[int, RefusedSequences]:
        """What was refused to a session in the partitions of a slot."""
        by_partition = self._found.get(session, {})
        return {partition: found for partition, found in by_partition.items() if domain.covers(partition)}

    def forgive(self, session: str, domain: Domain) -> None:
        """They are written down with the session's slot."""
        for partition in self.of(session, domain):
            del self._found[session][partition]
        if not self._found.get(session, True):
            del self._found[session]


class Newcomers:
    """State of one topic or partition. Times are monotonic seconds unless they say otherwise."""

    def __init__(self, grace: float) -> None:
        """`grace`: for so many seconds an idempotent session keeps its place without a connection."""
        self._grace = grace
        self.tainted: set[int] = set()
        """Connections that carried a deposed session: whatever else they carry strikes back."""
        self.ghosts: dict[int, float] = {}
        """When the first batch under the owner's own name came, by connection."""
        self.struck: dict[str, tuple[str, int]] = {}
        """Sessions answered 90 that the changelog does not list, or not with this try: (name, last try in Unix ms)."""
        self._waiting: dict[str, tuple[Claimant | None, float, float]] = {}
        self._order: tuple[str, ...] = ()
        self._pruned = 0.0

    # The queue ----------------------------------------------------------------------------------------------------

    @property
    def order(self) -> tuple[str, ...]:
        """The sessions that wait or are expected to; another object once that has changed."""
        return self._order

    def queue(self, now: float) -> tuple[str, ...]:
        """The sessions that wait, in order; whoever has not tried for a while is gone."""
        if self._order and now - self._pruned > _PRUNE_S:
            self._pruned = now
            self._leave([session for session, (_, _, until) in self._waiting.items() if now > until])
        return self._order

    def wait(self, claimant: Claimant, now: float, patience: float = _PATIENCE_S, *, came: float | None = None) -> None:
        """It takes a place, or keeps the one it has, for so many seconds. `came`: when it came first; before all who
        came later, also where it has lost its place meanwhile.
        """
        session, before = claimant.session, self._waiting.get(claimant.session)
        since = now if came is None else came
        if before is not None and before[1] <= since:
            self._waiting[session] = claimant, before[1], max(before[2], now + patience)
            return
        self._waiting.pop(session, None)
        behind: list[tuple[str, tuple[Claimant | None, float, float]]] = []
        while self._waiting and next(reversed(self._waiting.values()))[1] > since:
            behind.append(self._waiting.popitem())
        self._waiting[session] = claimant, since, now + patience
        self._waiting.update(reversed(behind))
        self._order = tuple(self._waiting)

    def expect(self, sessions: Iterable[str], now: float) -> None:
        """These waited at the node that served the topic before: each keeps its place if it comes soon."""
        until = now + self._grace
        before = {session: (None, now, until) for session in sessions if not session.startswith(_PLAIN)}
        self._waiting = {**before, **self._waiting}
        self._order = tuple(self._waiting)

    def leave(self, session: str) -> None:
        """It waits no more."""
        self._leave((session,))

    def _leave(self, sessions: Iterable[str]) -> None:
        """However many they are, the queue is walked once."""
        before = len(self._waiting)
        for session in sessions:
            self._waiting.pop(session, None)
        if len(self._waiting) != before:
            self._order = tuple(self._waiting)

    def waiting(self, now: float) -> list[tuple[Claimant, float]]:
        """Who waits, in order, and since when."""
        self.queue(now)
        return [(claimant, since) for claimant, since, _ in self._waiting.values() if claimant is not None]

    def count(self, now: float) -> int:
        """How many wait."""
        self.queue(now)
        return sum(claimant is not None for claimant, _, _ in self._waiting.values())

    # Refusals -----------------------------------------------------------------------------------------------------

    def fenced(self, claimant: Claimant, wall_ms: int) -> None:
        """A deposed session tried again, or another one on its connection."""
        self.tainted.add(claimant.connection)
        if not claimant.session.startswith(_PLAIN):
            if claimant.session not in self.struck and len(self.struck) >= _STRUCK_KEPT:
                del self.struck[next(iter(self.struck))]
            self.struck[claimant.session] = claimant.name, wall_ms

    # What ends them -----------------------------------------------------------------------------------------------

    def claimed(self, session: str, evicted: Iterable[str], deposed: Container[str]) -> None:
        """A session owns the topic now, and those `evicted` wait no more; the changelog lists `deposed` ones."""
        self.ghosts.clear()
        self.struck = {session: found for session, found in self.struck.items() if session not in deposed}
        self._leave((session, *evicted))

    def connection_closed(self, connection: int, now: float) -> None:
        """A plain session dies with its connection; an idempotent one keeps its place for a while."""
        self.tainted.discard(connection)
        self.ghosts.pop(connection, None)
        for session, (claimant, since, _) in list(self._waiting.items()):
            if claimant is None or claimant.connection != connection:
                continue
            if session.startswith(_PLAIN):
                self.leave(session)
            else:
                self._waiting[session] = claimant, since, now + self._grace
