"""What docs/reference/own-apis.md tells authors of clients, row by row, against a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from sidecar.gateway.apis.table import OWN_APIS
from sidecar.v1 import control_pb2 as control
from tests.conftest import StartNode, Unique
from tests.frames import ClosedError
from tests.kafka.dedup.ids import IdProducer
from tests.nodes import NodeProcess
from tests.own import EXCLUSIVE, FENCING, WAIT, OwnClient, claims, new_token, string, topic
from tests.raw import PARKED_MS, RawClient, metadata
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.unit.docs.pages import page
from tests.wait import wait_for

PAGE = page("docs/reference/own-apis.md")
Connect = Callable[[], OwnClient]


@pytest.fixture
def connect(node: NodeProcess) -> Iterator[Connect]:
    """Opens connections."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(OwnClient(node.bootstrap))


def frame(name: str) -> bytes:
    """The bytes of a block; what stands behind # is for people."""
    [block] = [block for block in PAGE.blocks if block.comment == f"hex {name}"]
    return bytes.fromhex(" ".join(line.split("#")[0] for line in block.text.splitlines()))


# Frames and connections -----------------------------------------------------------------------------------------------


def test_the_request_of_the_page_gets_the_answer_of_the_page(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        client.send_bytes(frame("OwnRequest"))
        answer = client.receive_frame()
        told = control.OwnResponse.FromString(answer[8:])
        expected = control.OwnResponse.FromString(frame("OwnResponse")[8:])
        [owned] = expected.ownerships
        assert told.ownerships[0].since_ms > owned.since_ms
        assert told.ownerships[0].fencing_token > owned.fencing_token
        owned.since_ms = told.ownerships[0].since_ms
        owned.fencing_token = told.ownerships[0].fencing_token
        owned.owner_session = told.ownerships[0].owner_session
    assert (answer[4:8], told) == (frame("OwnResponse")[4:8], expected)
    assert owned.owner_session.startswith("conn:")


def test_a_producer_id_that_is_left_out_is_the_connection_unless_a_client_has_0(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    leader = string(unique("s"))
    node = node_process()  # one whose clients never asked for a producer id
    asked = control.OwnRequest(claims=claims(leader), token=new_token())
    with OwnClient(node.bootstrap) as first, OwnClient(node.bootstrap) as second:
        answer = first.ask(1000, asked.SerializeToString(), control.OwnResponse)
        assert answer.ownerships[0].owner_session.startswith("conn:")
        asked.token = new_token()
        assert second.ask(1000, asked.SerializeToString(), control.OwnResponse).error == control.HELD


def test_what_is_sent_behind_a_watch_waits_with_it(node: NodeProcess, connect: Connect, unique: Unique) -> None:
    name, token, other = string(unique("s")), new_token(), connect()
    with RawClient(node.bootstrap) as client:
        asked = control.OwnRequest(claims=claims(name), token=token, producer_id=-1)
        watched = control.WatchRequest(token=token, wait_ms=PARKED_MS)
        for key, message in ((1000, asked), (1004, watched)):
            body = message.SerializeToString()
            head = key.to_bytes(2, "big") + bytes(6) + b"\xff\xff"
            client.send_bytes((len(head) + len(body)).to_bytes(4, "big") + head + body)
        client.send(metadata([]))
        assert control.OwnResponse.FromString(client.receive_frame()[8:]).error == control.NONE
        assert other.release(token).error == control.NONE  # which ends the Watch
        assert control.WatchResponse.FromString(client.receive_frame()[8:]).error == control.DEPOSED
        assert client.receive().brokers


@pytest.mark.parametrize("key", OWN_APIS)
def test_kafka_itself_hangs_up(services: Services, key: int) -> None:
    with OwnClient(services.kafka_bootstrap) as client, pytest.raises(ConnectionError):
        client.ask(key, b"", control.OwnResponse)


@pytest.mark.parametrize("key", OWN_APIS)
def test_another_version_closes_the_connection(node: NodeProcess, key: int) -> None:
    with OwnClient(node.bootstrap) as client, pytest.raises((ConnectionError, ClosedError)):
        client.ask(key, b"", control.OwnResponse, version=1)


# Generations ----------------------------------------------------------------------------------------------------------


class Actor:
    """Claims one resource over a connection of its own, each time with a new token."""

    def __init__(self, client: OwnClient, what: control.Resource, group: str) -> None:
        self.client = client
        self._what = what
        self._group = group
        self.token = b""

    def own(self, **fields: Any) -> int | str:
        """The generation that was granted, or the name of the error."""
        self.token = new_token()
        answer = self.client.own(self._what, group=self._group, token=self.token, **fields)
        return answer.ownerships[0].generation if answer.error == control.NONE else control.Error.Name(answer.error)

    def release(self) -> None:
        """Give it back."""
        assert self.client.release(self.token, group=self._group).error == control.NONE


@pytest.mark.parametrize("kind", ["string", "reader", "topic"])
def test_the_table_of_generations(services: Services, connect: Connect, unique: Unique, kind: str) -> None:
    what = string(unique("s")) if kind == "string" else topic(create_topic(services.kafka_bootstrap))
    group = unique("g") if kind == "reader" else ""
    forgets = kind != "topic"

    def another() -> Actor:
        return Actor(connect(), what, group)

    first = another()
    assert first.own() == 1
    assert first.own() == 1  # the owner asks again
    fencer = another()
    assert fencer.own(mode=FENCING) == 2
    fencer.release()
    assert fencer.own() == (1 if forgets else 2)  # free, and nobody had it meanwhile
    fencer.release()
    next_one = another()
    assert next_one.own() == (1 if forgets else 3)  # free
    next_one.release()
    assert another().own(generation=2) == (1 if forgets else "LOWER_GENERATION")  # free
    assert another().own(generation=7) == 7
    assert another().own(generation=6) == "LOWER_GENERATION"
    equal = another()
    assert equal.own(generation=7) == 8
    higher = another()
    assert higher.own(generation=50) == 50
    zero = another()
    assert zero.own(generation=0) == (1 if forgets else 51)
    waiting = another()
    assert waiting.own(mode=WAIT) == "TIMED_OUT"
    zero.release()
    token = waiting.token
    promoted = waiting.client.own(what, group=group, mode=WAIT, token=token, wait_ms=20_000)
    assert promoted.ownerships[0].generation == (1 if forgets else 52)


def test_an_owner_that_asks_for_a_number_keeps_its_topic_s_and_gets_its_string_s(
    services: Services, connect: Connect, unique: Unique
) -> None:
    written, name, owner = topic(create_topic(services.kafka_bootstrap)), string(unique("s")), connect()
    assert [each.generation for each in owner.own(written, generation=50).ownerships] == [50]
    for asked in (7, 50, 60, 0):
        assert [each.generation for each in owner.own(written, generation=asked).ownerships] == [50]
    assert owner.own(name).error == control.NONE
    for asked, got in ((7, 7), (7, 8), (0, 1)):
        assert [each.generation for each in owner.own(name, generation=asked).ownerships] == [got]
    assert owner.own(name, generation=7).error == control.NONE
    assert owner.own(name, generation=6).error == control.LOWER_GENERATION


def test_a_session_that_was_deposed_from_a_topic_stays_deposed_there(
    services: Services, connect: Connect, unique: Unique
) -> None:
    written, deposed, rival = topic(create_topic(services.kafka_bootstrap)), connect(), connect()
    assert deposed.own(written).error == control.NONE
    assert rival.own(written, mode=FENCING).error == control.NONE
    assert deposed.own(written, generation=0).error == control.DEPOSED
    assert deposed.own(string(unique("s"))).error == control.NONE
    assert connect().own(written, generation=0).error == control.NONE


# Modes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "free", "held"),
    [
        (control.ACCESS_MODE_UNSPECIFIED, "NONE", "HELD"),
        (control.SHARED, "INVALID_REQUEST", "INVALID_REQUEST"),
        (EXCLUSIVE, "NONE", "HELD"),
        (WAIT, "NONE", "TIMED_OUT"),
        (FENCING, "NONE", "NONE"),
    ],
)
@pytest.mark.parametrize("kind", ["string", "reader", "topic"])
def test_the_table_of_modes(
    services: Services, connect: Connect, unique: Unique, kind: str, mode: control.AccessMode, free: str, held: str
) -> None:
    what = string(unique("s")) if kind == "string" else topic(create_topic(services.kafka_bootstrap))
    group = unique("g") if kind == "reader" else ""
    token, owner = new_token(), connect()
    assert control.Error.Name(owner.own(what, group=group, mode=mode, token=token).error) == free
    owner.own(what, group=group)
    assert control.Error.Name(connect().own(what, group=group, mode=mode).error) == held


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_a_token_stands_for_one_request(connect: Connect, unique: Unique) -> None:
    one, two, token, client = string(unique("s")), string(unique("s")), new_token(), connect()
    assert client.own(one, token=token).error == control.NONE
    assert client.own(one, token=token, wait_ms=5).error == control.NONE
    refused = client.own(two, token=token)
    assert (refused.error, "another request" in refused.message) == (control.INVALID_REQUEST, True)


def test_a_lost_connection_takes_the_claims_of_its_own_session_along(connect: Connect, unique: Unique) -> None:
    name, token, client = string(unique("s")), new_token(), connect()
    assert client.own(name, token=token).error == control.NONE
    client.close()
    again = connect().own(name, mode=WAIT, wait_ms=20_000)
    assert (again.error, again.ownerships[0].generation) == (control.NONE, 1)


@pytest.mark.parametrize("kind", ["string", "topic"])
def test_a_session_that_is_a_producer_ends_with_the_last_of_its_connections(
    services: Services, connect: Connect, unique: Unique, kind: str
) -> None:
    what = string(unique("s")) if kind == "string" else topic(create_topic(services.kafka_bootstrap))
    first, second, third, token = connect(), connect(), connect(), new_token()
    assert first.own(what, token=token, producer_id=2**41).error == control.NONE
    assert second.watch(token).error == control.NONE
    first.close()
    assert third.own(what, token=token, producer_id=2**41).error == control.NONE
    second.close()
    third.close()
    last = connect()
    wait_for(lambda: not last.owner(what).owner_session, "the session to end")
    assert last.own(what, token=token, producer_id=2**41).error == control.DEPOSED
    assert last.own(what, producer_id=2**41).error == control.NONE


@pytest.mark.parametrize("kind", ["string", "topic"])
def test_the_owner_may_ask_again_under_another_token(
    services: Services, connect: Connect, unique: Unique, kind: str
) -> None:
    what = string(unique("s")) if kind == "string" else topic(create_topic(services.kafka_bootstrap))
    old, new, client = new_token(), new_token(), connect()
    assert client.own(what, token=old).error == control.NONE
    assert client.own(what, token=new).error == control.NONE
    assert client.own(what, token=old).error == control.DEPOSED
    assert client.own(what, token=new).error == control.NONE
    assert client.release(new).error == control.NONE
    assert client.owner(what).owner_session == ""


def test_a_producer_that_writes_on_after_a_release_claims_anew(
    services: Services, node: NodeProcess, connect: Connect
) -> None:
    what, client, token = topic(create_topic(services.kafka_bootstrap)), connect(), new_token()
    govern(Rest(node.admin_url), what.topic)
    with IdProducer(node.bootstrap, "billing") as billing:
        assert client.own(what, token=token, producer_id=billing.producer_id).error == control.NONE
        assert client.release(token).error == control.NONE
        assert billing.write(what.topic, 1).error == 0
        assert client.owner(what).owner_session == f"pid:{billing.producer_id}"


def test_releasing_twice_does_no_harm(connect: Connect, unique: Unique) -> None:
    name, token, client, rival = string(unique("s")), new_token(), connect(), connect()
    assert client.own(name, token=token).error == control.NONE
    assert [client.release(token).error for _ in range(2)] == [control.NONE, control.NONE]
    assert rival.own(name).error == control.NONE
    assert client.release(new_token(), name).error == control.HELD
    assert client.release(new_token()).error == control.NONE


@pytest.mark.parametrize("kind", ["string", "topic"])
def test_the_token_of_a_connection_on_another_one_ends_the_first(
    services: Services, connect: Connect, unique: Unique, kind: str
) -> None:
    what = string(unique("s")) if kind == "string" else topic(create_topic(services.kafka_bootstrap))
    token, first, second = new_token(), connect(), connect()
    assert first.own(what, token=token).error == control.NONE
    answer = second.own(what, token=token)
    assert first.is_severed()
    if kind == "string":
        assert (answer.error, second.owner(what).owner_session) == (control.DEPOSED, "")
    else:
        assert (answer.error, answer.ownerships[0].generation) == (control.NONE, 2)


def test_who_lost_a_claim_is_told_who_has_it(connect: Connect, unique: Unique) -> None:
    name, lost, superseded, owner, watch = string(unique("s")), new_token(), new_token(), connect(), connect()
    assert owner.own(name, token=superseded).error == control.NONE
    assert owner.own(name, token=lost).error == control.NONE
    [told] = watch.watch(superseded).changed
    assert (told.error, told.message) == (control.DEPOSED, "its session has claimed it under another token")
    watch.begin_watch(lost, 0)
    watch.begin_watch(lost, 20_000)
    assert not watch.finish(control.WatchResponse).changed  # then the next one stands
    assert connect().own(name, mode=FENCING, name="victor").error == control.NONE
    [told] = watch.finish(control.WatchResponse).changed
    assert (told.error, told.message.split(";")[0]) == (control.DEPOSED, "victor owns it now (generation 2)")


def test_what_a_session_lost_this_moment_is_not_told_as_owned(services: Services, connect: Connect) -> None:
    what = topic(create_topic(services.kafka_bootstrap))
    for producer_id in range(2**42, 2**42 + 20):
        owner, again, token = connect(), connect(), new_token()
        assert owner.own(what, token=token, producer_id=producer_id).error == control.NONE
        owner.close()
        while again.owner(what).owner_session:  # asked the very moment in which it is free
            pass
        told = again.own(what, token=token, producer_id=producer_id)
        assert told.error == control.DEPOSED, told
        again.close()


# Watch ----------------------------------------------------------------------------------------------------------------


def test_a_change_is_told_once_and_then_that_nothing_is_left(connect: Connect, unique: Unique) -> None:
    name, token = string(unique("s")), new_token()
    owner, rival, watcher = connect(), connect(), connect()
    assert owner.own(name, token=token).error == control.NONE
    assert (watcher.watch(token).error, list(watcher.watch(token).changed)) == (control.NONE, [])
    watcher.begin_watch(token, 20_000)
    assert rival.own(name, mode=FENCING).error == control.NONE
    told = watcher.finish(control.WatchResponse)
    found = told.error, [each.error for each in told.changed]
    assert found == (control.NONE, [control.DEPOSED])
    assert owner.is_severed()


def test_no_promotion_is_told_of_a_set_that_was_refused(services: Services, connect: Connect, unique: Unique) -> None:
    held, free, token = (
        topic(create_topic(services.kafka_bootstrap)),
        topic(create_topic(services.kafka_bootstrap)),
        new_token(),
    )
    owner, waiting, watcher, fencer = connect(), connect(), connect(), connect()
    assert owner.own(held).error == control.NONE
    assert waiting.own(held, free, mode=WAIT, token=token).error == control.TIMED_OUT
    watcher.begin_watch(token, 20_000)
    assert fencer.own(held, mode=FENCING).error == control.NONE
    told = watcher.finish(control.WatchResponse)
    assert [(each.resource, each.error) for each in told.changed] == [(held, control.DEPOSED)]
    assert watcher.watch(token).error == control.DEPOSED


def test_a_loss_that_nobody_hears_of_costs_nothing_else(services: Services, connect: Connect, unique: Unique) -> None:
    lost, kept = topic(create_topic(services.kafka_bootstrap)), topic(create_topic(services.kafka_bootstrap))
    owner, watcher, fencer, token = connect(), connect(), connect(), new_token()
    assert owner.own(lost, kept, token=token, producer_id=2**40).error == control.NONE
    assert watcher.watch(token).error == control.NONE
    assert fencer.own(lost, mode=FENCING).error == control.NONE
    watcher.close()
    clock = string(unique("s"))
    assert fencer.own(clock).error == control.NONE
    assert connect().own(clock, mode=WAIT).error == control.TIMED_OUT
    wait_for(lambda: not fencer.owners(clock).waiting, "a place that began later to be given up", timeout=30)
    assert fencer.owner(kept).owner_session == f"pid:{2**40}"


def test_a_token_that_nobody_knows_is_named(connect: Connect) -> None:
    assert connect().watch(new_token()).error == control.UNKNOWN_RESOURCE


# Limits ---------------------------------------------------------------------------------------------------------------


def test_a_first_frame_is_shorter(node: NodeProcess) -> None:
    with OwnClient(node.bootstrap, "") as client, pytest.raises(ConnectionError):
        client.ask(1002, bytes(524_288), control.DescribeOwnersResponse)
    with OwnClient(node.bootstrap, "") as client:
        assert client.ask(1002, bytes(524_288 - 10), control.DescribeOwnersResponse).error == control.INVALID_REQUEST


def test_limits_are_where_the_page_says(connect: Connect, unique: Unique) -> None:
    client, s = connect(), unique("s")
    assert client.own(string(s + "x" * (1_024 - len(s)))).error == control.NONE
    assert client.own(string(s), group="g" * 1_024, name="n" * 255).error == control.NONE
    wrong: list[dict[str, Any]] = [
        {"group": "g" * 1_025},
        {"name": "n" * 256},
        {"token": b"t" * 15},
        {"producer_id": -2},
    ]
    for fields in wrong:
        assert client.own(string(s), **fields).error == control.INVALID_REQUEST, fields
    assert client.own(string("x" * 1_025)).error == control.INVALID_REQUEST
    assert client.own(string(s), group="a\nb").error == control.INVALID_REQUEST
    assert client.own(*[string(f"{s}-{number}") for number in range(1_000)]).error == control.NONE
    assert client.own(*[string(f"{s}-{number}") for number in range(1_001)]).error == control.INVALID_REQUEST
    assert client.own(topic("x" * 250)).error == control.UNKNOWN_RESOURCE
    assert client.own(string(s), wait_ms=2**31 - 1).error == control.NONE


@pytest.mark.parametrize("kind", ["string", "topic"])
def test_who_finds_a_queue_full_is_told_so(
    services: Services, node_process: StartNode, unique: Unique, kind: str
) -> None:
    what = string(unique("s")) if kind == "string" else topic(create_topic(services.kafka_bootstrap))
    node = node_process(QUEUE_LIMIT="1")
    with (
        OwnClient(node.bootstrap) as owner,
        OwnClient(node.bootstrap) as waiting,
        OwnClient(node.bootstrap) as late,
    ):
        assert owner.own(what).error == control.NONE
        token = new_token()
        assert waiting.own(what, mode=WAIT, token=token).error == control.TIMED_OUT
        assert late.own(what, mode=WAIT).error == control.QUEUE_FULL
        assert waiting.own(what, mode=WAIT, token=token).error == control.TIMED_OUT  # its place is its own


# Finding the node -----------------------------------------------------------------------------------------------------


def two_nodes(node_process: StartNode, cluster: str, grace_ms: str = "5000") -> dict[int, NodeProcess]:
    nodes = {
        number: node_process(cluster=cluster, node_id=number, LEASE_MS="1000", RECONNECT_GRACE_MS=grace_ms)
        for number in (1, 2)
    }
    rests = [Rest(node.admin_url) for node in nodes.values()]
    wait_for(lambda: all(len(rest.call("GET", "/v1/status")[1]["nodes"]) == 2 for rest in rests), "both nodes")
    return nodes


def test_the_way_to_the_node_that_serves(services: Services, node_process: StartNode, unique: Unique) -> None:
    nodes = two_nodes(node_process, unique("c"))
    with OwnClient(nodes[1].bootstrap) as one, OwnClient(nodes[2].bootstrap) as two:
        clients = {1: one, 2: two}
        topics = {number: topic(create_topic(services.kafka_bootstrap)) for number in nodes}
        for number, client in clients.items():  # the node that is asked takes over what nobody serves
            [owned] = client.own(topics[number]).ownerships
            assert (owned.error, owned.serving_node) == (control.NONE, number)
        for number, client in clients.items():
            other = topics[3 - number]
            wait_for(lambda: client.owner(other).serving_node == 3 - number, "the node to know who serves")  # noqa: B023
            [refused] = client.own(other).ownerships
            assert (refused.error, refused.serving_node) == (control.NOT_SERVING, 3 - number)
        assert one.own(*topics.values()).error == control.NOT_SERVING  # no node serves both

        leader = string(unique("leader"))
        [there] = {client.owner(leader).serving_node for client in clients.values()}
        assert clients[3 - there].own(leader).error == control.NOT_SERVING
        token = new_token()
        assert clients[there].own(leader, token=token).error == control.NONE
        wait_for(lambda: clients[3 - there].owner(leader).owner_session, "the other node to know the owner")
        assert clients[3 - there].release(token).error == control.NONE  # nothing that it knows of
        assert clients[3 - there].release(token, leader).error == control.NOT_SERVING
        assert clients[there].owner(leader).owner_session
        assert clients[there].release(token, leader).error == control.NONE
        with RawClient(nodes[3 - there].bootstrap) as raw:
            brokers = {each.node_id: f"{each.host}:{each.port}" for each in raw.ask(metadata([], version=1)).brokers}
        assert brokers == {number: node.bootstrap for number, node in nodes.items()}


def test_what_a_dead_node_granted_is_released_by_its_token(node_process: StartNode, unique: Unique) -> None:
    nodes = two_nodes(node_process, unique("c"), "60000")
    leader, other, token = string(unique("leader")), string(unique("other")), new_token()
    with OwnClient(nodes[1].bootstrap) as client:
        there = client.owner(leader).serving_node
    owned, survivor = nodes[there], nodes[3 - there]
    with OwnClient(owned.bootstrap) as client:
        assert client.own(leader, token=token, producer_id=2**40).error == control.NONE
        assert client.own(other, token=new_token(), producer_id=2**41).error == control.NONE
        owned.kill()
    with OwnClient(survivor.bootstrap) as client:
        wait_for(lambda: client.own(other, mode=WAIT).error == control.TIMED_OUT, "the other node to coordinate", 20)
        assert client.owner(leader).owner_session == f"pid:{2**40}"
        assert client.release(token).error == control.NONE
        assert client.owner(leader).owner_session == ""
        assert client.owner(other).owner_session == f"pid:{2**41}"
