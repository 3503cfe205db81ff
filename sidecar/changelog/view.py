"""The newest record of every key in the ownership topic, as one node has read it. No I/O: the tailer passes in each
record, in log order.

Kafka refuses a stale epoch only while it remembers the newer one. So the view checks epochs itself. It ignores a record
whose epoch is lower than one seen for its producer id, and a record under a producer id that its slot gave up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from sidecar.changelog.keys import MASTER_SLOT, REDIS_KEY, ForeignKeyError, Key, Kind, SlotName, decode_key, kind_of
from sidecar.changelog.records import RawRecord
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.v1 import state_pb2 as state

ValueT = TypeVar("ValueT", bound=Message)

Opened: TypeAlias = "state.Serving | state.Slot"
"""The records that open an epoch of a slot."""


def retired_ids(opened: Opened | None, writer: Stamp) -> list[int]:
    """Return the producer ids that a slot had before `writer`'s, from the record that opened its previous epoch."""
    if opened is None:
        return []
    found = list(opened.retired_producer_ids)
    if opened.producer_id != writer.producer_id:
        found.append(opened.producer_id)
    return found


_NOTHING_OPENED: Mapping[SlotName, Entry[Opened]] = {}


class Record(NamedTuple):
    """A record to append: a key and its new value, or None to delete the key."""

    key: Key
    value: Message | None

    def encode(self) -> RawRecord:
        """Return key and value as they are stored in the log. Raises ValueError for a value of another kind."""
        if self.value is not None and kind_of(self.value) is not self.key.kind:
            raise ValueError(f"{type(self.value).__name__} under the key {self.key}")
        return RawRecord(
            self.key.encode(), None if self.value is None else self.value.SerializeToString(deterministic=True)
        )


@dataclass(frozen=True, slots=True)
class Entry(Generic[ValueT]):
    """A valid record. `writer` is the stamp of its batch, None if it has none; `at_ms` is the broker's timestamp.

    All readers share `value`: never change it.
    """

    key: Key
    value: ValueT
    writer: Stamp | None
    offset: Offset
    at_ms: int


class Change(NamedTuple):
    """The effect of a record on the view: `before` is None for a new key, `after` is None for a deleted one."""

    key: Key
    before: Entry[Any] | None
    after: Entry[Any] | None


class Ignored(Enum):
    """Why the view ignores a record."""

    STALE_EPOCH = "below the highest epoch seen for its producer id"
    RETIRED = "under a producer id that its slot gave up"
    UNSTAMPED = "speaks for a topic without a stamp"
    FOREIGN = "a key that this version does not know"
    UNREADABLE = "a value that is no such message"
    OLD = "in front of the record already known"


class View:
    """Typed look-ups of the newest records. Only its tailer changes it."""

    def __init__(self) -> None:
        self.ignored: Counter[Ignored] = Counter()
        self._kinds: dict[Kind, dict[Key, Entry[Any]]] = {kind: {} for kind in Kind}
        self._topics: dict[str, dict[Key, Entry[Any]]] = {}
        self._opened: dict[str, dict[SlotName, Entry[Opened]]] = {}
        self._epochs: dict[ProducerId, ProducerEpoch] = {}
        self._epochs_in_log = self._epochs
        """The same, without the epochs of records that the log lost; used for kinds that are not `stamped`."""
        self._retired: set[ProducerId] = set()

    # What it knows ------------------------------------------------------------------------------------------------

    def ownership(self, topic: str, slot: SlotName = MASTER_SLOT) -> Entry[state.Ownership] | None:
        """Return the last owner of a topic, or of a partition by its slot, even if it has released."""
        return self._kinds[Kind.OWNERSHIP].get(Key(Kind.OWNERSHIP, topic, slot))

    def serving(self, topic: str, slot: SlotName = MASTER_SLOT) -> Entry[state.Serving] | None:
        """Return the record that opened the newest epoch of the slot of a topic, or of a partition."""
        return self._kinds[Kind.SERVING].get(Key(Kind.SERVING, topic, slot))

    def slot(self, topic: str, slot: SlotName) -> Entry[state.Slot] | None:
        """Return the shared session to which a slot belongs."""
        return self._kinds[Kind.SLOT].get(Key(Kind.SLOT, topic, slot))

    def tail(self, topic: str, slot: SlotName, partition: int) -> Entry[state.Tail] | None:
        """Return the newest tail of a slot in one partition."""
        return self._kinds[Kind.TAIL].get(Key(Kind.TAIL, topic, slot, partition))

    def shifts(self, topic: str, slot: SlotName) -> Iterator[tuple[Key, state.SequenceBase]]:
        """Yield every change of the bases of a slot's session, of any epoch."""
        for key, entry in self._topics.get(topic, {}).items():
            if key.kind is Kind.SEQUENCE_BASE and key.slot == slot:
                yield key, entry.value

    def policy(self, pattern: str) -> Entry[state.Policy] | None:
        """The policy recorded under exactly this pattern."""
        return self._kinds[Kind.POLICY].get(Key(Kind.POLICY, pattern))

    def policies(self) -> Iterator[Entry[state.Policy]]:
        """Every policy, in no order."""
        yield from self._kinds[Kind.POLICY].values()

    def shadow(self, name: str) -> Entry[state.Shadow] | None:
        """A shadow by its own name."""
        return self._kinds[Kind.SHADOW].get(Key(Kind.SHADOW, name))

    def shadows(self) -> Iterator[Entry[state.Shadow]]:
        """Every shadow, in no order."""
        yield from self._kinds[Kind.SHADOW].values()

    def claim(self, key: Key) -> Entry[state.Claim] | None:
        """Return the claim to a free string, or the reader claim to a topic or partition, by its key."""
        return self._kinds[Kind.CLAIM].get(key)

    def claims(self) -> Iterator[Entry[state.Claim]]:
        """Yield every claim to a free string and every reader claim, in no order."""
        yield from self._kinds[Kind.CLAIM].values()

    def redis(self) -> Entry[state.Redis] | None:
        """Return the newest record that names the Redis of this cluster's nodes."""
        return self._kinds[Kind.REDIS].get(REDIS_KEY)

    def entries(self, kind: Kind) -> Collection[Entry[Any]]:
        """Every record of a kind, in no order."""
        return self._kinds[kind].values()

    def of_topic(self, topic: str) -> Collection[Entry[Any]]:
        """Every record whose key names this topic (pattern, shadow)."""
        return self._topics.get(topic, {}).values()

    def opened(self, topic: str) -> Mapping[SlotName, Entry[Opened]]:
        """Return the record that opened the newest epoch of each slot of a topic. Do not keep it: it changes later."""
        return self._opened.get(topic, _NOTHING_OPENED)

    def slots(self, topic: str) -> set[SlotName]:
        """The slots that any record of a topic names."""
        return {key.slot for key in self._topics.get(topic, {}) if key.slot is not None}

    def epoch(self, producer_id: ProducerId) -> ProducerEpoch | None:
        """The highest epoch seen for a producer id, from records and from markers."""
        return self._epochs.get(producer_id)

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._kinds.values())

    # How it learns ------------------------------------------------------------------------------------------------

    def note_writer(self, writer: Stamp) -> None:
        """Note that a batch or a marker under this stamp is in the log."""
        for epochs in (self._epochs, self._epochs_in_log):
            known = epochs.get(writer.producer_id)
            if known is None or writer.epoch > known:
                epochs[writer.producer_id] = writer.epoch

    def apply(self, offset: Offset, at_ms: int, writer: Stamp | None, record: RawRecord) -> Change | None:
        """Apply one record of a batch whose writer was noted. Returns None if it is ignored or changes nothing."""
        try:
            key = decode_key(record.key)
        except ForeignKeyError:
            return self._ignore(Ignored.FOREIGN)
        reason = self._void(key, writer)
        if reason is not None:
            return self._ignore(reason)
        before = self._kinds[key.kind].get(key)
        if before is not None and before.offset >= offset:
            return self._ignore(Ignored.OLD)
        if record.value is None:
            if before is not None:
                self._drop(before)
            return Change(key, before, None) if before else None
        value = key.kind.message()
        try:
            value.ParseFromString(record.value)
        except DecodeError:
            return self._ignore(Ignored.UNREADABLE)
        after = Entry(key, value, writer, offset, at_ms)
        self._kinds[key.kind][key] = after
        self._topics.setdefault(key.topic, {})[key] = after
        if isinstance(value, state.Serving | state.Slot):
            assert key.slot is not None
            self._opened.setdefault(key.topic, {})[key.slot] = cast("Entry[Opened]", after)
            self._retired.update(ProducerId(gone) for gone in value.retired_producer_ids)
        return Change(key, before, after)

    def truncate(self, end: Offset) -> list[Change]:
        """Delete every record at `end` or after it: the log lost them. The records that they had replaced return when
        the log is read again from its start.

        A writer that was fenced stays fenced for `stamped` kinds, although the log lost the epoch that fenced it. Each
        change of a policy has an epoch of its own: if the newest one is lost, the change before it applies.
        """
        self._epochs_in_log = {}
        lost = [entry for entries in self._kinds.values() for entry in entries.values() if entry.offset >= end]
        for entry in lost:
            self._drop(entry)
        return [Change(entry.key, entry, None) for entry in lost]

    def _void(self, key: Key, writer: Stamp | None) -> Ignored | None:
        if writer is None:
            return Ignored.UNSTAMPED if key.kind.stamped else None
        epochs = self._epochs if key.kind.stamped else self._epochs_in_log
        if writer.epoch < epochs.get(writer.producer_id, writer.epoch):
            return Ignored.STALE_EPOCH
        if writer.producer_id in self._retired:
            return Ignored.RETIRED
        return None

    def _ignore(self, reason: Ignored) -> None:
        self.ignored[reason] += 1

    def _drop(self, entry: Entry[Any]) -> None:
        del self._kinds[entry.key.kind][entry.key]
        opened = self._opened.get(entry.key.topic, {})
        if entry.key.slot is not None and opened.get(entry.key.slot) is entry:
            del opened[entry.key.slot]
            if not opened:
                del self._opened[entry.key.topic]
        of_topic = self._topics[entry.key.topic]
        del of_topic[entry.key]
        if not of_topic:
            del self._topics[entry.key.topic]
