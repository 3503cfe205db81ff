"""What identifies the Delta tables of the pipeline, and the checks before one is changed.

The properties of a table say which job made it, of which topic of which cluster, and what its rows hold. Without them
another cluster's records could be appended unnoticed: offsets alone cannot distinguish them. This module creates tables
and reads their metadata; it reads and writes no rows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sidecar.pipeline.errors import PipelineError, first_line, java_of
from sidecar.pipeline.folders import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

KIND: Final = "sidecar.kind"
CLUSTER_ID: Final = "sidecar.clusterId"
TOPIC: Final = "sidecar.topic"
_FORGETTING: Final = "delta.setTransactionRetentionDuration"

_CONFLICTS: Final = ("io.delta.exceptions.", "io.delta.storage.commit")


class TableError(PipelineError):
    """The path does not hold the expected table, or one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a table: the job that writes it (`export`, `compact`, …) and the log whose records it holds.

    `topic` is the name that was read, a shadow's or a topic's: different people may have access to them.
    """

    kind: str
    cluster_id: str
    topic: str

    @property
    def properties(self) -> dict[str, str]:
        """The table properties."""
        return {KIND: self.kind, CLUSTER_ID: self.cluster_id, TOPIC: self.topic}


@dataclass(frozen=True, slots=True)
class Found:
    """An existing table: Delta's own id of it, its properties, the columns with their types, and
    its partition columns.
    """

    table_id: str
    properties: Mapping[str, str]
    columns: Mapping[str, str]
    partition_by: tuple[str, ...]


def delta_log(spark: SparkSession, path: str) -> Any:
    """Delta's log of a path, in the JVM. It is empty if there is no table."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Delta's Python interface has no transactions
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)  # noqa: SLF001


def snapshot(spark: SparkSession, path: str, *, whole: bool = False) -> Any:
    """The newest state of a table; `whole` reads all of its log, which takes a second or two. Raises `TableError` if it
    cannot be read.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    nothing = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    try:
        found = delta_log(spark, path).update(False, nothing, nothing)
        found.metadata().id()
        if whole:
            found.transactions()
    except Exception as error:
        raise TableError(
            f"the log of the table at {path} cannot be read ({first_line(error)}): nothing was changed. Restore"
            f" {path}/_delta_log from a copy, or name another path"
        ) from error
    return found


def look(spark: SparkSession, path: str, *, whole: bool = True) -> Found | None:
    """The table at a path; None if there is nothing yet. Raises `TableError` for anything else at the path, and for a
    log that cannot be read: all of it is read, unless `whole` is False.
    """
    folder = Folder(spark, path)
    if folder.is_file():
        raise TableError(f"{path} is a file, and a table is a directory: name another path")
    names = folder.names()
    if not names:
        return None
    if "_delta_log" not in names:
        raise TableError(
            f"{path} holds {len(names)} files or directories and no Delta table: name an empty or a new path"
        )
    found = snapshot(spark, path, whole=whole)
    if found.version() < 0:
        if names == ["_delta_log"] and not folder.names("_delta_log"):
            return None  # another process is creating it, or died while it did
        raise TableError(
            f"{path}/_delta_log holds no version of a table: nothing was changed. Restore it from a copy, or name"
            " another path"
        )
    metadata = found.metadata()
    schema = _schema(str(metadata.schemaString()))
    return Found(
        str(metadata.id()),
        mapping(spark, metadata.configuration()),
        {field.name: field.dataType.simpleString() for field in schema.fields},
        tuple(str(metadata.partitionColumns().apply(index)) for index in range(metadata.partitionColumns().size())),
    )


def check(found: Found, path: str, identity: Identity) -> None:
    """Raise `TableError` if the table is not the expected one; the message says how it differs."""
    if KIND not in found.properties:
        raise TableError(f"{path} is a Delta table that no sidecar pipeline made: name another path")
    properties = {
        KIND: ("was made by `pipeline {}`", identity.kind),
        CLUSTER_ID: ("holds records of the Kafka cluster {}", identity.cluster_id),
        TOPIC: ("holds records of the topic {}", identity.topic),
    }
    for name, (text, wanted) in properties.items():
        is_ = found.properties.get(name, "")
        if is_ != wanted:
            raise TableError(f"the table at {path} {text.format(is_)}, not {wanted}: name another path")


def make_or_check(spark: SparkSession, path: str, identity: Identity, schema: StructType) -> None:
    """Create the table of a job, without partition columns, or check that it is that job's. Raises `TableError`."""
    found = look(spark, path)
    if found is None:
        create(spark, path, identity, schema)
        return
    check(found, path, identity)
    check_form(found, path, schema, ())


def check_memory(found: Found, path: str) -> None:
    """Raise `TableError` if Delta is configured to delete the table's offsets after a time."""
    if _FORGETTING in found.properties:
        raise TableError(
            f"the table at {path} forgets its offsets, as its property {_FORGETTING} says"
            f" ({found.properties[_FORGETTING]}): ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('{_FORGETTING}')"
        )


def check_form(found: Found, path: str, schema: StructType, partition_by: Sequence[str]) -> None:
    """Raise `TableError` if its columns differ from those that would be written."""
    wanted = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in dict.fromkeys([*wanted, *found.columns]):
        if wanted.get(name) != found.columns.get(name):
            raise TableError(
                f"column {name} of the table at {path} is {found.columns.get(name, 'not there')}, and"
                f" {wanted.get(name, 'nothing')} would be written: use the format and schema it was made with,"
                " or name another path"
            )
    if found.partition_by != tuple(partition_by):
        raise TableError(
            f"the table at {path} is partitioned by {', '.join(found.partition_by) or 'nothing'}, not by"
            f" {', '.join(partition_by) or 'nothing'}: use the same, or name another path"
        )


def create(
    spark: SparkSession,
    path: str,
    identity: Identity,
    schema: StructType,
    partition_by: Sequence[str] = (),
    beside: Sequence[Any] = (),
    extra: Mapping[str, str] | None = None,
) -> bool:
    """Create an empty table; False if another process was faster. `beside` are further actions for the same commit,
    `extra` are properties besides those of its identity. Raises `TableError` if nothing can be written.

    It commits like `append` of the ledger, not with Delta's builder, which takes seconds and cannot commit further
    actions. After a crash there is a table, or nothing that blocks another one.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    delta, option = jvm.org.apache.spark.sql.delta, jvm.scala.Option
    transaction = delta_log(spark, path).startTransaction()
    if transaction.readVersion() >= 0:
        return False
    form = delta.actions.Format("parquet", _scala_map(spark, {}))
    properties = _scala_map(spark, {**identity.properties, **(extra or {})})
    now = jvm.java.lang.System.currentTimeMillis()
    metadata = delta.actions.Metadata(
        str(uuid.uuid4()),
        None,
        None,
        form,
        schema.json(),
        scala_seq(spark, partition_by),
        properties,
        option.apply(now),
    )
    operation = getattr(delta, "DeltaOperations$CreateTable")(metadata, False, False, option.empty())
    try:
        transaction.updateMetadataForNewTable(metadata)
        transaction.commit(scala_seq(spark, beside), operation)
    except Exception as error:
        if is_conflict(error):
            return False
        raise TableError(
            f"no table can be made at {path} ({first_line(error)}): name another path, or other columns"
        ) from error
    return True


def is_conflict(error: BaseException) -> bool:
    """Whether Delta refused a commit because of another one."""
    java = java_of(error)
    name = str(java.getClass().getName()) if java is not None else type(error).__name__
    return name.startswith(_CONFLICTS) or "Concurrent" in name or "ChangedException" in name


def scala_seq(spark: SparkSession, values: Sequence[Any]) -> Any:
    """An immutable sequence, as Delta's classes take it."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    java = jvm.java.util.ArrayList()
    for value in values:
        java.add(value)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()


def _schema(text: str) -> StructType:
    import json  # noqa: PLC0415

    from pyspark.sql.types import StructType  # noqa: PLC0415

    return StructType.fromJson(json.loads(text))


def _scala_map(spark: SparkSession, values: Mapping[str, str]) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    java = jvm.java.util.HashMap()
    for name, value in values.items():
        java.put(name, value)
    immutable = getattr(jvm.scala.collection.immutable, "Map$").__getattr__("MODULE$")
    return getattr(immutable, "from")(jvm.scala.jdk.javaapi.CollectionConverters.asScala(java))


def mapping(spark: SparkSession, scala_map: Any) -> dict[str, str]:
    """A Scala map of strings as a dict."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(scala_map))
