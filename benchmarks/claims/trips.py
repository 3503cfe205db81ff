"""One request at a time: what claims of strings and topics take, beside a plain append to Kafka in the same turns."""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

from benchmarks.claims.calls import expect, new_token, own, release, strings
from benchmarks.measures import Target
from benchmarks.raw_client import Connection, IdempotentProducer, new_producer
from sidecar.protocol.caller import decode_frame, encode_frame
from sidecar.protocol.own import DescribeOwners
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from sidecar.protocol.own import Own, Release

Samples = dict[str, list[float]]
"""Milliseconds by key of a row (`benchmarks.claims.rows`)."""

VALUE_BYTES: Final = 100
RESOURCES: Final = 1_000
"""In one request: the most that a node takes."""
PARTITIONS: Final = 16
_WARM: Final = 3
_SETTLE_S: Final = 30.0
_BLOCK: Final = 10


class Lane(Protocol):
    """What is asked over one connection, one request after the other."""

    connection: Connection

    def prepare(self) -> bytes | bytearray:
        """The next request."""
        ...

    def check(self, answer: bytearray) -> str:
        """Of which row the answer was. Raises NotAnsweredError, RefusedError."""
        ...


class _Append:
    """One record of 100 B to the broker itself, acks=all: what a claim costs at least."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self.connection = connection
        self._producer = IdempotentProducer(new_producer(connection), topic, VALUE_BYTES)

    def prepare(self) -> bytearray:
        return self._producer.prepare()

    def check(self, answer: bytearray) -> str:
        self._producer.check(answer)
        return "append"


class _Pair:
    """Own and Release of the same resources in turns, with a new token each time."""

    def __init__(self, connection: Connection, resources: list[control.Resource], suffix: str = "") -> None:
        self.connection = connection
        self._resources = resources
        self._suffix = suffix
        self._token = b""
        self._request: Own | Release = release(b"")

    def prepare(self) -> bytes:
        if self._token:
            self._request, self._token = release(self._token), b""
        else:
            self._token = new_token()
            self._request = own(self._resources, self._token)
        return encode_frame(self._request, 0, self.connection.client_id)

    def check(self, answer: bytearray) -> str:
        told = decode_frame(self._request, 0, answer, 4, len(answer))
        key = "own" if self._token else "release"
        expect(key, told.error, told.message)
        return key + self._suffix


class _Same:
    """The same request again and again: an Own that owns already, or DescribeOwners."""

    def __init__(self, connection: Connection, key: str, request: Own | DescribeOwners) -> None:
        self.connection = connection
        self._key = key
        self._request = request
        self._frame = encode_frame(request, 0, connection.client_id)

    def prepare(self) -> bytes:
        return self._frame

    def check(self, answer: bytearray) -> str:
        told = decode_frame(self._request, 0, answer, 4, len(answer))
        expect(self._key, told.error, told.message)
        return self._key


def round_trips(arena: Arena, blocks: int) -> Samples:
    """An append at the broker, Own and Release of a free string, a repeat, DescribeOwners: blocks of each in turns."""
    topic, port = arena.topic(Target.UNGOVERNED, "claims-append"), arena.port(Target.UNGOVERNED)
    arena.create(topic)
    held = strings(f"{arena.run}-held")
    repeated = own(held, new_token())
    with ExitStack() as stack:
        direct, *nodes = [stack.enter_context(Connection(each)) for each in (arena.port(Target.DIRECT), *[port] * 3)]
        lanes: list[Lane] = [
            _Append(direct, topic),
            _Pair(nodes[0], strings(f"{arena.run}-free")),
            _Same(nodes[1], "repeat", repeated),
            _Same(nodes[2], "describe", describe(held)),
        ]
        return timed(lanes, blocks)


def thousand(arena: Arena, times: int) -> Samples:
    """The same of 1,000 strings in one request; they are described while they are owned."""
    resources = strings(*(f"{arena.run}-thousand-{number}" for number in range(RESOURCES)))
    port = arena.port(Target.UNGOVERNED)
    found: Samples = defaultdict(list)
    with Connection(port) as owner, Connection(port) as onlooker:
        pair = _Pair(owner, resources, "_1000")
        looks = _Same(onlooker, "describe_1000", describe(resources))
        for turn in range(times + _WARM):
            for lane in (pair, looks, pair):
                key, took = exchange(lane)
                if turn >= _WARM:
                    found[key].append(took)
    return dict(found)


def takeovers(arena: Arena, times: int) -> Samples:
    """A client of its own each time deposes the owner of a topic, then that of 16 partitions of another one."""
    topic, parted = (arena.topic(Target.EXCLUSIVE, f"claims-{what}") for what in ("topic", "parted"))
    arena.create_all([topic], PARTITIONS)
    arena.create_all([parted], PARTITIONS)
    arena.put_policy(parted, {"access_mode": "exclusive", "scope": "partition"})
    resources = {
        "takeover": [control.Resource(topic=topic)],
        "takeover_16": [control.Resource(topic=parted, partition=number) for number in range(PARTITIONS)],
    }
    found: Samples = defaultdict(list)
    port = arena.port(Target.EXCLUSIVE)
    for wanted in resources.values():
        _settle(port, wanted)
    with ExitStack() as stack:
        owners = {key: stack.enter_context(Connection(port)) for key in resources}
        for turn in range(times + _WARM):
            for key, wanted in resources.items():
                taker = stack.enter_context(Connection(port))
                _, took = exchange(_Same(taker, key, _depose(wanted)))
                owners[key].close()  # deposed: it has nothing to let go of
                owners[key] = taker
                if turn >= _WARM:
                    found[key].append(took)
    for name in (topic, parted):
        arena.delete(name)
    return dict(found)


def _depose(resources: list[control.Resource]) -> Own:
    return own(resources, new_token(), control.EXCLUSIVE_WITH_FENCING)


def _settle(port: int, resources: list[control.Resource]) -> None:
    """Own new topics once: the broker may still be opening their partitions, which leaves the node without an answer.

    Raises NotAnsweredError.
    """
    deadline = time.monotonic() + _SETTLE_S
    with Connection(port) as connection:
        while True:
            told = connection.ask(_depose(resources))
            if told.error not in (control.UNAVAILABLE, control.NOT_SERVING) or time.monotonic() > deadline:
                expect("Own", told.error, told.message)
                return
            time.sleep(0.05)


def describe(resources: list[control.Resource]) -> DescribeOwners:
    """Who owns these."""
    return DescribeOwners(control.DescribeOwnersRequest(resources=resources))


def exchange(lane: Lane) -> tuple[str, float]:
    """One request and its answer: of which row, how many milliseconds."""
    frame = lane.prepare()
    began = time.perf_counter_ns()
    answer = lane.connection.exchange(frame)
    took = time.perf_counter_ns() - began
    return lane.check(answer), took / 1e6


def timed(lanes: list[Lane], blocks: int) -> Samples:
    """Blocks of all lanes take turns, so that whatever else the machine does meets all alike; a few requests at the
    beginning of each pay for the switch and do not count.
    """
    found: Samples = defaultdict(list)
    gc.collect()
    gc.disable()
    try:
        for turn in range(blocks + 1):
            shift = turn % len(lanes)
            for lane in lanes[shift:] + lanes[:shift]:
                for index in range(_BLOCK + _WARM):
                    key, took = exchange(lane)
                    if turn and index >= _WARM:
                        found[key].append(took)
    finally:
        gc.enable()
    return dict(found)
