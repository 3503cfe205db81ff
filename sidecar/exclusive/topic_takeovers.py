"""Takes over one topic, or a partition with its own owner, on this node: for a claimant, for its present owner,
for shared sessions, or for no session.

Each of these is one operation (`operations`). `takeover` performs the steps and returns what was taken. This module
does what comes before them (it takes the right to serve and reads which sessions waited at the previous node) and after
them: it sets the new owner and its writer.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from metadata import MetadataUnavailable
from metadata.ownership import AccessMode, Ownership
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import MOVED, QueueFoundError, failure_of
from sidecar.exclusive.arbitration import ExhaustedError, HeldError
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.interfaces import WholeTopic
from sidecar.exclusive.operations import BUSY, Offer
from sidecar.exclusive.policy_ids import PolicyIds, begin_ids
from sidecar.exclusive.records import mode_of, was_deposed
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.requests import FOR_NOBODY, Memory, NothingDoneError, Purpose, Request
from sidecar.exclusive.shared import SharedSessions
from sidecar.exclusive.slots import GenerationError, OutdatedMasterError, SlotScope, TakenSlot, read_owner
from sidecar.exclusive.takeover import Takeover
from sidecar.exclusive.upkeep import Renewal, Upkeep, renew_fence
from sidecar.exclusive.writer import SlotWriter
from sidecar.fencing.expiry import read_keep_alives
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Awaited, Claimant, Held, Holder, Owned, State, is_held
from sidecar.ownership.step import (
    ClaimEnded,
    Event,
    Facts,
    FoundInRedis,
    Freed,
    PlaceKept,
    PlaceLeft,
    Recorded,
    RecordRead,
    Tainted,
    TakenOver,
    TimePassed,
    Verdict,
    WaitedBefore,
    step,
)  # fmt: skip
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Stamp
from sidecar.protocol.session import Session

_LETS_WRITE: Final = frozenset({Purpose.CLAIM, Purpose.RESUME, Purpose.SHARE})
"""Takeovers after which sessions write."""


class TopicTakeovers(ABC):
    """One topic or partition: its parts and its takeovers. `taken`: what the newest takeover returned, while this
    node still has the slot. `writer`: the owner's writer.
    """

    writer: SlotWriter

    def __init__(
        self,
        name: str,
        environment: Environment,
        refusals: Refusals,
        scope: SlotScope | None = None,
        whole: WholeTopic | None = None,
    ) -> None:
        """`scope`, `whole`: of a partition with its own owner, its slot and the topic that it belongs to."""
        self.name = name
        self.scope = scope or SlotScope(name)
        self.whole = whole
        self.serving = False
        self.is_dropped = False
        """The topic lost its policy: this object grants nothing any more."""
        self.refusals = refusals
        self.upkeep = whole.upkeep if whole is not None else Upkeep(environment.terms, environment.changelog.clock)
        self.state = State()
        """Who owns it, and the sessions that do not; only `apply` assigns it."""
        self._stored_queue: tuple[str, ...] = ()
        self.shared = SharedSessions(name, environment, self.upkeep, refusals, lambda: self.ids, self.share_anew)
        self.taken: TakenSlot | None = None
        self._lost: SlotEpoch | None = None
        self.env = self._env = environment
        self._ids = PolicyIds(name, environment, self.is_live, self.fence_wanted) if whole is None else None
        self.apply(self._read_owner())

    # The state ------------------------------------------------------------------------------------------------------

    def apply(self, event: Event, facts: Facts | None = None) -> Verdict | None:
        """Make the next state; returns what to do with a batch that was offered."""
        env = self._env
        if facts is None:
            facts = Facts(env.reconnect_grace, env.disconnect_grace)
        self.state, verdict = step(self.state, event, facts, env.now())
        return verdict

    def _read_owner(self) -> RecordRead:
        return read_owner(self._env.changelog.view, self.scope, self._env.services.node_id)

    @property
    def current(self) -> Held | None:
        """The owner; None also if it is absent and its grace has ended."""
        return self.state.current(self._env.now())

    def learn(self, owner: Ownership | None) -> bool:
        """Note an owner that Redis knows. False if the node knew one already, or Redis has none."""
        before = self.state
        if owner is not None:
            self.apply(FoundInRedis(owner))
        return self.state is not before

    # Its queue ------------------------------------------------------------------------------------------------------

    def sessions(self) -> tuple[Session, ...]:
        """The sessions that wait, in order, without those that have not tried again in time."""
        self.apply(TimePassed())
        return self.state.waiting

    def waiting(self) -> list[tuple[Claimant, float]]:
        """The claimants that wait, in order, and since when (monotonic seconds). Cheap if none does."""
        return self.state.claimants() if self.state.waiting and self.sessions() else []

    def keep_place(self, claimant: Claimant, seconds: float, came: float) -> None:
        """Let a claimant that came at `came` (monotonic seconds) wait. Another call extends that, `leave` ends it."""
        self.apply(PlaceKept(claimant, seconds, came))
        self._store_queue()

    def leave(self, session: Session) -> None:
        """Remove a session from the queue."""
        self.apply(PlaceLeft(session))
        self._store_queue()
        self._env.owner_may_have_changed(self)

    def _store_queue(self) -> None:
        """Store the queue in Redis if its sessions have changed."""
        if self.state.waiting is not self._stored_queue:
            self._stored_queue = self.state.waiting
            self._env.queues.changed(self)

    @property
    def written_under(self) -> TakenSlot | None:
        """The slot epoch under which its owner writes here; None if it does not."""
        return self.writer.epoch.taken if self.writer.epoch is not None else None

    @property
    @abstractmethod
    def ids(self) -> TopicIds | None:
        """The sequence ids; None if the policy has no deduplication."""

    def is_live(self, session: str) -> bool:
        """Whether a session that may write here has a connection."""
        holder = self.state.holder
        if holder is not None:
            return holder.session == session and bool(holder.connections)
        return self.shared.is_live(session)

    async def save_ids(self) -> None:
        """Save the sequence ids: this node stops serving the topic."""
        if self._ids is not None:
            await self._ids.save()

    def stop_writing(self) -> None:
        """Stop all writers under the present epochs; they continue under the next ones."""
        self.writer.drop_epoch(MOVED)
        self.shared.close(MOVED)

    # The purposes of a takeover -------------------------------------------------------------------------------------

    async def claim(self, offer: Offer, verdict: Verdict) -> None:
        """Make the session of this batch the owner, or continue with it if it is the owner."""
        # Model: Own.
        claimant, last = offer.claimant, self.state.holder
        awaited = last if isinstance(last, Awaited) and last.session != claimant.session else None
        if awaited is not None and awaited.recorded is not None and not is_held(awaited, self._env.now()):
            await self._env.services.store.release(awaited.recorded)  # it did not come back in time
        wall_ms = self._env.wall_ms()
        evicted = [found for found, _ in self.waiting()] if verdict.evicts_queue else []
        others = [found for found in self.shared.connected() if found.session != claimant.session]
        mode = claimant.mode or self._env.mode_of(self.name)
        request = Request(
            Purpose.CLAIM,
            deposes=verdict.deposes,
            session=claimant.session,
            name=claimant.name,
            mode=AccessMode.EXCLUSIVE if mode is AccessMode.SHARED else mode,
            asked=claimant.generation,
            client=offer.client,
            client_epoch=max(0, offer.header.producer_epoch),
            caller=self._env.bindings.writer_of(self.name, claimant),
            memory=self._memory_of(claimant.session),
            refused=self.refusals.of(claimant.session, self.scope),
            dismisses=tuple(found.session for found in others),
            evicts={found.session: wall_ms for found in evicted if found.session != claimant.session}
            | self.state.tries,
        )
        try:
            await self.run(request, offer)
        except HeldError as error:
            if not self.learn(error.owner):
                self.writer.operations.reject(offer, Outcome(error.code, message=error.message))
            return
        left = {found.connection for found in evicted}.union(*[found.connections for found in others])
        tainted = frozenset(left - {claimant.connection})
        self.apply(ClaimEnded(claimant.session, [found.session for found in evicted], tainted))
        self.refusals.forgive(claimant.session, self.scope)
        self._store_queue()

    async def again(self) -> None:
        """Continue with the same owner under the next epoch."""
        # Model: Begin.
        holder, ownership = self.state.holder, self.state.record
        if holder is None or ownership is None:
            return
        await self.run(
            Request(
                Purpose.RESUME,
                holder.session,
                holder.name,
                holder.mode,
                client=ownership.client,
                caller=self._env.bindings.written(self.name, holder.session),
                memory=self._memory_of(holder.session),
                refused=self.refusals.of(holder.session, self.scope),
            )
        )
        self.refusals.forgive(holder.session, self.scope)

    def _memory_of(self, session: Session) -> Memory | None:
        """The positions of a session when its epoch was dropped; None if the dropped epoch was not its own."""
        lost = self._lost
        return None if lost is None or lost.taken.session != session else lost.memory()

    async def share(self) -> None:
        """Take the master slot without an owner, so that sessions may write beside each other."""
        # Model: Share.
        await self.run(Request(Purpose.SHARE, mode=AccessMode.SHARED))

    async def adopt(self) -> None:
        """Serve a topic that was served before, and that nobody owns now."""
        # Model: Adopt.
        served_before = self._env.changelog.view.serving(self.name) is not None
        if served_before and self.current is None:
            await self.run(Request(Purpose.ADOPT))

    # One takeover ---------------------------------------------------------------------------------------------------

    async def run(self, request: Request, joins: Offer | None = None) -> None:
        """Run one takeover. `joins`: a batch of the session, whose connection then counts as the owner's. Raises
        `QueueFoundError`, and what `Takeover.run` raises.
        """
        upkeep, served = self.upkeep, self.serving
        master = await self._serve()
        if not served and await self._find_others() and joins is not None and not request.deposes:
            raise QueueFoundError
        if not upkeep.known and (request.purpose is Purpose.SHARE or (self.scope.is_master and self.shared.known())):
            await self._read_terms()
        started, began, ids = self._env.now(), upkeep.now(), self.ids
        takeover = Takeover(self._env.services, self.scope, request, master, upkeep.trusted_ms, ids)
        try:
            holds = self.whole is None and request.purpose in _LETS_WRITE
            hold = partial(self._env.catalog.hold, self.name) if holds else None
            taken = await takeover.run(self.stop_writing, hold)
        except OutdatedMasterError:
            assert self.whole is not None
            self.whole.outdated()
            raise
        if ids is not self.ids:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {self.name} changed meanwhile")
        self.taken = taken
        if ids is not None:
            begin_ids(ids, taken, self._env.changelog.view)
        if self.whole is not None:
            self.whole.taken(self.scope.slot)
        else:
            self.shared.begin(taken, shares=request.purpose is Purpose.SHARE)
        if request.purpose not in FOR_NOBODY:
            self._settle(taken, request, joins, started)
        elif request.purpose is Purpose.SHARE:
            self._shared(taken)
        if self.whole is None:
            upkeep.kept(began, taken.fenced_from)

    async def _serve(self) -> Stamp | None:
        """Take or keep the right to serve; for a partition also the master slot, whose stamp is returned."""
        if self.whole is not None:
            assert self.scope.partition is not None
            master = await self.whole.take(self.scope.partition)
            self.serving = True
            return master
        if not await self._env.may_serve(self):
            raise NothingDoneError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node serves the topic")
        return None

    async def _find_others(self) -> bool:
        """Keep the places of sessions that wrote or waited at the previous node; whether there are any."""
        sessions = await self._env.queues.of(self)
        self.apply(WaitedBefore(sessions))
        return bool(sessions) or (self.scope.is_master and self.shared.expect())

    async def _read_terms(self) -> None:
        """Read how long leaders remember a producer, if the keeper has not read it yet."""
        with suppress(UpstreamError, KafkaError, TimeoutError):  # then the log is read instead
            terms = await read_keep_alives(self._env.services.upstream, [self.name])
            if self.name in terms:
                self.upkeep.read(terms[self.name])

    def _settle(self, taken: TakenSlot, request: Request, joins: Offer | None, started: float) -> None:
        """Set the owner after a takeover: the session that the record names, or nobody."""
        self._lost = None
        self.shared.dismiss()
        before, value = self.state.holder, taken.ownership  # closed connections are already removed from the holder
        self.apply(Recorded(value, taken.position))
        owned: Owned | None = None
        if value.session and not value.released_ms:
            joined = frozenset({joins.claimant.connection} if joins is not None and joins.alive() else ())
            owned = Owned(Session(value.session), value.name, mode_of(value.mode), value.generation, joined)
            self.writer.begin(taken, self.ids)
        self.apply(TakenOver(owned, request.deposes))
        by = None if joins is None else joins.claimant.caller
        self._env.events.taken_over(self, request, before, self._env.now() - started, by)

    def _shared(self, taken: TakenSlot) -> None:
        """Note after a takeover that sessions write beside each other, and that the last owner lost the topic."""
        last = self.state.record
        if last is not None and last.session:
            self._env.events.shared(self, Holder(Session(last.session), last.name, mode_of(last.mode), last.generation))
        self.apply(Freed())
        if taken.ownership.generation:
            self.apply(Recorded(taken.ownership, taken.position))

    def may_share(self) -> bool:
        """Whether sessions may write beside each other now."""
        return self.serving and self.shared.is_current()

    async def share_anew(self, is_due: Callable[[TakenSlot], bool]) -> None:
        """Fence the whole topic again, if `is_due` for its master slot: a shared session found it unfenced."""
        operations, shared = self.writer.operations, self.shared
        await operations.over()
        if shared.master is None or not self.may_share():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic changed its owner meanwhile")
        if is_due(shared.master):
            await asyncio.wait([operations.begin(self.share)])

    async def know_ids(self, timeout: float) -> TopicIds:
        """The sequence ids of the topic once they are known; a topic that nobody serves is taken over for that.

        Raises LookupError if it has none. Raises `KafkaError` 5 LEADER_NOT_AVAILABLE if they are not known in time, or
        while an owner may still come back, and 6 NOT_LEADER_OR_FOLLOWER if another node serves the topic. Raises also
        what a takeover raises.
        """
        ids = self.ids
        if ids is None:
            raise LookupError(self.name)
        await self.writer.operations.over()
        if not ids.is_begun:
            if self.current is not None:
                message = f"the owner of {self.name} may still come back; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            await self.writer.operations.perform(lambda: self.run(Request(Purpose.ADOPT)))
        await ids.known(timeout)
        return ids

    def failed(self, error: Exception) -> Outcome | None:
        """The answer to batches that waited for a failed operation; None: they are judged again."""
        hooks, outcome = self._env.hooks, failure_of(error)
        if isinstance(error, MetadataUnavailable):
            hooks.fenced(self.name, "redis_down")
            return outcome
        if isinstance(error, QueueFoundError | GenerationError):
            return None
        hooks.operation_failed(self.name, error)
        if isinstance(error, ExhaustedError):
            return Outcome(error.code, message=error.message)
        if outcome.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._env.unknown(self)
        if isinstance(error, HeldError):
            return None if self.learn(error.owner) else BUSY
        deposed = isinstance(error, KafkaError) and error.code == ErrorCode.PRODUCER_FENCED
        if deposed and not isinstance(error, FencedError):
            self.reread()  # the changelog knows a deposed session that this topic did not
            return None
        return outcome

    # The slot that was taken ----------------------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Renew the fence at its epoch while batches are sent: sequences and readers are not disturbed. A topic that
        nobody serves is adopted. A topic that was created anew, or has more partitions, is fenced as a whole.
        """
        taken, operations = self.taken, self.writer.operations
        if operations.busy or (taken is None and self.whole is not None):
            return
        if taken is None:
            if self.current is None:
                await asyncio.wait([operations.begin(self.adopt)])
            if self.taken is None:
                self.upkeep.failed(self.upkeep.now())
            return
        began = self.upkeep.now()
        renewal, fenced_from = await renew_fence(self._env.services, taken, self.writer.epoch)
        if renewal is Renewal.KEPT:
            if self.whole is None:
                await self.shared.keep_alive(taken)
                self.upkeep.kept(began, fenced_from)
        elif self.taken is taken and not operations.busy:
            if renewal is Renewal.CHANGED and self.writer.epoch is None:
                again = self.share if self.shared.master is not None else self.adopt
                await asyncio.wait([operations.begin(again)])
            else:
                self.lose_epoch()

    def reread(self) -> None:
        """Read the owner from the changelog, after a start or a lost epoch. It may come back within the grace."""
        self._lost = None
        self.apply(self._read_owner())
        self._env.owner_may_have_changed(self)

    def reopen(self) -> None:
        """Stop writing under the present epoch, and keep its positions for the next one."""
        self._lost = self.writer.epoch or self._lost
        self.stop_writing()

    def fence_wanted(self) -> None:
        """Open the next epoch: the outcome of a batch is unknown until a fence."""
        if not self.writer.operations.busy:
            self.reopen()

    def lose_epoch(self) -> None:
        """Kafka refuses the epoch, or has forgotten it: read the owner again, and continue if it is the same."""
        self.taken, self._lost = None, self.writer.epoch
        self.stop_writing()
        if not self.writer.operations.busy:
            self.writer.operations.begin(self._reexamine)

    async def _reexamine(self) -> None:
        await self._env.changelog.tailer.read_to_end(10.0)
        entry, holder = self._env.changelog.view.ownership(self.name, self.scope.slot), self.state.holder
        if entry is None or holder is None or entry.value.session != holder.session or entry.value.released_ms:
            connections = holder.connections if holder is not None else frozenset[int]()
            self.reread()
            if entry is not None and holder is not None and was_deposed(entry.value, holder.session):
                self.apply(Tainted(connections))
            return
        await self.again()
