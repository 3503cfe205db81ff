"""Answers in the order of the requests, none for acks=0, and a request that waits is nobody else's business."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.node_log import resident_bytes
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Unique
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.nodes import NodeProcess
    from tests.services import Services

MIB = 1024 * 1024


def test_pipelined_requests_of_all_kinds_are_answered_in_order(
    node: NodeProcess, topic: MakeTopic, unique: Unique
) -> None:
    name, group, chance = topic(partitions=2), unique("group"), random.Random(3)
    kinds: list[Callable[[], Any]] = [
        lambda: raw.produce({(name, chance.randrange(2)): raw.batch()}, version=chance.randrange(3, 10)),
        lambda: raw.produce({("no-such-topic", 0): raw.batch()}),
        lambda: raw.fetch({(name, 0): 0}, version=chance.randrange(4, 12), max_wait=chance.randrange(20)),
        lambda: raw.fetch({(name, 0): 0, ("no-such-topic", 0): 0}, max_wait=5),
        lambda: raw.list_offsets({(name, 0): -1, (name, 1): -2}, version=chance.randrange(1, 8)),
        lambda: raw.metadata([name], version=chance.randrange(10)),
        lambda: raw.find_coordinator(group, version=chance.randrange(4)),
        lambda: raw.init_producer_id(version=chance.randrange(5)),
        lambda: raw.api_versions(chance.randrange(4)),
        lambda: request(9, 7, group_id=group, topics=None),
        lambda: request(60, 1, endpoint_type=1),
    ]
    with RawClient(node.bootstrap) as client:
        for _ in range(5):
            for _ in range(60):
                if chance.random() < 0.1:
                    client.send(raw.produce({(name, 0): raw.batch()}, acks=0), answered=False)
                client.send(chance.choice(kinds)())
            for _ in range(60):
                client.receive()  # which fails on an answer to another request


def test_acks_0_is_appended_and_has_no_answer(node: NodeProcess, topic: MakeTopic) -> None:
    name = topic()
    with RawClient(node.bootstrap) as client:
        for version in range(3, 10):
            client.send(raw.produce({(name, 0): raw.batch()}, acks=0, version=version), answered=False)
        answer = raw.produced(client.ask(raw.produce({(name, 0): raw.batch()})))
        assert answer[name, 0].base_offset == 7
        assert client.is_silent(0.1)


def test_acks_0_to_nowhere_ends_the_connection(node: NodeProcess, unique: Unique) -> None:
    with RawClient(node.bootstrap) as client:
        client.send(raw.produce({(unique("nowhere"), 0): raw.batch()}, acks=0), answered=False)
        assert client.is_closed()


def test_acks_0_that_kafka_refuses_ends_the_connection_as_kafka_does(
    node: NodeProcess, services: Services, topic: MakeTopic
) -> None:
    name = topic(max_message_bytes="1000")
    for address in (services.kafka_bootstrap, node.bootstrap):
        with RawClient(address) as client:
            client.ask(raw.metadata([name]))
            client.send(raw.produce({(name, 0): raw.batch(bytes(5_000))}, acks=0), answered=False)
            assert client.is_closed()


def test_a_parked_fetch_blocks_no_other_connection(node: NodeProcess, topic: MakeTopic) -> None:
    idle, busy = topic(), topic()
    with RawClient(node.bootstrap) as parked, RawClient(node.bootstrap) as other:
        parked.ask(raw.fetch({(idle, 0): 0}, max_wait=0))
        parked.send(raw.fetch({(idle, 0): 0}, max_wait=raw.PARKED_MS))
        for _ in range(20):
            other.ask(raw.produce({(busy, 0): raw.batch()}))
            other.ask(raw.fetch({(busy, 0): 0}))
            other.ask(raw.metadata([idle, busy]))
        assert parked.is_silent(0.05)
        other.ask(raw.produce({(idle, 0): raw.batch(b"wakes it")}))
        assert b"wakes it" in raw.fetched(parked.receive())[idle, 0].records


def join(group: str, member: str = "") -> Any:
    protocols = [{"name": "range", "metadata": b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"}]
    times = {"session_timeout": 30_000, "rebalance_timeout": 30_000}
    return request(11, 5, group_id=group, member_id=member, protocol_type="consumer", protocols=protocols, **times)


def test_a_parked_join_blocks_no_other_connection(node: NodeProcess, topic: MakeTopic, unique: Unique) -> None:
    name, group = topic(), unique("group")
    with RawClient(node.bootstrap) as first, RawClient(node.bootstrap) as second, RawClient(node.bootstrap) as other:
        member = first.ask(join(group)).member_id
        joined = first.ask(join(group, member))
        sync = {"group_id": group, "generation_id": joined.generation_id, "member_id": member}
        first.ask(request(14, 3, assignments=[{"member_id": member, "assignment": b""}], **sync))
        newcomer = second.ask(join(group)).member_id
        second.send(join(group, newcomer))  # waits until the first has joined again
        wait_for(lambda: raw.code(first.ask(request(12, 3, **sync))) == 27, "a rebalance to begin")
        for _ in range(20):
            other.ask(raw.produce({(name, 0): raw.batch()}))
            other.ask(raw.find_coordinator(group))
        assert second.is_silent(0.05)
        again = first.ask(join(group, member))
        assert second.receive().generation_id == again.generation_id == joined.generation_id + 1
        for client, who in ((first, member), (second, newcomer)):
            client.ask(request(13, 4, group_id=group, members=[{"member_id": who}]))


def test_a_client_that_does_not_read_its_answers_does_not_grow_the_node(
    node: NodeProcess, services: Services, topic: MakeTopic
) -> None:
    name, size = topic(max_message_bytes=str(2 * MIB)), MIB - 1_000
    with RawClient(services.kafka_bootstrap) as direct:
        for number in range(20):
            direct.ask(raw.produce({(name, 0): raw.batch(bytes([number]) * size)}))
    with RawClient(node.bootstrap, receive_buffer=16 * 1024) as lazy, RawClient(node.bootstrap) as other:
        lazy.ask(raw.fetch({(name, 0): 0}, max_wait=0))
        before = resident_bytes(node)
        wanted = [number % 20 for number in range(100)]
        for offset in wanted:
            lazy.send(raw.fetch({(name, 0): offset}, max_bytes=MIB))
        most, until = 0, time.monotonic() + 1.5
        while time.monotonic() < until:
            other.ask(raw.metadata([name]))
            most = max(most, resident_bytes(node))
        assert most - before < 30 * MIB
        for offset in wanted:
            records = raw.fetched(lazy.receive())[name, 0].records
            assert records[200] == records[size] == offset


@pytest.mark.parametrize("what", ["by the node alone", "after a look at Kafka"])
def test_a_client_that_asks_and_never_reads_is_not_read_for_ever(
    what: str, node: NodeProcess, topic: MakeTopic
) -> None:
    """Nor do answers grow the node that it makes by itself."""
    asked = raw.api_versions(0) if what == "by the node alone" else raw.metadata([topic(partitions=200)])
    with RawClient(node.bootstrap, receive_buffer=16 * 1024) as lazy:
        before, until = resident_bytes(node), time.monotonic() + 10
        frames = b"".join(lazy.frame(asked) for _ in range(1_000))
        lazy.socket.settimeout(1.5)

        def flood() -> None:
            while time.monotonic() < until:
                lazy.socket.send(frames)

        with pytest.raises(TimeoutError):
            flood()
        assert resident_bytes(node) - before < 20 * MIB
    assert node.status() == 200


def test_a_silent_client_is_looked_for_by_the_kernel(node: NodeProcess) -> None:
    """The timer on an idle connection of the node is keep-alive (2 in proc_net_tcp(5)), due in 10 s at most."""
    with RawClient(node.bootstrap) as client:
        client.ask(raw.api_versions())
        here, there = (f"{int(address.rsplit(':', 1)[1]):04X}" for address in (node.bootstrap, client.name))

        def due_in() -> float | None:
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                _, local, remote, _, _, running, *_ = line.split()
                if (local.rsplit(":", 1)[1], remote.rsplit(":", 1)[1]) == (here, there):
                    kind, due = running.split(":")
                    return int(due, 16) / 100 if int(kind, 16) == 2 else None
            return None

        assert 0 < (wait_for(due_in, "a keep-alive timer") or 0) <= 10


def test_topics_of_the_sidecar_may_be_read_and_not_written(node: NodeProcess, topic: MakeTopic) -> None:
    own, other = f"__sidecar_{node.cluster}", topic()
    with RawClient(node.bootstrap) as client:
        answer = raw.produced(client.ask(raw.produce({(own, 0): raw.batch(), (other, 0): raw.batch()})))
        assert {part: raw.code(found) for part, found in answer.items()} == {(own, 0): 29, (other, 0): 0}
        deleted = [{"name": own, "partitions": [{"partition_index": 0, "offset": 0}]}]
        (found,) = client.ask(request(21, 2, timeout=1_000, topics=deleted)).topics[0].partitions
        assert raw.code(found) == 29
        assert raw.code(raw.fetched(client.ask(raw.fetch({(own, 0): 0}, max_wait=0)))[own, 0]) == 0
        client.send(raw.produce({(own, 0): raw.batch()}, acks=0), answered=False)
        assert client.is_closed()
