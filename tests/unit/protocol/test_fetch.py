"""Fetch in every version served, against kio: walked, made sessionless, split and merged."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sidecar.protocol import fetch
from sidecar.protocol.primitives import MalformedFrameError
from tests.unit.protocol import kio_entities as kio

VERSIONS = range(4, 12)
every_version = pytest.mark.parametrize("version", VERSIONS)


def request_class(version: int) -> Any:
    return kio.entity(1, version, "request")


def answer_class(version: int) -> Any:
    return kio.entity(1, version, "response")


def walk(frame: bytes | bytearray, version: int) -> fetch.FetchRequest:
    return fetch.walk(frame, kio.body_at(), len(frame), version)


def partitions(message: Any) -> list[tuple[bytes, Any]]:
    topics = message.topics if hasattr(message, "topics") else message.responses
    return [(topic.topic.encode(), partition) for topic in topics for partition in topic.partitions]


@every_version
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_is_walked_to_its_partitions(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version)))
    frame = kio.request_frame(request)
    found = walk(frame, version)
    assert kio.milliseconds(found.max_wait_ms) == request.max_wait
    assert (found.min_bytes, found.max_bytes, found.isolation) == (
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
    )
    assert found.session_id == getattr(request, "session_id", 0)
    assert found.session_epoch == getattr(request, "session_epoch", fetch.FINAL_EPOCH)
    assert found.has_rack == bool(getattr(request, "rack_id", ""))
    assert [(part.topic, part.partition) for part in found.parts] == [
        (topic, partition.partition) for topic, partition in partitions(request)
    ]
    for part, (_, partition) in zip(found.parts, partitions(request), strict=True):
        assert frame[part.start : part.end] == kio.body(partition)


@every_version
@settings(max_examples=15)
@given(data=st.data())
def test_declining_the_session_changes_nothing_else(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version)))
    frame = bytearray(kio.request_frame(request))
    fetch.decline_session(frame, walk(frame, version))
    if version >= 7:
        request = dataclasses.replace(request, session_id=0, session_epoch=-1)
    assert frame == kio.request_frame(request)


@every_version
@settings(max_examples=15)
@given(data=st.data())
def test_a_part_of_a_request_has_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version)).filter(_named_once))
    limits = (
        kio.as_milliseconds(request.max_wait),
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
    )
    parts: list[Any] = [(topic, kio.body(partition)) for topic, partition in partitions(request)]
    plain: dict[str, Any] = {"replica_id": -1}
    plain["topics"] = tuple(topic for topic in request.topics if topic.partitions)
    if version >= 7:
        plain |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": ()}
    if version >= 11:
        plain["rack_id"] = ""
    expected = kio.request_frame(dataclasses.replace(request, **plain))
    assert fetch.encode_request(7, b"tests", version, limits, parts) == expected


def _named_once(message: Any) -> bool:
    topics = message.topics if hasattr(message, "topics") else message.responses
    return len({topic.topic for topic in topics}) == len(topics)


@every_version
@settings(max_examples=5)
@given(data=st.data())
def test_a_request_cut_off_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    frame = kio.request_frame(data.draw(kio.messages(request_class(version))))
    for size in range(kio.body_at(), len(frame)):
        with pytest.raises(MalformedFrameError):
            walk(frame[:size], version)
        with pytest.raises(MalformedFrameError):
            fetch.walk(frame, kio.body_at(), size, version)
    with pytest.raises(MalformedFrameError):
        walk(frame + b"\0", version)


@every_version
@settings(max_examples=15)
@given(data=st.data())
def test_no_damaged_request_raises_anything_but_malformed(version: int, data: st.DataObject) -> None:
    frame = bytearray(kio.request_frame(data.draw(kio.messages(request_class(version)))))
    at = data.draw(st.integers(kio.body_at(), len(frame)))
    frame[at : at + 4] = data.draw(st.binary(min_size=1, max_size=6))
    with contextlib.suppress(MalformedFrameError):
        walk(bytes(frame), version)


def test_a_rack_that_is_null_is_none() -> None:
    frame = bytearray(kio.request_frame(_minimal(11)))
    frame[-2:] = b"\xff\xff"
    assert not walk(frame, 11).has_rack


def _minimal(version: int) -> Any:
    cls = request_class(version)
    fields = {field.name for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {"replica_id": -1, "max_wait": kio.milliseconds(500), "min_bytes": 1, "max_bytes": 1000}
    values |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "topics": (), "forgotten_topics_data": ()}
    return cls(**{name: value for name, value in (values | {"rack_id": ""}).items() if name in fields})


# Answers --------------------------------------------------------------------------------------------------------------


@every_version
@settings(max_examples=20)
@given(data=st.data())
def test_an_answer_is_walked_to_its_partitions(version: int, data: st.DataObject) -> None:
    answer = data.draw(kio.messages(answer_class(version)))
    frame = b"in front" + kio.answer_frame(answer)
    found = fetch.walk_answer(frame, 8, len(frame), version)
    assert kio.milliseconds(found.throttle_ms) == answer.throttle_time
    assert found.error == (answer.error_code.value if version >= 7 else 0)
    assert [(part.topic, part.partition, part.error, part.record_bytes) for part in found.parts] == [
        (topic, partition.partition_index, partition.error_code.value, len(partition.records or b""))
        for topic, partition in partitions(answer)
    ]
    for part, (_, partition) in zip(found.parts, partitions(answer), strict=True):
        assert frame[part.start : part.end] == kio.body(partition)


@every_version
@settings(max_examples=15)
@given(data=st.data())
def test_elements_put_together_again_have_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    answer = data.draw(kio.messages(answer_class(version)).filter(_named_once))
    answer = dataclasses.replace(answer, responses=tuple(topic for topic in answer.responses if topic.partitions))
    if version >= 7:
        answer = dataclasses.replace(answer, session_id=0)
    elements: list[Any] = [(topic, kio.body(partition)) for topic, partition in partitions(answer)]
    error = answer.error_code.value if version >= 7 else 0
    parts = fetch.encode_answer(7, version, elements, kio.as_milliseconds(answer.throttle_time), error)
    assert b"".join(parts) == kio.answer_frame(answer)
    for _, element in elements:
        assert any(part is element for part in parts), "elements are not copied"


@every_version
def test_a_partition_that_could_not_be_read_has_an_error_and_no_records(version: int) -> None:
    element = fetch.error_element(version, 5, 6)
    frame = b"".join(fetch.encode_answer(7, version, [(b"orders", element)]))
    ((name, found),) = partitions(kio.answer_of(answer_class(version), frame))
    assert (name, found.partition_index, found.error_code.value) == (b"orders", 5, 6)
    assert (found.high_watermark, found.last_stable_offset, found.records) == (-1, -1, b"")
    assert getattr(found, "preferred_read_replica", -1) == -1
    (part,) = fetch.walk_answer(frame, 0, len(frame), version).parts
    assert (part.error, frame[part.start : part.end]) == (6, element)


@every_version
@settings(max_examples=20)
@given(data=st.data())
def test_a_partition_without_its_records_tells_of_no_aborted_transactions(version: int, data: st.DataObject) -> None:
    """None where the reader of committed records was told of some, null where Kafka tells of no list."""
    answer = data.draw(kio.messages(answer_class(version)))
    frame = kio.answer_frame(answer)
    walked = fetch.walk_answer(frame, 0, len(frame), version).parts
    for part, (_, partition) in zip(walked, partitions(answer), strict=True):
        aborted = None if partition.aborted_transactions is None else ()
        replica = {"preferred_read_replica": -1} if version >= 11 else {}
        expected = dataclasses.replace(partition, aborted_transactions=aborted, records=b"", **replica)
        assert fetch.empty_element(frame, part.start, version) == kio.body(expected)


@every_version
@settings(max_examples=5)
@given(data=st.data())
def test_an_answer_cut_off_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    frame = kio.answer_frame(data.draw(kio.messages(answer_class(version))))
    for size in range(8, len(frame)):
        with pytest.raises(MalformedFrameError):
            fetch.walk_answer(frame, 0, size, version)


@every_version
@settings(max_examples=20)
@given(data=st.data(), name=st.binary(min_size=1, max_size=249), before=st.binary(max_size=9))
def test_an_answers_first_topic_gets_another_name(
    version: int, data: st.DataObject, name: bytes, before: bytes
) -> None:
    answer = data.draw(kio.messages(answer_class(version)))
    frame = bytearray(before + kio.answer_frame(answer) + b"next")
    end = len(frame) - 4
    walked = fetch.walk_answer(frame, len(before), end, version)
    assume(walked.parts)
    assume(answer.responses[0].partitions)
    head, rest = fetch.with_first_topic(frame, len(before), end, version, name)
    renamed = head + frame[rest:end]
    found = fetch.walk_answer(renamed, 0, len(renamed), version)
    size = int.from_bytes(renamed[:4], "big")
    assert size == len(renamed) - 4
    first = len(answer.responses[0].partitions)
    assert [part.topic for part in found.parts[:first]] == [name] * first
    assert [part.topic for part in found.parts[first:]] == [part.topic for part in walked.parts[first:]]
    elements = [bytes(frame[part.start : part.end]) for part in walked.parts]
    assert [renamed[part.start : part.end] for part in found.parts] == elements
    assert (found.throttle_ms, found.error) == (walked.throttle_ms, walked.error)
