"""Which stretches of a log are read a second time, record by record: few, however many were asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_COLLECTED: Final = 20_000
_KEPT: Final = 16


class Stretch(NamedTuple):
    """Offsets `first` to `last` of a partition, both within."""

    partition: int
    first: int
    last: int


def collected(asked: DataFrame) -> list[Stretch]:
    """Of a frame of `partition`, `first_offset`, `last_offset`: the stretches that cover all of it. Where it has too
    many rows for one process, the least that covers each partition's.
    """
    columns = ("partition", "first_offset", "last_offset")
    rows = asked.select(*columns).coalesce(1).limit(_COLLECTED + 1).collect()
    if len(rows) > _COLLECTED:
        hull = asked.groupBy("partition").agg(F.min("first_offset"), F.max("last_offset"))
        rows = hull.collect()
    return merged(Stretch(*row) for row in rows)


def merged(asked: Iterable[Stretch], most: int = _KEPT) -> list[Stretch]:
    """The same offsets as at most so many stretches per partition, none of which touch: the smallest gaps between them
    are closed first.
    """
    by_partition: dict[int, list[Stretch]] = {}
    for each in sorted(asked):
        found = by_partition.setdefault(each.partition, [])
        if found and each.first <= found[-1].last + 1:
            found[-1] = found[-1]._replace(last=max(found[-1].last, each.last))
        else:
            found.append(each)
    return [each for found in by_partition.values() for each in _closed(found, most)]


def _closed(found: list[Stretch], most: int) -> list[Stretch]:
    widths = sorted(range(1, len(found)), key=lambda index: found[index].first - found[index - 1].last, reverse=True)
    kept = sorted(widths[: most - 1])
    starts, ends = [0, *kept], [*kept, len(found)]
    return [
        Stretch(found[start].partition, found[start].first, found[end - 1].last)
        for start, end in zip(starts, ends, strict=True)
    ]
