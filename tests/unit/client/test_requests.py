"""The SDK's requests against the codecs that a node answers them with."""

from __future__ import annotations

import uuid

import pytest

from sidecar.client._requests import Appended, Produce, describe_owners
from sidecar.protocol import metadata, produce
from sidecar.protocol.caller import BadAnswerError, decode_frame, encode_frame
from sidecar.protocol.calls.admin import DescribeTopics
from sidecar.protocol.calls.transactions import InitProducerId
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.protocol.own import LastSequence
from sidecar.protocol.primitives import Reader, at_once
from sidecar.v1 import control_pb2 as control

BODY = 4 + 2 + 2 + 4 + 2 + len("client")


def body_of(request: object, *, flexible: bool = False) -> bytes:
    return encode_frame(request, 7, "client")[BODY + flexible :]  # type: ignore[arg-type]


def test_metadata_is_asked_without_creating_the_topic() -> None:
    asked = at_once(metadata.request_steps(Reader(body_of(DescribeTopics(("orders",)), flexible=True)), 10))
    assert (asked.topics, asked.allow_auto_topic_creation) == (("orders",), False)


def test_metadata_tells_leaders_and_where_they_are() -> None:
    partitions = (PartitionState(0, 0, 1, 3), PartitionState(1, 5, -1, 0))
    topic = TopicState("orders", 0, uuid.uuid4(), False, partitions)
    brokers = (Broker(1, "here", 9092, "rack"), Broker(2, "there", 9093))
    answer = at_once(metadata.answer_steps(7, 10, ClusterState(0, brokers, "cluster", 1, (topic,))))
    found = decode_frame(DescribeTopics(("orders",)), 7, answer, 4, len(answer))
    assert (found.topic("orders").error, found.topic("orders").leaders) == (0, {0: 1, 1: -1})
    assert found.topic("others").error == 3
    assert found.brokers == {1: ("here", 9092), 2: ("there", 9093)}


def test_a_new_producer_names_the_one_that_it_follows() -> None:
    asked = body_of(InitProducerId(None, 60_000, Stamp(ProducerId(11), ProducerEpoch(0))))
    assert asked == b"\0\0" + (60_000).to_bytes(4, "big") + (11).to_bytes(8, "big") + b"\0\0" + b"\0"
    answer = (7).to_bytes(4, "big") + b"\0" + bytes(4) + b"\0\0" + (12).to_bytes(8, "big") + b"\0\1" + b"\0"
    found = decode_frame(InitProducerId(None, 60_000), 7, answer, 0, len(answer))
    assert (found.error, found.stamp) == (0, Stamp(ProducerId(12), ProducerEpoch(1)))


def test_batches_of_several_partitions_are_one_request_that_a_node_reads() -> None:
    body = body_of(Produce("zähler", {0: b"first", 7: b"second"}, 10_000))
    asked = produce.walk(body, 0, len(body), 8)
    assert (asked.transactional_id, asked.acks, asked.timeout_ms) == (None, -1, 10_000)
    found = {part.partition: (part.topic.decode(), body[part.start : part.end]) for part in asked.parts}
    assert found == {0: ("zähler", b"first"), 7: ("zähler", b"second")}


def test_what_became_of_each_batch_is_told_by_partition() -> None:
    results = [
        produce.ProduceResult(b"orders", 0, 0, 41),
        produce.ProduceResult(b"orders", 7, 87, message="no key", record_errors=((0, "no key"), (2, None))),
    ]
    answer = produce.encode_answer(7, 8, results)
    found = decode_frame(Produce("orders", {}, 0), 7, answer, 4, len(answer))
    assert found == {0: Appended(0, 41), 7: Appended(87, -1, "no key")}


def test_the_own_apis_carry_protobuf() -> None:
    owners = control.DescribeOwnersRequest.FromString(body_of(describe_owners("orders")))
    assert [each.topic for each in owners.resources] == ["orders"]
    asked = control.LastSequenceRequest.FromString(
        body_of(LastSequence(control.LastSequenceRequest(topic="orders", producer_name="zähler")))
    )
    assert (asked.topic, asked.producer_name) == ("orders", "zähler")
    told = control.LastSequenceResponse(last_sequence_id=4, last_sequence_ids={0: 4})
    answer = (7).to_bytes(4, "big") + told.SerializeToString()
    assert decode_frame(LastSequence(control.LastSequenceRequest(topic="orders")), 7, answer, 0, len(answer)) == told


@pytest.mark.parametrize("answer", [b"\0\0\0\7\xff\xff", b"\0\0\0\x08", b"\0\0"])
def test_an_answer_that_makes_no_sense_is_told_as_such(answer: bytes) -> None:
    with pytest.raises(BadAnswerError):
        decode_frame(LastSequence(control.LastSequenceRequest(topic="orders")), 7, answer, 0, len(answer))
