"""What export is held against: Spark's own Kafka source into a Delta table, as any tutorial does it, exactly once by
its checkpoint alone. `python -m benchmarks.pipeline.copy BOOTSTRAP TOPIC PATH MASTER`; its last line is that of jobs.
"""

from __future__ import annotations

import sys
import time

from sidecar.cli.pipeline.running import say, spark_session
from sidecar.jobs.session import rate


def main(bootstrap: str, topic: str, path: str, master: str) -> None:
    """Copy all there is, once."""
    with spark_session(master) as spark:
        began = time.perf_counter()
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        source = (
            source.option("subscribe", topic).option("startingOffsets", "earliest").option("includeHeaders", "true")
        )
        writer = source.load().writeStream.format("delta").option("checkpointLocation", f"{path}.checkpoint")
        query = writer.trigger(availableNow=True).start(path)
        query.awaitTermination()
        seconds = time.perf_counter() - began
        say(rate(spark.read.format("delta").load(path).count(), seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
