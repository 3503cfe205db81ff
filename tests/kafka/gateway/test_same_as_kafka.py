"""Every cold API in every version, asked of a node and of Kafka itself: the answers are the same."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway.apis.table import APIS
from sidecar.local.kafka_config import default_version, parse_version
from tests.kafka.gateway.by_id import metadata
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.kafka.gateway.virtual import VirtualCluster
from tests.kafka_calls import kafka_calls
from tests.offered import unnamed
from tests.raw import RawClient
from tests.unit.protocol import kio_entities as kio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import OwnKafka, Unique
    from tests.services import Services

_HOT_OR_DESCRIBING_NODES = {0, 1, 2, 3, 10, 18, 21, 23, 60, 75}
_NEVER_THE_SAME_TWICE = {22}
_REFUSED_ALWAYS = {45}
_OF_SESSIONS = {78, 79}
"""See `test_shares`."""
_FROM_REPORTERS = {71, 72}
"""See `test_client_metrics`."""
_NEWEST = "4.4.0"
_ELSEWHERE = _NEVER_THE_SAME_TWICE | _REFUSED_ALWAYS | _OF_SESSIONS | _FROM_REPORTERS
COLD = sorted(APIS.keys() - _HOT_OR_DESCRIBING_NODES - _ELSEWHERE)


@pytest.fixture
def through(one_node: VirtualCluster) -> Iterator[RawClient]:
    with RawClient(one_node.bootstrap) as wire:
        yield wire


@pytest.fixture
def direct(services: Services) -> Iterator[RawClient]:
    with RawClient(services.kafka_bootstrap) as wire:
        yield wire


def versions_of(wire: RawClient) -> dict[int, range]:
    answer = wire.ask(request(18, 3, client_software_name="tests", client_software_version="1"))
    return {found.api_key: range(found.min_version, found.max_version + 1) for found in answer.api_keys}


def comparable(answer: Any) -> Any:
    """An answer without what is never twice the same: how full the disk is, the id a topic would have, the order."""
    for name in ("results", "responses", "topics", "groups"):
        if elements := getattr(answer, name, None):
            answer = dataclasses.replace(answer, **{name: tuple(sorted(map(_steady, elements), key=repr))})
    return answer


def _steady(element: Any) -> Any:
    changing = {"usable_bytes": 0, "topic_id": None}
    return dataclasses.replace(element, **{name: to for name, to in changing.items() if hasattr(element, name)})


def assert_answers_alike(key: int, through: RawClient, direct: RawClient, topic: str, group: str) -> None:
    """One API in every version that the node announces."""
    (described,) = direct.ask(metadata(12, topic)).topics
    contents = samples(topic, group, described.topic_id)
    direct.ask(request(8, 2, **contents[8]))
    served = versions_of(through).get(key, range(0))
    for version in served:
        assert APIS[key].first <= version <= APIS[key].last
        if kio.has(key, version):
            asked = request(key, version, **contents[key])
            mine, theirs = comparable(through.ask(asked)), comparable(direct.ask(asked))
            assert mine == theirs, f"{APIS[key].name} {version}:\n{mine}\n{theirs}"


@pytest.mark.parametrize("key", COLD, ids=[APIS[key].name for key in COLD])
async def test_a_node_answers_as_kafka_does(
    key: int, through: RawClient, direct: RawClient, services: Services, unique: Unique
) -> None:
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic, partitions=2)
    assert (key in versions_of(through)) == (key in versions_of(direct))
    assert_answers_alike(key, through, direct, topic, group)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", _NEWEST])
async def test_a_node_answers_as_other_versions_of_kafka_do(version: str, own_kafka: OwnKafka, unique: Unique) -> None:
    kafka = own_kafka(version=version)
    create_internal_topics(kafka.bootstrap)
    with VirtualCluster(kafka.bootstrap, first_id=7) as cluster:
        for key in COLD:
            topic, group = unique("orders"), unique("group")
            async with kafka_calls(kafka.bootstrap) as calls:
                await calls.create(topic, partitions=2)
            with RawClient(cluster.bootstrap) as through, RawClient(kafka.bootstrap) as direct:
                assert_answers_alike(key, through, direct, topic, group)
                offered = versions_of(direct)
        assert unnamed({key: found.stop - 1 for key, found in offered.items()}) == []
        assert version != _NEWEST or set(COLD) <= offered.keys()
        assert (cluster.events.rejected, cluster.events.failed, cluster.events.crashed) == ([], [], [])


def test_every_version_that_kafka_and_the_table_share_is_announced(through: RawClient, direct: RawClient) -> None:
    upstream, announced = versions_of(direct), versions_of(through)
    expected = {
        key: range(max(api.first, upstream[key].start), min(api.last + 1, upstream[key].stop))
        for key, api in APIS.items()
        if key in upstream
    }
    assert {key: found for key, found in announced.items() if key != 0} == {
        key: found for key, found in expected.items() if key != 0
    }
    assert announced[0] == range(14), "librdkafka needs Produce from 0"


@pytest.mark.parametrize("version", range(5))
def test_features_are_named_in_the_versions_of_api_versions_in_which_kafka_names_them(
    version: int, through: RawClient, direct: RawClient
) -> None:
    """Java clients before 3.8 ask in version 3 and cannot read a range that begins at 0 (KAFKA-17011)."""
    software = {"client_software_name": "tests", "client_software_version": "1"} if version >= 3 else {}
    mine, theirs = (wire.ask(request(18, version, **software)) for wire in (through, direct))
    for name in ("supported_features", "finalized_features"):
        assert getattr(mine, name, None) == getattr(theirs, name, None), name
    epochs = [getattr(answer, "finalized_features_epoch", 0) for answer in (mine, theirs)]
    assert 0 <= epochs[0] <= epochs[1], "it rises with every change of the cluster's metadata"


_NAMES = ["librdkafka", "Apache.Kafka-java", "", "@confluentinc/kafka", "ends-", "-begins", "two words", "line\n", "é"]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("name", _NAMES)
def test_names_of_software_are_accepted_and_refused_as_by_kafka(
    version: int, name: str, through: RawClient, direct: RawClient
) -> None:
    for software in ((name, "1.0"), ("tests", name)):
        asked = request(18, version, client_software_name=software[0], client_software_version=software[1])
        mine, theirs = (wire.ask(asked) for wire in (through, direct))
        assert (mine.error_code, bool(mine.api_keys)) == (theirs.error_code, bool(theirs.api_keys)), software


def test_a_version_that_brokers_do_not_serve_any_more_ends_the_connection_as_at_a_broker(
    one_node: VirtualCluster, services: Services, direct: RawClient
) -> None:
    upstream = versions_of(direct)
    gone = [api for api in APIS.values() if api.key in upstream and api.first < upstream[api.key].start]
    assert gone or parse_version(default_version()) < (4, 0, 0)
    for api in gone:
        for bootstrap in (services.kafka_bootstrap, one_node.bootstrap):
            with RawClient(bootstrap) as wire:
                wire.send_bytes(struct.pack(">ihhih", 10, api.key, api.first, 1, -1))
                with pytest.raises(ConnectionError):
                    wire.receive_frame()
        reason, detail = one_node.events.rejected.pop()
        assert (reason, detail.split(":")[0]) == ("unsupported_version", f"{api.name} v{api.first}")


@pytest.mark.parametrize("version", range(6))
def test_a_producer_id_is_given_once(version: int, through: RawClient, one_node: VirtualCluster) -> None:
    first = through.ask(request(22, version, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1))
    second = through.ask(request(22, version, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1))
    assert first.error_code.value == second.error_code.value == 0
    assert first.producer_id != second.producer_id
    assert one_node.sessions.told[-2:] == [("raw", first.producer_id, None), ("raw", second.producer_id, None)]
