"""A record as entries, and an entry as a sentence: who, what was asked, what was answered, in words.

What is no behaviour but helps to understand it (requests, the steps of the history) is told as well. What cannot be
decoded is shown as bytes: a sentence never fails.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf import text_format

from sidecar.protocol.errors import ErrorCode
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state
from tests.sim import wire
from tests.sim.behaviour.recorder import CUT
from tests.sim.kafka import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ASKED: Final = "asked"
ANSWER: Final = "answer"
RECORD: Final = "record"
SCRIPT: Final = "script"
_OPERATOR: Final = "operator"
_OWN: Final[dict[int, tuple[str, Any, Any]]] = {
    wire.OWN: ("Own", control.OwnRequest, control.OwnResponse),
    wire.RELEASE: ("Release", control.ReleaseRequest, control.ReleaseResponse),
    wire.DESCRIBE_OWNERS: ("DescribeOwners", control.DescribeOwnersRequest, control.DescribeOwnersResponse),
    wire.LAST_SEQUENCE: ("LastSequence", control.LastSequenceRequest, control.LastSequenceResponse),
    wire.WATCH: ("Watch", control.WatchRequest, control.WatchResponse),
}
_INTERNAL: Final = "__sidecar_"
_HEAD: Final = Struct(">hhih")
_BATCH: Final = Struct(">qiibIhiqqqhii")
_MARKER: Final = Struct(">hh")
_CONTROL: Final = 0x20
_SHOWN: Final = 400
_IN_CONTEXT: Final = 260
_RECORDS_SHOWN: Final = 4
_ENDS: Final = 3
"""Ends of connections that a story tells, beside its other entries."""
_LOOK_UPS: Final = (wire.METADATA, 10, 18)
"""Metadata, FindCoordinator, ApiVersions."""
_UNKNOWN: Final = (("throttle_time_ms", 0), ("base_offset", -1), ("log_append_time_ms", -1), ("log_start_offset", -1))
_KEY_PREFIX: Final = re.compile(r"^sidecar:\{\w*\}:")
_TOPIC: Final = re.compile(r"[\w.-]+")


class Entry(NamedTuple):
    """One line of a record. `at`: microseconds since the history began; `what` is the rest of the line, with who."""

    at: int
    kind: str
    what: tuple[Any, ...]

    @property
    def subject(self) -> tuple[Any, ...]:
        """A client and its connection, a partition, or a node and its script."""
        return self.kind, *self.what[:2]

    @property
    def content(self) -> tuple[str, tuple[Any, ...]]:
        """Everything but the moment."""
        return self.kind, self.what


@dataclass(frozen=True, slots=True)
class Record:
    """Of one seed. `entries` without the requests, which are in `asked`; `steps`: of the history, at which moment."""

    history: tuple[str, ...]
    wrong: tuple[str, ...]
    entries: tuple[Entry, ...]
    asked: tuple[Entry, ...]

    @property
    def steps(self) -> Iterator[tuple[int, str]]:
        """What the history has happen when."""
        for line in self.history[1:]:
            at, _, rest = line.strip().partition(" ")
            yield round(float(at) * 1e6), " ".join(rest.split())


def parse(data: bytes) -> Record:
    """The lines of a recorder."""
    head, *lines = map(json.loads, data.decode().split("\n"))
    all_of_them = [Entry(at, kind, _frozen(what)) for at, kind, *what in lines]
    return Record(
        tuple(head["history"]),
        tuple(head["wrong"]),
        tuple(entry for entry in all_of_them if entry.kind != ASKED),
        tuple(entry for entry in all_of_them if entry.kind == ASKED),
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


# Sentences ----------------------------------------------------------------------------------------------------------


class Teller:
    """Makes sentences of the entries of one record."""

    def __init__(self, record: Record) -> None:
        self._requests = {(*entry.what[:2], entry.what[3][4:8]): entry for entry in record.asked if entry.what[3]}
        """By client, connection and correlation id."""

    def request(self, answer: Entry) -> Entry | None:
        """What an answer is the answer to."""
        if answer.kind != ANSWER or not isinstance(answer.what[3], str):
            return None
        return self._requests.get((*answer.what[:2], answer.what[3][:4]))

    def sentence(self, entry: Entry) -> str:
        """What happened."""
        what = entry.what
        match entry.kind:
            case "asked" if what[3] is None:
                return f"{what[0]} closed connection {what[1]} to {what[2]}"
            case "asked":
                return f"{what[0]} asks {what[2]} on connection {what[1]}: {_asked(_data(what[3]))}"
            case "answer" if what[0] == _OPERATOR:
                return f"an operator at {what[2]} is answered to '{what[3][0]}': {what[3][1]}"
            case "answer" if what[3] is None:
                return f"{what[0]} hears that connection {what[1]} to {what[2]} ended"
            case "answer":
                return f"{what[2]} answers {what[0]} on connection {what[1]}: {self._answered(entry)}"
            case "record":
                return f"{what[0]}/{what[1]} gets at offset {what[2]}: {batches(_data(what[3]), what[0])}"
            case _:
                return _script(*what)

    def label(self, entry: Entry) -> str:
        """The sort of an entry in few words, for counting."""
        what = entry.what
        match entry.kind:
            case "record":
                return f"record of {what[0] if what[0].startswith(_INTERNAL) else 'a topic'}: {_sort(_data(what[3]))}"
            case "script":
                return f"script {what[1]}"
            case "answer" if what[0] == _OPERATOR:
                return f"answer to an operator: {what[3][0]}"
            case "answer" if what[3] is None:
                return "connection ended"
            case _:
                request = self.request(entry) if entry.kind == ANSWER else entry
                return "answer" if request is None else f"answer to {_api(_data(request.what[3]))}"

    def is_noise(self, entry: Entry) -> bool:
        """Whether it says little of what follows: a look for leaders, an event of what another record says, a script
        that wrote nothing, heartbeats.
        """
        what = entry.what
        match entry.kind:
            case "record":
                return what[0].endswith("_events")
            case "script":
                return what[1] == "heartbeat" or not what[3][1]
            case _:
                request = entry if entry.kind == ASKED else self.request(entry)
                data = b"" if request is None or request.what[3] is None else _data(request.what[3])
                return len(data) >= _HEAD.size and _HEAD.unpack_from(data)[0] in _LOOK_UPS

    def topics(self, entry: Entry, known: set[str]) -> set[str]:
        """Those of the known ones that an entry, or its request, names."""
        if entry.kind == RECORD and not entry.what[0].startswith(_INTERNAL):
            return {entry.what[0]}
        request = self.request(entry)
        text = json.dumps(entry.what) + ("" if request is None else json.dumps(request.what))
        return known.intersection(_TOPIC.findall(re.sub(r"\\u00..|\\[a-z]", " ", text)))

    def _answered(self, entry: Entry) -> str:
        request, data = self.request(entry), _data(entry.what[3])
        if request is None:
            return _short(data)
        frame = _data(request.what[3])
        key, version = _HEAD.unpack_from(frame)[:2]

        def decoded() -> str:
            if key in _OWN:
                return _message(_OWN[key][2].FromString(data[4:]))
            message = tables.MESSAGES[key]
            return _values(message.decode_answer(b"\0\0\0\0" + data, 0, len(data) + 4, version))

        return f"{_tried(decoded, data)}, to {_api(frame)} of {request.at / 1e6:.4f}"


def _script(node: str, name: str, arguments: tuple[str, ...], outcome: tuple[str, tuple[tuple[str, ...], ...]]) -> str:
    """Without its keys, which are the same for every call."""
    given = arguments[1 + int(arguments[0]) :] if arguments and arguments[0].isdigit() else arguments
    text = " ".join(repr(part) if not part or " " in part else part for part in given)
    parts = [line for line in outcome[0].split("\r\n") if line[:1] not in ("*", "$") or line == "$-1"]
    reply = " ".join("nil" if part == "$-1" else part or "''" for part in parts[:-1]) or "nothing"
    writes = "; ".join(" ".join(_KEY_PREFIX.sub("", part) for part in write) for write in outcome[1]) or "nothing"
    return f"{node} runs {name} in Redis with {text}: it replies {reply}, and writes {writes}"


def _data(text: str) -> bytes:
    """As far as it was kept."""
    return text.partition(CUT)[0].encode("latin-1")


def _short(data: bytes) -> str:
    return f"{len(data)} bytes {data[:40].hex()}{'…' if len(data) > 40 else ''}"


def _tried(work: Callable[[], str], data: bytes) -> str:
    try:
        text = work()
    except Exception:  # noqa: BLE001 - whatever a mistake of the product put there, it has to be shown
        return _short(data)
    return _cut(text, _SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _is_end(entry: Entry, clients: set[str]) -> bool:
    """Whether a connection of one of these clients ended."""
    return entry.kind in (ANSWER, ASKED) and entry.what[3] is None and entry.what[0] in clients


def _api(frame: bytes) -> str:
    key, version = _HEAD.unpack_from(frame)[:2]
    return _OWN[key][0] if key in _OWN else f"{tables.name_of(key)} v{version}"


def _asked(frame: bytes) -> str:
    key, version, _, size = _HEAD.unpack_from(frame)
    body = _HEAD.size + max(0, size)

    def decoded() -> str:
        if key in _OWN:
            return _message(_OWN[key][1].FromString(frame[body:]))
        return _values(tables.MESSAGES[key].decode_request(frame, body, len(frame), version))

    return f"{_api(frame)} {_tried(decoded, frame[body:])}"


def _message(message: Any) -> str:
    return text_format.MessageToString(message, as_one_line=True) or "nothing"


def _values(values: Any, name: str = "") -> str:
    if isinstance(values, dict):
        parts = [
            (key, value) for key, value in values.items() if value not in (None, "", b"", [], {}) and key != "tags"
        ]
        return " ".join(f"{key}={_values(value, key)}" for key, value in parts if (key, value) not in _UNKNOWN)
    if isinstance(values, list):
        return "[" + ", ".join(_values(value, name) for value in values) + "]"
    if name == "error_code":
        known = values in ErrorCode._value2member_map_
        return f"{values} {ErrorCode(values).name}" if known else str(values)
    if isinstance(values, (bytes, bytearray, memoryview)):
        data = bytes(values)
        return f"({batches(data)})" if name == "records" else data.hex()[:32]
    return str(values)


# Record batches ---------------------------------------------------------------------------------------------------


def batches(data: bytes, topic: str = "") -> str:
    """Some batches, one behind the other."""
    found, at = list[str](), 0
    while at + _BATCH.size <= len(data):
        fields = _BATCH.unpack_from(data, at)
        end = at + 12 + fields[1]
        found.append(_batch(fields, data[at:end], topic))
        at = end
    return "; ".join(found) or _short(data)


def _batch(fields: tuple[Any, ...], data: bytes, topic: str) -> str:
    attributes, count, base = fields[5], fields[12], fields[0]
    by = f"producer {fields[9]} epoch {fields[10]}"
    if attributes & _CONTROL:
        return f"{_sort(data)} of {by}"
    text = f"{count} records at {base} by {by} from sequence {fields[11]}"
    return f"{text}: {_tried(lambda: _records(data, topic), data)}"


def _records(data: bytes, topic: str) -> str:
    records = wire.records_of(data)
    shown = [_record(record, topic) for record in records[:_RECORDS_SHOWN]]
    return ", ".join([*shown, *(("…",) if len(records) > _RECORDS_SHOWN else ())])


def _record(record: wire.Record, topic: str) -> str:
    key = "" if record.key is None else record.key.decode("latin-1")
    kind = _kind(key, topic)
    if kind is not None:
        return f"{key} {{{_message(kind.FromString(record.value)) if record.value else 'a tombstone'}}}"
    headers = "".join(f" {name.decode('latin-1')}={value.decode('latin-1')}" for name, value in record.headers)
    value = record.value[:40].decode("latin-1")
    return f"{key + ': ' if key else ''}{value}{'…' if len(record.value) > 40 else ''}{headers}"


def _kind(key: str, topic: str) -> Any:
    if not topic.startswith(_INTERNAL):
        return None
    if topic.endswith("_snapshots"):
        return state.Snapshot
    if topic.endswith("_events"):
        return state.Event
    return getattr(state, key.partition("/")[0].title().replace("-", ""), None)


def _sort(data: bytes) -> str:
    """Of a batch: data, a marker, or the kind of record of an internal topic."""
    if len(data) < _BATCH.size:
        return "data"
    if _BATCH.unpack_from(data)[5] & _CONTROL:
        at = _BATCH.size + 4  # length, attributes, two deltas, and the key's length are a byte each
        kind = _MARKER.unpack_from(data, at + 1)[1]
        return {0: "an abort marker", 1: "a commit marker"}.get(kind, "a marker")

    def labels() -> str:
        keys = (record.key or b"" for record in wire.records_of(data))
        return " and ".join(sorted({key.decode("latin-1").partition("/")[0] for key in keys if b"/" in key})) or "data"

    return _tried(labels, b"")


def context(tell: Teller, record: Record, of: Entry, before: Sequence[Entry], most: int) -> Iterator[tuple[int, str]]:
    """The last entries before `of` about its client or its topics, as sentences; with steps of the history."""
    known = {entry.what[0] for entry in record.entries if entry.kind == RECORD} - {""}
    known = {name for name in known if not name.startswith(_INTERNAL)}
    topics, who = tell.topics(of, known), of.what[0] if of.kind == ANSWER else ""
    first = before[0].at if before else 0
    happened = sorted([*before, *(entry for entry in record.asked if first <= entry.at <= of.at)], key=lambda e: e.at)
    related = [
        entry
        for entry in happened
        if entry != of
        and not tell.is_noise(entry)
        and ((who and entry.kind in (ANSWER, ASKED) and entry.what[0] == who) or topics & tell.topics(entry, known))
    ]
    clients = {who, *(entry.what[0] for entry in related if entry.kind in (ANSWER, ASKED))}
    told = related[-most:]
    told += [entry for entry in happened if _is_end(entry, clients) and entry not in told][-_ENDS:]
    told_at = [(entry.at, _cut(tell.sentence(entry), _IN_CONTEXT)) for entry in told]
    steps = [(at, f"the history: {text}") for at, text in record.steps if at <= of.at]
    yield from sorted([*told_at, *steps[-3:]])
