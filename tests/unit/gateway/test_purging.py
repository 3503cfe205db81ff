"""Which partitions of a DeleteRecords have to wait for a snapshot, and how the others are answered."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.gateway import purging
from sidecar.gateway.purging import Purging
from sidecar.gateway.sequence_ids import IdsError, Why
from sidecar.protocol import partitioned
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import I32

DELETE_RECORDS = 21


class Node:
    """A node that serves topics with ids, which snapshots cover up to `covered` by partition."""

    def __init__(self, covered: dict[int, int]) -> None:
        self.covered = covered
        self.asked: list[str] = []
        self.wanted: dict[int, int] = {}
        self.error: IdsError | None = None

    def deduplicates(self, topic: str) -> bool:
        return topic.startswith("orders")

    async def of(self, topic: str, timeout: float) -> Any:
        self.asked.append(topic)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(ids=self, partitions=frozenset(range(4)))

    async def cover(self, wanted: dict[int, int], timeout: float) -> dict[int, int]:
        self.wanted = wanted
        return {index: self.covered[index] for index in wanted if index in self.covered}

    async def purge(
        self, asked: dict[bytes, dict[int, int] | list[tuple[int, int]]], timeout_ms: int = 20_000
    ) -> tuple[dict[tuple[bytes, int], ErrorCode], dict[tuple[bytes, int], int]]:
        """The errors, and the offsets up to which Kafka is asked to delete."""
        body = bytearray(I32.pack(len(asked)))
        for topic, partitions in asked.items():
            pairs = list(partitions.items() if isinstance(partitions, dict) else partitions)
            body += struct.pack(">h", len(topic)) + topic + I32.pack(len(pairs))
            body += b"".join(struct.pack(">iq", *each) for each in pairs)
        body += I32.pack(timeout_ms)
        table = partitioned.walk(body, 0, len(body), partitioned.layout_of(DELETE_RECORDS, 0))
        refused = await Purging(cast(Any, SimpleNamespace(env=self)), cast(Any, self)).prepare(body, table, table.parts)
        offsets = {
            (part.topic, part.partition): struct.unpack_from(">q", body, part.start + 4)[0] for part in table.parts
        }
        return refused, {place: offset for place, offset in offsets.items() if place not in refused}


async def test_each_partition_of_a_topic_has_its_own_answer() -> None:
    node = Node({0: 5, 1: 9, 2: -1})
    refused, left = await node.purge({b"orders": {0: 4, 1: -1, 2: 99, 3: 4, 7: -1}, b"others": {0: -1}})
    assert refused == {
        (b"orders", 2): ErrorCode.OFFSET_OUT_OF_RANGE,
        (b"orders", 3): ErrorCode.REQUEST_TIMED_OUT,
    }
    assert left == {(b"orders", 0): 4, (b"orders", 1): 9, (b"orders", 7): -1, (b"others", 0): -1}


@pytest.mark.parametrize(("offsets", "wanted"), [([3, 5], 5), ([5, 3], 5), ([3, -1], -1), ([-1, 3], -1), ([0, 0], 0)])
async def test_of_a_partition_that_is_named_twice_as_much_is_saved_as_is_deleted(
    offsets: list[int], wanted: int
) -> None:
    node = Node({0: 9})
    refused, _ = await node.purge({b"orders": [(0, offset) for offset in offsets]})
    assert (refused, node.wanted) == ({}, {0: wanted})


async def test_a_name_that_is_no_text_is_left_to_kafka() -> None:
    """A policy covered it by its first bytes, and the request was never answered."""
    node = Node({})
    assert await node.purge({b"orders.\xff": {0: 5}}) == ({}, {(b"orders.\xff", 0): 5})
    assert node.asked == []


async def test_a_client_waits_no_longer_than_it_asked_for_whatever_number_of_topics_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each topic took ten seconds where Redis was away, one after the other."""
    monkeypatch.setattr(purging, "_LONGEST_S", -1.0)
    node = Node({})
    node.error = IdsError(Why.NOT_NOW, "Redis is away")
    names = [b"orders%d" % number for number in range(50)]
    refused, _ = await node.purge({name: {0: 5} for name in names})
    assert node.asked == ["orders0"], "the first one gets its try"
    assert refused == {(names[0], 0): ErrorCode.LEADER_NOT_AVAILABLE} | {
        (name, 0): ErrorCode.REQUEST_TIMED_OUT for name in names[1:]
    }
