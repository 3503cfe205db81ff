"""The versions that a node tells of: those of its table that Kafka serves too, and each of them works."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sidecar.gateway.apis.table import APIS, NOT_SERVED
from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.offered import unnamed
from tests.raw import RawClient
from tests.unit.protocol import kio_entities as kio

if TYPE_CHECKING:
    from tests.conftest import Unique
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.nodes import NodeProcess
    from tests.services import Services


def ranges(client: RawClient, version: int = 3) -> dict[int, tuple[int, int]]:
    answer = client.ask(raw.api_versions(version))
    assert raw.code(answer) == 0
    return {int(found.api_key): (int(found.min_version), int(found.max_version)) for found in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_what_is_told_is_the_table_cut_to_what_kafka_serves(
    version: int, node: NodeProcess, services: Services
) -> None:
    with RawClient(node.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        told, upstream = ranges(client, version), ranges(direct, version)
    expected = {}
    for api in APIS.values():
        low, high = upstream.get(api.key, (0, -1))
        if max(api.first, low) <= min(api.last, high):
            expected[api.key] = (
                api.advertised_first if api.advertised_first is not None else max(api.first, low),
                min(api.last, high),
            )
    assert told == expected
    assert told.keys() <= upstream.keys()
    assert not told.keys() & NOT_SERVED.keys()
    assert len(told) > 35


def test_all_that_kafka_offers_is_in_a_table(services: Services) -> None:
    with RawClient(services.kafka_bootstrap) as direct:
        assert unnamed({key: high for key, (_, high) in ranges(direct).items()}) == []


def test_the_features_of_the_cluster_are_told_as_kafka_tells_them(node: NodeProcess, services: Services) -> None:
    """Transactions of version 2 (KIP-890) among them: a client uses them where it is told of them alone."""
    with RawClient(node.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        theirs, mine = (wire.ask(raw.api_versions(version=4)) for wire in (direct, client))
        assert "transaction.version" in {found.name for found in theirs.finalized_features}
        assert (mine.supported_features, mine.finalized_features) == (
            theirs.supported_features,
            theirs.finalized_features,
        )
        assert 0 < mine.finalized_features_epoch <= theirs.finalized_features_epoch


def id_of(client: RawClient, topic: str) -> UUID:
    """The id of a topic; one that nothing has where there is none."""
    answer = client.ask(raw.metadata([topic], version=12))
    return answer.topics[0].topic_id or UUID(int=9)


def hot(topic: str, group: str, topic_id: UUID | None = None) -> dict[int, dict[str, Any]]:
    """Contents for the APIs that `samples` leaves out."""
    one = [
        {
            "partition_index": 0,
            "timestamp": -1,
            "offset": 0,
            "leader_epoch": 0,
            "partition": 0,
            "current_leader_epoch": -1,
        }
    ]
    records = bytes(raw.batch())
    return {
        0: {
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}],
        },
        1: {
            "replica_id": -1,
            "session_epoch": -1,
            "max_bytes": 2**20,
            "topics": [
                {
                    "topic": topic,
                    "topic_id": topic_id,
                    "partitions": [
                        {"partition": 0, "partition_max_bytes": 2**20, "current_leader_epoch": -1}
                        | {"last_fetched_epoch": -1}
                    ],
                }
            ],
        },
        2: {"replica_id": -1, "topics": [{"name": topic, "partitions": one}]},
        3: {"topics": [{"name": topic}]},
        10: {"key": group},
        18: {"client_software_name": "raw", "client_software_version": "1"},
        21: {"timeout": 10_000, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]},
        22: {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1},
        23: {"replica_id": -1, "topics": [{"topic": topic, "partitions": one}]},
        60: {"endpoint_type": 1},
    }


def known(cls: Any, contents: dict[str, Any]) -> dict[str, Any]:
    """Contents without the fields that a message of this class does not have."""
    fields = {field.name.removeprefix("v3_and_below_"): field for field in dataclasses.fields(cls)}
    found: dict[str, Any] = {}
    for name, value in contents.items():
        if name not in fields:
            continue
        element = getattr(fields[name].type, "__args__", (None,))[0]
        if isinstance(value, list) and dataclasses.is_dataclass(element):
            value = [known(element, each) if isinstance(each, dict) else each for each in value]  # noqa: PLW2901
        found[name] = value
    return found


def errors(found: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(found, tuple):
        return {code for each in found for code in errors(each)}
    if not dataclasses.is_dataclass(found):
        return set()
    own = {raw.code(found)} if hasattr(found, "error_code") else set()
    return own.union(*(errors(getattr(found, field.name)) for field in dataclasses.fields(found)))


def test_every_version_told_is_answered_in_its_form(node: NodeProcess, topic: MakeTopic, unique: Unique) -> None:
    """The answers of kio parse to their end, and those that must succeed do."""
    name, group, asked = topic(partitions=2), unique("group"), 0
    with RawClient(node.bootstrap) as client:
        topic_id = id_of(client, name)
        for key, (low, high) in ranges(client).items():
            contents = {**samples(name, group), **hot(name, group, topic_id)}[key]
            for version in range(max(low, APIS[key].first), high + 1):
                if not kio.has(key, version):
                    continue
                answer = client.ask(request(key, version, **known(kio.entity(key, version, "request"), contents)))
                asked += 1
                if key in hot(name, group):
                    assert errors(answer) <= {0}, f"{APIS[key].name} v{version}: {answer}"
    assert asked > 150


@pytest.mark.parametrize("key", [0, 2, 21, 23], ids=lambda key: APIS[key].name)
def test_a_node_answers_as_the_leader_does(key: int, node: NodeProcess, services: Services, topic: MakeTopic) -> None:
    """Field by field, for what exists and for what does not, in every version."""
    name, other = topic(partitions=2), topic(partitions=2)
    with RawClient(node.bootstrap) as client, RawClient(services.kafka_bootstrap) as direct:
        low, high = ranges(client)[key]
        for version in range(max(low, APIS[key].first), high + 1):
            if not kio.has(key, version):
                continue
            for where in (name, "no-such-topic"):
                mine, theirs = (
                    with_name(connection.ask(about(key, version, which, id_of(direct, which))), which)
                    for connection, which in ((client, where), (direct, other if where == name else where))
                )
                assert mine == theirs, f"version {version}"


def about(key: int, version: int, topic: str, topic_id: UUID) -> Any:
    contents = hot(topic, "g", topic_id)[key]
    return request(key, version, **known(kio.entity(key, version, "request"), contents))


def with_name(answer: Any, topic: str) -> Any:
    """The answer with its topic's name left out: two topics, each written to as often as the other, answer alike."""
    if isinstance(answer, tuple):
        return tuple(with_name(each, topic) for each in answer)
    if isinstance(answer, UUID):
        return UUID(int=0)
    if isinstance(answer, str):
        return answer.replace(topic, "TOPIC")
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        fields = {field.name: with_name(getattr(answer, field.name), topic) for field in dataclasses.fields(answer)}
        return dataclasses.replace(answer, **fields)
    return answer
