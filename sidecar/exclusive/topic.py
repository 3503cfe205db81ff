"""One governed topic on the node that serves it: its owner, the operation in progress, and the batches that wait for
it.

A topic is ready, or busy with one operation (`operations`): a takeover, a raise, a release. `claims` decides,
`takeover` performs the steps, `newcomers` remembers the sessions that do not own the topic; this module connects them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from metadata import MetadataUnavailable
from metadata.ownership import AccessMode
from sidecar.exclusive import claims
from sidecar.exclusive.answers import MOVED, QueueFoundError, failure_of
from sidecar.exclusive.arbitration import ExhaustedError, HeldError
from sidecar.exclusive.claims import Claimant, Step
from sidecar.exclusive.ending import EndingTopic
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.operations import BUSY, GRANTED, Offer
from sidecar.exclusive.ownership import Awaited, Connected, Freed, Holder, Owned, TakenOver, is_held
from sidecar.exclusive.records import mode_of, was_deposed
from sidecar.exclusive.requests import Adopt, Claim, Depose, Request, Resume, Share
from sidecar.exclusive.takeover import Takeover
from sidecar.exclusive.tenure import GenerationError, NothingDoneError, writer_names
from sidecar.exclusive.upkeep import Renewal, renew_fence
from sidecar.fencing import read_keep_alives
from sidecar.forwarder.append import Outcome
from sidecar.forwarder.sequences import Verdict
from sidecar.protocol.batch import surely_newest
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecar.dedup.topic import TopicIds
    from sidecar.exclusive.tenure import Tenure
    from sidecar.forwarder.lane import Lane
    from sidecar.forwarder.whole import WholeRequest
    from sidecar.protocol.batch import BatchHeader
    from sidecar.protocol.ids import Stamp

_NOT_SHARED: Final = "partitions of this topic have one owner each: ask for a mode in client.id"


class GovernedTopic(EndingTopic):
    """The state of one topic, or of one partition with an owner of its own; the writer is its owner, if any."""

    @property
    def parts(self) -> Iterable[GovernedTopic]:
        """Everything here that can have an owner."""
        return (self,)

    async def know_ids(self, timeout: float) -> TopicIds:
        """The sequence ids of the topic once they are known; a topic that nobody serves is taken over for that.

        Raises LookupError where it has none, `KafkaError` 5 where they are not known in time, or while an owner may
        still come back, 6 where another node serves the topic, and as a takeover does.
        """
        if self.ids is None:
            raise LookupError(self.name)
        await self.writer.operations.over()
        if not self.ids.is_begun:
            if self.current_holder is not None:
                message = f"the owner of {self.name} may still come back; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            await self._operate(lambda: self._run_takeover(Adopt()))
        await self.ids.known(timeout)
        return self.ids

    # Batches ------------------------------------------------------------------------------------------------------

    def forward(
        self,
        claimant: Claimant,
        partition: int,
        header: BatchHeader,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[Outcome], None],
    ) -> bool:
        """Forward a batch of the owner in order, the usual case; False if there is anything to decide."""
        epoch = self._epoch_of(claimant)
        if (
            epoch is None
            or (epoch.ids is not None and self.refusals.has(claimant.session, self.domain))
            or not epoch.covers(partition)
            or epoch.verdict(partition, header) is not Verdict.FORWARD
            or self.upkeep.is_old(surely_newest(batch, header.attributes, header.base_timestamp, header.max_timestamp))
        ):
            return False
        self.upkeep.is_unseen = True
        self._env.hooks.governed_produce(self.name, header.records, len(batch))
        epoch.append(partition, header, batch, timeout_ms, done)
        return True

    def forward_whole(self, claimant: Claimant, request: WholeRequest) -> bool:
        """As `forward`, for a client's whole request, where all of it can go out now."""
        epoch, batches = self._epoch_of(claimant), request.batches
        size, oldest = (
            sum([len(batch) for _, batch, _ in batches]),
            min([numbers.newest for *_, numbers in batches]),
        )
        if epoch is None or self.upkeep.is_old(oldest) or not epoch.append_whole(request, size):
            return False
        self.upkeep.is_unseen = True
        self._env.hooks.governed_produce(self.name, sum([numbers.records for *_, numbers in batches]), size)
        return True

    def _epoch_of(self, claimant: Claimant) -> SlotEpoch | None:
        """The slot epoch at work for a session, where it owns the topic on this connection and nothing is under way."""
        holder = self.holder
        if self.writer.operations.busy:
            return None
        if holder is None:
            shared = self.shared.of(claimant)
            return shared.writer.epoch if shared is not None and not shared.writer.busy else None
        if holder.session != claimant.session or claimant.connection not in holder.writers:
            return None
        return self.writer.epoch

    def judge(self, offer: Offer) -> None:
        holder, claimant = self.holder, offer.claimant
        if (
            isinstance(holder, Owned)
            and holder.session == claimant.session
            and self.writer.epoch is not None
            and claimant.generation is None
            and claimant.mode is not AccessMode.SHARED
        ):
            if self.writer.epoch.ids is not None and self.refusals.has(claimant.session, self.domain):
                self.writer.operations.begin(self.again, offer)
            else:
                self._forward(offer, self.writer.epoch)
            return
        now = self._env.now()
        verdict = claims.judge(self._situation(now), claimant, now)
        step = verdict.step
        if step is Step.FORWARD and self.writer.epoch is not None:
            self._forward(offer, self.writer.epoch)
        elif step in (Step.FORWARD, Step.RETURN, Step.CLAIM):
            self.writer.operations.begin(partial(self._take_over, offer, verdict), offer)
        elif step is Step.SHARE and self._station is not None:
            self._refuse(offer, claims.Verdict(Step.REFUSE, ErrorCode.POLICY_VIOLATION, _NOT_SHARED), now)
        elif step is Step.SHARE:
            if self._may_share():
                self.shared.offer(offer)
            else:
                self.writer.operations.begin(self._share, offer)
        else:
            self._refuse(offer, verdict, now)

    def _refuse(self, offer: Offer, verdict: claims.Verdict, now: float) -> None:
        claimant = offer.claimant
        deposed = verdict.code == ErrorCode.PRODUCER_FENCED
        if not (self.serving or deposed) and self._env.is_served_elsewhere(self.name):
            self.writer.operations.answer(offer, MOVED)  # that node knows better
            return
        if verdict.step is Step.WAIT:
            self.newcomers.wait(claimant, now)
            self._queue_told()
            self._env.hooks.fenced(self.name, "waiting")
        elif verdict.step is Step.LATER:
            if isinstance(self.holder, Owned):
                self.newcomers.ghosts.setdefault(claimant.connection, now)
            self._env.hooks.fenced(self.name, "waiting")
        elif deposed:
            self.newcomers.fenced(claimant, self._env.wall_ms(), listed=claimant.session in self._deposed)
            self._env.hooks.fenced(self.name, "deposed")
        else:
            self.refusals.add(claimant, offer.partition, offer.header)
            self._env.hooks.fenced(self.name, "not_owner")
        self.writer.operations.answer(offer, Outcome(verdict.code, message=verdict.message))

    def _forward(self, offer: Offer, epoch: SlotEpoch) -> None:
        self._step(Connected(offer.claimant.connection, writes=not offer.is_claim))
        if offer.is_claim:
            self.writer.operations.answer(offer, GRANTED)
        else:
            self.writer.write(offer, epoch)

    def policy_changed(self) -> None:
        """Apply a changed policy: shared sessions may have to stop, deduplication begins or ends."""
        if self._station is None and (self.ids is not None) is not self._env.deduplicates(self.name):
            self._change_ids()
        if self.shared.master is not None and self._env.mode_of(self.name) is not AccessMode.SHARED:
            self.shared.dismiss()

    def _change_ids(self) -> None:
        """What was forwarded without a look at ids is in the log behind the next fence, and so is all that was with."""
        if self.ids is not None:
            self.ids.end()
            self._without_ids = self._env.changelog.position
        self.ids = self._new_ids()
        self._reopen()

    def _reopen(self) -> None:
        """The sessions that write continue under the next epoch."""
        self.writer.drop_epoch(MOVED)
        self.shared.close(MOVED)

    def _fence_wanted(self) -> None:
        if not self.writer.operations.busy:
            self._reopen()

    # Operations ---------------------------------------------------------------------------------------------------

    def failed(self, error: Exception) -> Outcome | None:
        outcome = failure_of(error)
        if isinstance(error, MetadataUnavailable):
            self._env.hooks.fenced(self.name, "redis_down")
            return outcome
        if isinstance(error, QueueFoundError | GenerationError):
            return None
        self._env.hooks.operation_failed(self.name, error)
        if isinstance(error, ExhaustedError):
            return Outcome(error.code, message=error.message)
        if outcome.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._env.unknown(self)
        if isinstance(error, HeldError):
            return None if self._learn(error.owner) else BUSY
        deposed = isinstance(error, KafkaError) and error.code == ErrorCode.PRODUCER_FENCED
        if deposed and not isinstance(error, FencedError):
            self.load()  # the changelog knows a deposed session that this topic did not
            return None
        return outcome

    def operation_over(self) -> None:
        self._check_release()
        self._env.stirred(self)
        if self._station is not None and self.domain.partition is not None:
            self._station.tidy(self.domain.partition)

    async def _take_over(self, offer: Offer, verdict: claims.Verdict) -> None:
        """Make the session of this batch the owner, or continue with it if it is the owner."""
        # Model: Own.
        claimant, last, newcomers = offer.claimant, self.holder, self.newcomers
        if isinstance(last, Awaited) and last.session != claimant.session and not is_held(last, self._env.now()):
            await self._release_record(last)
        now, wall_ms = self._env.now(), self._env.wall_ms()
        evicted = [found for found, _ in newcomers.waiting(now)] if verdict.evicts_queue else []
        others = [found for found in self.shared.connected() if found.session != claimant.session]
        mode = claimant.mode or self._env.mode_of(self.name)
        struck = [(session, *found) for session, found in newcomers.tries()]
        kind = Depose if verdict.deposes else Claim
        request = kind(
            session=claimant.session,
            name=claimant.name,
            mode=AccessMode.EXCLUSIVE if mode is AccessMode.SHARED else mode,
            asked=claimant.generation,
            client=offer.client,
            client_epoch=max(0, offer.header.producer_epoch),
            client_id=self._env.bindings.written(self.name, claimant.session),
            refused=self.refusals.of(claimant.session, self.domain),
            dismisses=tuple(found.session for found in others),
            evicts=(
                *[(found.session, found.name, wall_ms) for found in evicted if found.session != claimant.session],
                *struck,
            ),
        )
        try:
            await self._run_takeover(request, offer)
        except HeldError as error:
            if not self._learn(error.owner):
                self.writer.operations.reject(offer, Outcome(error.code, message=error.message))
            return
        newcomers.claimed(claimant.session, [found.session for found in evicted], self._deposed)
        self.refusals.forgive(claimant.session, self.domain)
        self._queue_told()
        left = {found.connection for found in evicted}.union(*[found.connections for found in others])
        newcomers.tainted |= left - {claimant.connection}

    async def _release_record(self, last: Awaited) -> None:
        """The last owner did not come back in time: delete it from Redis."""
        if last.recorded is not None:
            await self._env.around.store.release(last.recorded)

    async def _run_takeover(self, request: Request, joins: Offer | None = None) -> None:
        """`joins` is a batch of the session on a connection that is to count as the owner's."""
        served = self.serving
        master = await self._serve()
        if not served and await self._find_others() and joins is not None and not request.deposes:
            raise QueueFoundError
        if not self.upkeep.known and (isinstance(request, Share) or (self.domain.is_master and self.shared.known())):
            await self._read_terms()
        started, began, ids = self._env.now(), self.upkeep.now(), self.ids
        takeover = Takeover(self._env.around, self.domain, request, master, self.upkeep.trusted_ms, ids)
        tenure = await takeover.run(self._stop_writing)
        if ids is not self.ids:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {self.name} changed meanwhile")
        self._tenure = tenure
        if ids is not None:
            self._read_ids(ids, tenure)
        if self._station is not None:
            self._station.taken(self.domain.slot)
        else:
            self.upkeep.kept(began)
            self.shared.begin(tenure, shares=isinstance(request, Share))
        if not request.is_for_nobody:
            self._settle(tenure, request, joins, started)
        elif isinstance(request, Share):
            last = self.ownership
            if last is not None and last.session:
                mode, name = mode_of(last.mode), last.name
                self._env.chronicle.shared(self, Holder(last.session, name, mode, last.generation))
            self._step(Freed())
            if tenure.ownership.generation:
                self._note(tenure.ownership, tenure.position)

    def _read_ids(self, ids: TopicIds, tenure: Tenure) -> None:
        """What earlier epochs wrote is settled by the fence: it is read before anything else is written."""
        names = writer_names(self._env.changelog.view, self.name)
        if self._station is None:
            ids.begin(tenure.topic_id, tenure.stamp, tenure.partitions, tenure.ids_from or {}, names)
        else:
            ids.begin_slot(tenure.stamp.producer_id, tenure.partitions, names)

    def _stop_writing(self) -> None:
        self.writer.drop_epoch(MOVED)
        self.shared.close(MOVED)

    def _settle(self, tenure: Tenure, request: Request, joins: Offer | None, started: float) -> None:
        """The takeover is done: the topic belongs to its session, or to none."""
        self.shared.dismiss()
        before, value = self.holder, tenure.ownership  # connections that closed meanwhile are gone from the holder
        self._note(value, tenure.position)
        owner: Owned | None = None
        if value.session and not value.released_ms:
            joined = frozenset({joins.claimant.connection} if joins is not None and joins.alive() else ())
            owner = Owned(value.session, value.name, mode_of(value.mode), value.generation, joined)
            self.writer.epoch = SlotEpoch(
                tenure, self._env.forwarder, self.writer, self.ids, self._env.around.epoch_records
            )
        self._step(TakenOver(owner, self._alone_until))
        if request.deposes and before is not None and before.session != value.session:
            connections = self.holder.connections if self.holder is not None else frozenset[int]()
            self.newcomers.tainted |= before.connections - connections
        self._env.chronicle.taken_over(self, request, before, self._env.now() - started)

    async def _serve(self) -> Stamp | None:
        """Take or keep the right to serve; for a partition also the master slot, whose stamp is returned."""
        if self._station is not None:
            assert self.domain.partition is not None
            master = await self._station.take(self.domain.partition)
            self.serving = True
            return master
        if not await self._env.may_serve(self):
            raise NothingDoneError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node serves the topic")
        return None

    async def _find_others(self) -> bool:
        """Keep the places of sessions that wrote or waited at the node that served the topic before."""
        sessions = await self._env.queues.of(self)
        self.newcomers.expect(sessions, self._env.now())
        return bool(sessions) or (self.domain.is_master and self.shared.expect())

    async def _read_terms(self) -> None:
        """Read how long leaders remember a producer, if the keeper has not read it yet."""
        with suppress(UpstreamError, KafkaError, TimeoutError):  # then the log is read instead
            terms = await read_keep_alives(self._env.around.upstream, [self.name])
            if self.name in terms:
                self.upkeep.read(terms[self.name])

    def _may_share(self) -> bool:
        """Whether sessions may write beside each other as things stand."""
        return self.serving and self.shared.is_current()

    async def _share(self) -> None:
        """Take the master slot for nobody, so that sessions may write beside each other."""
        # Model: Share.
        await self._run_takeover(Share())

    async def grow(self, partition: int) -> None:
        await self.again()

    async def _grow_shared(self, partition: int) -> None:
        await self.writer.operations.over()
        master = self.shared.master
        if master is None or not self._may_share():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic changed its owner meanwhile")
        if partition not in master.partitions:
            await asyncio.wait([self.writer.operations.begin(self._share)])

    async def again(self) -> None:
        """The same owner under the next epoch."""
        # Model: Begin.
        holder, ownership = self.holder, self.ownership
        if holder is None or ownership is None:
            return
        lost, self._lost = self._lost, None
        memory = None if lost is None or lost.tenure.session != holder.session else lost.memory()
        refused = self.refusals.of(holder.session, self.domain)
        await self._run_takeover(
            Resume(
                holder.session,
                holder.name,
                holder.mode,
                client=ownership.client,
                client_id=self._env.bindings.written(self.name, holder.session),
                memory=memory,
                refused=refused,
            )
        )
        self.refusals.forgive(holder.session, self.domain)

    def raised(self, epoch: SlotEpoch) -> None:
        """See `sidecar.exclusive.writer.Writing`."""
        self._tenure = epoch.tenure

    def dropped(self, epoch: SlotEpoch) -> None:
        """See `sidecar.exclusive.writer.Writing`."""

    # Upkeep -------------------------------------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Renew the fence at its epoch, in mid-traffic: sequences and readers are not disturbed. A topic that nobody
        serves is adopted; one that was created anew, or has grown, is fenced as a whole.
        """
        if self.writer.operations.busy:
            return
        tenure = self._tenure
        if tenure is None and self._station is not None:
            return
        if tenure is None:
            if self.current_holder is None:
                await asyncio.wait([self.writer.operations.begin(self._adopt)])
            if self._tenure is None:
                self.upkeep.failed(self.upkeep.now())
            return
        began = self.upkeep.now()
        renewal = await renew_fence(self._env.around, tenure, self.writer.epoch)
        if renewal is Renewal.KEPT:
            if self._station is None:
                await self.shared.keep_alive(tenure)
                self.upkeep.kept(began)
        elif self._tenure is tenure and not self.writer.operations.busy:
            if renewal is Renewal.CHANGED and self.writer.epoch is None:
                again = self._share if self.shared.master is not None else self._adopt
                await asyncio.wait([self.writer.operations.begin(again)])
            else:
                self._lose_epoch()

    async def _adopt(self) -> None:
        # Model: Adopt.
        served_before = self._env.changelog.view.serving(self.name) is not None
        if served_before and self.current_holder is None:
            await self._run_takeover(Adopt())

    # Lanes' owner -------------------------------------------------------------------------------------------------

    def fenced(self, lane: Lane) -> None:
        """Kafka refuses this epoch: find out which node took the slot, and take over again if none did."""
        if self.writer.writes_under(lane):
            self._lose_epoch()

    def _lose_epoch(self) -> None:
        self._tenure, self._lost = None, self.writer.epoch
        self.writer.drop_epoch(MOVED)
        self.shared.close(MOVED)
        if not self.writer.operations.busy:
            self.writer.operations.begin(self._reexamine)

    async def _reexamine(self) -> None:
        changelog = self._env.changelog
        await changelog.tailer.read_to_end(10.0)
        entry = self._recorded()
        holder = self.holder
        if entry is None or holder is None or entry.value.session != holder.session or entry.value.released_ms:
            connections = holder.connections if holder is not None else frozenset[int]()
            self.load()
            if entry is not None and holder is not None and was_deposed(entry.value, holder.session):
                self.newcomers.tainted |= connections
            return
        await self.again()
