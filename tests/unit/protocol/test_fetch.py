"""Fetch in every version served, against kio: walked, made sessionless, split and merged."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sidecar.protocol import fetch
from sidecar.protocol.leaders import Leader
from sidecar.protocol.primitives import MalformedFrameError, TaggedFieldsError, without_tags
from sidecar.protocol.topic_ids import stand_in
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples

VERSIONS = range(4, 19)
every_version = pytest.mark.parametrize("version", VERSIONS)


def request_class(version: int) -> Any:
    return kio.entity(1, version, "request")


def answer_class(version: int) -> Any:
    return kio.entity(1, version, "response")


def walk(frame: bytes | bytearray, version: int) -> fetch.FetchRequest:
    return fetch.walk(frame, kio.body_at(), len(frame), version, _EveryId())


class _EveryId(dict[bytes, bytes]):
    """Every topic's name is its id."""

    def get(self, key: bytes, default: Any = None) -> Any:
        return key


def called(topic: Any) -> bytes:
    """The name of a topic, or its id."""
    if hasattr(topic, "topic"):
        return topic.topic.encode()
    return topic.topic_id.bytes if topic.topic_id else bytes(16)


def partitions(message: Any) -> list[tuple[bytes, Any]]:
    topics = message.topics if hasattr(message, "topics") else message.responses
    return [(called(topic), partition) for topic in topics for partition in topic.partitions]


@every_version
@examples(8)
@given(data=st.data())
def test_a_request_is_walked_to_its_partitions(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version), tagged=False))
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
@examples(6)
@given(data=st.data())
def test_declining_the_session_changes_nothing_else(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version), tagged=False))
    frame = bytearray(kio.request_frame(request))
    fetch.decline_session(frame, walk(frame, version))
    if version >= 7:
        request = dataclasses.replace(request, session_id=0, session_epoch=-1)
    assert frame == kio.request_frame(request)


@every_version
@examples(6)
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
    plain: dict[str, Any] = {"replica_id": -1} if version < 15 else {}
    plain["topics"] = tuple(topic for topic in request.topics if topic.partitions)
    if version >= 7:
        plain |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": ()}
    if version >= 11:
        plain["rack_id"] = ""
    expected = kio.request_frame(dataclasses.replace(untagged(request), **plain))
    assert fetch.encode_request(7, b"tests", version, limits, parts) == expected


def untagged(entity: Any) -> Any:
    """Without what tagged fields say."""
    fields = {field.name: field.default for field in dataclasses.fields(entity) if "tag" in field.metadata}
    return dataclasses.replace(entity, **fields)


def _named_once(message: Any) -> bool:
    topics = message.topics if hasattr(message, "topics") else message.responses
    return len({called(topic) for topic in topics}) == len(topics)


@every_version
@examples(2)
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
@examples(6)
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
@examples(8)
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
@examples(6)
@given(data=st.data())
def test_elements_put_together_again_have_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    answer = data.draw(kio.messages(answer_class(version)).filter(_named_once))
    answer = dataclasses.replace(answer, responses=tuple(topic for topic in answer.responses if topic.partitions))
    if version >= 7:
        answer = dataclasses.replace(untagged(answer), session_id=0)
    elements: list[Any] = [(topic, kio.body(partition)) for topic, partition in partitions(answer)]
    error = answer.error_code.value if version >= 7 else 0
    parts = fetch.encode_answer(7, version, elements, kio.as_milliseconds(answer.throttle_time), error)
    assert b"".join(parts) == kio.answer_frame(answer)
    for _, element in elements:
        assert any(part is element for part in parts), "elements are not copied"


@every_version
def test_a_partition_that_could_not_be_read_has_an_error_and_no_records(version: int) -> None:
    element, topic = fetch.error_element(version, 5, 6), b"orders" if version < 13 else b"an id of 16 byte"
    frame = b"".join(fetch.encode_answer(7, version, [(topic, element)]))
    ((name, found),) = partitions(kio.answer_of(answer_class(version), frame))
    assert (name, found.partition_index, found.error_code.value) == (topic, 5, 6)
    assert (found.high_watermark, found.last_stable_offset, found.records) == (-1, -1, b"")
    assert getattr(found, "preferred_read_replica", -1) == -1
    (part,) = fetch.walk_answer(frame, 0, len(frame), version).parts
    assert (part.error, frame[part.start : part.end]) == (6, element)


@every_version
@pytest.mark.parametrize(("error", "aborted"), [(3, ()), (29, ()), (100, ()), (1, None), (6, None), (74, None)])
def test_what_is_refused_unseen_has_no_aborted_transactions_and_the_rest_no_list_of_them(
    version: int, error: int, aborted: tuple[()] | None
) -> None:
    """As by a broker: `tests/sim/kafka/scenarios/fetch.py` compares the simulated one with real ones."""
    frame = b"".join(fetch.encode_answer(7, version, [(b"an id of 16 byte", fetch.error_element(version, 0, error))]))
    ((_, found),) = partitions(kio.answer_of(answer_class(version), frame))
    assert (found.error_code.value, found.aborted_transactions) == (error, aborted)


@every_version
@examples(8)
@given(data=st.data())
def test_a_partition_without_its_records_tells_of_no_aborted_transactions(version: int, data: st.DataObject) -> None:
    """None where the reader of committed records was told of some, null where Kafka tells of no list."""
    answer = data.draw(kio.messages(answer_class(version)))
    frame = kio.answer_frame(answer)
    walked = fetch.walk_answer(frame, 0, len(frame), version).parts
    for part, (_, partition) in zip(walked, partitions(answer), strict=True):
        aborted = None if partition.aborted_transactions is None else ()
        replica = {"preferred_read_replica": -1} if version >= 11 else {}
        expected = dataclasses.replace(untagged(partition), aborted_transactions=aborted, records=b"", **replica)
        assert fetch.empty_element(frame, part.start, version) == kio.body(expected)


@every_version
@examples(2)
@given(data=st.data())
def test_an_answer_cut_off_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    frame = kio.answer_frame(data.draw(kio.messages(answer_class(version))))
    for size in range(8, len(frame)):
        with pytest.raises(MalformedFrameError):
            fetch.walk_answer(frame, 0, size, version)


@every_version
@examples(8)
@given(data=st.data(), name=st.binary(min_size=1, max_size=249), before=st.binary(max_size=9))
def test_an_answers_first_topic_gets_another_name(
    version: int, data: st.DataObject, name: bytes, before: bytes
) -> None:
    answer = data.draw(kio.messages(answer_class(version)))
    name = name if version < 13 else name.ljust(16, b"x")[:16]
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


# Elements of one version as those of another --------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5, 19))
@examples(8)
@given(data=st.data())
def test_an_element_goes_to_v11_and_back(version: int, data: st.DataObject) -> None:
    answer = data.draw(kio.messages(answer_class(version)))
    for _, partition in partitions(answer):
        replica = {"preferred_read_replica": -1} if version >= 11 else {}
        given_part = dataclasses.replace(untagged(partition), **replica)
        if given_part.records is None:
            given_part = dataclasses.replace(given_part, records=b"")
        element = kio.body(given_part)
        as_v11 = bytes(fetch.converted(memoryview(element), version, 11))
        shared = {field.name for field in dataclasses.fields(given_part) if "tag" not in field.metadata}
        values = {name: getattr(given_part, name) for name in shared}
        inside = answer_class(11).__annotations__["responses"].__args__[0].__annotations__["partitions"].__args__[0]
        values["aborted_transactions"] = values["aborted_transactions"] and tuple(
            _aborted_of(inside)(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in values["aborted_transactions"]
        )
        assert as_v11 == kio.body(inside(**{"preferred_read_replica": -1} | values))
        assert bytes(fetch.converted(as_v11, 11, version)) == element
        assert fetch.record_bytes(element, version) == fetch.record_bytes(as_v11, 11) == len(given_part.records)


def _aborted_of(partition_class: Any) -> Any:
    return partition_class.__annotations__["aborted_transactions"].__args__[0].__args__[0]


@pytest.mark.parametrize("version", [12, 13, 17, 18])
@examples(12)
@given(data=st.data())
def test_what_a_consumer_asks_of_a_partition_is_the_same_in_all_versions(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version)))
    for _, partition in partitions(request):
        plain = fetch.plain_element(kio.body(partition))
        if partition != untagged(partition) or partition.last_fetched_epoch != -1:
            assert plain is None, "only a follower asks that"
            partition = dataclasses.replace(untagged(partition), last_fetched_epoch=-1)  # noqa: PLW2901
            plain = fetch.plain_element(kio.body(partition))
        assert plain is not None
        assert plain == struct.pack(
            ">iiqqi",
            partition.partition,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.log_start_offset,
            partition.partition_max_bytes,
        )
        assert fetch.flexible_element(plain) == kio.body(partition)


@pytest.mark.parametrize("version", range(12, 19))
@examples(8)
@given(data=st.data())
def test_who_asks_is_a_replica_or_nobody(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version)))
    said = request.replica_id if version < 15 else request.replica_state.replica_id
    frame = kio.request_frame(request)
    try:
        found = walk(frame, version)
    except TaggedFieldsError:
        assert said < 0, "a follower's request is refused by its replica, whatever else it has"
    else:
        assert found.replica_id == said


@pytest.mark.parametrize("version", range(12, 19))
@examples(8)
@given(data=st.data())
def test_a_consumers_request_goes_on_without_its_tagged_fields(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(request_class(version)))
    request = dataclasses.replace(
        request, **({"replica_id": -1} if version < 15 else {"replica_state": nobody(request)})
    )
    frame, bare = kio.request_frame(request), kio.request_frame(deeply_untagged(request))
    if frame == bare:
        walk(frame, version)
        return
    with pytest.raises(TaggedFieldsError) as found:
        walk(frame, version)
    assert (
        without_tags(b"between" + frame, 7, 7 + len(frame), [(a + 7, b + 7) for a, b in found.value.sections]) == bare
    )


def nobody(request: Any) -> Any:
    return dataclasses.replace(request.replica_state, replica_id=-1)


def deeply_untagged(request: Any) -> Any:
    topics = (dataclasses.replace(topic, partitions=tuple(map(untagged, topic.partitions))) for topic in request.topics)
    return dataclasses.replace(untagged(request), topics=tuple(topics))


# New leaders (KIP-951) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 16, 18])
@examples(12)
@given(data=st.data())
def test_what_a_broker_says_of_leaders_is_found_and_removed(version: int, data: st.DataObject) -> None:
    answer = data.draw(kio.messages(answer_class(version)))
    frame = kio.answer_frame(answer)
    found = fetch.walk_answer(frame, 0, len(frame), version)
    assert found.has_addresses == bool(getattr(answer, "node_endpoints", ()))
    for part, (_, partition) in zip(found.parts, partitions(answer), strict=True):
        said = partition.current_leader
        assert part.leader == (
            None if said == untagged(partition).current_leader else (said.leader_id, said.leader_epoch)
        )
        element = frame[part.start : part.end]
        assert fetch.with_leader(element, None) == kio.body(untagged(partition))


@pytest.mark.parametrize("version", [16, 17, 18])
def test_an_answer_says_which_node_leads_and_where_it_is(version: int) -> None:
    leader, topic = Leader(7, 12, "node-7", 19_092), b"an id of 16 byte"
    elements = [fetch.with_leader(fetch.error_element(version, 0, 6), leader), fetch.error_element(version, 1, 3)]
    frame = b"".join(fetch.encode_answer(7, version, [(topic, each) for each in elements], 90, 0, [leader, leader]))
    answer = kio.answer_of(answer_class(version), frame)
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == [
        (7, "node-7", 19_092, None)
    ]
    told = [(found.error_code.value, found.current_leader.leader_id) for _, found in partitions(answer)]
    assert told == [(6, 7), (3, -1)]


def test_an_id_that_is_not_known_stands_for_a_topic_that_there_cannot_be() -> None:
    known, gone = b"an id of 16 byte", b"and another one."
    element = fetch.flexible_element(struct.pack(">iiqqi", 3, -1, 7, -1, 1000))
    frame = fetch.encode_request(1, b"tests", 13, (0, 1, 1000, 0), [(known, element), (gone, element)])
    body = 14 + len(b"tests")
    found = fetch.walk(frame, body, len(frame), 13, {known: b"orders"})
    assert [(part.topic, part.partition) for part in found.parts] == [(b"orders", 3), (stand_in(gone), 3)]
    assert found.ids == {b"orders": known, stand_in(gone): gone}
