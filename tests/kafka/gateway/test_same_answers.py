"""The same Fetch at a node and at the broker gets the same answer, whatever it asks, while others read the log too.

The logs hold aborted transactions and an open one (so the last stable offset is below the high watermark), and one of
them begins behind 0. What is compared is each partition's whole element: error, watermarks, aborted transactions,
records.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.protocol import fetch
from tests.kafka.gateway.test_shadows import Topics, admin, topics
from tests.kafka.gateway.test_shared_reads import Element, Limits, ask, end_of, put, readers, tails_of
from tests.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.protocol.primitives import Octets
    from tests.kafka.gateway.test_shared_reads import Reader

__all__ = ["readers", "topics"]

_BEGINS: Final = 2
"""Where partition 1 does."""
_WHOLE: Final = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_WATERMARKS: Final = struct.Struct(">qq")


class Asked(NamedTuple):
    """A partition of a request. `offset` counts from the log's end backwards where it is negative."""

    is_shadow: bool
    partition: int
    offset: int
    epoch: int
    most_bytes: int


class Fetch(NamedTuple):
    version: int
    limits: Limits
    parts: list[Asked]


_PARTS = st.builds(
    Asked,
    st.booleans(),
    st.integers(0, 1),
    st.integers(-4, 5),
    st.sampled_from([-1, -1, 0, 1]),
    st.sampled_from([0, 1, 120, 1 << 20]),
)
_LIMITS = st.builds(
    Limits,
    wait_ms=st.sampled_from([0, 30]),
    isolation=st.integers(0, 1),
    total_bytes=st.sampled_from([1, 500, 1 << 24]),
    min_bytes=st.sampled_from([0, 1, 2, 1 << 20]),
)
_FETCHES = st.builds(
    Fetch,
    st.sampled_from([4, 5, 7, 9, 10, 11, 11]),
    _LIMITS,
    # One log by two names is read by two polls, of which one may come too late for the answer.
    st.lists(_PARTS, min_size=1, max_size=2, unique_by=lambda part: part.partition),
)


class Logs:
    """The logs, a client of the node, and one of the broker."""

    def __init__(self, topics: Topics, node: RawClient, kafka: RawClient) -> None:
        self.topics, self.node, self.kafka = topics, node, kafka
        self.ends = [end_of(topics, partition) for partition in (0, 1)]

    def answers(self, asked: Fetch) -> list[tuple[Element, Element]]:
        """Of each partition the node's and the broker's."""
        found: list[list[Element]] = []
        for wire, names in (
            (self.node, (self.topics.source, self.topics.shadow)), (self.kafka, (self.topics.source,) * 2),
        ):  # fmt: skip
            found.append([])
            # The broker is asked once for each name of a log: it takes each partition once.
            for parts in [asked.parts] if wire is self.node else [[part] for part in asked.parts]:
                elements = self._ask(wire, asked, [(names[part.is_shadow], part) for part in parts])
                found[-1] += [elements[names[part.is_shadow], part.partition] for part in parts]
        return list(zip(*found, strict=True))

    def final(self, asked: Fetch) -> list[tuple[Element, Element]]:
        """The same once the node has heard of an error: when its time is over it answers with what it knows by then."""
        for _ in range(20):
            found = self.answers(asked)
            if not any(kafka.error and not node.error and not node.records for node, kafka in found):
                break
        return found

    def _ask(self, wire: RawClient, asked: Fetch, parts: list[tuple[str, Asked]]) -> dict[tuple[str, int], Element]:
        limits, version = asked.limits, asked.version
        elements: list[tuple[bytes, Octets]] = []
        for name, part in parts:
            offset = part.offset if part.offset >= 0 else self.ends[part.partition] + part.offset + 3
            epoch = struct.pack(">i", part.epoch) if version >= 9 else b""
            start = struct.pack(">q", -1) if version >= 5 else b""
            position = struct.pack(">i", part.partition) + epoch + struct.pack(">q", offset) + start
            elements.append((name.encode(), position + struct.pack(">i", part.most_bytes)))
        of_request = (limits.wait_ms, limits.min_bytes, limits.total_bytes, limits.isolation)
        wire.send_bytes(fetch.encode_request(1, b"wire", version, of_request, elements))
        frame = wire.receive_frame()
        return {
            (part.topic.decode(), part.partition): Element(part.error, frame[part.start : part.end], part.record_bytes)
            for part in fetch.walk_answer(frame, 0, len(frame), version).parts
        }


@pytest.fixture
def logs(topics: Topics, readers: list[Reader]) -> Iterator[Logs]:
    deleting, until = admin(topics.kafka), TopicPartition(topics.source, 1, _BEGINS)
    deleting.delete_records([until])[until].result(20)
    stays_open = Producer({"bootstrap.servers": topics.kafka, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
    stays_open.init_transactions(30)
    stays_open.begin_transaction()
    stays_open.produce(topics.source, b"not committed yet", partition=0)
    stays_open.flush(20)
    both = [(topics.source, partition, end_of(topics, partition)) for partition in (0, 1)]
    for reader in readers:
        for isolation in (0, 1):
            ask(reader.wire, both, Limits(20, isolation))
    with contextlib.ExitStack() as stack:
        node, kafka = (stack.enter_context(RawClient(at)) for at in (topics.node.bootstrap, topics.kafka))
        yield Logs(topics, node, kafka)
    stays_open.abort_transaction(30)


@_WHOLE
@given(_FETCHES)
def test_of_a_quiet_log_the_answer_is_the_brokers_own(logs: Logs, asked: Fetch) -> None:
    for node, kafka in logs.final(asked):
        if len(asked.parts) == 1:
            assert node == kafka
            continue
        if not node.error and not node.records and len(asked.parts) > 1:
            continue  # another partition had its answer first: this one has none yet, and the client asks again
        # What is asked of several partitions is cut by the bytes of all, in an order that is for each to choose.
        assert node.error == kafka.error
        assert node.data[: 6 + _WATERMARKS.size] == kafka.data[: 6 + _WATERMARKS.size]
        assert kafka.records.startswith(node.records) or node.records.startswith(kafka.records)


@settings(_WHOLE, max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 2), _FETCHES), min_size=1, max_size=6))
def test_of_a_log_that_grows_nothing_is_left_out_and_nothing_made_up(
    logs: Logs, readers: list[Reader], steps: list[tuple[int, Fetch]]
) -> None:
    """What a shared poll brought a moment ago may be less than there is now: the next request gets the rest."""
    for count, asked in steps:
        for _ in range(count):
            put(logs.topics, b"x" * 50, partition=1)
        logs.ends = [end_of(logs.topics, partition) for partition in (0, 1)]
        for reader in readers[:4]:
            ask(reader.wire, [(reader.name, 1, logs.ends[1] - count)], Limits(20, reader.isolation))
        for node, kafka in logs.final(asked):
            if not node.error and not node.records and len(asked.parts) > 1:
                continue
            assert node.error == kafka.error
            assert kafka.records.startswith(node.records) or node.records.startswith(kafka.records)
            if kafka.records and len(asked.parts) == 1:
                assert node.records
            of_node, of_kafka = (_WATERMARKS.unpack_from(each.data, 6) for each in (node, kafka))
            assert all(one <= two for one, two in zip(of_node, of_kafka, strict=True))
            if node.records == kafka.records and asked.version >= 5:
                assert node.aborted == kafka.aborted
    assert tails_of(logs.topics).waiting == 0
