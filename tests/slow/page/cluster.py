"""A small cluster with something of everything that the page shows: owners, rivals, sequence ids, shadows, cursors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.shadow.groups import commit, write
from tests.nodes import NodeProcess
from tests.topics import create_topic
from tests.wait import wait_for

_COMES_AGAIN = (3, 6, 7)
"""Not known here yet, served by the other node, or its owner is not sure yet."""


@dataclass
class Cluster:
    """Nodes of one cluster and the producers that are connected to them. `suffix` stands behind every name."""

    kafka: str
    nodes: Sequence[NodeProcess]
    token: str = ""
    suffix: str = ""
    producers: ExitStack = field(default_factory=ExitStack)

    def name(self, name: str) -> str:
        return f"{name}{self.suffix}"

    @property
    def url(self) -> str:
        """The page of the first node."""
        return f"{self.nodes[0].admin_url}/"

    def call(self, method: str, path: str, body: object = None, *, node: int = 1, **headers: str) -> tuple[int, Any]:
        """Status and answer of a node, asked with the token."""
        data = None if body is None else json.dumps(body).encode()
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(f"{self.nodes[node - 1].admin_url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def topic(self, name: str) -> dict[str, Any]:
        """As the node that serves it tells, the first one where nobody does: it alone knows who waits."""
        status, found = self.call("GET", f"/v1/topics/{name}")
        if status == 200 and found["serving_node"] not in (None, 1):
            status, found = self.call("GET", f"/v1/topics/{name}", node=found["serving_node"])
        assert status == 200, found
        return found

    def page_of(self, topic: str) -> str:
        """The page of the node that serves a topic."""
        return f"{self.nodes[(self.topic(topic)['serving_node'] or 1) - 1].admin_url}/"

    def govern(self, name: str, partitions: int = 2, **policy: object) -> str:
        """A new topic under a policy."""
        create_topic(self.kafka, partitions, name)
        status, answer = self.call("PUT", f"/v1/topics/{name}/policy", policy)
        assert status == 200, answer
        return name

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def produce(self, topic: str, client_id: str, *, partition: int = 0) -> RawProducer:
        """A producer that stays connected to the node that it was told to go to, once its first record is in the log
        and all nodes know who serves the topic.
        """
        found: list[RawProducer] = []

        def tried() -> bool:
            leader = self._leader(topic, partition)
            producer = RawProducer(self.nodes[leader - 1].bootstrap, client_id)
            producer.initialise()
            answer = producer.send(topic, b"0", sequence=0, partition=partition)
            if answer.error == 0:
                found.append(self.producers.enter_context(producer))
                return True
            producer.close()
            assert answer.error in _COMES_AGAIN, answer
            return False

        wait_for(tried, f"{client_id} to own {topic}", 30)
        wait_for(lambda: len(self._serving(topic)) == 1, f"all nodes to know who serves {topic}", 30)
        return found[0]

    def connect(self, topic: str, client_id: str) -> RawProducer:
        """A producer that is connected to the node that serves a topic, and has sent nothing yet."""
        node = self.nodes[self._leader(topic, 0) - 1]
        producer = self.producers.enter_context(RawProducer(node.bootstrap, client_id))
        producer.initialise()
        return producer

    def _leader(self, topic: str, partition: int) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return admin.list_topics(topic, timeout=20).topics[topic].partitions[partition].leader

    def _serving(self, topic: str) -> set[int | None]:
        told = [self.call("GET", f"/v1/topics/{topic}", node=each)[1] for each in range(1, len(self.nodes) + 1)]
        return {each.get("serving_node") for each in told}

    def wait(self, topic: str, client_id: str) -> None:
        """A client that tries and tries, once it stands in the queue."""
        settings = {"bootstrap.servers": self.bootstrap, "client.id": client_id, "log_level": 0}
        producer = Producer({**settings, "message.timeout.ms": 0})  # the cluster stands for longer than five minutes
        self.producers.callback(producer.flush, 0)
        self.producers.callback(producer.purge)
        producer.produce(topic, b"0", partition=0)
        wait_for(
            lambda: any(each["name"] == client_id for each in self.topic(topic)["waiting"]), f"{client_id} to wait", 30
        )

    def write_ids(self, topic: str, client_id: str, ids: range, partitions: int = 1) -> None:
        """Records with sequence ids, spread over partitions, from a client that goes away then."""
        settings = {"bootstrap.servers": self.bootstrap, "client.id": client_id, "log_level": 0, "linger.ms": 5}
        producer = Producer(settings)
        for each in ids:
            headers: dict[str, str | bytes | None] = {"sidecar-sequence-id": str(each)}
            producer.produce(topic, f"record {each}", partition=each % partitions, headers=headers)
        assert producer.flush(60) == 0

    def shadow(self, source: str, name: str, **more: object) -> str:
        status, answer = self.call("POST", f"/v1/topics/{source}/shadows", {"name": name, **more})
        assert status == 201, answer
        return name

    def populate(self) -> None:
        """Something of everything."""
        name = self.name
        self.govern(name("orders"), access_mode="exclusive")
        self.govern(name("payments"), access_mode="wait_for_exclusive")
        self.govern(name("inventory"), 4, access_mode="exclusive", deduplication=True)
        self.govern(name("shipments"), 6, access_mode="exclusive", scope="partition")
        self.govern(name("ledger"), access_mode="exclusive_with_fencing")
        self.govern(name("audit.trail"), 1, access_mode="shared", deduplication=True)
        create_topic(self.kafka, 3, name("clicks"))
        self.produce(name("orders"), "billing")
        self.produce(name("payments"), "settlement-a")
        self.wait(name("payments"), "settlement-b")
        self.wait(name("payments"), "settlement-c")
        for partition, client in enumerate(("carrier-eu", "carrier-us", "carrier-asia")):
            self.produce(name("shipments"), client, partition=partition)
        self.produce(name("ledger"), "ledger-1")
        self.produce(name("ledger"), "ledger-2")
        self.write_ids(name("inventory"), "warehouse", range(240), 4)
        self.write_ids(name("audit.trail"), "gate-7", range(60))
        self.write_ids(name("audit.trail"), "gate-9", range(25))
        write(self.kafka, name("clicks"), 400)
        for shadow, groups in (("clicks-search", {"indexer": 390, "reindex": 40}), ("clicks-fraud", {"scoring": 250})):
            self.shadow(name("clicks"), name(shadow), allow=["User:*"])
            for group, offset in groups.items():
                commit(self.nodes[0].bootstrap, name(group), name(shadow), {0: offset})
        self.shadow(name("orders"), name("orders-audit"))
