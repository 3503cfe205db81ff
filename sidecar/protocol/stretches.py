"""What the records of a log's batches hold, for jobs that read whole logs: stretches of one name and rising ids,
without an object per record; and the records themselves, in columns.

Batches may be compacted (offset deltas with holes) and are cut to a range of offsets, so that two readers of
neighbouring ranges count nothing twice. Ids and names are judged by themselves, never by what was seen before.
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

    A record with a bad id or a bad name stands in `malformed` alone; it ends no stretch but by another name, and where
    such records come first they are a stretch of their own. Ids are -1 where there is none.
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
    """Records of any number of sections, column by column; what was not `wanted` stays empty.

    The headers of all records lie one after the other, as many of each as `header_counts` says. `problems` says what
    is wrong with the id or the name of a record, by its index: there is no id there.
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
