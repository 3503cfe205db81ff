"""What a client may not do where no ACLs are enforced: change the cluster for everybody, with the node's own rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.gateway.enforcement import Enforcement
from sidecar.protocol.errors import ErrorCode
from tests import raw
from tests.kafka.gateway.answers import codes
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.samples import samples
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster

_OF_ITS_OWN = ("__transaction_state", "__consumer_offsets")
_BROKERS, _TOPIC = 4, 2
_LONG_MS = "604800000"


@pytest.fixture
def node(one_node: VirtualCluster) -> Iterator[VirtualCluster]:
    """A node that enforces no ACLs, and knows one operator: nobody of these clients."""
    gateway = one_node.nodes[0].gateway
    gateway.enforcement = Enforcement(one_node.nodes[0].upstream, None, frozenset({"User:operator"}))
    yield one_node
    gateway.enforcement = None


@pytest.fixture
def wire(node: VirtualCluster) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as opened:
        yield opened


def altered(kind: int, name: str) -> dict[str, object]:
    config = {"name": "log.retention.ms" if kind == _BROKERS else "retention.ms", "config_operation": 0}
    return {"resource_type": kind, "resource_name": name, "configs": [config | {"value": _LONG_MS}]}


def test_kafkas_own_topics_are_neither_deleted_nor_changed(wire: RawClient) -> None:
    for name in _OF_ITS_OWN:
        assert codes(wire.ask(request(20, 1, topic_names=[name]))) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert codes(wire.ask(request(44, 0, resources=[altered(_TOPIC, name)]))) == {29}
        assert codes(wire.ask(request(37, 0, topics=[{"name": name, "count": 99, "assignments": None}]))) == {29}


def test_a_refusal_names_the_topic_and_what_it_takes(node: VirtualCluster, wire: RawClient) -> None:
    name, _ = _OF_ITS_OWN
    assert codes(wire.ask(request(20, 1, topic_names=[name]))) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    newest = next(node.nodes[0].gateway.refusals.newest())
    said = f"DeleteTopics by User:ANONYMOUS, DELETE on topic {name}: super users alone may do that"
    assert (newest.topic, newest.reason) == (name, said)


def test_brokers_acls_and_scram_credentials_are_not_changed(node: VirtualCluster, wire: RawClient) -> None:
    assert codes(wire.ask(request(44, 0, resources=[altered(_BROKERS, "")]))) == {31}
    newest = next(node.nodes[0].gateway.refusals.newest())
    said = "IncrementalAlterConfigs by User:ANONYMOUS, ALTER_CONFIGS on the cluster: super users alone may do that"
    assert (newest.topic, newest.reason) == ("", said)
    for key, version in ((30, 1), (31, 1), (51, 0)):
        answer = wire.ask(request(key, version, **samples("orders", "group")[key]))
        assert codes(answer) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_nobody_reads_as_a_follower_does(node: VirtualCluster, wire: RawClient, unique: Unique) -> None:
    """A leader takes such a client for a replica that has all records in front of its offset: it would acknowledge
    what no other broker has.
    """
    name = unique("topic")
    created = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    assert codes(wire.ask(request(19, 2, topics=[created]))) == {0}
    ordinary, follower = raw.fetch({(name, 0): 0}, max_wait=0), raw.fetch({(name, 0): 0}, replica_id=2)
    wait_for(lambda: codes(wire.ask(ordinary)) == {0}, "the topic to be served")
    (topic,) = wire.ask(request(3, 12, topics=[{"name": name}])).topics
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes(wire.ask(follower))
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    said = {"session_epoch": -1, "topics": [{"topic_id": topic.topic_id, "partitions": [part]}], "max_bytes": 1000}
    state = {"replica_id": 2, "replica_epoch": 1}
    assert codes(wire.ask(request(1, 15, **said))) == {0}
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes(wire.ask(request(1, 15, **said, replica_state=state)))
    newest = next(node.nodes[0].gateway.refusals.newest())
    assert newest.reason == "brokers alone read as followers do"


def test_what_is_a_clients_own_business_goes_on(wire: RawClient, unique: Unique) -> None:
    name = unique("topic")
    created = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    assert codes(wire.ask(request(19, 2, topics=[created]))) == {0}
    assert codes(wire.ask(request(44, 0, resources=[altered(_TOPIC, name)]))) == {0}
    assert codes(wire.ask(request(20, 1, topic_names=[name]))) == {0}


def test_an_operator_may(node: VirtualCluster, unique: Unique) -> None:
    gateway = node.nodes[0].gateway
    gateway.enforcement = Enforcement(node.nodes[0].upstream, None, frozenset({"User:ANONYMOUS"}))
    with RawClient(node.bootstrap) as wire:
        assert codes(wire.ask(request(44, 0, resources=[altered(_BROKERS, "")]))) == {0}
        undone = altered(_BROKERS, "") | {"configs": [{"name": "log.retention.ms", "config_operation": 1}]}
        assert codes(wire.ask(request(44, 0, resources=[undone]))) == {0}
        unknown = wire.ask(request(20, 1, topic_names=[unique("unknown")]))
        assert codes(unknown) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_nobody_writes_to_kafkas_own_topics_by_calling_himself_as_its_tools_do(node: VirtualCluster) -> None:
    with RawClient(node.bootstrap, "__admin_client") as wire:
        answer = wire.ask(request(22, 1, transactional_id=None))
        assert codes(answer) == {ErrorCode.INVALID_REQUEST}
    with RawClient(node.bootstrap, "admin") as wire:
        assert codes(wire.ask(request(22, 1, transactional_id=None))) == {0}
