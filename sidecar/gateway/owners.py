"""The owners of topics and partitions and their queues, as this node knows them: for DescribeOwners and for HTTP.

Of a topic that another node serves it knows only the owner, from the changelog, and not the queue. Changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metadata.ownership import AccessMode
from sidecar.cluster.nodes import NodeDirectory
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.policies import Scope
from sidecar.exclusive.records import mode_of
from sidecar.exclusive.slots import SlotScope, generation_of
from sidecar.exclusive.topic import GovernedTopic


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
    """A session that waits; `partition` None: for the topic. `since_ms`: Unix time."""

    partition: int | None
    name: str
    session: str
    since_ms: int


class Standing(NamedTuple):
    """A topic. `owners` are those of partitions, where each has its own (`by_partition`), else the topic's under None;
    `generation` is the highest of all, 0: never owned; `serving_node` None: nobody serves it.
    """

    is_governed: bool
    by_partition: bool
    generation: int
    owners: Mapping[int | None, OwnerAnswer]
    generations: Mapping[int | None, int]
    waiting: Sequence[Waiter]
    serving_node: int | None


def standing(governed: GovernedTopics, nodes: NodeDirectory, name: str, *, queue: bool = True) -> Standing:
    """How a topic stands that exists; without `queue` its queue is left out, which may hold thousands."""
    policy = governed.policy_of(name)
    if policy is None:
        generation = generation_of(governed.changelog.view, SlotScope(name))
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
            Waiter(part.scope.partition, claimant.label, session, since)
            for part in (parts if queue else ())
            for session, (claimant, since) in part.queue.in_ms()
        ],
        serving,
    )


def _owner(part: GovernedTopic, *, elsewhere: bool) -> OwnerAnswer | None:
    holder, ownership = part.owner.holder if elsewhere else part.owner.current, part.owner.record
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
