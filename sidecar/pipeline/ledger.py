"""How far an exported table has come: the offset after the last one, per partition, in the same commit as the rows.

Theory of operation. A Delta log may hold, for any application id, a version (`txn`, SetTransaction in Delta's
protocol). Here the application is a partition of a topic, and its version the next offset that the table lacks. A
commit holds rows *and* the new offsets of their partitions, so there is no moment between the two, and no checkpoint
or batch number has a say in what the table holds: after a crash, a deleted checkpoint or a second export beside this
one, the table's own offsets show what is still to be appended. kafka-delta-ingest keeps its offsets the same way.

A writer that commits has read the offsets of its partitions within the transaction. Delta refuses a commit where
another one has changed what it has read (ConcurrentTransactionException), so of two writers with the same rows one is
refused, looks again, and finds nothing left to write. Nothing here decides what is read from Kafka.

RESTORE brings back an older version's rows and not its offsets, and CLONE another table's. So commits that others have
made since the offsets were written are looked through for one, and a reader that finds the table set back counts its
rows anew. Where a partition has none, it begins as the table once did, which stands in its properties.

Delta's Python interface has no transactions with several `txn` actions: these are its own classes in the JVM, of the
version that the lock of the jars names.
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
"""What Delta answers for an application that never wrote."""

_FIRST: Final = 0
"""The version of a table that was just made."""

_BEGINS: Final = "sidecar.begins"
"""A property: where the log began when the table was made. What was in front of that is no gap."""

_SET_BACK: Final = "RESTORE", "CLONE"

_HISTORY: Final = 20, 1_000, 2**31 - 1
"""How many of the newest commits are searched, step by step: nearly always the newest one is an export's."""


_MEANWHILE: Final = 100
"""The most commits that may lie between reading a table and reading its history."""


class MovedError(Exception):
    """Somebody else has committed since the offsets were read: look again."""


@dataclass(frozen=True, slots=True)
class Appended:
    """One commit: Delta's version of the table, its rows, and how many keys and values were not what they should be."""

    version: int
    rows: int
    corrupt: int


class Ledger:
    """The offsets of one table, and its only writer's way to append. `topic` is of the cluster `cluster_id`."""

    def __init__(self, spark: SparkSession, path: str, cluster_id: str, topic: str) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm  # noqa: SLF001 - see above
        self._path = path
        self._prefix = f"sidecar:{cluster_id}:{topic}:"
        self._seen: int | None = None
        """The version up to which it is known that nobody has set the table back; None: not looked yet."""
        self._looked = _NONE
        """The version that was the newest one when that was asked."""
        self._form: tuple[str, ...] | None = None
        self._known: tuple[int, dict[int, int]] = _NONE, {}
        """A version of the table and its offsets: those of the newest one need not be read again."""

    def stands(self) -> dict[int, int]:
        """The next offset that the table lacks, per partition it knows. Raises `TableError`."""
        return self._stands(tables.snapshot(self._spark, self._path))

    def _stands(self, table: Any) -> dict[int, int]:
        version = int(table.version())
        if version == self._known[0]:
            return dict(self._known[1])
        known = table.setTransactionsIfKnown()  # of the checksum beside a commit: nothing has to be read for them
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
        """Whether the table got other rows by RESTORE or CLONE since its offsets were written: they do not fit then."""
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
        """The offset after the last row of each of these partitions that has one; of None: of all, for which all of
        the table is read.
        """
        rows = self._spark.read.format("delta").load(self._path)
        if partitions is not None:
            rows = rows.where(F.col("partition").isin(*partitions))
        found = rows.groupBy("partition").agg(F.max("offset")).collect()
        return {int(partition): int(last) + 1 for partition, last in found}

    def begins(self) -> dict[int, int]:
        """Where the log began when the table was made; partitions that came later begin at 0 and are not among them."""
        metadata = tables.snapshot(self._spark, self._path).metadata()
        begins = tables.mapping(self._spark, metadata.configuration()).get(_BEGINS, "{}")
        return {int(partition): int(offset) for partition, offset in json.loads(begins).items()}

    def _read_by_the_last(self) -> int:
        """The version that the last commit of offsets was made upon: a RESTORE after it did not count for that one."""
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
        """Make the table, which lacks everything from the offsets in `begins` on; False: another process was faster."""
        properties = {_BEGINS: json.dumps(dict(sorted(begins.items())))}
        made = tables.create(self._spark, self._path, identity, schema, partition_by, self._offsets(begins), properties)
        if made:
            self._seen, self._known = _FIRST, (_FIRST, dict(begins))
        return made

    def expect(self) -> None:
        """What the table is of now is what all rows are written for."""
        self._form = _form(tables.snapshot(self._spark, self._path).metadata())

    def append(
        self, rows: DataFrame | None, stands: Mapping[int, int], ends: Mapping[int, int], *, anew: bool = False
    ) -> Appended:
        """Append rows and move the offsets of their partitions from `stands` to `ends`: both, or nothing.

        Without rows the offsets alone are moved. A partition that is not in `stands` is new to the table. Raises
        `MovedError` where the table stands elsewhere by now, before or while the rows were written, or was set back; an
        answer to that, `anew`, where it was moved since it was looked at. Raises `TableError` where the table is of
        another form than it was when that was expected: Delta would write these rows into any.
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
        """What the table's history shows; the offsets as a person would look for them."""
        shown = self._jvm.scala.Option.apply(json.dumps({"offsets": {str(p): end for p, end in sorted(ends.items())}}))
        append = self._jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        operation = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$StreamingUpdate")
        return operation(append, self._prefix.rstrip(":"), 0, shown)

    def _java(self, scala: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(scala)


def _form(metadata: Any) -> tuple[str, ...]:
    """What must not change while rows are written."""
    kind = metadata.configuration().get(KIND)
    return str(metadata.schemaString()), str(metadata.partitionColumns()), str(kind)


def _counted(added: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Rows and corrupt ones, out of the statistics that Delta keeps of each file: nothing is read again."""
    rows = corrupt = 0
    for file in added:
        statistics = json.loads(file.get("stats") or "{}")
        count = int(statistics.get("numRecords", 0))
        rows += count
        nulls = statistics.get("nullCount", {}).get("corrupt")
        if nulls is not None:
            corrupt += sum(count - int(each) for each in nulls.values())
    return rows, corrupt
