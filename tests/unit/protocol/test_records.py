"""Records in batches of other libraries: ids found, sections refused as Kafka refuses them, batches made smaller.

Everything runs twice, in Python and compiled; and what one of them says of any bytes, the other says too.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sidecar.protocol import _records_pure as pure
from sidecar.protocol import records
from sidecar.protocol.batch import HEADER_BYTES, NO_TIME, crc_matches, read_header, stamp, surely_newest
from sidecar.protocol.compiled import PURE
from sidecar.protocol.compression import decompress
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.records import Kind, RecordIds, Summary
from tests.unit.protocol import kafka_python

try:
    from sidecar.protocol import _records as compiled
except ImportError:
    compiled = None

ROOT = Path(__file__).parents[3]
ID = b"sidecar-sequence-id"
NAME = b"sidecar-producer-name"
NOW = 1_700_000_000_000
LARGEST = 2**63 - 1
WALKERS = {"pure": pure, "compiled": compiled}
needs_both = pytest.mark.skipif(compiled is None, reason="the twin was not compiled: no Cython or no C compiler")


@pytest.fixture(params=WALKERS, autouse=True)
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    chosen = WALKERS[request.param]
    if chosen is None:
        pytest.skip("the twin was not compiled: no Cython or no C compiler")
    monkeypatch.setattr(records, "_walker", chosen)
    return chosen


class Written(NamedTuple):
    """A record as it is given to an encoder."""

    headers: Sequence[tuple[str, bytes | None]] = ()
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    timestamp: int = NOW


def with_ids(*ids: int | str | bytes | None, more: Sequence[tuple[str, bytes | None]] = ()) -> list[Written]:
    return [Written([(ID.decode(), number(sequence_id)), *more]) for sequence_id in ids]


def number(sequence_id: int | str | bytes | None) -> bytes | None:
    return str(sequence_id).encode() if isinstance(sequence_id, int | str) else sequence_id


BUILDERS: dict[str, Any] = {
    "aiokafka": DefaultRecordBatchBuilder,
    "kafka-python": kafka_python.DefaultRecordBatchBuilder,
}


def built(written: Sequence[Written], codec: int = 0, library: str = "aiokafka") -> bytes:
    builder = BUILDERS[library](2, codec, False, 4711, 5, 77, 10_000_000)
    for offset, record in enumerate(written):
        assert builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def opened(batch: bytes | bytearray) -> tuple[bytes, int]:
    """The uncompressed section of a batch, and how many records it counts."""
    header = read_header(batch, 0, len(batch))
    section = decompress(header.attributes & 7, memoryview(batch)[HEADER_BYTES:], 10_000_000)
    return bytes(section), header.records


def summary(written: Sequence[Written], **how: Any) -> Summary:
    return records.summarise(*opened(built(written, **how)), ID, NAME)


def each(written: Sequence[Written], **how: Any) -> list[RecordIds]:
    return records.each(*opened(built(written, **how)), ID, NAME)


# Summaries ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", BUILDERS)
@pytest.mark.parametrize("codec", range(5))
def test_rising_ids_are_told_by_the_first_and_the_last(library: str, codec: int) -> None:
    written = with_ids(*range(10, 500, 7), more=[("trace", b"x" * 40), ("empty", b""), ("null", None)])
    batch = built(written, codec, library)
    assert read_header(batch, 0, len(batch)).attributes & 7 == codec
    assert records.summarise(*opened(batch), ID, NAME) == (Kind.RISING, 10, 493)


@pytest.mark.parametrize("library", BUILDERS)
def test_records_without_either_header_have_no_ids(library: str) -> None:
    others = [("sidecar-sequence", b"1"), ("sidecar-sequence-id2", b"1"), ("", b"1"), ("sidecar-sequence-iD", None)]
    assert summary([Written(others), Written(), Written(key=None, value=None)], library=library) == (Kind.NONE, -1, -1)


def test_one_record_is_a_rising_row() -> None:
    assert summary(with_ids(0)) == (Kind.RISING, 0, 0)
    assert summary(with_ids(LARGEST)) == (Kind.RISING, LARGEST, LARGEST)
    assert summary(with_ids("007", "0000000000000000000000000000000000008")) == (Kind.RISING, 7, 8)


MALFORMED = ["", "+1", "-1", "-0", " 1", "1 ", "1_0", "1.0", "0x1", "a", b"\xff", "٣", LARGEST + 1, 10**19, 2**64]
MALFORMED += ["9" * 5000, None]


@pytest.mark.parametrize("wrong", MALFORMED, ids=lambda value: repr(value)[:30])
def test_an_id_that_is_no_decimal_integer_of_63_bits_is_not_rising(wrong: int | str | bytes | None) -> None:
    assert summary(with_ids(wrong)).kind == Kind.OTHER
    assert summary(with_ids(1, wrong, 3)).kind == Kind.OTHER
    assert summary(with_ids(1, 2, wrong)).kind == Kind.OTHER


@pytest.mark.parametrize("ids", [(1, 1), (2, 1), (1, 5, 4, 6), (0, 0), (LARGEST, 0)])
def test_ids_that_do_not_rise_strictly_are_not_rising(ids: tuple[int, ...]) -> None:
    assert summary(with_ids(*ids)) == (Kind.OTHER, -1, -1)


NAMED = Written([(NAME.decode(), b"me")])


@pytest.mark.parametrize(
    "written",
    [
        pytest.param([*with_ids(1), Written()], id="the second has none"),
        pytest.param([Written(), *with_ids(1)], id="the first has none"),
        pytest.param([*with_ids(1), Written(), *with_ids(2)], id="one between has none"),
        pytest.param(with_ids(1, more=[(ID.decode(), b"2")]), id="one has two"),
        pytest.param(with_ids(1, 2, more=[(NAME.decode(), b"me")]), id="each has a name"),
        pytest.param([*with_ids(1), NAMED], id="a name without an id"),
        pytest.param([NAMED, *with_ids(1)], id="a name first"),
        pytest.param([NAMED, Written()], id="a name alone"),
        pytest.param([Written([(NAME.decode(), None)])], id="a null name"),
    ],
)
def test_anything_else_has_to_be_looked_at_record_by_record(written: list[Written]) -> None:
    assert summary(written) == (Kind.OTHER, -1, -1)


def test_any_buffer_will_do() -> None:
    section, count = opened(built(with_ids(1, 2)))
    for buffer in (section, bytearray(section), memoryview(section), memoryview(b"front" + section)[5:]):
        assert records.summarise(buffer, count, ID, NAME) == (Kind.RISING, 1, 2)
        assert len(records.each(buffer, count, ID, NAME)) == 2


# Record by record -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", BUILDERS)
def test_each_record_tells_where_it_lies_and_what_it_carries(library: str) -> None:
    written = [
        *with_ids(5),
        Written(timestamp=NOW - 1000),
        *with_ids("003", more=[(NAME.decode(), "Jürgen".encode())]),
        Written([(NAME.decode(), b"n" * 255)], key=None, value=b"v" * 300, timestamp=NOW + 2**40),
    ]
    section, count = opened(built(written, library=library))
    found = records.each(section, count, ID, NAME)
    assert [(one.sequence_id, one.name, one.problem) for one in found] == [
        (5, None, None),
        (None, None, None),
        (3, "Jürgen".encode(), None),
        (None, b"n" * 255, None),
    ]
    assert [one.timestamp_delta for one in found] == [0, -1000, 0, 2**40]
    assert [one.start for one in found] == [0, *(one.end for one in found[:-1])]
    assert found[-1].end == len(section)
    assert found == [RecordIds(*one) for one in found]


PROBLEMS: list[tuple[list[tuple[bytes, bytes | None]], str]] = [
    ([(ID, b"+1")], "the sequence id '+1' is not a decimal integer"),
    ([(ID, b"")], "the sequence id '' is not a decimal integer"),
    ([(ID, b"\xd9\xa3")], r"the sequence id '\xd9\xa3' is not a decimal integer"),
    ([(ID, b"x" * 50)], f"the sequence id '{'x' * 40}'… is not a decimal integer"),
    ([(ID, b"-5")], "the sequence id '-5' is negative"),
    ([(ID, b"9223372036854775808")], "the sequence id '9223372036854775808' is larger than 2^63 - 1"),
    ([(ID, b"9" * 5000)], f"the sequence id '{'9' * 40}'… is larger than 2^63 - 1"),
    ([(ID, b"1"), (b"other", b""), (ID, b"1")], "the sequence id is given twice"),
    ([(ID, None)] * 3, "the sequence id is given twice"),
    ([(ID, None)], "the sequence id is null"),
    ([(NAME, None)], "the producer name is null"),
    ([(NAME, b"")], "the producer name is empty"),
    ([(NAME, b"n" * 256)], "the producer name is longer than 255 bytes"),
    ([(NAME, b"\xff")], "the producer name is not UTF-8"),
    ([(NAME, b"a"), (NAME, b"a")], "the producer name is given twice"),
    ([(NAME, b"a"), (NAME, b"a"), (ID, b"")], "the sequence id '' is not a decimal integer"),
]


@pytest.mark.parametrize(("headers", "problem"), PROBLEMS)
def test_what_is_wrong_with_a_record_is_said(headers: list[tuple[bytes, bytes | None]], problem: str) -> None:
    written = [Written([(key.decode(), value) for key, value in headers]), *with_ids(1)]
    first, second = each(written)
    assert (first.sequence_id, first.name, first.problem) == (None, None, problem)
    assert (second.sequence_id, second.problem) == (1, None)


def test_one_header_is_read_where_the_other_is_wrong() -> None:
    name = NAME.decode()
    assert each(with_ids(7, more=[(name, b"")]))[0][4:] == (7, None, "the producer name is empty")
    assert each(with_ids("x", more=[(name, b"me")]))[0].name == b"me"


def test_what_compaction_left_of_a_batch_is_read_with_its_offset_deltas() -> None:
    batch = built(with_ids(4, 6, 9), 0, "aiokafka")
    section, _ = opened(batch)
    last = bytes(section)[records.each(section, 3, ID, NAME)[2].start :]
    with pytest.raises(KafkaError):
        records.each(last, 1, ID, NAME)
    (found,) = records.each(last, 1, ID, NAME, dense=False)
    assert (found.offset_delta, found.sequence_id) == (2, 9)
    assert records.summarise(last, 1, ID, NAME, dense=False) == (Kind.RISING, 9, 9)


# What Kafka refuses ---------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63) if value < 0 else value << 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def record(
    *,
    attributes: bytes = b"\0",
    timestamp: bytes = b"\0",
    offset: bytes = b"\0",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\0",
    longer: int = 0,
    behind: bytes = b"",
) -> bytes:
    """A record of raw fields; `longer` is what its length says too much."""
    body = attributes + timestamp + offset + key + value + headers + behind
    return varint(len(body) + longer) + body


HEADER = varint(len(ID)) + ID + varint(1) + b"7"
SOUND: dict[str, bytes] = {
    "the least record": record(),
    "attributes that nobody uses": record(attributes=b"\xff"),
    "null told by another negative length": record(key=varint(-2), value=varint(-(2**31))),
    "a length written longer than needed": record(key=b"\x80\x80\x80\x80\x00"),
    "bits beyond the 32nd": record(key=b"\x80\x80\x80\x80\x70"),
    "the longest timestamp delta": record(timestamp=b"\xff" * 9 + b"\x01"),
    "bits beyond the 64th": record(timestamp=b"\x80" * 9 + b"\x7e"),
    "a null header": record(headers=varint(1) + varint(len(ID)) + ID + varint(-3)),
}
BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "a length alone": varint(6),
    "a length of nothing": varint(0),
    "a negative length": varint(-1) + record(),
    "a length that never ends": b"\x80\x80\x80\x80\x80\x01" + record(),
    "a length beyond the section": record(longer=1),
    "the largest length": varint(2**31 - 1) + record(),
    "less in it than it is long": record(behind=b"\0"),
    "more in it than it is long": record(longer=-1),
    "a timestamp delta that never ends": record(timestamp=b"\x80" * 10 + b"\x01"),
    "the second offset delta": record(offset=varint(1)),
    "a negative offset delta": record(offset=varint(-1)),
    "a key beyond the record": record(key=varint(9) + b"k"),
    "the largest key": record(key=varint(2**31 - 1)),
    "a key that ends within the length of the value": record(key=varint(3) + b"k"),
    "a length of the key that never ends": record(key=b"\xff\xff\xff\xff\xff\x01"),
    "a value beyond the record": record(value=varint(9) + b"v"),
    "a negative number of headers": record(headers=varint(-1)),
    "more headers than there are": record(headers=varint(2) + HEADER),
    "two billion headers": record(headers=varint(2**31 - 1)),
    "fewer headers than there are": record(headers=varint(0) + HEADER),
    "a header without a key": record(headers=varint(1) + varint(-1) + varint(1) + b"7"),
    "a key of a header beyond the record": record(headers=varint(1) + varint(30) + ID),
    "a value of a header beyond the record": record(headers=varint(1) + varint(len(ID)) + ID + varint(2) + b"7"),
    "another record": record() + record(offset=varint(1)),
    "a byte behind": record() + b"\0",
}


def refusals(section: bytes, count: int) -> list[str]:
    """What both functions say of a section that they must refuse."""
    said: list[str] = []
    for function in (records.summarise, records.each):
        with pytest.raises(KafkaError) as refused:
            function(section, count, ID, NAME)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
        said.append(refused.value.message)
    return said


@pytest.mark.parametrize("section", SOUND.values(), ids=SOUND)
def test_what_kafka_takes_is_taken(section: bytes) -> None:
    assert records.summarise(section, 1, ID, NAME).kind in {Kind.NONE, Kind.OTHER}
    assert [(one.start, one.end) for one in records.each(section, 1, ID, NAME)] == [(0, len(section))]


@pytest.mark.parametrize("section", BROKEN.values(), ids=BROKEN)
def test_what_kafka_refuses_is_refused(section: bytes) -> None:
    first, second = refusals(section, 1)
    assert first == second
    assert first.startswith("record ")


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 3, 2**31 - 1])
def test_there_are_as_many_records_as_the_batch_counts(count: int) -> None:
    section, _ = opened(built(with_ids(1, 2)))
    assert len(set(refusals(section, count))) == 1


def test_a_section_cut_off_anywhere_is_corrupt() -> None:
    section, count = opened(built(with_ids(1, 2, more=[(NAME.decode(), b"me")])))
    for size in range(len(section)):
        refusals(section[:size], count)


def test_the_longest_timestamp_deltas_are_read() -> None:
    section = record(timestamp=b"\xff" * 9 + b"\x01")
    assert records.each(section, 1, ID, NAME)[0].timestamp_delta == -(2**63)
    assert records.each(record(timestamp=b"\xfe" + b"\xff" * 8 + b"\x01"), 1, ID, NAME)[0].timestamp_delta == 2**63 - 1


def test_a_header_given_ten_thousand_times_costs_no_more_than_its_bytes() -> None:
    section = record(headers=varint(10_000) + HEADER * 10_000)
    assert records.summarise(section, 1, ID, NAME).kind == Kind.OTHER
    assert records.each(section, 1, ID, NAME)[0].problem == "the sequence id is given twice"


# The twins ------------------------------------------------------------------------------------------------------------

_numbers = st.one_of(st.integers(0, LARGEST), st.integers(0, 50), st.integers(-5, 2**65))
_ids = st.one_of(_numbers.map(lambda value: b"%d" % value), st.binary(max_size=3), st.none())
_header = st.one_of(
    st.tuples(st.just(ID.decode()), _ids),
    st.tuples(st.just(NAME.decode()), st.one_of(st.none(), st.binary(max_size=3), st.binary(max_size=300))),
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=3), st.one_of(st.none(), st.binary(max_size=200))),
)
_written = st.builds(
    Written,
    headers=st.lists(_header, max_size=3),
    key=st.one_of(st.none(), st.binary(max_size=5)),
    value=st.one_of(st.none(), st.binary(max_size=150)),
    timestamp=st.integers(NOW - 2**40, NOW + 2**40),
)
_rising = st.lists(st.integers(0, LARGEST), min_size=1, max_size=20, unique=True).map(
    lambda ids: with_ids(*sorted(ids))
)
_batches = st.one_of(_rising, st.lists(_written, min_size=1, max_size=20))
_BOTH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture only chooses the twin


def outcome(function: Callable[..., Any], section: bytes, count: int, *more: Any) -> Any:
    try:
        return function(section, count, ID, NAME, *more)
    except KafkaError as refused:
        return refused.code, refused.message


def assert_same(section: bytes, count: int) -> None:
    assert compiled is not None
    assert outcome(pure.summarise, section, count) == outcome(compiled.summarise, section, count)
    assert outcome(pure.walk, section, count) == outcome(compiled.walk, section, count)
    assert outcome(pure.walk, section, count, False, b"own") == outcome(compiled.walk, section, count, False, b"own")


@needs_both
@_BOTH
@given(written=_batches)
def test_the_twins_say_the_same_of_sound_batches(written: list[Written]) -> None:
    assert_same(*opened(built(written, library="kafka-python")))


@needs_both
@_BOTH
@given(data=st.data(), count=st.integers(1, 300))
def test_the_twins_number_records_anew_alike(data: st.DataObject, count: int) -> None:
    assert compiled is not None
    section, _ = opened(built([Written(value=b"x" * (60 + index % 5)) for index in range(count)]))
    places = [one[:2] for one in pure.walk(section, count, ID, NAME)]
    chosen = sorted(data.draw(st.sets(st.integers(0, count - 1))))
    made = compiled.renumber(section, [places[index] for index in chosen])
    assert made == pure.renumber(section, [places[index] for index in chosen])
    if chosen:
        assert [one[3] for one in pure.walk(bytes(made), len(chosen), ID, NAME)] == list(range(len(chosen)))


@needs_both
def test_a_place_outside_the_section_is_refused() -> None:
    assert compiled is not None
    for place in ((0, 11), (-1, 3), (5, 5), (9, 10)):
        with pytest.raises(IndexError):
            compiled.renumber(b"\xff" * 10, [place])


@needs_both
@_BOTH
@given(data=st.data(), written=_batches)
def test_the_twins_say_the_same_of_changed_batches(data: st.DataObject, written: list[Written]) -> None:
    section, count = opened(built(written, library="kafka-python"))
    changed = bytearray(section)
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(section) - 1), st.integers(0, 255)), max_size=4)):
        changed[at] = byte
    cut = data.draw(st.integers(0, len(section)) | st.just(len(section)))
    assert_same(bytes(changed[:cut]) + data.draw(st.binary(max_size=3)), count + data.draw(st.integers(-1, 1)))


@needs_both
@_BOTH
@given(junk=st.binary(max_size=200), count=st.integers(-1, 5))
def test_the_twins_say_the_same_of_junk(junk: bytes, count: int) -> None:
    assert_same(junk, count)


@_BOTH
@given(written=_batches)
def test_the_summary_is_what_the_records_say(written: list[Written]) -> None:
    section, count = opened(built(written, library="kafka-python"))
    found = records.each(section, count, ID, NAME)
    told = records.summarise(section, count, ID, NAME)
    ids = [one.sequence_id for one in found if one.sequence_id is not None]
    rising = len(ids) == len(found) and all(before < after for before, after in pairwise(ids))
    if rising and not any(one.name or one.problem for one in found):
        assert told == (Kind.RISING, ids[0], ids[-1])
    else:
        neither = not any(one.name or one.problem or one.sequence_id is not None for one in found)
        assert told == (Kind.NONE if neither else Kind.OTHER, -1, -1)


@pytest.mark.parametrize("wanted", ["1", "0", ""])
def test_the_environment_can_rule_the_compiled_twin_out(wanted: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from sidecar.protocol import records; print(records.walker().__name__)"],
        env={**os.environ, "PYTHONPATH": str(ROOT), PURE: wanted},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    is_compiled = compiled is not None and wanted != "1"
    assert told.stdout.strip() == f"sidecar.protocol.{'_records' if is_compiled else '_records_pure'}"


def test_the_twins_refuse_what_is_no_buffer(walker: ModuleType) -> None:
    with pytest.raises(TypeError):
        walker.summarise("text", 1, ID, NAME)
    with pytest.raises(TypeError):
        walker.walk(None, 1, ID, NAME)


# A batch with some of its records -------------------------------------------------------------------------------------


def contents(batch: bytes | bytearray) -> list[tuple[Any, ...]]:
    """What aiokafka's reader finds; it must find the CRC right."""
    reader = DefaultRecordBatch(bytearray(batch))
    assert reader.validate_crc()
    return [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in reader]


@_BOTH
@given(data=st.data(), written=_batches, codec=st.integers(0, 4), library=st.sampled_from(sorted(BUILDERS)))
def test_a_smaller_batch_holds_just_the_records_kept(
    data: st.DataObject, written: list[Written], codec: int, library: str
) -> None:
    if library == "aiokafka":  # it never writes a null
        written = [one._replace(headers=[(key, value or b"") for key, value in one.headers]) for one in written]
    batch = built(written, codec, library)
    section, count = opened(batch)
    found = records.each(section, count, ID, NAME)
    chosen = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    smaller = records.keep(batch, section, [found[index] for index in chosen])
    before = contents(batch)
    assert contents(smaller) == [(new, *before[index][1:]) for new, index in enumerate(chosen)]
    old, new = read_header(batch, 0, len(batch)), read_header(smaller, 0, len(smaller))
    assert new.size == len(smaller)
    assert new.records == new.last_offset_delta + 1 == len(chosen)
    assert new.max_timestamp == max(before[index][1] for index in chosen)
    stays = ("base_offset", "magic", "attributes", "base_timestamp", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(old, field) for field in stays] == [getattr(new, field) for field in stays]
    again = records.each(*opened(smaller), ID, NAME)
    assert [one.offset_delta for one in again] == list(range(len(chosen)))
    assert [(one[2], *one[4:]) for one in again] == [(found[index][2], *found[index][4:]) for index in chosen]


@pytest.mark.parametrize("library", BUILDERS)
def test_all_records_kept_make_the_same_batch(library: str) -> None:
    batch = built(with_ids(*range(300)), 0, library)
    section, count = opened(batch)
    assert records.keep(batch, section, records.each(section, count, ID, NAME)) == batch


def test_the_length_of_a_record_follows_its_offset_delta() -> None:
    batch = built(with_ids(*range(200)))
    section, count = opened(batch)
    last = records.each(section, count, ID, NAME)[-1]
    smaller = records.keep(memoryview(batch), memoryview(section), [last])
    assert len(smaller) - HEADER_BYTES == last.end - last.start - 1
    assert contents(smaller)[0][1:] == contents(batch)[-1][1:]


def as_batch(section: bytes, count: int, *, attributes: int = 0, base: int = NOW, newest: int = NOW) -> bytearray:
    head = (0, HEADER_BYTES - 12 + len(section), -1, 2, 0, attributes, count - 1, base, newest, 9, 0, 0, count)
    batch = bytearray(struct.pack(">qiibIhiqqqhii", *head) + section)
    stamp(batch, 0, len(batch), 9, 0, 0)
    return batch


def test_a_record_kept_is_kept_to_the_byte() -> None:
    odd = {"attributes": b"\x5a", "timestamp": b"\x80\x80\x00", "key": varint(-9), "headers": b"\x80\x00"}
    section = record() + record(offset=b"\x82\x80\x00", **odd)
    smaller = records.keep(as_batch(section, 2), section, records.each(section, 2, ID, NAME)[1:])
    assert smaller[HEADER_BYTES:] == record(offset=varint(0), **odd)
    assert crc_matches(smaller, 0, len(smaller))


def test_a_hostile_timestamp_delta_wraps_around_as_in_java() -> None:
    section = record(timestamp=b"\xfe" + b"\xff" * 8 + b"\x01")
    smaller = records.keep(as_batch(section, 1, base=2), section, records.each(section, 1, ID, NAME))
    assert read_header(smaller, 0, len(smaller)).max_timestamp == -(2**63) + 1


def test_the_time_of_the_log_stays() -> None:
    section = record() + record(offset=varint(1), timestamp=varint(50))
    batch = as_batch(section, 2, attributes=0x08, newest=NOW + 999)
    smaller = records.keep(batch, section, records.each(section, 2, ID, NAME)[:1])
    assert read_header(smaller, 0, len(smaller)).max_timestamp == NOW + 999


# Times --------------------------------------------------------------------------------------------------------------

TIMES = st.integers(-(2**63), 2**63 - 1) | st.integers(NOW - 10, NOW + 10) | st.just(-1)


@given(base=TIMES, claimed=TIMES, deltas=st.lists(TIMES, min_size=1, max_size=4), log_time=st.booleans())
@example(base=NOW, claimed=NOW, deltas=[-(30 * 3600 * 1000)], log_time=False)
@example(base=2**63 - 1, claimed=NOW, deltas=[1], log_time=False)
@example(base=NOW, claimed=NOW - 99, deltas=[0], log_time=True)
def test_no_batch_is_taken_for_newer_than_a_leader_finds_it(
    base: int, claimed: int, deltas: list[int], log_time: bool
) -> None:
    section = b"".join(record(offset=varint(at), timestamp=varint(delta)) for at, delta in enumerate(deltas))
    batch = as_batch(section, len(deltas), attributes=0x08 if log_time else 0, base=base, newest=claimed)
    header = read_header(batch, 0, len(batch))
    surely = surely_newest(batch, header.attributes, header.base_timestamp, header.max_timestamp)
    assert surely <= records.newest_timestamp(batch, section)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("library", BUILDERS)
def test_the_first_record_of_an_honest_batch_tells_how_old_it_is_at_most(library: str, codec: int) -> None:
    batch = built(with_ids(*range(100)), codec, library)
    header = read_header(batch, 0, len(batch))
    times = [content[1] for content in contents(batch)]
    surely = surely_newest(batch, header.attributes, header.base_timestamp, header.max_timestamp)
    assert surely == (max(times) if codec else times[0])
    assert records.newest_timestamp(batch, opened(batch)[0]) == max(times)


@pytest.mark.parametrize(
    "section", [b"", b"\x80" * 9, b"\xff" * 4 + b"\x0f\x00", b"\x10\x00" + b"\xff" * 11 + b"\x01"], ids=bytes.hex
)
def test_a_first_record_that_is_damaged_has_no_time(section: bytes) -> None:
    assert surely_newest(as_batch(section, 1), 0, NOW, NOW) == NO_TIME


def test_there_is_no_batch_without_records() -> None:
    batch = built(with_ids(1))
    with pytest.raises(ValueError, match="without records"):
        records.keep(batch, opened(batch)[0], [])
