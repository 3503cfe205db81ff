"""The jobs on Spark, one function each, for the command line and for programs: audit, rebuild, export, compact, report.

A job takes the address of the Kafka to read and a function that opens a Spark session (`session`). It raises
`sidecar.pipeline.errors.PipelineError` if it cannot continue. `knowledge` and `states` read the state of nodes from
Kafka and Redis. The work in Spark is in the modules of export, compaction and report, for an audit in
`sidecar.pipeline.audit`, for a rebuild in `portions`. Does not depend on the command line.
"""

from typing import Final

MAX_OFFSETS: Final = 5_000_000
"""The default limit of offsets in one commit of an export."""

PORTION: Final = 10_000_000
"""Offsets that a rebuild reads before it saves the result."""
