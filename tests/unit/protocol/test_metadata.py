"""Metadata against kio: clients' requests and answers in versions 0 to 13, the node's own calls in 10 and 12."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from sidecar.protocol import metadata
from sidecar.protocol.caller import BadAnswerError, decode_frame, encode_frame
from sidecar.protocol.metadata import (
    Broker,
    ClusterState,
    MetadataByIdCall,
    MetadataCall,
    MetadataRequest,
    PartitionState,
    TopicState,
)
from sidecar.protocol.primitives import MalformedFrameError, Reader, at_once
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples

VERSIONS = range(14)
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
        error=st.sampled_from([0, 42]),
    )


def decode(frame: bytes, size: int, version: int) -> MetadataRequest:
    reader = Reader(frame, kio.body_at(), size)
    reader.tags(version >= 9)
    found = at_once(metadata.request_steps(reader, version))
    if reader.remaining:
        raise MalformedFrameError("left over")
    return found


@every_version
@examples(16)
@given(data=st.data())
def test_a_request_is_read(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(kio.entity(3, version, "request")))
    frame = kio.request_frame(request)
    found = decode(frame, len(frame), version)
    assert (found.allow_auto_topic_creation, found.include_cluster_operations, found.include_topic_operations) == (
        getattr(request, "allow_auto_topic_creation", True),
        getattr(request, "include_cluster_authorized_operations", False),
        getattr(request, "include_topic_authorized_operations", False),
    )
    if request.topics is None or (not version and not request.topics):
        assert (found.topics, found.ids, found.faulty) == (None, (), ())
        return
    ids = [topic_id.bytes for topic in request.topics if (topic_id := getattr(topic, "topic_id", None))]
    names = [topic.name for topic in request.topics if topic.name is not None]
    of_nothing = any(topic.name is None and not getattr(topic, "topic_id", None) for topic in request.topics)
    if of_nothing or (version < 12 and (ids or len(names) < len(request.topics))):
        assert {(each.name, each.error) for each in found.faulty} == {(each.name or "", 42) for each in request.topics}
        assert {each.topic_id.bytes for each in found.faulty} - {bytes(16)} == set(ids)
    else:  # what is named twice is asked for once, and a name beside an id not at all
        assert found.faulty == ()
        assert found.ids == tuple(dict.fromkeys(ids))
        assert found.topics == (() if ids else tuple(dict.fromkeys(names)))


@every_version
@examples(2)
@given(data=st.data())
def test_a_request_cut_off_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    frame = kio.request_frame(data.draw(kio.messages(kio.entity(3, version, "request"))))
    for size in range(kio.body_at(), len(frame)):
        with pytest.raises(MalformedFrameError):
            decode(frame, size, version)


@every_version
@examples(24)
@given(data=st.data())
def test_no_damaged_request_raises_anything_but_malformed(version: int, data: st.DataObject) -> None:
    frame = bytearray(kio.request_frame(data.draw(kio.messages(kio.entity(3, version, "request")))))
    at = data.draw(st.integers(kio.body_at(), len(frame)))
    frame[at : at + 4] = data.draw(st.binary(min_size=1, max_size=6))
    with contextlib.suppress(MalformedFrameError):
        decode(bytes(frame), len(frame), version)


def without_padding(frame: bytes, version: int, topics: int) -> bytes:
    """The answer without the tagged fields of each topic, which kio does not step over."""
    plain = frame.replace(metadata.PADDING, b"\0")
    assert len(frame) - len(plain) == (topics * (len(metadata.PADDING) - 1) if version == 9 else 0)
    return (len(plain) - 4).to_bytes(4, "big") + plain[4:]


def test_any_reader_steps_over_the_padding() -> None:
    reader = Reader(metadata.PADDING + b"rest", 0, len(metadata.PADDING) + 4)
    reader.skip_tags()
    assert reader.position == len(metadata.PADDING)


def test_the_padding_has_no_content_of_which_librdkafka_2_1_steps_over_one_byte_too_few() -> None:
    """`rd_kafka_buf_skip_tags` took the length of a tagged field for that of a compact string."""
    reader = Reader(metadata.PADDING, 0, len(metadata.PADDING))
    for _ in range(reader.uvarint()):
        reader.uvarint()
        assert reader.uvarint() == 0
    assert reader.position == len(metadata.PADDING)


@every_version
@examples(16)
@given(state=cluster_states())
def test_an_answer_shows_each_partition_with_its_leader_as_only_replica(version: int, state: ClusterState) -> None:
    frame = without_padding(at_once(metadata.answer_steps(7, version, state)), version, len(state.topics))
    answer = kio.answer_of(kio.entity(3, version, "response"), frame)
    assert kio.answer_frame(answer) == frame
    assert [(found.node_id, found.host, found.port) for found in answer.brokers] == [
        (broker.id, broker.host, broker.port) for broker in state.brokers
    ]
    assert [(found.name, found.error_code.value) for found in answer.topics] == [
        (topic.name or (None if version >= 12 else ""), topic.error) for topic in state.topics
    ]
    if version >= 10:
        assert [found.topic_id or UUID(int=0) for found in answer.topics] == [topic.topic_id for topic in state.topics]
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
    assert getattr(answer, "error_code", KioError(state.error)) == KioError(state.error)
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


def test_the_nodes_question_by_ids_has_the_bytes_that_kio_writes() -> None:
    cls = kio.entity(3, 12, "request")
    topic_class = cls.__annotations__["topics"].__args__[0].__args__[0]
    ids = (UUID(int=1), UUID(int=2**127))
    expected = cls(
        topics=tuple(topic_class(topic_id=each, name=None) for each in ids),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    request = MetadataRequest((), False, include_topic_operations=True, ids=tuple(each.bytes for each in ids))
    assert encode_frame(MetadataByIdCall(request), 7, "tests") == kio.request_frame(expected)


@pytest.mark.parametrize("call", [MetadataCall, MetadataByIdCall])
@examples(20)
@given(data=st.data())
def test_an_answer_of_upstream_is_read(call: type[MetadataCall], data: st.DataObject) -> None:
    answer = data.draw(kio.messages(kio.entity(3, call.api_version, "response")))
    frame = kio.answer_frame(answer)
    found = decode_frame(call(MetadataRequest(())), 7, frame, 4, len(frame))
    assert found.brokers == tuple(Broker(one.node_id, one.host, one.port, one.rack) for one in answer.brokers)
    assert (found.cluster_id, found.controller) == (answer.cluster_id, answer.controller_id)
    assert found.operations == getattr(answer, "cluster_authorized_operations", metadata.NO_OPERATIONS)
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


@examples(4)
@given(data=st.data())
def test_an_answer_of_upstream_cut_off_anywhere_is_a_protocol_error(data: st.DataObject) -> None:
    frame = kio.answer_frame(data.draw(kio.messages(kio.entity(3, 10, "response"))))
    for size in range(4, len(frame)):
        with pytest.raises(BadAnswerError):
            decode_frame(MetadataCall(MetadataRequest(())), 7, frame, 4, size)
