"""Keeps the fences of a node's topics alive, by time and by event, and checks which writers the leaders remember.

`upkeep` decides for each topic what is due and how old records may be; the settings are read here, once a minute for
all topics. Each chore is a task of its own: a broker that is silent for a whole request timeout holds up only the chore
that asks it, and neither a fence that is due nor ids that compaction may take.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from metadata import MetadataUnavailable
from sidecar.changelog import FAILURES
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.cleaning import is_unprotected, protect_ids
from sidecar.exclusive.fence_watch import WATCH_S, FenceWatch
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.partitions import Topic
from sidecar.fencing.expiry import DEFAULT_KEEP_ALIVE, KeepAlive, read_broker_keep_alive, read_keep_alives
from sidecar.fencing.witness import FencingRefusedError, Witness
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import Channel, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.takeover.slots import stamp_of

_READ_S: Final = 60.0
_LOOK_CHANNEL: Final = Channel("remembered-times")
_LONGEST_TICK_S: Final = 1.0
_SHORTEST_TICK_S: Final = 0.05
_AT_ONCE: Final = 16
_PASSING: Final = (*FAILURES, MetadataUnavailable)
"""Why a fence could not be renewed now: it is tried again."""
_LOOK_S: Final = 5.0
"""How often leaders are asked what they remember of writers whose headers were believed."""
_GONE_S: Final = 30.0
"""How long a topic has to be unknown to count as deleted: a broker may not know a new one yet."""
_Chore: TypeAlias = Callable[[list[Topic]], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class Keeper:
    """Renews the fences of all topics of a node, some at the same time. `_failed` is called with a topic's name and the
    error if something fails now.
    """

    _upstream: KafkaUpstream
    _tasks: Tasks
    _governed: GovernedTopics
    _failed: Callable[[str, BaseException], None]
    _of_brokers: KeepAlive | None = None
    _watch: FenceWatch = field(init=False)
    _busy: set[_Chore] = field(default_factory=set[_Chore])
    _watched_at: float = -math.inf
    _looked_at: float = -math.inf
    _protected_at: float = -math.inf
    _read_at: float = -math.inf
    _unknown_since: dict[str, float] = field(default_factory=dict[str, float])
    _asked: set[str] = field(default_factory=set[str])
    _under_way: set[str] = field(default_factory=set[str])
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def __post_init__(self) -> None:
        self._watch = FenceWatch(self._upstream, self._governed, self._failed)

    async def run(self) -> None:
        """Renew fences that are due, until cancelled."""
        while True:
            topics = self._governed.kept_topics()
            for topic in topics:
                if topic.name not in self._under_way and topic.upkeep.is_due(topic.upkeep.now()):
                    self._under_way.add(topic.name)
                    self._tasks.start(self._renew(topic))
            self._begin_chores(topics)
            shortest = min((topic.upkeep.terms.interval for topic in topics), default=math.inf)
            await asyncio.sleep(max(_SHORTEST_TICK_S, min(_LONGEST_TICK_S, shortest / 16)))

    def _begin_chores(self, topics: list[Topic]) -> None:
        now = asyncio.get_running_loop().time()
        if any(map(is_unprotected, topics)) or now - self._protected_at >= _READ_S:
            self._begin(self._protect, topics)
        if self._of_brokers is None or self._is_old(topics):
            self._begin(self._read, topics)
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            if wanted := [topic for topic in topics if topic.upkeep.wants_look]:
                self._begin(self._look, wanted)
        if (fenced := [topic for topic in topics if topic.upkeep.fenced_from]) and now - self._watched_at >= WATCH_S:
            self._begin(self._watch_all, fenced)

    def _begin(self, chore: _Chore, topics: list[Topic]) -> None:
        """Do it beside everything else, unless it is under way."""
        if chore not in self._busy:
            self._busy.add(chore)
            self._tasks.start(self._do(chore, topics))

    async def _do(self, chore: _Chore, topics: list[Topic]) -> None:
        try:
            await chore(topics)
        except (UpstreamError, KafkaError, FencingRefusedError, TimeoutError) as error:
            self._failed(topics[0].name, error)
        finally:
            self._busy.discard(chore)

    async def _watch_all(self, topics: list[Topic]) -> None:
        try:
            await self._watch.round(topics)
        finally:
            self._watched_at = asyncio.get_running_loop().time()

    async def _look(self, topics: list[Topic]) -> None:
        try:
            await self.look(topics)
        except (UpstreamError, KafkaError, FencingRefusedError, TimeoutError):
            for topic in topics:
                topic.upkeep.wrote()
            raise

    async def look(self, topics: list[Topic]) -> None:
        """Compare the times that leaders remember with the believed headers. Raises as `Witness.producers`."""
        asked: dict[str, tuple[int, ...]] = {}
        for topic in topics:
            topic.upkeep.asked()
            asked[topic.name] = tuple((await self._upstream.layout(topic.name)).leaders)
        answers = await Witness(self._upstream, _LOOK_CHANNEL, _READ_S).producers(asked)
        for topic in topics:
            opened = self._governed.env.changelog.view.opened(topic.name)
            writers = {stamp_of(entry).producer_id for entry in opened.values()}
            for index in asked[topic.name]:
                place = TopicPartition(topic.name, index)
                known = [found for found in answers[place].producers if found.stamp.producer_id in writers]
                if any(topic.upkeep.remembered(found.last_timestamp_ms) for found in known):
                    message = f"records in {place} are older than their header said; the fence is renewed"
                    self._failed(topic.name, KafkaError(ErrorCode.INVALID_TIMESTAMP, message))

    async def _protect(self, topics: list[Topic]) -> None:
        """Keep compaction from the ids of topics: once a minute, and at once if a topic is new here. By what is known
        of the brokers' settings so far: those only tune how much it takes. If it fails: again with the next tick.
        """
        await protect_ids(self._upstream, topics, self._governed.env.hooks)
        self._protected_at = asyncio.get_running_loop().time()

    async def _read(self, topics: list[Topic]) -> None:
        """Read the settings of brokers and topics: once a minute, and at once if a topic is new here."""
        now = asyncio.get_running_loop().time()
        if self._of_brokers is None:
            with suppress(UpstreamError, KafkaError, TimeoutError):  # asked again with the next tick
                self._of_brokers = await read_broker_keep_alive(self._upstream)
                self._governed.assume(self._of_brokers)
        if not self._is_old(topics):
            return
        names = [topic.name for topic in topics]
        self._read_at, self._asked = now, set(names)
        try:
            terms = await read_keep_alives(self._upstream, names)
        except (UpstreamError, TimeoutError):
            self._asked.clear()
            raise
        except KafkaError as error:  # this node may not see them
            self._failed(names[0], error)
            terms = dict.fromkeys(names, self._of_brokers or DEFAULT_KEEP_ALIVE)
        self._upstream.refresh_soon({name.encode() for name in names})  # a lane sees a topic that was created anew
        for topic in topics:
            if topic.name in terms:
                topic.upkeep.read(terms[topic.name])
        self._unknown_since = {name: self._unknown_since.get(name, now) for name in names if name not in terms}
        self._governed.gone({name for name, since in self._unknown_since.items() if now - since >= _GONE_S})

    def _is_old(self, topics: list[Topic]) -> bool:
        """Whether the settings of topics have to be read."""
        is_late = asyncio.get_running_loop().time() - self._read_at >= _READ_S
        return bool(topics) and (is_late or not self._asked.issuperset(topic.name for topic in topics))

    def read_soon(self) -> None:
        """Read the settings at the next tick: those of a topic were changed."""
        self._asked.clear()
        self._protected_at = -math.inf

    async def _renew(self, topic: Topic) -> None:
        try:
            async with self._slots:
                cause, fenced_at = topic.upkeep.cause, topic.upkeep.fenced_at
                await topic.keep_alive()
                if topic.upkeep.fenced_at > fenced_at:
                    self._governed.env.hooks.fence_renewed(topic.name, cause)
        except _PASSING as error:
            topic.upkeep.failed(topic.upkeep.now())
            self._failed(topic.name, error)
        finally:
            self._under_way.discard(topic.name)
