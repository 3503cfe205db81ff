"""One governed topic on the node that serves it: who owns it, what is under way, what waits for that.

A topic is READY, or BUSY with one operation (a takeover, a raise, a release). While it is busy batches wait in order,
two seconds at most, then they are answered 5 and come again. Decisions are `claims`', steps are `takeover`'s; here
they meet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from metadata import MetadataError, MetadataUnavailable
from metadata.ownership import AccessMode, Ownership
from sidecar.changelog import MASTER_SLOT, ChangelogError, Record, RetryTimeoutError, ownership_key
from sidecar.exclusive import claims
from sidecar.exclusive.claims import Claimant, Holder, Situation, Step
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.takeover import NOBODY, HeldError, Intent, LostRaceError, Takeover, mode_of, owner_record
from sidecar.forwarder.lane import Outcome
from sidecar.forwarder.sequences import RefusedSequences, Verdict
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sidecar.exclusive.environment import Environment
    from sidecar.forwarder.lane import Lane
    from sidecar.protocol.batch import BatchHeader

_HELD_S: Final = 2.0
_QUEUE_PATIENCE_S: Final = 5.0
_SEEN_S: Final = 5.0
_REFUSED_KEPT: Final = 10_000
_REPEAT: Final = Outcome(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_GAP: Final = Outcome(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_STALE: Final = Outcome(
    ErrorCode.INVALID_PRODUCER_EPOCH, message="the client itself has gone on to a higher producer epoch"
)
_ANSWERS: Final = {Verdict.REPEAT: _REPEAT, Verdict.ASTRIDE: _GAP, Verdict.WAIT: _GAP, Verdict.STALE: _STALE}
_MOVED: Final = Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="another node serves the topic, or is about to")
_BUSY: Final = Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message="the topic changes hands; try again")
NO_REDIS: Final = "Redis is away: the topic cannot change its owner now; try again"

FAILURES: Final = (
    KafkaError,
    UpstreamError,
    ChangelogError,
    RetryTimeoutError,
    LostRaceError,
    MetadataError,
    TimeoutError,
)
"""How an operation may end without success; each leaves the topic as it was."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch that wants in. `alive` tells whether its client is still connected; `done` is called once."""

    claimant: Claimant
    client: str
    partition: int
    header: BatchHeader
    batch: memoryview
    timeout_ms: int
    alive: Callable[[], bool]
    done: Callable[[Outcome], None]


class GovernedTopic:
    """The state of one topic. Implements `sidecar.forwarder.lane.Owner`."""

    def __init__(self, name: str, environment: Environment) -> None:
        self.name = name
        self.holder: Holder | None = None
        self.ownership: state.Ownership | None = None
        self.position = -1
        self.waiting: dict[str, tuple[Claimant, float]] = {}
        self.epoch: SlotEpoch | None = None
        self.serving = False
        self._env = environment
        self._busy = False
        self._operation: asyncio.Task[None] | None = None
        self._slow = False
        self._held: deque[Offer] = deque()
        self._held_timer: asyncio.TimerHandle | None = None
        self._joined: dict[str, float] = {}
        self._tainted: set[int] = set()
        self._ghosts: dict[str, float] = {}
        self._refused: dict[tuple[str, int], RefusedSequences] = {}
        self._release_due = False
        self._leftover: Ownership | None = None
        self.load()

    def load(self) -> None:
        """Take over what the changelog says, after a start or a loss. An owner that is still held may come back."""
        entry = self._env.changelog.view.ownership(self.name)
        if entry is None:
            return
        self.ownership, self.position = entry.value, entry.offset
        value = entry.value
        if value.released_ms or not value.session:
            self.holder = None
            return
        awaited = self._env.now() + (self._env.reconnect_grace if value.session.startswith("pid:") else 0.0)
        self._leftover = owner_record(self.name, entry, self._env.node_id)
        self.holder = Holder(value.session, value.name, mode_of(value.mode), value.generation, frozenset(), awaited)

    @property
    def generation(self) -> int:
        """0 before anybody owned the topic."""
        return self.ownership.generation if self.ownership is not None else 0

    @property
    def current_holder(self) -> Holder | None:
        """The holder, unless it is only awaited and its time is over."""
        holder = self.holder
        if holder is not None and holder.awaited_until is not None and holder.awaited_until <= self._env.now():
            return None
        return holder

    def as_owned(self) -> Ownership | None:
        """What this node asserts to Redis with every heartbeat."""
        entry = self._env.changelog.view.ownership(self.name)
        return (
            owner_record(self.name, entry, self._env.node_id) if entry is not None and self.epoch is not None else None
        )

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
        """The usual case, a batch of the owner in good order, without anything to decide; False where there is."""
        holder, epoch = self.holder, self.epoch
        if (
            self._busy
            or epoch is None
            or holder is None
            or holder.session != claimant.session
            or claimant.connection not in holder.connections
            or not epoch.covers(partition)
            or epoch.verdict(partition, header) is not Verdict.FORWARD
        ):
            return False
        self._env.hooks.governed_produce(self.name, header.records, len(batch))
        epoch.append(partition, header, batch, timeout_ms, done)
        return True

    def offer(self, offer: Offer) -> None:
        """Decide on a batch, now or when the operation under way is over."""
        if not self._busy:
            self._judge(offer)
        elif self._slow:
            self._answer(offer, _BUSY)
        else:
            self._held.append(offer)

    def _answer(self, offer: Offer, outcome: Outcome) -> None:
        self._env.forwarder.released(len(offer.batch))
        offer.done(outcome)

    def _situation(self) -> Situation:
        ownership = self.ownership
        return Situation(
            mode=self._env.mode_of(self.name),
            generation=self.generation,
            holder=self.holder,
            deposed={deposed.session: deposed for deposed in ownership.deposed} if ownership is not None else {},
            tainted=frozenset(self._tainted),
            waiting=self._queue(),
            ghosts=self._ghosts,
            queue_limit=self._env.queue_limit,
        )

    def _queue(self) -> list[str]:
        """Who waits, in order; whoever has not tried for a while is gone."""
        now = self._env.now()
        for session, (_, tried) in list(self.waiting.items()):
            if now - tried > _QUEUE_PATIENCE_S:
                self._leave_queue(session)
        return list(self.waiting)

    def _leave_queue(self, session: str) -> None:
        self.waiting.pop(session, None)
        self._joined.pop(session, None)

    def queue_in_ms(self) -> list[tuple[str, tuple[Claimant, int]]]:
        """Who waits, in order, and since when (Unix milliseconds), for people."""
        wall, now = self._env.wall_ms(), self._env.now()
        return [
            (session, (claimant, wall - int((now - self._joined.get(session, now)) * 1000)))
            for session, (claimant, _) in self.waiting.items()
        ]

    def _judge(self, offer: Offer) -> None:
        holder, claimant = self.holder, offer.claimant
        if (
            holder is not None
            and holder.session == claimant.session
            and holder.awaited_until is None
            and self.epoch is not None
            and claimant.generation is None
            and claimant.mode is not AccessMode.SHARED
        ):
            self._forward(offer, self.epoch)
            return
        now = self._env.now()
        verdict = claims.judge(self._situation(), claimant, now)
        step = verdict.step
        if step is Step.FORWARD and self.epoch is not None:
            self._forward(offer, self.epoch)
        elif step in (Step.FORWARD, Step.RETURN, Step.CLAIM):
            evicted = self._evict_queue(claimant) if verdict.evicts_queue else ()
            self._held.appendleft(offer)
            self._begin(self._take_over(offer, deposes=verdict.deposes, evicts=evicted))
        else:
            if step is Step.WAIT:
                first = self.waiting.get(claimant.session)
                self.waiting[claimant.session] = (first[0] if first else claimant, now)
                self._joined.setdefault(claimant.session, now)
                self._env.hooks.fenced(self.name, "waiting")
            elif step is Step.LATER:
                self._ghosts.setdefault(claimant.session, now)
                self._env.hooks.fenced(self.name, "waiting")
            else:
                self._note_refusal(offer, verdict.code)
            self._answer(offer, Outcome(verdict.code, message=verdict.message))

    def _evict_queue(self, claimant: Claimant) -> tuple[tuple[str, str], ...]:
        """Everybody who waits loses the topic with its holder (PIP-161)."""
        evicted = tuple(
            (found.session, found.name) for found, _ in self.waiting.values() if found.session != claimant.session
        )
        self.waiting.clear()
        self._joined.clear()
        return evicted

    def _note_refusal(self, offer: Offer, code: int) -> None:
        """A final error: the client counts these sequences as used."""
        if code == ErrorCode.PRODUCER_FENCED:
            self._tainted.add(offer.claimant.connection)
            self._env.hooks.fenced(self.name, "deposed")
            return
        self._env.hooks.fenced(self.name, "not_owner")
        header = offer.header
        if code == ErrorCode.POLICY_VIOLATION and header.producer_id >= 0:
            key = offer.claimant.session, offer.partition
            if key not in self._refused and len(self._refused) >= _REFUSED_KEPT:
                self._refused.pop(next(iter(self._refused)))
            refused = self._refused.setdefault(key, RefusedSequences(header.producer_epoch))
            refused.refused(header.producer_epoch, header.base_sequence, header.last_offset_delta + 1)

    def _forward(self, offer: Offer, epoch: SlotEpoch) -> None:
        assert self.holder is not None
        connection = offer.claimant.connection
        if connection not in self.holder.connections:
            self.holder = replace(self.holder, connections=self.holder.connections | {connection})
        if not epoch.covers(offer.partition):
            self._held.appendleft(offer)
            self._begin(self._grow(offer))
            return
        verdict = epoch.verdict(offer.partition, offer.header)
        if verdict is Verdict.FORWARD:
            self._env.hooks.governed_produce(self.name, offer.header.records, len(offer.batch))
            epoch.append(offer.partition, offer.header, offer.batch, offer.timeout_ms, offer.done)
        elif verdict is Verdict.RAISE:
            self._held.appendleft(offer)
            self._begin(self._raise(epoch, offer.partition, offer.header.producer_epoch))
        else:
            self._answer(offer, _ANSWERS[verdict])

    # Operations ---------------------------------------------------------------------------------------------------

    async def _idle(self) -> None:
        """Wait for the operation under way, and those that it brings about."""
        while self._operation is not None:
            await asyncio.wait([self._operation])

    def _begin(self, operation: Coroutine[None, None, None]) -> None:
        self._busy = True
        self._slow = False
        self._held_timer = asyncio.get_running_loop().call_later(_HELD_S, self._too_slow)
        self._operation = self._env.tasks.start(self._run(operation))

    async def _run(self, operation: Coroutine[None, None, None]) -> None:
        refusal = _BUSY
        try:
            await operation
            refusal = None
        except MetadataUnavailable:
            self._env.hooks.fenced(self.name, "redis_down")
            refusal = Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message=NO_REDIS)
        except HeldError as error:
            self._learn(error.owner)
            refusal = None
        except KafkaError as error:
            if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                refusal = Outcome(error.code, message=error.message)
            elif error.code == ErrorCode.PRODUCER_FENCED:
                self.load()
                refusal = None
            self._env.hooks.operation_failed(self.name, error)
        except FAILURES as error:
            self._env.hooks.operation_failed(self.name, error)
        finally:
            if self._held_timer is not None:
                self._held_timer.cancel()
            self._busy = False
            self._operation = None
            held, self._held = self._held, deque()
            for offer in held:
                if not offer.alive():
                    self._env.forwarder.released(len(offer.batch))
                elif refusal is not None:
                    self._answer(offer, refusal)
                else:
                    self.offer(offer)
            self._check_release()

    def _too_slow(self) -> None:
        """The operation takes long: clients shall not be blocked by it."""
        self._slow = True
        held, self._held = self._held, deque()
        for offer in held:
            self._answer(offer, _BUSY)

    def _learn(self, owner: Ownership | None) -> None:
        """Redis knows a holder that this node did not: refuse with its name; if it is a leftover, the changelog will
        tell.
        """
        if owner is not None and owner.session is not None and self.current_holder is None:
            awaited = self._env.now() + self._env.reconnect_grace
            self._leftover = owner
            self.holder = Holder(owner.session, owner.name, owner.mode, owner.generation, frozenset(), awaited)

    async def _take_over(self, offer: Offer, *, deposes: bool, evicts: tuple[tuple[str, str], ...]) -> None:
        """Make the session of this batch the owner, or go on with it."""
        claimant, header = offer.claimant, offer.header
        leftover, self._leftover = self._leftover, None
        if leftover is not None and leftover.session not in (None, claimant.session) and self.current_holder is None:
            await self._env.around.store.release(leftover)  # it did not come back in time
        mode = claimant.mode or self._env.mode_of(self.name)
        refused = {
            partition: found for (session, partition), found in self._refused.items() if session == claimant.session
        }
        await self._run_takeover(
            Intent(
                session=claimant.session,
                name=claimant.name,
                mode=mode,
                asked=claimant.generation,
                client=offer.client,
                client_epoch=max(0, header.producer_epoch),
                refused=refused,
                deposes=deposes,
                evicts=evicts,
            ),
            connections=frozenset({claimant.connection}),
        )
        self._leave_queue(claimant.session)
        self._ghosts.clear()
        for key in [key for key in self._refused if key[0] == claimant.session]:
            del self._refused[key]

    async def _run_takeover(self, intent: Intent, connections: frozenset[int]) -> None:
        if not await self._env.may_serve(self):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node serves the topic")
        self._drop_epoch(_MOVED)
        before = self.holder
        started = self._env.now()
        tenure = await Takeover(self._env.around, self.name, intent).run()
        self.epoch = SlotEpoch(tenure, self.name, self._env.forwarder, self)
        self.ownership, self.position = tenure.ownership, tenure.position
        value = tenure.ownership
        if value.released_ms or not value.session:
            self.holder = None
            self._drop_epoch(_MOVED)
        else:
            self.holder = Holder(value.session, value.name, mode_of(value.mode), value.generation, connections)
        if intent.deposes and before is not None:
            self._tainted |= before.connections - connections
        self._env.taken_over(self, intent, before, self._env.now() - started)

    async def _grow(self, offer: Offer) -> None:
        """A partition that was not there at the last takeover: fence it too, or say that it does not exist."""
        layout = await self._env.around.upstream.layout(self.name, refresh=True)
        if offer.partition not in layout.leaders:
            self._held.remove(offer)
            self._answer(offer, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        await self._again()

    async def _again(self) -> None:
        """The same owner under the next epoch."""
        holder, ownership = self.holder, self.ownership
        if holder is None or ownership is None:
            return
        await self._run_takeover(
            Intent(session=holder.session, name=holder.name, mode=holder.mode, client=ownership.client),
            holder.connections,
        )

    async def _raise(self, epoch: SlotEpoch, partition: int, client_epoch: int) -> None:
        """The owner's client raised its own epoch on a partition."""
        if await epoch.quiet():
            try:
                self.epoch = await epoch.raise_for(self._env.around, partition, client_epoch)
            except (FencedError, ChangelogError, RetryTimeoutError, UpstreamError):
                await self._again()
                return
            epoch.close(_MOVED)
        else:
            await self._again()

    def _drop_epoch(self, outcome: Outcome) -> None:
        epoch, self.epoch = self.epoch, None
        if epoch is not None:
            epoch.close(outcome)

    # Release and fence --------------------------------------------------------------------------------------------

    def connection_closed(self, connection: int) -> None:
        """A client connection of this node is gone."""
        self._tainted.discard(connection)
        for session, (claimant, _) in list(self.waiting.items()):
            if claimant.connection == connection and session.startswith("conn:"):
                self._leave_queue(session)
        holder = self.holder
        if holder is not None and connection in holder.connections:
            self.holder = replace(holder, connections=holder.connections - {connection})
            if not self.holder.connections:
                self._release_due = True
                grace = self._env.disconnect_grace
                if grace > 0:
                    self.holder = replace(self.holder, awaited_until=self._env.now() + grace)
                    asyncio.get_running_loop().call_later(grace, self._check_release)
                else:
                    self._check_release()

    def _check_release(self) -> None:
        """Give the topic up if its owner has no connection left and nothing is under way."""
        holder = self.holder
        if not self._release_due or self._busy:
            return
        if holder is None or holder.connections or (holder.awaited_until or 0.0) > self._env.now():
            self._release_due = holder is not None and not holder.connections
            return
        self._release_due = False
        self._begin(self.let_go())

    async def let_go(self) -> None:
        """The owner leaves: free for the next, while its session may come back as a newcomer with its sequences."""
        holder, epoch, ownership = self.holder, self.epoch, self.ownership
        if holder is None or ownership is None:
            return
        self.holder = None
        if epoch is not None:
            await epoch.quiet()
            released = state.Ownership()
            released.CopyFrom(ownership)
            released.released_ms = self._env.wall_ms()
            try:
                self.position = await epoch.tenure.journal.append(
                    [Record(ownership_key(self.name, MASTER_SLOT), released)]
                )
                self.ownership = released
                await self._env.changelog.tailer.reached(Offset(self.position), timeout=_SEEN_S)
            finally:
                self._drop_epoch(_MOVED)
        await self._env.released(self, holder)

    async def administer(self, *, fence: bool) -> Holder:
        """An administrator's word: fence the owner for ever, or release it. Raises LookupError where nobody owns the
        topic.
        """
        await self._idle()
        holder = self.current_holder
        if holder is None:
            raise LookupError(self.name)
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def operation() -> None:
            try:
                if fence:
                    intent = Intent(NOBODY, "", AccessMode.EXCLUSIVE_WITH_FENCING, deposes=True)
                    await self._run_takeover(intent, frozenset())
                elif self.epoch is None:
                    await self._again()
                    await self.let_go()
                else:
                    await self.let_go()
            except BaseException as error:
                finished.set_exception(error)
                raise
            finished.set_result(None)

        self._begin(operation())
        await finished
        return holder

    async def hand_back(self) -> None:
        """The node leaves or lost the right to serve: finish what is in flight, serve no more."""
        await self._idle()
        if self.epoch is not None:
            await self.epoch.quiet()
            self._drop_epoch(_MOVED)
        self.serving = False
        self.load()

    # Lanes' owner -------------------------------------------------------------------------------------------------

    def fenced(self, lane: Lane) -> None:
        """Kafka refuses this epoch: see who took it, go on if nobody did."""
        if self.epoch is None or lane.stamp != self.epoch.tenure.stamp:
            return
        self._drop_epoch(_MOVED)
        if not self._busy:
            self._begin(self._reexamine())

    async def _reexamine(self) -> None:
        changelog = self._env.changelog
        await changelog.tailer.read_to_end(10.0)
        entry = changelog.view.ownership(self.name)
        holder = self.holder
        if entry is None or holder is None or entry.value.session != holder.session or entry.value.released_ms:
            connections = holder.connections if holder is not None else frozenset[int]()
            self.load()
            if (
                entry is not None
                and holder is not None
                and any(d.session == holder.session for d in entry.value.deposed)
            ):
                self._tainted |= connections
            return
        await self._again()

    def numbering_lost(self, lane: Lane) -> None:
        """A plain session's batch was given up in doubt: only a new epoch can count on."""
        if self.epoch is None or lane.stamp != self.epoch.tenure.stamp:
            return
        self._drop_epoch(Outcome(ErrorCode.REQUEST_TIMED_OUT))
        if not self._busy:
            self._begin(self._again())
