"""A request is a repetition where nothing but its offset has changed, and asks what it would ask if it were read."""

from __future__ import annotations

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from sidecar.fanout.question import Asked, asked_by
from sidecar.fanout.repeat import MOST_BYTES, Lines, Repeat
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import Position, element_of

_OFFSETS = st.integers(-2, 2**63 - 1)


def frame(offset: int, *, wait_ms: int = 500, most: int = 1000, partition: int = 3, epoch: int = 5) -> bytearray:
    element = element_of(Position(b"orders", partition, epoch, offset), most)
    return bytearray(fetch.encode_request(1, b"app", 11, (wait_ms, 1, 1 << 20, 1), [(b"orders", element)]))


def resized(message: bytearray) -> bytearray:
    return bytearray(pack(">i", len(message) - 4)) + message[4:]


def body_of(message: bytearray) -> int:
    return 14 + int.from_bytes(message[12:14], "big")


def read(message: bytearray, log: bytes = b"source") -> tuple[fetch.FetchRequest, Asked]:
    fields = fetch.walk(message, body_of(message), len(message), 11)
    part = fields.parts[0]
    asked = asked_by(message[part.start : part.end], log, fields.isolation, 11)
    assert asked is not None
    return fields, asked


def request(message: bytearray) -> Request:
    return Request(1, 11, 1, b"app", Frame(message, 0, len(message), owned=True), body_of(message))


def repeat_of(message: bytearray) -> Repeat | None:
    return Repeat.of(request(message), *read(message), Lines())


@given(_OFFSETS, _OFFSETS)
def test_another_offset_is_asked_for_as_if_the_request_were_read(first: int, second: int) -> None:
    repeat, message = repeat_of(frame(first)), frame(second)
    assert repeat is not None
    assert repeat.asks(request(message).frame) == read(message)[1]


def test_anything_else_is_read_anew() -> None:
    repeat = repeat_of(frame(7))
    assert repeat is not None
    for other in (
        frame(8, wait_ms=501), frame(8, most=1001), frame(8, partition=4), frame(8, epoch=6), resized(frame(8) + b"\0"),
        resized(frame(8)[:-1]),
    ):  # fmt: skip
        assert repeat.asks(request(other).frame) is None


def test_another_api_version_or_client_is_read_anew_another_correlation_id_is_not() -> None:
    message = frame(7)
    repeat = repeat_of(message)
    assert repeat is not None
    for at, value, is_same in ((5, 9, False), (7, 10, False), (14, ord("A"), False), (11, 99, True)):
        other = frame(8)
        other[at] = value
        assert (repeat.asks(request(other).frame) is not None) == is_same
    assert repeat.correlation_id == 99


def test_those_who_ask_the_same_share_the_question_at_every_offset() -> None:
    lines = Lines()
    first, second = (Repeat.of(request(frame(at)), *read(frame(at)), lines) for at in (7, 8))
    other = Repeat.of(request(frame(7, most=2000)), *read(frame(7, most=2000)), lines)
    assert first is not None
    assert second is not None
    assert other is not None
    for offset in range(9, 200):
        asked = first.asks(request(frame(offset)).frame)
        assert asked is not None
        assert asked is second.asks(request(frame(offset)).frame)
        assert asked is not other.asks(request(frame(offset, most=2000)).frame)


def test_a_follower_is_always_read_anew() -> None:
    message = frame(7)
    for broker in (0, 2):
        message[body_of(message) : body_of(message) + 4] = pack(">i", broker)
        assert repeat_of(message) is None


def test_a_large_request_is_not_remembered() -> None:
    message = frame(7)
    rest = MOST_BYTES - len(message)
    for more, is_remembered in ((rest, True), (rest + 1, False)):
        rack = pack(">h", more) + b"r" * more
        assert (repeat_of(message[:-2] + rack) is not None) == is_remembered
