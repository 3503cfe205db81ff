"""The Spark data source `sidecar`, which shows what Spark's Kafka source hides: producer ids, epochs, sequences,
markers.

`register(spark)`, then `spark.read.format("sidecar")` with the options of `sidecar.pipeline.source.options`. View
`records` has a row per record. View `runs` has a row for what one writer wrote in a row, which is a few rows for
millions of records. It reads from a broker or a node, shadows included.
"""

from sidecar.pipeline.source.datasource import FORMAT, Log, is_small, register, view

__all__ = ["FORMAT", "Log", "is_small", "register", "view"]
