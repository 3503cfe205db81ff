"""The jobs on Spark, one function each, for the command line and for programs: audit, rebuild, export, compact, report.

A job gets the address of the Kafka to read, gets Spark from a function that opens a session (`session`), and raises
`sidecar.pipeline.errors.PipelineError` where it cannot go on. What nodes keep in Kafka and Redis is gathered here
(`knowledge`, `states`). What Spark does for an export, a compaction and a report is in their modules, for an audit in
`sidecar.pipeline.audit`, for a rebuild in `portions`. Knows no command line.
"""

from typing import Final

MAX_OFFSETS: Final = 5_000_000
"""Of one commit of an export."""

PORTION: Final = 10_000_000
"""Offsets that a rebuild reads before it writes down what it knows."""
