"""Produce in both twins: they say the same of any bytes, and the compiled one reads what clients and brokers usually
send.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error, pack_into
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol import batch, compiled, produce
from sidecar.protocol.batch import HEADER_BYTES, NO_TIME, Numbers, crc_matches, read_numbers
from sidecar.protocol.new_batch import NewRecord, build_batch
from sidecar.protocol.primitives import MalformedFrameError
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult
from sidecar.protocol.produce_upstream import encode_request
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples

pytestmark = pytest.mark.skipif(
    compiled.COMPILED is None, reason="nothing was compiled: no Cython, no C compiler, or ruled out"
)
MODULE: ModuleType = compiled.COMPILED or produce
every_version = pytest.mark.parametrize("version", range(3, 14))
TOPIC_ID = bytes(range(16))
NAMES = {TOPIC_ID: b"orders"}
NOW = 1_700_000_000_000


def alike(call: Callable[[], Any]) -> Any:
    """What both say; an error is said by its kind and text."""
    said: list[Any] = []
    for twin in (None, MODULE):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(produce, "COMPILED", twin)
            patch.setattr(batch, "COMPILED", twin)
            try:
                said.append(call())
            except MalformedFrameError as malformed:
                said.append(repr(malformed))
    assert said[0] == said[1], f"{said[0]} in Python, {said[1]} compiled"
    return said[1]


def damaged(data: st.DataObject, frame: bytes, first: int) -> bytearray:
    """The frame as it is, or with some bytes changed, left out or added from `first` on."""
    found = bytearray(frame)
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(first, len(found)))
        found[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
    return found


# Requests -------------------------------------------------------------------------------------------------------------


def usual_request(version: int, partitions: int = 2) -> bytes:
    parts = [(b"orders", index, b"r" * (100 * index + 1)) for index in range(partitions)]
    ids = {b"orders": TOPIC_ID} if version >= 13 else None
    return b"".join(encode_request(7, b"billing", version, -1, 30_000, parts, None, ids))


@every_version
@pytest.mark.parametrize("partitions", [1, 3, 126])
def test_the_usual_request_is_read_by_the_compiled_twin(version: int, partitions: int) -> None:
    frame, body = usual_request(version, partitions), kio.body_at("billing")
    told = MODULE.walk_produce(frame, body, len(frame), version, NAMES, ProducePart, ProduceRequest, 1_000)
    assert type(told) is ProduceRequest
    assert all(type(part) is ProducePart for part in told.parts)
    assert told == alike(lambda: produce.walk(frame, body, len(frame), version, NAMES))
    assert (told.acks, told.timeout_ms, told.transactional_id) == (-1, 30_000, None)
    assert [(part.topic, part.partition) for part in told.parts] == [(b"orders", index) for index in range(partitions)]


@pytest.mark.parametrize("version", range(3, 9))
def test_more_partitions_than_a_request_may_name_are_left_to_the_other_twin(version: int) -> None:
    frame, body = usual_request(version, 4), kio.body_at("billing")
    assert MODULE.walk_produce(frame, body, len(frame), version, NAMES, ProducePart, ProduceRequest, 4) is not None
    assert MODULE.walk_produce(frame, body, len(frame), version, NAMES, ProducePart, ProduceRequest, 3) is None


@every_version
@examples(40)
@given(data=st.data())
def test_both_walk_alike_whatever_comes(version: int, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        frame = kio.request_frame(data.draw(kio.messages(kio.entity(0, version, "request"))))
    else:
        frame = kio.request_frame(kio.entity(0, version, "request")(
            transactional_id=None, acks=1, timeout=kio.milliseconds(9), topic_data=()
        )) if data.draw(st.booleans()) else usual_request(version)  # fmt: skip
    found = damaged(data, frame, kio.body_at())
    end = data.draw(st.sampled_from([len(found), len(found), len(found) // 2]))
    body = kio.body_at("billing" if found[14:21] == b"billing" else "tests")
    alike(lambda: produce.walk(found, body, end, version, NAMES))


@every_version
def test_a_place_outside_the_buffer_is_left_to_the_other_twin(version: int) -> None:
    frame, body = usual_request(version), kio.body_at("billing")
    for first, end in ((-1, len(frame)), (body, len(frame) + 1), (len(frame) + 5, len(frame)), (body, 0)):
        assert MODULE.walk_produce(frame, first, end, version, NAMES, ProducePart, ProduceRequest, 9) is None


# Answers --------------------------------------------------------------------------------------------------------------


def usual_answer(version: int, *errors: int) -> bytes:
    results = [
        ProduceResult(b"orders", index, code, 2**40 + index, -1, 3 if version >= 5 else -1)
        for index, code in enumerate(errors)
    ]
    return produce.encode_answer(7, version, results, 90, {b"orders": TOPIC_ID} if version >= 13 else None)


@every_version
def test_the_usual_answer_is_read_by_the_compiled_twin(version: int) -> None:
    frame, log_start = usual_answer(version, 0, 0, 0), 3 if version >= 5 else -1
    assert MODULE.all_appended(frame, 0, len(frame), version, 3)
    told = MODULE.appended(frame, 0, len(frame), version, 3)
    assert told == [(index, 2**40 + index, -1, log_start) for index in range(3)]
    assert told == alike(lambda: produce.appended(frame, 0, len(frame), version, 3))
    for expected in (2, 4):
        assert not MODULE.all_appended(frame, 0, len(frame), version, expected)
        assert MODULE.appended(frame, 0, len(frame), version, expected) is None
    assert not MODULE.all_appended(frame, 0, len(frame) + 1, version, 3)


@every_version
def test_no_error_is_an_acknowledgement(version: int) -> None:
    for code in (1, 256, -1, 45):
        frame = usual_answer(version, 0, code)
        assert not MODULE.all_appended(frame, 0, len(frame), version, 2)
        assert not alike(lambda: produce.all_appended(frame, 0, len(frame), version, 2))  # noqa: B023 - called here


@every_version
@examples(40)
@given(data=st.data())
def test_both_read_answers_alike_whatever_comes(version: int, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        answer = data.draw(kio.messages(kio.entity(0, version, "response")))
        frame, expected = kio.answer_frame(answer), sum(len(topic.partition_responses) for topic in answer.responses)
    else:
        frame, expected = usual_answer(version, 0, 0), 2
    found = b"front" + damaged(data, frame, 8)
    place = found, 5, len(found) - data.draw(st.sampled_from([0, 0, 0, 1])), version, expected
    assert alike(lambda: produce.all_appended(*place)) == (alike(lambda: produce.appended(*place)) is not None)


@every_version
def test_an_answer_is_renamed_alike(version: int) -> None:
    found: list[bytes] = []

    def rename() -> bytes:
        frame = bytearray(b"front" + usual_answer(version, 0) + b"behind")
        produce.rename_answer(frame, 5, len(frame) - 6, version, 0x01020304)
        found.append(bytes(frame))
        return found[-1]

    alike(rename)
    assert found[0][9:13] == b"\1\2\3\4"
    with pytest.raises(ValueError, match="an answer of 3 bytes"):
        MODULE.rename_answer(bytearray(30), 5, 8, version, 1)


# Batches --------------------------------------------------------------------------------------------------------------

_FIELDS = {8: ">i", 12: ">i", 16: ">b", 21: ">h", 23: ">i", 27: ">q", 35: ">q", 43: ">q", 51: ">h", 53: ">i", 57: ">i"}


def a_batch(count: int, value: bytes = b"value", first_delta: int = 0) -> bytearray:
    records = [NewRecord(None, value, (), NOW + index + (first_delta if not index else 0)) for index in range(count)]
    found = build_batch(records, 1, 0, 0)
    batch.stamp(found, 0, len(found), 4711, 5, 77)
    return found


@pytest.mark.parametrize("size", [0, 40, 57, 58, 70, 8_000])
def test_the_numbers_of_a_sound_batch_are_read_by_the_compiled_twin(size: int) -> None:
    found = memoryview(a_batch(3, bytes(size)))
    told = MODULE.read_numbers(found, Numbers)
    assert type(told) is Numbers
    assert told == (4711, 5, 77, 3, NOW)
    assert told == alike(lambda: read_numbers(found))


def test_a_long_record_is_left_to_the_other_twin() -> None:
    found = memoryview(a_batch(1, bytes(20_000)))
    assert MODULE.read_numbers(found, Numbers) is None
    assert alike(lambda: read_numbers(found)) == (4711, 5, 77, 1, NOW)


@examples(160)
@given(data=st.data())
def test_both_read_numbers_alike_whatever_comes(data: st.DataObject) -> None:
    found = a_batch(data.draw(st.integers(1, 3)), data.draw(st.binary(max_size=80)))
    for at in data.draw(st.lists(st.sampled_from(sorted(_FIELDS)), max_size=2)):
        layout = Struct(_FIELDS[at])
        bits = 8 * layout.size - 1
        layout.pack_into(found, at, data.draw(st.integers(-(2**bits), 2**bits - 1) | st.integers(-2, 4)))
    for at in data.draw(st.lists(st.integers(HEADER_BYTES, len(found) - 1), max_size=2)):
        found[at] = data.draw(st.integers(0, 255))
    if data.draw(st.integers(0, 9)):  # nearly always the CRC fits
        pack_into(">I", found, 17, batch.crc32c(memoryview(found)[21:]))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, len(found) - 64, len(found)]))
    told = alike(lambda: read_numbers(memoryview(found)[: len(found) - cut]))
    assert told is None or told.newest >= NO_TIME


@given(
    producer_id=st.integers(-(2**63), 2**63 - 1), epoch=st.integers(-(2**15), 2**15 - 1),
    sequence=st.integers(-(2**31), 2**31 - 1), front=st.integers(0, 3),
)  # fmt: skip
def test_both_stamp_alike(producer_id: int, epoch: int, sequence: int, front: int) -> None:
    def stamped() -> bytes:
        found = bytearray(front) + a_batch(2) + b"behind"
        size = len(found) - front - 6
        batch.stamp(found, front, size, producer_id, epoch, sequence)
        assert crc_matches(found, front, size)
        return bytes(found)

    alike(stamped)


def test_nothing_is_stamped_outside_its_buffer_nor_with_numbers_that_do_not_fit() -> None:
    found = a_batch(1)
    before = bytes(found)
    for start, size in ((0, 60), (1, len(found)), (-1, len(found)), (len(found), 61)):
        with pytest.raises(ValueError, match="a record batch of"):
            MODULE.stamp(found, start, size, 1, 1, 1)
    with pytest.raises((BufferError, TypeError, ValueError)):
        MODULE.stamp(before, 0, len(before), 1, 1, 1)
    assert bytes(found) == before
    for numbers in ((2**63, 0, 0), (0, 2**15, 0), (0, 0, 2**31)):
        for twin, refusal in ((MODULE, OverflowError), (None, error)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(batch, "COMPILED", twin)
                with pytest.raises(refusal):
                    batch.stamp(found, 0, len(found), *numbers)
