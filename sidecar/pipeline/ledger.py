"""The offsets of an exported table: per partition the offset after the last exported one, in the same commit as the
rows.

Theory of operation. A Delta log may hold, for any application id, a version (`txn`, SetTransaction in Delta's
protocol). Here the application is a partition of a topic, and its version the next offset that the table lacks. A
commit holds rows *and* the new offsets of their partitions, so one never exists without the other. No checkpoint or
batch number decides what the table holds: after a crash, a deleted checkpoint or a second export at the same time, the
table's own offsets show what is still to be appended. kafka-delta-ingest stores its offsets the same way.

A writer reads the offsets of its partitions within the transaction. Delta refuses its commit if another commit has
changed what it read (ConcurrentTransactionException). So of two writers with the same rows one is refused, reads the
offsets again, and finds nothing left to write. Nothing here decides what is read from Kafka.

RESTORE brings back an older version's rows but not its offsets, and CLONE copies another table's. So commits that
others have made since the offsets were written are searched for one. If there is one, the export computes the offsets
from the rows. A partition without rows begins as in the new table, whose properties hold these offsets.

Delta's Python interface has no transactions with several `txn` actions. So this module uses Delta's own classes in the
JVM, of the version in the lock of the jars.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sidecar.pipeline import tables
from sidecar.pipeline.tables import KIND, Identity, TableError

_NONE: Final = -1
"""The version that Delta returns for an application that never wrote."""

_FIRST: Final = 0
"""The version of a new table."""

_BEGINS: Final = "sidecar.begins"
"""A property: where the log began when the table was made. Earlier offsets are no gap."""

_SET_BACK: Final = "RESTORE", "CLONE"

_HISTORY: Final = 20, 1_000, 2**31 - 1
"""How many of the newest commits are searched, in growing steps: nearly always the newest one is an export's."""


_MEANWHILE: Final = 100
"""The most commits that may happen between reading a table and reading its history."""


class MovedError(Exception):
    """Another writer has committed since the offsets were read: read them again."""


@dataclass(frozen=True, slots=True)
class Appended:
    """One commit: Delta's version of the table, its rows, and how many keys and values were corrupt."""

    version: int
    rows: int
    corrupt: int


class Ledger:
    """The offsets of one table, and the only way to append to it. `topic` is of the cluster `cluster_id`."""

    def __init__(self, spark: SparkSession, path: str, cluster_id: str, topic: str) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm  # noqa: SLF001 - see above
        self._path = path
        self._prefix = f"sidecar:{cluster_id}:{topic}:"
        self._seen: int | None = None
        """The version up to which no commit was a RESTORE or CLONE; None: not checked yet."""
        self._looked = _NONE
        """The newest version when `is_set_back` was called last."""
        self._form: tuple[str, ...] | None = None
        self._known: tuple[int, dict[int, int]] = _NONE, {}
        """A version of the table and its offsets, so that those of the newest version need not be read again."""

    def stands(self) -> dict[int, int]:
        """The next offset that the table lacks, of each partition it knows. Raises `TableError`."""
        return self._stands(tables.snapshot(self._spark, self._path))

    def _stands(self, table: Any) -> dict[int, int]:
        version = int(table.version())
        if version == self._known[0]:
            return dict(self._known[1])
        known = table.setTransactionsIfKnown()  # from the checksum beside a commit: no log has to be read
        each = self._java(known.get() if known.isDefined() else table.setTransactions())
        found = {str(transaction.appId()): int(transaction.version()) for transaction in each}
        stands = {
            int(name.removeprefix(self._prefix)): offset
            for name, offset in found.items()
            if name.startswith(self._prefix)
        }
        self._known = version, stands
        return dict(stands)

    def is_set_back(self) -> bool:
        """Whether RESTORE or CLONE changed the table's rows since its offsets were written: then they do not match."""
        self._looked = int(tables.snapshot(self._spark, self._path).version())
        return self._is_set_back(self._looked)

    def _is_set_back(self, version: int) -> bool:
        if self._seen is None:
            self._seen = self._read_by_the_last()
        if version > self._seen:
            commits = self._history(version - self._seen + _MEANWHILE)
            since = commits.where((F.col("version") > self._seen) & (F.col("version") <= version))
            if not since.where(F.col("operation").isin(*_SET_BACK)).isEmpty():
                return True
            self._seen = version
        return False

    def counted(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """The offset after the last row of each of these partitions that has rows. `partitions` None: of all
        partitions, which reads the whole table.
        """
        rows = self._spark.read.format("delta").load(self._path)
        if partitions is not None:
            rows = rows.where(F.col("partition").isin(*partitions))
        found = rows.groupBy("partition").agg(F.max("offset")).collect()
        return {int(partition): int(last) + 1 for partition, last in found}

    def begins(self) -> dict[int, int]:
        """Where the log began when the table was made. Later partitions begin at 0 and are not included."""
        metadata = tables.snapshot(self._spark, self._path).metadata()
        begins = tables.mapping(self._spark, metadata.configuration()).get(_BEGINS, "{}")
        return {int(partition): int(offset) for partition, offset in json.loads(begins).items()}

    def _read_by_the_last(self) -> int:
        """The version that the last commit of offsets had read: it did not take account of a later RESTORE."""
        for limit in _HISTORY:
            mine = self._history(limit).where(F.col("operationParameters.queryId") == self._prefix.rstrip(":"))
            found = mine.orderBy(F.desc("version")).select("readVersion").first()
            if found is not None:
                return int(found[0] if found[0] is not None else _NONE)
        return _NONE

    def _history(self, limit: int) -> DataFrame:
        return DeltaTable.forPath(self._spark, self._path).history(limit)

    def create(
        self, identity: Identity, schema: StructType, partition_by: Sequence[str], begins: Mapping[int, int]
    ) -> bool:
        """Create the table, which lacks everything from the offsets in `begins` on. False: another
        process was faster.
        """
        properties = {_BEGINS: json.dumps(dict(sorted(begins.items())))}
        made = tables.create(self._spark, self._path, identity, schema, partition_by, self._offsets(begins), properties)
        if made:
            self._seen, self._known = _FIRST, (_FIRST, dict(begins))
        return made

    def expect(self) -> None:
        """Remember the table's present columns and properties: all rows are written for these."""
        self._form = _form(tables.snapshot(self._spark, self._path).metadata())

    def append(
        self, rows: DataFrame | None, stands: Mapping[int, int], ends: Mapping[int, int], *, anew: bool = False
    ) -> Appended:
        """Append rows and move the offsets of their partitions from `stands` to `ends`: both, or nothing.

        Without rows only the offsets are moved. A partition that is not in `stands` is new to the table. Raises
        `MovedError` if the table's offsets differ from `stands`, before or while the rows are written, or if RESTORE or
        CLONE changed it. With `anew`, which sets new offsets after that, only if the table has changed since
        `is_set_back`. Raises `TableError` if the columns or properties differ from those at `expect`: Delta would not
        notice.
        """
        transaction = tables.delta_log(self._session(rows), self._path).startTransaction()
        version = int(transaction.readVersion())
        if version != self._looked if anew else self._is_set_back(version):
            raise MovedError
        if self._form not in {None, _form(transaction.metadata())}:
            raise TableError(f"the columns or properties of the table at {self._path} were changed: start it again")
        found = self._stands(transaction.snapshot())
        for partition in ends:
            transaction.readTxn().addOne(self._name(partition))  # as `txnVersion` does, which reads all of Delta's log
            if found.get(partition) != stands.get(partition):
                raise MovedError
        files = self._java(transaction.writeFiles(rows._jdf)) if rows is not None else []  # noqa: SLF001
        added = [json.loads(file.json())["add"] for file in files]
        actions = tables.scala_seq(self._spark, [*files, *self._offsets(ends)])
        try:
            version = transaction.commit(actions, self._operation(ends))
        except Exception as error:
            if tables.is_conflict(error):
                raise MovedError from error
            raise
        if version == transaction.readVersion() + 1:
            self._seen = int(version)
            if transaction.readVersion() == self._known[0]:
                self._known = self._seen, {**self._known[1], **ends}
        return Appended(int(version), *_counted(added))

    def _session(self, rows: DataFrame | None) -> SparkSession:
        return self._spark if rows is None else rows.sparkSession

    def _name(self, partition: int) -> str:
        return f"{self._prefix}{partition}"

    def _offsets(self, ends: Mapping[int, int]) -> list[Any]:
        now = self._jvm.scala.Option.apply(self._jvm.java.lang.System.currentTimeMillis())
        action = self._jvm.org.apache.spark.sql.delta.actions.SetTransaction
        return [action(self._name(partition), end, now) for partition, end in ends.items()]

    def _operation(self, ends: Mapping[int, int]) -> Any:
        """The operation that the table's history shows, with the offsets in a readable form."""
        shown = self._jvm.scala.Option.apply(json.dumps({"offsets": {str(p): end for p, end in sorted(ends.items())}}))
        append = self._jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        operation = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$StreamingUpdate")
        return operation(append, self._prefix.rstrip(":"), 0, shown)

    def _java(self, scala: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(scala)


def _form(metadata: Any) -> tuple[str, ...]:
    """The columns and properties that must not change while rows are written."""
    kind = metadata.configuration().get(KIND)
    return str(metadata.schemaString()), str(metadata.partitionColumns()), str(kind)


def _counted(added: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """The numbers of rows and of corrupt ones, from the statistics that Delta keeps of each file: no data is read
    again.
    """
    rows = corrupt = 0
    for file in added:
        statistics = json.loads(file.get("stats") or "{}")
        count = int(statistics.get("numRecords", 0))
        rows += count
        nulls = statistics.get("nullCount", {}).get("corrupt")
        if nulls is not None:
            corrupt += sum(count - int(each) for each in nulls.values())
    return rows, corrupt
