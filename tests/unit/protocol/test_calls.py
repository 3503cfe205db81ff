"""The node's own requests against kio, which is generated from Kafka's message definitions: the same bytes."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError
from kio.schema.fetch.v11 import response as fetch_response
from kio.serial import entity_writer

from sidecar.protocol.caller import BadAnswerError, CoordinatorKind, decode_frame, encode_frame
from sidecar.protocol.calls.admin import Described, FindCoordinator
from sidecar.protocol.calls.logs import Fetched, FetchPartition
from sidecar.protocol.calls.transactions import EndTxn
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.protocol.primitives import I16, Reader, Writer
from tests.unit.protocol.call_case import NO_THROTTLE, STAMP, Case
from tests.unit.protocol.call_cases import CASES

CORRELATION_ID = 77


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


every_call = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def answer_frame(case: Case) -> bytes:
    writer = Writer()
    writer.i32(CORRELATION_ID)
    writer.tags(case.request.flexible and case.request.api_key != 18)  # KIP-511
    writer.raw(kio_bytes(case.kio_answer))
    return writer.finish()


def decode(case: Case, frame: bytes) -> Any:
    return decode_frame(case.request, CORRELATION_ID, frame, 0, len(frame))


@every_call
def test_a_request_has_the_bytes_that_kio_writes(case: Case) -> None:
    writer = Writer()
    case.request.encode(writer)
    assert writer.finish() == kio_bytes(case.kio_request)
    assert case.request.api_key == case.kio_request.__api_key__
    assert case.request.api_version == case.kio_request.__version__
    assert case.request.flexible == case.kio_request.__flexible__


@every_call
def test_an_answer_that_kio_wrote_is_read(case: Case) -> None:
    assert decode(case, answer_frame(case)) == case.answer


@every_call
def test_an_answer_cut_off_anywhere_is_a_protocol_error(case: Case) -> None:
    frame = answer_frame(case)
    for size in range(len(frame)):
        with pytest.raises(BadAnswerError, match=rf"api key {case.request.api_key} v{case.request.api_version}"):
            decode(case, frame[:size])


@every_call
def test_an_answer_with_something_behind_it_is_a_protocol_error(case: Case) -> None:
    with pytest.raises(BadAnswerError):
        decode(case, answer_frame(case) + b"\x00")


@every_call
@given(data=st.data())
def test_no_damaged_answer_raises_anything_but_a_protocol_error(case: Case, data: st.DataObject) -> None:
    frame = bytearray(answer_frame(case))
    at = data.draw(st.integers(4, len(frame) - 1))
    frame[at : at + 4] = data.draw(st.binary(min_size=1, max_size=4))
    with contextlib.suppress(BadAnswerError):
        decode(case, bytes(frame))


def test_an_answer_to_another_request_is_a_protocol_error() -> None:
    case = CASES["EndTxn"]
    frame = answer_frame(case)
    with pytest.raises(BadAnswerError, match="correlation id 77 instead of 78"):
        decode_frame(case.request, CORRELATION_ID + 1, frame, 0, len(frame))


def test_an_answer_about_another_partition_is_a_protocol_error() -> None:
    case = CASES["FetchPartition"]
    frame = answer_frame(case)
    asked = FetchPartition(TopicPartition("orders", 4), Offset(0), max_wait_ms=0, max_bytes=1)
    with pytest.raises(BadAnswerError, match="Fetch of orders-4 answered for orders-3"):
        decode_frame(asked, CORRELATION_ID, frame, 0, len(frame))


@pytest.mark.parametrize("code", [-1, 119, 512, 32_767])
def test_an_error_code_that_nobody_here_knows_passes_as_a_number(code: int) -> None:
    frame = bytearray(answer_frame(CASES["InitProducerId"]))
    at = 4 + 1 + 4  # correlation id, header tags, throttle time
    I16.pack_into(frame, at, code)
    assert decode(CASES["InitProducerId"], bytes(frame)).error == code


def test_tagged_fields_of_a_newer_broker_are_stepped_over() -> None:
    body = kio_bytes(CASES["EndTxn"].kio_answer)
    tagged = body[:-1] + b"\x01\x07\x03abc"
    assert CASES["EndTxn"].request.decode(Reader(tagged)) == 51


def test_a_fetch_refused_as_a_whole_is_an_error_without_records() -> None:
    refused = fetch_response.FetchResponse(
        throttle_time=NO_THROTTLE, error_code=KioError.fetch_session_id_not_found, responses=()
    )
    request = CASES["FetchPartition"].request
    assert request.decode(Reader(kio_bytes(refused))) == Fetched(70, Offset(-1), Offset(-1), Offset(-1), b"")


def test_a_frame_carries_key_version_correlation_id_and_client_id() -> None:
    flexible = encode_frame(EndTxn("t", STAMP), 5, "sidecar-1")
    plain = encode_frame(FindCoordinator("t", CoordinatorKind.GROUP), 6, "sidecar-1")
    assert (
        flexible[:22] == len(flexible[4:]).to_bytes(4) + b"\x00\x1a\x00\x03\x00\x00\x00\x05\x00\x09sidecar-1\x00"[:18]
    )
    assert flexible[14:24] == b"sidecar-1\x00"
    assert plain[4:] == b"\x00\x0a\x00\x01\x00\x00\x00\x06\x00\x09sidecar-1" + b"\x00\x01t\x00"


def test_a_duration_without_a_limit_is_none() -> None:
    described = Described(0, None, {"retention.ms": "-1", "segment.ms": "10"})
    assert described.milliseconds("retention.ms") is None
    assert described.milliseconds("segment.ms") == 10
    assert described.milliseconds("delete.retention.ms") is None


def test_a_login_is_never_shown() -> None:
    case = CASES["SaslAuthenticate"]
    assert "secret" not in repr(case.request)
    assert "proof" not in repr(case.answer)
