"""The owners and queues of topics and partitions, as this node knows them: for DescribeOwners and for HTTP.

For a topic that another node serves, only the owner is known, from the changelog, and not the queue. Changes nothing.

Before a node answers, it reads everything that any node acknowledged before the request (`CatchingUp`). A node learns
of others from the ownership topic and from heartbeats, both with a delay. An application that one node has just
answered may ask another node. That node first reads the ownership topic up to its present end at the leader, and waits
until Redis answers a heartbeat.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from metadata.ownership import AccessMode
from sidecar.changelog import ChangelogError
from sidecar.changelog.tailer import Tailer
from sidecar.cluster.nodes import NodeDirectory
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.topic import GovernedTopic
from sidecar.network.tasks import Tasks
from sidecar.policy.policies import Scope
from sidecar.takeover.records import mode_of
from sidecar.takeover.slots import SlotScope, generation_of

READ_S: Final = 5.0
"""The timeout, in seconds, for the leader to answer where the ownership topic ends, and to read up to there."""


class OwnerAnswer(NamedTuple):
    """Who owns a topic, or one partition of it. `session` is `pid:N` or `conn:ID`, `since_ms` Unix time; `client` is
    its address and software, as far as known.
    """

    name: str
    session: str
    mode: AccessMode
    since_ms: int
    client: str
    generation: int


class Waiter(NamedTuple):
    """A waiting session; `partition` None: it waits for the topic. `since_ms`: Unix time."""

    partition: int | None
    name: str
    session: str
    since_ms: int


class Standing(NamedTuple):
    """The state of a topic. `owners`: by partition if each has its own owner (`by_partition`), else the topic's owner
    under None. `generation`: the highest of all; 0: never owned. `serving_node` None: no node serves it.
    """

    is_governed: bool
    by_partition: bool
    generation: int
    owners: Mapping[int | None, OwnerAnswer]
    generations: Mapping[int | None, int]
    waiting: Sequence[Waiter]
    serving_node: int | None


def standing(governed: GovernedTopics, nodes: NodeDirectory, name: str, *, queue: bool = True) -> Standing:
    """The state of an existing topic; without `queue` the waiting sessions are left out, which may be thousands."""
    policy = governed.env.policy_of(name)
    if policy is None:
        generation = generation_of(governed.env.changelog.view, SlotScope(name))
        return Standing(False, False, generation, {}, {}, (), None)
    topic, serving = governed.topic(name), nodes.serving.get(name.encode())
    elsewhere = not topic.serving and serving is not None
    parts = list(topic.parts)
    owners = {part.scope.partition: _owner(part, elsewhere=elsewhere) for part in parts}
    return Standing(
        True,
        policy.scope is Scope.PARTITION,
        topic.generation,
        {index: owner for index, owner in owners.items() if owner is not None},
        {part.scope.partition: part.generation for part in parts},
        [
            Waiter(part.scope.partition, claimant.label, claimant.session, governed.env.at_ms(since))
            for part in (parts if queue else ())
            for claimant, since in part.waiting()
        ],
        serving,
    )


def _owner(part: GovernedTopic, *, elsewhere: bool) -> OwnerAnswer | None:
    holder, ownership = part.state.holder if elsewhere else part.current, part.state.record
    if holder is None:
        return None
    return OwnerAnswer(
        name=holder.label,
        session=holder.session,
        mode=mode_of(ownership.mode) if ownership is not None else holder.mode,
        since_ms=ownership.since_ms if ownership is not None else 0,
        client=ownership.client if ownership is not None else "",
        generation=holder.generation,
    )


class BehindError(Exception):
    """What other nodes have acknowledged cannot be read now. The message names no broker."""


class CatchingUp:
    """Catches up for all callers: a call during a round waits for the next round, which starts after the call.

    `tailer` reads the ownership topic. `beat` sends a heartbeat and waits for its answer; it also returns if Redis
    does not answer, because then the ownership topic shows which node serves a topic.
    """

    def __init__(self, tailer: Tailer, beat: Callable[[], Awaitable[None]], tasks: Tasks) -> None:
        self._tailer = tailer
        self._beat = beat
        self._tasks = tasks
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def now(self) -> None:
        """Returns once this node knows everything that any node acknowledged before the call. Raises `BehindError`."""
        if self._next is None:
            self._next = self._tasks.start(self._round(self._running))
        if not await asyncio.shield(self._next):
            raise BehindError(
                "this node cannot read the ownership topic to its end now; try again, or ask another node"
            )

    async def _round(self, before: asyncio.Task[bool] | None) -> bool:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        read, _ = await asyncio.gather(self._read(), self._beat())
        return read

    async def _read(self) -> bool:
        try:
            await self._tailer.read_to_end(READ_S)
        except (ChangelogError, TimeoutError):
            return False
        return True
