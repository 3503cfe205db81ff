"""How fences stay alive, and which records may be written meanwhile.

Kafka's fence is a memory that fades. A partition forgets a producer id so long after the newest *record time* it saw of
it, the coordinator forgets a transactional id, compaction takes markers away (`sidecar.fencing.expiry`). So every topic
that a node serves is fenced again at the same epoch well before, owned or free; a topic that nobody serves is adopted
by the node that would lead it. On topics whose records carry their writers' times a batch of old records would let the
owner's own entry fade before the next keep-alive: it is refused (32).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.changelog import ChangelogError, RetryTimeoutError
from sidecar.exclusive.tenure import tails_now
from sidecar.fencing import DEFAULT_KEEP_ALIVE, read_broker_keep_alive, read_keep_alives, retire_producer
from sidecar.forwarder.lane import Outcome
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.exclusive.domain import Domain
    from sidecar.exclusive.tenure import Surroundings, Tenure
    from sidecar.fencing import KeepAlive, WriterSlot
    from sidecar.network.tasks import Tasks

_READ_S: Final = 60.0
_LONGEST_TICK_S: Final = 1.0
_SHORTEST_TICK_S: Final = 0.05
_AT_ONCE: Final = 16
_RECORDS_AT_ONCE: Final = 500
_RETIRED_KEPT: Final = 16
"""A slot changes its producer id after 32,000 epochs, or where nobody kept it alive for days."""
_AGAIN_S: Final = 5.0
_GONE_S: Final = 30.0
"""How long a topic has to be unknown to be gone: a broker may not have heard of a new one yet."""
_UNKNOWN_MS: Final = 5_000.0
"""How old records may be while the settings are not known: no broker forgets sooner that anybody would run."""


class Upkeep:
    """The state of one topic's fence. Times are monotonic seconds unless they say otherwise."""

    __slots__ = ("_oldest_ms", "_share", "fenced_at", "known", "not_before", "stamped", "terms")

    def __init__(self, assumed: KeepAlive | None = None) -> None:
        """`assumed`: what the brokers demand of every topic, None while not even that is known."""
        self.terms = DEFAULT_KEEP_ALIVE
        self.known = False
        """Whether the topic's own settings were read."""
        self.stamped = False
        """Brokers give records their time, and the fence was renewed since they do."""
        self.fenced_at = -math.inf
        """When the newest fence began."""
        self.not_before = -math.inf
        self._share = 1.0
        self._oldest_ms = _UNKNOWN_MS
        if assumed is not None:
            self.assume(assumed)

    def assume(self, terms: KeepAlive) -> None:
        """The brokers' own settings are known: a topic's can only allow more, as to the age of records."""
        if not self.known:
            self.terms, self._oldest_ms = terms, terms.oldest * 1000

    @property
    def trusted_ms(self) -> float:
        """How far back leaders surely remember every producer: half of what makes them forget; 0 while unknown."""
        return self.terms.interval * 2000 if self.known else 0.0

    def read(self, terms: KeepAlive) -> None:
        """What the brokers' and the topic's settings demand now."""
        if self.stamped and not terms.stamped:
            self.unstamped()
        self.terms, self.known = terms, True
        self._oldest_ms = terms.oldest * 1000

    def unstamped(self) -> None:
        """Records carry their writers' times again, perhaps for a while already."""
        self.stamped, self.fenced_at, self.not_before = False, -math.inf, -math.inf

    def kept(self, began: float) -> None:
        """The topic was fenced at its epoch, or a newer one, since `began`."""
        if began > self.fenced_at:
            self.fenced_at = began
            self._share = random.uniform(0.7, 0.95)  # topics shall not come all at once
            self.stamped = self.known and self.terms.stamped

    def failed(self, now: float) -> None:
        """The fence could not be renewed; try again soon."""
        self.not_before = now + min(_AGAIN_S, self.terms.interval / 4)

    def is_due(self, now: float) -> bool:
        """Whether it is time to fence again."""
        if now < self.not_before:
            return False
        wants_rule = self.known and self.terms.stamped and not self.stamped
        return wants_rule or now - self.fenced_at > self.terms.interval * self._share

    def is_old(self, newest_ms: int) -> bool:
        """Whether a batch with this newest record time (Unix ms) may be written only where brokers stamp records."""
        return time.time() * 1000 - newest_ms > self._oldest_ms

    def refusal(self, topic: str, newest_ms: int) -> Outcome | None:
        """The answer for an old batch; None where its age does not matter."""
        if self.stamped:
            return None
        if not self.known:
            message = f"whether {topic} takes records as old as these is not known yet; try again"
            return Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message=message)
        age = time.time() - newest_ms / 1000
        message = (
            f"the newest record of this batch is {age:.0f} s old, on {topic} it may be {self.terms.oldest:.0f} s"
            f" ({self.terms.setting}): a fence lasts no longer by the times of records. For older ones let Kafka"
            f" stamp them: sidecar topic set {topic} --log-append-time"
        )
        return Outcome(ErrorCode.INVALID_TIMESTAMP, message=message)

    def watching(self, done: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """An old batch goes out because brokers stamp records: its answer tells whether they still do."""

        def told(outcome: Outcome) -> None:
            if not outcome.error and outcome.log_append_time < 0:
                self.unstamped()
            done(outcome)

        return told


class Renewal(Enum):
    """What became of a keep-alive."""

    KEPT = "the fence stands"
    LOST = "somebody newer has the slot, or a leader forgot what was written: a new epoch is needed"
    CHANGED = "the topic was created anew, or has grown"


async def renew_fence(around: Surroundings, tenure: Tenure, wrote: Collection[int]) -> Renewal:
    """Fence a slot again at its epoch, and note where its writer stands. `wrote`: the partitions that it has written.

    Raises `UpstreamError`, `KafkaError`, `RetryTimeoutError`, `ChangelogError`.
    """
    domain = tenure.domain
    layout = await around.upstream.layout(domain.topic, refresh=True)
    if layout.topic_id != tenure.topic_id or set(domain.of(layout.leaders)) - set(tenure.partitions):
        return Renewal.CHANGED
    changelog = around.changelog
    try:
        records = await tails_now(around, tenure, layout, wrote)
        if records is None:
            return Renewal.LOST
        await keep_slot_alive(around, domain, tenure.slot, tenure.partitions, snapshots=tenure.ids_from is not None)
    except FencedError:
        return Renewal.LOST
    for first in range(0, len(records), _RECORDS_AT_ONCE):
        await changelog.append(records[first : first + _RECORDS_AT_ONCE])
    return Renewal.KEPT


async def keep_slot_alive(
    around: Surroundings, domain: Domain, slot: WriterSlot, partitions: Collection[int], *, snapshots: bool = False
) -> None:
    """Renew what makes partitions refuse older epochs of a slot, and all epochs of the producer ids that it had before.
    `snapshots`: it stamps those too.

    Raises as `renew_fence`, and `FencedError`.
    """
    own = around.changelog.partition
    fenced = {domain.topic: sorted(partitions), own.topic: [own.partition]}
    if snapshots:
        kept = around.changelog.snapshots_of(domain.topic)
        fenced[kept.topic] = [kept.partition]
    await slot.keep_alive(fenced)
    opened = domain.opened(around.changelog.view)
    if opened is not None:
        for former in opened.value.retired_producer_ids[-_RETIRED_KEPT:]:
            await retire_producer(around.upstream, ProducerId(former), fenced)


class Kept(Protocol):
    """A topic whose fence this node keeps alive."""

    name: str
    upkeep: Upkeep

    async def keep_alive(self) -> None: ...


class Keeper:
    """Renews the fences of all topics of a node, at no more than some at once."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        tasks: Tasks,
        topics: Callable[[], Iterable[Kept]],
        assumed: Callable[[KeepAlive], None],
        gone: Callable[[set[str]], None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        """`gone` is told, whenever settings were read, which of the topics Kafka has not known for a while."""
        self._upstream = upstream
        self._tasks = tasks
        self._topics = topics
        self._assumed = assumed
        self._of_brokers: KeepAlive | None = None
        self._gone = gone
        self._failed = failed
        self._unknown_since: dict[str, float] = {}
        self._read_at = -math.inf
        self._asked: set[str] = set()
        self._under_way: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            topics = list(self._topics())
            await self._read(topics)
            now = asyncio.get_running_loop().time()
            for topic in topics:
                if topic.name not in self._under_way and topic.upkeep.is_due(now):
                    self._under_way.add(topic.name)
                    self._tasks.start(self._renew(topic))
            shortest = min((topic.upkeep.terms.interval for topic in topics), default=math.inf)
            await asyncio.sleep(max(_SHORTEST_TICK_S, min(_LONGEST_TICK_S, shortest / 16)))

    async def _read(self, topics: list[Kept]) -> None:
        """Ask for the settings that matter: once a minute, and at once for a topic that is new here."""
        now = asyncio.get_running_loop().time()
        if self._of_brokers is None:
            with suppress(UpstreamError, KafkaError, TimeoutError):  # asked again with the next tick
                self._of_brokers = await read_broker_keep_alive(self._upstream)
                self._assumed(self._of_brokers)
        names = [topic.name for topic in topics]
        if not names or (now - self._read_at < _READ_S and self._asked.issuperset(names)):
            return
        try:
            terms = await read_keep_alives(self._upstream, names)
        except (UpstreamError, TimeoutError) as error:
            self._failed(names[0], error)
            return
        except KafkaError as error:  # this node may not see them
            self._failed(names[0], error)
            terms = dict.fromkeys(names, self._of_brokers or DEFAULT_KEEP_ALIVE)
        self._read_at, self._asked = now, set(names)
        self._upstream.refresh_soon({name.encode() for name in names})  # a lane sees a topic that was created anew
        for topic in topics:
            if topic.name in terms:
                topic.upkeep.read(terms[topic.name])
        self._unknown_since = {name: self._unknown_since.get(name, now) for name in names if name not in terms}
        self._gone({name for name, since in self._unknown_since.items() if now - since >= _GONE_S})

    def read_soon(self) -> None:
        """Somebody changed the settings of a topic."""
        self._asked.clear()

    async def _renew(self, topic: Kept) -> None:
        try:
            async with self._slots:
                await topic.keep_alive()
        except (UpstreamError, KafkaError, ChangelogError, RetryTimeoutError, TimeoutError) as error:
            topic.upkeep.failed(asyncio.get_running_loop().time())
            self._failed(topic.name, error)
        finally:
            self._under_way.discard(topic.name)
