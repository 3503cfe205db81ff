"""How a rebuild reads a portion of a log with Spark: the highest sequence id and its offset by partition and name.

All except `Reader` is pure. The input are data frames of the source's view `runs`, and the names of writers from the
changelog. The rules are those of a node that reads a log after a takeover (`sidecar.dedup.recovery`): ids without a
name add nothing, and ids of a forgotten writer are never counted under a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from sidecar.dedup.names import FORGOTTEN
from sidecar.jobs.progress import PortionIds, Range, Row
from sidecar.jobs.states import Before
from sidecar.pipeline.security import of_settings
from sidecar.pipeline.source import Log, register, view
from sidecar.settings import Settings

_WRITERS: Final = "writer_id long, first_epoch int, last_epoch int, writer string, forgotten boolean"


class Writer(NamedTuple):
    """The session of a producer id's epochs from `first_epoch` to `last_epoch`, from the changelog. Its name; None if
    the session has none, `forgotten` if it is no longer known.
    """

    producer_id: int
    first_epoch: int
    last_epoch: int
    name: str | None
    forgotten: bool = False


def writers_frame(spark: SparkSession, writers: Iterable[Writer]) -> DataFrame:
    """The writers as a data frame, for `by_name` and `offsets_of`."""
    return spark.createDataFrame(list(writers), _WRITERS)


def by_name(runs: DataFrame, writers: DataFrame, *, compacted: bool = False) -> DataFrame:
    """What runs hold of each partition and name. `compacted`: batches of the log may have lost their last records, so a
    run's last offset need not be a record's. Ids in transactions do not count, as in a node's own recovery.

    Columns: partition int, name string (null: records without ids, or without a name), forgotten boolean, id long,
    offset long (of the first record with that id; null: somewhere from `first_offset` to `last_offset`), seen long
    (offset of the last record with an id), records long, malformed long, begin long (offset of the first record with an
    id).
    """
    data = _named(runs.where(F.col("control").isNull()), writers)
    has_ids = (F.col("ids") > 0) & ~F.col("is_transactional")
    data = data.withColumns(
        {
            "name": F.when(has_ids & ~F.col("is_forgotten"), F.col("its_name")),
            "forgotten": has_ids & F.col("is_forgotten"),
        }
    )
    run = F.struct(
        F.col("last_id").alias("id"),
        (-F.col("last_offset")).alias("nearest"),
        F.col("first_offset"),
        ((F.col("ids") == F.col("records")) & F.lit(not compacted)).alias("is_last"),
    )
    highest = F.max(F.when(has_ids, run))
    found = data.groupBy("partition", "name", "forgotten").agg(
        highest.alias("highest"),
        F.max(F.when(has_ids, F.col("last_offset"))).alias("seen"),
        F.sum("records").alias("records"),
        F.sum("malformed").alias("malformed"),
        F.min(F.when(has_ids, F.col("first_offset"))).alias("begin"),
    )
    last = -F.col("highest.nearest")
    return found.select(
        "partition",
        "name",
        "forgotten",
        F.col("highest.id").alias("id"),
        F.when(F.col("highest.is_last"), last).alias("offset"),
        F.col("highest.first_offset").alias("first_offset"),
        last.alias("last_offset"),
        "seen",
        "records",
        "malformed",
        "begin",
    )


def totals(found: DataFrame) -> DataFrame:
    """Totals of the result of `by_name` by partition: records long, malformed long, forgotten long (offset of the first
    id whose writer is forgotten; null: none), names long, uncertain long (names whose offset is not known).
    """
    return found.groupBy("partition").agg(
        F.sum("records").alias("records"),
        F.sum("malformed").alias("malformed"),
        F.min(F.when(F.col("forgotten"), F.col("begin"))).alias("forgotten"),
        F.count("name").alias("names"),
        F.count(F.when(F.col("offset").isNull(), F.col("name"))).alias("uncertain"),
    )


def offsets_left(runs: DataFrame) -> DataFrame:
    """How many offsets of each partition (int) still have a record or a marker (long). Compaction took the others."""
    return runs.groupBy("partition").agg(F.sum("records").alias("offsets"))


def newest(found: DataFrame, limit: int) -> DataFrame:
    """The names in the result of `by_name`: of each partition the `limit` names with the latest records."""
    order = Window.partitionBy("partition").orderBy(F.col("seen").desc(), F.col("name"))
    named = found.where(F.col("name").isNotNull())
    return named.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= limit).drop("rank")


def uncertain(names: DataFrame) -> DataFrame:
    """Those names in the result of `newest` whose offset has to be looked up among the records of the view `records`,
    because the run's last record may have no id, or an invalid one.
    """
    return names.where(F.col("offset").isNull()).select("partition", "name", "id", "first_offset", "last_offset")


def bounds_of(wanted: DataFrame) -> DataFrame:
    """The ranges in which to look up the result of `uncertain`: partition int, from offset begin long to after long,
    exclusive.
    """
    return wanted.groupBy("partition").agg(
        F.min("first_offset").alias("begin"), (F.max("last_offset") + 1).alias("behind")
    )


def offsets_of(records: DataFrame, writers: DataFrame, wanted: DataFrame) -> DataFrame:
    """Columns partition int, name string, offset long: the first of `records` (the view of that name) that has the id
    of a name in `wanted`. `wanted` is a result of `uncertain`; each id is looked up only in its range.
    """
    is_data = F.col("control").isNull() & ~F.col("is_transactional")
    numbered = records.where(is_data & F.col("sequence_id").isNotNull())
    data = _named(numbered.select("partition", "offset", "producer_id", "producer_epoch", "producer_name",
                                  "sequence_id"), writers)  # fmt: skip
    of = wanted.select(
        F.col("partition").alias("of"), "name", "id", F.col("first_offset").alias("low"),
        F.col("last_offset").alias("high"),
    )  # fmt: skip
    meets = (
        (F.col("partition") == F.col("of"))
        & (F.col("its_name") == F.col("name"))
        & (F.col("sequence_id") == F.col("id"))
        & F.col("offset").between(F.col("low"), F.col("high"))
    )
    found = data.join(F.broadcast(of), meets)
    return found.groupBy("partition", "name").agg(F.min("offset").alias("offset"))


def _named(data: DataFrame, writers: DataFrame) -> DataFrame:
    """Adds `its_name`, the header's name, else the writer's, and `is_forgotten`: the name would be the writer's, but
    that is no longer known.
    """
    written = (F.col("producer_id") == F.col("writer_id")) & F.col("producer_epoch").between(
        F.col("first_epoch"), F.col("last_epoch")
    )
    joined = data.join(F.broadcast(writers), written, "left")
    return joined.withColumns(
        {
            "its_name": F.coalesce("producer_name", "writer"),
            "is_forgotten": F.coalesce(F.col("producer_name").isNull() & F.col("forgotten"), F.lit(False)),
        }
    ).drop("writer_id", "first_epoch", "last_epoch", "writer", "forgotten")


_NEEDED: Final = "partition,offset,producer_id,producer_epoch,is_transactional,control,sequence_id,producer_name"


class Reader:
    """Reads portions of the log of one topic. Its results hold at most the names that nodes keep of each partition."""

    def __init__(self, spark: SparkSession, before: Before, settings: Settings) -> None:
        self._spark = spark
        self._log = Log(
            ",".join(map(str, settings.bootstrap_servers)),
            before.topic,
            settings.sequence_id_header,
            settings.producer_name_header,
            of_settings(settings),
        )
        writers = [
            Writer(producer_id, first, last, None if name is None else name.decode(), name == FORGOTTEN)
            for producer_id, first, last, name in before.writers.spans()
        ]
        self._writers = writers_frame(spark, writers)
        self._limit = settings.producer_names_limit
        self._compacted = before.is_compacted
        register(spark)

    def read(self, portion: Mapping[int, Range], *, counts: bool = False) -> dict[int, PortionIds]:
        """What the log holds at these offsets, by partition. `counts`: also how many offsets are left, which takes a
        second pass. Raises `PipelineError`.
        """
        runs = view(self._spark, self._log, "runs", portion)
        left = {row.partition: row.offsets for row in offsets_left(runs).collect()} if counts else {}
        found = by_name(runs, self._writers, compacted=self._compacted).persist()
        try:
            sums = totals(found).collect()
            by_partition = {row.partition: PortionIds(row.records, row.malformed, row.forgotten, []) for row in sums}
            names = newest(found, self._limit)
            looked_up = self._look_up(names) if any(row.uncertain for row in sums) else {}
            for row in names.toLocalIterator():
                offset = row.offset if row.offset is not None else looked_up.get((row.partition, row.name), -1)
                by_partition[row.partition].rows.append(Row(row.name.encode(), row.id, offset, row.seen))
        finally:
            found.unpersist()
        for partition, offsets in left.items():
            ids = by_partition.get(partition, PortionIds(0, 0, None, []))
            by_partition[partition] = ids._replace(offsets=offsets)
        return by_partition

    def _look_up(self, names: DataFrame) -> dict[tuple[int, str], int]:
        """The offsets that the runs do not show."""
        wanted = uncertain(names)
        bounds = bounds_of(wanted).collect()
        if not bounds:
            return {}
        ranges = {row.partition: (row.begin, row.behind) for row in bounds}
        records = view(self._spark, self._log, "records", ranges, columns=_NEEDED)
        found = offsets_of(records, self._writers, wanted).collect()
        return {(row.partition, row.name): row.offset for row in found}
