"""Connections to a broker that break, or never come about: order kept, nothing lost, nobody hammered."""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sidecar.local import Kafka, KafkaConfig
from sidecar.local.ports import free_ports
from tests import raw
from tests.integration.gateway.conftest import create_internal_topics
from tests.integration.gateway.requests import request
from tests.integration.passthrough.fault_proxy import FaultProxy, Mode
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Valkey
    from tests.conftest import Unique

CONNECT_TIMEOUT = 0.5


@dataclass
class Ground:
    """A node that reaches its broker through a proxy, as Kafka itself tells it to."""

    kafka: Kafka
    proxy: FaultProxy
    node: NodeProcess

    def wait_until_well(self) -> None:
        """Wait until the node reaches the broker, and no earlier attempt can still fail."""
        wait_for(lambda: not knocks(self), "earlier attempts to end", 20)
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


def value(number: int) -> bytes:
    return b"|%d|" % number


@pytest.fixture(scope="module")
def module_ground(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ExitStack() as stack:
        (port,) = free_ports(1)
        proxy = stack.enter_context(FaultProxy(port))
        overrides = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        kafka = stack.enter_context(Kafka(tmp_path_factory.mktemp("behind-a-proxy"), KafkaConfig(overrides=overrides)))
        host, real = kafka.address(1).rsplit(":", 1)
        proxy.target = (host, int(real))
        create_internal_topics(kafka.bootstrap)
        node = NodeProcess(
            tmp_path_factory.mktemp("lost-broker"),
            kafka.bootstrap,
            valkey.url,
            cluster=f"lost-{uuid.uuid4().hex[:8]}",
            KAFKA_CONNECT_TIMEOUT_MS=str(int(CONNECT_TIMEOUT * 1000)),
        )
        node.start()
        stack.callback(node.check_log)
        stack.callback(node.stop)
        yield Ground(kafka, proxy, node)


@pytest.fixture
def ground(module_ground: Ground) -> Iterator[Ground]:
    module_ground.wait_until_well()
    yield module_ground
    module_ground.proxy.become(Mode.PASS)


def idempotent(ground: Ground, client: RawClient) -> tuple[int, int]:
    """A producer id and its epoch."""
    answer = client.ask(raw.init_producer_id())
    assert raw.code(answer) == 0
    return answer.producer_id, answer.producer_epoch


def lose(ground: Ground, client: RawClient, *messages: object) -> None:
    """Send requests that reach the broker's machine and get lost there, with the connection.

    Returns when the node has noticed and the broker can be reached again; what the node says of it is not read yet.
    """
    ground.proxy.become(Mode.SWALLOW)
    before = ground.proxy.swallowed
    sizes = 0
    for message in messages:
        sizes += len(client.frame(message))
        client._correlation -= 1
        client.send(message)
    wait_for(lambda: ground.proxy.swallowed >= before + sizes, "the requests to get lost")
    ground.proxy.become(Mode.PASS)
    ground.proxy.cut()
    assert not client.is_silent(raw.TIMEOUT)
    ground.wait_until_well()


def codes_and_offsets(client: RawClient, part: tuple[str, int], count: int) -> list[tuple[int, int]]:
    answers = [raw.produced(client.receive())[part] for _ in range(count)]
    return [(raw.code(found), found.base_offset) for found in answers]


@pytest.mark.parametrize("already_written", [0, 3])
def test_behind_a_lost_batch_nothing_is_appended_until_it_comes_again(
    already_written: int, ground: Ground, unique: Unique
) -> None:
    """A producer that Kafka does not know in the partition could begin with any sequence: batches 2 and 3 as well."""
    part = (ground.topic(unique("orders")), 0)
    with RawClient(ground.node.bootstrap) as client:
        producer = idempotent(ground, client)
        messages = [
            raw.produce({part: raw.batch(value(number), producer=producer, sequence=number)})
            for number in range(already_written + 4)
        ]
        for number in range(already_written):
            client.send(messages[number])
            assert codes_and_offsets(client, part, 1) == [(0, number)]
        lost, behind = messages[already_written : already_written + 2], messages[already_written + 2 :]
        client.ask(raw.list_offsets({part: -1}))
        lose(ground, client, *lost)
        for message in behind:  # sent before the client knows
            client.send(message)
        assert codes_and_offsets(client, part, 4) == [(7, -1), (7, -1), (6, -1), (6, -1)]
        for message in (*lost, *behind):
            client.send(message)
        assert codes_and_offsets(client, part, 4) == [(0, already_written + number) for number in range(4)]
    assert ground.values(part[0]) == [b"%d" % number for number in range(already_written + 4)]


def test_the_same_holds_where_the_broker_could_not_be_reached(ground: Ground, unique: Unique) -> None:
    part = (ground.topic(unique("orders")), 0)
    with RawClient(ground.node.bootstrap) as client:
        producer = idempotent(ground, client)
        messages = [
            raw.produce({part: raw.batch(value(number), producer=producer, sequence=number)}) for number in range(3)
        ]
        client.ask(raw.list_offsets({part: -1}))
        ground.proxy.become(Mode.REFUSE)
        ground.proxy.cut()
        client.send(messages[0])
        assert codes_and_offsets(client, part, 1)[0][0] in {6, 7}
        ground.proxy.become(Mode.PASS)
        ground.wait_until_well()
        for message in messages[1:]:
            client.send(message)
        assert codes_and_offsets(client, part, 2) == [(6, -1), (6, -1)]
        for message in messages:
            client.send(message)
        assert [code for code, _ in codes_and_offsets(client, part, 3)] == [0, 0, 0]
    assert ground.values(part[0]) == [b"0", b"1", b"2"]


def test_other_partitions_of_the_same_request_go_on(ground: Ground, unique: Unique) -> None:
    name = ground.topic(unique("orders"), partitions=2)
    lost, fine = (name, 0), (name, 1)
    with RawClient(ground.node.bootstrap) as client:
        producer = idempotent(ground, client)
        batches = [raw.batch(value(number), producer=producer, sequence=number) for number in range(2)]
        client.ask(raw.list_offsets({lost: -1}))
        lose(ground, client, raw.produce({lost: batches[0]}))
        client.send(raw.produce({lost: batches[1], fine: batches[0]}))
        assert codes_and_offsets(client, lost, 1) == [(7, -1)]
        both = raw.produced(client.receive())
        assert {part: raw.code(found) for part, found in both.items()} == {lost: 6, fine: 0}
        both = raw.produced(client.ask(raw.produce({lost: batches[0], fine: batches[1]})))
        assert {part: raw.code(found) for part, found in both.items()} == {lost: 0, fine: 0}


def test_batches_without_a_producer_id_are_not_held_back(ground: Ground, unique: Unique) -> None:
    part = (ground.topic(unique("orders")), 0)
    with RawClient(ground.node.bootstrap) as client:
        client.ask(raw.list_offsets({part: -1}))
        lose(ground, client, raw.produce({part: raw.batch(value(0))}))
        client.send(raw.produce({part: raw.batch(value(1))}))
        assert codes_and_offsets(client, part, 2) == [(7, -1), (0, 0)]


def test_a_client_with_acks_0_is_told_by_the_end_of_its_connection(ground: Ground, unique: Unique) -> None:
    part = (ground.topic(unique("orders")), 0)
    with RawClient(ground.node.bootstrap) as client, RawClient(ground.node.bootstrap) as other:
        for each in (client, other):
            each.send(raw.produce({part: raw.batch(value(0))}))
            assert codes_and_offsets(each, part, 1)[0][0] == 0
        client.send(raw.produce({part: raw.batch(value(1))}, acks=0), answered=False)
        wait_for(lambda: len(ground.values(part[0])) == 3, "the record")
        ground.proxy.cut()
        assert client.is_closed()
        assert raw.code(other.ask(raw.api_versions())) == 0


def test_a_question_under_way_is_answered_as_lost_and_asked_again_works(ground: Ground, unique: Unique) -> None:
    part = (ground.topic(unique("orders")), 0)
    with RawClient(ground.node.bootstrap) as client:
        client.send(raw.produce({part: raw.batch(value(0))}))
        assert codes_and_offsets(client, part, 1) == [(0, 0)]
        lose(ground, client, raw.fetch({part: 0}), raw.list_offsets({part: -1}))
        assert raw.code(raw.fetched(client.receive())[part]) == 6
        assert raw.code(client.receive().topics[0].partitions[0]) == 6
        assert raw.code(raw.fetched(client.ask(raw.fetch({part: 0})))[part]) == 0
        assert client.ask(raw.list_offsets({part: -1})).topics[0].partitions[0].offset == 1


# Connections that do not come about -------------------------------------------------------------------------------


def hammer(ground: Ground, part: tuple[str, int], seconds: float) -> tuple[int, set[int]]:
    """Produce as fast as the node answers; how many answers came and with which codes."""
    answers, codes, until = 0, set[int](), time.monotonic() + seconds
    with RawClient(ground.node.bootstrap) as client:
        client.ask(raw.api_versions())
        while time.monotonic() < until:
            found = raw.produced(client.ask(raw.produce({part: raw.batch(value(0))})))[part]
            codes.add(raw.code(found))
            answers += 1
    return answers, codes


def knocks(ground: Ground) -> set[int]:
    """Local ports of connection attempts to the proxy that hang (SYN_SENT, 2 in proc_net_tcp(5))."""
    found: set[int] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if int(remote.rsplit(":", 1)[1], 16) == ground.proxy.port and state == "02":
            found.add(int(local.rsplit(":", 1)[1], 16))
    return found - ground.proxy.fillers


def test_a_broker_that_hangs_up_at_once_is_not_hammered(ground: Ground, unique: Unique) -> None:
    part = (ground.topic(unique("orders")), 0)
    assert hammer(ground, part, 0.1)[1] == {0}
    ground.proxy.become(Mode.HANG_UP)
    ground.proxy.cut()
    before = ground.proxy.accepted
    answers, codes = hammer(ground, part, 3.0)
    assert answers > 100, "the client was answered each time"
    assert codes <= {6, 7}
    assert 2 <= ground.proxy.accepted - before < 40


def test_a_broker_that_refuses_is_not_hammered(ground: Ground, unique: Unique) -> None:
    part = (ground.topic(unique("orders")), 0)
    assert hammer(ground, part, 0.1)[1] == {0}
    ground.proxy.become(Mode.REFUSE)
    ground.proxy.cut()
    counted = refused(ground)
    answers, codes = hammer(ground, part, 3.0)
    assert answers > 100
    assert codes <= {6, 7}
    assert 2 <= refused(ground) - counted < 40


def refused(ground: Ground) -> int:
    """Failed connections to brokers, as the node counts them."""
    import http.client  # noqa: PLC0415

    connection = http.client.HTTPConnection(ground.node.admin_url.removeprefix("http://"), timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return int(
        sum(float(line.split()[-1]) for line in lines if line.startswith("sidecar_upstream_connection_errors_total{"))
    )


def test_a_broker_that_swallows_connection_attempts_costs_the_timeout_and_few_attempts(
    ground: Ground, unique: Unique
) -> None:
    part = (ground.topic(unique("orders")), 0)
    assert hammer(ground, part, 0.1)[1] == {0}
    ground.proxy.become(Mode.BLACKHOLE)
    ground.proxy.cut()
    seen: set[int] = set()
    with RawClient(ground.node.bootstrap) as client, RawClient(ground.node.bootstrap) as other:
        begun = time.monotonic()
        client.send(raw.produce({part: raw.batch(value(0))}))
        while client.is_silent(0.01):
            seen |= knocks(ground)
            assert raw.code(other.ask(raw.api_versions())) == 0
        assert codes_and_offsets(client, part, 1)[0][0] in {6, 7}
        assert time.monotonic() - begun < CONNECT_TIMEOUT + 1.5
        until = time.monotonic() + 3
        while time.monotonic() < until:
            client.send(raw.produce({part: raw.batch(value(0))}))
            while client.is_silent(0.01):
                seen |= knocks(ground)
            client.receive()
    assert 2 <= len(seen) < 30


def test_what_waits_for_a_connection_is_bounded(ground: Ground, unique: Unique) -> None:
    from tests.integration.node_log import resident_bytes  # noqa: PLC0415

    part = (ground.topic(unique("orders")), 0)
    assert hammer(ground, part, 0.1)[1] == {0}
    ground.proxy.become(Mode.BLACKHOLE)
    ground.proxy.cut()
    before, sent, most = resident_bytes(ground.node), 0, 0
    with RawClient(ground.node.bootstrap) as client:
        client.ask(raw.api_versions())
        frame = client.frame(raw.produce({part: raw.batch(bytes(1_000_000))}, acks=0))
        client.socket.settimeout(0.05)
        until = time.monotonic() + 0.8 * CONNECT_TIMEOUT
        while time.monotonic() < until and sent < 500_000_000:
            try:
                sent += client.socket.send(frame[sent % len(frame) :])
            except TimeoutError:
                pass
            except ConnectionError:
                break
            most = max(most, resident_bytes(ground.node))
    assert most - before < 20_000_000


def test_a_client_that_leaves_while_its_connection_is_being_made_blames_nobody(ground: Ground, unique: Unique) -> None:
    """The broker is not at fault, and others must not be kept from it."""
    part = (ground.topic(unique("orders")), 0)
    assert hammer(ground, part, 0.1)[1] == {0}
    before = refused(ground)
    ground.proxy.become(Mode.BLACKHOLE)
    clients = [RawClient(ground.node.bootstrap) for _ in range(20)]
    for client in clients:
        client.send(raw.produce({part: raw.batch(value(0))}))
    wait_for(lambda: len(knocks(ground)) >= 20, "connection attempts", CONNECT_TIMEOUT)
    for client in clients:
        client.close()
    wait_for(lambda: not knocks(ground), "the attempts to end", CONNECT_TIMEOUT)
    assert refused(ground) == before
    ground.proxy.become(Mode.PASS)
    assert hammer(ground, part, 0.1)[1] == {0}
