"""The sequence ids of a batch, and what they decide about it (PIP-6). A batch has no ids, rising ids of one name, or
other ids, for which each record has to be parsed. Pure.

One pass in compiled code recognises the first two kinds. Of these, only a batch that is partly a duplicate, or invalid,
is parsed record by record. The new records of a batch that is partly a duplicate are sent on. Pulsar judges a batch by
its lowest id alone, and so drops them (apache/pulsar#6273).
"""

from bisect import bisect_right
from enum import Enum, auto
from operator import attrgetter
from typing import Final, NamedTuple, NoReturn

from sidecar.dedup.marks import NAMES_LIMIT, Judgement, Marks, Pushed
from sidecar.dedup.names import NameHolders
from sidecar.protocol import limits
from sidecar.protocol import records as wire
from sidecar.protocol._records_pure import NONE, RISING
from sidecar.protocol.batch import HEADER_BYTES, codec_of
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.primitives import Octets, new_tuple
from sidecar.protocol.records import RecordIds

_NO_NAME: Final = (
    "a sequence id but no producer name: give the client a client.id of its own, or each record a header {header}"
)


_SEQUENCE_ID: Final = attrgetter("sequence_id")


class TooLargeAtOnceError(Exception):
    """The batch may be valid, but opening it now would block the event loop."""


class Headers(NamedTuple):
    """The names of the record headers that carry a sequence id and a producer name."""

    sequence_id: bytes = b"sidecar-sequence-id"
    producer_name: bytes = b"sidecar-producer-name"


class Content:
    """The ids of one batch. `marks` are the highest by name, `names` their names, `lowest` the lowest by name; all are
    empty if there are no ids.

    `first` and `last` are the first and last id of a batch whose ids rise, all under the session's own name; else -1.
    `size` is that of the decompressed records, in bytes.
    """

    __slots__ = (
        "_batch", "_headers", "_payload", "_records", "count", "first", "last", "lowest", "marks", "name", "size",
    )  # fmt: skip

    def __init__(
        self,
        batch: memoryview,
        count: int,
        headers: Headers,
        name: bytes | None,
        *,
        at_once: bool = False,
        names_limit: int = NAMES_LIMIT,
    ) -> None:
        """Raises `KafkaError` 10 MESSAGE_TOO_LARGE if the records are too large, 76 UNSUPPORTED_COMPRESSION_TYPE for an
        unknown codec, and 87 INVALID_RECORD for records that do not parse. Also 87 for ids that are malformed, missing
        in some records only, without a name, or under more than `names_limit` names. With `at_once`, raises
        `TooLargeAtOnceError` if opening takes long: the caller then opens the batch in a thread.
        """
        self.count = count
        self.name = name
        self.first = self.last = -1
        self.marks: tuple[Pushed, ...] = ()
        self.lowest: dict[bytes, int] = {}
        self._batch = batch
        self._headers = headers
        self._records: list[RecordIds] | None = None
        payload = _open(batch, at_once=at_once)
        self.size = len(payload)
        self._payload = payload if self.size <= limits.BATCH_AT_ONCE_BYTES else None
        kind, first, last = _summarise(payload, count, headers)
        if kind == NONE:
            return
        if count > limits.BATCH_RECORDS:
            message = f"{count} records with sequence ids in one batch, {limits.BATCH_RECORDS} at most"
            raise KafkaError(ErrorCode.INVALID_RECORD, message)
        if kind == RISING:
            if name is None:
                raise KafkaError(ErrorCode.INVALID_RECORD, _NO_NAME.format(header=headers.producer_name.decode()))
            self.first, self.last = first, last
            self.marks = (new_tuple(Pushed, (name, last, count - 1)),)
            self.lowest = {name: first}
        else:
            if at_once and count > limits.RECORDS_AT_ONCE:
                raise TooLargeAtOnceError
            found = self.records()
            self.marks = self._highest(found, names_limit)
            for each in found:
                assert each.name is not None
                assert each.sequence_id is not None
                self.lowest[each.name] = min(each.sequence_id, self.lowest.get(each.name, each.sequence_id))

    def slim(self) -> None:
        """Store only the summary: the records are opened again when they are needed."""
        self._payload = self._records = None

    @property
    def is_large(self) -> bool:
        """Whether opening or rewriting it would block the event loop."""
        return self.size > limits.BATCH_AT_ONCE_BYTES or self.count > limits.RECORDS_AT_ONCE

    def takes_long(self, marks: Marks) -> bool:
        """Whether `kept` would block the event loop. If so, a thread has to call `records` first."""
        if self._records is not None or not self.is_large:
            return False
        return self.first < 0 or self.name is None or self.last > marks.persisted(self.name)

    @property
    def has_ids(self) -> bool:
        return bool(self.marks)

    @property
    def names(self) -> list[bytes]:
        return [mark.name for mark in self.marks]

    def records(self) -> list[RecordIds]:
        """Return every record with its id and name. Raises the constructor's errors."""
        if self._records is None:
            id_header, name_header = self._headers
            found = wire.each(self._section(), self.count, id_header, name_header, own=self.name)
            if any(record.problem is not None or record.sequence_id is None for record in found):
                self._refuse(found)
            if self.name is None and any(record.name is None for record in found):
                raise KafkaError(ErrorCode.INVALID_RECORD, _NO_NAME.format(header=name_header.decode()))
            self._records = found
        return self._records

    def _refuse(self, found: list[RecordIds]) -> NoReturn:
        some = any(record.sequence_id is not None for record in found)
        for index, record in enumerate(found):
            if record.problem is not None:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"record {index} of the batch: {record.problem}")
            if record.sequence_id is None:
                message = f"record {index} of the batch has no sequence id{', others have' if some else ''}"
                raise KafkaError(ErrorCode.INVALID_RECORD, message)
        raise AssertionError

    @staticmethod
    def _highest(records: list[RecordIds], names_limit: int = NAMES_LIMIT) -> tuple[Pushed, ...]:
        highest: dict[bytes, Pushed] = {}
        for index, record in enumerate(records):
            assert record.name is not None
            assert record.sequence_id is not None
            known = highest.get(record.name)
            if known is None and len(highest) >= names_limit:
                message = f"more than {names_limit} producer names in one batch; a partition remembers no more"
                raise KafkaError(ErrorCode.INVALID_RECORD, message)
            if known is None or record.sequence_id > known.id:
                highest[record.name] = Pushed(record.name, record.sequence_id, index)
        return tuple(highest.values())

    def kept(self, marks: Marks) -> list[RecordIds] | None:
        """Return the records that are not in the log according to these marks; None if that is unknown for some.

        An id that does not rise within the batch is a duplicate too.
        """
        if self.first >= 0:
            return self._kept_of_rising(marks)
        found: list[RecordIds] = []
        highest: dict[bytes, int] = {}
        for record in self.records():
            assert record.name is not None
            assert record.sequence_id is not None
            judgement = marks.judge(record.name, record.sequence_id)
            if judgement is Judgement.UNSETTLED:
                return None
            if judgement is Judgement.NEW and record.sequence_id > highest.get(record.name, -1):
                highest[record.name] = record.sequence_id
                found.append(record)
        return found

    def _kept_of_rising(self, marks: Marks) -> list[RecordIds] | None:
        assert self.name is not None
        known, sent = marks.bounds(self.name)
        if self.last <= known:
            return []
        records = self.records()
        kept = bisect_right(records, known, key=_SEQUENCE_ID)
        return records[kept:] if bisect_right(records, sent, lo=kept, key=_SEQUENCE_ID) == kept else None

    def without_duplicates(self, kept: list[RecordIds]) -> tuple[bytearray, tuple[Pushed, ...]]:
        """Return the batch with only these records, and their marks."""
        return wire.keep(self._batch, self._section(), kept), self._highest(kept)

    def _section(self) -> Octets:
        return self._payload if self._payload is not None else payload_of(self._batch)


def _open(batch: memoryview, *, at_once: bool) -> Octets:
    """Return the records of a batch. Raises an error that clients do not retry: a retry would send the same bytes."""
    if not codec_of(batch) and len(batch) <= limits.BATCH_AT_ONCE_BYTES:
        return batch[HEADER_BYTES:]
    try:
        return payload_at_once(batch) if at_once else payload_of(batch)
    except KafkaError as error:
        raise _final(error) from None


def _summarise(payload: Octets, count: int, headers: Headers) -> tuple[int, int, int]:
    """As `records.summarise`, without the names; saves one call."""
    id_header, name_header = headers
    try:
        found: tuple[int, int, int] = wire.walker().summarise(payload, count, id_header, name_header, True)
    except KafkaError as error:
        raise _final(error) from None
    return found


def _final(error: KafkaError) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, error.message) if error.code == ErrorCode.CORRUPT_MESSAGE else error


def payload_of(batch: memoryview, limit: int | None = None) -> Octets:
    """Return the records of a batch, decompressed to at most `limit` bytes (default: `limits.BATCH_BYTES`). Raises
    `KafkaError` 2 CORRUPT_MESSAGE, 10 MESSAGE_TOO_LARGE or 76 UNSUPPORTED_COMPRESSION_TYPE.
    """
    codec = codec_of(batch)
    records = batch[HEADER_BYTES:]
    return decompress(codec, records, limits.BATCH_BYTES if limit is None else limit) if codec else records


def payload_at_once(batch: memoryview) -> Octets:
    """As `payload_of`. Raises `TooLargeAtOnceError` if the records are too large to be opened at once."""
    try:
        payload = payload_of(batch, limits.BATCH_AT_ONCE_BYTES)
    except KafkaError as error:
        if error.code == ErrorCode.MESSAGE_TOO_LARGE:
            raise TooLargeAtOnceError from None
        raise
    if len(payload) > limits.BATCH_AT_ONCE_BYTES:
        raise TooLargeAtOnceError
    return payload


class Next(Enum):
    """What happens to a batch next."""

    SEND = auto()
    WAIT = auto()
    """Wait until the outcome of another batch is known."""
    FENCE = auto()
    """Wait, and have the topic taken over again: nothing else decides which batches in doubt are in the log."""
    TAKE_APART = auto()
    """Have a thread parse it record by record."""


def is_new(content: Content, marks: Marks, names: NameHolders, session: str) -> bool:
    """Whether all of a batch is certainly new, and its session may write under its names."""
    if not content.marks:
        return not names.must_carry(session)
    name, first = content.name, content.first
    if first < 0 or name is None:
        return False
    if marks.has_doubts or first <= marks.bounds(name)[1] or not marks.knows(name):
        return False
    return names.session_of(name) == session


def decide(content: Content, marks: Marks, first: ClientSequence, own: int) -> Next | list[RecordIds]:
    """Decide about a batch with ids, whose session may write under its names. Returns the list of its new records if
    the others are in the log. `first`: the client's base sequence; `own`: the producer id of the session's slot.
    """
    if any(marks.is_elsewhere(name, own) for name in content.lowest):
        return Next.WAIT  # ids of a name must rise in the log, so this batch waits for those in flight in another slot
    if marks.has_doubts and any(marks.doubtful(name, own) for name in content.lowest):
        return Next.FENCE
    doubts = marks.doubts_of(own) if marks.has_doubts else ()
    if any((doubt.sequence, doubt.marks) == (first, content.marks) for doubt in doubts):
        return Next.SEND  # the same sequence: Kafka's answer shows whether it is in the log
    if content.first >= 0 and content.first > marks.pushed(content.marks[0].name):
        return Next.SEND
    if content.last >= 0 and content.last <= marks.persisted(content.marks[0].name):
        kept: list[RecordIds] | None = []
    elif content.takes_long(marks):
        return Next.TAKE_APART
    else:
        kept = content.kept(marks)
    if kept is None:
        return Next.WAIT
    if len(kept) == content.count:
        return Next.SEND
    return Next.FENCE if doubts else kept  # which of its sequences are in the log is unknown: its base cannot change
