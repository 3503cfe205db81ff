"""What of a batch is new, and what is lost: each offset once, whatever batches come again, and none left out unsaid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.pipeline.errors import OffsetRangeError, PipelineError
from sidecar.pipeline.gaps import Gap, GapError, check_ends, cut, gaps

PARTITIONS = range(3)
OFFSETS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 20))


@given(stands=OFFSETS, begins=OFFSETS, lengths=OFFSETS)
def test_what_is_cut_out_of_a_batch_follows_the_table_without_a_gap_or_an_overlap(
    stands: dict[int, int], begins: dict[int, int], lengths: dict[int, int]
) -> None:
    ends = {partition: begins.get(partition, 0) + length for partition, length in lengths.items()}
    begins = {partition: begin for partition, begin in begins.items() if partition in ends}
    if any(begin > stands.get(partition, 0) for partition, begin in begins.items()):
        with pytest.raises(PipelineError, match="Nothing was written"):
            cut(begins, ends, stands)
        return
    new = cut(begins, ends, stands)
    for partition, end in ends.items():
        table = set(range(stands.get(partition, 0)))
        batch = set(range(begins.get(partition, 0), end))
        kept = {offset for offset in batch if partition in new.ends and offset >= new.begins.get(partition, 0)}
        assert kept == batch - table
        assert table | kept == set(range(max(stands.get(partition, 0), end)))
        assert new.ends.get(partition, stands.get(partition, 0)) == max(stands.get(partition, 0), end)


@given(stands=OFFSETS, starts=OFFSETS)
def test_a_gap_is_all_between_the_table_and_the_start_of_the_log(
    stands: dict[int, int], starts: dict[int, int]
) -> None:
    lost = {(gap.partition, offset) for gap in gaps(stands, starts) for offset in range(gap.first, gap.last + 1)}
    expected = {(each, offset) for each, start in starts.items() for offset in range(stands.get(each, 0), start)}
    assert lost == expected


def test_gaps_are_told_with_partitions_and_offsets() -> None:
    text = str(GapError("orders", [Gap(1, 50, 69), Gap(2, 0, 4999)]))
    assert "partition 1, offsets 50 to 69 (20); partition 2, offsets 0 to 4999 (5,000)" in text


def test_a_log_that_is_shorter_than_the_table_or_lacks_a_partition_is_another_log() -> None:
    check_ends("orders", {0: 10, 1: 5}, {0: 10, 1: 6, 2: 1})
    with pytest.raises(OffsetRangeError, match="partition 1 of orders ends at offset 4"):
        check_ends("orders", {0: 10, 1: 5}, {0: 10, 1: 4})
    with pytest.raises(OffsetRangeError, match="has no partition 1 any more"):
        check_ends("orders", {0: 10, 1: 5}, {0: 10})
