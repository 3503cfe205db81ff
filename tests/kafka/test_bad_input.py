"""What no client should send, and what becomes of it: an exact error code or the end of the connection, and one event.

Another client's traffic goes on through all of it.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import re
import socket
import ssl
import threading
import time
import urllib.request
import uuid
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway.apis.table import APIS, NOT_SERVED
from sidecar.network.client import FIRST_FRAME_LIMIT
from sidecar.protocol.primitives import I16, I32
from tests import frames, raw
from tests.kafka.gateway.requests import request
from tests.kafka.node_log import events, resident_bytes
from tests.kafka.traffic import Traffic
from tests.kafka_calls import kafka_calls
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol import test_fetch_tags as fetch_tags
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.services import Services

I64 = Struct(">q")
MIB = 1024 * 1024
LIMIT = 100 * MIB


@dataclass
class Ground:
    """A node with an ordinary topic, a governed one, and somebody else's traffic."""

    node: NodeProcess
    ordinary: str
    governed: str
    traffic: Traffic

    def rejections(self, client: RawClient) -> list[dict[str, Any]]:
        name = client.name
        told = events(self.node, "client_rejected", name)
        return [event for event in told if event["peer"] == name and event["ts"] >= client.opened]

    def told_once(self, client: RawClient) -> str:
        """The reason in the one event about this client; others have gone on meanwhile."""
        wait_for(lambda: self.rejections(client), "the event", 5)
        self.traffic.goes_on(5)
        (event,) = self.rejections(client)
        assert event["level"] == "warning"
        assert event["detail"]
        return event["reason"]


@pytest.fixture(scope="module")
def ground(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    unique = uuid.uuid4().hex[:8]
    names = [f"{kind}-{unique}" for kind in ("orders", "governed", "traffic")]

    async def create() -> None:
        async with kafka_calls(services.kafka_bootstrap) as calls:
            for name in names:
                await calls.create(name, partitions=2)

    asyncio.run(create())
    node = NodeProcess(
        tmp_path_factory.mktemp("bad-input"),
        services.kafka_bootstrap,
        services.redis_url,
        cluster=f"bad-{unique}",
        LOG_LIMIT="1000000",
    )
    node.start()
    try:
        govern(node, names[1])
        with Traffic(node.bootstrap, names[2]) as traffic:
            yield Ground(node, names[0], names[1], traffic)
        assert traffic.acked > 1_000
    finally:
        node.stop()
    node.check_log()


def govern(node: NodeProcess, topic: str) -> None:
    host = node.admin_url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    body = json.dumps({"access_mode": "exclusive"})
    connection.request("PUT", f"/v1/topics/{topic}/policy", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


# Bytes that end the connection ------------------------------------------------------------------------------------


def header(
    key: int, version: int, body: bytes = b"", *, client_id: bytes = b"\x00\x01x", flexible: bool = False
) -> bytes:
    """A request's frame, whatever it says."""
    rest = I16.pack(key) + I16.pack(version) + I32.pack(7) + client_id + (b"\0" if flexible else b"") + body
    return I32.pack(len(rest)) + rest


def tls_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def cut(message: Any, by: int = 1) -> bytes:
    """A request without its last bytes, in a frame that fits what is left."""
    frame = kio.request_frame(message)[4:-by]
    return I32.pack(len(frame)) + frame


PRODUCE = raw.produce({("orders", 0): raw.batch()})
MANY = I32.pack(2**31 - 1)
HUGE_VARINT = b"\xff\xff\xff\xff\x0f"
BAD_TEXT = b"\x00\x02\xff\xfe"

ENDS: dict[str, tuple[bytes, str]] = {
    "garbage": (random.Random(1).randbytes(300), "malformed"),
    "garbage of a plausible length": (I32.pack(200) + b"\x7f" + random.Random(2).randbytes(199), "malformed"),
    "text": (b"hello, is anybody there?\r\n", "too_large"),
    "zeroes": (bytes(64), "truncated"),
    "an HTTP GET": (b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n", "http"),
    "an HTTP POST": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "http"),
    "a TLS hello": (tls_hello(), "tls"),
    "a frame of -1 bytes": (I32.pack(-1), "malformed"),
    "a frame of -2^31 bytes": (I32.pack(-(2**31)), "malformed"),
    "a first frame over 512 KiB": (I32.pack(FIRST_FRAME_LIMIT + 1) + header(18, 0)[4:], "too_large"),
    "a frame without a header": (I32.pack(5) + bytes(5), "truncated"),
    "a client id longer than the frame": (header(18, 0, client_id=b"\x7f\xffab"), "truncated"),
    "a client id of -2 bytes": (header(18, 0, client_id=b"\xff\xfe"), "malformed"),
    "an unknown key": (header(9_999, 0), "unknown_api"),
    "a negative key": (header(-3, 0), "unknown_api"),
    "a version of tomorrow": (header(0, 99), "unsupported_version"),
    "a negative version": (header(3, -1), "unsupported_version"),
    "Produce 2, told for librdkafka, never served": (header(0, 2), "unsupported_version"),
    "a version of ShareFetch that no broker serves any more": (header(78, 0), "unsupported_version"),
    **{f"key {key}, not served": (header(key, 0), "unknown_api") for key in NOT_SERVED},
    "Produce cut short": (cut(PRODUCE), "malformed"),
    "Produce 9 cut short": (cut(raw.produce({("orders", 0): raw.batch()}, version=9)), "malformed"),
    "Produce without a body": (header(0, 8), "malformed"),
    "Fetch cut short": (cut(raw.fetch({("orders", 0): 0})), "malformed"),
    "ListOffsets cut short": (cut(raw.list_offsets({("orders", 0): -1})), "malformed"),
    "Metadata cut short": (cut(raw.metadata(["orders"])), "malformed"),
    "ApiVersions cut short": (cut(raw.api_versions()), "malformed"),
    "FindCoordinator cut short": (cut(raw.find_coordinator("group"), 4), "malformed"),
    "InitProducerId cut short": (cut(raw.init_producer_id()), "malformed"),
    "CreateTopics cut short": (
        cut(request(19, 5, timeout=1000, topics=[{"name": "a", "num_partitions": 1}])),
        "malformed",
    ),
    "Produce with bytes behind its end": (header(0, 8, kio.body(PRODUCE) + b"!"), "malformed"),
    "Fetch with bytes behind its end": (header(1, 11, kio.body(raw.fetch({("orders", 0): 0})) + b"!"), "malformed"),
    "Fetch with a topic in the id of a directory": (header(1, 17, fetch_tags.hidden_topic()), "malformed"),
    "Fetch with a follower in the id of a cluster": (header(1, 16, fetch_tags.hidden_replica(2)), "malformed"),
    "Fetch with a reader in the id of a cluster": (header(1, 16, fetch_tags.hidden_replica(-1)), "malformed"),
    "Metadata of two billion topics": (header(3, 4, MANY), "malformed"),
    "Metadata 9 of two billion topics": (header(3, 9, HUGE_VARINT, flexible=True), "malformed"),
    "Metadata of -2 topics": (header(3, 4, I32.pack(-2)), "malformed"),
    "Produce to two billion topics": (header(0, 8, b"\xff\xff\xff\xff" + I32.pack(1000) + MANY), "malformed"),
    "Produce to -2 topics": (header(0, 8, b"\xff\xff\xff\xff" + I32.pack(1000) + I32.pack(-2)), "malformed"),
    "Produce of a topic with two billion partitions": (
        header(0, 8, b"\xff\xff\xff\xff" + I32.pack(1000) + I32.pack(1) + b"\x00\x01a" + MANY),
        "malformed",
    ),
    "Produce with a record set of -2 bytes": (
        header(
            0, 8, b"\xff\xff\xff\xff" + I32.pack(1000) + I32.pack(1) + b"\x00\x01a" + I32.pack(1) * 2 + I32.pack(-2)
        ),
        "malformed",
    ),
    "Produce with a record set longer than the frame": (
        header(
            0, 8, b"\xff\xff\xff\xff" + I32.pack(1000) + I32.pack(1) + b"\x00\x01a" + I32.pack(1) * 2 + I32.pack(999)
        ),
        "malformed",
    ),
    "Fetch from two billion topics": (header(1, 4, bytes(17) + MANY), "malformed"),
    "ListOffsets of -7 topics": (header(2, 1, bytes(4) + I32.pack(-7)), "malformed"),
    "ApiVersions with two billion tags": (header(18, 3, b"\x02a\x02b" + HUGE_VARINT, flexible=True), "malformed"),
    "a transactional id that is no UTF-8": (header(0, 8, BAD_TEXT + bytes(6) + I32.pack(0)), "malformed"),
    "Metadata of a topic that is no UTF-8": (header(3, 4, I32.pack(1) + BAD_TEXT + b"\0"), "malformed"),
    "a client's software that is no UTF-8": (header(18, 3, b"\x03\xff\xfe\x02b\0", flexible=True), "malformed"),
    "a varint without end": (header(18, 3, b"\xff" * 12, flexible=True), "malformed"),
    "a partition named twice": (
        kio.request_frame(request(0, 8, acks=-1, topic_data=[{"name": "t", "partition_data": [{"index": 0}] * 2}])),
        "malformed",
    ),
}


@pytest.mark.parametrize("what", ENDS)
def test_what_makes_no_sense_ends_the_connection(what: str, ground: Ground) -> None:
    data, reason = ENDS[what]
    with RawClient(ground.node.bootstrap) as client:
        client.send_bytes(data)
        assert client.is_closed()
        assert ground.told_once(client) == reason


@pytest.mark.parametrize("what", [*list(ENDS)[::6], "a first frame over 512 KiB"])
def test_it_does_so_on_a_connection_that_was_good_before(what: str, ground: Ground) -> None:
    data, reason = ENDS[what]
    if what == "a first frame over 512 KiB":
        data = I32.pack(LIMIT + 1)
    with RawClient(ground.node.bootstrap) as client:
        client.ask(raw.api_versions())
        client.send_bytes(data + kio.request_frame(raw.api_versions()))
        assert client.is_closed()
        wait_for(lambda: ground.rejections(client), "the event", 5)
        assert [event["reason"] for event in ground.rejections(client)] == [reason]


def test_the_largest_frame_allowed_is_taken(ground: Ground) -> None:
    with RawClient(ground.node.bootstrap) as client:
        client.ask(raw.api_versions())
        client.send_bytes(I32.pack(LIMIT) + header(0, 8, b"\xff\xff" + bytes(6) + I32.pack(0))[4:])
        rest, chunk = LIMIT - 21, bytes(MIB)
        while rest:
            client.send_bytes(chunk[: min(rest, MIB)])
            rest -= min(rest, MIB)
        assert client.is_closed()
        assert ground.told_once(client) == "malformed"


def test_the_versions_of_tomorrow_are_told_those_of_today(ground: Ground) -> None:
    with RawClient(ground.node.bootstrap) as client:
        client.send_bytes(header(18, 77, b"\x01\x01\x00", flexible=True))
        answer = kio.answer_of(kio.entity(18, 0, "response"), client.receive_frame())
        assert raw.code(answer) == 35
        assert [(found.api_key, found.min_version, found.max_version) for found in answer.api_keys] == [(18, 0, 4)]
        assert client.ask(raw.api_versions()).error_code.value == 0
        assert ground.rejections(client) == []


@pytest.mark.parametrize("key", [1, 2, 3, 12, 13, 15, 16, 22, 23, 32, 48], ids=lambda key: APIS[key].name)
def test_a_tagged_field_that_nobody_knows_changes_nothing(key: int, ground: Ground) -> None:
    """KIP-482. It stands in the header; tests of the walks have it everywhere."""
    with RawClient(ground.node.bootstrap) as client:
        version = int({found.api_key: found for found in client.ask(raw.api_versions()).api_keys}[key].max_version)
        answers: list[bytes] = []
        for tags in (b"\0", b"\1\x63\3abc"):
            body = kio.body(request(key, version))
            client.send_bytes(header(key, version, tags + body))
            answers.append(client.receive_frame())
        assert len(answers[0]) == len(answers[1])
        assert ground.rejections(client) == []


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: APIS[key].name)
def test_a_request_cut_anywhere_ends_the_connection_or_is_answered(key: int, ground: Ground) -> None:
    with RawClient(ground.node.bootstrap) as client:
        told = {found.api_key: found for found in client.ask(raw.api_versions()).api_keys}
    served = range(APIS[key].first, int(told[key].max_version) + 1) if key in told else range(0)
    for version in {*served[:1], *served[-1:]}:
        if not kio.has(key, version):
            continue
        whole = kio.request_frame(request(key, version))[4:]
        for size in range(kio.body_at() - 4 + key % 5, len(whole), 5):  # units are cut everywhere
            with RawClient(ground.node.bootstrap) as client:
                client.send_bytes(I32.pack(size) + whole[:size] + kio.request_frame(raw.api_versions(), 8))
                try:
                    client.receive_frame()
                except frames.ClosedError:
                    # What is read in place of a count may be any number.
                    assert [event["reason"] for event in ground.rejections(client)] in ([], ["malformed"], ["too_many"])
    ground.traffic.goes_on()


# Batches that are answered with an error --------------------------------------------------------------------------


def with_crc(batch: bytearray) -> bytes:
    """The batch with the CRC-32C of what it says now."""
    from crc32c import crc32c  # noqa: PLC0415

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def changed(at: int, to: bytes) -> bytes:
    batch = raw.batch()
    batch[at : at + len(to)] = to
    return with_crc(batch)


def old_message(magic: int) -> bytes:
    """A message of the formats before 0.11 (KIP-98 tells of both)."""
    from zlib import crc32  # noqa: PLC0415

    time = I64.pack(1_700_000_000_000) if magic else b""
    body = bytes([magic, 0]) + time + I32.pack(-1) + I32.pack(1) + b"v"
    return I64.pack(0) + I32.pack(len(body) + 4) + crc32(body).to_bytes(4, "big") + body


CORRUPT = bytes(raw.batch()[:-1]) + b"\x01"
BATCHES: dict[str, tuple[bytes | None, int, str]] = {
    "a CRC that does not match": (CORRUPT, 2, "corrupt_batch"),
    "message format 0": (old_message(0), 43, "old_message_format"),
    "message format 1": (old_message(1), 43, "old_message_format"),
    "message format 9": (changed(16, b"\x09"), 2, "corrupt_batch"),
    "a batch cut short": (bytes(raw.batch()[:-3]), 2, "corrupt_batch"),
    "a batch of ten bytes": (bytes(10), 2, "corrupt_batch"),
    "a batch that says it is longer than the frame": (changed(8, I32.pack(10_000)), 2, "corrupt_batch"),
    "a batch that says it is -5 bytes long": (changed(8, I32.pack(-5)), 2, "corrupt_batch"),
    "a transactional batch": (changed(21, b"\x00\x10"), 48, "transactional_batch"),
    "a control batch": (changed(21, b"\x00\x20"), 87, "invalid_record"),
    "two batches": (bytes(raw.batch() + raw.batch()), 87, "invalid_record"),
    "a batch and a byte": (bytes(raw.batch()) + b"!", 87, "invalid_record"),
    "no batch": (b"", 87, "invalid_record"),
    "null": (None, 87, "invalid_record"),
    "a batch of no records": (changed(57, I32.pack(0)), 87, "invalid_record"),
    "a batch of -1 records": (changed(57, I32.pack(-1)), 87, "invalid_record"),
    "a count that does not fit the offsets": (changed(57, I32.pack(7)), 87, "invalid_record"),
    "a producer id without a sequence": (changed(43, I64.pack(7)), 87, "invalid_record"),
}


def test_a_transaction_that_is_to_write_to_a_governed_topic_is_refused(ground: Ground) -> None:
    """What a transactional client asks first, long before its batch."""
    topics = [{"name": ground.governed, "partitions": [0]}]
    with RawClient(ground.node.bootstrap) as client:
        for _ in range(2):
            asked = request(24, 3, transactional_id="t", producer_id=7, producer_epoch=0, topics=topics)
            (found,) = client.ask(asked).results_by_topic_v3_and_below
            assert [partition.partition_error_code.value for partition in found.results_by_partition] == [48]
        assert ground.told_once(client) == "transactional_batch"


@pytest.mark.parametrize("good_before", [False, True])
@pytest.mark.parametrize("data", [b"\0\0", I32.pack(100) + b"abc", I32.pack(70_000) + bytes(60_000)])
def test_a_stream_that_ends_within_a_frame_is_told_of(data: bytes, ground: Ground, *, good_before: bool) -> None:
    with RawClient(ground.node.bootstrap) as client:
        if good_before:
            client.ask(raw.api_versions())
        client.send_bytes(data)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
        assert ground.told_once(client) == "truncated"


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("what", BATCHES)
def test_a_bad_batch_for_a_governed_topic_is_refused_by_its_code(what: str, version: int, ground: Ground) -> None:
    records, expected, reason = BATCHES[what]
    with RawClient(ground.node.bootstrap) as client:
        for _ in range(2):
            answer = client.ask(raw.produce({(ground.governed, 0): records}, version=version))
            found = raw.produced(answer)[ground.governed, 0]
            assert (raw.code(found), found.base_offset) == (expected, -1)
            assert version < 8 or found.error_message
        assert ground.told_once(client) == reason


@pytest.mark.parametrize("what", ["no batch", "null"])
def test_an_ordinary_partition_without_a_batch_is_refused_too(what: str, ground: Ground) -> None:
    with RawClient(ground.node.bootstrap) as client:
        both: dict[tuple[str, int], raw.Records] = {
            (ground.ordinary, 0): BATCHES[what][0],
            (ground.ordinary, 1): raw.batch(),
        }
        found = raw.produced(client.ask(raw.produce(both)))
        assert {key[1]: raw.code(partition) for key, partition in found.items()} == {0: 87, 1: 0}
        assert ground.told_once(client) == "invalid_record"


def test_with_acks_0_a_bad_batch_ends_the_connection(ground: Ground) -> None:
    with RawClient(ground.node.bootstrap) as client:
        client.send(raw.produce({(ground.governed, 0): CORRUPT}, acks=0), answered=False)
        assert client.is_closed()
        assert ground.told_once(client) == "corrupt_batch"


@pytest.mark.parametrize(
    "client_id",
    [
        "a;mode=exklusiv",
        "a;mode=",
        "a;speed=fast",
        "a;generation=-1",
        "a;generation=two",
        "a;generation=9223372036854775808",
    ],
)
def test_a_client_id_with_a_wrong_setting_is_refused_where_it_matters(client_id: str, ground: Ground) -> None:
    with RawClient(ground.node.bootstrap, client_id) as client:
        assert raw.code(client.ask(raw.api_versions())) == 0
        for topic in (ground.ordinary, ground.governed):
            found = raw.produced(client.ask(raw.produce({(topic, 0): raw.batch()})))[topic, 0]
            assert raw.code(found) == 42
            assert client_id.split(";")[1].split("=", maxsplit=1)[0] in found.error_message
        assert raw.code(client.ask(raw.init_producer_id())) == 42
        assert raw.fetched(client.ask(raw.fetch({(ground.ordinary, 0): 0}, max_wait=0)))
        assert ground.told_once(client) == "client_id"


def test_a_client_id_that_is_no_utf8_is_refused_where_it_matters(ground: Ground) -> None:
    with RawClient(ground.node.bootstrap) as client:
        body = kio.body(raw.produce({(ground.ordinary, 0): raw.batch()}))
        client.send_bytes(header(0, 8, body, client_id=BAD_TEXT))
        answer = kio.answer_of(kio.entity(0, 8, "response"), client.receive_frame())
        assert raw.code(raw.produced(answer)[ground.ordinary, 0]) == 42
        assert ground.told_once(client) == "client_id"


@pytest.mark.parametrize(
    "name", [b"\xff\xfe", b"\xff" * 20_000, b"a b", b"", b"x" * 300], ids=lambda name: repr(name[:5])
)
def test_a_name_that_no_topic_can_have_is_unknown(name: bytes, ground: Ground) -> None:
    topic = I16.pack(len(name)) + name
    with RawClient(ground.node.bootstrap) as client:
        records = bytes(raw.batch())
        one = I32.pack(1) + topic + I32.pack(1) + I32.pack(0)
        client.send_bytes(
            header(0, 7, b"\xff\xff" + b"\xff\xff" + I32.pack(1000) + one + I32.pack(len(records)) + records)
        )
        assert client.receive_frame()[12 + len(topic) + 8 :][:2] == I16.pack(3)
        client.send_bytes(header(2, 1, I32.pack(-1) + one + I64.pack(-1)))
        assert client.receive_frame()[12 + len(topic) + 8 :][:2] == I16.pack(3)
        client.send_bytes(
            header(
                1, 4, I32.pack(-1) + bytes(4) + I32.pack(1) + I32.pack(MIB) + b"\0" + one + I64.pack(0) + I32.pack(MIB)
            )
        )
        assert client.receive_frame()[16 + len(topic) + 8 :][:2] == I16.pack(3)
        assert raw.code(client.ask(raw.api_versions())) == 0
    ground.traffic.goes_on()


# Bulk -------------------------------------------------------------------------------------------------------------


def test_fifty_clients_that_announce_90_mib_and_drip_cost_little(ground: Ground) -> None:
    clients = [RawClient(ground.node.bootstrap) for _ in range(50)]
    try:
        for client in clients:
            client.ask(raw.api_versions())
            client.send_bytes(I32.pack(90 * MIB) + header(0, 8)[4:])
        acked, most, until = ground.traffic.acked, 0, time.monotonic() + 2
        while time.monotonic() < until:
            for client in clients:
                client.send_bytes(b"drip" * 16)
            most = max(most, resident_bytes(ground.node))
        assert most < 200 * MIB
        assert ground.traffic.acked > acked + 50
        assert all(ground.rejections(client) == [] for client in clients[:3])
    finally:
        for client in clients:
            client.close()


def test_a_flood_of_garbage_disturbs_nobody(ground: Ground) -> None:
    """Every kind of nonsense from four clients at once, as fast as they can, for a second."""
    end = time.monotonic() + 1
    sent: list[int] = []

    def flood(seed: int) -> None:
        chance, count = random.Random(seed), 0
        while time.monotonic() < end:
            data, _ = chance.choice(list(ENDS.values()))
            with RawClient(ground.node.bootstrap) as client:
                client.send_bytes(data)
                client.is_closed()
            count += 1
        sent.append(count)

    before, acked = rejected(ground), ground.traffic.acked
    floods = [threading.Thread(target=flood, args=(seed,)) for seed in range(4)]
    for thread in floods:
        thread.start()
    for thread in floods:
        thread.join()
    assert len(sent) == 4
    assert sum(sent) > 40
    assert ground.traffic.acked > acked + 20
    wait_for(lambda: rejected(ground) >= before + sum(sent), "a rejection for each", 5)
    assert rejected(ground) == before + sum(sent)


def rejected(ground: Ground) -> int:
    """Connections that the node has closed for what they sent, logged or not."""
    with urllib.request.urlopen(f"{ground.node.admin_url}/metrics") as answer:
        found = re.search(
            r'^sidecar_client_disconnects_total{cause="rejected"} (\S+)$', answer.read().decode(), re.MULTILINE
        )
    assert found is not None
    return int(float(found[1]))


def test_mutated_requests_never_crash_the_node(ground: Ground) -> None:
    """Good requests with bytes changed, cut out or put in: each is answered, closed, or waits for more."""
    chance = random.Random(20_240)
    good = [
        kio.request_frame(message)
        for message in (
            raw.produce({(ground.ordinary, 0): raw.batch(), (ground.ordinary, 1): raw.batch()}),
            raw.produce({(ground.governed, 0): raw.batch()}, version=9),
            raw.fetch({(ground.ordinary, 0): 0, (ground.ordinary, 1): 0}, max_wait=0),
            raw.list_offsets({(ground.ordinary, 0): -1}),
            raw.metadata([ground.ordinary]),
            raw.find_coordinator("group"),
            raw.init_producer_id(),
            raw.api_versions(),
        )
    ]
    changes: list[Callable[[bytearray], None]] = [
        lambda data: data.__setitem__(chance.randrange(len(data)), chance.randrange(256)),
        lambda data: data.__delitem__(slice(0, chance.randrange(1, 4))),
        lambda data: data.__setitem__(slice(chance.randrange(len(data)), None), b""),
        lambda data: data.extend(chance.randbytes(chance.randrange(1, 9))),
    ]
    for _ in range(400):
        body = bytearray(chance.choice(good)[12:])
        head = chance.choice(good)[4:12]
        for _ in range(chance.randrange(1, 4)):
            if body:
                chance.choice(changes)(body)
        with RawClient(ground.node.bootstrap) as client:
            client.send_bytes(I32.pack(8 + len(body)) + head + body)
            client.is_silent(0.002)
    ground.traffic.goes_on()
    assert ground.node.status("/readyz") == 200
