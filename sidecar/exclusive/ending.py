"""How an owner loses its topic: its connections end, an administrator releases or fences it, its node hands it over.

A policy that a client made by asking for a mode ends with the last of them (`end_policy`).
When an owner's last connection closes, the topic is released at once, as in PIP-68, or after the grace, unless the
session connects or writes before.
"""

import asyncio
from functools import partial
from typing import Final

from metadata.ownership import AccessMode
from sidecar.changelog import Key, Kind, Record
from sidecar.exclusive.answers import MOVED
from sidecar.exclusive.policy_use import Use
from sidecar.exclusive.requests import NOBODY, Purpose, Request
from sidecar.exclusive.slots import check_generation, generation_of
from sidecar.exclusive.topic_takeovers import TopicTakeovers
from sidecar.ownership.state import Holder
from sidecar.ownership.step import Freed, Recorded
from sidecar.protocol.ids import Offset
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as state

_SEEN_S: Final = 5.0
_NOBODY_ASKS: Final = "the end of the last session that asked for a mode"
"""The author of such a change, for the history."""


class Ending:
    """The end of an ownership, of a topic or of a partition with its own owner."""

    def __init__(self, topic: TopicTakeovers) -> None:
        self._topic = topic
        self._env = topic.env
        self._timer: asyncio.TimerHandle | None = None
        self._is_split = False
        """Whether the owner and all slots were fenced before the policy ended, so that `ungoverned` has not to."""

    # Without a connection -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Release the topic if that is due and no operation is in progress."""
        operations, left = self._topic.writer.operations, self._topic.state.seconds_left(self._env.now())
        if left is None or operations.busy:
            return
        if left <= 0:
            operations.begin(self._let_go_alone)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self._grace_over)

    async def _let_go_alone(self) -> None:
        """The owner has no connection any more, unless it has opened one meanwhile."""
        holder = self._topic.state.holder
        if holder is not None and not holder.connections:
            await self.let_go()

    def _grace_over(self) -> None:
        self._timer = None
        self.check()

    async def let_go(self) -> None:
        """Release the topic: it is free, and the session may come back as a newcomer with its sequences."""
        # Model: Release.
        topic = self._topic
        holder, epoch, ownership = topic.state.holder, topic.writer.epoch, topic.state.record
        if holder is None or ownership is None:
            return
        topic.apply(Freed())
        if epoch is not None:
            await epoch.quiet()
            released = state.Ownership()
            released.CopyFrom(ownership)
            released.released_ms = self._env.wall_ms()
            try:
                record = Record(Key(Kind.OWNERSHIP, topic.name, topic.scope.slot), released)
                position = await epoch.taken.journal.append([record])
                topic.apply(Recorded(released, position))
                await self._env.changelog.tailer.reached(Offset(position), timeout=_SEEN_S)
            finally:
                topic.writer.drop_epoch(MOVED)
        await self._env.events.released(topic, holder)

    # By request -----------------------------------------------------------------------------------------------------

    async def give_up(self, session: Session) -> bool:
        """Release the topic for its session; False if the session does not own it. Raises what a takeover raises."""
        await self._topic.writer.operations.over()
        holder = self._topic.current
        if holder is None or holder.session != session:
            return False
        await self._topic.writer.operations.perform(self._release)
        return True

    async def administer(self, *, fence: bool, generations: frozenset[int] | None = None) -> Holder:
        """Fence the owner for ever, or release it, for an administrator, if the generation is one of these (None: any).
        Raises LookupError if nobody owns the topic, `GenerationError` if the generation is another.
        """
        await self._topic.writer.operations.over()
        holder = self._topic.current
        if holder is None:
            raise LookupError(self._topic.name)
        work = self._fence if fence else self._release
        await self._topic.writer.operations.perform(partial(work, generations))
        return holder

    async def _expect(self, generations: frozenset[int] | None) -> None:
        """Raise `GenerationError` if the generation is another by now, also by another node's record."""
        topic, view = self._topic, self._env.changelog.view
        if not topic.serving and generations is not None and generation_of(view, topic.scope) not in generations:
            await self._env.changelog.tailer.read_to_end(_SEEN_S)
        check_generation(view, topic.scope, generations)

    async def _fence(self, generations: frozenset[int] | None) -> None:
        await self._expect(generations)
        mode = AccessMode.EXCLUSIVE_WITH_FENCING
        await self._topic.run(Request(Purpose.FENCE, NOBODY, mode=mode, deposes=True, generations=generations))

    async def _release(self, generations: frozenset[int] | None = None) -> None:
        await self._expect(generations)
        if self._topic.writer.epoch is None:
            await self._topic.again()
            check_generation(self._env.changelog.view, self._topic.scope, generations)
        await self.let_go()

    async def ungoverned(self) -> None:
        """Remove the owner of a topic without a policy: other clients may write to it now."""
        operations = self._topic.writer.operations
        await operations.over()
        if not self._is_split:
            await asyncio.wait([operations.begin(partial(self._topic.run, Request(Purpose.SPLIT)))])
        await self.hand_back()

    # With its policy ------------------------------------------------------------------------------------------------

    def use(self) -> Use:
        """What the topic is used for now by sessions that asked for a mode."""
        topic = self._topic
        return Use(
            topic.state.holder,
            bool(topic.sessions()),
            any(found.claimant.mode is not None for found in topic.shared.connected()),
            topic.shared.awaited_until,
        )

    async def end_policy(self) -> None:
        """End the policy that a client made, unless somebody uses it: as an operation, so that claims wait and are made
        anew on a topic without a policy. If no node serves the topic, this one begins to, and the policy stays.
        """
        topic, operations = self._topic, self._topic.writer.operations
        if not (operations.busy or self.use().is_on(self._env.now())):
            adopt = partial(topic.run, Request(Purpose.ADOPT))
            await asyncio.wait([operations.begin(self._end_policy if topic.serving else adopt)])

    async def _end_policy(self) -> None:
        topic, catalog, view = self._topic, self._env.catalog, self._env.changelog.view
        await topic.run(Request(Purpose.SPLIT))  # whoever comes back gets the next generation, behind a fence
        topic.reread()
        taken = topic.taken
        assert taken is not None

        def is_wanted() -> bool:
            """No operator changed the policy since, and no node took the topic: see `PolicyCatalog.hold`."""
            return topic.name in catalog.by_clients and view.epoch(taken.stamp.producer_id) == taken.stamp.epoch

        self._is_split = True
        try:
            await catalog.delete(topic.name, by=_NOBODY_ASKS, is_wanted=is_wanted)
        finally:
            self._is_split = topic.is_dropped

    async def hand_back(self) -> None:
        """The node leaves, or lost the right to serve: finish the batches in flight and stop serving."""
        operations = self._topic.writer.operations
        await operations.over()
        await asyncio.wait([operations.begin(self._hand_back)])

    async def _hand_back(self) -> None:
        topic = self._topic
        if topic.writer.epoch is not None:
            await topic.writer.epoch.quiet()
            topic.writer.drop_epoch(MOVED)
        await topic.shared.quiet()
        topic.shared.close(MOVED)
        await topic.save_ids()
        topic.serving = False
        self._topic.taken = None
        if topic.whole is None:
            self._env.hooks.topic_forgotten(topic.name)
        self._topic.reread()
