"""Stretches and columns of sections: what `each` tells record by record, in fewer words; both twins say the same."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from sidecar.protocol import _records_pure as pure
from sidecar.protocol import records
from sidecar.protocol.batch import HEADER_BYTES
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.stretches import HEADERS, KEY, VALUE, Columns, Stretch, stretches, unpack
from tests.slow.pipeline.batches import ID, NAME, Written, encode, named
from tests.unit.protocol.examples import examples

try:
    from sidecar.protocol import _records as compiled
except ImportError:
    compiled = None

WALKERS = {"pure": pure, "compiled": compiled}
WANTED = (ID.encode(), NAME.encode())


@pytest.fixture(params=WALKERS, autouse=True)
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    chosen = WALKERS[request.param]
    if chosen is None:
        pytest.skip("the twin was not compiled: no Cython or no C compiler")
    monkeypatch.setattr(records, "_walker", chosen)
    return chosen


def section(written: Sequence[Written]) -> bytes:
    return encode(written)[HEADER_BYTES:]


def found(written: Sequence[Written], **cut: int) -> list[Stretch]:
    return stretches(section(written), len(written), *WANTED, **cut)


HEADER = st.tuples(
    st.sampled_from([ID, NAME, "trace"]),
    st.sampled_from(
        [None, b"", b"1", b"2", b"3", b"-1", b"x", b"9" * 20, b"a", b"b", "ä".encode(), b"\xff", b"n" * 256]
    ),
)
RECORD = st.builds(
    Written,
    headers=st.lists(HEADER, max_size=3),
    key=st.sampled_from([None, b"", b"key"]),
    value=st.sampled_from([None, b"", b"value"]),
    time_delta=st.integers(-5, 2**40),
) | st.builds(named, st.just(0), st.integers(0, 9), st.sampled_from([None, b"a", "ä".encode()]))


@st.composite
def sections(draw: st.DrawFn) -> list[Written]:
    """Records with rising offset deltas, not each of which is there."""
    chosen, delta = draw(st.lists(RECORD, min_size=1, max_size=20)), -1
    placed: list[Written] = []
    for record in chosen:
        delta += draw(st.sampled_from([1, 1, 1, 2, 7]))
        placed.append(Written(delta, record.headers, record.key, record.value, record.time_delta))
    return placed


def by_the_book(written: Sequence[Written], low: int, high: int) -> list[Stretch]:
    """Told record by record, from what `each` says."""
    runs: list[list[records.RecordIds]] = []
    for record in records.each(section(written), len(written), *WANTED, dense=False):
        if not low <= record.offset_delta <= high:
            continue
        run = runs[-1] if runs and runs[-1][0].name == record.name else None
        if run is not None and record.problem is None:
            sound = [each.sequence_id for each in run if each.problem is None]
            if not sound:
                run = None
            elif record.sequence_id is None:
                run = run if all(each is None for each in sound) else None
            else:
                run = run if all(each is not None and each < record.sequence_id for each in sound) else None
        if run is None:
            runs.append([record])
        else:
            run.append(record)
    return [summed(run) for run in runs]


def summed(run: list[records.RecordIds]) -> Stretch:
    ids = [each.sequence_id for each in run if each.problem is None and each.sequence_id is not None]
    bad = sum(each.problem is not None for each in run)
    ends = run[0], run[-1]
    return Stretch(
        run[0].name, len(run), len(ids), bad, *((ids[0], ids[-1]) if ids else (-1, -1)),
        *(each.offset_delta for each in ends), *(each.timestamp_delta for each in ends),
    )  # fmt: skip


@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=sections(), low=st.integers(0, 30), width=st.integers(0, 60))
def test_stretches_say_what_records_say_one_by_one(written: list[Written], low: int, width: int) -> None:
    assert found(written) == by_the_book(written, 0, 2**31 - 1)
    assert found(written, low=low, high=low + width) == by_the_book(written, low, low + width)


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    written=sections(),
    low=st.integers(0, 30),
    width=st.integers(0, 60),
    wanted=st.integers(0, 7),
    most=st.integers(0, 3),
)
def test_columns_hold_what_was_written(written: list[Written], low: int, width: int, wanted: int, most: int) -> None:
    columns = Columns()
    high = low + width
    for _ in range(2):  # appended to what is there
        unpack(section(written), len(written), *WANTED, columns, wanted=wanted, low=low, high=high, most_headers=most)
    inside = [each for each in written if low <= each.delta <= low + width] * 2
    told = records.each(section(written), len(written), *WANTED, dense=False)
    told = [each for each in told if low <= each.offset_delta <= low + width] * 2
    assert columns.offset_deltas == [each.delta for each in inside]
    assert columns.timestamp_deltas == [each.time_delta for each in inside]
    assert columns.keys == [each.key for each in inside if wanted & KEY]
    assert columns.values == [each.value for each in inside if wanted & VALUE]
    assert columns.header_counts == [len(each.headers[:most]) for each in inside if wanted & HEADERS]
    flat = [header for each in inside for header in each.headers[:most] if wanted & HEADERS]
    assert columns.header_keys == [str(key).encode() for key, _ in flat]
    assert columns.header_values == [value for _, value in flat]
    assert columns.sequence_ids == [None if each.problem else each.sequence_id for each in told]
    assert columns.names == [each.name for each in told]
    assert columns.problems == {index: each.problem for index, each in enumerate(told) if each.problem}


def test_a_clean_section_is_one_stretch() -> None:
    written = [named(delta, 10 + 3 * delta, b"billing") for delta in range(100)]
    assert found(written) == [Stretch(b"billing", 100, 100, 0, 10, 307, 0, 99, 0, 99)]


def test_a_malformed_id_ends_no_stretch() -> None:
    written = [named(0, 5, b"a"), named(1, b"-1", b"a"), named(2, 6, b"a"), named(3, 6, b"a")]
    assert [each[:6] for each in found(written)] == [(b"a", 3, 2, 1, 5, 6), (b"a", 1, 1, 0, 6, 6)]


def test_malformed_ids_in_front_are_a_stretch_that_can_carry_on_another() -> None:
    written = [named(0, b"x", b"a"), named(1, b"", b"a"), named(2, 6, b"a")]
    assert [each[:6] for each in found(written)] == [(b"a", 2, 0, 2, -1, -1), (b"a", 1, 1, 0, 6, 6)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_records_is_refused_by_both(count: int) -> None:
    data = section([named(0, 1), named(1, 2)])
    with pytest.raises(KafkaError, match="record"):
        stretches(data, count, *WANTED)
    with pytest.raises(KafkaError, match="record"):
        unpack(data, count, *WANTED, Columns())


@pytest.mark.skipif(compiled is None, reason="the twin was not compiled: no Cython or no C compiler")
@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=sections(), at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_both_twins_say_the_same_of_damaged_bytes(written: list[Written], at: int, byte: int) -> None:
    data = bytearray(section(written))
    data[at % len(data)] = byte
    data = bytes(data[: len(data) - (at % 7 == 0)])

    def said(twin: ModuleType) -> object:
        columns = tuple[list[object], ...]([] for _ in range(10))
        try:
            runs = twin.stretches(data, len(written), *WANTED, 0, 2**31 - 1)
            twin.unpack(data, len(written), *WANTED, 0, 2**31 - 1, 7, columns, 2**31 - 1)
        except KafkaError as error:
            return str(error)
        return runs, columns

    assert compiled is not None
    assert said(pure) == said(compiled)
