"""Options of the data source: what is refused, and which ranges they mean. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.pipeline.errors import OffsetRangeError, PipelineError
from sidecar.pipeline.source.options import Options, ranges, splits
from sidecar.pipeline.source.tables import COLUMNS

NEEDED = {"bootstrap.servers": "h:1", "topic": "orders"}


def wanted(starts: dict[int, int] | None, ends: dict[int, int] | None, only: frozenset[int] | None = None) -> Options:
    return Options("kafka:9092", "t", starts=starts, ends=ends, partitions=only)


def test_what_is_not_given_is_the_whole_log_as_records() -> None:
    found = Options.of(NEEDED, COLUMNS)
    assert (found.view, found.starts, found.ends, found.split_offsets) == ("records", None, None, 1_000_000)
    assert found.headers == (b"sidecar-sequence-id", b"sidecar-producer-name")


def test_names_are_read_without_regard_to_case() -> None:
    found = Options.of({**NEEDED, "STARTINGOFFSETS": '{"0": 5}', "Security.Protocol": "SSL", "view": "RUNS"}, COLUMNS)
    assert (found.starts, found.security, found.view) == ({0: 5}, {"security.protocol": "SSL"}, "runs")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": ""}, "option topic is missing"),
        ({"endOffsets": "latest"}, "unknown option endOffsets: there are bootstrap"),
        ({"view": "rows"}, "option view is 'rows': it is one of records, runs"),
        ({"splitOffsets": "0"}, "splitOffsets is '0': a number of at least 1"),
        ({"splitOffsets": "many"}, "splitOffsets is 'many'"),
        ({"columns": "offset,nothing"}, "columns names nothing: there are partition, offset"),
        ({"columns": "first_id"}, "columns names first_id"),
        ({"columns": ","}, "columns names none"),
        ({"partitions": "0,"}, "partitions is '0,': numbers with commas"),
        ({"partitions": "0,x"}, "partitions is '0,x'"),
        ({"sequenceIdHeader": ""}, "sequenceIdHeader is empty"),
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest': earliest, or JSON"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest': latest, or JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets is"),
        ({"startingOffsets": '{"0": "1"}'}, "startingOffsets is"),
        ({"startingOffsets": '{"0": -1}'}, "startingOffsets is"),
        ({"startingOffsets": '{"0": true}'}, "startingOffsets is"),
        ({"startingOffsets": '{"x": 1}'}, "startingOffsets is"),
        ({"startingOffsets": '{"0": 1, "0": 2}'}, "a partition is named twice"),
    ],
)
def test_an_option_that_is_wrong_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        Options.of({**NEEDED, **given}, COLUMNS)


def test_a_password_is_shown_nowhere() -> None:
    assert "secret" not in repr(Options.of({**NEEDED, "sasl.password": "secret"}, COLUMNS))


def test_ranges_are_what_there_is_unless_offsets_are_named() -> None:
    earliest, latest = {0: 2, 1: 0}, {0: 9, 1: 0}
    assert ranges(wanted(None, None), earliest, latest) == {0: (2, 9), 1: (0, 0)}
    assert ranges(wanted({0: 3, 1: 0}, {0: 5, 1: 0}), earliest, latest) == {0: (3, 5), 1: (0, 0)}


def test_of_partitions_that_are_not_to_be_read_nothing_is_named_or_asked() -> None:
    assert Options.of({**NEEDED, "partitions": "2, 0"}, COLUMNS).partitions == {0, 2}
    assert Options.of({**NEEDED, "partitions": ""}, COLUMNS).partitions == set()
    earliest, latest = {0: 2, 1: 0, 2: 0}, {0: 9, 1: 0, 2: 4}
    assert ranges(wanted({0: 3}, {0: 5}, frozenset({0})), earliest, latest) == {0: (3, 5)}
    assert ranges(wanted(None, None, frozenset({0, 2})), earliest, latest) == {0: (2, 9), 2: (0, 4)}
    assert ranges(wanted({}, {}, frozenset()), earliest, latest) == {}
    for starts, only, said in (
        ({}, {0}, "has to name every partition of t: 0 missing"),
        ({0: 2, 1: 0}, {0}, "startingOffsets names partitions that option partitions does not: 1"),
        (None, {0, 3}, "option partitions names partitions that t has not: 3; it has 0 to 2"),
    ):
        with pytest.raises(PipelineError, match=said):
            ranges(wanted(starts, None, frozenset(only)), earliest, latest)


@pytest.mark.parametrize(
    ("starts", "ends", "kind", "said"),
    [
        ({0: 3}, None, PipelineError, "startingOffsets has to name every partition of t: 1 missing"),
        (None, {}, PipelineError, "endingOffsets has to name every partition of t: 0, 1 missing"),
        ({0: 3, 1: 0, 2: 0}, None, PipelineError, "has not: 2; it has 0 to 1"),
        ({0: 1, 1: 0}, None, OffsetRangeError, "offset 1 of t-0 is lost to retention: its log begins at 2"),
        (None, {0: 10, 1: 0}, OffsetRangeError, "offset 10 of t-0 is behind its end, 9"),
        ({0: 8, 1: 0}, {0: 7, 1: 0}, OffsetRangeError, "t-0 is to be read from offset 8 to 7"),
        ({0: 10, 1: 0}, None, OffsetRangeError, "t-0 is to be read from offset 10 to 9"),
    ],
)
def test_a_range_that_cannot_be_read_is_told(
    starts: dict[int, int] | None, ends: dict[int, int] | None, kind: type[PipelineError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        ranges(wanted(starts, ends), {0: 2, 1: 0}, {0: 9, 1: 0})


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_splits_lie_one_behind_the_other_and_none_is_too_large(start: int, size: int, most: int) -> None:
    found = splits(start, start + size, most)
    assert [offset for begin, end in found for offset in range(begin, end)] == list(range(start, start + size))
    assert all(0 < end - begin <= most for begin, end in found)
