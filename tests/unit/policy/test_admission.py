"""The two readings of a batch for a governed topic agree: the short one never takes what the long one refuses."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.policy.admission import checked_header
from sidecar.protocol.batch import Numbers, read_numbers, stamp, surely_newest
from sidecar.protocol.errors import KafkaError
from tests.kafka.exclusive.producers import batch_of


def refit(data: bytearray) -> None:
    """Make the CRC fit whatever else was done to a batch."""
    stamp(data, 0, len(data), *struct.unpack_from(">qhi", data, 43))


def agree(data: bytearray) -> None:
    short = read_numbers(memoryview(data))
    try:
        found = checked_header(memoryview(data))
    except KafkaError:
        assert short is None
    else:
        newest = surely_newest(data, found.attributes, found.base_timestamp, found.max_timestamp)
        assert short == Numbers(found.producer_id, found.producer_epoch, found.base_sequence, found.records, newest)


@given(
    values=st.lists(st.binary(max_size=20), min_size=1, max_size=5),
    producer=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
    transactional=st.booleans(),
)
def test_of_batches_that_a_client_may_send(
    values: list[bytes], producer: tuple[int, int, int], transactional: bool
) -> None:
    agree(batch_of(values, *producer, transactional=transactional))


@given(at=st.integers(0, 75), value=st.integers(0, 255), fits=st.booleans())
@example(at=16, value=1, fits=True)  # an older format
@example(at=22, value=0x20, fits=True)  # a control batch
@example(at=26, value=7, fits=True)  # a last offset that is not that of its records
@example(at=60, value=0, fits=True)  # no records
@example(at=11, value=0, fits=True)  # another length
def test_of_batches_with_any_byte_exchanged(at: int, value: int, fits: bool) -> None:
    data = batch_of([b"one", b"two"], 4711, 5, 77)
    data[at] = value
    if fits:
        refit(data)
    agree(data)


@given(size=st.integers(0, 80), more=st.binary(max_size=20))
def test_of_batches_cut_off_or_followed_by_something(size: int, more: bytes) -> None:
    data = batch_of([b"one", b"two"], 4711, 5, 77)
    agree(data[:size] + more)
    agree(data + more)


@pytest.mark.parametrize(("attributes", "code"), [(0x20, 87), (0x10, 48), (0x30, 48)])
def test_a_client_is_told_which_kind_of_batch_it_may_not_write(attributes: int, code: int) -> None:
    data = batch_of([b"one"], 4711, 5, 77)
    data[22] = attributes
    refit(data)
    with pytest.raises(KafkaError) as refused:
        checked_header(memoryview(data))
    assert refused.value.code == code


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 77), (5, -1)])
def test_the_first_producer_id_of_a_cluster_needs_an_epoch_and_a_sequence_as_well(epoch: int, sequence: int) -> None:
    with pytest.raises(KafkaError):
        checked_header(memoryview(batch_of([b"one"], 0, epoch, sequence)))
