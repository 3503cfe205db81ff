"""A sample of the comparison with Kafka's own parsers; `python -m tests.fuzz.differential` plays more of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from sidecar.protocol import fetch
from sidecar.protocol.primitives import I32, RequestReader
from tests.fuzz import differential
from tests.fuzz.calls import Call
from tests.unit.protocol.test_fetch_tags import hidden_replica, hidden_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMES = 6_000
HIDDEN = [differential.frame_of(Call(1, 17), hidden_topic()), differential.frame_of(Call(1, 16), hidden_replica(5))]


@pytest.fixture(scope="module")
def kafka() -> Iterator[differential.Kafka]:
    with differential.kafka() as found:
        yield found


def test_kafka_reads_what_the_node_read_in_all_that_the_node_forwards(kafka: differential.Kafka) -> None:
    counts: Counter[str] = Counter()
    inputs = [*differential.frames(0, FRAMES, differential.bodies()), *HIDDEN]
    found = asyncio.run(differential.compare(kafka, inputs, counts))
    assert not found, found[0]
    assert counts["read alike"] > 1_000
    assert counts["changed by the node"] > 300


def test_kafka_reads_every_sound_request_as_the_node(kafka: differential.Kafka) -> None:
    counts: Counter[str] = Counter()
    sound = [differential.frame_of(call, body) for call, body in differential.bodies()]
    assert not asyncio.run(differential.compare(kafka, sound, counts))
    assert counts["refused by the node"] < len(sound) // 5, "the comparison would hold for a node that refuses all"


def test_a_node_that_believes_the_sizes_of_tagged_fields_is_found_out(
    kafka: differential.Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "skip_partition_tags", RequestReader.skip_tags)
    monkeypatch.setattr(fetch, "read_replica", _believing)
    monkeypatch.setattr(RequestReader, "finish", lambda _: None)
    assert [each.frame for each in asyncio.run(differential.compare(kafka, HIDDEN, Counter()))] == HIDDEN


def _believing(reader: RequestReader, replica_id: int, _version: int) -> int:
    for number, (start, _) in reader.tagged_fields().items():
        if number == 1:
            replica_id = I32.unpack_from(reader.buffer, start)[0]
    return replica_id
