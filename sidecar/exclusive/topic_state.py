"""What a node knows of one topic, or of one partition with an owner of its own: its owner and its other sessions.

From the changelog, from Redis, and from the traffic of this node. `topic` acts on it.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

from metadata.ownership import Ownership
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.bindings import FOREIGN, NOT_YOURS
from sidecar.exclusive.claims import Claimant, Situation, Step, Verdict, judge
from sidecar.exclusive.domain import Domain
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.newcomers import Newcomers, Refusals
from sidecar.exclusive.ownership import FREE, Awaited, Found, Free, MovedAway, is_held, step
from sidecar.exclusive.records import mode_of
from sidecar.exclusive.shared import SharedSessions
from sidecar.exclusive.succession import is_plain
from sidecar.exclusive.tenure import generation_floor, is_outdated, owner_record
from sidecar.exclusive.upkeep import Upkeep
from sidecar.exclusive.writer import SlotWriter, Writing
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from sidecar.changelog import Change, Entry, SlotName
    from sidecar.exclusive.environment import Environment
    from sidecar.exclusive.operations import Offer
    from sidecar.exclusive.ownership import Event, Leaving, Owned, State
    from sidecar.exclusive.tenure import Tenure
    from sidecar.protocol.ids import Stamp


class Station(Protocol):
    """The topic that a partition with an owner of its own belongs to."""

    upkeep: Upkeep
    ids: TopicIds | None

    async def take(self, partition: int) -> Stamp:
        """The right to serve the topic and its master slot, whose stamp is returned."""
        ...

    def taken(self, slot: SlotName) -> None:
        """The partition's slot was taken for its owner."""
        ...

    def tidy(self, partition: int) -> None:
        """The partition has no operation in progress any more."""
        ...


class Deposed:
    """The sessions that lost a topic or partition, also as part of, or with, another scope's."""

    __slots__ = ("_state",)

    def __init__(self, state: TopicState) -> None:
        self._state = state

    def __contains__(self, session: object) -> bool:
        return isinstance(session, str) and self._state.is_deposed(session)


class TopicState(Writing):
    """The state of a `GovernedTopic`, and what follows from it."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        refusals: Refusals,
        domain: Domain | None = None,
        station: Station | None = None,
    ) -> None:
        upkeep = station.upkeep if station is not None else Upkeep(environment.terms, environment.changelog.clock)
        self.name = name
        self.upkeep = upkeep
        self.refusals = refusals
        self.writer = SlotWriter(name, environment, upkeep, refusals, self)
        self._env = environment
        self.domain = domain or Domain(name)
        self._station = station
        self._ownership: State = FREE
        self.ownership: state.Ownership | None = None
        self.position = -1
        self.newcomers = Newcomers(environment.reconnect_grace)
        self._without_ids = -1
        """Where the changelog was read to when the topic was seen without sequence ids."""
        self.ids = station.ids if station is not None else self._new_ids()
        self.shared = SharedSessions(self, environment, self._grow_shared)
        self.serving = False
        self._deposed: dict[str, tuple[str, int]] = {}
        self._floor = 0
        self._release_timer: asyncio.TimerHandle | None = None
        self._tenure: Tenure | None = None
        self._lost: SlotEpoch | None = None
        self._queue: tuple[str, ...] = ()
        self._read()

    def _new_ids(self) -> TopicIds | None:
        """The sequence ids, where the policy wants them."""
        if not self._env.deduplicates(self.name):
            return None
        return TopicIds(self.name, self._env.ids, self.is_live, self._fence_wanted, since=self._without_ids)

    def is_live(self, session: str) -> bool:
        """Whether a session that may write here has a connection."""
        holder = self.holder
        if holder is not None:
            return holder.session == session and bool(holder.connections)
        return self.shared.is_live(session)

    @abstractmethod
    def _fence_wanted(self) -> None:
        """The outcome of a batch is unknown until a fence."""

    @abstractmethod
    async def _grow_shared(self, partition: int) -> None:
        """A session that writes beside others found a partition that was not fenced."""

    @property
    def busy(self) -> bool:
        """An operation is under way: batches wait for it."""
        return self.writer.busy

    def offer(self, offer: Offer) -> None:
        """Decide on a batch, now or when the operation under way is over."""
        self.writer.offer(offer)

    def load(self) -> None:
        """Take over what the changelog says, after a start or a loss. An owner that is still held may come back."""
        self._read()
        self._env.stirred(self)

    def _read(self) -> None:
        self._lost = None
        entry = self._recorded()
        self._floor = generation_floor(self._env.changelog.view, self.domain)
        self._step(Found(None if entry is None else self._read_owner(entry)))

    def _read_owner(self, entry: Entry[state.Ownership]) -> Awaited | None:
        """The owner that a record names, who may come back."""
        value = entry.value
        self._note(value, entry.offset)
        if value.released_ms or not value.session or is_outdated(self._env.changelog.view, self.domain, entry):
            return None
        until = self._env.now() + (0.0 if is_plain(value.session) else self._env.reconnect_grace)
        recorded = owner_record(self.domain.resource, entry, self._env.node_id)
        mode = mode_of(value.mode)
        return Awaited(value.session, value.name, mode, value.generation, until=until, recorded=recorded)

    def _step(self, event: Event) -> None:
        """The only place where the topic's owner changes."""
        self._ownership = step(self._ownership, event)

    @property
    def holder(self) -> Owned | Leaving | Awaited | None:
        """Who owns it, present or not."""
        return None if isinstance(self._ownership, Free) else self._ownership

    def _recorded(self) -> Entry[state.Ownership] | None:
        return self._env.changelog.view.ownership(self.name, self.domain.slot)

    def _note(self, ownership: state.Ownership, position: int) -> None:
        """What the changelog says now."""
        self.ownership, self.position = ownership, position
        self._deposed = {deposed.session: (deposed.name, deposed.last_try_ms) for deposed in ownership.deposed}

    @property
    def generation(self) -> int:
        """0 before anybody owned the topic."""
        own = self.ownership.generation if self.ownership is not None else 0
        return max(own, self._floor)

    def is_deposed(self, session: str) -> bool:
        """Whether a session lost this for ever."""
        known = session in self.newcomers.struck or session in self._deposed
        return known or self._env.is_deposed(self.domain, session)

    @property
    def stamp(self) -> Stamp | None:
        """The slot epoch that the owner writes under here, where it does."""
        return self.writer.epoch.tenure.stamp if self.writer.epoch is not None else None

    @property
    def has_slot(self) -> bool:
        """Whether this node has taken its slot."""
        return self._tenure is not None

    @property
    def current_holder(self) -> Owned | Leaving | Awaited | None:
        """The holder, unless it is only awaited and its time is over."""
        return self.holder if is_held(self._ownership, self._env.now()) else None

    def as_owned(self) -> list[Ownership]:
        """What this node asserts to Redis with every heartbeat."""
        entry = self._recorded()
        if entry is None or self.writer.epoch is None:
            return []
        return [owner_record(self.domain.resource, entry, self._env.node_id)]

    def _situation(self, now: float) -> Situation:
        return Situation(
            mode=self._env.mode_of(self.name),
            generation=self.generation,
            holder=self.holder,
            deposed=Deposed(self),
            tainted=self.newcomers.tainted,
            waiting=self.newcomers.queue(now),
            ghosts=self.newcomers.ghosts,
            shared={found.session: found.label for found in self.shared.connected()} if self.holder is None else {},
            shared_awaited=self.shared.awaited_until > now,
            queue_limit=self._env.queue_limit,
        )

    def outlook(self, claimant: Claimant) -> Verdict:
        """What a claim would be answered now. Changes nothing."""
        now = self._env.now()
        found = self._env.bindings.look(self.name, claimant)
        if found is None:
            return Verdict(Step.REFUSE, FOREIGN.error, NOT_YOURS)
        return judge(self._situation(now), found, now)

    def keep_place(self, claimant: Claimant, seconds: float, came: float) -> None:
        """A claimant waits that came at `came` (monotonic seconds), for so many seconds unless it says so again or
        `leave_queue` is called.
        """
        self.newcomers.wait(claimant, self._env.now(), seconds, came=came)
        self._queue_told()

    def queue(self) -> tuple[str, ...]:
        """The sessions that wait for it, in order."""
        return self.newcomers.queue(self._env.now())

    def head_of_queue(self) -> str | None:
        """The session whose turn is next."""
        return next(iter(self.queue()), None)

    def leave_queue(self, session: str) -> None:
        """It waits no more."""
        self.newcomers.leave(session)
        self._queue_told()
        self._env.stirred(self)

    def _queue_told(self) -> None:
        if self.newcomers.order is not self._queue:
            self._queue = self.newcomers.order
            self._env.queues.changed(self)

    def waiting(self) -> int:
        """How many wait: next to nothing to find out where nobody does, as of thousands of partitions."""
        return self.newcomers.count(self._env.now()) if self.newcomers.order else 0

    def queue_in_ms(self) -> list[tuple[str, tuple[Claimant, int]]]:
        """Who waits, in order, and since when (Unix milliseconds), for people."""
        wall, now = self._env.wall_ms(), self._env.now()
        return [
            (claimant.session, (claimant, wall - int((now - since) * 1000)))
            for claimant, since in self.newcomers.waiting(now)
        ]

    def served_elsewhere(self) -> None:
        """Another node serves the topic now; if that node dies, the owner may come back here within the grace."""
        if not self.serving:
            self._step(MovedAway(self._env.now() + self._env.reconnect_grace))

    @property
    def may_move(self) -> bool:
        """Whether another node could serve the topic from now on without ending a session."""
        sessions = [found.session for found in self.shared.connected()]
        if self.holder is not None:
            sessions.append(self.holder.session)
        return not self.writer.operations.busy and not any(is_plain(session) for session in sessions)

    def _learn(self, owner: Ownership | None) -> bool:
        """Redis knows a holder that this node did not: it may come back, as after a start. False where this is no
        news.
        """
        if owner is None or owner.session is None or self.current_holder is not None:
            return False
        until = self._env.now() + self._env.reconnect_grace
        self._step(Found(Awaited(owner.session, owner.name, owner.mode, owner.generation, until=until, recorded=owner)))
        return True

    def changed(self, change: Change) -> None:
        """Another node has stored the topic's owner."""
        if not self.serving and change.key.slot == self.domain.slot:
            self.load()
