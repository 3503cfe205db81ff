"""The Spark data source `sidecar`: what Spark's Kafka source hides: producer ids, epochs, sequences, markers.

`register(spark)`, then `spark.read.format("sidecar")` with the options of `sidecar.pipeline.source.options`: view
`records` is a row per record, view `runs` a row for what one writer wrote in a row, which is a few for millions of
records. Through a broker or a node, shadows included.
"""

from sidecar.pipeline.source.datasource import FORMAT, Log, is_small, register, view

__all__ = ["FORMAT", "Log", "is_small", "register", "view"]
