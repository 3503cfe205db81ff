"""The Delta tables of audits under one path: attributed `runs`, `violations`, `verdicts`, `takeovers`, and `lags` of
the topic's shadows.

Rows of an audit carry its id, which is made of the topic and the pinned range. The same audit again replaces its own
rows. A verdict is written after all rows that it describes. Takeovers are added once, by the ids of their events. The
tables hold audits of one Kafka cluster, of any of its topics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sidecar.pipeline.audit.explained import KINDS
from sidecar.pipeline.audit.facts import LAGS, TAKEOVERS, Lag, Takeover, as_frame
from sidecar.pipeline.audit.judge import Audit, Bounds
from sidecar.pipeline.errors import PipelineError, first_line
from sidecar.pipeline.folders import Folder
from sidecar.pipeline.source.options import RUNS
from sidecar.pipeline.source.tables import ddl
from sidecar.pipeline.tables import CLUSTER_ID, Identity, TableError, check, look, make_or_check

_WHOSE: Final = "audit string, cluster_id string, topic string"
_RUNS: Final = f"{ddl(RUNS)}, name string, slot string, shared boolean, session string, generation long"
_VIOLATIONS: Final = (
    "kind string, partition int, offset long, producer_id long, producer_epoch int, name string, sequence_id long,"
    " detail string"
)
_VERDICTS: Final = (
    "at_ms long, starts map<int, long>, ends map<int, long>, passes boolean, records long,"
    f" {', '.join(f'{kind} long' for kind in KINDS)}, gaps decimal(38,0), malformed long"
)
SCHEMAS: Final = {
    "runs": f"{_WHOSE}, {_RUNS}",
    "violations": f"{_WHOSE}, {_VIOLATIONS}",
    "verdicts": f"{_WHOSE}, {_VERDICTS}",
    "lags": f"{_WHOSE}, at_ms long, {LAGS}",
    "takeovers": f"cluster_id string, topic string, {TAKEOVERS}",
}


def audit_id(topic: str, bounds: Bounds) -> str:
    """The id of an audit, which depends on the topic and the range only."""
    text = json.dumps([topic, sorted(bounds.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class AuditTables:
    """The tables under a path, created if they do not exist. Raises `TableError` if there is something else."""

    def __init__(self, spark: SparkSession, path: str, cluster_id: str) -> None:
        self._spark = spark
        self._cluster_id = cluster_id
        self._paths = {name: f"{path.rstrip('/')}/{name}" for name in SCHEMAS}
        self._look(path)

    def _look(self, path: str) -> None:
        folder = Folder(self._spark, path)
        names = set(folder.names() or ())
        if folder.is_file() or names - set(SCHEMAS):
            raise TableError(
                f"{path} is no set of tables of audits: it is a file, or holds something else. Name an empty or a new"
                " path"
            )
        identity = Identity("audit", self._cluster_id, "*")
        for name, where in self._paths.items():
            make_or_check(self._spark, where, identity, _schema(name))

    def add(self, found: Audit, takeovers: Sequence[Takeover], lags: Sequence[Lag], at_ms: int) -> None:
        """Write the results of an audit at `at_ms`, Unix ms, and the lags of the readers of shadows."""
        its = audit_id(found.topic, found.bounds)
        totals = found.totals
        verdict = (
            its, self._cluster_id, found.topic, at_ms, {index: first for index, (first, _) in found.bounds.items()},
            {index: behind for index, (_, behind) in found.bounds.items()}, found.passes, found.records,
            *(totals[kind] for kind in KINDS), Decimal(found.gaps), found.malformed,
        )  # fmt: skip
        try:
            self._replace("runs", its, found.topic, found.runs)
            self._replace("violations", its, found.topic, found.violations)
            self._add_takeovers(found.topic, takeovers)
            behind = as_frame(self._spark, lags, LAGS).withColumn("at_ms", F.lit(at_ms))
            self._replace("lags", its, found.topic, behind)
            self._replace("verdicts", its, found.topic, as_frame(self._spark, [verdict], SCHEMAS["verdicts"]))
        except PipelineError:
            raise
        except Exception as error:
            raise TableError(
                f"the tables of {found.topic} cannot be written ({first_line(error)}): the same audit again completes"
                " or replaces what it wrote"
            ) from error

    def _replace(self, name: str, its: str, topic: str, rows: DataFrame) -> None:
        whose = {"audit": F.lit(its), "cluster_id": F.lit(self._cluster_id), "topic": F.lit(topic)}
        columns = _schema(name).fieldNames()
        writer = rows.withColumns(whose).select(*columns).write.format("delta").mode("overwrite")
        writer.option("replaceWhere", f"audit = '{its}'").save(self._paths[name])

    def _add_takeovers(self, topic: str, takeovers: Sequence[Takeover]) -> None:
        from delta.tables import DeltaTable  # noqa: PLC0415 - an extra

        if not takeovers:
            return
        rows = as_frame(self._spark, takeovers, TAKEOVERS)
        rows = rows.withColumns({"cluster_id": F.lit(self._cluster_id), "topic": F.lit(topic)})
        table = DeltaTable.forPath(self._spark, self._paths["takeovers"]).alias("known")
        same = "known.topic = found.topic AND known.event = found.event"
        table.merge(rows.alias("found"), same).whenNotMatchedInsertAll().execute()


def read_tables(spark: SparkSession, path: str) -> tuple[dict[str, DataFrame], str]:
    """The tables under a path, by name, and the id of the Kafka cluster. Raises `TableError` if there are none."""
    found: dict[str, DataFrame] = {}
    clusters: set[str] = set()
    for name in SCHEMAS:
        where = f"{path.rstrip('/')}/{name}"
        its = look(spark, where)
        if its is None:
            raise TableError(
                f"{path} holds no tables of audits: `sidecar pipeline audit TOPIC --table {path}` makes them"
            )
        cluster_id = its.properties.get(CLUSTER_ID, "")
        check(its, where, Identity("audit", cluster_id, "*"))
        clusters.add(cluster_id)
        found[name] = spark.read.format("delta").load(where)
    if len(clusters) > 1:
        raise TableError(f"the tables under {path} are of several Kafka clusters: {', '.join(sorted(clusters))}")
    return found, clusters.pop()


def _schema(name: str) -> StructType:
    found = StructType.fromDDL(SCHEMAS[name])
    assert isinstance(found, StructType)
    return found
