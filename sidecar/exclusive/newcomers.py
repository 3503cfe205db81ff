"""Remembers the sessions of a topic other than its owner: those that wait, were deposed, or may be blocked by their own
ghost; and refused sequences. Bounded by the number of connections, or by a limit. `claims` makes the decisions.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable
from typing import Final, TypeAlias

from sidecar.access.rules import KEPT_S
from sidecar.exclusive.claims import Claimant
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.interfaces import Owning
from sidecar.exclusive.slots import SlotScope
from sidecar.forwarder.sequences import RefusedSequences
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.session import Session

_PRUNE_S: Final = 0.25
_REFUSED_KEPT: Final = 50_000
_REFUSED_KEPT_GONE: Final = 5_000
_STRUCK_KEPT: Final = 1_000

_Place: TypeAlias = "tuple[Refusals, Session]"
"""A session on one topic."""


class RefusedLedger:
    """Limits the refused sequences that the topics of a node remember. Above the limit it forgets those of sessions
    without a connection first, then those of the session that was refused longest ago.

    If a client continues after refused sequences that were forgotten, it is refused with 45
    OUT_OF_ORDER_SEQUENCE_NUMBER: its batches are never taken for repeats, nor appended in a wrong place.
    """

    def __init__(self, most: int = _REFUSED_KEPT, gone: int = _REFUSED_KEPT_GONE) -> None:
        """`most`: spans and partitions of all sessions together. `gone`: the same, of sessions without a connection."""
        self._limits = most, gone
        self._sizes: tuple[OrderedDict[_Place, int], OrderedDict[_Place, int]] = OrderedDict(), OrderedDict()
        self._totals = [0, 0]
        self._of_connection: dict[int, set[_Place]] = {}
        self._connection: dict[_Place, int] = {}

    @property
    def total(self) -> int:
        """The number of spans and partitions that are remembered."""
        return sum(self._totals)

    def noted(self, place: _Place, more: int, connection: int | None) -> None:
        """Add `more` to the size of a session, which uses this connection now (None: the same as before)."""
        connection = self._connection.get(place) if connection is None else connection
        size = self._take(place) + more
        if connection is not None:
            self._connection[place] = connection
            self._of_connection.setdefault(connection, set()).add(place)
        self._put(place, size, gone=False)

    def dropped(self, place: _Place) -> None:
        """Remove a session that has no refused sequences any more."""
        self._take(place)

    def _take(self, place: _Place) -> int:
        found = 0
        for number, sizes in enumerate(self._sizes):
            size = sizes.pop(place, 0)
            self._totals[number] -= size
            found += size
        self._leave(place)
        return found

    def connection_closed(self, connection: int) -> None:
        """Keep some of its sessions' sequences: they may come back on another connection."""
        for place in self._of_connection.pop(connection, ()):
            self._connection.pop(place, None)
            size = self._sizes[0].pop(place, 0)
            self._totals[0] -= size
            self._put(place, size, gone=True)

    def _put(self, place: _Place, size: int, *, gone: bool) -> None:
        self._sizes[gone][place] = size
        self._totals[gone] += size
        while self._totals[1] > self._limits[1] or self.total > self._limits[0]:
            (refusals, session), _ = next(iter(self._sizes[1 if self._sizes[1] else 0].items()))
            refusals.forget(session)

    def _leave(self, place: _Place) -> None:
        connection = self._connection.pop(place, None)
        if connection is not None:
            places = self._of_connection[connection]
            places.discard(place)
            if not places:
                del self._of_connection[connection]


class Refusals:
    """Sequences that got a final error, by session and partition of one topic, until a slot's record has them. Only of
    partitions that exist (`ExistingPartitions`), and only of batches of the session's own client (`bindings`).
    """

    def __init__(self, ledger: RefusedLedger | None = None) -> None:
        """`ledger`: the limit that all topics of a node share."""
        self._found: dict[Session, dict[int, RefusedSequences]] = {}
        self._ledger = ledger or RefusedLedger()

    def add(self, claimant: Claimant, partition: int, header: BatchHeader) -> None:
        """Note a final error that does not end the session: its client counts these sequences as used."""
        if header.producer_id >= 0:
            self.note(
                claimant.session,
                partition,
                header.producer_epoch,
                header.base_sequence,
                header.records,
                claimant.connection,
            )

    def note(
        self,
        session: Session,
        partition: int,
        client_epoch: int,
        first: ClientSequence,
        records: int,
        connection: int | None = None,
    ) -> None:
        """As `add`, for an idempotent session."""
        by_partition = self._found.setdefault(session, {})
        found = by_partition.get(partition)
        before = 0 if found is None else 1 + len(found.spans)
        if found is None:
            found = by_partition[partition] = RefusedSequences(client_epoch)
        found.refused(client_epoch, first, records)
        self._ledger.noted((self, session), 1 + len(found.spans) - before, connection)

    def has(self, session: Session, scope: SlotScope) -> bool:
        """Whether a session has refused sequences in the partitions of a slot that no record has yet."""
        return session in self._found and any(scope.covers(partition) for partition in self._found[session])

    def of(self, session: Session, scope: SlotScope) -> dict[int, RefusedSequences]:
        """The refused sequences of a session in the partitions of a slot."""
        by_partition = self._found.get(session, {})
        return {partition: found for partition, found in by_partition.items() if scope.covers(partition)}

    def forgive(self, session: Session, scope: SlotScope) -> None:
        """Forget these sequences: the record of the session's slot has them."""
        forgiven = 0
        for partition, found in self.of(session, scope).items():
            del self._found[session][partition]
            forgiven += 1 + len(found.spans)
        if not self._found.get(session, True):
            self.forget(session)
        elif forgiven:
            self._ledger.noted((self, session), -forgiven, None)

    def forget(self, session: Session) -> None:
        """Forget all refused sequences of a session."""
        if self._found.pop(session, None) is not None:
            self._ledger.dropped((self, session))


class Newcomers:
    """State of one topic or partition. Times are monotonic seconds unless they say otherwise."""

    def __init__(self, grace: float) -> None:
        """`grace`: how long an idempotent session keeps its place without a connection, in seconds."""
        self._grace = grace
        self.tainted: set[int] = set()
        """Connections that carried a deposed session: everything else on them is refused too."""
        self.ghosts: dict[int, float] = {}
        """By connection, when the first batch under the owner's own name arrived."""
        self.struck: dict[str, int] = {}
        """The last try (Unix ms) of sessions that were answered PRODUCER_FENCED and are not in the changelog's list."""
        self._again: dict[str, int] = {}
        """The same for sessions in that list, with an earlier try. Sessions outside the list never displace them."""
        self._waiting: dict[Session, tuple[Claimant | None, float, float]] = {}
        self._order: tuple[str, ...] = ()
        self._pruned = 0.0

    # The queue ----------------------------------------------------------------------------------------------------

    @property
    def order(self) -> tuple[str, ...]:
        """The sessions that wait or are expected to wait, in order. A change makes a new tuple."""
        return self._order

    def queue(self, now: float) -> tuple[str, ...]:
        """The sessions that wait, in order, without those that have not tried again in time."""
        if self._order and now - self._pruned > _PRUNE_S:
            self._pruned = now
            self._leave([session for session, (_, _, until) in self._waiting.items() if now > until])
        return self._order

    def wait(self, claimant: Claimant, now: float, patience: float = KEPT_S, *, came: float | None = None) -> None:
        """Give a claimant a place for `patience` seconds, or extend its place. `came`: when it first arrived (None:
        now). It is placed before all that arrived later, even if it lost its place in between.
        """
        session, before = claimant.session, self._waiting.get(claimant.session)
        since = now if came is None else came
        if before is not None and before[1] <= since:
            self._waiting[session] = claimant, before[1], max(before[2], now + patience)
            return
        self._waiting.pop(session, None)
        behind: list[tuple[Session, tuple[Claimant | None, float, float]]] = []
        while self._waiting and next(reversed(self._waiting.values()))[1] > since:
            behind.append(self._waiting.popitem())
        self._waiting[session] = claimant, since, now + patience
        self._waiting.update(reversed(behind))
        self._order = tuple(self._waiting)

    def expect(self, sessions: Iterable[Session], now: float) -> None:
        """Keep the places of sessions that waited at the previous node, for those that come back within the grace."""
        until = now + self._grace
        before = {session: (None, now, until) for session in sessions if not session.is_plain}
        self._waiting = {**before, **self._waiting}
        self._order = tuple(self._waiting)

    def leave(self, session: Session) -> None:
        """Remove a session from the queue."""
        self._leave((session,))

    def _leave(self, sessions: Iterable[Session]) -> None:
        """Remove sessions from the queue; goes through the queue only once."""
        before = len(self._waiting)
        for session in sessions:
            self._waiting.pop(session, None)
        if len(self._waiting) != before:
            self._order = tuple(self._waiting)

    def waiting(self, now: float) -> list[tuple[Claimant, float]]:
        """The claimants that wait, in order, and since when."""
        self.queue(now)
        return [(claimant, since) for claimant, since, _ in self._waiting.values() if claimant is not None]

    def count(self, now: float) -> int:
        """The number of claimants that wait."""
        self.queue(now)
        return sum(claimant is not None for claimant, _, _ in self._waiting.values())

    # Refusals -----------------------------------------------------------------------------------------------------

    def taint(self, connections: Iterable[int]) -> None:
        """Taint connections that carried a session which lost the topic."""
        self.tainted.update(connections)

    def may_be_ghost(self, connection: int, now: float) -> None:
        """Note a connection that uses the owner's own name while the owner is connected."""
        self.ghosts.setdefault(connection, now)

    def fenced(self, claimant: Claimant, wall_ms: int, *, listed: bool = False) -> None:
        """Note a try of a deposed session, or of another one on its connection. `listed`: the changelog lists it."""
        self.tainted.add(claimant.connection)
        if claimant.session.is_plain:
            return
        if listed:
            self._again[claimant.session] = wall_ms
            return
        if claimant.session not in self.struck and len(self.struck) >= _STRUCK_KEPT:
            del self.struck[next(iter(self.struck))]
        self.struck[claimant.session] = wall_ms

    def tries(self) -> dict[str, int]:
        """The last tries of sessions that were answered PRODUCER_FENCED, for the changelog."""
        return {**self.struck, **self._again}

    # What ends them -----------------------------------------------------------------------------------------------

    def claimed(self, session: Session, evicted: Iterable[Session], deposed: Container[str]) -> None:
        """Update after a claim by `session`. `evicted` sessions leave the queue; the changelog lists `deposed`."""
        self.ghosts.clear()
        self.struck = {session: found for session, found in self.struck.items() if session not in deposed}
        self._again.clear()
        self._leave((session, *evicted))

    def connection_closed(self, connection: int, now: float) -> None:
        """Handle the end of a connection: a plain session leaves, an idempotent one keeps its place for the grace."""
        self.tainted.discard(connection)
        self.ghosts.pop(connection, None)
        for session, (claimant, since, _) in list(self._waiting.items()):
            if claimant is None or claimant.connection != connection:
                continue
            if session.is_plain:
                self.leave(session)
            else:
                self._waiting[session] = claimant, since, now + self._grace


class TopicQueue:
    """The queue of one topic or partition: its places are in `newcomers`, and Redis gets every change."""

    def __init__(self, topic: Owning, newcomers: Newcomers, environment: Environment) -> None:
        self._topic = topic
        self._newcomers = newcomers
        self._env = environment
        self._kept: tuple[str, ...] = ()

    def wait(self, claimant: Claimant, now: float) -> None:
        """Let a claimant wait, for the time in which clients try again."""
        self._newcomers.wait(claimant, now)
        self.changed()

    def keep_place(self, claimant: Claimant, seconds: float, came: float) -> None:
        """Let a claimant that arrived at `came` (monotonic seconds) wait for `seconds`. Another call
        extends that, `leave` ends it.
        """
        self._newcomers.wait(claimant, self._env.now(), seconds, came=came)
        self.changed()

    def leave(self, session: Session) -> None:
        """Remove a session from the queue."""
        self._newcomers.leave(session)
        self.changed()
        self._env.owner_may_have_changed(self._topic)

    def changed(self) -> None:
        """Store the queue in Redis if its sessions have changed."""
        if self._newcomers.order is not self._kept:
            self._kept = self._newcomers.order
            self._env.queues.changed(self._topic)

    def sessions(self) -> tuple[str, ...]:
        """The sessions that wait, in order."""
        return self._newcomers.queue(self._env.now())

    def head(self) -> str | None:
        """The session whose turn is next."""
        return next(iter(self.sessions()), None)

    def count(self) -> int:
        """The number of claimants that wait. Cheap if none does: it is called for thousands of partitions."""
        return self._newcomers.count(self._env.now()) if self._newcomers.order else 0

    def in_ms(self) -> list[tuple[str, tuple[Claimant, int]]]:
        """The sessions and claimants that wait, in order, and since when (Unix ms); for display."""
        wall, now = self._env.wall_ms(), self._env.now()
        return [
            (claimant.session, (claimant, wall - int((now - since) * 1000)))
            for claimant, since in self._newcomers.waiting(now)
        ]
