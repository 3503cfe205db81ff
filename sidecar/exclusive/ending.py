"""How an owner loses its topic: its connections end, an administrator releases or fences it, its node hands it over.

When an owner's last connection ends, the topic is released at once, as in PIP-68, or after the grace, unless the
session is heard of before.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar.changelog import Record, ownership_key
from sidecar.exclusive.answers import MOVED
from sidecar.exclusive.ownership import Absent, Connected, Disconnected, Freed, seconds_left
from sidecar.exclusive.requests import Fence, Split
from sidecar.exclusive.tenure import check_generation, generation_of
from sidecar.exclusive.topic_state import TopicState
from sidecar.protocol.ids import Offset
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sidecar.exclusive.operations import Offer
    from sidecar.exclusive.ownership import Holder
    from sidecar.exclusive.requests import Request

_SEEN_S: Final = 5.0


class EndingTopic(TopicState):
    """The end of an ownership, of a topic or of a partition with an owner of its own."""

    @abstractmethod
    async def _run_takeover(self, request: Request, joins: Offer | None = None) -> None:
        """`joins` is a batch of the session on a connection that is to count as the owner's."""

    async def _operate(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do something while no batch is decided on. Raises what it raises."""
        failures: list[Exception] = []

        async def operation() -> None:
            try:
                await work()
            except Exception as error:
                failures.append(error)
                raise

        await asyncio.wait([self.writer.operations.begin(operation)])
        if failures:
            raise failures[0]

    # Without a connection -----------------------------------------------------------------------------------------

    def connection_closed(self, connection: int) -> None:
        """A client connection of this node is gone."""
        self.newcomers.connection_closed(connection, self._env.now())
        self._queue_told()
        self.shared.connection_closed(connection)
        self._step(Disconnected(connection, self._alone_until))
        self._check_release()

    @property
    def _alone_until(self) -> float | None:
        """How long an owner keeps the topic after its last connection ended; None: not at all."""
        grace = self._env.disconnect_grace
        return self._env.now() + grace if grace > 0 else None

    def _check_release(self) -> None:
        """Release the topic if that is due and no operation is in progress."""
        left = seconds_left(self._ownership, self._env.now())
        if left is None or self.writer.operations.busy:
            return
        if left <= 0:
            self.writer.operations.begin(self._let_go_alone)
        elif self._release_timer is None:
            self._release_timer = asyncio.get_running_loop().call_later(left, self._grace_over)

    async def _let_go_alone(self) -> None:
        """The owner has no connection any more, unless it has opened one meanwhile."""
        if self.holder is not None and not self.holder.connections:
            await self.let_go()

    def _grace_over(self) -> None:
        self._release_timer = None
        self._check_release()

    async def let_go(self) -> None:
        """The owner leaves: the topic is free, and the session may come back as a newcomer with its sequences."""
        # Model: Release.
        holder, epoch, ownership = self.holder, self.writer.epoch, self.ownership
        if holder is None or ownership is None:
            return
        self._step(Freed())
        if epoch is not None:
            await epoch.quiet()
            released = state.Ownership()
            released.CopyFrom(ownership)
            released.released_ms = self._env.wall_ms()
            try:
                record = Record(ownership_key(self.name, self.domain.slot), released)
                self._note(released, await epoch.tenure.journal.append([record]))
                await self._env.changelog.tailer.reached(Offset(self.position), timeout=_SEEN_S)
            finally:
                self.writer.drop_epoch(MOVED)
        await self._env.chronicle.released(self, holder)

    def join(self, session: str, connection: int) -> bool:
        """A connection of the owner's that carried no batch; False where the session does not own it here. One that
        comes within the grace of an owner without any ends it.
        """
        holder = self.current_holder
        if holder is None or holder.session != session or (isinstance(holder, Absent) and self.writer.epoch is None):
            return False
        self._step(Connected(connection))
        return True

    # By somebody's word --------------------------------------------------------------------------------------------

    async def give_up(self, session: str) -> bool:
        """A session lets go of what it owns; False where it does not own it. Raises as a takeover does."""
        await self.writer.operations.over()
        holder = self.current_holder
        if holder is None or holder.session != session:
            return False
        await self._operate(self._release)
        return True

    async def administer(
        self, partition: int | None = None, *, fence: bool, generations: frozenset[int] | None = None
    ) -> Holder:
        """An administrator's word: fence the owner for ever, or release it, where the generation is one of these (None:
        any). Raises LookupError where nobody owns the topic, ValueError where it has no owners of partitions,
        `GenerationError`.
        """
        if partition is not None:
            raise ValueError(f"{self.name} has the scope topic: leave partition out")
        await self.writer.operations.over()
        holder = self.current_holder
        if holder is None:
            raise LookupError(self.name)
        await self._operate(partial(self._fence if fence else self._release, generations))
        return holder

    async def _expect(self, generations: frozenset[int] | None) -> None:
        """Raises `GenerationError` where it is another by now, also at another node."""
        view = self._env.changelog.view
        if not self.serving and generations is not None and generation_of(view, self.domain) not in generations:
            await self._env.changelog.tailer.read_to_end(_SEEN_S)
        check_generation(view, self.domain, generations)

    async def _fence(self, generations: frozenset[int] | None) -> None:
        await self._expect(generations)
        await self._run_takeover(Fence(generations=generations))

    async def _release(self, generations: frozenset[int] | None = None) -> None:
        await self._expect(generations)
        if self.writer.epoch is None:
            await self.again()
            check_generation(self._env.changelog.view, self.domain, generations)
        await self.let_go()

    async def ungoverned(self) -> None:
        """The topic has no policy any more: other clients write to it, so its owner loses it."""
        await self.writer.operations.over()
        await asyncio.wait([self.writer.operations.begin(partial(self._run_takeover, Split()))])
        await self.hand_back()

    async def hand_back(self) -> None:
        """The node leaves, or lost the right to serve: finish the batches in flight and stop serving."""
        await self.writer.operations.over()
        await asyncio.wait([self.writer.operations.begin(self._hand_back)])

    async def _hand_back(self) -> None:
        if self.writer.epoch is not None:
            await self.writer.epoch.quiet()
            self.writer.drop_epoch(MOVED)
        await self.shared.quiet()
        self.shared.close(MOVED)
        if self.ids is not None and self._station is None:
            await self.ids.save_all()
            self.ids.end()
        self.serving, self._tenure = False, None
        if self._station is None:
            self._env.hooks.topic_forgotten(self.name)
        self.load()
