"""Connections to a broker that break, or never come about: order kept, nothing lost, nobody hammered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests import raw
from tests.kafka.passthrough.behind_proxy import CONNECT_TIMEOUT
from tests.kafka.passthrough.fault_proxy import Mode
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from tests.conftest import Unique
    from tests.kafka.passthrough.behind_proxy import BehindProxy


def value(number: int) -> bytes:
    return b"|%d|" % number


def idempotent(behind_proxy: BehindProxy, client: RawClient) -> tuple[int, int]:
    """A producer id and its epoch."""
    answer = client.ask(raw.init_producer_id())
    assert raw.code(answer) == 0
    return answer.producer_id, answer.producer_epoch


def lose(behind_proxy: BehindProxy, client: RawClient, *messages: object) -> None:
    """Send requests that reach the broker's machine and get lost there, with the connection.

    Returns when the node has noticed and the broker can be reached again; what the node says of it is not read yet.
    """
    behind_proxy.proxy.become(Mode.SWALLOW)
    before = behind_proxy.proxy.swallowed
    sizes = 0
    for message in messages:
        sizes += len(client.frame(message))
        client._correlation -= 1
        client.send(message)
    wait_for(lambda: behind_proxy.proxy.swallowed >= before + sizes, "the requests to get lost")
    behind_proxy.proxy.become(Mode.PASS)
    behind_proxy.proxy.cut()
    assert not client.is_silent(raw.TIMEOUT)
    behind_proxy.wait_until_well()


def codes_and_offsets(client: RawClient, part: tuple[str, int], count: int) -> list[tuple[int, int]]:
    answers = [raw.produced(client.receive())[part] for _ in range(count)]
    return [(raw.code(found), found.base_offset) for found in answers]


@pytest.mark.parametrize("already_written", [0, 3])
def test_behind_a_lost_batch_nothing_is_appended_until_it_comes_again(
    already_written: int, behind_proxy: BehindProxy, unique: Unique
) -> None:
    """A producer that Kafka does not know in the partition could begin with any sequence: batches 2 and 3 as well."""
    part = (behind_proxy.topic(unique("orders")), 0)
    with RawClient(behind_proxy.node.bootstrap) as client:
        producer = idempotent(behind_proxy, client)
        messages = [
            raw.produce({part: raw.batch(value(number), producer=producer, sequence=number)})
            for number in range(already_written + 4)
        ]
        for number in range(already_written):
            client.send(messages[number])
            assert codes_and_offsets(client, part, 1) == [(0, number)]
        lost, behind = messages[already_written : already_written + 2], messages[already_written + 2 :]
        client.ask(raw.list_offsets({part: -1}))
        lose(behind_proxy, client, *lost)
        for message in behind:  # sent before the client knows
            client.send(message)
        assert codes_and_offsets(client, part, 4) == [(7, -1), (7, -1), (6, -1), (6, -1)]
        for message in (*lost, *behind):
            client.send(message)
        assert codes_and_offsets(client, part, 4) == [(0, already_written + number) for number in range(4)]
    assert behind_proxy.values(part[0]) == [b"%d" % number for number in range(already_written + 4)]


def test_the_same_holds_where_the_broker_could_not_be_reached(behind_proxy: BehindProxy, unique: Unique) -> None:
    part = (behind_proxy.topic(unique("orders")), 0)
    with RawClient(behind_proxy.node.bootstrap) as client:
        producer = idempotent(behind_proxy, client)
        messages = [
            raw.produce({part: raw.batch(value(number), producer=producer, sequence=number)}) for number in range(3)
        ]
        client.ask(raw.list_offsets({part: -1}))
        behind_proxy.proxy.become(Mode.REFUSE)
        behind_proxy.proxy.cut()
        client.send(messages[0])
        assert codes_and_offsets(client, part, 1)[0][0] in {6, 7}
        behind_proxy.proxy.become(Mode.PASS)
        behind_proxy.wait_until_well()
        for message in messages[1:]:
            client.send(message)
        assert codes_and_offsets(client, part, 2) == [(6, -1), (6, -1)]
        for message in messages:
            client.send(message)
        assert [code for code, _ in codes_and_offsets(client, part, 3)] == [0, 0, 0]
    assert behind_proxy.values(part[0]) == [b"0", b"1", b"2"]


def test_other_partitions_of_the_same_request_go_on(behind_proxy: BehindProxy, unique: Unique) -> None:
    name = behind_proxy.topic(unique("orders"), partitions=2)
    lost, fine = (name, 0), (name, 1)
    with RawClient(behind_proxy.node.bootstrap) as client:
        producer = idempotent(behind_proxy, client)
        batches = [raw.batch(value(number), producer=producer, sequence=number) for number in range(2)]
        client.ask(raw.list_offsets({lost: -1}))
        lose(behind_proxy, client, raw.produce({lost: batches[0]}))
        client.send(raw.produce({lost: batches[1], fine: batches[0]}))
        assert codes_and_offsets(client, lost, 1) == [(7, -1)]
        both = raw.produced(client.receive())
        assert {part: raw.code(found) for part, found in both.items()} == {lost: 6, fine: 0}
        both = raw.produced(client.ask(raw.produce({lost: batches[0], fine: batches[1]})))
        assert {part: raw.code(found) for part, found in both.items()} == {lost: 0, fine: 0}


def test_batches_without_a_producer_id_are_not_held_back(behind_proxy: BehindProxy, unique: Unique) -> None:
    part = (behind_proxy.topic(unique("orders")), 0)
    with RawClient(behind_proxy.node.bootstrap) as client:
        client.ask(raw.list_offsets({part: -1}))
        lose(behind_proxy, client, raw.produce({part: raw.batch(value(0))}))
        client.send(raw.produce({part: raw.batch(value(1))}))
        assert codes_and_offsets(client, part, 2) == [(7, -1), (0, 0)]


def test_a_client_with_acks_0_is_told_by_the_end_of_its_connection(behind_proxy: BehindProxy, unique: Unique) -> None:
    part = (behind_proxy.topic(unique("orders")), 0)
    with RawClient(behind_proxy.node.bootstrap) as client, RawClient(behind_proxy.node.bootstrap) as other:
        for each in (client, other):
            each.send(raw.produce({part: raw.batch(value(0))}))
            assert codes_and_offsets(each, part, 1)[0][0] == 0
        client.send(raw.produce({part: raw.batch(value(1))}, acks=0), answered=False)
        wait_for(lambda: len(behind_proxy.values(part[0])) == 3, "the record")
        behind_proxy.proxy.cut()
        assert client.is_closed()
        assert raw.code(other.ask(raw.api_versions())) == 0


def test_a_question_under_way_is_answered_as_lost_and_asked_again_works(
    behind_proxy: BehindProxy, unique: Unique
) -> None:
    part = (behind_proxy.topic(unique("orders")), 0)
    with RawClient(behind_proxy.node.bootstrap) as client:
        client.send(raw.produce({part: raw.batch(value(0))}))
        assert codes_and_offsets(client, part, 1) == [(0, 0)]
        lose(behind_proxy, client, raw.fetch({part: 0}), raw.list_offsets({part: -1}))
        assert raw.code(raw.fetched(client.receive())[part]) == 6
        assert raw.code(client.receive().topics[0].partitions[0]) == 6
        assert raw.code(raw.fetched(client.ask(raw.fetch({part: 0})))[part]) == 0
        assert client.ask(raw.list_offsets({part: -1})).topics[0].partitions[0].offset == 1


# Connections that do not come about -------------------------------------------------------------------------------


def hammer(behind_proxy: BehindProxy, part: tuple[str, int], seconds: float) -> tuple[int, set[int]]:
    """Produce as fast as the node answers; how many answers came and with which codes."""
    answers, codes, until = 0, set[int](), time.monotonic() + seconds
    with RawClient(behind_proxy.node.bootstrap) as client:
        client.ask(raw.api_versions())
        while time.monotonic() < until:
            found = raw.produced(client.ask(raw.produce({part: raw.batch(value(0))})))[part]
            codes.add(raw.code(found))
            answers += 1
    return answers, codes


def test_a_broker_that_hangs_up_at_once_is_not_hammered(behind_proxy: BehindProxy, unique: Unique) -> None:
    part = (behind_proxy.topic(unique("orders")), 0)
    assert hammer(behind_proxy, part, 0.1)[1] == {0}
    behind_proxy.proxy.become(Mode.HANG_UP)
    behind_proxy.proxy.cut()
    before = behind_proxy.proxy.accepted
    answers, codes = hammer(behind_proxy, part, 1.5)
    assert answers > 100, "the client was answered each time"
    assert codes <= {6, 7}
    assert 2 <= behind_proxy.proxy.accepted - before < 25


def test_a_broker_that_refuses_is_not_hammered(behind_proxy: BehindProxy, unique: Unique) -> None:
    part = (behind_proxy.topic(unique("orders")), 0)
    assert hammer(behind_proxy, part, 0.1)[1] == {0}
    behind_proxy.proxy.become(Mode.REFUSE)
    behind_proxy.proxy.cut()
    counted = refused(behind_proxy)
    answers, codes = hammer(behind_proxy, part, 1.5)
    assert answers > 100
    assert codes <= {6, 7}
    assert 2 <= refused(behind_proxy) - counted < 25


def refused(behind_proxy: BehindProxy) -> int:
    """Failed connections to brokers, as the node counts them."""
    import http.client  # noqa: PLC0415

    connection = http.client.HTTPConnection(behind_proxy.node.admin_url.removeprefix("http://"), timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return int(
        sum(float(line.split()[-1]) for line in lines if line.startswith("sidecar_upstream_connection_errors_total{"))
    )


def test_a_broker_that_swallows_connection_attempts_costs_the_timeout_and_few_attempts(
    behind_proxy: BehindProxy, unique: Unique
) -> None:
    part = (behind_proxy.topic(unique("orders")), 0)
    assert hammer(behind_proxy, part, 0.1)[1] == {0}
    behind_proxy.proxy.become(Mode.BLACKHOLE)
    behind_proxy.proxy.cut()
    seen: set[int] = set()
    with RawClient(behind_proxy.node.bootstrap) as client, RawClient(behind_proxy.node.bootstrap) as other:
        client.send(raw.produce({part: raw.batch(value(0))}))
        while client.is_silent(0.01):
            seen |= behind_proxy.knocks()
            assert raw.code(other.ask(raw.api_versions())) == 0
        assert codes_and_offsets(client, part, 1)[0][0] in {6, 7}
        until = time.monotonic() + 2
        while time.monotonic() < until:
            client.send(raw.produce({part: raw.batch(value(0))}))
            while client.is_silent(0.01):
                seen |= behind_proxy.knocks()
            client.receive()
    assert 2 <= len(seen) < 30


def test_what_waits_for_a_connection_is_bounded(behind_proxy: BehindProxy, unique: Unique) -> None:
    from tests.kafka.node_log import resident_bytes  # noqa: PLC0415

    part = (behind_proxy.topic(unique("orders")), 0)
    assert hammer(behind_proxy, part, 0.1)[1] == {0}
    behind_proxy.proxy.become(Mode.BLACKHOLE)
    behind_proxy.proxy.cut()
    before, sent, most = resident_bytes(behind_proxy.node), 0, 0
    with RawClient(behind_proxy.node.bootstrap) as client:
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
            most = max(most, resident_bytes(behind_proxy.node))
    assert most - before < 20_000_000


def test_a_client_that_leaves_while_its_connection_is_being_made_blames_nobody(
    behind_proxy: BehindProxy, unique: Unique
) -> None:
    """The broker is not at fault, and others must not be kept from it."""
    part = (behind_proxy.topic(unique("orders")), 0)
    assert hammer(behind_proxy, part, 0.1)[1] == {0}
    before = refused(behind_proxy)
    behind_proxy.proxy.become(Mode.BLACKHOLE)
    clients = [RawClient(behind_proxy.node.bootstrap) for _ in range(20)]
    for client in clients:
        client.send(raw.produce({part: raw.batch(value(0))}))
    wait_for(lambda: len(behind_proxy.knocks()) >= 20, "connection attempts", CONNECT_TIMEOUT)
    for client in clients:
        client.close()
    wait_for(lambda: not behind_proxy.knocks(), "the attempts to end", CONNECT_TIMEOUT)
    blamed = refused(behind_proxy) - before
    assert blamed < len(clients) / 2, "the node's own attempts may fail meanwhile, none of theirs does"
    behind_proxy.proxy.become(Mode.PASS)
    if hammer(behind_proxy, part, 0.1)[1] != {0}:
        assert refused(behind_proxy) > before, "only where an attempt of the node's own failed is the broker left alone"
        wait_for(lambda: hammer(behind_proxy, part, 0.1)[1] == {0}, "the broker to be tried again", CONNECT_TIMEOUT)
