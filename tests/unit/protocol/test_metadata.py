"""Metadata against kio: clients' requests and answers in versions 0 to 9, the node's own call in version 10."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from sidecar.protocol import metadata
from sidecar.protocol.caller import BadAnswerError, decode_frame, encode_frame
from sidecar.protocol.metadata import Broker, ClusterState, MetadataCall, MetadataRequest, PartitionState, TopicState
from sidecar.protocol.primitives import MalformedFrameError, Reader
from tests.unit.protocol import kio_entities as kio

VERSIONS = range(10)
every_version = pytest.mark.parametrize("version", VERSIONS)

_I32 = st.integers(-(2**31), 2**31 - 1)
_IDS = st.integers(0, 2**31 - 1)
_CODES = st.sampled_from([code.value for code in KioError])
_TEXT = st.text(max_size=20)


def partition_states() -> st.SearchStrategy[PartitionState]:
    return st.builds(PartitionState, partition=_I32, error=_CODES, leader=st.just(-1) | _IDS, leader_epoch=_I32)


def topic_states() -> st.SearchStrategy[TopicState]:
    return st.builds(
        TopicState,
        name=_TEXT,
        error=_CODES,
        topic_id=st.uuids(),
        internal=st.booleans(),
        partitions=st.lists(partition_states(), max_size=4).map(tuple),
        operations=_I32,
    )


def cluster_states() -> st.SearchStrategy[ClusterState]:
    return st.builds(
        ClusterState,
        throttle_ms=_I32,
        brokers=st.lists(st.builds(Broker, _IDS, _TEXT, _I32, st.none() | _TEXT), max_size=3).map(tuple),
        cluster_id=st.none() | _TEXT,
        controller=_I32,
        topics=st.lists(topic_states(), max_size=3).map(tuple),
        operations=_I32,
    )


def decode(frame: bytes, size: int, version: int) -> MetadataRequest:
    reader = Reader(frame, kio.body_at(), size)
    reader.tags(version >= 9)
    found = metadata.decode_request(reader, version)
    if reader.remaining:
        raise MalformedFrameError("left over")
    return found


@every_version
@settings(max_examples=40)
@given(data=st.data())
def test_a_request_is_read(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(kio.entity(3, version, "request")))
    frame = kio.request_frame(request)
    named = request.topics
    topics = None  # a name that comes twice is asked for once
    if named is not None and (version or named):
        topics = tuple(dict.fromkeys(topic.name for topic in named))
    assert decode(frame, len(frame), version) == MetadataRequest(
        topics,
        getattr(request, "allow_auto_topic_creation", True),
        getattr(request, "include_cluster_authorized_operations", False),
        getattr(request, "include_topic_authorized_operations", False),
    )


@every_version
@settings(max_examples=5)
@given(data=st.data())
def test_a_request_cut_off_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    frame = kio.request_frame(data.draw(kio.messages(kio.entity(3, version, "request"))))
    for size in range(kio.body_at(), len(frame)):
        with pytest.raises(MalformedFrameError):
            decode(frame, size, version)


@every_version
@settings(max_examples=60)
@given(data=st.data())
def test_no_damaged_request_raises_anything_but_malformed(version: int, data: st.DataObject) -> None:
    frame = bytearray(kio.request_frame(data.draw(kio.messages(kio.entity(3, version, "request")))))
    at = data.draw(st.integers(kio.body_at(), len(frame)))
    frame[at : at + 4] = data.draw(st.binary(min_size=1, max_size=6))
    with contextlib.suppress(MalformedFrameError):
        decode(bytes(frame), len(frame), version)


def without_padding(frame: bytes, version: int, topics: int) -> bytes:
    """The answer without the tagged field of each topic, which kio does not step over."""
    plain = frame.replace(metadata.PADDING, b"\0")
    assert len(frame) - len(plain) == (topics * (len(metadata.PADDING) - 1) if version >= 9 else 0)
    return (len(plain) - 4).to_bytes(4, "big") + plain[4:]


def test_the_padding_is_one_tagged_field_that_any_reader_steps_over() -> None:
    reader = Reader(metadata.PADDING + b"rest", 0, len(metadata.PADDING) + 4)
    reader.skip_tags()
    assert reader.position == len(metadata.PADDING)


@every_version
@settings(max_examples=40)
@given(state=cluster_states())
def test_an_answer_shows_each_partition_with_its_leader_as_only_replica(version: int, state: ClusterState) -> None:
    frame = without_padding(metadata.encode_answer(7, version, state), version, len(state.topics))
    answer = kio.answer_of(kio.entity(3, version, "response"), frame)
    assert kio.answer_frame(answer) == frame
    assert [(found.node_id, found.host, found.port) for found in answer.brokers] == [
        (broker.id, broker.host, broker.port) for broker in state.brokers
    ]
    assert [(found.name, found.error_code.value) for found in answer.topics] == [
        (topic.name, topic.error) for topic in state.topics
    ]
    for found, topic in zip(answer.topics, state.topics, strict=True):
        for partition, expected in zip(found.partitions, topic.partitions, strict=True):
            only = () if expected.leader < 0 else (expected.leader,)
            assert partition.partition_index == expected.partition
            assert partition.error_code.value == expected.error
            assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (expected.leader, only, only)
            assert getattr(partition, "offline_replicas", ()) == ()
            assert getattr(partition, "leader_epoch", expected.leader_epoch) == expected.leader_epoch
        assert getattr(found, "is_internal", topic.internal) == topic.internal
        assert getattr(found, "topic_authorized_operations", topic.operations) == topic.operations
    assert getattr(answer, "controller_id", state.controller) == state.controller
    assert getattr(answer, "cluster_id", state.cluster_id) == state.cluster_id
    assert getattr(answer, "cluster_authorized_operations", state.operations) == state.operations
    if version >= 1:
        assert [found.rack for found in answer.brokers] == [broker.rack for broker in state.brokers]
    if version >= 3:
        assert kio.as_milliseconds(answer.throttle_time) == state.throttle_ms


# The node's own call --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [None, (), ("orders",), ("orders", "Ürümqi")])
@pytest.mark.parametrize("flags", [(True, False, False), (False, True, False), (False, False, True)])
def test_the_nodes_question_has_the_bytes_that_kio_writes(topics: Any, flags: tuple[bool, bool, bool]) -> None:
    cls = kio.entity(3, 10, "request")
    topic_class = cls.__annotations__["topics"].__args__[0].__args__[0]
    auto, cluster, of_topics = flags
    expected = cls(
        topics=None if topics is None else tuple(topic_class(topic_id=None, name=name) for name in topics),
        allow_auto_topic_creation=auto,
        include_cluster_authorized_operations=cluster,
        include_topic_authorized_operations=of_topics,
    )
    call = MetadataCall(MetadataRequest(topics, *flags))
    assert encode_frame(call, 7, "tests") == kio.request_frame(expected)


@settings(max_examples=50)
@given(data=st.data())
def test_an_answer_of_upstream_is_read(data: st.DataObject) -> None:
    answer = data.draw(kio.messages(kio.entity(3, 10, "response")))
    frame = kio.answer_frame(answer)
    found = decode_frame(MetadataCall(MetadataRequest(())), 7, frame, 4, len(frame))
    assert found.brokers == tuple(Broker(one.node_id, one.host, one.port, one.rack) for one in answer.brokers)
    assert (found.cluster_id, found.controller) == (answer.cluster_id, answer.controller_id)
    assert found.operations == answer.cluster_authorized_operations
    assert found.topics == tuple(
        TopicState(
            topic.name or "",
            topic.error_code.value,
            topic.topic_id or UUID(int=0),
            topic.is_internal,
            tuple(
                PartitionState(one.partition_index, one.error_code.value, one.leader_id, one.leader_epoch)
                for one in topic.partitions
            ),
            topic.topic_authorized_operations,
        )
        for topic in answer.topics
    )


@settings(max_examples=10)
@given(data=st.data())
def test_an_answer_of_upstream_cut_off_anywhere_is_a_protocol_error(data: st.DataObject) -> None:
    frame = kio.answer_frame(data.draw(kio.messages(kio.entity(3, 10, "response"))))
    for size in range(4, len(frame)):
        with pytest.raises(BadAnswerError):
            decode_frame(MetadataCall(MetadataRequest(())), 7, frame, 4, size)
