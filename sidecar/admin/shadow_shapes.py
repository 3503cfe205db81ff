"""The shapes of REST for shadow topics, their cursors and numbers, and for logs of topics, and the parsing of request
bodies. Pure.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, cast

from sidecar.admin.faults import (
    HIGHEST,
    LAST_PARTITION,
    TOPIC_PATTERN,
    ShapeError,
    check_known,
    is_topic,
    quoted,
    whole_number,
)
from sidecar.admin.fields import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    Component,
    Kind,
    Shape,
    by_key,
    list_of,
    one_of,
    page_of,
)
from sidecar.cluster.logs import HEADERS, KEY_BYTES, VALUE_BYTES, CutBytes, LastRecord
from sidecar.node.port import ShadowState
from sidecar.protocol.calls.logs import OffsetAt
from sidecar.shadow.catalog import ENTRIES, PRINCIPAL_BYTES
from sidecar.shadow.cursor_room import Numbers
from sidecar.shadow.cursors import AtOffset, AtTime, Target

_LAST_MS: Final = int(datetime.max.replace(tzinfo=UTC).timestamp() * 1000)
_TARGETS: Final = '"earliest", "latest", {"timestamp": "2026-01-31T12:00:00Z"} or {"offset": 42}'
_PRINCIPALS: Final = 'allow has to be a list of principals such as ["User:*"]'
NAMES: Final = 1_000
"""The most shadows in one list of Pulsar's."""
SOURCE_PROPERTY: Final = "PULSAR.SHADOW_SOURCE"
"""The property in which Pulsar's tools look for the source of a shadow."""

_ALLOW: Final = Kind({**list_of(Kind({**TEXT.schema, "maxLength": PRINCIPAL_BYTES})).schema, "maxItems": ENTRIES}, list)
_BACKLOG: Final = COUNT.said("Cursors that more records lie behind are reset to the end; 0: never.", maximum=HIGHEST)


def _lag(name: str) -> Callable[[Numbers], int | None]:
    return lambda numbers: None if numbers.lag is None else getattr(numbers.lag, name)


SHADOW_STATS: Final = Shape(
    "ShadowStats",
    readers=NUMBER.said("Connections to this node that read it in the last 30 s.").of("reading.readers"),
    bytes=NUMBER.said("Of records, given to readers by this node since it started.").of("reading.record_bytes"),
    last_read=TIME.or_null().of(lambda numbers: numbers.reading.last_read_ms or None),
    cursor_resets=NUMBER.said("By this node, as cursors fell too far behind.").of("resets"),
    groups=NUMBER.or_null().said("With a cursor, in the whole cluster; null where it is not known.").of(_lag("groups")),
    total_lag=NUMBER.or_null().of(_lag("total")),
    max_lag=NUMBER.or_null().said("Of the group that is furthest behind.").of(_lag("longest")),
)
SHADOW: Final = Shape(
    "Shadow",
    "`stats` only of one shadow that is asked for.",
    name=TEXT,
    source=TEXT,
    allow=_ALLOW,
    created=TIME.of("created_ms"),
    is_made=FLAG,
    auto_reset_backlog_entries=_BACKLOG,
    state=one_of(ShadowState),
    reason=TEXT.or_null().said("Why it is closed, and what to do.").of(lambda shadow: shadow.closed or None),
    warning=TEXT.or_null().said("Why none of the clients that can connect may read it."),
    stats=SHADOW_STATS.kind.or_absent(),
)
SHADOWS: Final = page_of("Shadows", SHADOW)
CHANGE: Final = Shape("ShadowChange", allow=_ALLOW.or_absent(), auto_reset_backlog_entries=_BACKLOG.or_absent())
NEW_SHADOW: Final = Shape("NewShadow", name=Kind({**TEXT.schema, "pattern": TOPIC_PATTERN}), **CHANGE.fields)
SHADOW_NAMES: Final = Component("ShadowNames", list_of(TEXT).schema)
WANTED_SHADOWS: Final = Component(
    "WantedShadows",
    {
        "type": "array",
        "items": {
            "type": "string",
            "pattern": rf"^((persistent://)?[^/]+/[^/]+/)?{TOPIC_PATTERN[1:]}",
            "description": "`orders-audit`, or `persistent://tenant/namespace/orders-audit`.",
        },
        "minItems": 1,
        "maxItems": NAMES,
    },
)
PULSAR_PROPERTIES: Final = Shape("PulsarProperties", **{SOURCE_PROPERTY: TEXT.or_absent()})
_POSITION: Final = Shape("CursorPosition", offset=NUMBER, end=NUMBER, lag=NUMBER)
CURSOR: Final = Shape(
    "Cursor",
    group=TEXT,
    state=TEXT,
    members=NUMBER,
    lag=NUMBER,
    partitions=by_key(_POSITION.inline),
)
CURSORS: Final = page_of("Cursors", CURSOR)
_TARGET: Final = Kind(
    {
        "oneOf": [
            {"type": "string", "enum": ["earliest", "latest"]},
            Shape("Timestamp", timestamp=TIME).schema,
            Shape("Offset", offset=Kind({**COUNT.schema, "maximum": HIGHEST})).schema,
        ]
    }
)
_PARTITIONS: Final = Kind(
    {"type": "array", "items": {**COUNT.schema, "maximum": LAST_PARTITION}, "minItems": 1, "description": "null: all"}
)
RESET: Final = Shape("CursorReset", to=_TARGET, partitions=_PARTITIONS.or_null().or_absent())


def shadow_from_json(body: object) -> tuple[str, list[str] | None, int]:
    """Name, allow list (None: absent) and backlog limit of a shadow to be created. Raises ShapeError."""
    if not isinstance(body, dict) or not isinstance(name := body.get("name"), str):
        raise ShapeError('the body has to be a JSON object such as {"name": "orders-audit", "allow": ["User:*"]}')
    check_known(body, NEW_SHADOW.fields)
    if not is_topic(name):
        raise ShapeError(f"{quoted(name)} is no name for a topic: 1 to 249 of a-z A-Z 0-9 . _ -")
    allow, limit = body.get("allow"), body.get("auto_reset_backlog_entries")
    return name, None if allow is None else _allow(allow), 0 if limit is None else _backlog(limit)


def change_from_json(body: object) -> tuple[list[str] | None, int | None]:
    """The changes of a shadow: allow list and backlog limit, None if unchanged. Raises ShapeError."""
    if not isinstance(body, dict) or not body:
        raise ShapeError(
            'the body has to be a JSON object such as {"allow": ["User:*"], "auto_reset_backlog_entries": 100000}'
        )
    check_known(body, CHANGE.fields)
    return (
        _allow(body["allow"]) if "allow" in body else None,
        _backlog(body["auto_reset_backlog_entries"]) if "auto_reset_backlog_entries" in body else None,
    )


def _allow(found: Any) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in cast("list[object]", found)):
        raise ShapeError(f"{_PRINCIPALS}; an empty one means nobody")
    return found


def _backlog(found: Any) -> int:
    limit = whole_number(found)
    if limit is None:
        raise ShapeError(f"auto_reset_backlog_entries has to be a number of records, 0 for never, not {quoted(found)}")
    return limit


def reset_from_json(body: object) -> tuple[Target, list[int] | None]:
    """The target of a cursor, and its partitions (None: all). Raises ShapeError."""
    if not isinstance(body, dict) or "to" not in body:
        raise ShapeError(f'the body has to be a JSON object such as {{"to": "latest"}}; "to" is one of {_TARGETS}')
    check_known(body, RESET.fields)
    return _target(body["to"]), _partitions(body.get("partitions"))


def _target(to: Any) -> Target:
    match to:
        case "earliest" | "latest":
            return OffsetAt.EARLIEST if to == "earliest" else OffsetAt.LATEST
        case {"offset": said, **more} if not more and (offset := whole_number(said)) is not None:
            return AtOffset(offset)
        case {"timestamp": str(text), **more} if not more:
            return AtTime(_milliseconds(text))
        case _:
            raise ShapeError(f"to has to be {_TARGETS}, not {quoted(to)}")


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ShapeError(f"{quoted(text)} is no time of RFC 3339 with its zone, such as 2026-01-31T12:00:00Z")
    found = int(at.timestamp() * 1000)
    if not 0 <= found <= _LAST_MS:
        raise ShapeError(f"{quoted(text)} is before 1970 or after 9999 in UTC: Kafka knows no such time")
    return found


def _partitions(found: Any) -> list[int] | None:
    if found is None:
        return None
    numbers = [whole_number(each) for each in cast("list[object]", found)] if isinstance(found, list) else []
    partitions = [number for number in numbers if number is not None and number <= LAST_PARTITION]
    if not partitions or len(partitions) != len(numbers):
        raise ShapeError(f"partitions has to be a list of partition numbers such as [0, 3], not {quoted(found)}")
    return partitions


RECORDS: Final = 20
"""The default number of records in one answer."""
MOST_RECORDS: Final = 100
_LAST_TIME_MS: Final = 253_402_300_799_999
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
    """The beginning of some bytes in a readable form."""
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
    """Unix ms of a record, None if it is out of the calendar's range: a client may set any number."""
    found = shown.record.timestamp_ms
    return found if 0 <= found <= _LAST_TIME_MS else None


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
