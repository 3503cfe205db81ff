"""What one request may cost: frames, elements, and slices, counted and not timed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from sidecar.gateway.apis.table import ALL_APIS
from sidecar.protocol import api_versions, fetch, limits, metadata, partitioned, produce
from sidecar.protocol.api import ApiKey
from sidecar.protocol.limits import SLICE, elements
from sidecar.protocol.messages import admin, groups
from sidecar.protocol.metadata import ClusterState, MetadataCall, PartitionState, TopicState
from sidecar.protocol.primitives import I32, Reader, RequestReader, TooManyElementsError, Writer, at_once
from sidecar.protocol.schema import leading_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

MIB = 1024 * 1024
LARGE = 100 * MIB
"""Of Produce, by default."""


def slices(steps: Generator[None, None, object]) -> int:
    """How often others have their turn."""
    return sum(1 for _ in steps)


# Frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(ALL_APIS))
def test_only_records_may_have_large_frames(key: int) -> None:
    limit = limits.frame_bytes(key, LARGE)
    assert limit == LARGE if key == ApiKey.PRODUCE else limit <= limits.FRAME_BYTES
    assert limits.frame_bytes(key, 1000) == 1000, "a smaller setting holds for all"


# Elements ---------------------------------------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    writer = Writer()
    writer.uvarint(value)
    return writer.finish()


def _list_offsets(count: int) -> None:
    body = I32.pack(-1) + I32.pack(1) + b"\0\1t" + I32.pack(count) + bytes(12 * count)
    partitioned.walk(body, 0, len(body), partitioned.layout_of(2, 1))


def _fetch(count: int) -> None:
    body = bytes(17) + I32.pack(1) + b"\0\1t" + I32.pack(count) + bytes(16 * count)
    fetch.walk(body, 0, len(body), 4)


def _produce(count: int) -> None:
    body = b"\xff\xff\xff\xff" + bytes(4) + I32.pack(1) + b"\0\1t" + I32.pack(count) + bytes(8 * count)
    produce.walk(body, 0, len(body), 8)


def _produce_topics(count: int) -> None:
    body = b"\xff\xff\xff\xff" + bytes(4) + I32.pack(count) + bytes(6 * count)
    produce.walk(body, 0, len(body), 8)


def _produce_flexible(count: int) -> None:
    body = b"\0\0\xff\xff" + bytes(4) + b"\2\2t" + uvarint(count + 1) + bytes(6 * count) + b"\0\0"
    produce.walk(body, 0, len(body), 9)


def _metadata(count: int) -> None:
    body = I32.pack(count) + bytes(2 * count)
    at_once(metadata.request_steps(RequestReader(body, 0, len(body), elements(3)), 1))


def _tags_of_api_versions(count: int) -> None:
    body = b"\0\2a\2b" + uvarint(count) + b"\1\0" * count
    api_versions.decode_request(body, 0, len(body), 3)


def _tags_of_a_header(count: int) -> None:
    body = uvarint(count) + b"\1\0" * count + b"\2g"
    leading_text(body, 0, len(body), flexible=True)


def _offset_fetch(count: int) -> None:
    body = b"\0\1g" + I32.pack(count) + bytes(6 * count)
    groups.OFFSET_FETCH.decode_request(body, 0, len(body), 1)


WALKS: list[tuple[Callable[[int], None], int]] = [
    (_list_offsets, elements(2) - 1),
    (_fetch, elements(1) - 1),
    (_produce, elements(0)),
    (_produce_topics, elements(0)),
    (_produce_flexible, elements(0) - 1),
    (_metadata, elements(3)),
    (_tags_of_api_versions, elements(18)),
    (_tags_of_a_header, limits.ELEMENTS),
    (_offset_fetch, elements(9)),
]


@pytest.mark.parametrize(("walk", "most"), WALKS, ids=[walk.__name__ for walk, _ in WALKS])
def test_a_request_with_one_element_too_many_is_refused_before_it_is_walked(
    walk: Callable[[int], None], most: int
) -> None:
    """A megabyte of them took a second or more."""
    walk(most)
    with pytest.raises(TooManyElementsError, match="elements in one request") as caught:
        walk(most + 1)
    assert caught.value.reason == "too_many"


@pytest.fixture
def bounds() -> Iterator[limits.Bounds]:
    """Those of the process, which are put back."""
    try:
        yield limits.BOUNDS
    finally:
        limits.BOUNDS.move()


def test_without_settings_bounds_are_those_of_the_table() -> None:
    found = limits.Bounds()
    assert (found.elements, found.produce, found.fetch, found.partitions) == (110_000, 15_000, 20_000, 110_000)
    assert (found.of(3), found.of(9), found.of(18), found.turn) == (50_000, limits.ELEMENTS, 100, SLICE)


@pytest.mark.parametrize(("setting", "most"), [(1_000, 1_000), (220_000, 220_000)])
def test_a_setting_moves_what_every_api_may_have_in_proportion(bounds: limits.Bounds, setting: int, most: int) -> None:
    bounds.move(elements=setting)
    assert elements(2) == bounds.partitions == most
    assert elements(3) == most * 50_000 // 110_000
    assert elements(18) >= limits.LEAST_ELEMENTS
    _list_offsets(most - 1)
    _produce(bounds.produce)
    _fetch(bounds.fetch - 1)
    for walk, count in ((_list_offsets, most), (_produce, bounds.produce + 1), (_fetch, bounds.fetch)):
        with pytest.raises(TooManyElementsError):
            walk(count)


# Slices -----------------------------------------------------------------------------------------------------------


def test_a_setting_says_after_how_many_elements_others_have_their_turn(bounds: limits.Bounds) -> None:
    bounds.move(turn=16)
    body = I32.pack(-1) + I32.pack(1) + b"\0\1t" + I32.pack(160) + bytes(12 * 160)
    assert slices(partitioned.walk_steps(body, 0, len(body), partitioned.layout_of(2, 1))) == 10
    topics = b"\0\1g" + I32.pack(1_000) + bytes(6 * 1_000)
    assert slices(groups.OFFSET_FETCH.request_steps(topics, 0, len(topics), 1)) >= 1_000 // bounds.objects


@pytest.mark.parametrize("count", [2 * SLICE, 4 * SLICE])
def test_others_have_their_turn_while_a_large_request_is_walked(count: int) -> None:
    body = I32.pack(-1) + I32.pack(1) + b"\0\1t" + I32.pack(count) + bytes(12 * count)
    layout = partitioned.layout_of(2, 1)
    assert slices(partitioned.walk_steps(body, 0, len(body), layout)) == count // SLICE
    answer = bytes(8) + I32.pack(1) + b"\0\1t" + I32.pack(count) + bytes(22 * count)
    assert slices(partitioned.answer_steps(answer, 0, len(answer), layout)) == count // SLICE


@pytest.mark.parametrize("count", [2 * SLICE, 4 * SLICE])
def test_others_have_their_turn_while_a_large_cluster_is_described(count: int) -> None:
    body = I32.pack(count) + b"".join(b"\0\4%04d" % number for number in range(count))
    assert slices(metadata.request_steps(Reader(body), 1)) == count // SLICE
    topics = tuple(
        TopicState(str(number), 0, UUID(int=number), False, (PartitionState(0, 0, 1, 1),)) for number in range(count)
    )
    state = ClusterState(0, (), "c", 1, topics)
    assert slices(metadata.answer_steps(1, 9, state)) == 2 * count // SLICE
    writer = Writer()
    writer.i32(0)
    writer.array(0, True)
    writer.text(None, True)
    writer.i32(1)
    writer.array(count, True)
    for topic in topics:
        writer.i16(0)
        writer.text(topic.name, True)
        writer.raw(topic.topic_id.bytes)
        writer.boolean(False)
        writer.array(1, True)
        writer.raw(bytes(14) + b"\1\1\1\0")
        writer.i32(0)
        writer.tags(True)
    writer.i32(0)
    writer.tags(True)
    answer = writer.finish()
    call = MetadataCall(metadata.MetadataRequest(None))
    assert slices(call.decode_steps(Reader(answer))) == 2 * count // SLICE
    assert len(at_once(call.decode_steps(Reader(answer))).topics) == count


@pytest.mark.parametrize("count", [2 * SLICE, 4 * SLICE])
def test_others_have_their_turn_while_a_rare_request_is_read_and_answered(count: int) -> None:
    body = b"\0\1g" + I32.pack(count) + (b"\0\1t" + I32.pack(1) + I32.pack(7)) * count
    steps = groups.OFFSET_FETCH.request_steps(body, 0, len(body), 1)
    assert slices(steps) == 8 * count // SLICE
    partition = {"partition_index": 7, "committed_offset": 1, "metadata": "", "error_code": 0}
    values = {"topics": [{"name": "t", "partitions": [partition]} for _ in range(count)]}
    assert slices(groups.OFFSET_FETCH.answer_steps(1, 5, values)) == 8 * count // SLICE


@pytest.mark.parametrize("count", [SLICE, 2 * SLICE])
def test_others_have_their_turn_while_a_brokers_rare_answer_is_read(count: int) -> None:
    """Nine thousand topics with their settings, which anybody may ask for, held the event loop for five seconds."""
    config = {"name": "n", "value": "v", "synonyms": [{"name": "n", "value": "v", "source": 5}]}
    results = [{"resource_type": 2, "resource_name": "t", "configs": [config] * 4} for _ in range(count)]
    message = admin.DESCRIBE_CONFIGS
    answer = message.encode_answer(4, 7, {"results": results})
    assert slices(message.read_answer_steps(answer, 0, len(answer), 4)) == pytest.approx(36 * count // SLICE, abs=1)
    request = {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["k"]}] * count}
    assert slices(message.write_request_steps(4, 7, b"c", request)) == 8 * count // SLICE


def test_a_topic_that_is_named_again_is_asked_for_once() -> None:
    body = I32.pack(3) + b"\0\1a\0\1b\0\1a"
    assert at_once(metadata.request_steps(Reader(body), 1)).topics == ("a", "b")
