"""What speaks of partitions is kept in columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import Position, pack_offsets, pack_positions, unpack_offsets, unpack_positions
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.v1 import state_pb2 as state

positions = st.builds(Position, st.integers(0, 32_767), st.integers(0, 2**31 - 1))


@given(st.dictionaries(st.integers(0, 100_000), positions))
def test_positions_come_back(found: dict[int, Position]) -> None:
    assert unpack_positions(pack_positions(found)) == found


@given(st.dictionaries(st.integers(0, 100_000), st.integers(0, 2**63 - 1)))
def test_offsets_come_back(found: dict[int, int]) -> None:
    assert unpack_offsets(pack_offsets(found)) == found


def test_the_same_facts_are_the_same_bytes() -> None:
    forward = pack_positions({1: Position(0, Client(5)), 2: Position(1, Client(6))})
    backward = pack_positions({2: Position(1, Client(6)), 1: Position(0, Client(5))})
    assert forward.SerializeToString(deterministic=True) == backward.SerializeToString(deterministic=True)


def test_columns_of_different_lengths_are_no_facts() -> None:
    with pytest.raises(ValueError, match="argument"):
        unpack_positions(state.Positions(partition=[1, 2], client_epoch=[0, 0], sequence=[5]))
    with pytest.raises(ValueError, match="argument"):
        unpack_offsets(state.Offsets(partition=[1], offset=[]))


def test_five_hundred_partitions_fit_into_a_few_kilobytes() -> None:
    base = pack_positions({index: Position(3, Client(1_000_000 + index)) for index in range(500)})
    start = pack_offsets({index: 10_000_000_000 + index for index in range(500)})
    assert len(base.SerializeToString()) < 4_000
    assert len(start.SerializeToString()) < 4_000


def test_a_session_that_wrote_nothing_yet_costs_nothing() -> None:
    assert pack_positions({}).SerializeToString() == b""
