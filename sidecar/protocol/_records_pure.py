"""The walk through the records of a batch in Python, used if `_records.pyx` could not be compiled.

Both have the same results, the same refusals and the same texts; `sidecar.protocol.records` chooses one, and its tests
compare them. A record (KIP-98, headers since KIP-82) is: length, attributes (one byte), timestamp
delta (varlong), offset delta, key, value, number of headers, then key and value of each. Lengths and deltas are zigzag
varints; a negative length of a key or a value is null, of a header's key an error, as in Kafka's `DefaultRecord`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.primitives import Octets

NONE: Final = 0
RISING: Final = 1
OTHER: Final = 2
LARGEST_ID: Final = 2**63 - 1
_MOST_DIGITS: Final = 19
MOST_VALUES: Final = 2
"""How many values of one header are returned per record: enough to see that there is more than one."""

RUNS_OVER: Final = 0
LONG_VARINT: Final = 1
NOT_DENSE: Final = 2
NEGATIVE_HEADERS: Final = 3
NEGATIVE_HEADER_KEY: Final = 4
TOO_LONG: Final = 5
BEHIND: Final = 6
NO_RECORDS: Final = 7
_REASONS: Final = (
    "runs over its end",
    "holds a varint of too many bytes",
    "has another offset delta",
    "has a negative number of headers",
    "has a header whose key has a negative length",
    "is longer than what it holds",
    "follows, and the batch does not count it",
    "is missing: the batch counts none",
)

LONGEST_NAME_BYTES: Final = 255

KEY: Final = 1
VALUE: Final = 2
HEADERS: Final = 4
"""The fields of a record that `unpack` shall return, as bits."""

_Each = tuple[int, int, int, int, tuple[bytes | None, ...], tuple[bytes | None, ...]]

Values = tuple[tuple[bytes | None, ...], tuple[bytes | None, ...]]
"""The values of a record's id headers, and of its name headers."""
Walked = tuple[int, int, int, int, int | None, bytes | None, Values | None]
"""Start (of the length), end, timestamp delta, offset delta, sequence id, name, values. The values are there only for a
record with a header that may be bad; its id and name are then None.
"""

Lists = tuple[list[Any], ...]
"""The lists to which `unpack` appends: offset deltas, timestamp deltas, keys, values, numbers of headers, keys of
headers, values of headers, sequence ids, names; then (index, values) of each record whose id or name may be bad.
"""


def refuse(reason: int, index: int) -> NoReturn:
    """Raise the error that a client gets for a section that does not parse; `index` counts records from 0."""
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record {index} {_REASONS[reason]}")


def summarise(
    records: Octets, count: int, id_header: bytes, name_header: bytes, dense: bool = True
) -> tuple[int, int, int]:
    """Kind, first and last id: see `sidecar.protocol.records.summarise`."""
    kind = NONE
    first = last = -1
    for index, (_, _, _, _, ids, names) in enumerate(each(records, count, id_header, name_header, dense)):
        found = id_of(ids[0]) if len(ids) == 1 and not names else -1
        if found >= 0 and (found > last if kind == RISING else kind == NONE and not index):
            first = first if index else found
            kind, last = RISING, found
        elif ids or names or kind == RISING:
            kind = OTHER
    return (kind, first, last) if kind == RISING else (kind, -1, -1)


def id_of(value: bytes | None) -> int:
    """A sequence id, 0 to 2^63 - 1 in ASCII decimal, or -1. Leading zeros are valid; signs, blanks and `_` are not."""
    if not value or not value.isdigit():
        return -1
    digits = value.lstrip(b"0")
    if len(digits) > _MOST_DIGITS:
        return -1
    found = int(digits or b"0")
    return found if found <= LARGEST_ID else -1


def walk(
    records: Octets, count: int, id_header: bytes, name_header: bytes, dense: bool = True, own: bytes | None = None
) -> list[Walked]:
    """Return each record of the section; `own` is the name of records without a name header."""
    return [
        (start, end, timestamp_delta, offset_delta, *_plain(ids, names, own))
        for start, end, timestamp_delta, offset_delta, ids, names in each(records, count, id_header, name_header, dense)
    ]


def newest(records: Octets, count: int, base: int) -> int:
    """The highest of `base` and a record's timestamp delta, added as Java adds: a hostile delta wraps around."""
    walked = each(records, count, b"", b"", False)
    return max((base + delta + 2**63) % 2**64 - 2**63 for _, _, delta, *_ in walked)


def _plain(
    ids: tuple[bytes | None, ...], names: tuple[bytes | None, ...], own: bytes | None
) -> tuple[int | None, bytes | None, Values | None]:
    if not ids and not names:
        return None, own, None
    sequence_id = id_of(ids[0]) if len(ids) == 1 else None
    name = names[0] if names else own
    is_plain = sequence_id != -1 and len(ids) < MOST_VALUES and (not names or _is_plain_name(names))
    return (sequence_id, name, None) if is_plain else (None, None, (ids, names))


def _is_plain_name(names: tuple[bytes | None, ...]) -> bool:
    """Whether the name is surely valid; for other names `sidecar.protocol.records` finds the fault, if any."""
    name = names[0]
    return len(names) == 1 and name is not None and 0 < len(name) <= LONGEST_NAME_BYTES and name.isascii()


def is_name(value: bytes | None) -> bool:
    """Whether this is a producer name: UTF-8 of 1 to 255 bytes."""
    if not value or len(value) > LONGEST_NAME_BYTES:
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


Stretch = tuple[bytes | None, int, int, int, int, int, int, int, int, int]
"""Name, records, ids, malformed ones; then the first and the last of: id, offset delta, timestamp delta."""


def stretches(records: Octets, count: int, id_header: bytes, name_header: bytes, low: int, high: int) -> list[Stretch]:
    """See `sidecar.protocol.stretches.stretches`."""
    done: list[Stretch] = []
    of, inside, ids, bad, first, last, begins, starts, ends, stops = None, 0, 0, 0, -1, -1, 0, 0, 0, 0
    for _, _, time, delta, id_values, names in each(records, count, id_header, name_header, dense=False):
        if not low <= delta <= high:
            continue
        name = names[0] if len(names) == 1 and is_name(names[0]) else None
        found = id_of(id_values[0]) if len(id_values) == 1 else -1
        is_bad = (found < 0 and bool(id_values)) or (name is None and bool(names))
        breaks = bad == inside or (found <= last or inside > ids + bad if id_values else ids > 0)
        if inside and (name != of or (breaks and not is_bad)):
            done.append((of, inside, ids, bad, first, last, begins, ends, starts, stops))
            inside = 0
        if not inside:
            of, ids, bad, first, last, begins, starts = name, 0, 0, -1, -1, delta, time
        inside, ends, stops = inside + 1, delta, time
        if is_bad:
            bad += 1
        elif id_values:
            first, last, ids = first if ids else found, found, ids + 1
    if inside:
        done.append((of, inside, ids, bad, first, last, begins, ends, starts, stops))
    return done


def unpack(
    records: Octets,
    count: int,
    id_header: bytes,
    name_header: bytes,
    low: int,
    high: int,
    wanted: int,
    into: Lists,
    most_headers: int,
) -> None:
    """See `sidecar.protocol.stretches.unpack`."""
    deltas, times, keys, values, header_counts, header_keys, header_values, sequence_ids, its_names, doubtful = into
    data = bytes(records)
    for start, end, time, delta, ids, names in each(records, count, id_header, name_header, dense=False):
        if not low <= delta <= high:
            continue
        sequence_id, name, rest = _plain(ids, names, None)
        if rest is not None:
            doubtful.append((len(deltas), rest))
        deltas.append(delta)
        times.append(time)
        sequence_ids.append(sequence_id)
        its_names.append(name)
        at = _behind_varint(data, _behind_varint(data, _behind_varint(data, start) + 1))
        key, at = _bytes(data, at, end)
        value, at = _bytes(data, at, end)
        if wanted & KEY:
            keys.append(key)
        if wanted & VALUE:
            values.append(value)
        if wanted & HEADERS:
            headers, at = _varint(data, at, end, 0)
            headers = min(headers, most_headers)
            header_counts.append(headers)
            for _ in range(headers):
                key, at = _bytes(data, at, end)
                value, at = _bytes(data, at, end)
                header_keys.append(key)
                header_values.append(value)


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, begins, at = _field(data, at, end, 0)
    return (None if size < 0 else data[begins:at]), at


def renumber(records: Octets, places: Sequence[tuple[Any, ...]]) -> bytearray:
    """Return the records at `places` of a section, one after the other, with the offset deltas 0 to n - 1."""
    out, data = bytearray(), bytes(records)
    for index, (start, end, *_) in enumerate(places):
        body = _behind_varint(data, start)
        delta_at = _behind_varint(data, body + 1)
        rest_at = _behind_varint(data, delta_at)
        delta = _to_varint(index)
        out += _to_varint(delta_at - body + len(delta) + end - rest_at)
        out += data[body:delta_at]
        out += delta
        out += data[rest_at:end]
    return out


def _behind_varint(data: bytes, at: int) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _to_varint(value: int) -> bytes:
    """The zigzag varint of a value of 0 or more."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def each(records: Octets, count: int, id_header: bytes, name_header: bytes, dense: bool) -> Iterator[_Each]:
    """Yield record by record; the next one is not read before the caller asks for it."""
    data = bytes(records)
    section = len(data)
    at = 0
    if count <= 0:
        refuse(NO_RECORDS, 0)
    for index in range(count):
        start = at
        size, at = _varint(data, at, section, index)
        end = at + size
        if size <= 0 or end > section:
            refuse(RUNS_OVER, index)
        timestamp_delta, at = _varlong(data, at + 1, end, index)
        offset_delta, at = _varint(data, at, end, index)
        if dense and offset_delta != index:
            refuse(NOT_DENSE, index)
        _, _, at = _field(data, at, end, index)  # key
        _, _, at = _field(data, at, end, index)  # value
        headers, at = _varint(data, at, end, index)
        if headers < 0:
            refuse(NEGATIVE_HEADERS, index)
        ids, names, at = _headers(data, at, end, index, headers, (id_header, name_header))
        if at != end:
            refuse(TOO_LONG, index)
        yield start, end, timestamp_delta, offset_delta, ids, names
    if at != section:
        refuse(BEHIND, count)


def _headers(
    data: bytes, at: int, end: int, index: int, count: int, wanted: tuple[bytes, bytes]
) -> tuple[tuple[bytes | None, ...], tuple[bytes | None, ...], int]:
    """The values of the wanted headers, and where the last header ends."""
    ids: tuple[bytes | None, ...] = ()
    names: tuple[bytes | None, ...] = ()
    id_header, name_header = wanted
    for _ in range(count):
        size, key_at, at = _field(data, at, end, index)
        if size < 0:
            refuse(NEGATIVE_HEADER_KEY, index)
        key = data[key_at:at]
        size, value_at, at = _field(data, at, end, index)
        if key == id_header:
            if len(ids) < MOST_VALUES:
                ids = (*ids, data[value_at:at] if size >= 0 else None)
        elif key == name_header and len(names) < MOST_VALUES:
            names = (*names, data[value_at:at] if size >= 0 else None)
    return ids, names, at


def _field(data: bytes, at: int, end: int, index: int) -> tuple[int, int, int]:
    """A field after its size: that size, where it begins and where it ends. A negative size is null: no bytes."""
    if at < end and (raw := data[at]) < 0x80:
        size = (raw >> 1) ^ -(raw & 1)
        at += 1
    else:
        size, at = _varint(data, at, end, index)
    if size <= 0:
        return size, at, at
    if size > end - at:
        refuse(RUNS_OVER, index)
    return size, at, at + size


def _varint(data: bytes, at: int, end: int, index: int) -> tuple[int, int]:
    """A zigzag varint of up to 5 bytes and where it ends. Bits beyond 32 are dropped, as in `ByteUtils.readVarint`."""
    if at < end and (raw := data[at]) < 0x80:
        return (raw >> 1) ^ -(raw & 1), at + 1
    raw, at = _uvarint(data, at, end, index, 35)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), at


def _varlong(data: bytes, at: int, end: int, index: int) -> tuple[int, int]:
    """As `_varint`, of up to 10 bytes and 64 bits."""
    raw, at = _uvarint(data, at, end, index, 70)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), at


def _uvarint(data: bytes, at: int, end: int, index: int, most_bits: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, most_bits, 7):
        if at >= end:
            refuse(RUNS_OVER, index)
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at
    refuse(LONG_VARINT, index)
