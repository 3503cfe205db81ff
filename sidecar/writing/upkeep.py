"""Decides when fences are renewed, and how old the records of a batch may be.

Kafka forgets a fence. A partition forgets a producer id some time after the newest *record timestamp* it saw of it
(KIP-98), the coordinator forgets a transactional id, compaction deletes markers (`sidecar.fencing.expiry`). So every
topic that a node serves is fenced again at the same epoch well before, owned or free; a topic that nobody serves is
adopted by the node that would lead it. A fence whose marker left the log, or that a leader does not know, is renewed at
once (`sidecar.exclusive.fence_watch`). On topics with CreateTime, a batch of old records would make the partition
forget the owner before the next keep-alive: it is refused with 32 INVALID_TIMESTAMP.
"""

import math
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import InitVar, dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from sidecar.access.services import NodeServices
from sidecar.changelog import Clock
from sidecar.dedup.content import Content, payload_at_once, payload_of
from sidecar.dedup.reply import Reply
from sidecar.fencing.expiry import DEFAULT_KEEP_ALIVE, TOPIC_FLOOR_S, KeepAlive
from sidecar.fencing.slot import WriterSlot
from sidecar.fencing.topic import retire_formers
from sidecar.forwarder.outcome import Outcome
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.records import newest_timestamp
from sidecar.takeover.slots import SlotScope, TakenSlot
from sidecar.takeover.succession import NOTHING
from sidecar.takeover.tails import Look, Tail, TailReader, has_forgotten
from sidecar.writing.epoch import SlotEpoch

_RECORDS_AT_ONCE: Final = 500
"""A slot changes its producer id after 32,000 epochs, or if it was not kept alive for days."""

_AGAIN_S: Final = 5.0
_LATE_S: Final = 60.0
"""By how much brokers' clocks may be apart."""
_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})
_UNKNOWN_MS: Final = 5_000.0
"""How old records may be while the settings are not known: no usual broker setting forgets sooner."""


class Cause(Enum):
    """Why a fence is renewed before its time."""

    LOG_START = "the log begins after the marker"
    REPLICAS = "a replica was added"
    LOST = "a leader does not know the fence"


_PAUSES: Final = {Cause.LOG_START: TOPIC_FLOOR_S, Cause.REPLICAS: 30.0, Cause.LOST: 1.0}
"""The least time since the last renewal for a cause, in seconds: the less, the more urgent. For the log's start it is
since any renewal: a topic's settings may delete each marker at once, and a new leader is asked in any case.
"""


@dataclass(slots=True, eq=False)
class Upkeep:
    """The state of one topic's fence. Times are seconds by the clock's `elapsed` unless they say otherwise: a fence
    fades while this machine is suspended, too.
    """

    assumed: InitVar[KeepAlive | None]
    """What the brokers' own settings require of every topic; None while they are not known."""
    _clock: Clock
    trusted_ms: float = 0.0
    """How long leaders surely remember a producer that wrote the oldest records that are accepted
    (`KeepAlive.oldest`): the time between two keep-alives, in milliseconds. 0 while the settings are unknown.
    """
    terms: KeepAlive = DEFAULT_KEEP_ALIVE
    known: bool = False
    """Whether the topic's own settings were read."""
    stamped: bool = False
    """Brokers set the timestamps of records, and the fence was renewed since then."""
    fenced_at: float = -math.inf
    """When the newest fence began."""
    not_before: float = -math.inf
    fenced_from: Mapping[int, int] = field(default_factory=lambda: _NOWHERE)
    """By partition, an offset at or before which no marker of the newest fence is."""
    _cause: Cause | None = None
    _caused_at: float = -math.inf
    _cured_at: float = -math.inf
    """When the newest fence for a cause began."""
    _renewed_at: float = -math.inf
    """When the newest fence began for a cause or because it was time; other takeovers do not count."""
    _is_unseen: bool = False
    distrusts: bool = False
    """A batch header had other times than the leader found in the records."""
    _share: float = 1.0
    _limit_ms: float = _UNKNOWN_MS
    _examined_ms: float = _UNKNOWN_MS
    now: Callable[[], float] = field(init=False)
    """The present time, by the clock of these times."""

    def __post_init__(self, assumed: KeepAlive | None) -> None:
        self.now = self._clock.elapsed
        if assumed is not None:
            self.assume(assumed)

    def assume(self, terms: KeepAlive) -> None:
        """Apply the brokers' own settings: as to the age of records, a topic's can only allow more."""
        if not self.known:
            self.terms = terms
            self._limit(terms.oldest * 1000)

    def read(self, terms: KeepAlive) -> None:
        """Apply what the brokers' and the topic's settings require now."""
        if self.stamped and not terms.stamped:
            self.unstamped()
        self.terms, self.known, self.trusted_ms = terms, True, terms.interval * 1000
        self._limit(terms.oldest * 1000)

    def _limit(self, age_ms: float) -> None:
        """Refuse batches above this age; if headers are distrusted, examine all of them."""
        self._limit_ms = age_ms
        self._examined_ms = -math.inf if self.distrusts else age_ms

    def unstamped(self) -> None:
        """Note that records have their writers' timestamps again, perhaps for a while already."""
        self.stamped, self.fenced_at, self.not_before = False, -math.inf, -math.inf

    def kept(self, began: float, fenced_from: Mapping[int, int] = _NOWHERE) -> None:
        """Note that the topic was fenced, at its epoch or a newer one, since `began`."""
        if began > self.fenced_at:
            if self._wait_s <= began - self.fenced_at < math.inf:
                self._renewed_at = began
            if self._cause is not None and began >= self._caused_at:
                self._cause, self._cured_at, self._renewed_at = None, began, began
            self.fenced_at, self.fenced_from = began, fenced_from
            self._share = random.uniform(0.7, 0.95)  # not all topics at the same time
            self.stamped = self.known and self.terms.stamped

    @property
    def cause(self) -> Cause | None:
        """Why the fence has to be renewed before its time; None: nothing requires it."""
        return self._cause

    def lapsed(self, cause: Cause) -> None:
        """Note that the fence has to be renewed before its time. The log's start is seen again and again, until a fence
        that began after it was seen is there; anything else once. The most urgent cause counts.
        """
        if self._cause is None or cause is not Cause.LOG_START:
            self._caused_at = self.now()
        if self._cause is None or _PAUSES[cause] < _PAUSES[self._cause]:
            self._cause = cause

    def failed(self, now: float) -> None:
        """Note that the fence could not be renewed: it is tried again soon."""
        self.not_before = now + min(_AGAIN_S, self.terms.interval / 4)

    def is_due(self, now: float) -> bool:
        """Whether it is time to fence again."""
        if now < self.not_before:
            return False
        if self._cause is not None:
            renewed_at = self._renewed_at if self._cause is Cause.LOG_START else self._cured_at
            if now - renewed_at >= _PAUSES[self._cause]:
                return True
        wants_rule = self.known and self.terms.stamped and not self.stamped
        return wants_rule or now - self.fenced_at >= self._wait_s

    @property
    def _wait_s(self) -> float:
        """The time after which a fence is renewed without a cause; below the floor only if brokers require it."""
        interval = self.terms.interval
        return max(interval * self._share, TOPIC_FLOOR_S if interval >= TOPIC_FLOOR_S else 0.0)

    def takes(self, newest_ms: int) -> bool:
        """Whether a batch may be written whose newest record is of this time (Unix ms) or newer: it then counts as
        written. Otherwise its records have to be examined.
        """
        if self._clock.now_ms() - newest_ms > self._examined_ms:
            return False
        self._is_unseen = True
        return True

    def wrote(self) -> None:
        """Note that something may have been written since leaders were asked what they remember."""
        self._is_unseen = True

    def asked(self) -> None:
        """Note that leaders are asked now what they remember."""
        self._is_unseen = False

    def examine(
        self, topic: str, batch: memoryview, *, at_once: bool, opened: Callable[[int], None] = lambda size: None
    ) -> Outcome | None:
        """The answer for a batch whose records are too old or damaged; None if it may be written. Decompresses the
        records as a leader does, since the header's times are the client's word. With `at_once` raises
        `TooLargeAtOnceError` for a large batch: the caller then uses a thread. `opened` gets the size of
        the records.
        """
        if self.stamped:
            return None
        try:
            payload = payload_at_once(batch) if at_once else payload_of(batch)
            opened(len(payload))
            newest_ms = newest_timestamp(batch, payload)
        except KafkaError as error:  # Kafka would refuse it too; no client shall send it again
            code = ErrorCode.INVALID_RECORD if error.code == ErrorCode.CORRUPT_MESSAGE else error.code
            return Outcome(code, message=error.message)
        is_old = self._clock.now_ms() - newest_ms > self._limit_ms
        return self.refusal(topic, newest_ms) if is_old else None

    @property
    def wants_look(self) -> bool:
        """Whether a leader may remember another time of the topic's writers than their headers had."""
        return self._is_unseen and self.known and not self.stamped and self.terms.oldest < math.inf

    def remembered(self, timestamp_ms: int) -> bool:
        """Check the newest time (Unix ms) that a leader remembers of one of the topic's writers. True if no header that
        was believed since the newest fence explains it: the fence is due, and no header is believed any more.
        """
        since_fence = self.now() - self.fenced_at
        explained = self.terms.oldest + min(_LATE_S, self.terms.interval) + since_fence
        if self._clock.now_ms() - timestamp_ms <= explained * 1000:
            return False
        self.distrusts = True
        self._limit(self._limit_ms)
        self.fenced_at = self.not_before = -math.inf
        return True

    def refusal(self, topic: str, newest_ms: int) -> Outcome | None:
        """The answer for an old batch; None if its age does not matter."""
        if self.stamped:
            return None
        if not self.known:
            message = f"whether {topic} takes records as old as these is not known yet; try again"
            return Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message=message)
        age = (self._clock.now_ms() - newest_ms) / 1000
        message = (
            f"the newest record of this batch is {age:.0f} s old; on {topic} the limit is {self.terms.oldest:.0f} s"
            f" ({self.terms.setting}): with older records Kafka would forget the fence. To write older ones,"
            f" let Kafka set the timestamps: sidecar topic set {topic} --log-append-time"
        )
        return Outcome(ErrorCode.INVALID_TIMESTAMP, message=message)


class Watched(Reply):
    """The reply to an old batch, sent because brokers set timestamps: its outcome shows whether they still do."""

    __slots__ = ("_reply", "_upkeep")

    def __init__(self, reply: Reply, upkeep: Upkeep) -> None:
        super().__init__(reply.send, reply.topic_id, reply.allowance)
        self._reply = reply
        self._upkeep = upkeep

    def answer(self, outcome: Outcome) -> None:
        if not outcome.error and outcome.log_append_time < 0:
            self._upkeep.unstamped()
        self._reply.answer(outcome)

    def out_of_turn(self, content: Content) -> Outcome | None:
        return self._reply.out_of_turn(content)


class Renewal(Enum):
    """The outcome of a keep-alive."""

    KEPT = "the fence stands"
    LOST = "somebody newer has the slot, or a leader forgot what was written: a new epoch is needed"
    CHANGED = "the topic was created anew, or has grown"


class Renewed(NamedTuple):
    """The outcome of a keep-alive; `fenced_from` as in `TakenSlot`."""

    outcome: Renewal
    fenced_from: Mapping[int, int] = _NOWHERE


def acknowledged_tails(look: Look, epoch: SlotEpoch) -> dict[int, Tail]:
    """The tails of an epoch's writer at an earlier look. Of what the leaders remembered, only batches that they have
    acknowledged since count, as only those are committed. At the time of the look the session may have written under
    the next epoch already. Then the end is not before the next epoch's batches, so it gives no tail of a partition to
    which this epoch sent nothing.
    """
    # Model: KeepTail.
    topic, writer, touched = epoch.taken.scope.topic, epoch.taken.stamp, epoch.touched()
    found: dict[int, Tail] = {}
    for index, end in look.ends.items():
        claim, acknowledged = look.claim(topic, index, writer), epoch.acknowledged(index)
        if claim is None:
            if index not in touched and not look.knows_newer(topic, index, writer):
                found[index] = Tail(NOTHING, end)
        elif acknowledged >= claim.last_sequence:  # stamped sequences do not wrap: `sequences.EPOCH_RECORDS`
            found[index] = Tail(claim.last_sequence, end)
    return found


async def renew_fence(services: NodeServices, taken: TakenSlot, epoch: SlotEpoch | None) -> Renewed:
    """Fence a slot again at its epoch, and store the positions of its writer, if it has one.

    Raises `UpstreamError`, `KafkaError`, `RetryTimeoutError`, `ChangelogError`.
    """
    scope = taken.scope
    layout = await services.upstream.whole_layout(scope.topic)
    if layout.topic_id != taken.topic_id or set(scope.of(layout.leaders)) - set(taken.partitions):
        return Renewed(Renewal.CHANGED)
    changelog, reader = services.changelog, TailReader(services.upstream, scope.topic, taken.topic_id)
    wrote = () if epoch is None else epoch.wrote()
    look = await reader.look(taken.partitions)
    if has_forgotten(look, scope.topic, taken.slot.stamp, wrote):
        return Renewed(Renewal.LOST)
    try:
        await keep_slot_alive(services, scope, taken.slot, taken.partitions, snapshots=taken.ids_from is not None)
    except FencedError:
        return Renewed(Renewal.LOST)
    if epoch is None or epoch.taken.session.producer_id is None:
        return Renewed(Renewal.KEPT, look.ends)  # a session that never comes back needs no record
    tails = acknowledged_tails(look, epoch)
    stamp, now_ms = epoch.taken.stamp, changelog.clock.now_ms()
    records = reader.records(changelog.view, scope.slot, taken.topic_id, stamp, tails, now_ms)
    for first in range(0, len(records), _RECORDS_AT_ONCE):
        await changelog.append(records[first : first + _RECORDS_AT_ONCE])
    return Renewed(Renewal.KEPT, look.ends)


async def keep_slot_alive(
    services: NodeServices, scope: SlotScope, slot: WriterSlot, partitions: Collection[int], *, snapshots: bool = False
) -> None:
    """Renew what makes partitions refuse older epochs of a slot, and all epochs of its former producer ids.
    `snapshots`: the slot also stamps snapshots.

    Raises as `renew_fence`, and `FencedError`.
    """
    # Model: KeepAlive.
    also = services.changelog.fenced(scope.topic if snapshots else None)
    fenced = {scope.topic: sorted(partitions), **also}
    await slot.keep_alive(fenced)
    opened = scope.opened(services.changelog.view)
    await retire_formers(services.upstream, None if opened is None else opened.value, fenced)
