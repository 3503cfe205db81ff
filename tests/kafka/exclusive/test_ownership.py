"""Who may write to an exclusive topic: owners, rivals, deposed sessions (PIP-68, PIP-161, the wiki's generations)."""

import re
import time
import urllib.request

import pytest

from tests.kafka.exclusive.conftest import Connect
from tests.kafka.exclusive.producers import RawProducer, fetch_batches
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

FENCED, REFUSED, AGAIN = 90, 44, 7


def test_a_rival_is_refused_with_the_name_and_generation_of_the_owner(topic: str, connect: Connect) -> None:
    billing, rival = connect("billing"), connect("rival")
    billing.send(topic, b"a", sequence=0)
    refused = rival.send(topic, b"b", sequence=0)
    assert refused.error == REFUSED
    assert (refused.message or "").startswith("Topic has an existing exclusive producer: billing (generation 1). ")
    assert billing.send(topic, b"c", sequence=1).error == 0


def test_closing_the_connection_frees_the_topic_at_once(topic: str, connect: Connect, rest: Rest) -> None:
    billing, rival = connect("billing"), connect("rival")
    billing.send(topic, b"a", sequence=0)
    assert rival.send(topic, b"b", sequence=0).error == REFUSED
    billing.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone", 2.0)
    assert rival.send(topic, b"c", sequence=1).error == 0
    assert rest.topic(topic)["generation"] == 2


def test_a_fencing_producer_deposes_the_owner_for_good(topic: str, connect: Connect, rest: Rest) -> None:
    billing, usurper = connect("billing"), connect("usurper;mode=exclusive_with_fencing")
    billing.send(topic, b"a", sequence=0)
    assert usurper.send(topic, b"b", sequence=0).error == 0
    fenced = billing.send(topic, b"c", sequence=1)
    assert fenced.error == FENCED
    assert fenced.message is not None
    assert re.search(r"usurper.*generation 2", fenced.message)
    assert billing.ask_producer_id(billing.producer_id, 0)[0] == FENCED
    usurper.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the usurper to be gone")
    assert billing.send(topic, b"d", sequence=1).error == FENCED
    again = connect("billing", producer_id=billing.producer_id)
    assert again.send(topic, b"e", sequence=1).error == FENCED


def test_a_new_producer_id_does_not_let_a_deposed_client_strike_back(topic: str, connect: Connect) -> None:
    billing, usurper = connect("billing;mode=exclusive_with_fencing"), connect("usurper;mode=exclusive_with_fencing")
    billing.send(topic, b"a", sequence=0)
    usurper.send(topic, b"b", sequence=0)
    assert billing.send(topic, b"c", sequence=1).error == FENCED
    error, billing.producer_id = billing.ask_producer_id()
    assert error == 0
    assert billing.send(topic, b"d", sequence=0).error == FENCED
    assert usurper.send(topic, b"e", sequence=1).error == 0


def test_nothing_of_the_dead_owner_gets_behind_the_fence_not_even_past_the_node(
    services: Services, topic: str, connect: Connect, rest: Rest
) -> None:
    """What the node stamped is replayed straight to Kafka after the change of owner: Kafka itself refuses it."""
    billing = connect("billing")
    billing.send(topic, b"a", sequence=0)
    stamp = newest_stamp(services.kafka_bootstrap, topic)
    billing.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    assert connect("next").send(topic, b"b", sequence=0).error == 0
    for partition in (0, 1):  # partition 1 was never written by anybody
        with RawProducer(services.kafka_bootstrap, "ghost", stamp[0], epoch=stamp[1]) as ghost:
            assert ghost.send(topic, b"late", sequence=1 - partition, partition=partition).error == 47
    assert read_log(services.kafka_bootstrap, topic) == [b"a", b"b"]


def newest_stamp(bootstrap: str, topic: str) -> tuple[int, int]:
    """Producer id and epoch of the last batch of partition 0."""
    header = [batch for batch in fetch_batches(bootstrap, topic, 0) if not batch.is_control][-1]
    return header.producer_id, header.producer_epoch


@pytest.mark.parametrize(
    ("asked", "error", "generation"),
    [("1", REFUSED, 2), ("2", 0, 3), ("7", 0, 7), ("0", 0, 3)],
    ids=["lower", "equal", "higher", "zero"],
)
def test_generations_of_the_wiki(
    asked: str, error: int, generation: int, topic: str, connect: Connect, rest: Rest
) -> None:
    connect("first").send(topic, b"a", sequence=0)
    second = connect("second;mode=exclusive_with_fencing")
    assert second.send(topic, b"b", sequence=0).error == 0  # generation 2
    third = connect(f"third;generation={asked}")
    assert third.send(topic, b"c", sequence=0).error == error
    assert rest.topic(topic)["generation"] == generation
    assert second.send(topic, b"d", sequence=1).error == (0 if error else FENCED)
    if not error:
        assert third.send(topic, b"e", sequence=1).error == 0


def test_waiting_producers_take_over_in_the_order_in_which_they_came(topic: str, connect: Connect, rest: Rest) -> None:
    owner, first, second = (
        connect(name) for name in ("owner", "w1;mode=wait_for_exclusive", "w2;mode=wait_for_exclusive")
    )
    owner.send(topic, b"a", sequence=0)
    assert first.send(topic, b"b", sequence=0).error == AGAIN
    assert second.send(topic, b"c", sequence=0).error == AGAIN
    assert [waiting["name"] for waiting in rest.topic(topic)["waiting"]] == ["w1", "w2"]
    owner.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    assert second.send(topic, b"c", sequence=0).error == AGAIN
    assert connect("newcomer").send(topic, b"x", sequence=0).error == REFUSED
    assert first.send(topic, b"b", sequence=0).error == 0
    assert rest.topic(topic)["owner"]["name"] == "w1"


def test_a_fencing_producer_deposes_those_who_wait(topic: str, connect: Connect, rest: Rest) -> None:
    owner, waiter = connect("owner"), connect("waiter;mode=wait_for_exclusive")
    plain = connect("plain;mode=wait_for_exclusive", plain=True)
    owner.send(topic, b"a", sequence=0)
    assert waiter.send(topic, b"b", sequence=0).error == AGAIN
    assert plain.send(topic, b"b").error == AGAIN
    usurper = connect("usurper;mode=exclusive_with_fencing")
    assert usurper.send(topic, b"c", sequence=0).error == 0
    assert waiter.send(topic, b"b", sequence=0).error == FENCED
    assert plain.send(topic, b"b").error == FENCED
    usurper.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the usurper to be gone")
    assert plain.send(topic, b"b").error == FENCED


@pytest.mark.parametrize(
    "client_id", ["x;mode=exclusiv", "x;mod=exclusive", "x;generation=-1", "x;generation=9" + "9" * 30]
)
def test_an_unknown_setting_in_the_client_id_is_named(client_id: str, topic: str, connect: Connect) -> None:
    producer = connect(client_id, plain=True)
    assert producer.ask_producer_id()[0] == 42
    answer = producer.send(topic, b"a")
    assert answer.error == 42
    assert answer.message is not None
    assert client_id.split(";")[1].split("=", maxsplit=1)[0] in answer.message


def test_parts_without_an_equals_sign_are_ignored(topic: str, connect: Connect, rest: Rest) -> None:
    assert connect("billing;mode=exclusive;-1").send(topic, b"a", sequence=0).error == 0
    assert rest.topic(topic)["owner"]["name"] == "billing"


def test_an_administrator_fences_the_owner_for_good_and_releases_it_for_another_try(
    topic: str, connect: Connect, rest: Rest
) -> None:
    billing = connect("billing")
    assert rest.call("POST", f"/v1/topics/{topic}/fence")[0] == 409
    billing.send(topic, b"a", sequence=0)
    assert rest.call("POST", f"/v1/topics/{topic}/release")[0] == 200
    assert rest.topic(topic)["owner"] is None
    assert billing.send(topic, b"b", sequence=1).error == 0
    assert rest.topic(topic)["generation"] == 1
    assert rest.call("POST", f"/v1/topics/{topic}/fence")[0] == 200
    assert billing.send(topic, b"c", sequence=2).error == FENCED
    assert connect("next").send(topic, b"d", sequence=0).error == 0


def test_the_ghost_of_a_plain_producer_does_not_refuse_its_own_new_connection(
    topic: str, connect: Connect, rest: Rest
) -> None:
    ghost, again = connect("billing", plain=True), connect("billing", plain=True)
    ghost.send(topic, b"a")
    assert again.send(topic, b"b").error == AGAIN
    ghost.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the ghost to be gone")
    assert again.send(topic, b"b").error == 0


def test_what_a_session_wrote_before_the_policy_counts(services: Services, connect: Connect, rest: Rest) -> None:
    name = create_topic(services.kafka_bootstrap)
    billing = connect("billing")
    assert [billing.send(name, b"%d" % i, sequence=i).error for i in range(3)] == [0, 0, 0]
    govern(rest, name)
    assert billing.send(name, b"3", sequence=3).error == 0
    assert read_log(services.kafka_bootstrap, name) == [b"0", b"1", b"2", b"3"]


def test_metrics_agree_with_rest_and_with_the_log(
    services: Services, rest: Rest, topic: str, connect: Connect, node: NodeProcess
) -> None:
    """The invariants of docs/reference/metrics.md."""
    began = time.time()
    first, rival, fencer = connect("first"), connect("rival"), connect("fencer;mode=exclusive_with_fencing")
    assert [first.send(topic, b"a", sequence=n).error for n in range(3)] == [0, 0, 0]
    assert [rival.send(topic, b"r", sequence=n).error for n in range(2)] == [44, 44]
    assert fencer.send(topic, [b"f", b"g"], sequence=0).error == 0
    assert first.send(topic, b"x", sequence=3).error == 90
    values = metrics_of(node)

    def total(family: str) -> float:
        return sum(value for name, value in values.items() if name.startswith(family + "{"))

    of_topic = f'topic="{topic}"'
    owners = [name for name in values if name.startswith("sidecar_producer_owner_info{") and of_topic in name]
    assert owners == [f'sidecar_producer_owner_info{{mode="exclusive_with_fencing",owner="fencer",{of_topic}}}']
    assert values[f"sidecar_producer_generation{{{of_topic}}}"] == rest.topic(topic)["generation"] == 2
    assert values[f"sidecar_produce_records_total{{{of_topic}}}"] == len(read_log(services.kafka_bootstrap, topic)) == 5
    assert values[f'sidecar_produce_fenced_total{{reason="not_owner",{of_topic}}}'] == 2
    assert values[f'sidecar_produce_fenced_total{{reason="deposed",{of_topic}}}'] == 1
    assert f'"event": "takeover", "node": 1, "topic": "{topic}"' in node.log
    assert values['sidecar_response_errors_total{api="Produce",error="POLICY_VIOLATION"}'] >= 2
    assert values['sidecar_redis_command_duration_seconds_count{script="claim"}'] >= 2
    assert total("sidecar_takeovers_total") == values["sidecar_takeover_duration_seconds_count"]
    assert total("sidecar_requests_total") == total("sidecar_request_duration_seconds_count")
    for api in ("Produce", "Fetch"):
        whole, upstream, own = (
            values[f'sidecar_{name}_sum{{api="{api}"}}']
            for name in ("request_duration_seconds", "upstream_duration_seconds", "overhead_seconds")
        )
        assert upstream + own == pytest.approx(whole)
        assert (
            values[f'sidecar_overhead_seconds_count{{api="{api}"}}'] == values[f'sidecar_requests_total{{api="{api}"}}']
        )
    asked = values['sidecar_upstream_duration_seconds_count{api="Produce"}']
    assert 0 < asked < values['sidecar_requests_total{api="Produce"}'], "who was refused did not wait for Kafka"
    assert total("sidecar_requests_in_flight") == 0
    assert values["sidecar_redis_noeviction"] == 1
    assert values["sidecar_lease_expiry_timestamp_seconds"] > began


def test_those_who_wait_are_counted_where_rest_lists_them(
    rest: Rest, topic: str, connect: Connect, node: NodeProcess
) -> None:
    owner = connect("owner")
    first, second = (connect(f"{name};mode=wait_for_exclusive") for name in ("w1", "w2"))
    owner.send(topic, b"a", sequence=0)
    assert [waiter.send(topic, b"b", sequence=0).error for waiter in (first, second)] == [AGAIN, AGAIN]
    assert queue(node, topic) == (2, 0)
    owner.close()
    wait_for(lambda: rest.topic(topic)["owner"] is None, "the owner to be gone")
    assert queue(node, topic) == (2, 2), "nobody whom they wait for"
    assert first.send(topic, b"b", sequence=0).error == 0
    assert queue(node, topic) == (1, 0)


def queue(node: NodeProcess, topic: str) -> tuple[float, float]:
    """How many wait for a topic, and how many of them for nobody."""
    values = metrics_of(node)
    found = [values[f'sidecar_producer_{name}{{topic="{topic}"}}'] for name in ("waiting", "stranded")]
    return found[0], found[1]


def metrics_of(node: NodeProcess) -> dict[str, float]:
    """Every series as the text format shows it."""
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=10) as answer:
        lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}
