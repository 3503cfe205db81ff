"""A node whose broker is reached through a proxy that a test commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests import raw
from tests.kafka.gateway.requests import request
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.kafka.passthrough.fault_proxy import FaultProxy
    from tests.nodes import NodeProcess

CONNECT_TIMEOUT = 0.5


@dataclass
class BehindProxy:
    """A node that reaches its broker through a proxy, as Kafka itself tells it to."""

    kafka: Kafka
    proxy: FaultProxy
    node: NodeProcess

    def wait_until_well(self) -> None:
        """Wait until the node reaches the broker, and no earlier attempt can still fail."""
        wait_for(lambda: not self.knocks(), "earlier attempts to end", 20)
        part = ("__consumer_offsets", 0)
        with RawClient(self.node.bootstrap) as client:

            def well() -> bool:
                return raw.code(client.ask(raw.list_offsets({part: -1})).topics[0].partitions[0]) == 0

            wait_for(well, "the broker to be reached", 20)

    def topic(self, name: str, partitions: int = 1) -> str:
        with RawClient(self.kafka.bootstrap) as direct:
            topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1}]
            direct.ask(request(19, 5, timeout=10_000, topics=topics))
            wait_for(lambda: raw.code(direct.ask(raw.metadata([name])).topics[0]) == 0, name)
        return name

    def values(self, name: str, partition: int = 0) -> list[bytes]:
        """What lies in the log, in order, one value per batch."""
        with RawClient(self.kafka.bootstrap) as direct:
            records = raw.fetched(direct.ask(raw.fetch({(name, partition): 0}, max_wait=0)))[name, partition].records
        found, at = list[bytes](), 0
        while records and at < len(records):
            size = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
            found.append(bytes(records[at : at + size]).rsplit(b"|", 2)[1])
            at += size
        return found

    def knocks(self) -> set[int]:
        """Local ports of connection attempts to the proxy that hang (SYN_SENT, 2 in proc_net_tcp(5))."""
        found: set[int] = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if int(remote.rsplit(":", 1)[1], 16) == self.proxy.port and state == "02":
                found.add(int(local.rsplit(":", 1)[1], 16))
        return found - self.proxy.fillers
