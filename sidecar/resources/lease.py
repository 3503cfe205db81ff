"""The right to coordinate claims: one node at a time has it, by a lease in Redis and the fence of a slot in Kafka.

Kafka makes it safe: a replaced coordinator that has not noticed it cannot append any more. When it notices, it
closes the connections whose claims ended with its epoch. The node asks Redis for the coordinator, and asks again before
each batch of claims: while Redis does not answer, nothing new is claimed, and owners keep what they own.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final

from metadata import MetadataUnavailable
from metadata.lease import Lease, Sent
from metadata.nodes import ServeStatus
from sidecar.changelog import FAILURES, MASTER_SLOT, Entry, Key, Kind
from sidecar.changelog import Change as LogChange
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Session
from sidecar.resources.claim_table import ClaimTable
from sidecar.resources.commits import Commits
from sidecar.resources.epoch import CLAIMS, CoordinatorEpoch, keep_alive, keep_alive_interval, open_epoch
from sidecar.resources.state import ClaimsState
from sidecar.v1 import state_pb2 as state

_NAME: Final = CLAIMS.encode()
_SERVING: Final = Key(Kind.SERVING, CLAIMS, MASTER_SLOT)
_TICK_S: Final = 0.5
_CONFIRM_S: Final = 5.0
_AGAIN_S: Final = 5.0
_DRAIN_S: Final = 5.0
_KEPT_ALIVE_SHARE: Final = 0.8
_TOLD_AT_ONCE: Final = 500
_CLOSED_AT_ONCE: Final = 100


class CoordinatorLease:
    """Takes, renews, gives up and hands over the right to coordinate; `state` records whether this node has it."""

    def __init__(self, state: ClaimsState, pass_time: Callable[[], None]) -> None:
        """`pass_time` ends the sessions that are overdue; it is called while this node coordinates."""
        services = state.services
        self._state = state
        self._pass_time = pass_time
        self._opening: asyncio.Task[KafkaError | None] | None = None
        self._telling: asyncio.Task[None] | None = None
        """Reports the end of the last epoch."""
        self._fenced_at = self._fence_due = 0.0
        self._lease = Lease(services.store.lease_ms, clock=services.changelog.clock.elapsed)
        self._beat_sent: Sent | None = None
        self._woken = asyncio.Event()
        self._unsubscribe = services.changelog.tailer.subscribe(self._logged, Kind.CLAIM, _SERVING)

    # Taking and losing it ---------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return once this node coordinates; take the right if no node has it and this node is the first in line.

        Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if another node coordinates or should (`node`), 5
        LEADER_NOT_AVAILABLE if no node can now.
        """
        while self._state.epoch is None:
            if self._state.draining:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node is shutting down")
            if self._opening is None:
                self._opening = self._state.tasks.start(self._try_to_open())
            refusal = await asyncio.shield(self._opening)
            if refusal is not None:
                raise KafkaError(refusal.code, refusal.message)

    @property
    def is_fresh(self) -> bool:
        """Whether this node's lease of the right to coordinate is valid: then no other node has the right."""
        return self._lease.held

    async def confirm(self) -> None:
        """Check that this node still coordinates. If its lease has ended, read the ownership topic to its end: a node
        that was stalled may not have noticed a newer coordinator, and without Redis only the log shows it. Raises
        `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if there is one, 5 LEADER_NOT_AVAILABLE if the log cannot be read.
        """
        if not self.is_fresh:
            try:
                await self._state.services.changelog.tailer.read_to_end(_CONFIRM_S)
            except FAILURES as error:
                self._state.events.claims_failed(error)
                message = "it is not known whether this node still coordinates claims; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None
        if not self._state.coordinates:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node coordinates claims now")

    async def _try_to_open(self) -> KafkaError | None:
        """Try to become coordinator, once for all concurrent callers; return the reason if that fails, else None."""
        try:
            await self._open()
        except KafkaError as error:
            return error
        finally:
            self._opening = None
        return None

    async def _open(self) -> None:
        me = self._state.services.node_id
        if self._state.node != me:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self._state.node} coordinates claims")
        await self._take_lease()
        self._state.serving = True
        began = self._state.now()
        try:
            epoch = await open_epoch(self._state.services)
        except FAILURES as error:
            self._state.serving = False
            self._state.events.claims_failed(error)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the claims are being taken over; try again") from None
        table = self._state.new_table()
        await in_slices(table.load(epoch.claims.items()))
        if not self._state.serving or self._state.draining or self._is_outdated(epoch):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "another node took the claims over; try again")
        self._begin(epoch, table, began)

    async def _take_lease(self) -> None:
        """Request the right to coordinate from Redis. Raises `KafkaError` 5 LEADER_NOT_AVAILABLE, 6
        NOT_LEADER_OR_FOLLOWER.
        """
        services = self._state.services
        serving = services.changelog.view.serving(CLAIMS)
        last_node = serving.value.node if serving is not None else None
        sent = self._lease.sending()
        try:
            answer = await services.store.serve(CLAIMS, services.node_id, services.boot, last_node=last_node)
        except MetadataUnavailable:
            message = "nothing can be claimed while Redis does not answer; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None
        if answer.status is ServeStatus.HELD and answer.holder is not None:
            self._state.nodes.serving[_NAME] = answer.holder.node_id
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {answer.holder.node_id} coordinates claims")
        if answer.status is not ServeStatus.GRANTED:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no node coordinates claims yet; try again")
        self._state.nodes.serving[_NAME] = services.node_id
        self._lease.granted(sent)

    def _begin(self, epoch: CoordinatorEpoch, table: ClaimTable, began: float) -> None:
        self._state.epoch, self._fenced_at, self._fence_due = epoch, began, 0.0
        self._state.table = table
        self._state.commits = Commits(epoch.journal, self._state.tasks, self._confirm, self._broken)
        self._state.sessions.wait_for(self._state.table.sessions(), self._state.now() + self._state.reconnect_grace)
        self._state.events.coordinator_changed(True, len(epoch.claims), "")
        self._woken.set()

    async def _confirm(self) -> None:
        """Renew the right to coordinate. Raises `KafkaError`; if another node has the right, ends the epoch."""
        try:
            await self._take_lease()
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._step_down(error.message or "")
            raise

    def _broken(self, error: BaseException) -> None:
        self._state.events.claims_failed(error)
        self._step_down(str(error))

    def _is_outdated(self, epoch: CoordinatorEpoch) -> bool:
        """Return whether another node has opened a later epoch."""
        serving = self._state.services.changelog.view.serving(CLAIMS)
        return serving is not None and serving.writer != epoch.stamp

    def _step_down(self, reason: str) -> None:
        """End the epoch, and close the connections whose own claims (`conn:` sessions) ended with it."""
        epoch, commits, table = self._state.epoch, self._state.commits, self._state.table
        self._state.serving = False
        if epoch is None or commits is None:
            return
        self._state.epoch, self._state.commits, self._state.table = None, None, self._state.new_table()
        if self._state.nodes.serving.get(_NAME) == self._state.services.node_id:
            del self._state.nodes.serving[_NAME]
        self._state.sessions.forget()
        self._state.over.clear()
        self._lease.end()
        self._state.events.coordinator_changed(False, len(table.owners), reason)
        commits.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node coordinates claims no more; ask again"))
        self._telling = self._state.tasks.start(in_slices(self._tell(table)))

    def _tell(self, table: ClaimTable) -> Generator[None, None, None]:
        """Notify the listeners of every token of an epoch that has ended, and close the connections whose own claims
        ended with it. In slices: other work of the node must not wait for a hundred thousand claims.
        """
        told = 0
        for token in table.tokens():
            keys = table.keys_of_token(token)
            self._state.notify({token: keys})
            told += 1 + len(keys)
            if told >= _TOLD_AT_ONCE:
                told = 0
                yield
        for number, session in enumerate(filter(lambda one: Session(one).is_plain, table.sessions()), 1):
            for asker in self._state.sessions.askers(session):
                asker.sever()
            if not number % _CLOSED_AT_ONCE:
                yield

    # The changelog and the leases ---------------------------------------------------------------------------------

    def _logged(self, change: LogChange) -> None:
        if change.key.kind is Kind.CLAIM:
            before: Entry[state.Claim] | None = change.before
            after: Entry[state.Claim] | None = change.after
            if before is not None and (after is None or after.value.token != before.value.token):
                self._state.lost.add(before.value.token, [change.key])
        elif self._state.epoch is not None and self._is_outdated(self._state.epoch):
            self._step_down("another node took the claims over")

    def served_topics(self) -> list[str]:
        """Return the topics that a heartbeat asserts: `__claims` if this node coordinates."""
        if self._beat_sent is None:  # if several are under way, the lease counts from the first
            self._beat_sent = self._lease.sending()
        return [CLAIMS] if self._state.serving else []

    def heard(self, lost: set[str]) -> None:
        """Handle a heartbeat's answer. `lost`: the asserted topics that another live node serves."""
        if CLAIMS in lost:
            self._step_down("another node has the right to coordinate claims")
        elif self._state.serving and self._beat_sent is not None:
            self._lease.granted(self._beat_sent)
        self._beat_sent = None

    # Time ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: end sessions whose grace is over, take over claims that no node coordinates any more, renew
        the fence.
        """
        while True:
            self._woken.clear()
            if self._state.epoch is not None:
                self._pass_time()
            if self._state.epoch is not None:
                await self._keep_fence(self._state.epoch)
            elif self._is_orphaned():
                with suppress(KafkaError):  # reported to metrics and logs; tried again with the next tick
                    await self.ready()
            ends = self._state.sessions.next_end()
            pause = _TICK_S if ends is None else min(_TICK_S, max(0.0, ends - self._state.now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, pause)):
                    await self._woken.wait()

    def _is_orphaned(self) -> bool:
        """Return whether a node coordinated once, none does now, and this node is the first in line."""
        if self._state.draining or self._state.services.changelog.view.serving(CLAIMS) is None:
            return False
        return self._state.node == self._state.services.node_id

    async def _keep_fence(self, epoch: CoordinatorEpoch) -> None:
        now = self._state.now()
        if now < self._fence_due:
            return
        try:
            interval = await keep_alive_interval(self._state.services)
            self._fence_due = self._fenced_at + interval * _KEPT_ALIVE_SHARE
            if now < self._fence_due:
                return
            await keep_alive(self._state.services, epoch)
        except FencedError as error:
            if self._state.epoch is epoch:
                self._step_down(str(error))
        except FAILURES as error:
            self._fence_due = now + _AGAIN_S
            self._state.events.claims_failed(error)
        else:
            self._fenced_at = now
            self._fence_due = now + interval * _KEPT_ALIVE_SHARE

    def wake(self) -> None:
        """Let `run` check now what is due, before the next tick."""
        self._woken.set()

    async def drain(self) -> None:
        """Accept no new work, finish the work under way, hand the right over to another node."""
        self._state.draining = True
        if self._state.commits is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await self._state.commits.settled()
        was_serving = self._state.serving
        self._step_down("the node shuts down")
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=_DRAIN_S)
        self._unsubscribe()
        self._unsubscribe = _nothing
        if was_serving:
            with suppress(MetadataUnavailable):  # then the lease ends by itself
                await self._state.services.store.hand_over(
                    CLAIMS, self._state.services.node_id, self._state.services.boot
                )


def _nothing() -> None:
    """Do nothing: the subscription has ended already."""
