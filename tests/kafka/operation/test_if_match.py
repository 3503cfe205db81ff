"""Changes under a generation: on real nodes, against rivals, one step with what they change."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.admin import ConfigResource  # pyright: ignore[reportPrivateImportUsage]

from metadata import MetadataStore
from sidecar.client import AdminClient, SidecarError
from tests.conftest import OwnValkey, StartNode, Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


class Answer(NamedTuple):
    status: int
    body: Any
    tag: str | None


def ask(node: NodeProcess, method: str, path: str, match: str | None = None, body: object = None) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if match is None else {"If-Match": match}
    request = urllib.request.Request(node.admin_url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return Answer(answer.status, json.loads(text) if text else None, answer.headers["ETag"])
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, json.loads(error.read()), error.headers["ETag"])


@pytest.fixture
def topic(services: Services, rest: Rest) -> str:
    name = create_topic(services.kafka_bootstrap, 2)
    govern(rest, name)
    return name


def test_the_tag_of_a_topic_is_its_generation_and_rises_with_it(node: NodeProcess, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    assert ask(node, "GET", path).tag == '"0"'
    with RawProducer(node.bootstrap, "a") as producer:
        assert producer.send(topic, [b"v"]).error == 0
        assert ask(node, "GET", path).tag == '"1"'
        fenced = ask(node, "POST", f"{path}/fence", '"1"')
    assert (fenced.status, fenced.tag) == (200, f'"{fenced.body["generation"]}"')
    assert fenced.body["generation"] > 1


@pytest.mark.parametrize("what", ["fence", "release"])
def test_an_owner_of_another_generation_is_left_alone(node: NodeProcess, topic: str, what: str) -> None:
    with RawProducer(node.bootstrap, "a") as producer:
        assert producer.send(topic, [b"v"]).error == 0
        refused = ask(node, "POST", f"/v1/topics/{topic}/{what}", '"7", "0"')
        assert (refused.status, refused.body["error_code"]) == (412, 412)
        assert "is 1" in refused.body["message"]
        assert producer.send(topic, [b"w"]).error == 0, "it writes on"
        for never in ('W/"1"', '"one"', '"01"'):
            assert ask(node, "POST", f"/v1/topics/{topic}/{what}", never).status == 412
        assert ask(node, "POST", f"/v1/topics/{topic}/{what}", '"9" , "1"').status == 200
        assert ask(node, "POST", f"/v1/topics/{topic}/{what}", '"1"').status == 409, "nobody is left"


def test_the_highest_generation_that_a_client_may_ask_for_matches_as_any_other(node: NodeProcess, topic: str) -> None:
    with RawProducer(node.bootstrap, f"a;mode=exclusive_with_fencing;generation={2**63 - 2}") as producer:
        wait_for(lambda: producer.send(topic, [b"v"]).error == 0, "it to own the topic", 20)
    path = f"/v1/topics/{topic}"
    tag = ask(node, "GET", path).tag
    assert tag == f'"{2**63 - 2}"'
    for above in (f'"{2**63}"', f'"{10**19}"'):
        assert ask(node, "PUT", f"{path}/policy", above, {"deduplication": False}).status == 412
    assert ask(node, "PUT", f"{path}/policy", tag, {"deduplication": False}).status == 200


@pytest.mark.parametrize("match", ["1", "", '"1', '"1" "2"', '*, "1"', "'1'", '"1",,x'])
def test_what_is_no_condition_is_refused_and_nothing_is_done(node: NodeProcess, topic: str, match: str) -> None:
    with RawProducer(node.bootstrap, "a") as producer:
        assert producer.send(topic, [b"v"]).error == 0
        found = ask(node, "POST", f"/v1/topics/{topic}/fence", match)
        assert (found.status, "If-Match" in found.body["message"]) == (400, True)
        assert producer.send(topic, [b"w"]).error == 0


def test_any_generation_will_do_where_an_asterisk_says_so(node: NodeProcess, topic: str, unique: Unique) -> None:
    assert ask(node, "POST", f"/v1/topics/{topic}/fence", "*").status == 409
    assert ask(node, "PUT", f"/v1/topics/{topic}/policy", "*", {"deduplication": False}).status == 200
    nowhere = unique("nowhere")
    assert ask(node, "PUT", f"/v1/topics/{nowhere}/policy", "*", {"deduplication": False}).status == 412
    assert ask(node, "GET", f"/v1/topics/{nowhere}").status == 404


def test_a_policy_changes_under_its_generation_alone(node: NodeProcess, topic: str) -> None:
    path = f"/v1/topics/{topic}/policy"
    assert ask(node, "PUT", path, '"3"', {"deduplication": True}).status == 412
    assert ask(node, "DELETE", path, '"3"').status == 412
    assert ask(node, "GET", f"/v1/topics/{topic}").body["policy"]["deduplication"] is False
    assert ask(node, "PUT", path, '"0"', {"deduplication": True}).status == 200
    with RawProducer(node.bootstrap, "a") as producer:
        producer.initialise()
        wait_for(
            lambda: ask(node, "GET", f"/v1/topics/{topic}").body["generation"] or not claim(producer, topic), "an owner"
        )
        assert ask(node, "PUT", path, '"0"', {"deduplication": False, "log_append_time": True}).status == 412
        assert ask(node, "GET", f"/v1/topics/{topic}").body["policy"]["log_append_time"] is False
        assert ask(node, "DELETE", path, '"1"').status == 204
    assert ask(node, "DELETE", path, '"1"').status == 404


def claim(producer: RawProducer, topic: str) -> bool:
    producer.send(topic, [b"v"], sequence=0)
    return True


def test_a_prefix_has_no_generation(node: NodeProcess, unique: Unique) -> None:
    path = f"/v1/topics/{unique('prefix')}.*"
    assert ask(node, "PUT", f"{path}/policy", "*", {"access_mode": "shared"}).status == 412
    assert ask(node, "PUT", f"{path}/policy", None, {"access_mode": "shared"}).tag is None
    assert ask(node, "PUT", f"{path}/policy", '"0"', {"access_mode": "shared"}).status == 400
    assert ask(node, "DELETE", f"{path}/policy", "*").status == 204


def test_each_partition_has_a_generation_where_it_has_an_owner_of_its_own(
    services: Services, node: NodeProcess, rest: Rest
) -> None:
    topic = create_topic(services.kafka_bootstrap, 3)
    status, _ = rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive", "scope": "partition"})
    assert status == 200
    path = f"/v1/topics/{topic}"
    with RawProducer(node.bootstrap, "a") as first:
        assert first.send(topic, [b"v"], partition=1).error == 0
        assert ask(node, "POST", f"{path}/fence?partition=1", '"1"').status == 200
        with RawProducer(node.bootstrap, "b") as second:
            assert second.send(topic, [b"v"], partition=0).error == 0
            tags = {index: ask(node, "GET", f"{path}?partition={index}").tag for index in range(3)}
            assert (tags[0], tags[2]) == ('"1"', '"0"')
            assert tags[1] == ask(node, "GET", path).tag != '"1"'
            assert ask(node, "POST", f"{path}/release?partition=0", tags[1]).status == 412
            assert ask(node, "PUT", f"{path}/policy?partition=0", tags[1], {"deduplication": False}).status == 412
            assert ask(node, "PUT", f"{path}/policy?partition=0", '"1"', {"deduplication": False}).tag == '"1"'
            released = ask(node, "POST", f"{path}/release?partition=0", '"1"')
            assert (released.status, released.tag) == (200, '"1"')
    for wrong in ("3", "-1", "x"):
        assert ask(node, "GET", f"{path}?partition={wrong}").status == 400
        assert ask(node, "PUT", f"{path}/policy?partition={wrong}", '"1"', {}).status == 400


def together(*acts: Callable[[], Answer]) -> list[int]:
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], Answer]) -> int:
        start.wait(10)
        return act().status

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_of_several_fences_under_one_generation_one_is_carried_out(node: NodeProcess, topic: str) -> None:
    with RawProducer(node.bootstrap, "a") as producer:
        assert producer.send(topic, [b"v"]).error == 0
        found = together(*[lambda: ask(node, "POST", f"/v1/topics/{topic}/fence", '"1"')] * 4)
    refused = sorted(found)
    assert refused.pop(0) == 200
    assert set(refused) <= {409, 412}


def test_a_fence_never_meets_the_next_owner(node: NodeProcess, services: Services, rest: Rest) -> None:
    """While a second producer takes the topic by force, fences under the first one's generation race with it: whichever
    comes first, who owns generation 2 or above was not fenced by them.
    """
    outcomes: set[int] = set()
    for _ in range(6):
        topic = create_topic(services.kafka_bootstrap, 1)
        govern(rest, topic)
        with (
            RawProducer(node.bootstrap, "a") as first,
            RawProducer(node.bootstrap, "b;mode=exclusive_with_fencing") as second,
        ):
            assert first.send(topic, [b"v"]).error == 0

            def take() -> Answer:
                return Answer(second.send(topic, [b"w"]).error, None, None)  # noqa: B023 - used before the next

            taken, *fenced = together(take, *[lambda: ask(node, "POST", f"/v1/topics/{topic}/fence", '"1"')] * 2)  # noqa: B023
            outcomes.update(fenced)
            assert taken == 0, "who asks for the topic by force gets it, before or behind the fence"
            assert second.send(topic, [b"x"]).error == 0, "and was not fenced under a generation that was not its own"
            assert rest.topic(topic)["owner"]["name"] == "b"
    assert outcomes <= {200, 409, 412}


def test_the_condition_goes_along_to_the_node_that_serves_the_topic(
    node_process: StartNode, services: Services, unique: Unique
) -> None:
    cluster = unique("two")
    nodes = [node_process(node_id=number, cluster=cluster) for number in (1, 2)]
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(Rest(nodes[0].admin_url), topic)
    leader = Rest(nodes[0].admin_url)
    producers = [RawProducer(each.bootstrap, "a") for each in nodes]
    try:
        wait_for(lambda: any(each.send(topic, [b"v"]).error == 0 for each in producers), "an owner")
        serving = wait_for(lambda: leader.topic(topic)["serving_node"], "a node that serves it")
        other = nodes[2 - serving]
        assert other.node_id != serving
        seen = Rest(other.admin_url)
        wait_for(lambda: seen.topic(topic)["serving_node"] == serving, "the other node to know")
        assert ask(other, "POST", f"/v1/topics/{topic}/fence", '"4"').status == 412
        done = ask(other, "POST", f"/v1/topics/{topic}/fence", '"1"')
        assert (done.status, done.body["owner"]) == (200, None)
        assert done.tag == f'"{done.body["generation"]}"'
    finally:
        for each in producers:
            each.close()


async def test_the_sdk_says_under_which_generation(node: NodeProcess, topic: str) -> None:
    with RawProducer(node.bootstrap, "a") as producer:
        assert producer.send(topic, [b"v"]).error == 0
        async with AdminClient(node.admin_url) as admin:
            for act in (
                admin.fence(topic, if_generation=9),
                admin.release(topic, if_generation=9),
                admin.set_policy(topic, deduplication=True, if_generation=9),
                admin.delete_policy(topic, if_generation=9),
            ):
                with pytest.raises(SidecarError) as refused:
                    await act
                assert (refused.value.code, refused.value.retryable) == (HTTPStatus.PRECONDITION_FAILED, False)
            assert (await admin.set_policy(topic, access_mode="exclusive", if_generation=1)).generation == 1
            assert (await admin.release(topic, if_generation=1)).owner is None


def test_what_redis_does_not_decide_changes_nothing_in_kafka(
    node_process: StartNode, services: Services, own_valkey: OwnValkey
) -> None:
    valkey, topic = own_valkey(), create_topic(services.kafka_bootstrap, 1)
    rest = Rest(node_process(redis=valkey.url).admin_url)
    path = f"/v1/topics/{topic}/policy"
    assert rest.call("PUT", path, {"access_mode": "exclusive"})[0] == 200
    valkey.pause()
    try:
        assert rest.call("PUT", path, {"log_append_time": True})[0] == 503
    finally:
        valkey.resume()
    assert stamped_by(services, topic) == "CreateTime"
    wait_for(lambda: rest.call("PUT", path, {"log_append_time": True})[0] == 200, "Redis to be back", 30)
    assert stamped_by(services, topic) == "LogAppendTime"


async def test_what_kafka_refuses_is_not_left_in_redis(
    node_process: StartNode, services: Services, unique: Unique
) -> None:
    cluster, topic = unique("c"), unique("not-there")
    node = node_process(cluster=cluster)
    status, refused = Rest(node.admin_url).call("PUT", f"/v1/topics/{topic}/policy", {"log_append_time": True})
    assert (status, "sidecar topic create" in refused["message"]) == (400, True)
    store = MetadataStore(services.redis_url, cluster, lease_ms=3_000)
    assert (await store.policies()).by_name == {}
    await store.aclose()


def stamped_by(services: Services, topic: str) -> str:
    admin = KafkaAdmin({"bootstrap.servers": services.kafka_bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(20)["message.timestamp.type"].value
