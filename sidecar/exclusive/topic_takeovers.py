"""Takes over one topic, or a partition with its own owner, on this node: for a claimant, for its present owner,
for shared sessions, or for no session.

Each of these is one operation (`operations`). `takeover` performs the steps and returns what was taken. This module
does what comes before them (it takes the right to serve and reads who waits at other nodes) and after them: it sets the
new owner and its writer.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from metadata import MetadataUnavailable
from metadata.ownership import AccessMode
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import QueueFoundError, failure_of
from sidecar.exclusive.arbitration import ExhaustedError, HeldError
from sidecar.exclusive.claims import Verdict
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.operations import BUSY, Offer
from sidecar.exclusive.ownership import Awaited, Holder, Owned, is_held
from sidecar.exclusive.policy_ids import begin_ids
from sidecar.exclusive.records import mode_of, was_deposed
from sidecar.exclusive.requests import Adopt, Claim, Depose, Memory, NothingDoneError, Request, Resume, Share
from sidecar.exclusive.slots import GenerationError, OutdatedMasterError, TakenSlot
from sidecar.exclusive.takeover import Takeover
from sidecar.exclusive.topic_parts import TopicParts
from sidecar.exclusive.upkeep import Renewal, renew_fence
from sidecar.fencing.expiry import read_keep_alives
from sidecar.forwarder.outcome import Outcome
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Stamp
from sidecar.protocol.session import Session


class TopicTakeovers:
    """Of one topic or partition. `taken`: what the newest takeover returned, where this node has the slot still."""

    def __init__(self, topic: TopicParts) -> None:
        self.taken: TakenSlot | None = None
        self._lost: SlotEpoch | None = None
        self._topic = topic
        self._env = topic.environment

    # What they are made for -----------------------------------------------------------------------------------------

    async def claim(self, offer: Offer, verdict: Verdict) -> None:
        """Make the session of this batch the owner, or continue with it if it is the owner."""
        # Model: Own.
        topic, claimant, last = self._topic, offer.claimant, self._topic.owner.holder
        if isinstance(last, Awaited) and last.session != claimant.session and not is_held(last, self._env.now()):
            await self._release_record(last)
        newcomers, now, wall_ms = topic.newcomers, self._env.now(), self._env.wall_ms()
        evicted = [found for found, _ in newcomers.waiting(now)] if verdict.evicts_queue else []
        others = [found for found in topic.shared.connected() if found.session != claimant.session]
        mode = claimant.mode or self._env.mode_of(topic.name)
        kind = Depose if verdict.deposes else Claim
        request = kind(
            session=claimant.session,
            name=claimant.name,
            mode=AccessMode.EXCLUSIVE if mode is AccessMode.SHARED else mode,
            asked=claimant.generation,
            client=offer.client,
            client_epoch=max(0, offer.header.producer_epoch),
            caller=self._env.bindings.writer_of(topic.name, claimant),
            memory=self._memory_of(claimant.session),
            refused=topic.refusals.of(claimant.session, topic.scope),
            dismisses=tuple(found.session for found in others),
            evicts={found.session: wall_ms for found in evicted if found.session != claimant.session}
            | newcomers.tries(),
        )
        try:
            await self.run(request, offer)
        except HeldError as error:
            if not topic.owner.learn(error.owner):
                topic.writer.operations.reject(offer, Outcome(error.code, message=error.message))
            return
        newcomers.claimed(claimant.session, [found.session for found in evicted], topic.owner.listed)
        topic.refusals.forgive(claimant.session, topic.scope)
        topic.queue.changed()
        left = {found.connection for found in evicted}.union(*[found.connections for found in others])
        newcomers.taint(left - {claimant.connection})

    async def _release_record(self, last: Awaited) -> None:
        """The last owner did not come back in time: delete it from Redis."""
        if last.recorded is not None:
            await self._env.services.store.release(last.recorded)

    async def again(self) -> None:
        """The same owner under the next epoch."""
        # Model: Begin.
        topic, holder, ownership = self._topic, self._topic.owner.holder, self._topic.owner.record
        if holder is None or ownership is None:
            return
        await self.run(
            Resume(
                holder.session,
                holder.name,
                holder.mode,
                client=ownership.client,
                caller=self._env.bindings.written(topic.name, holder.session),
                memory=self._memory_of(holder.session),
                refused=topic.refusals.of(holder.session, topic.scope),
            )
        )
        topic.refusals.forgive(holder.session, topic.scope)

    def _memory_of(self, session: Session) -> Memory | None:
        """Where a session stood when its epoch was dropped, if that was its own."""
        lost = self._lost
        return None if lost is None or lost.taken.session != session else lost.memory()

    async def share(self) -> None:
        """Take the master slot without an owner, so that sessions may write beside each other."""
        # Model: Share.
        await self.run(Share())

    async def adopt(self) -> None:
        """Serve a topic that was served before, and that nobody owns now."""
        # Model: Adopt.
        served_before = self._env.changelog.view.serving(self._topic.name) is not None
        if served_before and self._topic.owner.current is None:
            await self.run(Adopt())

    # One takeover ---------------------------------------------------------------------------------------------------

    async def run(self, request: Request, joins: Offer | None = None) -> None:
        """`joins` is a batch of the session on a connection that is to count as the owner's. Raises as `Takeover.run`,
        and `QueueFoundError`.
        """
        topic, upkeep = self._topic, self._topic.upkeep
        served = topic.serving
        master = await self._serve()
        if not served and await self._find_others() and joins is not None and not request.deposes:
            raise QueueFoundError
        if not upkeep.known and (isinstance(request, Share) or (topic.scope.is_master and topic.shared.known())):
            await self._read_terms()
        started, began, ids = self._env.now(), upkeep.now(), topic.ids
        takeover = Takeover(self._env.services, topic.scope, request, master, upkeep.trusted_ms, ids)
        try:
            taken = await takeover.run(topic.stop_writing)
        except OutdatedMasterError:
            assert topic.whole is not None
            topic.whole.outdated()
            raise
        if ids is not topic.ids:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {topic.name} changed meanwhile")
        self.taken = taken
        if ids is not None:
            begin_ids(ids, taken, self._env.changelog.view)
        if topic.whole is not None:
            topic.whole.taken(topic.scope.slot)
        else:
            topic.shared.begin(taken, shares=isinstance(request, Share))
        if not request.is_for_nobody:
            self._settle(taken, request, joins, started)
        elif isinstance(request, Share):
            self._shared(taken)
        if topic.whole is None:
            upkeep.kept(began)

    async def _serve(self) -> Stamp | None:
        """Take or keep the right to serve; for a partition also the master slot, whose stamp is returned."""
        topic = self._topic
        if topic.whole is not None:
            assert topic.scope.partition is not None
            master = await topic.whole.take(topic.scope.partition)
            topic.serving = True
            return master
        if not await self._env.may_serve(topic):
            raise NothingDoneError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node serves the topic")
        return None

    async def _find_others(self) -> bool:
        """Keep the places of sessions that wrote or waited at the node that served the topic before."""
        topic = self._topic
        sessions = await self._env.queues.of(topic)
        topic.newcomers.expect(sessions, self._env.now())
        return bool(sessions) or (topic.scope.is_master and topic.shared.expect())

    async def _read_terms(self) -> None:
        """Read how long leaders remember a producer, if the keeper has not read it yet."""
        name = self._topic.name
        with suppress(UpstreamError, KafkaError, TimeoutError):  # then the log is read instead
            terms = await read_keep_alives(self._env.services.upstream, [name])
            if name in terms:
                self._topic.upkeep.read(terms[name])

    def _settle(self, taken: TakenSlot, request: Request, joins: Offer | None, started: float) -> None:
        """The takeover is done: the topic belongs to its session, or to none."""
        topic, owner = self._topic, self._topic.owner
        self._lost = None
        topic.shared.dismiss()
        before, value = owner.holder, taken.ownership  # connections that closed meanwhile are gone from the holder
        owner.note(value, taken.position)
        owned: Owned | None = None
        if value.session and not value.released_ms:
            joined = frozenset({joins.claimant.connection} if joins is not None and joins.alive() else ())
            owned = Owned(Session(value.session), value.name, mode_of(value.mode), value.generation, joined)
            topic.writer.begin(taken, topic.ids)
        owner.taken_over(owned)
        if request.deposes and before is not None and before.session != value.session:
            connections = owner.holder.connections if owner.holder is not None else frozenset[int]()
            topic.newcomers.taint(before.connections - connections)
        by = None if joins is None else joins.claimant.caller
        self._env.events.taken_over(topic, request, before, self._env.now() - started, by)

    def _shared(self, taken: TakenSlot) -> None:
        """The takeover is done: sessions write beside each other, and the last owner lost the topic."""
        topic, owner = self._topic, self._topic.owner
        last = owner.record
        if last is not None and last.session:
            self._env.events.shared(
                topic, Holder(Session(last.session), last.name, mode_of(last.mode), last.generation)
            )
        owner.freed()
        if taken.ownership.generation:
            owner.note(taken.ownership, taken.position)

    def may_share(self) -> bool:
        """Whether sessions may write beside each other as things stand."""
        return self._topic.serving and self._topic.shared.is_current()

    async def share_anew(self, is_due: Callable[[TakenSlot], bool]) -> None:
        """A session that writes beside others found a partition, or a topic, that was not fenced."""
        operations, shared = self._topic.writer.operations, self._topic.shared
        await operations.over()
        if shared.master is None or not self.may_share():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic changed its owner meanwhile")
        if is_due(shared.master):
            await asyncio.wait([operations.begin(self.share)])

    async def know_ids(self, timeout: float) -> TopicIds:
        """The sequence ids of the topic once they are known; a topic that nobody serves is taken over for that.

        Raises LookupError where it has none, `KafkaError` 5 LEADER_NOT_AVAILABLE where they are not known in time, or
        while an owner may still come back, 6 NOT_LEADER_OR_FOLLOWER where another node serves the topic, and as a
        takeover does.
        """
        topic, ids = self._topic, self._topic.ids
        if ids is None:
            raise LookupError(topic.name)
        await topic.writer.operations.over()
        if not ids.is_begun:
            if topic.owner.current is not None:
                message = f"the owner of {topic.name} may still come back; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            await topic.writer.operations.perform(lambda: self.run(Adopt()))
        await ids.known(timeout)
        return ids

    def failed(self, error: Exception) -> Outcome | None:
        """How batches that waited for an operation are answered where it failed; None: they are judged anew."""
        topic, hooks, outcome = self._topic, self._env.hooks, failure_of(error)
        if isinstance(error, MetadataUnavailable):
            hooks.fenced(topic.name, "redis_down")
            return outcome
        if isinstance(error, QueueFoundError | GenerationError):
            return None
        hooks.operation_failed(topic.name, error)
        if isinstance(error, ExhaustedError):
            return Outcome(error.code, message=error.message)
        if outcome.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._env.unknown(topic)
        if isinstance(error, HeldError):
            return None if topic.owner.learn(error.owner) else BUSY
        deposed = isinstance(error, KafkaError) and error.code == ErrorCode.PRODUCER_FENCED
        if deposed and not isinstance(error, FencedError):
            self.reread()  # the changelog knows a deposed session that this topic did not
            return None
        return outcome

    # What was taken -------------------------------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Renew the fence at its epoch, in mid-traffic: sequences and readers are not disturbed. A topic that nobody
        serves is adopted; one that was created anew, or has grown, is fenced as a whole.
        """
        topic, taken, operations = self._topic, self.taken, self._topic.writer.operations
        if operations.busy or (taken is None and topic.whole is not None):
            return
        if taken is None:
            if topic.owner.current is None:
                await asyncio.wait([operations.begin(self.adopt)])
            if self.taken is None:
                topic.upkeep.failed(topic.upkeep.now())
            return
        began = topic.upkeep.now()
        renewal = await renew_fence(self._env.services, taken, topic.writer.epoch)
        if renewal is Renewal.KEPT:
            if topic.whole is None:
                await topic.shared.keep_alive(taken)
                topic.upkeep.kept(began)
        elif self.taken is taken and not operations.busy:
            if renewal is Renewal.CHANGED and topic.writer.epoch is None:
                again = self.share if topic.shared.master is not None else self.adopt
                await asyncio.wait([operations.begin(again)])
            else:
                self.lose_epoch()

    def reread(self) -> None:
        """Take over what the changelog says, after a start or a loss. An owner that is still held may come back."""
        self._lost = None
        self._topic.owner.read()
        self._env.owner_may_have_changed(self._topic)

    def reopen(self) -> None:
        """The writer goes on under the next epoch; its position is known from this one."""
        self._lost = self._topic.writer.epoch or self._lost
        self._topic.stop_writing()

    def lose_epoch(self) -> None:
        """Kafka refuses the epoch, or has forgotten it: look up the owner, and go on if it is the same."""
        topic = self._topic
        self.taken, self._lost = None, topic.writer.epoch
        topic.stop_writing()
        if not topic.writer.operations.busy:
            topic.writer.operations.begin(self._reexamine)

    async def _reexamine(self) -> None:
        topic, owner = self._topic, self._topic.owner
        await self._env.changelog.tailer.read_to_end(10.0)
        entry, holder = owner.entry, owner.holder
        if entry is None or holder is None or entry.value.session != holder.session or entry.value.released_ms:
            connections = holder.connections if holder is not None else frozenset[int]()
            self.reread()
            if entry is not None and holder is not None and was_deposed(entry.value, holder.session):
                topic.newcomers.taint(connections)
            return
        await self.again()
