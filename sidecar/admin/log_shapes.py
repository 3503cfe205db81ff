"""What REST says of the logs of topics: partitions, groups, the last records. Pure."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import Any, Final

from sidecar.admin.fields import COUNT, FLAG, NUMBER, TEXT, TIME, Kind, Shape, list_of, page_of
from sidecar.admin.shadow_shapes import CURSOR
from sidecar.cluster.logs import HEADERS, KEY_BYTES, VALUE_BYTES, CutBytes, LastRecord

RECORDS: Final = 20
"""Records in one answer, unless another number is asked for."""
MOST_RECORDS: Final = 100
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
_WHITE: Final = "\t\n\r"

PARTITION: Final = Shape(
    "Partition",
    partition=NUMBER,
    leader=NUMBER.said("The broker's id; -1: none now."),
    start=COUNT.said("The first offset that retention left."),
    end=COUNT.said("The offset after the last one (high watermark)."),
    bytes=COUNT.or_null().said("On the leader's disk; null where the broker does not say."),
)
PARTITIONS: Final = page_of("Partitions", PARTITION)
GROUPS: Final = page_of("Groups", CURSOR)
_BYTES: Final = Shape(
    "Bytes",
    "Text where it is UTF-8 without control characters, else hexadecimal digits; cut where it is long.",
    text=TEXT.or_absent(),
    hex=TEXT.or_absent(),
    size=COUNT.said("Of all of it, in bytes."),
    cut=FLAG,
)


def bytes_to_json(found: CutBytes) -> dict[str, Any]:
    """The beginning of some bytes for people."""
    cut = len(found.data) < found.size
    text = _text(found.data, cut=cut)
    shown = {"hex": found.data.hex()} if text is None else {"text": text}
    return {**shown, "size": found.size, "cut": cut}


def _text(data: bytes, *, cut: bool) -> str | None:
    try:
        text = getincrementaldecoder("utf-8")().decode(data, final=not cut)
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in _WHITE for each in text) else None


def _time(shown: Any) -> int | None:
    """Unix ms of a record, None where no calendar has that: a client may say anything."""
    found = shown.record.timestamp_ms
    return found if 0 <= found <= _LAST_MS else None


_OCTETS: Final = Kind(_BYTES.schema, bytes_to_json)
_HEADER: Final = Shape(
    "Header", name=TEXT.of(lambda header: header[0]), value=_OCTETS.or_null().of(lambda header: header[1])
)


def _of(name: str) -> Any:
    return lambda shown: getattr(shown.record, name)


def _writer(name: str) -> Any:
    def found(shown: Any) -> int | None:
        record: LastRecord = shown.record
        return None if record.writer is None else getattr(record.writer, name)

    return found


RECORD: Final = Shape(
    "Record",
    partition=NUMBER.of(_of("partition")),
    offset=COUNT.of(_of("offset")),
    timestamp=TIME.or_null().of(_time),
    key=_OCTETS.or_null().said(f"The first {KEY_BYTES} bytes.").of(_of("key")),
    value=_OCTETS.or_null().said(f"The first {VALUE_BYTES} bytes.").of(_of("value")),
    headers=list_of(_HEADER.inline)
    .said(f"The first {HEADERS}, {KEY_BYTES // 2} bytes of each value.")
    .of(_of("headers")),
    sequence_id=COUNT.or_null().of(_of("sequence_id")),
    producer_name=TEXT.or_null().said("As its header says it; null: that of the session.").of(_of("producer_name")),
    producer_id=NUMBER.or_null().said("Of governed topics: of the node that wrote it.").of(_writer("producer_id")),
    producer_epoch=NUMBER.or_null().of(_writer("epoch")),
    generation=COUNT.or_null().said("Of the ownership, where it is the one that stands now; else null."),
)
RECORDS_PAGE: Final = page_of("Records", RECORD, Kind({"type": "null"}))
