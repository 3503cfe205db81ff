"""The sessions at a topic other than its owner: waiting, deposed, those whose own ghost may hold it, and their refused
sequences. Bounded by the number of connections, or by a limit; decides nothing (`claims` does).
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
    """How much the topics of a node remember of refused sequences, and of whom it goes first where that is too much: of
    the sessions without a connection, then of the one that was refused longest ago.

    A session whose refused sequences were forgotten is refused with 45 OUT_OF_ORDER_SEQUENCE_NUMBER where its client
    goes on after them: that is never taken for a repeat, and nothing of it is appended in a wrong place.
    """

    def __init__(self, most: int = _REFUSED_KEPT, gone: int = _REFUSED_KEPT_GONE) -> None:
        """`most`: spans and partitions of all sessions together; `gone`: of those without a connection."""
        self._limits = most, gone
        self._sizes: tuple[OrderedDict[_Place, int], OrderedDict[_Place, int]] = OrderedDict(), OrderedDict()
        self._totals = [0, 0]
        self._of_connection: dict[int, set[_Place]] = {}
        self._connection: dict[_Place, int] = {}

    @property
    def total(self) -> int:
        """Spans and partitions that are remembered."""
        return sum(self._totals)

    def noted(self, place: _Place, more: int, connection: int | None) -> None:
        """A session has so much more now, and speaks by this connection (None: as before)."""
        connection = self._connection.get(place) if connection is None else connection
        size = self._take(place) + more
        if connection is not None:
            self._connection[place] = connection
            self._of_connection.setdefault(connection, set()).add(place)
        self._put(place, size, gone=False)

    def dropped(self, place: _Place) -> None:
        """A session has nothing any more."""
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
        """What spoke by it may come back by another one: some of that is kept."""
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
    """Sequences refused for good, by session and partition of one topic, until they are written down with a slot. Only
    of partitions that the topic has (`existing`), and only of what came from the session's own client (`bindings`).
    """

    def __init__(self, ledger: RefusedLedger | None = None) -> None:
        """`ledger`: what all topics of a node share."""
        self._found: dict[Session, dict[int, RefusedSequences]] = {}
        self._ledger = ledger or RefusedLedger()

    def add(self, claimant: Claimant, partition: int, header: BatchHeader) -> None:
        """A final error that is not the end of the session: its client counts these sequences as used."""
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
        """They are written down with the session's slot."""
        forgiven = 0
        for partition, found in self.of(session, scope).items():
            del self._found[session][partition]
            forgiven += 1 + len(found.spans)
        if not self._found.get(session, True):
            self.forget(session)
        elif forgiven:
            self._ledger.noted((self, session), -forgiven, None)

    def forget(self, session: Session) -> None:
        """Nothing of a session counts as refused."""
        if self._found.pop(session, None) is not None:
            self._ledger.dropped((self, session))


class Newcomers:
    """State of one topic or partition. Times are monotonic seconds unless they say otherwise."""

    def __init__(self, grace: float) -> None:
        """`grace`: for so many seconds an idempotent session keeps its place without a connection."""
        self._grace = grace
        self.tainted: set[int] = set()
        """Connections that carried a deposed session: whatever else they carry strikes back."""
        self.ghosts: dict[int, float] = {}
        """When the first batch under the owner's own name came, by connection."""
        self.struck: dict[str, int] = {}
        """Sessions answered PRODUCER_FENCED that the changelog does not list, and their last try in Unix ms."""
        self._again: dict[str, int] = {}
        """The same of those that it lists, with an earlier try: as many as it lists, never displaced by others."""
        self._waiting: dict[Session, tuple[Claimant | None, float, float]] = {}
        self._order: tuple[str, ...] = ()
        self._pruned = 0.0

    # The queue ----------------------------------------------------------------------------------------------------

    @property
    def order(self) -> tuple[str, ...]:
        """The sessions that wait or are expected to; another object once that has changed."""
        return self._order

    def queue(self, now: float) -> tuple[str, ...]:
        """The sessions that wait, in order; a session that has not tried for a while is gone."""
        if self._order and now - self._pruned > _PRUNE_S:
            self._pruned = now
            self._leave([session for session, (_, _, until) in self._waiting.items() if now > until])
        return self._order

    def wait(self, claimant: Claimant, now: float, patience: float = KEPT_S, *, came: float | None = None) -> None:
        """It takes a place, or keeps the one it has, for so many seconds. `came`: when it came first; before all who
        came later, also where it has lost its place meanwhile.
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
        """These waited at the node that served the topic before: each keeps its place if it comes soon."""
        until = now + self._grace
        before = {session: (None, now, until) for session in sessions if not session.is_plain}
        self._waiting = {**before, **self._waiting}
        self._order = tuple(self._waiting)

    def leave(self, session: Session) -> None:
        """It waits no more."""
        self._leave((session,))

    def _leave(self, sessions: Iterable[Session]) -> None:
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

    def taint(self, connections: Iterable[int]) -> None:
        """These carried a session that lost the topic."""
        self.tainted.update(connections)

    def may_be_ghost(self, connection: int, now: float) -> None:
        """Somebody comes under the owner's own name while that one is connected."""
        self.ghosts.setdefault(connection, now)

    def fenced(self, claimant: Claimant, wall_ms: int, *, listed: bool = False) -> None:
        """A deposed session tried again, or another one on its connection. `listed`: the changelog has it."""
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
        """What the changelog does not know of sessions that were answered PRODUCER_FENCED."""
        return {**self.struck, **self._again}

    # What ends them -----------------------------------------------------------------------------------------------

    def claimed(self, session: Session, evicted: Iterable[Session], deposed: Container[str]) -> None:
        """A session owns the topic now, and those `evicted` wait no more; the changelog lists `deposed` ones."""
        self.ghosts.clear()
        self.struck = {session: found for session, found in self.struck.items() if session not in deposed}
        self._again.clear()
        self._leave((session, *evicted))

    def connection_closed(self, connection: int, now: float) -> None:
        """A plain session dies with its connection; an idempotent one keeps its place for a while."""
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
    """Who waits for one topic or partition: places are those of `newcomers`, and every change is kept in Redis."""

    def __init__(self, topic: Owning, newcomers: Newcomers, environment: Environment) -> None:
        self._topic = topic
        self._newcomers = newcomers
        self._env = environment
        self._kept: tuple[str, ...] = ()

    def wait(self, claimant: Claimant, now: float) -> None:
        """A claimant waits, for as long as clients take to try again."""
        self._newcomers.wait(claimant, now)
        self.changed()

    def keep_place(self, claimant: Claimant, seconds: float, came: float) -> None:
        """A claimant waits that came at `came` (monotonic seconds), for so many seconds unless it says so again or
        `leave` is called.
        """
        self._newcomers.wait(claimant, self._env.now(), seconds, came=came)
        self.changed()

    def leave(self, session: Session) -> None:
        """It waits no more."""
        self._newcomers.leave(session)
        self.changed()
        self._env.owner_may_have_changed(self._topic)

    def changed(self) -> None:
        """Others may wait than before."""
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
        """How many wait. Cheap where none does, as it is asked of thousands of partitions."""
        return self._newcomers.count(self._env.now()) if self._newcomers.order else 0

    def in_ms(self) -> list[tuple[str, tuple[Claimant, int]]]:
        """Who waits, in order, and since when (Unix milliseconds), for people."""
        wall, now = self._env.wall_ms(), self._env.now()
        return [
            (claimant.session, (claimant, wall - int((now - since) * 1000)))
            for claimant, since in self._newcomers.waiting(now)
        ]
