"""Fetch in both twins: the compiled one reads what clients and brokers usually send, as the other does, and leaves it
everything else.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol import compiled, fetch, usual_fetch
from sidecar.protocol.fetch_parts import FetchPart, FetchRequest
from sidecar.protocol.leaders import Leader
from sidecar.protocol.primitives import MalformedFrameError
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples
from tests.unit.protocol.test_compiled import damaged

pytestmark = pytest.mark.skipif(
    compiled.COMPILED is None, reason="nothing was compiled: no Cython, no C compiler, or ruled out"
)
MODULE: ModuleType = compiled.COMPILED or usual_fetch
VERSIONS = range(4, 19)
every_version = pytest.mark.parametrize("version", VERSIONS)
TOPIC_ID = bytes(range(16))
NAMES = {TOPIC_ID: b"orders"}
BODY = kio.body_at("reader")


def usual_request(version: int, partitions: int = 2, topic: bytes = b"orders") -> bytes:
    tags = b"\0" if version >= 12 else b""
    called = TOPIC_ID if version >= 13 else topic
    elements = [
        (called, index.to_bytes(4, "big") + b"\7" * (fetch.partition_bytes(version) - 4) + tags)
        for index in range(partitions)
    ]
    return fetch.encode_request(7, b"reader", version, (500, 1, 1_000_000, 1), elements)


def usual_answer(version: int, partitions: int = 2, error: int = 0, records: bytes = b"r" * 300) -> bytearray:
    tags = b"\0" if version >= 12 else b""
    elements: list[tuple[bytes, Any]] = []
    for index in range(partitions):
        head = fetch.error_element(version, index, error if index == partitions - 1 else 0)
        size = (len(records) + 1).to_bytes(4, "big") if version < 12 else b""
        if version < 12:
            size = len(records).to_bytes(4, "big")
            element = head[: -len(size)] + size + records
        else:
            length = len(records) + 1
            element = head[:-2] + bytes([length & 0x7F | 0x80, length >> 7]) + records + tags
        elements.append((TOPIC_ID if version >= 13 else b"orders", element))
    return bytearray(b"".join(fetch.encode_answer(7, version, elements)))


def walked(frame: bytes | bytearray, body: int, end: int, version: int) -> Any:
    """What both say; an error is said by its kind and text."""
    said: list[Any] = []
    for walk in (fetch.walk, usual_fetch.walk):
        try:
            said.append(walk(frame, body, end, version, NAMES))
        except MalformedFrameError as malformed:
            said.append(repr(malformed))
    assert said[0] == said[1], f"{said[0]} in Python, {said[1]} compiled"
    return said[1]


@every_version
@pytest.mark.parametrize("partitions", [1, 3, 400])
def test_the_usual_request_is_read_by_the_compiled_twin(version: int, partitions: int) -> None:
    frame = usual_request(version, partitions)
    told = MODULE.walk_fetch(frame, BODY, len(frame), version, NAMES, FetchPart, FetchRequest, 1_000)
    assert type(told) is FetchRequest
    assert all(type(part) is FetchPart for part in told.parts)
    assert told == walked(frame, BODY, len(frame), version)
    assert (told.max_wait_ms, told.min_bytes, told.max_bytes, told.isolation) == (500, 1, 1_000_000, 1)
    assert [(part.topic, part.partition) for part in told.parts] == [(b"orders", index) for index in range(partitions)]


@every_version
def test_more_than_a_request_may_name_is_left_to_the_other_twin(version: int) -> None:
    """Topics count with their partitions, as there."""
    frame = usual_request(version, 4)
    assert MODULE.walk_fetch(frame, BODY, len(frame), version, NAMES, FetchPart, FetchRequest, 5) is not None
    assert MODULE.walk_fetch(frame, BODY, len(frame), version, NAMES, FetchPart, FetchRequest, 4) is None


@pytest.mark.parametrize("version", range(13, 19))
def test_a_topic_whose_id_is_not_known_is_left_to_the_other_twin(version: int) -> None:
    frame = usual_request(version)
    assert MODULE.walk_fetch(frame, BODY, len(frame), version, {}, FetchPart, FetchRequest, 1_000) is None


@every_version
@examples(40)
@given(data=st.data())
def test_both_walk_alike_whatever_comes(version: int, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        frame, body = kio.request_frame(data.draw(kio.messages(kio.entity(1, version, "request")))), kio.body_at()
    else:
        frame, body = usual_request(version), BODY
    found = damaged(data, frame, body)
    walked(found, body, data.draw(st.sampled_from([len(found), len(found), len(found) // 2])), version)


@every_version
def test_a_request_cut_off_anywhere_is_none(version: int) -> None:
    frame = usual_request(version)
    for size in range(BODY, len(frame)):
        for cut in (frame, frame[:size]):
            assert MODULE.walk_fetch(cut, BODY, size, version, NAMES, FetchPart, FetchRequest, 1_000) is None
    for first, end in ((-1, len(frame)), (BODY, len(frame) + 1), (len(frame) + 5, len(frame)), (BODY, 0)):
        assert MODULE.walk_fetch(frame, first, end, version, NAMES, FetchPart, FetchRequest, 1_000) is None


# Answers --------------------------------------------------------------------------------------------------------------


@every_version
@pytest.mark.parametrize("partitions", [0, 1, 3])
def test_an_answer_with_nothing_to_read_is_plain(version: int, partitions: int) -> None:
    frame = b"in front" + usual_answer(version, partitions)
    assert usual_fetch.is_plain(frame, 8, len(frame), version)
    assert len(fetch.walk_answer(frame, 8, len(frame), version).parts) == partitions


@every_version
@pytest.mark.parametrize("error", [1, 6, 256])
def test_an_answer_with_an_error_is_not(version: int, error: int) -> None:
    frame = usual_answer(version, 3, error)
    assert [part.error for part in fetch.walk_answer(frame, 0, len(frame), version).parts] == [0, 0, error]
    assert not usual_fetch.is_plain(frame, 0, len(frame), version)
    whole = bytearray(b"".join(fetch.encode_answer(7, version, [], error=error)))
    assert usual_fetch.is_plain(whole, 0, len(whole), version) == (version < 7)


@pytest.mark.parametrize("version", range(16, 19))
def test_an_answer_that_says_where_brokers_are_is_not(version: int) -> None:
    frame = bytearray(b"".join(fetch.encode_answer(7, version, [], leaders=[Leader(1, 2, "here", 9092)])))
    assert fetch.walk_answer(frame, 0, len(frame), version).has_addresses
    assert not usual_fetch.is_plain(frame, 0, len(frame), version)


@every_version
def test_an_answer_cut_off_anywhere_or_with_more_behind_it_is_not(version: int) -> None:
    frame = usual_answer(version)
    for size in range(len(frame)):
        assert not usual_fetch.is_plain(frame, 0, size, version)
        assert not usual_fetch.is_plain(frame[:size], 0, size, version)
    assert not usual_fetch.is_plain(frame + b"\0", 0, len(frame) + 1, version)
    for start, end in ((-1, len(frame)), (0, len(frame) + 1), (len(frame) + 5, len(frame)), (5, 0)):
        assert not usual_fetch.is_plain(frame, start, end, version)


@every_version
@examples(60)
@given(data=st.data())
def test_what_is_plain_has_nothing_that_the_other_twin_would_act_on(version: int, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        answer = data.draw(kio.messages(kio.entity(1, version, "response")))
        if data.draw(st.booleans()):
            topics = tuple(
                dataclasses.replace(
                    topic,
                    partitions=tuple(
                        dataclasses.replace(each, error_code=type(each.error_code)(0)) for each in topic.partitions
                    ),
                )
                for topic in answer.responses
            )
            answer = dataclasses.replace(answer, responses=topics)
        frame = kio.answer_frame(answer)
    else:
        frame = bytes(usual_answer(version))
    found = damaged(data, frame, 8)
    if usual_fetch.is_plain(found, 0, len(found), version):
        read = fetch.walk_answer(found, 0, len(found), version)
        assert (read.error, read.has_addresses) == (0, False)
        assert all(part.error == 0 and part.leader is None for part in read.parts)
