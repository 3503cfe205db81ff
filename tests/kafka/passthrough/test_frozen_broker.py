"""A broker that is frozen, its sockets open and silent, is the business of its own clients alone."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.node_log import resident_bytes
from tests.kafka.passthrough.conftest import leaders_of
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.nodes import NodeProcess

FROZEN = 3
MIB = 1024 * 1024


@pytest.fixture
def parts(topic_of_three: MakeTopic, kafka_cluster: Kafka) -> dict[int, tuple[str, int]]:
    """One partition for each broker, without any replica elsewhere."""
    name = topic_of_three(partitions=6, max_message_bytes=str(2 * MIB))
    return {leader: (name, index) for index, leader in leaders_of(kafka_cluster.bootstrap, name).items()}


def freeze(kafka: Kafka) -> None:
    """Stop every thread of the broker, which takes a moment on a busy machine."""
    kafka.pause(FROZEN)
    tasks = Path(f"/proc/{kafka.child(FROZEN).pid}/task")

    def stopped() -> bool:
        return all(" T " in (task / "stat").read_text().rpartition(")")[2][:3] for task in tasks.iterdir())

    wait_for(stopped, "every thread to stop")


@pytest.fixture
def frozen(kafka_cluster: Kafka) -> Iterator[None]:
    freeze(kafka_cluster)
    yield
    kafka_cluster.resume(FROZEN)
    with RawClient(kafka_cluster.address(1)) as direct:  # wait until the cluster has taken it back

        def back() -> bool:
            return {broker.node_id for broker in direct.ask(raw.metadata([])).brokers} == {1, 2, 3}

        wait_for(back, "the broker to come back", 60)


@pytest.fixture
def clients(node_of_three: NodeProcess, parts: dict[int, tuple[str, int]]) -> Iterator[dict[int, RawClient]]:
    """A client for each broker, its connection upstream in use."""
    with contextlib.ExitStack() as stack:
        found = {broker: stack.enter_context(RawClient(node_of_three.bootstrap)) for broker in parts}
        for broker, client in found.items():
            client.ask(raw.api_versions())
            assert raw.code(raw.produced(client.ask(raw.produce({parts[broker]: raw.batch()})))[parts[broker]]) == 0
        yield found


def test_clients_of_other_brokers_notice_nothing(
    clients: dict[int, RawClient],
    parts: dict[int, tuple[str, int]],
    node_of_three: NodeProcess,
    unique: Unique,
    frozen: None,
) -> None:
    clients[FROZEN].send(raw.produce({parts[FROZEN]: raw.batch(b"patience")}))
    longest = 0.0
    for number in range(30):
        for broker in parts.keys() - {FROZEN}:
            with RawClient(node_of_three.bootstrap) as newcomer:
                asked = time.monotonic()
                topic, index = parts[broker]
                newcomer.ask(raw.metadata([topic]))
                answer = clients[broker].ask(raw.produce({(topic, index): raw.batch(b"%d" % number)}))
                assert raw.code(raw.produced(answer)[topic, index]) == 0
                newcomer.ask(raw.list_offsets({(topic, index): -1}))
                newcomer.ask(raw.find_coordinator(unique("group")))
                # 14: a broker that fetches its first block of producer ids says so at once
                assert raw.code(newcomer.ask(raw.init_producer_id())) in (0, 14)
                newcomer.ask(request(32, 1, resources=[{"resource_type": 2, "resource_name": topic}]))
                longest = max(longest, time.monotonic() - asked)
    assert longest < 15, "who had waited for the frozen one would have had its request timeout, 30 s"
    assert clients[FROZEN].is_silent(0.01), "the broker was frozen all the time"


def test_a_frozen_broker_holds_back_whoever_writes_to_it_and_costs_no_memory(
    clients: dict[int, RawClient], parts: dict[int, tuple[str, int]], node_of_three: NodeProcess, frozen: None
) -> None:
    before, sent = resident_bytes(node_of_three), 0
    frames = [clients[FROZEN].frame(raw.produce({parts[FROZEN]: raw.batch(bytes(MIB))})) for _ in range(4)]
    clients[FROZEN].socket.settimeout(1.0)
    with contextlib.suppress(TimeoutError):
        while sent < 200 * MIB:
            sent += clients[FROZEN].socket.send(frames[0])
    assert sent < 60 * MIB
    assert resident_bytes(node_of_three) - before < 30 * MIB
    answer = clients[1].ask(raw.produce({parts[1]: raw.batch()}))
    assert raw.code(raw.produced(answer)[parts[1]]) == 0


def test_one_fetch_over_all_brokers_brings_what_the_others_have(
    clients: dict[int, RawClient], parts: dict[int, tuple[str, int]], node_of_three: NodeProcess, frozen: None
) -> None:
    with RawClient(node_of_three.bootstrap) as reader:
        positions = dict.fromkeys(parts.values(), 1)
        for number in range(5):
            reader.send(raw.fetch(positions, max_wait=raw.PARKED_MS))
            clients[1].ask(raw.produce({parts[1]: raw.batch(b"news %d" % number)}))
            answer = raw.fetched(reader.receive())
            if raw.code(answer[parts[FROZEN]]) == 0:  # else Kafka has given the broker up meanwhile
                assert b"news %d" % number in answer[parts[1]].records
                positions[parts[1]] += 1


def test_a_broker_that_thaws_answers_what_it_was_asked(
    clients: dict[int, RawClient], parts: dict[int, tuple[str, int]], kafka_cluster: Kafka
) -> None:
    client, part = clients[FROZEN], parts[FROZEN]
    freeze(kafka_cluster)
    try:
        for number in range(5):
            client.send(raw.produce({part: raw.batch(b"%d" % number)}))
        assert client.is_silent(0.5)
    finally:
        kafka_cluster.resume(FROZEN)
    answers = [raw.produced(client.receive())[part] for _ in range(5)]
    assert [(raw.code(found), found.base_offset) for found in answers] == [(0, offset) for offset in range(1, 6)]
