"""A request moves with its frame."""

from __future__ import annotations

from sidecar.network import framing
from sidecar.network.framing import Frame
from sidecar.network.request import Request


def test_a_borrowed_request_that_is_owned_tells_how_far_its_positions_moved() -> None:
    data = b"\0\0\0\x0ahead body"
    framing.SHARED[100 : 100 + len(data)] = data
    request = Request(0, 8, 7, b"c", Frame(framing.SHARED, 100, 100 + len(data), False), 109)
    moved = request.own()
    framing.SHARED[100 : 100 + len(data)] = bytes(len(data))  # what arrives next overwrites it
    frame = request.frame
    assert (moved, request.body) == (-100, 9)
    assert bytes(frame.view(109 + moved, frame.end)) == b"body"


def test_a_request_in_memory_of_its_own_stays_there() -> None:
    frame = Frame(bytearray(20), 0, 20, True)
    request = Request(0, 8, 7, b"c", frame, 9)
    assert request.own() == 0
    assert request.frame is frame
    assert request.body == 9
