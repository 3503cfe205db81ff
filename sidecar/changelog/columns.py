"""Positions and offsets per partition as columns of a message, and back. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from sidecar.protocol.ids import ClientSequence
from sidecar.v1 import state_pb2 as state


class Position(NamedTuple):
    """Where a session stands in one partition: its own producer epoch and a sequence modulo 2^31. 0 where nothing is in
    front of it; a sequence that wrapped to 0 is 2^31.
    """

    client_epoch: int
    sequence: ClientSequence


def pack_positions(positions: Mapping[int, Position]) -> state.Positions:
    """Columns in the order of the partitions, so that the same facts are the same bytes."""
    columns = sorted(positions.items())
    return state.Positions(
        partition=[partition for partition, _ in columns],
        client_epoch=[position.client_epoch for _, position in columns],
        sequence=[position.sequence for _, position in columns],
    )


def unpack_positions(columns: state.Positions) -> dict[int, Position]:
    """Raises ValueError where the columns do not fit together."""
    rows = zip(columns.partition, columns.client_epoch, columns.sequence, strict=True)
    return {partition: Position(epoch, ClientSequence(sequence)) for partition, epoch, sequence in rows}


def pack_offsets(offsets: Mapping[int, int]) -> state.Offsets:
    """Columns in the order of the partitions."""
    columns = sorted(offsets.items())
    return state.Offsets(partition=[partition for partition, _ in columns], offset=[offset for _, offset in columns])


def unpack_offsets(columns: state.Offsets) -> dict[int, int]:
    """Raises ValueError where the columns do not fit together."""
    return dict(zip(columns.partition, columns.offset, strict=True))
