"""Two nodes at work, and everything happening to them that dashboards show: takeovers, refusals, duplicates, shadows,
groups, claims, clients that talk nonsense, a Redis that is away for a moment.
"""

from __future__ import annotations

import os
import signal
import socket
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redis import Redis

from sidecar.cluster.nodes import NodeAddress, Placement
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.shadow.groups import commit, write
from tests.logs import read_log
from tests.own import OwnClient, string
from tests.rest import Rest
from tests.topics import create_topic
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local import Valkey
    from tests.nodes import NodeProcess
    from tests.services import Services
    from tests.slow.observed.prometheus import Prometheus

PLACEMENT = Placement([NodeAddress(number, "", 0) for number in (1, 2)])
DEPOSED, REFUSED, AGAIN = 90, 44, 7


def name_at(number: int, kind: str) -> str:
    """A name for a topic that this node serves, or a shadow that it looks after."""
    while True:
        name = f"{kind}-{uuid.uuid4().hex[:8]}"
        if PLACEMENT.of_topic(name.encode()) == number:
            return name


@dataclass
class Scene:
    """What stands, and what is done to it. `at`: Unix seconds of the last scrape behind everything that was done."""

    services: Services
    redis: Valkey
    nodes: list[NodeProcess]
    orders: str = field(default_factory=lambda: name_at(1, "orders"))
    payments: str = field(default_factory=lambda: name_at(2, "payments"))
    audit: str = field(default_factory=lambda: name_at(2, "audit"))
    plain: str = field(default_factory=lambda: name_at(1, "plain"))
    at: float = 0.0
    _held: ExitStack = field(default_factory=ExitStack)
    _round: int = 0

    def prepare(self) -> None:
        """Topics, policies and a shadow. The second node starts last: at its start it counts the groups."""
        first, second = self.nodes
        self._start(first)
        for name in (self.orders, self.payments, self.plain):
            create_topic(self.services.kafka_bootstrap, 1, name)
        rest = Rest(first.admin_url)
        policies = {self.orders: {"access_mode": "exclusive"}, self.payments: {"deduplication": True}}
        for name, policy in policies.items():
            status, answer = rest.call("PUT", f"/v1/topics/{name}/policy", policy)
            assert status == 200, answer
        status, answer = rest.call("POST", f"/v1/topics/{self.plain}/shadows", {"name": self.audit})
        assert status == 201, answer
        write(first.bootstrap, self.plain, 20)
        commit(first.bootstrap, f"auditors-{uuid.uuid4().hex[:6]}", self.audit, {0: 5})
        self._start(second)

    def _start(self, node: NodeProcess) -> None:
        node.start()
        self._held.callback(node.stop)

    def act(self, prometheus: Prometheus) -> None:
        """Everything happens three times, with a scrape after each."""
        for _ in range(3):
            self._everything()
            self.scraped(prometheus)
        self._lose_redis()
        self.scraped(prometheus)
        found = [prometheus.query("max(timestamp(sidecar_build_info))")]
        self.at = float(found[0][0]["value"][1])

    def scraped(self, prometheus: Prometheus) -> None:
        """Wait until every node has been scraped once more, from end to end."""
        before = {node.node_id: prometheus.scrapes(node) for node in self.nodes}
        wait_for(
            lambda: all(prometheus.scrapes(node) >= before[node.node_id] + 2 for node in self.nodes), "a scrape", 20
        )

    def redis_client(self) -> Redis:
        """A connection to the nodes' Redis."""
        return Redis.from_url(self.redis.url)

    def close(self) -> None:
        """Let everybody go."""
        self._held.close()

    def _connect(self, client_id: str) -> RawProducer:
        producer = self._held.enter_context(RawProducer(self.nodes[0].bootstrap, client_id))
        producer.initialise()
        return producer

    def _everything(self) -> None:
        self._round += 1
        first, second = self.nodes
        self._change_owners()
        self._repeat_ids()
        write(first.bootstrap, self.plain, 5)
        assert len(read_log(first.bootstrap, self.audit)) == len(read_log(second.bootstrap, self.audit))
        os.kill(first.child.pid, signal.SIGHUP)
        with OwnClient(first.bootstrap) as claimer:
            claimer.own(string(f"lock-{self._round}"))
        host, port = first.bootstrap.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(1) == b"", "who speaks HTTP is turned away"

    def _change_owners(self) -> None:
        """A new owner each time deposes the one before; one rival is refused, one waits."""
        usurper = self._connect(f"usurper-{self._round};mode=exclusive_with_fencing")
        assert usurper.send(self.orders, b"a", sequence=0).error == 0
        assert self._connect("rival").send(self.orders, b"b", sequence=0).error == REFUSED
        waiter = self._connect(f"waiter-{self._round};mode=wait_for_exclusive")
        assert waiter.send(self.orders, b"c", sequence=0).error == AGAIN
        heir = self._connect(f"heir-{self._round};mode=exclusive_with_fencing")
        assert heir.send(self.orders, b"d", sequence=0).error == 0
        assert usurper.send(self.orders, b"e", sequence=1).error == DEPOSED

    def _repeat_ids(self) -> None:
        """Half of what is sent has been sent before."""
        with IdProducer(self.nodes[1].bootstrap, f"payer-{self._round}") as payer:
            assert payer.write(self.payments, 1, 2, 3).error == 0
            assert payer.write(self.payments, 1, 2, 3).error == 0

    def _lose_redis(self) -> None:
        self.redis.pause()
        try:
            wait_for(lambda: any("redis_unavailable" in node.log for node in self.nodes), "Redis to be missed", 20)
        finally:
            self.redis.resume()
        wait_for(lambda: all(node.status() == 200 for node in self.nodes), "Redis to be back", 20)
