"""Reads the records of a log's batches for jobs that read whole logs: as stretches of one name and rising ids, without
an object per record, or as columns.

Batches may be compacted (offset deltas with holes) and are cut to a range of offsets, so that two readers of
neighbouring ranges count nothing twice. Each id and name is checked by itself, not against earlier records.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sidecar.protocol import _records_pure as pure
from sidecar.protocol.primitives import Octets, new_tuple
from sidecar.protocol.records import judge, walker

HIGHEST_DELTA: Final = 2**31 - 1
KEY: Final = pure.KEY
VALUE: Final = pure.VALUE
HEADERS: Final = pure.HEADERS


class Stretch(NamedTuple):
    """Records of a section that follow one another under one name (None: no header for it, or a bad one): their ids
    rise strictly, or none has an id. Deltas are those of the first and of the last record.

    A record with a bad id or name is counted in `malformed`; only another name makes it end a stretch. Such records at
    the beginning are a separate stretch. Ids are -1 if there is none.
    """

    name: bytes | None
    records: int
    ids: int
    malformed: int
    first_id: int
    last_id: int
    first_offset_delta: int
    last_offset_delta: int
    first_timestamp_delta: int
    last_timestamp_delta: int


def stretches(
    records: Octets, count: int, id_header: bytes, name_header: bytes, low: int = 0, high: int = HIGHEST_DELTA
) -> list[Stretch]:
    """The `count` records of a section, but for those with offset deltas below `low` or above `high`.

    Raises `KafkaError` 2 where the section is not exactly `count` records.
    """
    found = walker().stretches(records, count, id_header, name_header, low, high)
    return [new_tuple(Stretch, stretch) for stretch in found]


@dataclass(slots=True, eq=False)
class Columns:
    """Records of any number of sections, column by column; columns that were not `wanted` stay empty.

    The headers of all records are in one list; `header_counts` has the number of each record's. `problems`, by a
    record's index, describes the fault of its id or name; such a record has no id here.
    """

    offset_deltas: list[int] = field(default_factory=list[int])
    timestamp_deltas: list[int] = field(default_factory=list[int])
    keys: list[bytes | None] = field(default_factory=list[bytes | None])
    values: list[bytes | None] = field(default_factory=list[bytes | None])
    header_counts: list[int] = field(default_factory=list[int])
    header_keys: list[bytes] = field(default_factory=list[bytes])
    header_values: list[bytes | None] = field(default_factory=list[bytes | None])
    sequence_ids: list[int | None] = field(default_factory=list[int | None])
    names: list[bytes | None] = field(default_factory=list[bytes | None])
    problems: dict[int, str] = field(default_factory=dict[int, str])

    def __len__(self) -> int:
        return len(self.offset_deltas)


def unpack(
    records: Octets,
    count: int,
    id_header: bytes,
    name_header: bytes,
    columns: Columns,
    *,
    wanted: int = KEY | VALUE | HEADERS,
    low: int = 0,
    high: int = HIGHEST_DELTA,
    most_headers: int = HIGHEST_DELTA,
) -> None:
    """Append the records of a section, cut as by `stretches`, with the first `most_headers` of each one's headers.
    Raises as that does, with `columns` in any state.
    """
    doubtful: list[tuple[int, pure.Values]] = []
    into: tuple[list[Any], ...] = (
        columns.offset_deltas, columns.timestamp_deltas, columns.keys, columns.values, columns.header_counts,
        columns.header_keys, columns.header_values, columns.sequence_ids, columns.names, doubtful,
    )  # fmt: skip
    walker().unpack(records, count, id_header, name_header, low, high, wanted, into, most_headers)
    for index, (ids, names) in doubtful:
        sequence_id, columns.names[index], problem = judge(ids, names, None)
        if problem is None:
            columns.sequence_ids[index] = sequence_id
        else:
            columns.problems[index] = problem
