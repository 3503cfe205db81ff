"""The product's own requests, encoded and read by the product's own code, are served in the versions that it sends."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sidecar.protocol.caller import CoordinatorKind, Request, encode_frame
from sidecar.protocol.calls.admin import (
    AlterTopicConfig,
    ApiVersions,
    ConfigResource,
    CreatePartitions,
    CreateTopics,
    DeleteTopic,
    DescribeConfigs,
    DescribeTopics,
    FindCoordinator,
    NewTopic,
    Resource,
)
from sidecar.protocol.calls.groups import CommitOffsets, DescribeGroups, ListGroups, OffsetFetch
from sidecar.protocol.calls.logs import FetchPartition, ListOffsets, OffsetAt, ProduceBatch
from sidecar.protocol.calls.transactions import (
    AddPartitionsToTxn,
    DescribeProducers,
    EndTxn,
    InitProducerId,
    Marker,
    WriteTxnMarkers,
)
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.metadata import MetadataCall, MetadataRequest
from sidecar.protocol.primitives import Reader
from tests.kafka_calls import DescribeTransactions
from tests.sim.kafka.batches import encode
from tests.sim.kafka.harness import Connection, Simulated


def _call(s: Simulated, broker: int, request: Request[Any]) -> Any:
    connection = Connection(s.cluster, broker)
    connection.channel.received(encode_frame(request, 5, "sidecar"))
    assert s.heap.run(60, lambda: bool(connection.answers)), "no answer"
    reader = Reader(connection.answers[0], 8)
    if request.flexible:
        reader.skip_tags()
    answer = request.decode(reader)
    assert not reader.remaining
    return answer


def test_every_call_of_a_node_is_answered():
    s = Simulated()
    assert _call(s, 1, CreateTopics((NewTopic("t", 1, 3, {"retention.ms": "9"}),), 1000))["t"].error == 0
    s.pause(1)
    topic, at = TopicPartition("t", 0), s.cluster.leader("t", 0)
    assert set(_call(s, 1, ApiVersions())) >= {0, 1, 2, 3, 10, 22, 24, 26, 61}
    state = _call(s, 1, MetadataCall(MetadataRequest(("t",), allow_auto_topic_creation=False)))
    assert state.topics[0].partitions[0].leader == at
    described = _call(s, 1, DescribeTopics(("t",))).topics[0]
    assert described.partitions[0].in_sync == described.partitions[0].replicas
    resource = Resource(ConfigResource.TOPIC, "t")
    assert _call(s, 1, DescribeConfigs((resource,), ("retention.ms",)))[resource].values == {"retention.ms": "9"}
    coordinator = _call(s, 1, FindCoordinator("slot", CoordinatorKind.TRANSACTION)).broker_id
    assert _call(s, coordinator, InitProducerId("slot", 60_000)).error == 14
    s.pause(1)
    stamp = _call(s, coordinator, InitProducerId("slot", 60_000)).stamp
    assert _call(s, coordinator, AddPartitionsToTxn("slot", stamp, {"t": [0]})) == {topic: 0}
    assert _call(s, coordinator, EndTxn("slot", stamp)) == 0
    s.pause(1)
    assert _call(s, coordinator, EndTxn("slot", stamp)) == 0
    assert _call(s, coordinator, DescribeTransactions(("slot",)))[0]["transaction_state"] == "CompleteAbort"
    batch = encode([(b"k", b"v")], s.wall_ms(), stamp.producer_id, stamp.epoch, 0)
    assert _call(s, at, ProduceBatch(topic, batch, 1000)).base_offset == 1
    found = _call(s, at, DescribeProducers({"t": [0]}))[topic].of(stamp.producer_id)
    assert (found.stamp, found.last_sequence) == (stamp, 0)
    latest = _call(s, at, ListOffsets({topic: OffsetAt.LATEST}))[topic]
    assert (latest.error, latest.offset) == (0, 2)
    assert len(_call(s, at, FetchPartition(topic, Offset(1), 100, 1 << 20)).records) == len(batch)
    marker = Marker(Stamp(ProducerId(99), ProducerEpoch(32_767)), {"t": [0]}, 0)
    assert _call(s, at, WriteTxnMarkers((marker,))) == {99: {topic: 0}}
    assert _call(s, 1, CreatePartitions("t", 2, 1000)).error == 0
    assert _call(s, 1, AlterTopicConfig("t", "retention.ms", "8")).error == 0
    assert _call(s, 1, DeleteTopic(UUID(bytes=s.cluster.controller.topics["t"].id), 1000)) == 0


def test_the_calls_about_groups_are_answered():
    s = Simulated()
    s.cluster.create_topic("t")
    s.pause(1)
    at = _call(s, 1, FindCoordinator("g", CoordinatorKind.GROUP)).broker_id
    assert _call(s, at, CommitOffsets("g", "t", {0: 7})) == {0: 0}
    assert _call(s, at, OffsetFetch(("g",), "t", (0, 1)))["g"].offsets == {0: 7}
    assert [group.name for group in _call(s, at, ListGroups()).groups] == ["g"]
    assert _call(s, at, DescribeGroups(("g",)))["g"].state == "Empty"
