"""Topics that are created through the admin port, with Kafka's own answers."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.admin import ConfigResource  # pyright: ignore[reportPrivateImportUsage]

from sidecar.client import AdminClient, SidecarError
from tests.conftest import Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


def in_kafka(services: Services, topic: str, *settings: str) -> tuple[int, int, dict[str, str]]:
    """Partitions, copies of the first one, and settings."""
    admin = KafkaAdmin({"bootstrap.servers": services.kafka_bootstrap})
    found = admin.list_topics(topic, timeout=10).topics[topic]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    values = admin.describe_configs([resource])[resource].result(timeout=10)
    return len(found.partitions), len(found.partitions[0].replicas), {name: values[name].value for name in settings}


def test_a_topic_is_made_as_it_is_asked_for_and_governed_from_the_beginning(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    topic = unique("made")
    status, made = rest.call(
        "POST",
        "/v1/topics",
        {
            "topic": topic,
            "partitions": 3,
            "replication_factor": 1,
            "configs": {"retention.ms": "3600000"},
            "policy": {"access_mode": "exclusive", "deduplication": True, "log_append_time": True},
        },
    )
    assert (status, made["topic"], made["partitions"], made["generation"]) == (201, topic, 3, 0)
    assert made["policy"]["access_mode"] == "exclusive"
    assert made["policy"]["deduplication"] is made["policy"]["log_append_time"] is True
    partitions, copies, settings = in_kafka(services, topic, "retention.ms", "message.timestamp.type")
    assert (partitions, copies) == (3, 1)
    assert settings == {"retention.ms": "3600000", "message.timestamp.type": "LogAppendTime"}
    with RawProducer(node.bootstrap, "first") as first, RawProducer(node.bootstrap, "second") as second:
        wait_for(lambda: first.send(topic, [b"v"]).error == 0, "a broker that knows the new partitions", 30)
        assert second.send(topic, [b"w"]).error != 0


def test_what_is_not_said_is_as_the_brokers_have_it(services: Services, rest: Rest, unique: Unique) -> None:
    topic = unique("made")
    _, made = rest.call("POST", "/v1/topics", {"topic": topic})
    assert (made["policy"], in_kafka(services, topic)[:2]) == (None, (made["partitions"], 1))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"replication_factor": 7}, "INVALID_REPLICATION_FACTOR"),
        ({"configs": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
        ({"configs": {"no.such.setting": "1"}}, "INVALID_CONFIG"),
    ],
)
def test_what_kafka_refuses_is_said_in_its_words_and_leaves_no_policy(
    rest: Rest, unique: Unique, more: dict[str, object], reason: str
) -> None:
    topic = unique("refused")
    wanted = {"topic": topic, "policy": {"access_mode": "exclusive"}, **more}
    status, answer = rest.call("POST", "/v1/topics", wanted)
    assert (status, reason in answer["message"]) == (HTTPStatus.BAD_REQUEST, True), answer
    status, answer = rest.call("GET", f"/v1/topics/{topic}")
    assert status == HTTPStatus.NOT_FOUND
    missing = f"there is no topic {topic}: make it with `sidecar topic create {topic}`"
    assert answer["message"] == missing
    assert rest.call("POST", f"/v1/topics/{topic}/fence")[1]["message"] == missing


def test_a_topic_that_is_there_is_left_as_it_is(rest: Rest, unique: Unique) -> None:
    topic = unique("made")
    rest.call("POST", "/v1/topics", {"topic": topic, "partitions": 2})
    another = {"topic": topic, "partitions": 5, "policy": {"access_mode": "exclusive"}}
    assert rest.call("POST", "/v1/topics", another) == (
        HTTPStatus.CONFLICT,
        {
            "error_code": HTTPStatus.CONFLICT,
            "message": f"there is a topic {topic} already: `sidecar topic set {topic}` changes its policy",
        },
    )
    left = rest.topic(topic)
    assert (left["partitions"], left["policy"]) == (2, None)


def test_a_shadow_has_its_name_already(rest: Rest, unique: Unique) -> None:
    topic, shadow = unique("source"), unique("shadow")
    assert rest.call("POST", "/v1/topics", {"topic": topic})[0] == HTTPStatus.CREATED
    assert rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": shadow})[0] == HTTPStatus.CREATED
    status, answer = rest.call("POST", "/v1/topics", {"topic": shadow})
    assert (status, f"{shadow} is a shadow of {topic} already" in answer["message"]) == (HTTPStatus.CONFLICT, True)


def test_stamps_that_contradict_the_policy_are_refused(rest: Rest, unique: Unique) -> None:
    configs = {"message.timestamp.type": "CreateTime"}
    wanted = {"topic": unique("made"), "configs": configs, "policy": {"log_append_time": True}}
    status, answer = rest.call("POST", "/v1/topics", wanted)
    assert (status, "message.timestamp.type" in answer["message"]) == (HTTPStatus.BAD_REQUEST, True)


def test_a_topic_that_is_made_anew_is_stamped_as_the_policy_that_is_left_says(
    services: Services, rest: Rest, unique: Unique
) -> None:
    topic = unique("anew")
    wanted = {"topic": topic, "policy": {"log_append_time": True}}
    for body in (wanted, {"topic": topic}):
        assert rest.call("POST", "/v1/topics", body)[0] == HTTPStatus.CREATED
        assert in_kafka(services, topic, "message.timestamp.type")[2] == {"message.timestamp.type": "LogAppendTime"}
        assert rest.call("DELETE", f"/v1/topics/{topic}")[0] == HTTPStatus.NO_CONTENT
    create_topic(services.kafka_bootstrap, 1, topic)  # past the node
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", {"log_append_time": True})[0] == HTTPStatus.OK
    assert in_kafka(services, topic, "message.timestamp.type")[2] == {"message.timestamp.type": "LogAppendTime"}


async def test_the_sdk_makes_topics(node: NodeProcess, unique: Unique) -> None:
    topic = unique("made")
    async with AdminClient(node.admin_url) as admin:
        made = await admin.create_topic(
            topic, partitions=2, replication_factor=1, configs={"cleanup.policy": "compact"}, access_mode="exclusive"
        )
        assert (made.topic, made.partitions) == (topic, 2)
        assert made.policy is not None
        assert made.policy.access_mode == "exclusive"
        with pytest.raises(SidecarError, match="already") as taken:
            await admin.create_topic(topic)
        assert taken.value.code is HTTPStatus.CONFLICT
