"""The sidecar's own requests on the Kafka port: where a producer resumes, and who owns what."""

from __future__ import annotations

import pytest

from sidecar.protocol.errors import no_topic
from sidecar.v1 import control_pb2 as control
from tests.conftest import OwnValkey, StartNode, Unique
from tests.kafka.dedup.conftest import deduplicate
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.gateway.requests import request
from tests.nodes import NodeProcess
from tests.own import OwnClient
from tests.raw import RawClient
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

# LastSequence ---------------------------------------------------------------------------------------------------------


def test_a_producer_resumes_behind_the_least_id_of_all_partitions(
    node: NodeProcess, own: OwnClient, topic: str
) -> None:
    with IdProducer(node.bootstrap, "billing") as billing:
        assert billing.write(topic, 3, 9).error == 0
        answer = own.last_sequence(topic, "billing")
        assert (answer.error, dict(answer.last_sequence_ids)) == (control.NONE, {0: 9})
        assert answer.last_sequence_id == -1  # partition 1 has none
        assert billing.write(topic, 4, partition=1).error == 0
    answer = own.last_sequence(topic, "billing")
    assert (dict(answer.last_sequence_ids), answer.last_sequence_id) == ({0: 9, 1: 4}, 4)


def test_a_name_that_never_wrote_has_no_ids(own: OwnClient, topic: str) -> None:
    answer = own.last_sequence(topic, "nobody")
    assert (answer.error, dict(answer.last_sequence_ids), answer.last_sequence_id) == (control.NONE, {}, -1)


def test_asking_makes_the_node_serve_a_topic_that_nobody_serves(rest: Rest, own: OwnClient, topic: str) -> None:
    before = rest.topic(topic)
    assert (before["serving_node"], before["deduplication_state"]) == (None, "idle")
    assert own.last_sequence(topic, "billing").error == control.NONE
    after = rest.topic(topic)
    assert (after["deduplication_state"], after["owner"], after["generation"]) == ("ready", None, 0)
    wait_for(lambda: rest.topic(topic)["serving_node"] == 1, "the node to serve the topic")


def test_each_partition_with_an_owner_of_its_own_has_ids(services: Services, node: NodeProcess, rest: Rest) -> None:
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(rest, topic, access_mode="exclusive", scope="partition")
    with OwnClient(node.bootstrap) as own, IdProducer(node.bootstrap, "billing") as billing:
        assert own.last_sequence(topic, "billing").last_sequence_id == -1
        assert billing.write(topic, 7).error == 0
        assert billing.write(topic, 5, partition=1).error == 0
        answer = own.last_sequence(topic, "billing")
    assert (dict(answer.last_sequence_ids), answer.last_sequence_id) == ({0: 7, 1: 5}, 5)


def test_ids_outlive_the_node(services: Services, node_process: StartNode) -> None:
    node = node_process(LEASE_MS="1000", RECONNECT_GRACE_MS="0")
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(Rest(node.admin_url), topic)
    with IdProducer(node.bootstrap, "billing") as billing:
        assert billing.write(topic, 7).error == 0
        assert billing.write(topic, 8, partition=1).error == 0
    node.kill()
    node.start()

    def known() -> bool:  # the lease of the process that was killed has to run out
        with OwnClient(node.bootstrap) as own:
            answer = own.last_sequence(topic, "billing")
        assert answer.error in (control.NONE, control.UNAVAILABLE, control.NOT_SERVING), answer
        return answer.error == control.NONE and dict(answer.last_sequence_ids) == {0: 7, 1: 8}

    wait_for(known, "the ids")


def test_ids_count_under_the_client_id_whatever_the_owner_is_called(
    services: Services, node_process: StartNode
) -> None:
    """They counted under the owner's name. Its producer came again without a claim, and its ids were new ones."""
    node = node_process(LEASE_MS="1000", RECONNECT_GRACE_MS="0")
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(Rest(node.admin_url), topic, access_mode="exclusive")

    def ids_of(name: str) -> dict[int, int]:
        with OwnClient(node.bootstrap) as own:
            return dict(own.last_sequence(topic, name).last_sequence_ids)

    with IdProducer(node.bootstrap, "billing") as billing, OwnClient(node.bootstrap, "supervisor") as own:
        granted = own.own(topic_of(topic), name="the boss", producer_id=billing.producer_id)
        assert (granted.error, [each.owner_name for each in granted.ownerships]) == (control.NONE, ["the boss"])
        assert billing.write(topic, 3, 9).error == 0
        assert (ids_of("billing"), ids_of("the boss")) == ({0: 9}, {})
        assert own.owners(topic_of(topic)).ownerships[0].owner_name == "the boss"
    node.kill()
    node.start()
    wait_for(lambda: ids_of("billing") == {0: 9}, "the node to have read the log")
    assert ids_of("the boss") == {}
    with IdProducer(node.bootstrap, "billing") as billing:
        repeated, new = billing.write(topic, 9), billing.write(topic, 10)
    assert (repeated.error, repeated.offset, new.error) == (0, -1, 0)
    assert new.offset > 0


def test_ids_of_a_plain_owner_count_under_its_client_id(services: Services, node: NodeProcess, rest: Rest) -> None:
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(rest, topic, access_mode="exclusive")
    with IdProducer(node.bootstrap, "billing", plain=True) as billing:
        own = OwnClient(node.bootstrap, "billing", connected=billing.socket)
        assert own.own(topic_of(topic), name="the boss").error == control.NONE
        assert billing.write(topic, 3, 9).error == 0
        assert dict(own.last_sequence(topic, "billing").last_sequence_ids) == {0: 9}
        assert dict(own.last_sequence(topic, "the boss").last_sequence_ids) == {}


def test_ids_of_a_client_without_a_name_count_under_the_owners(
    services: Services, node: NodeProcess, rest: Rest
) -> None:
    """A library's default client.id is no name: the one that the claim gives, or is given, is all there is."""
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(rest, topic, access_mode="exclusive")
    with IdProducer(node.bootstrap, "rdkafka") as producer, OwnClient(node.bootstrap, "rdkafka") as own:
        assert own.own(topic_of(topic), name="the boss", producer_id=producer.producer_id).error == control.NONE
        assert producer.write(topic, 3, 9).error == 0
        assert dict(own.last_sequence(topic, "the boss").last_sequence_ids) == {0: 9}
        assert dict(own.last_sequence(topic, "rdkafka").last_sequence_ids) == {}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"\xff\xff", "no sidecar.v1.LastSequenceRequest"),
        (b"", "topic is empty"),
        (control.LastSequenceRequest(topic="orders").SerializeToString(), "producer_name is empty"),
        (control.LastSequenceRequest(topic="o", producer_name="x" * 256).SerializeToString(), "255 bytes"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_and_the_connection_goes_on(
    own: OwnClient, topic: str, body: bytes, told: str
) -> None:
    answer = own.ask(1003, body, control.LastSequenceResponse)
    assert (answer.error, answer.last_sequence_id) == (control.INVALID_REQUEST, -1)
    assert told in answer.message
    assert own.last_sequence(topic, "billing").error == control.NONE


def test_a_topic_without_ids_is_named_with_what_to_do(services: Services, rest: Rest, own: OwnClient) -> None:
    ordinary, exclusive = create_topic(services.kafka_bootstrap), create_topic(services.kafka_bootstrap)
    govern(rest, exclusive)
    for topic in (ordinary, exclusive):
        answer = own.last_sequence(topic, "billing")
        assert (answer.error, answer.last_sequence_id) == (control.UNKNOWN_RESOURCE, -1)
        assert answer.message.endswith(f"`sidecar topic set {topic} --dedup` begins it")
    for missing in ("not-there", "not a name", "__sidecar_x"):
        answer = own.last_sequence(missing, "billing")
        assert (answer.error, answer.message) == (control.UNKNOWN_RESOURCE, no_topic(missing))


def test_while_redis_is_away_ids_are_told_of_topics_that_are_served(
    services: Services, node_process: StartNode, own_valkey: OwnValkey
) -> None:
    valkey = own_valkey()
    node = node_process(redis=f"redis://127.0.0.1:{valkey.port}/0")
    served, free = create_topic(services.kafka_bootstrap), create_topic(services.kafka_bootstrap)
    for topic in (served, free):
        deduplicate(Rest(node.admin_url), topic)
    with OwnClient(node.bootstrap) as own, IdProducer(node.bootstrap, "billing") as billing:
        assert billing.write(served, 7).error == 0
        valkey.stop()
        assert dict(own.last_sequence(served, "billing").last_sequence_ids) == {0: 7}
        answer = own.last_sequence(free, "billing")
        assert (answer.error, answer.last_sequence_id) == (control.UNAVAILABLE, -1)
        assert "Redis does not answer" in answer.message
        status, refused = Rest(node.admin_url).call("GET", f"/v1/topics/{free}/dedup/billing")
        assert (status, "Redis does not answer" in refused["message"]) == (503, True)


# The keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), [(key, 1) for key in range(1000, 1005)] + [(1005, 0)])
def test_what_is_not_served_ends_the_connection(node: NodeProcess, key: int, version: int) -> None:
    with OwnClient(node.bootstrap) as client, pytest.raises(ConnectionError):
        client.ask(key, b"", control.LastSequenceResponse, version=version)


def test_own_apis_are_listed_to_those_who_know_them(node: NodeProcess) -> None:
    def listed(software: str) -> set[int]:
        asked = request(18, 3, client_software_name=software, client_software_version="1")
        with RawClient(node.bootstrap) as client:
            return {each.api_key for each in client.ask(asked).api_keys if each.api_key >= 1000}

    assert listed("sidecar-python") == {1000, 1001, 1002, 1003, 1004}
    assert listed("raw") == set()


# DescribeOwners -------------------------------------------------------------------------------------------------------


def topic_of(name: str, partition: int | None = None) -> control.Resource:
    return control.Resource(topic=name, partition=partition)


def test_an_owner_is_told_as_rest_shows_it_with_who_waits(
    services: Services, node: NodeProcess, rest: Rest, own: OwnClient
) -> None:
    topic = create_topic(services.kafka_bootstrap)
    govern(rest, topic)
    with (
        RawProducer(node.bootstrap, "billing") as billing,
        RawProducer(node.bootstrap, "next;mode=wait_for_exclusive") as waiter,
    ):
        for producer in (billing, waiter):
            producer.initialise()
        assert billing.send(topic, b"v", sequence=0).error == 0
        assert waiter.send(topic, b"v", sequence=0).error == 7
        shown = rest.topic(topic)
        answer = own.owners(topic_of(topic), topic_of(topic, 1))
    assert answer.error == control.NONE
    whole, part = answer.ownerships
    for found in (whole, part):  # whoever owns the topic owns its partitions
        assert (found.error, found.owner_name, found.owner_session) == (0, "billing", f"pid:{billing.producer_id}")
        assert (found.generation, found.serving_node) == (1, 1)
        assert found.since_ms > 1_600_000_000_000
    assert (whole.resource.HasField("partition"), part.resource.partition) == (False, 1)
    assert (shown["owner"]["name"], shown["owner"]["session"], shown["generation"]) == (
        whole.owner_name, whole.owner_session, whole.generation,
    )  # fmt: skip
    assert [(each.name, each.session) for each in answer.waiting[:1]] == [("next", f"pid:{waiter.producer_id}")]
    assert answer.waiting[0].resource == topic_of(topic)


def test_owners_of_partitions_are_told_one_by_one(
    services: Services, node: NodeProcess, rest: Rest, own: OwnClient
) -> None:
    topic = create_topic(services.kafka_bootstrap)
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive", "scope": "partition"})
    assert status == 200, answer
    with RawProducer(node.bootstrap, "billing") as billing:
        billing.initialise()
        assert billing.send(topic, b"v", sequence=0, partition=1).error == 0
        told = own.owners(topic_of(topic), topic_of(topic, 0))
    found = [
        (each.resource.partition if each.resource.HasField("partition") else None, each.owner_name, each.generation)
        for each in told.ownerships
    ]
    assert found == [(None, "", 1), (1, "billing", 1), (0, "", 0)]


def test_what_nobody_can_own_has_no_owner_and_what_is_not_there_is_named(
    services: Services, own: OwnClient, topic: str
) -> None:
    ordinary = create_topic(services.kafka_bootstrap)
    asked = [
        control.Resource(name="the leader"),
        topic_of(ordinary),
        topic_of(topic, 1),
        topic_of("not-there"),
        topic_of("not a name"),
        topic_of(topic, 99),
        control.Resource(),
        control.Resource(topic=topic, name="both"),
    ]
    answer = own.owners(*asked)
    errors = [0, 0, 0, *[control.UNKNOWN_RESOURCE] * 3, *[control.INVALID_REQUEST] * 2]
    assert answer.error == control.NONE
    assert [each.error for each in answer.ownerships] == errors
    assert [each.resource for each in answer.ownerships] == asked
    assert [bool(each.message) for each in answer.ownerships] == [bool(error) for error in errors]
    assert {(each.owner_name, each.owner_session, each.since_ms) for each in answer.ownerships} == {("", "", 0)}
    grouped = own.owners(topic_of(topic), group="readers")
    assert [(each.error, each.owner_name, each.serving_node) for each in grouped.ownerships] == [(0, "", 1)]
    assert own.owners(group="readers").ownerships == []


def test_all_governed_topics_are_told_to_whoever_names_none(
    services: Services, node: NodeProcess, rest: Rest, own: OwnClient, topic: str
) -> None:
    ordinary = create_topic(services.kafka_bootstrap)
    owned = create_topic(services.kafka_bootstrap)
    govern(rest, owned)
    with RawProducer(node.bootstrap, "billing") as billing:
        billing.initialise()
        assert billing.send(owned, b"v", sequence=0).error == 0
        told = {each.resource.topic: each.owner_name for each in own.owners().ownerships}
    assert (told[owned], told[topic]) == ("billing", "")
    assert ordinary not in told
    assert not [name for name in told if name.startswith("__")]


@pytest.mark.parametrize(
    "body", [b"\xff", control.DescribeOwnersRequest(resources=[control.Resource()] * 1_001).SerializeToString()]
)
def test_a_list_that_cannot_be_read_is_answered_as_a_whole(own: OwnClient, body: bytes) -> None:
    answer = own.ask(1002, body, control.DescribeOwnersResponse)
    assert (answer.error, len(answer.ownerships)) == (control.INVALID_REQUEST, 0)
    assert answer.message
    assert own.owners(control.Resource(name="x")).error == control.NONE


# Two nodes ------------------------------------------------------------------------------------------------------------


def test_the_node_that_does_not_serve_a_topic_names_the_one_that_does(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster = unique("c")
    nodes = {number: node_process(cluster=cluster, node_id=number) for number in (1, 2)}
    rests = {number: Rest(node.admin_url) for number, node in nodes.items()}
    wait_for(lambda: all(len(r.call("GET", "/v1/status")[1]["nodes"]) == 2 for r in rests.values()), "both nodes")
    topic = create_topic(services.kafka_bootstrap)
    deduplicate(rests[1], topic, access_mode="exclusive")
    with IdProducer(nodes[1].bootstrap, "zähler/eu") as producer:
        assert producer.write(topic, 7).error == 0
        wait_for(lambda: rests[2].topic(topic)["serving_node"] == 1, "the other node to know who serves the topic")
        wait_for(lambda: rests[2].topic(topic)["owner"] is not None, "the other node to know the owner")
        with OwnClient(nodes[1].bootstrap) as here, OwnClient(nodes[2].bootstrap) as there:
            answer = there.last_sequence(topic, "zähler/eu")
            assert (answer.error, answer.last_sequence_id) == (control.NOT_SERVING, -1)
            assert answer.message == f"node 1 serves {topic}: ask it, at {nodes[1].bootstrap}"
            assert dict(here.last_sequence(topic, "zähler/eu").last_sequence_ids) == {0: 7}
            (found,) = there.owners(topic_of(topic)).ownerships
            assert (found.owner_name, found.serving_node, found.generation) == ("zähler/eu", 1, 1)
        assert rests[1].topic(topic)["deduplication_state"] == "ready"
        assert [each["name"] for each in rests[1].topic(topic)["producers"]] == ["zähler/eu"]
        told = rests[2].topic(topic)  # passed on
        assert (told["deduplication_state"], [each["name"] for each in told["producers"]]) == ("ready", ["zähler/eu"])
        path = f"/v1/topics/{topic}/dedup/z%C3%A4hler%2Feu"
        status, ids = rests[2].call("GET", path)  # passed on
        assert (status, ids["name"], ids["in_use"]) == (200, "zähler/eu", True)
        assert [each["name"] for each in rests[2].call("GET", f"/v1/topics/{topic}/dedup")[1]["items"]] == ["zähler/eu"]
        assert rests[2].call("DELETE", path)[0] == 409
    wait_for(lambda: not rests[2].call("GET", path)[1]["in_use"], "the session to be gone")
    assert rests[2].call("DELETE", path) == (204, None)
    assert [rest.call("GET", path)[0] for rest in rests.values()] == [404, 404]
