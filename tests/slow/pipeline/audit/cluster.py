"""Two real nodes, audits of what they serve, and a writer that goes past them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from sidecar.jobs.audit import Asked, audit
from sidecar.pipeline.audit.judge import Audit
from sidecar.protocol import produce_upstream
from sidecar.protocol.primitives import Octets
from sidecar.settings import resolve
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.exclusive.producers import RawProducer, Sent, batch_of, id_headers
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.wait import wait_for

CLEAN = {"duplicates": 0, "regressions": 0, "interleaved": 0, "unowned": 0, "missing": 0}


@dataclass
class Nodes:
    """Two nodes of one cluster, and how audits find what they know."""

    both: list[NodeProcess]
    kafka: str
    redis: str
    cluster: str

    def govern(self, topic: str, mode: str, **more: object) -> None:
        body = {"access_mode": mode, "deduplication": True, **more}
        status, answer = Rest(self.both[0].admin_url).call("PUT", f"/v1/topics/{topic}/policy", body)
        assert status == 200, answer

    def serving(self, topic: str) -> NodeProcess:
        rest = Rest(self.both[0].admin_url)
        number = wait_for(lambda: rest.topic(topic)["serving_node"], "a node to serve the topic")
        return self.both[number - 1]

    def other(self, node: NodeProcess) -> NodeProcess:
        return self.both[1 - self.both.index(node)]

    def writer(self, topic: str, client_id: str, *, partition: int = 0) -> IdProducer:
        """A session at the node that serves the topic, or its partition, once it got id 0 in. Raises AssertionError."""
        found = wait_for(lambda: self._writer(topic, client_id, partition), "a node to serve the topic", 40)
        assert found is not None
        return found

    def _writer(self, topic: str, client_id: str, partition: int) -> IdProducer | None:
        for node in self.both:
            found = IdProducer(node.bootstrap, client_id)
            if found.write(topic, 0, partition=partition).error == 0:
                return found
            found.close()
        return None

    def audit(
        self,
        spark: SparkSession,
        *topics: str,
        bootstrap: str = "",
        path: Path | None = None,
        begin: str | None = None,
        until: str = "now",
    ) -> list[Audit]:
        values = {"bootstrap_servers": self.kafka, "redis_url": self.redis, "cluster": self.cluster}
        asked = Asked(
            topics, bootstrap or self.kafka, self.kafka, begin, until, table=None if path is None else str(path)
        )
        return audit(asked, resolve(values, None).settings, lambda: nullcontext(spark), lambda _: None)


def wrote(producer: IdProducer, topic: str, *ids: int, **more: int) -> Sent:
    """A batch that gets in once the node knows whose the topic is."""
    return wait_for(lambda: sent if (sent := producer.write(topic, *ids, **more)).error == 0 else None, "a write", 30)  # type: ignore[arg-type]


class Past:
    """Writes past the node, as whoever it likes."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._client = RawProducer(kafka, "past")
        self._topic = topic

    def write(
        self,
        stamp: tuple[int, int],
        sequence: int,
        *ids: int | bytes | None,
        partition: int = 0,
        name: bytes | None = None,
    ) -> None:
        headers = [id_headers(each, name) for each in ids]
        self.raw(self._topic, partition, batch_of([b"v"] * len(ids), *stamp, sequence, headers=headers))

    def raw(self, topic: str, partition: int, batch: Octets) -> None:
        self._client._correlation += 1
        records: list[tuple[bytes, int, Octets]] = [(topic.encode(), partition, batch)]
        parts = produce_upstream.encode_request(self._client._correlation, b"past", 8, -1, 10_000, records)
        self._client.socket.sendall(b"".join(parts))
        sent = self._client.finish()
        assert sent.error == 0, sent

    def close(self) -> None:
        self._client.close()
