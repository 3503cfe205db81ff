"""Many Produce requests, or answers, of one read: found as the walk of a single one finds them, up to the first that is
not usual.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from struct import pack_into
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.gateway.gaps import signature
from sidecar.protocol import usual_produce
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult, encode_answer
from sidecar.protocol.produce_upstream import encode_request
from tests.unit.protocol.examples import examples
from tests.unit.protocol.test_compiled import MODULE, NAMES, TOPIC_ID, damaged

pytestmark = pytest.mark.skipif(not usual_produce.IS_COMPILED, reason="nothing was compiled")
every_version = pytest.mark.parametrize("version", range(3, 14))
HERE, THERE = object(), object()
ROUTES: dict[bytes, dict[int, Any]] = {b"orders": {0: HERE, 1: HERE, 2: THERE}, b"others": {0: HERE}}
BODY = 14 + len(b"billing")
LARGEST = 1_000_000


def request(version: int, *partitions: int, correlation: int = 7, acks: int = -1, record: bytes = b"r" * 70) -> bytes:
    parts = [(b"orders", index, record) for index in partitions or (0,)]
    ids = {b"orders": TOPIC_ID} if version >= 13 else None
    return b"".join(encode_request(correlation, b"billing", version, acks, 30_000, parts, None, ids))


def found(data: bytes | bytearray, version: int, **other: Any) -> list[usual_produce.UsualRequest]:
    given = {
        "start": 0, "end": len(data), "client_id": b"billing", "version": version, "names": NAMES, "routes": ROUTES,
        "largest": LARGEST, "most": 32, "elements": 100, "bound": 100,
    } | other  # fmt: skip
    return usual_produce.requests(data, *given.values())


@every_version
def test_all_of_a_row_is_found(version: int) -> None:
    rows = [request(version, *parts, correlation=index) for index, parts in enumerate([(0,), (1, 0), (2,), (1,)])]
    data = b"no part of it" + b"".join(rows) + rows[0][:-1]
    told = found(data, version, start=13)
    at = 13
    for index, (row, usual) in enumerate(zip(rows, told, strict=True)):
        start, end, correlation, route, parts, ids, kept = usual
        assert (start, end, correlation, route) == (at, at + len(row), index, THERE if index == 2 else HERE)
        walked = MODULE.walk_produce(data, start + BODY, end, version, NAMES, ProducePart, ProduceRequest, 100)
        assert all(type(part) is ProducePart for part in parts)
        assert (walked.parts, walked.ids) == (parts, ids)
        assert kept == [signature(data, part.start, part.end) for part in parts]
        at = end


@every_version
@pytest.mark.parametrize(
    ("changed", "least"),
    [
        ({"client_id": b"billinG"}, 0), ({"client_id": b"bill"}, 0), ({"client_id": b""}, 0),
        ({"routes": {}}, 0), ({"routes": {b"orders": {1: HERE}}}, 0), ({"routes": {b"orders": {0: HERE}}}, 1),
        ({"largest": 100}, 0), ({"most": 2}, 2), ({"most": 0}, 0), ({"most": -1}, 0), ({"elements": -1}, 0),
        ({"bound": 0}, 0), ({"start": -1}, 0), ({"end": 1_000_000}, 0), ({"end": 0}, 0), ({"start": 100, "end": 90}, 0),
    ],
)  # fmt: skip
def test_what_is_not_as_it_should_be_ends_the_row(version: int, changed: dict[str, Any], least: int) -> None:
    data = request(version) + request(version, 1) + request(version)
    assert len(found(data, version)) == 3
    assert len(found(data, version, **changed)) == least


@every_version
def test_so_does_another_form(version: int) -> None:
    usual = request(version)
    twice = bytearray(request(version, 0, 1))
    at = twice.rindex(b"\0\0\0\1", 0, twice.rindex(b"r" * 70))
    twice[at : at + 4] = bytes(4)
    others = [
        request(version, 0, 2),
        request(version, acks=0),
        request(version, 3),
        request(version, record=b""),
        twice,
    ]
    for api_key, its_version in ((1, version), (256, version), (0, version ^ 1)):
        other = bytearray(usual)
        pack_into(">hh", other, 4, api_key, its_version)
        others.append(other)
    for size in (-1, -5, 0, 5, len(usual) - 5, 2**31 - 1):
        other = bytearray(usual)
        pack_into(">i", other, 0, size)
        others.append(other)
    for other in others:
        assert len(found(usual + other + usual, version)) == 1, other
    if version >= 13:
        assert found(usual, version, names={}) == []


@every_version
def test_after_many_partitions_others_have_their_turn(version: int) -> None:
    data = request(version, 0, 1) * 5 + request(version)
    assert len(found(data, version, elements=3)) == 2
    assert len(found(data, version, elements=100)) == 6
    assert len(found(data, version, bound=1)) == 0


@every_version
@examples(60)
@given(data=st.data())
def test_whatever_comes_is_found_as_each_is_walked(version: int, data: st.DataObject) -> None:
    whole = [request(version, *data.draw(st.sampled_from([(0,), (1,), (0, 1), (2,), (3,)]))) for _ in range(3)]
    damage = data.draw(st.integers(0, 2))
    buffer = bytearray(b"".join(bytes(damaged(data, row, 0)) if at == damage else row for at, row in enumerate(whole)))
    told = found(buffer, version)
    at = 0
    for start, end, correlation, route, parts, ids, _ in told:
        assert start == at
        assert end - start == 4 + int.from_bytes(buffer[at : at + 4], "big")
        assert buffer[at + 4 : at + 8] == bytes([0, 0, 0, version])
        assert buffer[at + 12 : at + BODY] == b"\0\7billing"
        assert correlation == int.from_bytes(buffer[at + 8 : at + 12], "big", signed=True)
        walked = MODULE.walk_produce(buffer, at + BODY, end, version, NAMES, ProducePart, ProduceRequest, 100)
        assert walked is not None
        assert walked.acks
        assert (walked.parts, walked.ids) == (parts, ids)
        assert {id(ROUTES[part.topic][part.partition]) for part in parts} == {id(route)}
        at = end


# Answers --------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Waiter:
    correlation_id: int
    version: int
    parts: list[int] = field(default_factory=lambda: [0])


class Other(Waiter):
    """Waits for the answer to something else."""


def answer(version: int, correlation: int, *errors: int) -> bytes:
    results = [ProduceResult(b"orders", index, code, 40) for index, code in enumerate(errors or (0,))]
    return encode_answer(correlation, version, results, 0, {b"orders": TOPIC_ID} if version >= 13 else None)


def acknowledged(data: bytes, waiting: list[Waiter], order: list[Waiter] | None = None, **other: int) -> list[int]:
    given = {"start": 0, "end": len(data)} | other
    places = given["start"], given["end"], deque(waiting), deque(waiting if order is None else order)
    return usual_produce.answers(data, *places, Waiter)


@every_version
def test_all_usual_answers_of_a_row_are_found(version: int) -> None:
    waiting = [Waiter(7, version), Waiter(2**31 - 1, version, [0, 1]), Waiter(-9, version)]
    rows = [answer(version, 7), answer(version, 2**31 - 1, 0, 0), answer(version, -9)]
    data, sizes = b"".join(rows), [len(row) for row in rows]
    assert acknowledged(data, waiting) == sizes
    assert acknowledged(b"??" + data + rows[0], waiting, start=2) == sizes
    assert acknowledged(data[:-1], waiting) == sizes[:2]
    assert acknowledged(data, waiting[:2]) == sizes[:2]
    assert acknowledged(data, waiting, order=waiting[:1]) == sizes[:1]
    for place in ({"start": -1}, {"end": 100_000}, {"end": 0}):
        assert acknowledged(data, waiting, **place) == []


@every_version
def test_an_answer_that_is_not_usual_ends_the_row(version: int) -> None:
    first, waits = answer(version, 7), Waiter(7, version)
    for row, waiter in (
        (answer(version, 8, 3), Waiter(8, version)),
        (answer(version, 8, 0, 0), Waiter(8, version)),
        (answer(version, 8), Waiter(8, version, [0, 1])),
        (answer(version, 9), Waiter(8, version)),
        (answer(version, 8), Waiter(8, 4 if version > 8 else 9)),
        (answer(version, 8), Other(8, version)),
        (b"\0\0\0\2\0\0", Waiter(8, version)),
        (b"\xff\xff\xff\xff" + bytes(9), Waiter(8, version)),
    ):
        data = first + row + answer(version, 10)
        assert acknowledged(data, [waits, waiter, Waiter(10, version)]) == [len(first)], row
    second = Waiter(8, version)
    data = first + answer(version, 8)
    assert acknowledged(data, [waits, second], [waits, Waiter(8, version), second]) == [len(first)]


@every_version
@examples(60)
@given(data=st.data())
def test_whatever_comes_is_believed_only_in_its_usual_form(version: int, data: st.DataObject) -> None:
    rows = [answer(version, 7), bytes(damaged(data, answer(version, 8), 0)), answer(version, 9)]
    buffer, at = b"".join(rows), 0
    for size, correlation in zip(
        acknowledged(buffer, [Waiter(n, version) for n in (7, 8, 9)]), (7, 8, 9), strict=False
    ):
        assert size == 4 + int.from_bytes(buffer[at : at + 4], "big")
        assert int.from_bytes(buffer[at + 4 : at + 8], "big") == correlation
        assert MODULE.all_appended(buffer, at, at + size, version, 1)
        at += size
