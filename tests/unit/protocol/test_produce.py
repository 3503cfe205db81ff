"""Produce in every version served, against kio: walked, split, answered, read."""

from __future__ import annotations

import contextlib
import dataclasses
from struct import pack
from typing import Any, cast
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from sidecar.cluster.resolver import is_legal
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.leaders import Leader
from sidecar.protocol.primitives import MalformedFrameError, TaggedFieldsError, Writer, without_tags
from sidecar.protocol.produce import ProduceResult
from sidecar.protocol.topic_ids import stand_in, unknown_ids
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples

VERSIONS = range(3, 14)
every_version = pytest.mark.parametrize("version", VERSIONS)


def request_class(version: int) -> Any:
    return kio.entity(0, version, "request")


NAMES: dict[bytes, bytes] = {}
"""The topics of all examples by their ids, which take the place of names in version 13."""


def name_of(topic: Any) -> bytes:
    """The name of a topic of kio's; where it has an id alone, one that stands for it."""
    if hasattr(topic, "name"):
        return topic.name.encode()
    topic_id = topic.topic_id.bytes if topic.topic_id else bytes(16)
    return NAMES.setdefault(topic_id, topic_id.hex().encode())


def named(version: int, name: str) -> dict[str, Any]:
    """What a topic is called in a version."""
    if version < 13:
        return {"name": name}
    known = next((topic_id for topic_id, found in NAMES.items() if found == name.encode()), None)
    topic_id = uuid5(NAMESPACE_URL, name) if known is None else UUID(bytes=known)
    NAMES[topic_id.bytes] = name.encode()
    return {"topic_id": topic_id if topic_id.int else None}


def ids(version: int) -> dict[bytes, bytes] | None:
    return None if version < 13 else {name: topic_id for topic_id, name in NAMES.items()}


def walk(frame: bytes, version: int) -> produce.ProduceRequest:
    return produce.walk(frame, kio.body_at(), len(frame), version, NAMES)


def request_of(version: int, topics: dict[str, dict[int, bytes | None]], transactional_id: str | None = None) -> Any:
    """A request of kio's: records by topic and partition."""
    cls = request_class(version)
    topic_class = cls.__annotations__["topic_data"].__args__[0]
    partition_class = topic_class.__annotations__["partition_data"].__args__[0]
    return cls(
        transactional_id=transactional_id,
        acks=-1,
        timeout=kio.milliseconds(30_000),
        topic_data=tuple(
            topic_class(
                **named(version, name),
                partition_data=tuple(partition_class(index=index, records=found) for index, found in records.items()),
            )
            for name, records in topics.items()
        ),
    )


def expected(request: Any) -> list[tuple[bytes, int, bytes]]:
    return [
        (name_of(topic), partition.index, partition.records or b"")
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def assert_walked(frame: bytes, request: Any, version: int) -> None:
    parts = expected(request)
    for topic in request.topic_data:
        name_of(topic)
    found = walk(frame, version)
    assert [(part.topic, part.partition, frame[part.start : part.end]) for part in found.parts] == parts
    if version < 13:
        assert found.ids is None
    else:
        assert found.ids is not None
        assert found.ids.keys() == {name_of(topic) for topic in request.topic_data}
        assert all(NAMES[topic_id] == name for name, topic_id in found.ids.items())
    assert (found.transactional_id, found.acks) == (request.transactional_id, request.acks)
    assert kio.milliseconds(found.timeout_ms) == request.timeout


@every_version
@examples(8)
@given(data=st.data())
def test_a_request_is_walked_to_its_records(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version)))
    assert_walked(kio.request_frame(request), request, version)


_SIZES = [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_152]
_NAMES = ["t", "t" * 126, "t" * 127, "t" * 249, "Ürümqi"]


@every_version
def test_lengths_around_the_borders_of_their_encoding(version: int) -> None:
    for size in _SIZES:
        request = request_of(version, {"orders": {0: bytes(size), 7: b"behind"}})
        assert_walked(kio.request_frame(request), request, version)
    for name in _NAMES:
        for transactional_id in (None, "", "txn", "x" * 200):
            request = request_of(version, {name: {0: b"records", 7: b"behind"}}, transactional_id)
            assert_walked(kio.request_frame(request), request, version)


@pytest.mark.parametrize("version", [9, 13])
def test_a_length_that_never_ends_is_malformed_at_its_fifth_byte(version: int) -> None:
    """All of a frame of bytes that go on would be put together else, in a time that grows with their square."""
    named = b"\x02a" if version < 13 else bytes(16)
    head = b"\0\0" + pack(">hi", -1, 1) + b"\x02" + named + b"\x02" + pack(">i", 0)
    body = Watched(head + b"\xff" * 10_000 + bytes(8))
    with pytest.raises(MalformedFrameError, match="varint"):
        produce.walk(cast("bytes", body), 0, len(body), version)
    assert body.farthest <= len(head) + 5


class Watched(bytes):
    """Bytes that know how far they were read one by one."""

    farthest = 0

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, int):
            self.farthest = max(self.farthest, at)
        return super().__getitem__(at)


@every_version
@pytest.mark.parametrize(("topics", "partitions"), [(1, 126), (1, 127), (1, 200), (126, 1), (127, 2), (200, 1)])
def test_many_topics_and_partitions(version: int, topics: int, partitions: int) -> None:
    request = request_of(
        version, {f"topic-{number}": {index: b"%d" % index for index in range(partitions)} for number in range(topics)}
    )
    assert_walked(kio.request_frame(request), request, version)


@every_version
def test_a_partition_without_a_record_set_is_an_empty_one(version: int) -> None:
    (part,) = walk(kio.request_frame(request_of(version, {"t": {3: None}})), version).parts
    assert (part.topic, part.partition, part.start) == (b"t", 3, part.end)


def test_a_request_is_walked_without_tagged_fields_wherever_they_stood() -> None:
    tags = b"\x02\x05\x03abc\x87\x01\x00"
    writer = Writer()
    writer.raw(tags)
    writer.text(None, True)
    writer.i16(1)
    writer.i32(1000)
    writer.array(1, True)
    writer.text("orders", True)
    writer.array(2, True)
    for index, records in ((4, b"first"), (5, b"second")):
        writer.i32(index)
        writer.nullable_bytes(records, True)
        writer.raw(tags)
    writer.raw(tags + tags)
    tagged = writer.finish()
    for size in range(len(tagged)):
        with pytest.raises(MalformedFrameError):
            produce.walk(tagged[:size], 0, size, 9)
    with pytest.raises(TaggedFieldsError) as found_tags:
        produce.walk(b"head" + tagged, 4, 4 + len(tagged), 9)
    body = without_tags(b"head" + tagged, 0, 4 + len(tagged), found_tags.value.sections)[4:]
    assert len(body) == len(tagged) - 5 * (len(tags) - 1)
    found = produce.walk(body, 0, len(body), 9)
    assert [(part.partition, body[part.start : part.end]) for part in found.parts] == [(4, b"first"), (5, b"second")]


@every_version
@examples(4)
@given(data=st.data())
def test_a_request_cut_off_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    frame = kio.request_frame(data.draw(kio.messages(request_class(version))))
    for size in range(kio.body_at(), len(frame)):
        with pytest.raises(MalformedFrameError):
            walk(frame[:size], version)
        with pytest.raises(MalformedFrameError):  # the same, with other bytes behind it in the buffer
            produce.walk(frame, kio.body_at(), size, version)
    with pytest.raises(MalformedFrameError):
        walk(frame + b"\0", version)


@every_version
@examples(8)
@given(data=st.data())
def test_no_damaged_request_raises_anything_but_malformed(version: int, data: st.DataObject) -> None:
    frame = bytearray(kio.request_frame(data.draw(kio.messages(request_class(version)))))
    at = data.draw(st.integers(kio.body_at(), len(frame)))
    frame[at : at + 4] = data.draw(st.binary(min_size=1, max_size=6))
    with contextlib.suppress(MalformedFrameError):
        for part in walk(bytes(frame), version).parts:
            assert kio.body_at() <= part.start <= part.end <= len(frame)


@every_version
def test_lengths_that_no_frame_can_have_are_malformed(version: int) -> None:
    frame = bytearray(kio.request_frame(request_of(version, {"orders": {0: b"records"}})))
    for at in range(kio.body_at(), len(frame)):
        for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f"):
            damaged = bytes(frame[:at]) + lie + bytes(frame[at + len(lie) :])
            with contextlib.suppress(MalformedFrameError):
                for part in walk(damaged, version).parts:
                    assert kio.body_at() <= part.start <= part.end <= len(damaged)


# Answers --------------------------------------------------------------------------------------------------------------


def answer_class(version: int) -> Any:
    return kio.entity(0, version, "response")


def results_of(answer: Any, version: int) -> list[ProduceResult]:
    """What kio's answer says, as the node tells it."""
    found: list[ProduceResult] = []
    for topic in answer.responses:
        for partition in topic.partition_responses:
            errors = getattr(partition, "record_errors", ())
            time = partition.log_append_time
            found.append(
                ProduceResult(
                    name_of(topic),
                    partition.index,
                    partition.error_code.value,
                    partition.base_offset,
                    -1 if time is None else round(time.timestamp() * 1000),
                    getattr(partition, "log_start_offset", -1),
                    getattr(partition, "error_message", None),
                    tuple((error.batch_index, error.batch_index_error_message) for error in errors),
                )
            )
    return found


def without_leaders(answer: Any) -> Any:
    """The answer of a broker that leads all that it was asked for (KIP-951)."""
    if not hasattr(answer, "node_endpoints"):
        return answer
    topics = tuple(
        dataclasses.replace(topic, partition_responses=tuple(_led(each) for each in topic.partition_responses))
        for topic in answer.responses
    )
    return dataclasses.replace(answer, responses=topics, node_endpoints=())


def _led(partition: Any) -> Any:
    (default,) = (field.default for field in dataclasses.fields(partition) if field.name == "current_leader")
    return dataclasses.replace(partition, current_leader=default)


def distinct_topics(answer: Any) -> bool:
    names = [name_of(topic) for topic in answer.responses]
    return len(set(names)) == len(names) and all(topic.partition_responses for topic in answer.responses)


@every_version
@examples(8)
@given(data=st.data())
def test_an_answer_has_the_bytes_that_kio_writes_and_is_read_again(version: int, data: st.DataObject) -> None:
    answer = without_leaders(data.draw(kio.messages(answer_class(version)).filter(distinct_topics)))
    frame = kio.answer_frame(answer)
    results, throttle_ms = results_of(answer, version), kio.as_milliseconds(answer.throttle_time)
    assert produce.encode_answer(7, version, results, throttle_ms, ids(version)) == frame
    assert produce_upstream.decode_answer(frame, 0, len(frame), version, NAMES) == (results, throttle_ms)
    padded = b"behind another frame" + frame + b"in front of a third"
    assert produce_upstream.decode_answer(padded, 20, 20 + len(frame), version, NAMES) == (results, throttle_ms)
    if produce.all_appended(padded, 20, 20 + len(frame), version, len(results)):
        assert not any(result.error for result in results)
        told = [(each.partition, each.base_offset, each.log_append_time, each.log_start_offset) for each in results]
        assert produce.appended(padded, 20, 20 + len(frame), version, len(results)) == told
    else:
        assert produce.appended(padded, 20, 20 + len(frame), version, len(results)) is None
    assert produce.appended(padded, 20, 20 + len(frame), version, len(results) + 1) is None
    assert not produce.all_appended(padded, 20, 20 + len(frame), version, len(results) + 1)


@every_version
@pytest.mark.parametrize("name", ["t", "t" * 125, "t" * 126, "t" * 127, "t" * 249])
@pytest.mark.parametrize(("error", "message"), [(0, None), (7, None), (44, "held by billing"), (44, "")])
def test_the_usual_answer_of_one_partition(version: int, name: str, error: int, message: str | None) -> None:
    start = -1 if version < 5 else 3
    named(version, name)
    result = ProduceResult(name.encode(), 5, error, 1234, -1, start, message if version >= 8 else None)
    frame = produce.encode_answer(7, version, [result], 90, ids(version))
    answer = kio.answer_of(answer_class(version), frame)
    assert results_of(answer, version) == [result]
    assert kio.as_milliseconds(answer.throttle_time) == 90
    assert produce_upstream.decode_answer(frame, 0, len(frame), version, NAMES) == ([result], 90)
    usual = version < 9 or len(name) <= 126 or (version >= 13 and not message)
    assert produce.all_appended(frame, 0, len(frame), version, 1) == (usual and not error)
    assert not produce.all_appended(frame, 0, len(frame), version, 2)
    told = produce.appended(frame, 0, len(frame), version, 1)
    assert told == ([(5, 1234, -1, start)] if usual and not error else None)


@every_version
def test_results_of_one_topic_stand_together_whatever_their_order(version: int) -> None:
    results = [ProduceResult(b"a", 0, 0), ProduceResult(b"b", 0, 3), ProduceResult(b"a", 1, 6)]
    for name in ("a", "b"):
        named(version, name)
    answer = kio.answer_of(answer_class(version), produce.encode_answer(7, version, results, ids=ids(version)))
    assert [
        (name_of(topic).decode(), [found.index for found in topic.partition_responses]) for topic in answer.responses
    ] == [
        ("a", [0, 1]),
        ("b", [0]),
    ]


@every_version
@examples(4)
@given(data=st.data())
def test_an_answer_cut_off_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    frame = kio.answer_frame(data.draw(kio.messages(answer_class(version))))
    for size in range(8, len(frame)):
        with pytest.raises(MalformedFrameError):
            produce_upstream.decode_answer(frame[:size], 0, size, version)


def test_an_error_code_that_nobody_here_knows_passes_as_a_number() -> None:
    frame = produce.encode_answer(7, 9, [ProduceResult(b"t", 0, 32_000)])
    assert produce_upstream.decode_answer(frame, 0, len(frame), 9)[0][0].error == 32_000
    assert 32_000 not in {code.value for code in KioError}


# Requests of the node's making ----------------------------------------------------------------------------------------


@every_version
@examples(8)
@given(data=st.data())
def test_a_part_of_a_request_has_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    request = data.draw(
        kio.messages(request_class(version)).filter(
            lambda found: len({name_of(t) for t in found.topic_data}) == len(found.topic_data)
        )
    )
    records = [
        (name_of(topic), partition.index, partition.records or b"")
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    timeout_ms, known = kio.as_milliseconds(request.timeout), ids(version)
    parts = produce_upstream.encode_request(
        7, b"tests", version, request.acks, timeout_ms, records, request.transactional_id, known
    )
    frame = b"".join(parts)
    without_nulls = {
        name_of(topic).decode(): {partition.index: partition.records or b"" for partition in topic.partition_data}
        for topic in request.topic_data
        if topic.partition_data
    }
    if all(len(indexes := [p.index for p in t.partition_data]) == len(set(indexes)) for t in request.topic_data):
        again = request_of(version, without_nulls, request.transactional_id)
        assert frame == kio.request_frame(_with(again, request))
    assert [
        (part.topic, part.partition, frame[part.start : part.end]) for part in walk(frame, version).parts
    ] == records


def _with(again: Any, request: Any) -> Any:
    return type(again)(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout=request.timeout,
        topic_data=again.topic_data,
    )


@pytest.mark.parametrize("name", ["t", "t" * 249])
@pytest.mark.parametrize("size", [61, 70_000])
def test_the_nodes_own_request_for_one_batch_has_the_bytes_that_kio_writes(name: str, size: int) -> None:
    batch = bytes(size)
    parts = produce_upstream.encode_single(7, 30_000, produce_upstream.table_head(name.encode(), 5), batch)
    frame = kio.request_frame(request_of(8, {name: {5: batch}}), client_id="sidecar")
    assert b"".join(parts) == frame
    assert parts[-1] is batch, "the batch is not copied"


@pytest.mark.parametrize("version", [8, 9, 12, 13])
@pytest.mark.parametrize("client_id", ["", "billing;mode=exclusive"])
def test_a_request_that_goes_on_whole_is_what_the_client_sent_under_the_nodes_name(
    version: int, client_id: str
) -> None:
    frame = kio.request_frame(request_of(version, {"t": {5: bytes(61), 6: bytes(200)}}), client_id=client_id)
    rest = frame[14 + len(client_id) :]
    again = kio.request_frame(request_of(version, {"t": {5: bytes(61), 6: bytes(200)}}), client_id="sidecar")
    assert produce.whole_head(7, version, len(rest)) + rest == again


@every_version
@pytest.mark.parametrize("name", ["t", "t" * 126, "t" * 127, "t" * 249])
@pytest.mark.parametrize("sizes", [[61], [0, 126], [127, 16_382], [16_383, 70_000, 2_097_151], [61] * 126, [61] * 200])
def test_the_size_of_a_request_with_nothing_but_batches(version: int, name: str, sizes: list[int]) -> None:
    batches = {index: bytes(size) for index, size in enumerate(sizes)}
    frame = kio.request_frame(request_of(version, {name: batches}), client_id="billing")
    behind = len(frame) - 14 - len("billing")
    parts = [produce.ProducePart(name.encode(), index, 50, 50 + size) for index, size in enumerate(sizes)]
    assert produce.bare_bytes(version, name.encode(), parts) == behind
    more = kio.request_frame(request_of(version, {name: batches, "x": {}}), client_id="billing")
    assert produce.bare_bytes(version, name.encode(), parts) < len(more) - 14 - len("billing")


@every_version
def test_an_answer_to_the_node_becomes_one_to_its_client(version: int) -> None:
    named(version, "t")
    results = [ProduceResult(b"t", index, 0, 1234 + index, -1, -1) for index in range(3)]
    frame = bytearray(b"front" + produce.encode_answer(7, version, results, 9_000, ids(version)) + b"behind")
    produce.rename_answer(frame, 5, len(frame) - 6, version, 77)
    assert frame == b"front" + produce.encode_answer(77, version, results, ids=ids(version)) + b"behind"


# New leaders (KIP-951) ------------------------------------------------------------------------------------------------

LEADERS = {(b"a", 1): Leader(7, 12, "node-7", 19_092), (b"b", 0): Leader(7, 3, "node-7", 19_092)}


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_an_answer_says_which_node_leads_and_where_it_is_and_a_reader_finds_it(version: int) -> None:
    for name in ("a", "b"):
        named(version, name)
    results = [ProduceResult(b"a", 0, 0), ProduceResult(b"a", 1, 6), ProduceResult(b"b", 0, 6, message="moved")]
    frame = produce.encode_answer(7, version, results, 90, ids(version), LEADERS)
    answer = kio.answer_of(answer_class(version), frame)
    told = {
        (name_of(topic), each.index): (each.current_leader.leader_id, each.current_leader.leader_epoch)
        for topic in answer.responses
        for each in topic.partition_responses
    }
    assert told == {(b"a", 0): (-1, -1), (b"a", 1): (7, 12), (b"b", 0): (7, 3)}
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == [
        (7, "node-7", 19_092, None)
    ]
    found: produce_upstream.Leaders = {}
    assert produce_upstream.decode_answer(frame, 0, len(frame), version, NAMES, found) == (results, 90)
    assert found == {(b"a", 1): (7, 12), (b"b", 0): (7, 3)}
    assert not produce.all_appended(frame, 0, len(frame), version, 3)


@pytest.mark.parametrize("version", [10, 13])
@examples(8)
@given(data=st.data())
def test_what_any_broker_says_of_leaders_is_read(version: int, data: st.DataObject) -> None:
    answer = data.draw(kio.messages(answer_class(version)).filter(distinct_topics))
    frame = kio.answer_frame(answer)
    told = {
        (name_of(topic), each.index): (each.current_leader.leader_id, each.current_leader.leader_epoch)
        for topic in answer.responses
        for each in topic.partition_responses
        if each.current_leader != _led(each).current_leader
    }
    found: produce_upstream.Leaders = {}
    results = produce_upstream.decode_answer(frame, 0, len(frame), version, NAMES, found)
    assert results == (results_of(answer, version), kio.as_milliseconds(answer.throttle_time))
    assert found == told


def test_before_version_10_nobody_hears_of_leaders() -> None:
    results = [ProduceResult(b"a", 1, 6)]
    assert produce.encode_answer(7, 9, results, leaders=LEADERS) == produce.encode_answer(7, 9, results)
    assert produce.encode_answer(7, 8, results, leaders=LEADERS) == produce.encode_answer(7, 8, results)


# Ids (KIP-516) --------------------------------------------------------------------------------------------------------


def test_an_id_that_is_not_known_stands_for_a_topic_that_there_cannot_be() -> None:
    frame = kio.request_frame(request_of(13, {"known": {0: b"records"}, "gone": {1: b"more"}}))
    known = uuid5(NAMESPACE_URL, "known").bytes
    found = produce.walk(frame, kio.body_at(), len(frame), 13, {known: b"known"})
    gone = uuid5(NAMESPACE_URL, "gone").bytes
    assert [(part.topic, part.partition) for part in found.parts] == [(b"known", 0), (stand_in(gone), 1)]
    assert unknown_ids(found.ids) == [gone]
    assert not is_legal(stand_in(gone))
