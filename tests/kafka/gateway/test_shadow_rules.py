"""The rule of every API for shadow topics (`sidecar.gateway.shadow_rules`), held against every version served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway.apis.spec import ShadowRule
from sidecar.gateway.apis.table import APIS
from sidecar.protocol.errors import ErrorCode
from tests import raw
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.by_id import id_of
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.kafka.gateway.test_same_as_kafka import COLD, assert_answers_alike, versions_of
from tests.kafka.gateway.test_shadows import Topics, fetched, topics
from tests.raw import RawClient
from tests.unit.protocol import kio_entities as kio

if TYPE_CHECKING:
    from uuid import UUID

    from tests.conftest import Unique

__all__ = ["topics"]


BY_ID = {78, 79}
"""What names topics by id alone."""
SHARE_HEARTBEAT = 76


def having(rule: ShadowRule) -> list[int]:
    return [key for key, api in APIS.items() if api.shadow is rule]


def named(keys: list[int]) -> Any:
    return pytest.mark.parametrize("key", keys, ids=[APIS[key].name for key in keys])


def contents(topic: str, group: str, topic_id: UUID | None = None) -> dict[int, dict[str, Any]]:
    """As `samples`, and the hot APIs that write."""
    record = {"index": 0, "records": bytes(raw.batch())}
    return samples(topic, group) | {
        0: {
            "acks": -1,
            "timeout": 20_000,
            "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": [record]}],
        },
        20: {"topic_names": [topic], "topics": [{"name": None, "topic_id": topic_id}]},
        21: {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}]},
        91: {
            "group_id": group,
            "topics": [{"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
    }


def of_kafka(topics: Topics) -> list[object]:
    """What nobody may change: both logs, layouts and settings."""
    found: list[object] = [fetched(topics.kafka, 11, 0, [(topics.source, 0, 0), (topics.source, 1, 0)])]
    names = [{"resource_type": 2, "resource_name": name} for name in (topics.source, topics.shadow)]
    with RawClient(topics.kafka) as kafka:
        ends = kafka.ask(raw.list_offsets({(topics.shadow, 0): -1, (topics.shadow, 1): -1, (topics.source, 0): -2}))
        metadata = kafka.ask(request(3, 9, topics=[{"name": topics.source}, {"name": topics.shadow}]))
        found += [ends, sorted(map(repr, metadata.topics)), kafka.ask(request(32, 4, resources=names))]
    return found


def test_every_api_that_a_kafka_serves_has_a_rule_and_refusal_is_the_default() -> None:
    assert ShadowRule.REFUSED is type(APIS[0]).__dataclass_fields__["shadow"].default
    assert set(having(ShadowRule.REFUSED)) == {0, 20, 21, 24, 33, 37, 43, 44, 45, 76, 91, *BY_ID}, (
        "an API was added: give it a rule"
    )


@named(sorted(set(having(ShadowRule.REFUSED)) - BY_ID))
def test_a_write_to_a_shadow_is_refused_in_every_version(key: int, topics: Topics, unique: Unique) -> None:
    before = of_kafka(topics)
    topic_id = id_of(topics.kafka, topics.shadow)
    sample = contents(topics.shadow, unique("group"), topic_id)[key]
    versions = [version for version in range(APIS[key].first, APIS[key].last + 1) if kio.has(key, version)]
    assert versions
    refusal = ErrorCode.INVALID_REQUEST if key == SHARE_HEARTBEAT else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with RawClient(topics.node.bootstrap) as wire:
        for version in versions:
            asked = request(key, version, **sample)
            frame = kio.request_frame(asked)
            assert topics.shadow.encode() in frame or topic_id.bytes in frame, "the sample has to name the shadow"
            assert refusal in codes(wire.ask(asked)), f"version {version}"
    assert of_kafka(topics) == before


@named(sorted(BY_ID))
def test_no_share_group_reads_a_shadow(key: int, topics: Topics, unique: Unique) -> None:
    with RawClient(topics.node.bootstrap) as wire:
        (found,) = wire.ask(request(3, 12, topics=[{"name": topics.shadow}])).topics
        acks = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
        batches = acks if key == 79 else []
        parts = [
            {"topic_id": found.topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}]}
        ]
        whose = {"group_id": unique("share"), "member_id": "member-1"}
        sized = {"max_wait": 0, "max_bytes": 1000, "max_records": 10, "batch_size": 10}
        for version in versions_of(wire)[key]:
            opened = wire.ask(
                request(78, version, **whose, share_session_epoch=0, **sized, topics=parts[:0] if key == 79 else parts)
            )
            answer = opened
            if key == 79:
                answer = wire.ask(request(79, version, **whose, share_session_epoch=1, topics=parts))
            ((part,),) = (topic.partitions for topic in answer.responses)
            assert part.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"version {version}"
            assert part.current_leader.leader_id == -1


@named([33, 37, 43, 44, 45])
def test_what_else_a_request_names_is_changed_as_ever(key: int, topics: Topics, unique: Unique) -> None:
    """One request for a shadow and for another topic: each is answered, in the form of its version."""
    group = unique("group")
    shadow, ordinary = contents(topics.shadow, group)[key], contents(topics.source, group)[key]
    both = {name: [*value, *ordinary[name]] if isinstance(value, list) else value for name, value in shadow.items()}
    with RawClient(topics.node.bootstrap) as wire:
        for version in range(APIS[key].first, APIS[key].last + 1):
            separate = codes(wire.ask(request(key, version, **ordinary)))
            together = codes(wire.ask(request(key, version, **both)))
            assert together - {0} == (separate | {29}) - {0}, f"version {version}"


def test_a_shadows_name_is_taken(topics: Topics) -> None:
    sample = {"topics": [{"name": topics.shadow, "num_partitions": 1, "replication_factor": 1}]}
    assert having(ShadowRule.TAKEN) == [19]
    with RawClient(topics.node.bootstrap) as wire:
        for version in range(APIS[19].first, APIS[19].last + 1):
            found = codes(wire.ask(request(19, version, **sample)))
            assert found == {ErrorCode.TOPIC_ALREADY_EXISTS}, f"version {version}"


@named(sorted(set(having(ShadowRule.OWN)) & set(COLD)))
def test_what_is_kafkas_own_is_answered_as_kafka_does(key: int, topics: Topics, unique: Unique) -> None:
    with RawClient(topics.node.bootstrap) as through, RawClient(topics.kafka) as direct:
        assert (key in versions_of(through)) == (key in versions_of(direct))
        assert_answers_alike(key, through, direct, topics.shadow, unique("group"))


@named(sorted(set(having(ShadowRule.UNNAMED)) & set(COLD)))
def test_what_names_no_topics_names_none(key: int, unique: Unique) -> None:
    topic = unique("named")
    for version in range(APIS[key].first, APIS[key].last + 1):
        asked = request(key, version, **samples(topic, "group")[key])
        assert topic.encode() not in kio.request_frame(asked)


def test_replicas_cannot_be_moved_and_the_reason_is_told(topics: Topics) -> None:
    parts = [{"partition_index": 0, "replicas": (1,)}, {"partition_index": 1, "replicas": None}]
    with RawClient(topics.node.bootstrap) as wire:
        answer = wire.ask(request(45, 0, topics=[{"name": topics.source, "partitions": parts}]))
    (topic,) = answer.responses
    assert [part.error_code.value for part in topic.partitions] == [39, 85]
    assert all("ask Kafka directly" in part.error_message for part in topic.partitions)
