"""One governed topic, or one partition with its own owner, on this node.

It has a state (`state`: its owner, and the sessions that do not own it), a writer for its owner (`writer`), and slots
for shared sessions (`shared`). `ownership.step` decides what happens to a batch and what follows from any other event;
`resource` does what is the same for all kinds. This module has the works of a topic: takeovers for a claimant, for the
present owner, for shared sessions or for nobody, and the end of an ownership. `takeover` performs the steps of one.

An owner loses its topic when its last connection closes (at once, as in PIP-68, or after the grace), when an
administrator releases or fences it, or with the policy. A policy that a client made by asking for a mode ends with the
last of them (`end_policy`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from metadata import MetadataUnavailable
from metadata.ownership import AccessMode, Ownership
from sidecar.changelog import Change, Key, Kind, Record
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import MOVED, QueueFoundError, failure_of
from sidecar.exclusive.bindings import FOREIGN, NOT_YOURS
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.master import MasterSlot
from sidecar.exclusive.offers import Offer
from sidecar.exclusive.ownership_events import Subject
from sidecar.exclusive.policy_ids import PolicyIds, begin_ids
from sidecar.exclusive.policy_use import Use
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.resource import Resource
from sidecar.exclusive.shared import SharedSessions
from sidecar.fencing.expiry import read_keep_alives
from sidecar.forwarder.forwarder import WholeRequest
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Verdict as SequenceVerdict
from sidecar.ownership.state import CLOSED, Absent, Awaited, Claimant, Held, Holder, Owned, State, Work, is_held
from sidecar.ownership.step import (
    BUSY,
    Act,
    ClaimEnded,
    ConnectionClosed,
    ConnectionOpened,
    EpochLost,
    Facts,
    FoundInRedis,
    Freed,
    Loss,
    PlaceKept,
    PlaceLeft,
    Recorded,
    RecordRead,
    ServedElsewhere,
    Tainted,
    TakenOver,
    TimePassed,
    Verdict,
    WaitedBefore,
    is_owners,
    judge,
)  # fmt: skip
from sidecar.protocol.batch import BatchHeader, surely_newest
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, Stamp
from sidecar.protocol.session import Session
from sidecar.takeover.arbitration import ExhaustedError, HeldError
from sidecar.takeover.records import mode_of, was_deposed
from sidecar.takeover.requests import FOR_NOBODY, NOBODY, Memory, NothingDoneError, Purpose, Request
from sidecar.takeover.slots import (
    GenerationError,
    OutdatedMasterError,
    SlotScope,
    TakenSlot,
    check_generation,
    generation_of,
    owner_record,
    read_owner,
)
from sidecar.takeover.takeover import Takeover
from sidecar.v1 import state_pb2 as records
from sidecar.writing.epoch import SlotEpoch
from sidecar.writing.upkeep import Renewal, Upkeep, renew_fence

_REASONS: Final = {Act.WAIT: "waiting", Act.LATER: "waiting"}
"""The metric's reasons of answers that are no refusals."""
_LETS_WRITE: Final = frozenset({Purpose.CLAIM, Purpose.RESUME, Purpose.SHARE})
"""Takeovers after which sessions write."""
_SEEN_S: Final = 5.0
_NOBODY_ASKS: Final = "the end of the last session that asked for a mode"
"""The author of such a change, for the history."""


class GovernedTopic(Resource):
    """`taken`: what the newest takeover returned, while the node still has the slot."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        refusals: Refusals,
        scope: SlotScope | None = None,
        master: MasterSlot | None = None,
    ) -> None:
        """`scope`, `master`: of a partition with its own owner, its slot and what all partitions of its topic share."""
        upkeep = master.upkeep if master is not None else Upkeep(environment.terms, environment.changelog.clock)
        super().__init__(scope or SlotScope(name), environment, upkeep, refusals, State())
        self._master = master
        self.serving = False
        self.is_dropped = False
        """The topic lost its policy, or its scope changed: this object grants nothing any more, also if a takeover is
        under way that is not fenced yet (`_hold`).
        """
        self.taken: TakenSlot | None = None
        self.policy_ids = (
            PolicyIds(name, environment, self.is_live, self.fence_wanted) if master is None else master.policy_ids
        )
        self.shared = SharedSessions(name, environment, upkeep, refusals, self.policy_ids, self.share_anew)
        self._stored_queue: tuple[str, ...] = ()
        self._lost: SlotEpoch | None = None
        """The dropped epoch, whose positions the session's next one begins with."""
        self.is_unknown = False
        """Kafka did not know the topic when a takeover failed."""
        self._is_split = False
        """Whether the owner and all slots were fenced before the policy ended, so that `ungoverned` has not to."""
        self.apply(self._read_owner())

    # What others see of it ------------------------------------------------------------------------------------------

    @property
    def parts(self) -> Iterable[GovernedTopic]:
        """Everything here that can have an owner."""
        return (self,)

    @property
    def generation(self) -> int:
        """The generation; 0 before anybody owned it."""
        return self.state.generation

    @property
    def has_slot(self) -> bool:
        """Whether this node has taken its slot."""
        return self.taken is not None

    @property
    def is_new(self) -> bool:
        """Nobody ever owned it, and this node has no slot of it."""
        return self.state.record is None and self.taken is None

    @property
    def may_move(self) -> bool:
        """Whether another node could serve the topic from now on without ending a session."""
        sessions = [shared.session for shared in self.shared.connected()]
        if self.state.holder is not None:
            sessions.append(self.state.holder.session)
        return not self.busy and not any(session.is_plain for session in sessions)

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids; None if the policy has no deduplication."""
        return self.policy_ids.now

    @property
    def current(self) -> Held | None:
        """The owner; None also if it is absent and its grace has ended."""
        return self.state.current(self._env.now())

    @property
    def written_under(self) -> TakenSlot | None:
        """The slot epoch under which its owner writes here; None if it does not."""
        return self.writer.epoch.taken if self.writer.epoch is not None else None

    @property
    def subject(self) -> Subject:
        """What events and metrics show of it."""
        return Subject(self.scope, self.state, self.written_under)

    def is_live(self, session: str) -> bool:
        """Whether a session that may write here has a connection."""
        holder = self.state.holder
        if holder is not None:
            return holder.session == session and bool(holder.connections)
        return self.shared.is_live(session)

    def use(self) -> Use:
        """What the topic is used for now by sessions that asked for a mode."""
        asks = any(shared.claimant.mode is not None for shared in self.shared.connected())
        return Use(self.state.holder, bool(self.sessions()), asks, self.shared.awaited_until)

    def as_owned(self) -> list[Ownership]:
        """The ownership that this node reports to Redis with every heartbeat."""
        entry = self._env.changelog.view.ownership(self.name, self.scope.slot)
        if self.writer.epoch is None or entry is None:
            return []
        node = self._env.services.node_id
        return [owner_record(self.scope.resource, entry.value, entry.offset, entry.writer, node)]

    # Batches --------------------------------------------------------------------------------------------------------

    def forward(
        self,
        claimant: Claimant,
        partition: int,
        header: BatchHeader,
        batch: memoryview,
        timeout_ms: int,
        reply: Reply,
    ) -> bool:
        """Forward a batch in order, of a session that writes here; False if there is anything to decide."""
        epoch = self._epoch_of(claimant)
        if (
            epoch is None
            or (epoch.ids is not None and self.refusals.has(claimant.session, self.scope))
            or not epoch.covers(partition)
            or epoch.verdict(partition, header) is not SequenceVerdict.FORWARD
            or not self.upkeep.takes(
                surely_newest(batch, header.attributes, header.base_timestamp, header.max_timestamp)
            )
        ):
            return False
        self._env.hooks.governed_produce(self.name, header.records, len(batch))
        epoch.append(partition, header, batch, timeout_ms, reply)
        return True

    def forward_whole(self, claimant: Claimant, request: WholeRequest) -> bool:
        """As `forward`, for a client's whole request; False unless all of it can be sent now."""
        epoch = self._epoch_of(claimant)
        size, records, oldest = 0, 0, request.batches[0][2].newest
        for _, batch, numbers in request.batches:  # a comprehension would be a call
            size += len(batch)
            records += numbers.records
            if numbers.newest < oldest:  # noqa: PLR1730  a call costs more
                oldest = numbers.newest
        if epoch is None or not self.upkeep.takes(oldest) or not epoch.append_whole(request, size):
            return False
        self._env.hooks.governed_produce(self.name, records, size)
        return True

    def _epoch_of(self, claimant: Claimant) -> SlotEpoch | None:
        """The slot epoch under which a session writes on its connection; None if it does not, or during a work."""
        state = self.state
        holder = state.holder
        if state.work is not None:
            return None
        if holder is None:
            shared = self.shared.of(claimant)
            return shared.writer.epoch if shared is not None and not shared.busy else None
        if holder.session != claimant.session or claimant.connection not in holder.writers:
            return None
        return self.writer.epoch

    def _act_own(self, offer: Offer, verdict: Verdict) -> None:
        if verdict.act is Act.SHARE:
            self.shared.offer(offer)
            return
        self._store_queue()
        reason = _REASONS.get(verdict.act)
        if reason is None:
            reason = "deposed" if verdict.code == ErrorCode.PRODUCER_FENCED else "not_owner"
        if reason == "not_owner":
            self.refusals.add(offer.claimant, offer.partition, offer.header)
        self._env.hooks.fenced(self.name, reason)
        self.writer.answer(offer, Outcome(verdict.code, message=verdict.message))

    def _graces(self) -> Facts:
        return Facts(self._env.reconnect_grace, self._env.disconnect_grace)

    def _facts(self, offer: Offer) -> Facts:
        epoch = self.writer.epoch
        needs_record = epoch is not None and self._is_to_be_renewed(offer, epoch)
        if epoch is not None and is_owners(self.state, offer.claimant):
            return Facts(writes=True, needs_record=needs_record)
        return self._facts_of(offer.claimant, needs_record=needs_record)

    def _facts_of(self, claimant: Claimant, *, needs_record: bool = False) -> Facts:
        """What a claimant is judged by, beside the state."""
        env, is_free = self._env, self.state.holder is None
        return Facts(
            env.reconnect_grace,
            env.disconnect_grace,
            mode=env.mode_of(self.name),
            was_deposed=env.deposed.has(self.scope, claimant.session),
            writes=self.writer.epoch is not None,
            needs_record=needs_record,
            is_serving=self.serving,
            is_elsewhere=env.is_served_elsewhere(self.name),
            is_dropped=self.is_dropped,
            shared={shared.session: shared.claimant.label for shared in self.shared.connected()} if is_free else {},
            shared_awaited=self.shared.awaited_until > env.now(),
            may_share=self.may_share(),
            by_partition=self._master is not None,
            queue_limit=env.queue_limit,
            wall_ms=env.wall_ms(),
        )

    def _is_to_be_renewed(self, offer: Offer, epoch: SlotEpoch) -> bool:
        """Whether the owner's epoch needs a newer record before this batch is written.

        It does in two cases. The topic has sequence ids, and sequences of the session were refused since. Or the
        session was claimed by request before its client wrote anything, so the record does not name the client.
        """
        if epoch.ids is not None and self.refusals.has(offer.claimant.session, self.scope):
            return True
        is_of_nobody = epoch.taken.caller is None and epoch.taken.session.is_idempotent
        return is_of_nobody and not offer.is_claim and offer.claimant.caller is not None

    def outlook(self, claimant: Claimant) -> Verdict:
        """The verdict on a claim now. Changes nothing."""
        its = self._env.bindings.look(self.name, claimant)
        if its is None:
            return Verdict(Act.REFUSE, FOREIGN.error, NOT_YOURS)
        self.sessions()
        return judge(self.state, self._facts_of(its), its, self._env.now())

    # Its queue, and what Redis knows --------------------------------------------------------------------------------

    def _read_owner(self) -> RecordRead:
        return read_owner(self._env.changelog.view, self.scope, self._env.services.node_id)

    def learn(self, owner: Ownership | None) -> bool:
        """Note an owner that Redis knows. False if the node knew one already, or Redis has none."""
        before = self.state
        if owner is not None:
            self.apply(FoundInRedis(owner))
        return self.state is not before

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
        self._env.owner_may_have_changed(self.scope)

    def _store_queue(self) -> None:
        """Store the queue in Redis if its sessions have changed."""
        if self.state.waiting is not self._stored_queue:
            self._stored_queue = self.state.waiting
            self._env.queues.changed(self.scope, self.state.waiting)

    # Works ----------------------------------------------------------------------------------------------------------

    async def _perform_own(self, work: Work, offer: Offer | None, verdict: Verdict | None) -> None:
        match work:
            case Work.CLAIM:
                assert offer is not None, "a claimant asks for it"
                assert verdict is not None, "the rules allow it"
                await self._claim(offer, verdict)
            case Work.SHARE:
                await self._share()
            case Work.ADOPT:
                await self._adopt()
            case Work.RELEASE:
                await self._end_left()
            case Work.LOOK:
                await self._look()
            case _:
                raise AssertionError(f"a topic has no {work}")

    async def _share(self) -> None:
        """Fence the topic as a whole; sessions may write beside each other then."""
        # Model: Share.
        await self._run_takeover(Request(Purpose.SHARE, mode=AccessMode.SHARED))

    async def _claim(self, offer: Offer, verdict: Verdict) -> None:
        """Make the session of this batch the owner, or continue with it if it is the owner."""
        # Model: Own.
        claimant, last = offer.claimant, self.state.holder
        awaited = last if isinstance(last, Awaited) and last.session != claimant.session else None
        if awaited is not None and awaited.recorded is not None and not is_held(awaited, self._env.now()):
            await self._env.services.store.release(awaited.recorded)  # it did not come back in time
        wall_ms = self._env.wall_ms()
        evicted = [waiting.session for waiting, _ in self.waiting()] if verdict.evicts_queue else []
        others = [shared for shared in self.shared.connected() if shared.session != claimant.session]
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
            dismisses=tuple(shared.session for shared in others),
            evicts={session: wall_ms for session in evicted if session != claimant.session} | self.state.tries,
        )
        try:
            await self._run_takeover(request, offer)
        except HeldError as error:
            if not self.learn(error.owner):
                self._reject(offer, Outcome(error.code, message=error.message))
            return
        left = {waiting.connection for waiting, _ in self.state.claimants() if waiting.session in evicted}
        left.update(*[shared.connections for shared in others])
        self.apply(ClaimEnded(claimant.session, evicted, frozenset(left - {claimant.connection, CLOSED})))
        self.refusals.forgive(claimant.session, self.scope)
        self._store_queue()

    async def _resume(self) -> None:
        """Continue with the same owner under the next epoch."""
        # Model: Begin.
        holder, ownership = self.state.holder, self.state.record
        if holder is None or ownership is None:
            return
        await self._run_takeover(
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

    async def _adopt(self) -> None:
        """Serve a topic that was served before, and that nobody owns now."""
        # Model: Adopt.
        served_before = self._env.changelog.view.serving(self.name) is not None
        if served_before and self.current is None:
            await self._run_takeover(Request(Purpose.ADOPT))

    async def _look(self) -> None:
        """Continue if the newest record still names the owner; else it lost the topic, or was released."""
        await self._env.changelog.tailer.read_to_end(10.0)
        entry, holder = self._env.changelog.view.ownership(self.name, self.scope.slot), self.state.holder
        if entry is None or holder is None or entry.value.session != holder.session or entry.value.released_ms:
            connections = holder.connections if holder is not None else frozenset[int]()
            self.reread()
            if entry is not None and holder is not None and was_deposed(entry.value, holder.session):
                self.apply(Tainted(connections))
            return
        await self._resume()

    async def _end_left(self) -> None:
        """Release the topic, unless its owner has opened a connection meanwhile. It is free here also after a failure:
        the next claim finds its last owner in Redis, and waits for it.
        """
        try:
            if self._has_left and self.writer.epoch is None:
                await self._resume()
            if self._has_left:
                await self._let_go()
        except Exception:
            if self._has_left:
                self.apply(Freed())
            raise

    @property
    def _has_left(self) -> bool:
        return self.state.holder is not None and not self.state.holder.connections

    async def _let_go(self) -> None:
        """Release the topic: it is free, and the session may come back as a newcomer with its sequences. The record of
        that is written under the owner's epoch.
        """
        # Model: Release.
        holder, epoch, ownership = self.state.holder, self.writer.epoch, self.state.record
        if holder is None or ownership is None:
            return
        if epoch is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {self.name} changed meanwhile")
        self.apply(Freed())
        await epoch.quiet()
        released = records.Ownership()
        released.CopyFrom(ownership)
        released.released_ms = self._env.wall_ms()
        try:
            record = Record(Key(Kind.OWNERSHIP, self.name, self.scope.slot), released)
            position = await epoch.taken.journal.append([record])
            self.apply(Recorded(released, position))
            await self._env.changelog.tailer.reached(Offset(position), timeout=_SEEN_S)
        finally:
            self.writer.drop_epoch(MOVED)
        await self._env.events.released(self.subject, holder)

    # One takeover ---------------------------------------------------------------------------------------------------

    async def _run_takeover(self, request: Request, joins: Offer | None = None) -> None:
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
            hold = self._hold if request.purpose in _LETS_WRITE else None
            taken = await takeover.run(self._let_nobody_write, hold)
        except OutdatedMasterError:
            assert self._master is not None
            self._master.outdated()
            raise
        self.taken = taken
        writes = ids is self.ids  # else sequence ids began or ended meanwhile, and the next batch fences again
        if ids is not None and writes:
            begin_ids(ids, taken, self._env.changelog.view)
        if self._master is not None:
            self._master.opened(self.scope.slot)
        else:
            self.shared.begin(taken, shares=writes and request.purpose is Purpose.SHARE)
        if request.purpose not in FOR_NOBODY:
            self._owned(taken, request, joins, started, writes=writes)
        elif request.purpose is Purpose.SHARE:
            self._freed(taken)
        if self._master is None:
            upkeep.kept(began, taken.fenced_from)

    async def _hold(self) -> None:
        """Make sure, behind the fence, that this object still may grant anything. The master slot's takeover asks the
        catalog once for all partitions: see `MasterSlot`. Raises what `PolicyCatalog.hold` raises.
        """
        if self._master is None:
            await self._env.catalog.hold(self.name)
        if self.is_dropped:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {self.name} changed meanwhile; try again")

    async def _serve(self) -> Stamp | None:
        """Take or keep the right to serve; for a partition also the master slot, whose stamp is returned."""
        if self._master is not None:
            assert self.scope.partition is not None
            master = await self._master.take(self.scope.partition)
            self.serving = True
            return master
        if not await self._env.may_serve(self.name):
            raise NothingDoneError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node serves the topic")
        self.serving = True
        return None

    async def _find_others(self) -> bool:
        """Keep the places of sessions that wrote or waited at the previous node; whether there are any."""
        sessions = await self._env.queues.of(self.scope)
        self.apply(WaitedBefore(sessions))
        return bool(sessions) or (self.scope.is_master and self.shared.expect())

    async def _read_terms(self) -> None:
        """Read how long leaders remember a producer, if the keeper has not read it yet."""
        with suppress(UpstreamError, KafkaError, TimeoutError):  # then the log is read instead
            terms = await read_keep_alives(self._env.services.upstream, [self.name])
            if self.name in terms:
                self.upkeep.read(terms[self.name])

    def _owned(self, taken: TakenSlot, request: Request, joins: Offer | None, started: float, *, writes: bool) -> None:
        """Set the owner after a takeover: the session that the record names, or nobody. `writes`: it begins to."""
        self._lost = None
        self.shared.dismiss()
        before, value = self.state.holder, taken.ownership  # closed connections are already removed from the holder
        self.apply(Recorded(value, taken.position))
        owned: Owned | None = None
        if value.session and not value.released_ms:
            joined = frozenset({joins.claimant.connection} if joins is not None and joins.alive() else ())
            owned = Owned(Session(value.session), value.name, mode_of(value.mode), value.generation, joined)
            if writes:
                self.writer.begin(taken, self.ids, self)
        self.apply(TakenOver(owned, request.deposes))
        by = None if joins is None else joins.claimant.caller
        self._env.events.taken_over(self.subject, request, before, self._env.now() - started, by)

    def _freed(self, taken: TakenSlot) -> None:
        """Note after a takeover that sessions write beside each other, and that the last owner lost the topic."""
        last = self.state.record
        if last is not None and last.session:
            deposed = Holder(Session(last.session), last.name, mode_of(last.mode), last.generation)
            self._env.events.shared(self.subject, deposed)
        self.apply(Freed())
        if taken.ownership.generation:
            self.apply(Recorded(taken.ownership, taken.position))

    def may_share(self) -> bool:
        """Whether sessions may write beside each other now."""
        return self.serving and self.shared.is_current()

    def _failed(self, error: Exception) -> Outcome | None:
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
            self.is_unknown = True
        if isinstance(error, HeldError):
            return None if self.learn(error.owner) else BUSY
        deposed = isinstance(error, KafkaError) and error.code == ErrorCode.PRODUCER_FENCED
        if deposed and not isinstance(error, FencedError):
            self.reread()  # the changelog knows a deposed session that this topic did not
            return None
        return outcome

    # Epochs that end ------------------------------------------------------------------------------------------------

    def _stop_writing(self, loss: Loss) -> None:
        if loss is Loss.DOUBT:
            self.writer.drop_epoch(Outcome(ErrorCode.REQUEST_TIMED_OUT))
            return
        if loss is Loss.FENCED:
            self.taken, self._lost = None, self.writer.epoch
        else:
            self._lost = self.writer.epoch or self._lost
        self._let_nobody_write()

    def _let_nobody_write(self) -> None:
        """Stop all writers under the present epochs; they continue under the next ones."""
        self.writer.drop_epoch(MOVED)
        self.shared.close(MOVED)

    def lose_epoch(self) -> None:
        """Kafka refuses the epoch, or has forgotten it: read the owner again, and continue if it is the same."""
        self.tell(EpochLost(Loss.FENCED))

    def fence_wanted(self) -> None:
        """Stop writing; the next batch opens the next epoch. The outcome of a batch is unknown until its fence."""
        self.tell(EpochLost(Loss.IDS))

    def reopen(self) -> None:
        """Stop writing under the present epoch, and keep its positions for the next one."""
        self.tell(EpochLost(Loss.POLICY))

    def _raised(self) -> None:
        self.taken = self.written_under

    async def _grow(self, partition: int) -> None:
        await self._resume()

    def reread(self) -> None:
        """Read the owner from the changelog, after a start or a lost epoch. It may come back within the grace."""
        self._lost = None
        self.apply(self._read_owner())
        self._env.owner_may_have_changed(self.scope)

    def _idle(self) -> None:
        self._env.owner_may_have_changed(self.scope)
        if self._master is not None and self.scope.partition is not None:
            self._master.idle.add(self.scope.partition)

    # Requests -------------------------------------------------------------------------------------------------------

    async def share_anew(self, is_due: Callable[[TakenSlot], bool]) -> None:
        """Fence the whole topic again, if `is_due` for its master slot: a shared session found it unfenced."""
        await self.perform(partial(self._share_anew, is_due))

    async def _share_anew(self, is_due: Callable[[TakenSlot], bool]) -> None:
        master = self.shared.master
        if master is None or not self.may_share():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic changed its owner meanwhile")
        if is_due(master):
            await self._share()

    async def know_ids(self, timeout: float) -> TopicIds:
        """The sequence ids of the topic once they are known; a topic that nobody serves is taken over for that.

        Raises LookupError if it has none. Raises `KafkaError` 5 LEADER_NOT_AVAILABLE if they are not known in time, or
        while an owner may still come back, and 6 NOT_LEADER_OR_FOLLOWER if another node serves the topic. Raises also
        what a takeover raises.
        """
        ids = self.ids
        if ids is None:
            raise LookupError(self.name)
        await self.over()
        if not ids.is_begun:
            if self.current is not None:
                message = f"the owner of {self.name} may still come back; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            await self.perform(lambda: self._run_takeover(Request(Purpose.ADOPT)))
        await ids.known(timeout)
        return ids

    async def keep_alive(self) -> None:
        """Renew the fence at its epoch while batches are sent: sequences and readers are not disturbed. A topic that
        nobody serves is adopted. A topic that was created anew, or has more partitions, is fenced as a whole.
        """
        taken = self.taken
        if self.busy or (taken is None and self._master is not None):
            return
        if taken is None:
            if self.current is None:
                await asyncio.wait([self.begin(Work.ADOPT)])
            if self.taken is None:
                self.upkeep.failed(self.upkeep.now())
            return
        began = self.upkeep.now()
        renewal, fenced_from = await renew_fence(self._env.services, taken, self.writer.epoch)
        if renewal is Renewal.KEPT:
            if self._master is None:
                await self.shared.keep_alive(taken)
                self.upkeep.kept(began, fenced_from)
        elif self.taken is taken and not self.busy:
            if renewal is Renewal.CHANGED and self.writer.epoch is None:
                again = Work.SHARE if self.shared.master is not None else Work.ADOPT
                await asyncio.wait([self.begin(again)])
            else:
                self.lose_epoch()

    async def give_up(self, session: Session) -> bool:
        """Release the topic for its session; False if the session does not own it. Raises what a takeover raises."""

        async def release() -> bool:
            holder = self.current
            if holder is None or holder.session != session:
                return False
            await self._release()
            return True

        return await self.perform(release)

    async def administer(
        self, partition: int | None = None, *, fence: bool, generations: frozenset[int] | None = None
    ) -> Holder:
        """Fence the owner for ever, or release it, for an administrator, if the generation is one of these (None: any).
        Raises LookupError if nobody owns the topic, `GenerationError` if the generation is another, ValueError if a
        partition is named: the topic has one owner.
        """
        if partition is not None:
            raise ValueError(f"{self.name} has the scope topic: leave partition out")

        async def end() -> Holder | None:
            holder = self.current
            if holder is not None:
                await (self._fence if fence else self._release)(generations)
            return holder

        holder = await self.perform(end)
        if holder is None:
            raise LookupError(self.name)
        return holder

    async def _expect(self, generations: frozenset[int] | None) -> None:
        """Raise `GenerationError` if the generation is another by now, also by another node's record."""
        view = self._env.changelog.view
        if not self.serving and generations is not None and generation_of(view, self.scope) not in generations:
            await self._env.changelog.tailer.read_to_end(_SEEN_S)
        check_generation(view, self.scope, generations)

    async def _fence(self, generations: frozenset[int] | None) -> None:
        await self._expect(generations)
        mode = AccessMode.EXCLUSIVE_WITH_FENCING
        await self._run_takeover(Request(Purpose.FENCE, NOBODY, mode=mode, deposes=True, generations=generations))

    async def _release(self, generations: frozenset[int] | None = None) -> None:
        await self._expect(generations)
        if self.writer.epoch is None:
            await self._resume()
            check_generation(self._env.changelog.view, self.scope, generations)
        await self._let_go()

    async def ungoverned(self) -> None:
        """Remove the owner of a topic without a policy: other clients may write to it now."""

        async def split() -> None:
            if not self._is_split:
                await self._run_takeover(Request(Purpose.SPLIT))

        await self._carry_out(split)
        await self.hand_back()

    async def end_policy(self) -> None:
        """End the policy that a client made, unless somebody uses it: as a work, so that claims wait and are made
        anew on a topic without a policy. If no node serves the topic, this one begins to, and the policy stays.
        """
        if not (self.busy or self.use().is_on(self._env.now())):
            adopt = partial(self._run_takeover, Request(Purpose.ADOPT))
            await self._carry_out(self._end_policy if self.serving else adopt)

    async def _end_policy(self) -> None:
        catalog, view = self._env.catalog, self._env.changelog.view
        await self._run_takeover(Request(Purpose.SPLIT))  # behind its fence a session that comes back is a newcomer
        self.reread()
        taken = self.taken
        assert taken is not None

        def is_wanted() -> bool:
            """No operator changed the policy since, and no node took the topic: see `PolicyCatalog.hold`."""
            return self.name in catalog.by_clients and view.epoch(taken.stamp.producer_id) == taken.stamp.epoch

        try:
            await catalog.delete(self.name, by=_NOBODY_ASKS, is_wanted=is_wanted)
        finally:
            self._is_split = self.is_dropped

    async def hand_back(self) -> None:
        """The node leaves, or lost the right to serve: finish the batches in flight and stop serving."""
        await self._carry_out(self._hand_back)

    async def _hand_back(self) -> None:
        if self.writer.epoch is not None:
            await self.writer.epoch.quiet()
            self.writer.drop_epoch(MOVED)
        await self.shared.quiet()
        self.shared.close(MOVED)
        try:
            if self._master is None:
                await self.policy_ids.save()
        finally:
            self.serving = False
            self.taken = None
            if self._master is None:
                self._env.hooks.topic_forgotten(self.name)
            self.reread()

    # Events of the node ---------------------------------------------------------------------------------------------

    def policy_changed(self) -> None:
        """Apply a changed policy: shared sessions may have to stop, deduplication begins or ends."""
        if self.policy_ids.follow_policy():
            self.reopen()
        if self.shared.master is not None and self._env.mode_of(self.name) is not AccessMode.SHARED:
            self.shared.dismiss()

    def connection_closed(self, connection: int) -> None:
        """Handle the end of a client connection to this node."""
        follows = self.apply(ConnectionClosed(connection))
        self._store_queue()
        self.shared.connection_closed(connection)
        self._follow(follows)

    def join(self, session: Session, connection: int) -> bool:
        """Add a connection of the owner that carried no batch; False if the session does not own the topic here. If
        the owner had lost its last connection, this ends its grace.
        """
        holder = self.current
        if holder is None or holder.session != session or (isinstance(holder, Absent) and self.writer.epoch is None):
            return False
        self.apply(ConnectionOpened(connection))
        return True

    def changed(self, change: Change) -> None:
        """Read the owner again, unless this node serves the topic: another node has stored a record."""
        if not self.serving and change.key.slot == self.scope.slot:
            self.reread()

    def served_elsewhere(self) -> None:
        """Note that another node serves the topic now."""
        if not self.serving:
            self.apply(ServedElsewhere())
