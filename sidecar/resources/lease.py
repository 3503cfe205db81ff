"""The right to coordinate claims: one node at a time has it, by a lease in Redis and the fence of a slot in Kafka.

Kafka makes it safe: a coordinator that was replaced without knowing cannot append any more. When it finds out, it
closes the connections whose claims ended with its epoch. The node asks Redis who coordinates, and asks again before
each batch of claims: while Redis does not answer, nothing new is claimed, and owners keep what they own.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from metadata import MetadataUnavailable
from metadata.nodes import ServeStatus
from sidecar.access.sessions import is_plain
from sidecar.changelog import ChangelogError, Kind, serving_key
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.commits import Commits
from sidecar.resources.epoch import CLAIMS, keep_alive, keep_alive_interval, open_epoch
from sidecar.resources.state import ClaimsState
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.changelog import Change as LogChange
    from sidecar.changelog import Entry
    from sidecar.resources.epoch import CoordinatorEpoch

_NAME: Final = CLAIMS.encode()
_SERVING: Final = serving_key(CLAIMS)
_TICK_S: Final = 0.5
_CONFIRM_S: Final = 5.0
_AGAIN_S: Final = 5.0
_DRAIN_S: Final = 5.0
_KEPT_ALIVE_SHARE: Final = 0.8
_NOT_NOW: Final = (FencedError, KafkaError, ChangelogError, UpstreamError, TimeoutError)


class CoordinatorLease(ClaimsState):
    """The right to coordinate: taken, kept, lost and handed on."""

    @abstractmethod
    def _end(self, sessions: Iterable[str]) -> None:
        """These sessions are over."""

    @abstractmethod
    def _end_again(self) -> None:
        """What could not be written down of the end of sessions is tried again."""

    # Taking and losing it ---------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return once this node coordinates; become it where nobody does and this node is the first in line.

        Raises `KafkaError` 6 where another node does or should (`node` says which), 5 where nobody can now.
        """
        while self._epoch is None:
            if self._draining:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node is shutting down")
            if self._opening is None:
                self._opening = self._tasks.start(self._try_to_open())
            refusal = await asyncio.shield(self._opening)
            if refusal is not None:
                raise KafkaError(refusal.code, refusal.message)

    @property
    def is_fresh(self) -> bool:
        """Whether the lease of the right to coordinate still holds: nobody else has it then."""
        return self._lease.held

    async def confirm(self) -> None:
        """Find out whether another node has coordinated since, which the ownership topic tells: a node that was stalled
        may not have noticed, and while Redis is away nothing else tells. Raises `KafkaError` 6 where one has, 5 where
        that cannot be known now.
        """
        if not self.is_fresh:
            try:
                await self._services.changelog.tailer.read_to_end(_CONFIRM_S)
            except _NOT_NOW as error:
                self._events.claims_failed(error)
                message = "it is not known whether this node still coordinates claims; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None
        if not self.coordinates:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node coordinates claims now")

    async def _try_to_open(self) -> KafkaError | None:
        """For all who ask at the same moment: why this node does not coordinate; None where it does."""
        try:
            await self._open()
        except KafkaError as error:
            return error
        finally:
            self._opening = None
        return None

    async def _open(self) -> None:
        me = self._services.node_id
        if self.node != me:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.node} coordinates claims")
        await self._take_lease()
        self._serving = True
        began = self.now()
        try:
            epoch = await open_epoch(self._services)
        except _NOT_NOW as error:
            self._serving = False
            self._events.claims_failed(error)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the claims are being taken over; try again") from None
        if not self._serving or self._draining or self._is_outdated(epoch):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "another node took the claims over; try again")
        self._begin(epoch, began)

    async def _take_lease(self) -> None:
        """Ask for the right to coordinate. Raises `KafkaError` 5, 6."""
        services = self._services
        serving = services.changelog.view.serving(CLAIMS)
        last_node = serving.value.node if serving is not None else None
        sent = self._lease.sending()
        try:
            answer = await services.store.serve(CLAIMS, services.node_id, services.boot, last_node=last_node)
        except MetadataUnavailable:
            message = "nothing can be claimed while Redis does not answer; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None
        if answer.status is ServeStatus.HELD and answer.holder is not None:
            self._nodes.serving[_NAME] = answer.holder.node_id
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {answer.holder.node_id} coordinates claims")
        if answer.status is not ServeStatus.GRANTED:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no node coordinates claims yet; try again")
        self._nodes.serving[_NAME] = services.node_id
        self._lease.granted(sent)

    def _begin(self, epoch: CoordinatorEpoch, began: float) -> None:
        self._epoch, self._fenced_at, self._fence_due = epoch, began, 0.0
        self.table = self._new_table()
        self.table.load(epoch.claims.items())
        self._commits = Commits(epoch.journal, self._tasks, self._confirm, self._broken)
        self._sessions.wait_for(self.table.sessions(), self.now() + self._reconnect_grace)
        self._events.coordinator_changed(True, len(epoch.claims), "")
        self._woken.set()

    async def _confirm(self) -> None:
        """The right to coordinate still holds. Raises `KafkaError`; another node having it ends the epoch."""
        try:
            await self._take_lease()
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._step_down(error.message or "")
            raise

    def _broken(self, error: BaseException) -> None:
        self._events.claims_failed(error)
        self._step_down(str(error))

    def _is_outdated(self, epoch: CoordinatorEpoch) -> bool:
        """Another node has opened an epoch behind this one."""
        serving = self._services.changelog.view.serving(CLAIMS)
        return serving is not None and serving.writer != epoch.stamp

    def _step_down(self, reason: str) -> None:
        """The epoch is over. What connections own by themselves ended with it: they shall not believe otherwise."""
        epoch, commits, table = self._epoch, self._commits, self.table
        self._serving = False
        if epoch is None or commits is None:
            return
        self._epoch, self._commits, self.table = None, None, self._new_table()
        if self._nodes.serving.get(_NAME) == self._services.node_id:
            del self._nodes.serving[_NAME]
        self._sessions.forget()
        self._over.clear()
        self._lease.end()
        self._events.coordinator_changed(False, len(table.owners), reason)
        commits.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node coordinates claims no more; ask again"))
        tokens = dict.fromkeys(claim.token for claim in table.owners.values()) | table.waiting.by_token
        self._tell({token: table.keys_of_token(token) for token in tokens})
        for session in table.sessions():
            if is_plain(session):
                for asker in self._sessions.askers(session):
                    asker.sever()

    # The changelog and the leases ---------------------------------------------------------------------------------

    def _logged(self, change: LogChange) -> None:
        if change.key.kind is Kind.CLAIM:
            before: Entry[state.Claim] | None = change.before
            after: Entry[state.Claim] | None = change.after
            if before is not None and (after is None or after.value.token != before.value.token):
                self._lost.add(before.value.token, [change.key])
        elif change.key == _SERVING and self._epoch is not None and self._is_outdated(self._epoch):
            self._step_down("another node took the claims over")

    def served_topics(self) -> list[str]:
        """What a heartbeat asserts."""
        if self._beat_sent is None:  # of several on their way the first one counts
            self._beat_sent = self._lease.sending()
        return [CLAIMS] if self._serving else []

    def heard(self, lost: set[str]) -> None:
        """A heartbeat's answer: what another live node serves."""
        if CLAIMS in lost:
            self._step_down("another node has the right to coordinate claims")
        elif self._serving and self._beat_sent is not None:
            self._lease.granted(self._beat_sent)
        self._beat_sent = None

    # Time ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: end sessions that did not come back, take over what nobody coordinates any more, keep the
        fence alive.
        """
        while True:
            self._woken.clear()
            if self._epoch is not None:
                await self._pass_time(self.now())
            if self._epoch is not None:
                await self._keep_fence(self._epoch)
            elif self._is_orphaned():
                with suppress(KafkaError):  # told to metrics and logs; tried again with the next tick
                    await self.ready()
            ends = self._sessions.next_end()
            pause = _TICK_S if ends is None else min(_TICK_S, max(0.0, ends - self.now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, pause)):
                    await self._woken.wait()

    async def _pass_time(self, now: float) -> None:
        self._end(self._sessions.overdue(now))
        self._end_again()

    def _is_orphaned(self) -> bool:
        """Somebody coordinated once, nobody does now, and this node is the first in line."""
        if self._draining or self._services.changelog.view.serving(CLAIMS) is None:
            return False
        return self.node == self._services.node_id

    async def _keep_fence(self, epoch: CoordinatorEpoch) -> None:
        now = self.now()
        if now < self._fence_due:
            return
        try:
            interval = await keep_alive_interval(self._services)
            self._fence_due = self._fenced_at + interval * _KEPT_ALIVE_SHARE
            if now < self._fence_due:
                return
            await keep_alive(self._services, epoch)
        except FencedError as error:
            if self._epoch is epoch:
                self._step_down(str(error))
        except _NOT_NOW as error:
            self._fence_due = now + _AGAIN_S
            self._events.claims_failed(error)
        else:
            self._fenced_at = now
            self._fence_due = now + interval * _KEPT_ALIVE_SHARE

    async def drain(self) -> None:
        """Take nothing new, finish what is under way, let another node coordinate."""
        self._draining = True
        if self._commits is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await self._commits.settled()
        was_serving = self._serving
        self._step_down("the node shuts down")
        self._unsubscribe()
        self._unsubscribe = _nothing
        if was_serving:
            with suppress(MetadataUnavailable):  # then the lease runs out
                await self._services.store.hand_over(CLAIMS, self._services.node_id, self._services.boot)


def _nothing() -> None:
    """It was done already."""
