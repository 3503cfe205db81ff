"""What strangers may take of a node: connections, time, memory and traffic, in front of a real Kafka.

A well-behaved client's traffic goes on through all of it, and so do health checks.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import uuid
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, Producer, ThrottleEvent

from sidecar.protocol.primitives import I16, I32
from tests import raw
from tests.frames import TIMEOUT
from tests.kafka.node_log import events, resident_bytes
from tests.kafka.traffic import Traffic
from tests.kafka_calls import kafka_calls
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.topics import create_topic
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services import Services

MIB = 1024 * 1024
STRANGER = "127.0.0.2"
"""An address of this machine that is not the one that well-behaved clients have."""
VERSIONS = I32.pack(11) + I16.pack(18) + I16.pack(0) + I32.pack(1) + b"\0\1x"


@contextmanager
def node_with(
    services: Services, directory: Path, settings: dict[str, str], kind: type[NodeProcess] = NodeProcess
) -> Iterator[tuple[NodeProcess, str]]:
    """A node with these settings, and a topic of its Kafka."""
    topic = f"limits-{uuid.uuid4().hex[:8]}"

    async def create() -> None:
        async with kafka_calls(services.kafka_bootstrap) as calls:
            await calls.create(topic, partitions=1)

    asyncio.run(create())
    node = kind(directory, services.kafka_bootstrap, services.redis_url, cluster=topic, node_id=1, **settings)
    node.start()
    try:
        yield node, topic
    finally:
        node.stop()
    node.check_log()


def connect(node: NodeProcess, host: str = STRANGER) -> socket.socket:
    address, port = node.bootstrap.rsplit(":", 1)
    return socket.create_connection((address, int(port)), TIMEOUT, source_address=(host, 0))


def is_closed(peer: socket.socket) -> bool:
    """Whether the node has closed this connection by now."""
    peer.setblocking(False)
    try:
        return not peer.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def metric(node: NodeProcess, name: str) -> float:
    """A sample of `/metrics`, by its name with labels."""
    connection = http.client.HTTPConnection(node.admin_url.removeprefix("http://"), timeout=TIMEOUT)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)


def test_a_stranger_who_opens_sockets_without_end_takes_no_place_of_others(services: Services, tmp_path: Path) -> None:
    settings = {"MAX_CONNECTIONS_PER_IP": "20", "MAX_CONNECTIONS": "40"}
    with node_with(services, tmp_path, settings) as (node, topic), ExitStack() as opened:
        with Traffic(node.bootstrap, topic) as traffic:
            strangers = [opened.enter_context(connect(node)) for _ in range(100)]
            wait_for(lambda: sum(map(is_closed, strangers)) == 80, "those that are too many to be closed", 20)
            traffic.goes_on()
            with RawClient(node.bootstrap) as newcomer:
                assert newcomer.ask(raw.api_versions()).error_code == 0
            assert node.status("/livez") == node.status("/readyz") == 200
        assert metric(node, 'sidecar_client_connections_refused_total{reason="address"}') == 80
        refused = events(node, "connection_refused")
        assert refused[0]["address"] == STRANGER
        assert len(refused) < 80, "the log is not the stranger's"


def test_an_address_has_a_limit_of_its_own(services: Services, tmp_path: Path) -> None:
    settings = {"MAX_CONNECTIONS_PER_IP": "2", "MAX_CONNECTIONS_PER_IP_OVERRIDES": f"{STRANGER}:5, 127.0.0.3:0"}
    with node_with(services, tmp_path, settings) as (node, _), ExitStack() as opened:
        for host, limit in ((STRANGER, 5), ("127.0.0.3", 0), ("127.0.0.4", 2)):
            peers = [opened.enter_context(connect(node, host)) for _ in range(8)]
            wait_for(lambda peers=peers, limit=limit: sum(map(is_closed, peers)) == 8 - limit, f"all but {limit}", 20)
            for peer in peers[:limit]:
                peer.setblocking(True)
                peer.sendall(VERSIONS)
                assert peer.recv(4)


def test_who_says_nothing_is_closed_and_so_is_who_falls_silent(services: Services, tmp_path: Path) -> None:
    with node_with(services, tmp_path, {"LOGIN_TIMEOUT_MS": "500", "CONNECTIONS_MAX_IDLE_MS": "1000"}) as (node, _):
        with ExitStack() as opened:
            silent = opened.enter_context(connect(node))
            used = opened.enter_context(RawClient(node.bootstrap))
            assert used.ask(raw.api_versions()).error_code == 0
            wait_for(lambda: is_closed(silent), "the end of one that never asked", 20)
            assert used.is_closed()
        assert metric(node, 'sidecar_client_disconnects_total{cause="silent"}') == 1
        assert metric(node, 'sidecar_client_disconnects_total{cause="idle"}') == 1


def test_unfinished_requests_take_bounded_memory_and_others_are_served(services: Services, tmp_path: Path) -> None:
    with (
        node_with(services, tmp_path, {"QUEUED_MAX_REQUEST_BYTES": str(8 * MIB)}) as (node, topic),
        ExitStack() as opened,
    ):
        with Traffic(node.bootstrap, topic) as traffic:
            before = resident_bytes(node)
            beginning = I32.pack(16 * MIB) + I16.pack(0) + I16.pack(8) + I32.pack(1) + b"\0\1x"
            uploads = [opened.enter_context(connect(node)) for _ in range(20)]
            for upload in uploads:
                upload.sendall(VERSIONS)  # shows that it speaks Kafka: large requests are allowed now
                assert upload.recv(4)
                upload.setblocking(False)
                upload.send(beginning)
            rest = bytes(MIB)
            sent = [0] * len(uploads)

            def push() -> bool:
                """Send what the node takes; whether it takes no more of somebody's."""
                for index, upload in enumerate(uploads):
                    try:
                        while sent[index] < 12 * MIB:
                            sent[index] += upload.send(rest)
                    except (BlockingIOError, ConnectionError):
                        pass
                return metric(node, "sidecar_request_memory_waiting") > 0

            wait_for(push, "uploads that wait for memory", 20)
            traffic.goes_on()
            assert resident_bytes(node) - before < 60 * MIB, "20 times 12 MiB were on their way"
            assert node.status("/livez") == 200
        for upload in uploads:
            upload.close()
        wait_for(lambda: metric(node, "sidecar_request_memory_bytes") == 0, "all of it to be given back", 20)


def test_answers_that_nobody_reads_take_bounded_memory_and_others_are_served(
    services: Services, tmp_path: Path
) -> None:
    with (
        node_with(services, tmp_path, {"QUEUED_MAX_RESPONSE_BYTES": str(8 * MIB)}) as (node, topic),
        ExitStack() as opened,
    ):
        large = create_topic(services.kafka_bootstrap, 1)
        producer = Producer({"bootstrap.servers": services.kafka_bootstrap, "message.max.bytes": MIB})
        for _ in range(4):
            producer.produce(large, os.urandom(900_000), partition=0)
        assert producer.flush(30) == 0
        with Traffic(node.bootstrap, topic) as traffic:
            before = resident_bytes(node)
            strangers = [opened.enter_context(RawClient(node.bootstrap, receive_buffer=4096)) for _ in range(30)]
            for stranger in strangers:
                stranger.send(raw.fetch({(large, 0): 0}, partition_max_bytes=50 * MIB), answered=False)
            wait_for(lambda: '"reason": "unread"' in node.log, "those that read nothing to be closed", 30)
            wait_for(lambda: metric(node, "sidecar_response_memory_waiting") == 0, "room for all others", 30)
            wait_for(lambda: metric(node, "sidecar_response_memory_bytes") <= 8 * MIB, "no more than there may be", 30)
            assert resident_bytes(node) - before < 60 * MIB, "30 times 3.6 MB were asked for"
            traffic.goes_on()
        for stranger in strangers:
            stranger.close()
        wait_for(lambda: metric(node, "sidecar_response_memory_bytes") == 0, "all of it to be given back", 20)


def ends(topic: str, partitions: int) -> Any:
    """A ListOffsets request for the ends of so many partitions of one topic."""
    named = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    return raw.request(2, 7, replica_id=-1, topics=[{"name": topic, "partitions": named}])


def test_a_request_with_too_many_elements_is_refused_and_a_long_one_taken_up_in_slices(
    services: Services, tmp_path: Path
) -> None:
    settings = {"MAX_REQUEST_ELEMENTS": "4000", "TURN_ELEMENTS": "50"}
    with node_with(services, tmp_path, settings) as (node, topic), ExitStack() as opened:
        with Traffic(node.bootstrap, topic) as traffic:
            before = metric(node, "sidecar_slices_total")
            long = opened.enter_context(RawClient(node.bootstrap))
            answer = long.ask(ends(topic, 3_900))
            assert len(answer.topics[0].partitions) == 3_900
            assert metric(node, "sidecar_slices_total") - before > 3_900 // 50
            stranger = opened.enter_context(RawClient(node.bootstrap))
            stranger.send(ends(topic, 4_000), answered=False)  # and their topic
            wait_for(stranger.is_closed, "the end of the one that asked too much", 20)
            traffic.goes_on()
        assert metric(node, 'sidecar_client_rejections_total{reason="too_many"}') == 1
        assert events(node, "client_rejected")[-1]["reason"] == "too_many"


def test_requests_in_a_row_are_counted_where_others_have_their_turn(services: Services, tmp_path: Path) -> None:
    with node_with(services, tmp_path, {}) as (node, _), ExitStack() as opened:
        peer = opened.enter_context(connect(node))
        frame = I32.pack(11) + I16.pack(18) + I16.pack(0) + I32.pack(1) + b"\0\1x"
        peer.sendall(frame * 1_000)
        wait_for(lambda: metric(node, "sidecar_turns_cut_total") >= 10, "turns of others in between", 20)


def test_a_client_over_its_quota_is_told_so_and_loses_nothing(services: Services, tmp_path: Path) -> None:
    with node_with(services, tmp_path, {"QUOTA_PRODUCER_BYTE_RATE": "200000"}) as (node, topic):
        throttled: list[ThrottleEvent] = []
        delivered: list[KafkaError | None] = []
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "throttle_cb": throttled.append,
            }
        )

        def done(error: KafkaError | None, _message: Message) -> None:
            delivered.append(error)

        for _ in range(10):
            producer.produce(topic, bytes(60_000), partition=0, on_delivery=done)
        producer.flush(60)
        assert delivered == [None] * 10
        assert throttled
        assert throttled[0].throttle_time > 0
        assert metric(node, 'sidecar_client_throttles_total{api="Produce"}') > 0
