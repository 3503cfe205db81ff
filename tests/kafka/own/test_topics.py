"""Topics and partitions owned by request: the same owners, the same rules, as by a first batch (PIP-68)."""

from __future__ import annotations

import pytest

from sidecar.v1 import control_pb2 as control
from tests.conftest import StartNode, Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.own import FENCING, WAIT, OwnClient, new_token, topic
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


@pytest.fixture
def orders(services: Services, rest: Rest) -> str:
    """A governed topic of two partitions."""
    name = create_topic(services.kafka_bootstrap)
    govern(rest, name)
    return name


@pytest.fixture
def journal(services: Services, rest: Rest) -> str:
    """A topic whose partitions have owners of their own."""
    name = create_topic(services.kafka_bootstrap, 4)
    status, found = rest.call("PUT", f"/v1/topics/{name}/policy", {"access_mode": "exclusive", "scope": "partition"})
    assert status == 200, found
    return name


def test_whoever_owns_a_topic_by_request_writes_to_it_and_nobody_else(node: NodeProcess, orders: str) -> None:
    with OwnClient(node.bootstrap, "own") as own, RawProducer(node.bootstrap, "writer", 4_000_001) as writer:
        told = own.own(topic(orders), name="billing", producer_id=4_000_001)
        assert (told.error, told.producer_name) == (control.NONE, "billing")
        (owned,) = told.ownerships
        assert (owned.generation, owned.owner_name, owned.owner_session) == (1, "billing", "pid:4000001")
        assert owned.serving_node == 1
        assert owned.since_ms > 0
        assert writer.send(orders, b"first", sequence=0).error == 0
        with RawProducer(node.bootstrap, "rival", 4_000_002) as rival:
            refused = rival.send(orders, b"no", sequence=0)
        assert refused.error == 44
        assert "billing (generation 1)" in (refused.message or "")
        assert own.owner(topic(orders)).generation == 1


def test_a_topic_is_owned_by_the_connection_that_asked_until_it_closes(node: NodeProcess, orders: str) -> None:
    with OwnClient(node.bootstrap) as second:
        with OwnClient(node.bootstrap) as first:
            assert first.own(topic(orders)).error == control.NONE
            refused = second.own(topic(orders))
            assert (refused.error, refused.ownerships[0].error) == (control.HELD, control.HELD)
            assert refused.ownerships[0].owner_session.startswith("conn:")
        wait_for(lambda: second.own(topic(orders)).error == control.NONE, "the topic to be free")
        assert second.owner(topic(orders)).generation == 2


def test_who_was_deposed_is_told_by_watch_and_cannot_claim_again_with_its_token(node: NodeProcess, orders: str) -> None:
    token = new_token()
    with OwnClient(node.bootstrap) as first, OwnClient(node.bootstrap) as watch, OwnClient(node.bootstrap) as second:
        assert first.own(topic(orders), token=token).error == control.NONE
        assert not watch.watch(token).changed
        watch.begin_watch(token, 20_000)
        assert second.own(topic(orders), mode=FENCING).ownerships[0].generation == 2
        (lost,) = watch.finish(control.WatchResponse).changed
        assert (lost.error, lost.resource.topic) == (control.DEPOSED, orders)
        again = first.own(topic(orders), token=token)
        assert (again.error, again.ownerships[0].error) == (control.DEPOSED, control.DEPOSED)
        assert second.owner(topic(orders)).generation == 2
        assert watch.watch(token, 20_000).error == control.DEPOSED


def test_the_same_token_again_is_the_same_request(node: NodeProcess, orders: str) -> None:
    token = new_token()
    with OwnClient(node.bootstrap) as own:
        first = own.own(topic(orders), token=token, name="billing")
        assert own.own(topic(orders), token=token, name="billing") == first
        other = own.own(topic(orders), token=token, name="another")
        assert other.error == control.INVALID_REQUEST
        assert "another request" in other.message


def test_a_lower_generation_is_refused_and_a_higher_one_deposes(node: NodeProcess, orders: str) -> None:
    with OwnClient(node.bootstrap) as first, OwnClient(node.bootstrap) as second:
        assert first.own(topic(orders), generation=7).ownerships[0].generation == 7
        refused = second.own(topic(orders), generation=6)
        assert refused.error == control.LOWER_GENERATION
        assert refused.ownerships[0].generation == 7
        assert second.own(topic(orders), generation=7).ownerships[0].generation == 8
    with OwnClient(node.bootstrap) as third:
        assert third.own(topic(orders), generation=0).ownerships[0].generation == 9  # a topic's never falls


def test_of_a_set_nothing_is_taken_where_one_is_held(services: Services, node: NodeProcess, rest: Rest) -> None:
    names = [create_topic(services.kafka_bootstrap) for _ in range(3)]
    for name in names:
        govern(rest, name)
    with OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as own:
        assert holder.own(topic(names[1])).error == control.NONE
        refused = own.own(*map(topic, names))
        assert refused.error == control.HELD
        assert [told.error for told in refused.ownerships] == [control.NONE, control.HELD, control.NONE]
        assert [own.owner(topic(name)).generation for name in names] == [0, 1, 0]
        fenced = own.own(*map(topic, names), mode=FENCING)
        assert (fenced.error, [told.generation for told in fenced.ownerships]) == (control.NONE, [1, 2, 1])


def test_who_waits_gets_the_topic_in_its_turn_and_keeps_its_place_by_its_token(node: NodeProcess, orders: str) -> None:
    second_token, third_token = new_token(), new_token()
    with OwnClient(node.bootstrap) as second, OwnClient(node.bootstrap) as third, OwnClient(node.bootstrap) as watch:
        with OwnClient(node.bootstrap) as first:
            assert first.own(topic(orders)).error == control.NONE
            waiting = second.own(topic(orders), mode=WAIT, token=second_token, name="second")
            assert (waiting.error, waiting.ownerships[0].error) == (control.TIMED_OUT, control.TIMED_OUT)
            assert third.own(topic(orders), mode=WAIT, token=third_token, name="third").error == control.TIMED_OUT
            assert [found.name for found in first.owners(topic(orders)).waiting] == ["second", "third"]
            third.begin_own(topic(orders), mode=WAIT, token=third_token, name="third", wait_ms=30_000)
            watch.begin_watch(second_token, 30_000)
        (granted,) = watch.finish(control.WatchResponse).changed
        assert (granted.error, granted.generation, granted.owner_name) == (control.NONE, 2, "second")
        assert second.own(topic(orders), mode=WAIT, token=second_token, name="second").error == control.NONE
        assert second.release(second_token).error == control.NONE
        assert third.finish(control.OwnResponse).ownerships[0].generation == 3


def test_a_promotion_that_nobody_hears_of_passes_on(node: NodeProcess, orders: str) -> None:
    with OwnClient(node.bootstrap) as deaf, OwnClient(node.bootstrap) as next_one:
        with OwnClient(node.bootstrap) as first:
            assert first.own(topic(orders)).error == control.NONE
            assert deaf.own(topic(orders), mode=WAIT, name="deaf").error == control.TIMED_OUT
            next_one.begin_own(topic(orders), mode=WAIT, name="next", wait_ms=30_000)
            wait_for(lambda: len(first.owners(topic(orders)).waiting) == 2, "both to wait")
        (granted,) = next_one.finish(control.OwnResponse).ownerships
        assert (granted.owner_name, granted.generation) in (("next", 2), ("next", 3))


def test_fencing_evicts_who_waits(node: NodeProcess, orders: str) -> None:
    with OwnClient(node.bootstrap) as first, OwnClient(node.bootstrap) as waits, OwnClient(node.bootstrap) as fences:
        assert first.own(topic(orders)).error == control.NONE
        waits.begin_own(topic(orders), mode=WAIT, wait_ms=30_000)
        wait_for(lambda: len(fences.owners(topic(orders)).waiting) == 1, "the other to wait")
        assert fences.own(topic(orders), mode=FENCING).error == control.NONE
        assert waits.finish(control.OwnResponse).error == control.DEPOSED


def test_release_lets_the_next_one_in_and_is_harmless_again(node: NodeProcess, orders: str) -> None:
    token = new_token()
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as other:
        assert own.own(topic(orders), token=token).error == control.NONE
        refused = other.release(new_token(), topic(orders))
        assert (refused.error, "not under this token" in refused.message) == (control.HELD, True)
        assert own.release(token, topic(orders)).error == control.NONE
        assert own.release(token, topic(orders)).error == control.NONE
        assert other.own(topic(orders)).ownerships[0].generation == 2
        assert own.own(topic(orders), token=token).error == control.DEPOSED  # never a new claim


def test_nobody_claims_for_a_producer_id_that_another_client_id_writes_under(node: NodeProcess, orders: str) -> None:
    with RawProducer(node.bootstrap, "writer", 4_000_040) as writer, OwnClient(node.bootstrap, "attacker") as stranger:
        assert writer.send(orders, b"first", sequence=0).error == 0
        told = stranger.own(topic(orders), name="writer", producer_id=4_000_040)
        assert (told.error, told.message) == (
            control.NOT_AUTHORIZED,
            "this producer id belongs to another client.id or principal: create a new producer",
        )
        assert writer.ask_producer_id(4_000_040, 0)[0] == 0
        with RawProducer(node.bootstrap, "attacker") as another:
            assert another.ask_producer_id(4_000_040, 0)[0] == 44
        with OwnClient(node.bootstrap, "writer") as own:
            assert own.own(topic(orders), producer_id=4_000_040).error == control.NONE


def test_partitions_are_owned_one_by_one_or_in_sets(node: NodeProcess, journal: str) -> None:
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as other:
        told = own.own(topic(journal, 0), topic(journal, 2), name="task", producer_id=4_000_010)
        assert (told.error, [found.generation for found in told.ownerships]) == (control.NONE, [1, 1])
        assert other.own(topic(journal, 1), topic(journal, 2)).error == control.HELD
        assert other.own(topic(journal, 1)).error == control.NONE
        with RawProducer(node.bootstrap, "task", 4_000_010) as task:
            assert task.send(journal, b"mine", sequence=0, partition=2).error == 0
            assert task.send(journal, b"not mine", sequence=0, partition=1).error == 44
        whole = other.own(topic(journal))
        assert (whole.error, "claim partitions" in whole.message) == (control.INVALID_REQUEST, True)


def test_a_session_owns_as_long_as_a_connection_speaks_for_it(node: NodeProcess, orders: str) -> None:
    token = new_token()
    with OwnClient(node.bootstrap) as observer, OwnClient(node.bootstrap) as second:
        with OwnClient(node.bootstrap) as first:
            assert first.own(topic(orders), token=token, producer_id=4_000_030).error == control.NONE
            assert second.own(topic(orders), token=token, producer_id=4_000_030).error == control.NONE
        for _ in range(20):  # the node has read that the first is closed long before it has answered all of these
            assert observer.owner(topic(orders)).owner_session == "pid:4000030"
        second.close()
        wait_for(lambda: observer.owner(topic(orders)).owner_session == "", "the topic to be free")
        assert observer.owner(topic(orders)).generation == 1


def test_a_producer_that_begins_on_the_connection_that_owns_follows_it(node: NodeProcess, orders: str) -> None:
    token = new_token()
    with RawProducer(node.bootstrap, "writer") as writer, OwnClient(node.bootstrap) as watch:
        own = OwnClient(node.bootstrap, "writer", connected=writer.socket)
        assert own.own(topic(orders), token=token).error == control.NONE
        assert writer.send(orders, b"plain").error == 0
        assert watch.owner(topic(orders)).generation == 1
        writer.producer_id = 4_000_040
        assert writer.send(orders, b"idempotent", sequence=0).error == 0
        assert watch.owner(topic(orders)).owner_session == "pid:4000040"
        (changed,) = watch.watch(token, 20_000).changed
        assert (changed.error, changed.generation) == (control.NONE, 2)  # its own session's successor
        assert own.own(topic(orders), token=token).error == control.NONE


def test_what_a_producer_inherited_on_the_connection_that_owns_is_released_by_its_token(
    node: NodeProcess, orders: str
) -> None:
    token = new_token()
    with RawProducer(node.bootstrap, "writer") as writer, OwnClient(node.bootstrap) as observer:
        own = OwnClient(node.bootstrap, "writer", connected=writer.socket)
        assert own.own(topic(orders), token=token).error == control.NONE
        writer.producer_id = 4_000_041
        assert writer.send(orders, b"idempotent", sequence=0).error == 0
        assert observer.owner(topic(orders)).owner_session == "pid:4000041"
        assert own.release(token).error == control.NONE
        assert observer.owner(topic(orders)).owner_session == ""


def test_of_two_requests_of_a_session_that_waited_the_later_one_has_the_topic(node: NodeProcess, orders: str) -> None:
    given_up, wanted = new_token(), new_token()
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as watch:
        with OwnClient(node.bootstrap) as holder:
            assert holder.own(topic(orders)).error == control.NONE
            assert own.own(topic(orders), mode=WAIT, token=given_up).error == control.TIMED_OUT
            own.begin_own(topic(orders), mode=WAIT, token=wanted, wait_ms=20_000)
            wait_for(lambda: watch.watch(wanted).error == control.NONE, "the second to be known")
        assert own.finish(control.OwnResponse).error == control.NONE
        assert own.own(topic(orders), mode=WAIT, token=given_up).error == control.DEPOSED
        assert own.release(given_up).error == control.DEPOSED
        assert own.own(topic(orders), mode=WAIT, token=wanted).error == control.NONE


def test_a_session_that_gives_up_one_of_two_requests_keeps_its_place_and_holds_nobody_up(
    node: NodeProcess, orders: str
) -> None:
    given_up, wanted = new_token(), new_token()
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as second:
        with OwnClient(node.bootstrap) as holder:
            assert holder.own(topic(orders)).error == control.NONE
            for token in (given_up, wanted):
                assert own.own(topic(orders), mode=WAIT, token=token, name="own").error == control.TIMED_OUT
            second.begin_own(topic(orders), mode=WAIT, name="second", wait_ms=25_000)
            wait_for(lambda: len(holder.owners(topic(orders)).waiting) == 2, "both to wait")
            assert own.release(given_up).error == control.NONE
            assert [found.name for found in holder.owners(topic(orders)).waiting] == ["own", "second"]
        assert own.own(topic(orders), mode=WAIT, token=wanted, name="own", wait_ms=20_000).error == control.NONE
        assert own.release(wanted).error == control.NONE
        assert second.finish(control.OwnResponse).error == control.NONE


def test_who_waits_for_a_topic_is_refused_once_its_partitions_have_owners(
    node: NodeProcess, rest: Rest, orders: str
) -> None:
    with OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as waits:
        assert holder.own(topic(orders)).error == control.NONE
        waits.begin_own(topic(orders), mode=WAIT, wait_ms=20_000)
        wait_for(lambda: holder.owners(topic(orders)).waiting, "it to wait")
        assert rest.call("PUT", f"/v1/topics/{orders}/policy", {"scope": "partition"})[0] == 200
        assert waits.finish(control.OwnResponse).error == control.INVALID_REQUEST
        assert waits.owner(topic(orders, 0)).owner_session == ""


def test_a_partition_of_a_topic_with_one_owner_is_refused_with_advice(node: NodeProcess, orders: str) -> None:
    with OwnClient(node.bootstrap) as own:
        told = own.own(topic(orders, 0))
        assert told.error == control.INVALID_REQUEST
        assert "--scope partition" in told.message


def test_a_request_makes_a_topic_governed(services: Services, node: NodeProcess, rest: Rest) -> None:
    name = create_topic(services.kafka_bootstrap)
    with OwnClient(node.bootstrap) as own:
        assert own.own(topic(name)).ownerships[0].generation == 1
    assert rest.topic(name)["policy"]["access_mode"] == "shared"


@pytest.mark.parametrize(
    ("resource", "error", "said"),
    [
        (topic("no-such-topic"), control.UNKNOWN_RESOURCE, "there is no topic"),
        (topic("a/b"), control.UNKNOWN_RESOURCE, "there is no topic"),
        (topic("__sidecar_default"), control.UNKNOWN_RESOURCE, "there is no topic"),
        (control.Resource(topic="a", name="b"), control.INVALID_REQUEST, "either a topic or a name"),
    ],
)
def test_what_cannot_be_owned_is_named(node: NodeProcess, resource: control.Resource, error: int, said: str) -> None:
    with OwnClient(node.bootstrap) as own:
        told = own.own(resource)
        assert (told.error, said in told.message) == (error, True), told


def test_nobody_owns_an_internal_topic_or_a_shadow(
    services: Services, node: NodeProcess, rest: Rest, orders: str, unique: Unique
) -> None:
    internal = create_topic(services.kafka_bootstrap, name=unique("__internal"))
    shadow = unique("view")
    assert rest.call("POST", f"/v1/topics/{orders}/shadows", {"name": shadow})[0] == 201
    with OwnClient(node.bootstrap) as own:
        refused = own.own(topic(internal))
        assert (refused.error, "nobody can own it" in refused.message) == (control.NOT_AUTHORIZED, True)
        refused = own.own(topic(shadow))
        assert (refused.error, "is a shadow" in refused.message) == (control.NOT_AUTHORIZED, True)


def test_a_session_goes_on_at_another_node_with_its_generation(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster, name = unique("own"), create_topic(services.kafka_bootstrap)
    first = node_process(cluster=cluster, node_id=1, LEASE_MS="1000")
    second = node_process(cluster=cluster, node_id=2, LEASE_MS="1000")
    token = new_token()
    with OwnClient(first.bootstrap) as own:
        assert own.own(topic(name), token=token, producer_id=4_000_020, name="a").ownerships[0].generation == 1
        with OwnClient(second.bootstrap) as elsewhere:
            wait_for(
                lambda: elsewhere.own(topic(name), producer_id=4_000_021).error == control.NOT_SERVING,
                "the other node to know who serves",
            )
            assert elsewhere.own(topic(name), producer_id=4_000_021).ownerships[0].serving_node == 1
        first.kill()
    with OwnClient(second.bootstrap) as own:
        wait_for(
            lambda: own.own(topic(name), token=token, producer_id=4_000_020, name="a").error == control.NONE,
            "the session to go on",
        )
        assert own.owner(topic(name)).generation == 1
