"""Fetch in front of a real broker: no sessions, no rack, no replica to prefer; empty requests, unknown partitions."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import pytest

from tests import raw
from tests.raw import RawClient

if TYPE_CHECKING:
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.nodes import NodeProcess
    from tests.services import Services


@pytest.mark.parametrize("version", range(7, 12))
def test_a_session_is_declined(version: int, node: NodeProcess, services: Services, topic: MakeTopic) -> None:
    name = topic()
    asked = raw.fetch({(name, 0): 0}, version=version, max_wait=0, session_id=0, session_epoch=0)
    with RawClient(services.kafka_bootstrap) as direct:
        assert direct.ask(asked).session_id != 0, "Kafka itself would have begun one"
    with RawClient(node.bootstrap) as client:
        for _ in range(3):
            answer = client.ask(asked)
            assert (raw.code(answer), answer.session_id) == (0, 0)
            assert raw.code(raw.fetched(answer)[name, 0]) == 0


@pytest.mark.parametrize("session_id", [0, 7, -1])
def test_the_epoch_alone_says_whether_a_fetch_is_full(
    session_id: int, node: NodeProcess, services: Services, topic: MakeTopic
) -> None:
    """KIP-227: a full Fetch, with epoch 0 or -1, may name a session, which a broker closes then."""
    name = topic()
    with RawClient(node.bootstrap) as through, RawClient(services.kafka_bootstrap) as direct:
        through.ask(raw.produce({(name, 0): raw.batch(b"abc")}))
        for epoch in (-1, 0, 1, 2**31 - 1, -2):
            asked = raw.fetch({(name, 0): 0}, max_wait=0, session_id=session_id, session_epoch=epoch)
            here, there = through.ask(asked), direct.ask(asked)
            assert raw.code(here) == raw.code(there) == (0 if epoch in (-1, 0) else 70)
            assert (here.session_id, here.responses) == (0, there.responses)


def test_a_request_for_nothing_is_answered_with_nothing(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        for version in range(4, 12):
            assert client.ask(raw.fetch({}, version=version, max_wait=raw.PARKED_MS)).responses == ()


def test_a_rack_is_not_passed_on(node: NodeProcess, services: Services, topic: MakeTopic) -> None:
    name = topic()
    with RawClient(node.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        client.ask(raw.produce({(name, 0): raw.batch(b"abc")}))
        for rack in ("", "here"):
            asked = raw.fetch({(name, 0): 0}, rack_id=rack)
            through, straight = raw.fetched(client.ask(asked))[name, 0], raw.fetched(direct.ask(asked))[name, 0]
            assert through == straight
            assert through.preferred_read_replica == -1
        begun = time.monotonic()
        answer = raw.fetched(client.ask(raw.fetch({(name, 0): 1}, rack_id="here", max_wait=300)))[name, 0]
        assert (raw.code(answer), answer.high_watermark, answer.records or b"") == (0, 1, b"")
        assert time.monotonic() - begun > 0.2, "a request with a rack waits as any other"


def test_partitions_that_do_not_exist_are_told_beside_those_that_do(
    node: NodeProcess, services: Services, topic: MakeTopic
) -> None:
    name = topic()
    with RawClient(node.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        client.ask(raw.produce({(name, 0): raw.batch()}))
        for version in (4, 11):
            asked = raw.fetch({(name, 0): 0, (name, 9): 0, ("no-such-topic", 0): 0}, version=version, max_wait=100)
            through, straight = raw.fetched(client.ask(asked)), raw.fetched(direct.ask(asked))
            assert {part: raw.code(found) for part, found in through.items()} == {
                part: raw.code(found) for part, found in straight.items()
            }


@pytest.mark.parametrize("offset", [-1, 5, 2**40])
def test_an_offset_out_of_range_is_told_as_kafka_does(
    offset: int, node: NodeProcess, services: Services, topic: MakeTopic
) -> None:
    name = topic()
    with RawClient(node.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        for rack in ("", "here"):
            asked = raw.fetch({(name, 0): offset}, rack_id=rack)
            assert raw.fetched(client.ask(asked)) == raw.fetched(direct.ask(asked))


def test_an_old_leader_epoch_is_told_as_kafka_does(node: NodeProcess, services: Services, topic: MakeTopic) -> None:
    name = topic()
    with RawClient(node.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        asked = raw.fetch({(name, 0): 0}, max_wait=0)
        (data,) = asked.topics
        (part,) = data.partitions
        for epoch in (-1, 0, 7):
            changed = dataclasses.replace(data, partitions=(dataclasses.replace(part, current_leader_epoch=epoch),))
            again = dataclasses.replace(asked, topics=(changed,))
            assert raw.fetched(client.ask(again)) == raw.fetched(direct.ask(again))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1_000_000, 20_000_000])
def test_a_consumer_that_reads_nothing_for_half_a_minute_gets_its_answer(
    size: int, node: NodeProcess, topic: MakeTopic
) -> None:
    """It works on what it has; TCP's own limit for silent peers (25 s) would take it for gone."""
    name = topic()
    with RawClient(node.bootstrap) as client:
        for _ in range(size // 500_000):
            client.ask(raw.produce({(name, 0): raw.batch(bytes(500_000))}))
    with RawClient(node.bootstrap, receive_buffer=1 << 16) as client:
        client.send(raw.fetch({(name, 0): 0}, max_bytes=size, partition_max_bytes=size))
        time.sleep(32)
        found = raw.fetched(client.receive())[name, 0]
        assert (raw.code(found), len(found.records) > size // 2) == (0, True)
