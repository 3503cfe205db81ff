"""The sequence ids of a topic for LastSequence and HTTP: all of them once they are known, or the reason why this node
cannot return them now.

Finds the topic and waits for its ids; the room `dedup` computes them. Error messages are sent to clients too, so none
names a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from enum import Enum, StrEnum
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from metadata import MetadataUnavailable
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup.marks import SLICE_NAMES, Mark
from sidecar.dedup.partition import PartitionIds
from sidecar.dedup.topic import Progress, TopicIds
from sidecar.exclusive.answers import FAILURES, NO_REDIS
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.partitions import Topic
from sidecar.gateway.owners import BehindError, CatchingUp
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError, no_topic

NO_ID: Final = -1
_PORTION: Final = 2_000
_PARTITIONS_AT_ONCE: Final = 1_000
_TAKEOVER_S: Final = 5.0
"""The time, in seconds, for a takeover before the reading of ids begins."""
_NO_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
_EXPLAINED: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
)


class Why(Enum):
    """Why there are no ids to return."""

    NO_TOPIC = "the topic does not exist"
    NO_IDS = "the topic has no deduplication"
    ELSEWHERE = "another node serves the topic"
    NOT_NOW = "worth another try"


class IdsError(Exception):
    """The ids cannot be returned; the message is for display. `node`: the node that serves the topic, if known."""

    def __init__(self, why: Why, message: str, node: NodeAddress | None = None) -> None:
        super().__init__(message)
        self.why = why
        self.node = node

    def message_for(self, nodes: Mapping[int, NodeAddress]) -> str:
        """The message for a client that sees these nodes: with the client's address of the node to ask."""
        there = None if self.node is None else nodes.get(self.node.id)
        return str(self) if there is None else f"{self}, at {there.host}:{there.port}"

    @classmethod
    def no_topic(cls, name: str) -> IdsError:
        """The error for a topic that does not exist, or that the client may not see."""
        return cls(Why.NO_TOPIC, no_topic(name))


class State(StrEnum):
    """The state of a topic's ids at a node."""

    OFF = "off"
    IDLE = "idle"
    """The ids are read at the next write or request."""
    READING = "reading"
    READY = "ready"
    LOST = "lost"
    ELSEWHERE = "elsewhere"


def state_of(topic: Topic, *, elsewhere: bool) -> tuple[State, str | None]:
    """The state, and a text about it. `elsewhere`: another live node serves the topic."""
    ids = topic.ids
    if ids is None:
        return State.OFF, None
    if ids.problem is not None:
        return State.LOST, ids.problem
    if ids.is_ready:
        crowded = None if ids.crowded is None else _crowded_text(ids.crowded)
        return State.READY, "; ".join(filter(None, (ids.unprotected, crowded))) or None
    if ids.is_begun:
        return State.READING, progress_text(ids.progress)
    return (State.ELSEWHERE if elsewhere else State.IDLE), None


def _crowded_text(state: PartitionIds) -> str:
    return (
        f"partition {state.partition} remembers {len(state.marks):,} of at most {state.marks.limit:,} producer names;"
        " above that the longest unused ones are forgotten, and their ids count as new"
    )


def progress_text(progress: Progress) -> str:
    """The progress of reading a log, as text."""
    return f"{progress.done:,} of {progress.total:,} offsets read, {progress.records:,} records in them"


class KnownIds(NamedTuple):
    """The ids of a topic, and its partitions, some of which may be newer than the ids."""

    ids: TopicIds
    partitions: frozenset[int]

    async def marks(self, name: bytes) -> dict[int, Mark]:
        """The marks of a name, by partition; only partitions that have one, and never ids that are only in flight.
        Other work of the node runs between portions of 1,000 partitions.
        """
        return await in_slices(self._marks(name))

    def _marks(self, name: bytes) -> Generator[None, None, dict[int, Mark]]:
        found: dict[int, Mark] = {}
        for number, index in enumerate(sorted(self.partitions), 1):
            state = self.ids.partitions.get(index)
            if state is not None and (mark := state.marks.mark(name)) is not None:
                found[index] = mark
            if not number % _PARTITIONS_AT_ONCE:
                yield
        return found

    def resume(self, found: Mapping[int, Mark]) -> int:
        """The lowest id of a name's marks, `NO_ID` if any partition has none: a client that resends everything after it
        loses nothing.
        """
        if len(found) < len(self.partitions):
            return NO_ID
        return min((mark.id for mark in found.values()), default=NO_ID)

    async def newest(
        self, most: int, behind: tuple[int, bytes] | None = None
    ) -> tuple[list[bytes], tuple[int, bytes] | None]:
        """The `most` names that wrote last, the newest first, of those after a place (Unix seconds, name); and the
        place after which the next call continues, None at the end. Other work of the node runs between partitions and
        between portions of names.
        """
        seen: dict[bytes, int] = {}
        for index in sorted(self.partitions):
            state = self.ids.partitions.get(index)
            for number, mark in enumerate(state.marks.copy() if state is not None else (), 1):
                if mark.seen > seen.get(mark.name, -1):
                    seen[mark.name] = mark.seen
                if not number % SLICE_NAMES:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        after = None if behind is None else (-behind[0], behind[1])
        keys = ((-last, name) for name, last in seen.items())
        wanted = (key for key in keys if after is None or key > after)
        found: list[tuple[int, bytes]] = []
        while portion := list(islice(wanted, _PORTION)):
            found = nsmallest(most + 1, [*found, *portion])
            await asyncio.sleep(0)
        page = found[:most]
        return [name for _, name in page], (-page[-1][0], page[-1][1]) if len(found) > most else None


class SequenceIds:
    """Finds the ids of topics that this node serves, or that no node serves yet."""

    def __init__(
        self, upstream: KafkaUpstream, nodes: NodeDirectory, governed: GovernedTopics, catching_up: CatchingUp
    ) -> None:
        self._upstream = upstream
        self._nodes = nodes
        self._governed = governed
        self._catching_up = catching_up

    async def of(self, topic: str, timeout: float) -> KnownIds:
        """Returns the ids once they are known; takes over a topic that no node serves. Raises `IdsError`."""
        partitions = await self._partitions(topic)
        try:
            await self._catching_up.now()
        except BehindError as error:
            raise IdsError(Why.NOT_NOW, str(error)) from None
        if not self._governed.env.deduplicates(topic):
            raise _no_ids(topic)
        if self._governed.env.is_served_elsewhere(topic):
            raise self._elsewhere(topic)
        found = self._governed.topic(topic)
        asked = self._governed.env.tasks.start(self._ask(found, timeout))
        await asyncio.wait({asked}, timeout=timeout + _TAKEOVER_S)  # not cancelled: a takeover must not end half-way
        if not asked.done():
            raise IdsError(Why.NOT_NOW, f"{topic} is being taken over; try again")
        answer = asked.result()
        if isinstance(answer, Exception):
            raise self._refusal(found, answer)
        return KnownIds(answer, partitions)

    async def _partitions(self, topic: str) -> frozenset[int]:
        """The present partitions; one that was just added has no id yet."""
        missing = IdsError.no_topic(topic)
        if not is_legal(topic.encode()):
            raise missing
        try:
            return frozenset((await self._upstream.whole_layout(topic)).leaders)
        except KafkaError as error:
            if error.code in _NO_TOPIC:
                raise missing from None
            raise IdsError(Why.NOT_NOW, f"Kafka does not describe {topic} now; try again") from None
        except UpstreamError:  # its text would name a broker
            raise IdsError(Why.NOT_NOW, "Kafka cannot be asked now; try again") from None

    @staticmethod
    async def _ask(topic: Topic, timeout: float) -> TopicIds | Exception:
        try:
            return await topic.know_ids(timeout)
        except FAILURES as error:
            return error
        except LookupError as error:
            if topic.ids is None:
                return error
            raise  # a defect

    def _refusal(self, topic: Topic, error: Exception) -> IdsError:
        if isinstance(error, LookupError):
            return _no_ids(topic.name)
        if isinstance(error, MetadataUnavailable):
            return IdsError(Why.NOT_NOW, NO_REDIS)
        later = f"{topic.name} cannot be taken over now; try again"
        if not isinstance(error, KafkaError) or error.code not in _EXPLAINED:
            return IdsError(Why.NOT_NOW, later)
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return self._elsewhere(topic.name)
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return IdsError.no_topic(topic.name)
        ids = topic.ids
        if ids is not None and ids.is_begun and ids.problem is None:
            message = f"the sequence ids of {topic.name} are being read: {progress_text(ids.progress)}; try again"
            return IdsError(Why.NOT_NOW, message)
        return IdsError(Why.NOT_NOW, error.message or later)

    def _elsewhere(self, topic: str) -> IdsError:
        node = self._nodes.placement.nodes.get(self._nodes.serving.get(topic.encode(), -1))
        if node is None or node.id == self._nodes.me.id:
            return IdsError(Why.ELSEWHERE, f"another node serves {topic}, or is about to; look up its leader again")
        return IdsError(Why.ELSEWHERE, f"node {node.id} serves {topic}: ask it", node)


def _no_ids(topic: str) -> IdsError:
    message = f"topic {topic} has no deduplication; `sidecar topic set {topic} --dedup` begins it"
    return IdsError(Why.NO_IDS, message)
