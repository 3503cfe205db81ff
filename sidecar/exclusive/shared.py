"""Sessions that write to a topic beside each other, each through its own slot (mode shared).

A slot per session, because the broker checks sequences per producer id (KIP-98), and because an exclusive owner has to
shut out each of them. Slots are a pool: a disconnected session keeps its slot, and continues in
it after a reconnect, until another session needs the slot; then its positions are stored in the slot's record. So the
number of slots depends on the sessions at the same time, not on all short-lived sessions.

A session's slot is opened under this node's master slot: `begin` is called when the node has taken that slot, `close`
when it has lost it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from metadata.ownership import AccessMode
from sidecar.changelog import FAILURES, SlotName, shared_slot
from sidecar.exclusive.answers import MOVED, failure_of
from sidecar.exclusive.bindings import FOREIGN, may_be
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.offers import Offer
from sidecar.exclusive.policy_ids import PolicyIds, begin_ids
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.resource import Resource
from sidecar.fencing.slot import WriterSlot
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import RefusedSequences
from sidecar.ownership.state import Claimant, Owned, State, Work
from sidecar.ownership.step import ConnectionClosed, ConnectionOpened, Facts, Loss, Verdict
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Session
from sidecar.takeover.requests import Memory, Purpose, Request
from sidecar.takeover.slots import OutdatedMasterError, SlotScope, TakenSlot
from sidecar.takeover.takeover import Takeover
from sidecar.writing.upkeep import Renewal, Upkeep, keep_slot_alive, renew_fence

POOL: Final = 64
"""Up to this number of slots, no slot is taken from a disconnected session."""

SESSIONS_LIMIT: Final = 1_000
"""Sessions at the same time: every takeover fences all their slots."""

_PLACES_LIMIT: Final = 100_000
"""Sessions times partitions: every takeover stores each session's position in each partition."""


class SharedSession(Resource):
    """One session and its slot, which it holds as long as it is known here."""

    def __init__(self, sessions: SharedSessions, claimant: Claimant, slot: SlotName, client: str) -> None:
        holder = Owned(claimant.session, claimant.name, AccessMode.SHARED, 0)
        state = State(holder, is_beside=True)
        super().__init__(SlotScope(sessions.topic, slot), sessions.env, sessions.upkeep, sessions.refusals, state)
        self.claimant = claimant
        self.session = claimant.session
        self.client = client
        self.replaces: SharedSession | None = None
        """The session that had the slot before; this one's first takeover stores its positions."""
        self.is_leaving = False
        """Another session is about to get the slot, or the topic is not shared any more: it opens no epoch."""
        self._sessions = sessions
        self._memory: Memory | None = None

    @property
    def connections(self) -> frozenset[int]:
        """Its connections to this node."""
        holder = self.state.holder
        return holder.connections if holder is not None else frozenset()

    def _facts(self, offer: Offer) -> Facts:
        writes, refused = self.writer.epoch is not None, self.refusals.has(self.session, self.scope)
        return Facts(writes=writes, needs_record=refused, is_dropped=self.is_leaving)

    def _failed(self, error: Exception) -> Outcome | None:
        self._env.hooks.operation_failed(self.name, error)
        if self.replaces is not None:
            self._sessions.forget(self)  # the former holder keeps its slot
        return failure_of(error)

    async def _perform_own(self, work: Work, offer: Offer | None, verdict: Verdict | None) -> None:
        assert work is Work.OPEN, f"a shared session has no {work}"
        assert offer is not None, "a batch wants to be written"
        client_epoch, refused = max(0, offer.header.producer_epoch), self.refusals.of(self.session, self.scope)
        await self._open(offer.client, self._memory, client_epoch, refused)
        self.refusals.forgive(self.session, self.scope)

    async def _resume(self) -> None:
        self.drop_epoch(MOVED)
        await self._open(self.client, self._memory)

    async def _open(
        self,
        client: str,
        memory: Memory | None,
        client_epoch: int = 0,
        refused: Mapping[int, RefusedSequences] | None = None,
    ) -> None:
        # Model: OpenSide.
        sessions, claimant = self._sessions, self.claimant
        self.drop_epoch(MOVED)
        if self.replaces is not None:
            self.replaces.drop_epoch(MOVED)
        master = sessions.master
        if master is None or self.is_leaving:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic is about to be served by another node")
        ids = sessions.policy_ids.now
        request = Request(
            Purpose.WRITE_BESIDE,
            self.session,
            claimant.name,
            AccessMode.SHARED,
            client=client,
            caller=claimant.caller,
            client_epoch=client_epoch,
            refused=refused or {},
            memory=memory,
        )
        trusted_ms = sessions.upkeep.trusted_ms
        takeover = Takeover(self._env.services, self.scope, request, master.stamp, trusted_ms, ids)
        try:
            taken = await takeover.run()
        except OutdatedMasterError:
            await sessions.share_anew(lambda its: its is master)
            raise
        if sessions.master is not master:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic changed its owner meanwhile")
        sessions.opened(self, taken)
        if ids is not None:
            if grown := set(taken.partitions).difference(master.partitions):
                # The holder of the master slot reads the ids of all partitions.
                await sessions.share_anew(lambda its: not grown.issubset(its.partitions))
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.name} has new partitions; try again")
            begin_ids(ids, taken, self._env.changelog.view)
        self.writer.begin(taken, ids, self)

    def drop_epoch(self, outcome: Outcome) -> None:
        """Stop writing, and remember the session's positions."""
        epoch = self.writer.epoch
        if epoch is not None and not self.session.is_plain:
            self._memory = epoch.memory()
        self.writer.drop_epoch(outcome)

    async def _grow(self, partition: int) -> None:
        await self._sessions.share_anew(lambda its: partition not in its.partitions)

    def _raised(self) -> None:
        epoch = self.writer.epoch
        if self._sessions.master is None or epoch is None:
            self.drop_epoch(MOVED)  # the master slot was lost meanwhile
        else:
            self._env.events.shared_opened(self.name, epoch.taken, self.client)

    def _stop_writing(self, loss: Loss) -> None:
        self.drop_epoch(Outcome(ErrorCode.REQUEST_TIMED_OUT) if loss is Loss.DOUBT else MOVED)

    def _idle(self) -> None:
        if not self.connections:
            self._sessions.left_alone(self)

    async def keep_alive(self) -> None:
        """Renew the fence of its slot, and store its positions."""
        epoch = self.writer.epoch
        if epoch is None or self.busy:
            return
        renewal, _ = await renew_fence(self._env.services, epoch.taken, epoch)
        if renewal is not Renewal.KEPT and self.writer.epoch is epoch:
            self.drop_epoch(MOVED)


@dataclass(eq=False)
class SharedSessions:
    """The shared sessions of one topic on the node that serves it. `share_anew` fences the topic as a whole, if that is
    still due for the master slot that this node has at that time.
    """

    topic: str
    env: Environment
    upkeep: Upkeep
    refusals: Refusals
    policy_ids: PolicyIds
    share_anew: Callable[[Callable[[TakenSlot], bool]], Awaitable[None]]
    master: TakenSlot | None = None
    awaited_until: float = 0.0
    """Sessions of the node that served the topic before may come back until then (monotonic seconds)."""
    _sessions: dict[str, SharedSession] = field(default_factory=dict[str, SharedSession])
    _gone: dict[str, SharedSession] = field(default_factory=dict[str, SharedSession])
    _slots: dict[SlotName, WriterSlot] = field(default_factory=dict[SlotName, WriterSlot])

    # The sessions ---------------------------------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """The limit of sessions at the same time: lower if the topic has hundreds of partitions."""
        partitions = len(self.master.partitions) if self.master is not None else 1
        return min(SESSIONS_LIMIT, max(POOL, _PLACES_LIMIT // partitions))

    def connected(self) -> list[SharedSession]:
        """The sessions that have a connection to this node."""
        return [found for found in self._sessions.values() if found.connections]

    def is_live(self, session: str) -> bool:
        """Whether a session has a connection to this node."""
        found = self._sessions.get(session)
        return found is not None and bool(found.connections)

    def of(self, claimant: Claimant) -> SharedSession | None:
        """The session of a batch; None unless it is known on the batch's connection."""
        found = self._sessions.get(claimant.session)
        return found if found is not None and claimant.connection in found.connections else None

    def known(self) -> bool:
        """Whether any session ever wrote to the topic beside others."""
        return any(SlotScope(self.topic, slot).is_shared for slot in self.env.changelog.view.opened(self.topic))

    def expect(self) -> bool:
        """Whether sessions of the previous node may come back; sets until when."""
        view = self.env.changelog.view
        owned = view.ownership(self.topic)
        since = owned.offset if owned is not None else -1
        found = any(
            SlotScope(self.topic, slot).is_shared
            and entry.offset > since
            and Session(entry.value.session).is_idempotent
            for slot, entry in view.opened(self.topic).items()
        )
        self.awaited_until = self.env.now() + self.env.reconnect_grace if found else 0.0
        return found

    # Batches --------------------------------------------------------------------------------------------------------

    def offer(self, offer: Offer) -> None:
        """Pass on a batch of a session that may write beside others."""
        claimant = offer.claimant
        found = self._sessions.get(claimant.session)
        if found is None:
            found = self._introduce(claimant, offer.client)
            if found is None:
                message = f"{self.topic} has {self.limit} shared producers already: try again when one has left"
                self.refusals.add(claimant, offer.partition, offer.header)
                self._refuse(offer, Outcome(ErrorCode.POLICY_VIOLATION, message=message))
                return
        elif not claimant.session.is_plain and not may_be(found.claimant.caller, claimant.caller):
            self._refuse(offer, FOREIGN)  # its record is being written
            return
        if offer.alive():
            found.tell(ConnectionOpened(claimant.connection))
            self._gone.pop(claimant.session, None)
        found.offer(offer)

    def _refuse(self, offer: Offer, outcome: Outcome) -> None:
        self.env.hooks.fenced(self.topic, "not_owner")
        self.env.forwarder.released(len(offer.batch))
        offer.reply.answer(outcome)

    def _introduce(self, claimant: Claimant, client: str) -> SharedSession | None:
        """Add a session, with the slot that it had, a free one, or a disconnected session's; None if there is none."""
        in_use = {found.scope.slot for found in self._sessions.values()}
        opened = self.env.changelog.view.opened(self.topic)
        known = {slot for slot in {*opened, *in_use} if SlotScope(self.topic, slot).is_shared}
        free = sorted(known - in_use, key=int)
        replaces: SharedSession | None = None
        own = next((slot for slot in free if opened[slot].value.session == claimant.session), None)
        if own is not None:
            slot = own
        elif free:
            slot = free[0]
        elif len(known) >= POOL and (replaces := self._gone_longest()) is not None:
            slot = replaces.scope.slot
            del self._gone[replaces.session]
            replaces.is_leaving = True
        elif len(known) < self.limit:
            slot = shared_slot(max(map(int, known), default=0) + 1)
        else:
            return None
        assert replaces is not None or slot not in in_use, "a slot is one session's"
        found = self._sessions[claimant.session] = SharedSession(self, claimant, slot, client)
        found.replaces = replaces
        return found

    def _gone_longest(self) -> SharedSession | None:
        """The session that was disconnected first, of those with no work under way on their slots."""
        return next((session for session in self._gone.values() if not session.busy), None)

    def opened(self, session: SharedSession, taken: TakenSlot) -> None:
        """Note that a session has its slot, and remove the session whose slot it took."""
        self._slots[session.scope.slot] = taken.slot
        replaced, session.replaces = session.replaces, None
        if replaced is not None and self._sessions.get(replaced.session) is replaced:
            del self._sessions[replaced.session]
        self.env.events.shared_opened(self.topic, taken, session.client)

    def forget(self, session: SharedSession) -> None:
        """Remove a session; the session that it would have replaced keeps the slot."""
        if self._sessions.get(session.session) is session:
            del self._sessions[session.session]
        self._gone.pop(session.session, None)
        before, session.replaces = session.replaces, None
        if before is not None and self._sessions.get(before.session) is before:
            before.is_leaving = False
            if not before.connections:
                self._gone[before.session] = before

    def connection_closed(self, connection: int) -> None:
        """Handle the end of a connection: a plain session ends, an idempotent one may come back."""
        for found in [found for found in self._sessions.values() if connection in found.connections]:
            found.tell(ConnectionClosed(connection))
            if not found.connections and not found.busy:
                self.left_alone(found)

    def left_alone(self, session: SharedSession) -> None:
        """Handle the end of a session's last connection."""
        if session.session.is_plain:
            session.drop_epoch(MOVED)
            self.forget(session)
        elif not session.is_leaving and self._sessions.get(session.session) is session:
            self._gone[session.session] = session

    # With the master slot -------------------------------------------------------------------------------------------

    def begin(self, master: TakenSlot, *, shares: bool) -> None:
        """Note that the master slot was taken, and with it all others. `shares`: sessions may write."""
        self.close(MOVED)
        assert master.scope.is_master, "the master slot covers all others"
        self._slots = dict(master.others)
        self.master = master if shares else None

    def close(self, outcome: Outcome) -> None:
        """Stop all sessions until the master slot is taken again; they keep their slots and positions."""
        self.master = None
        for found in self._sessions.values():
            found.drop_epoch(outcome)

    async def quiet(self) -> None:
        """Wait a few seconds at most until no batch is under way."""
        await asyncio.gather(
            *[found.writer.epoch.quiet() for found in self._sessions.values() if found.writer.epoch is not None]
        )

    def dismiss(self) -> None:
        """Remove all sessions: the topic is not shared any more."""
        self.close(MOVED)
        for session in self._sessions.values():
            session.is_leaving = True  # a work may be under way, and batches wait for it
        self._sessions, self._gone = {}, {}

    def is_current(self) -> bool:
        """Whether sessions may write: this node has the master slot by the changelog as read so far."""
        master = self.master
        if master is None:
            return False
        return self.env.changelog.view.epoch(master.stamp.producer_id) == master.stamp.epoch

    async def keep_alive(self, taken: TakenSlot) -> None:
        """Renew the fences of all slots of shared sessions."""
        at_work = {found.scope.slot: found for found in self._sessions.values() if found.writer.epoch is not None}
        for name, slot in list(self._slots.items()):
            try:
                if name in at_work:
                    await at_work[name].keep_alive()
                else:
                    scope = SlotScope(self.topic, name)
                    await keep_slot_alive(self.env.services, scope, slot, scope.of(taken.partitions))
            except FencedError:
                continue  # it was opened meanwhile, here or by a node that takes the topic over
            except FAILURES as error:
                self.env.hooks.operation_failed(self.topic, error)
