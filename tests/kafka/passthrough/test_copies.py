"""Ungoverned Produce and Fetch are not decoded, and copied once at the most: held by the counter of copied bytes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.network.framing import COPIES, RECEIVE_BYTES
from tests import raw
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.virtual import VirtualCluster
from tests.raw import RawClient
from tests.unit.protocol import kio_entities as kio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Kafka
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.services import Services

SMALL_PRINT = 128
"""Bytes of an answer's head that the node makes by itself where it merges."""
EMPTY_POLL = 200
"""Bytes of a broker's empty answer to a poll, which may be read while another answer is."""
SIZES = [100, 10_000, 200_000, 900_000]


@pytest.fixture(scope="module")
def one(services: Services) -> Iterator[VirtualCluster]:
    """A node in this process, so that its counter can be read."""
    create_internal_topics(services.kafka_bootstrap)
    with VirtualCluster(services.kafka_bootstrap) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def of_three(kafka_cluster: Kafka) -> Iterator[VirtualCluster]:
    create_internal_topics(kafka_cluster.bootstrap)
    with VirtualCluster(kafka_cluster.bootstrap) as cluster:
        yield cluster


class Measured:
    """Bytes of the frames that crossed the node within the context, and of what it copied for them."""

    def __init__(self) -> None:
        self.frames = 0
        self.copied = -COPIES.copied_bytes

    def exchange(self, client: RawClient, message: Any) -> Any:
        frame = client.frame(message)
        client.send_bytes(frame)
        answer = client.receive_frame()
        self.frames += len(frame) + len(answer)
        return kio.answer_of(
            kio.entity(int(type(message).__api_key__), int(type(message).__version__), "response"), answer
        )


@contextmanager
def measured() -> Iterator[Measured]:
    found = Measured()
    yield found
    found.copied += COPIES.copied_bytes


def once(found: Measured, large: int = 0, polled: int = 0) -> bool:
    """Each byte of the frames copied once at the most; of `large` frames no more than what the shared buffer held.
    `polled`: bytes that the node may have read for itself meanwhile.
    """
    most = min(found.frames, large * RECEIVE_BYTES + 20_000) if large else found.frames
    return 0 < found.copied <= most + SMALL_PRINT + polled


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("client_id", ["plain", "named;"])
def test_produce_to_one_leader(size: int, client_id: str, one: VirtualCluster, topic: MakeTopic) -> None:
    name = topic()
    with RawClient(one.bootstrap, client_id) as client:
        client.ask(raw.api_versions())
        client.ask(raw.produce({(name, 0): raw.batch()}))
        for version in (3, 8, 9):
            with measured() as found:
                answer = found.exchange(client, raw.produce({(name, 0): raw.batch(bytes(size))}, version=version))
            assert raw.code(raw.produced(answer)[name, 0]) == 0
            assert once(found)


@pytest.mark.parametrize("size", SIZES)
def test_fetch_from_one_leader(size: int, one: VirtualCluster, topic: MakeTopic) -> None:
    name = topic()
    with RawClient(one.bootstrap) as client:
        client.ask(raw.api_versions())
        client.ask(raw.produce({(name, 0): raw.batch(bytes(size))}))
        client.ask(raw.fetch({(name, 0): 0}))
        for version in (4, 8, 11):
            with measured() as found:
                answer = found.exchange(client, raw.fetch({(name, 0): 0}, version=version))
            assert len(raw.fetched(answer)[name, 0].records) > size
            assert once(found, large=size >= RECEIVE_BYTES, polled=EMPTY_POLL)


def test_pipelined_requests(one: VirtualCluster, topic: MakeTopic) -> None:
    name = topic()
    with RawClient(one.bootstrap) as client:
        client.ask(raw.produce({(name, 0): raw.batch()}))
        with measured() as found:
            frames = [client.frame(raw.produce({(name, 0): raw.batch(bytes(1_000))})) for _ in range(200)]
            client.send_bytes(b"".join(frames))
            found.frames = sum(map(len, frames)) + sum(len(client.receive_frame()) for _ in frames)
            found.frames += len(frames[0])  # the beginning of the frame that a read cuts in two is copied twice
        assert once(found)


@pytest.mark.parametrize("size", SIZES)
def test_produce_split_by_leader(size: int, of_three: VirtualCluster, topic_of_three: MakeTopic) -> None:
    name = topic_of_three(partitions=3)
    with RawClient(of_three.bootstrap) as client:
        client.ask(raw.api_versions())
        client.ask(raw.produce({(name, index): raw.batch() for index in range(3)}))
        with measured() as found:
            batch = raw.batch(bytes(size // 3))
            answer = found.exchange(client, raw.produce({(name, index): batch for index in range(3)}))
        assert {raw.code(part) for part in raw.produced(answer).values()} == {0}
        assert once(found)


@pytest.mark.parametrize("size", SIZES)
def test_fetch_split_by_leader(size: int, of_three: VirtualCluster, topic_of_three: MakeTopic) -> None:
    name = topic_of_three(partitions=3)
    parts = [(name, index) for index in range(3)]
    with RawClient(of_three.bootstrap) as client:
        client.ask(raw.api_versions())
        client.ask(raw.produce({part: raw.batch(bytes(size)) for part in parts}))
        left = set(parts)
        while left:  # until all three polls have been asked once
            answer = raw.fetched(client.ask(raw.fetch(dict.fromkeys(parts, 0))))
            left -= {part for part in parts if answer[part].records}
        brought, copied, frames = set[tuple[str, int]](), 0, 0
        while brought != set(parts):
            with measured() as found:
                answer = raw.fetched(found.exchange(client, raw.fetch(dict.fromkeys(parts, 0))))
            brought |= {part for part in parts if answer[part].records}
            copied, frames = copied + found.copied, frames + found.frames
        assert copied <= frames + 3 * (size + 500) + SMALL_PRINT  # a poll may be read that the next request takes up


def test_records_of_ungoverned_topics_are_not_looked_into(
    one: VirtualCluster, services: Services, topic: MakeTopic
) -> None:
    """Batches that make no sense reach Kafka as they are: it judges, in its own words."""
    name = topic()
    good = bytes(raw.batch())
    for records in (good[:-1] + b"!", good[:16] + b"\x01" + good[17:], good[:-5], good + good, b"\xff" * 100):
        for version in (8, 9):
            with RawClient(one.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
                message = raw.produce({(name, 0): records}, version=version)
                assert client.ask(message) == direct.ask(message)


def test_what_is_read_is_what_was_written(one: VirtualCluster, services: Services, topic: MakeTopic) -> None:
    name = topic(partitions=2)
    parts = {(name, 0): raw.batch(b"first" * 300), (name, 1): raw.batch(b"second" * 3_000)}
    with RawClient(one.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        client.ask(raw.produce(dict(parts)))
        for version in range(4, 12):
            asked = raw.fetch(dict.fromkeys(parts, 0), version=version)
            through, straight = client.ask(asked), direct.ask(asked)
            assert raw.fetched(through) == raw.fetched(straight)
            for part, batch in parts.items():
                records = raw.fetched(through)[part].records
                assert records[12:16] == bytes(4)  # the leader epoch, which the leader puts in
                assert records[16:] == batch[16:]
