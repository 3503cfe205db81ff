from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.gateway.gaps import OrdinaryBatches, Place, place_of, signature
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

if TYPE_CHECKING:
    from sidecar.gateway.gaps import Buffer

T = b"orders"


def kept(sequence: int, producer: int = 7, epoch: int = 3) -> Buffer:
    batch = build_batch([RawRecord(b"k", b"v")], Stamp(ProducerId(producer), ProducerEpoch(epoch)), sequence)
    return signature(batch, 0, len(batch))


@given(st.integers(0, 2**63 - 1), st.integers(0, 32_767), st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_the_place_of_a_batch_is_read_wherever_it_lies(producer: int, epoch: int, sequence: int, before: bytes) -> None:
    batch = build_batch([RawRecord(b"k", b"v")], Stamp(ProducerId(producer), ProducerEpoch(epoch)), sequence)
    buffer = before + batch + b"behind"
    found = place_of(signature(buffer, len(before), len(before) + len(batch)))
    assert found == Place(producer, epoch, sequence)


@pytest.mark.parametrize(
    "bad",
    [b"", bytes(10), bytes(57), bytes(200), build_batch([RawRecord(b"k", b"v")], None)],
    ids=["nothing", "too short", "format 0", "long but format 0", "no producer"],
)
def test_what_is_no_idempotent_batch_has_no_place(bad: Buffer) -> None:
    assert place_of(signature(bad, 0, len(bad))) is None


def test_behind_a_lost_batch_later_ones_wait_until_it_comes_again() -> None:
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, kept(5))
    assert not gaps.admits(T, 0, kept(6))
    assert not gaps.admits(T, 0, kept(60))
    assert gaps.admits(T, 0, kept(5))
    assert gaps.admits(T, 0, kept(6))
    assert not gaps.expected


def test_what_comes_before_a_batch_in_the_log_is_not_waited_for() -> None:
    """librdkafka takes it for delivered then, and never sends it again."""
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, kept(5))
    for other in (kept(4), kept(7, producer=8), kept(7, epoch=4)):
        gaps.appended(T, 0, other)
    assert not gaps.admits(T, 0, kept(8))
    gaps.appended(T, 0, kept(7))
    assert gaps.admits(T, 0, kept(8))


def test_of_several_lost_batches_the_earliest_is_expected() -> None:
    gaps = OrdinaryBatches()
    for sequence in (5, 6, 7, 4):
        gaps.lost(T, 0, kept(sequence))
    assert not gaps.admits(T, 0, kept(5))
    assert gaps.admits(T, 0, kept(4))


def test_an_earlier_batch_that_failed_for_itself_goes_on_and_changes_nothing() -> None:
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, kept(5))
    assert gaps.admits(T, 0, kept(3))
    assert not gaps.admits(T, 0, kept(6))
    assert gaps.admits(T, 0, kept(5))


def test_other_partitions_topics_and_producers_are_not_held_back() -> None:
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, kept(5))
    assert gaps.admits(T, 1, kept(6))
    assert gaps.admits(b"bills", 0, kept(6))
    assert not gaps.admits(T, 0, kept(6))
    assert gaps.admits(T, 0, kept(9, producer=8))


def test_a_client_that_raised_its_epoch_begins_anew() -> None:
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, kept(5))
    assert gaps.admits(T, 0, kept(0, epoch=4))
    assert not gaps.expected


def test_a_new_producer_that_lost_a_batch_is_the_one_to_wait_for() -> None:
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, kept(5))
    gaps.lost(T, 0, kept(0, producer=8))
    assert not gaps.admits(T, 0, kept(1, producer=8))


def test_sequences_wrap() -> None:
    last = 2**31 - 1
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, kept(last))
    assert not gaps.admits(T, 0, kept(0))
    gaps.lost(T, 0, kept(0))
    assert gaps.admits(T, 0, kept(last - 1))
    assert gaps.admits(T, 0, kept(last))


def test_batches_without_a_producer_are_never_held_back() -> None:
    plain = build_batch([RawRecord(b"k", b"v")], None)
    gaps = OrdinaryBatches()
    gaps.lost(T, 0, signature(plain, 0, len(plain)))
    assert not gaps.expected
    gaps.lost(T, 0, kept(5))
    assert gaps.admits(T, 0, signature(plain, 0, len(plain)))
    gaps.appended(T, 0, signature(plain, 0, len(plain)))
    assert not gaps.admits(T, 0, kept(6))
