"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords in every version served, against kio."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.gateway.apis.table import APIS
from sidecar.protocol import partitioned
from sidecar.protocol.partitioned import TABLES, layout_of
from sidecar.protocol.primitives import MalformedFrameError, at_once
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples

VERSIONS = [(key, version) for key in TABLES for version in range(APIS[key].first, APIS[key].last + 1)]
every_version = pytest.mark.parametrize(
    ("key", "version"), VERSIONS, ids=[f"{APIS[key].name}-{version}" for key, version in VERSIONS]
)


def requests(key: int, version: int) -> Any:
    return kio.messages(kio.entity(key, version, "request"))


def answers(key: int, version: int) -> Any:
    return kio.messages(kio.entity(key, version, "response"))


def partitions(message: Any) -> list[tuple[bytes, Any]]:
    return [(_name(topic).encode(), partition) for topic in message.topics for partition in topic.partitions]


def _name(topic: Any) -> str:
    return topic.name if hasattr(topic, "name") else topic.topic


def _index(partition: Any) -> int:
    return partition.partition_index if hasattr(partition, "partition_index") else partition.partition


def _named_once(message: Any) -> bool:
    return len({_name(topic) for topic in message.topics}) == len(message.topics)


def _without_empty(message: Any) -> Any:
    return dataclasses.replace(message, topics=tuple(topic for topic in message.topics if topic.partitions))


@every_version
@examples(6)
@given(data=st.data())
def test_a_request_is_walked_and_put_together_again(key: int, version: int, data: st.DataObject) -> None:
    request = data.draw(requests(key, version).filter(_named_once))
    frame = kio.request_frame(request)
    layout = layout_of(key, version)
    table = partitioned.walk(frame, kio.body_at(), len(frame), layout)
    assert [(part.topic, part.partition) for part in table.parts] == [
        (topic, _index(partition)) for topic, partition in partitions(request)
    ]
    for part, (_, partition) in zip(table.parts, partitions(request), strict=True):
        assert frame[part.start : part.end] == kio.body(partition)
    again = at_once(partitioned.request_steps(key, version, 7, b"tests", layout, frame, table, table.parts))
    assert again == kio.request_frame(_without_empty(request))
    nothing = at_once(partitioned.request_steps(key, version, 7, b"tests", layout, frame, table, []))
    assert nothing == kio.request_frame(dataclasses.replace(request, topics=()))


@every_version
@examples(6)
@given(data=st.data())
def test_an_answer_is_read_and_put_together_again(key: int, version: int, data: st.DataObject) -> None:
    answer = data.draw(answers(key, version).filter(_named_once))
    frame = kio.answer_frame(answer)
    layout = layout_of(key, version)
    results, throttle_ms = partitioned.decode_answer(frame, 0, len(frame), layout)
    assert kio.milliseconds(throttle_ms) == getattr(answer, "throttle_time", kio.milliseconds(0))
    assert [(found.topic, found.partition, found.error, found.element) for found in results] == [
        (topic, _index(partition), partition.error_code.value, kio.body(partition))
        for topic, partition in partitions(answer)
    ]
    again = at_once(partitioned.encode_steps(7, layout, results, throttle_ms))
    assert again == kio.answer_frame(_without_empty(answer))


@every_version
def test_a_refusal_carries_its_code_and_nothing_else(key: int, version: int) -> None:
    layout = layout_of(key, version)
    refusal = partitioned.refusal(layout, b"orders", 5, 6)
    frame = at_once(partitioned.encode_steps(7, layout, [refusal]))
    ((name, found),) = partitions(kio.answer_of(kio.entity(key, version, "response"), frame))
    values = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    assert (name, _index(found), values.pop("error_code").value) == (b"orders", 5, 6)
    values.pop("partition_index", None)
    values.pop("partition", None)
    assert set(values.values()) == {-1}
    assert partitioned.decode_answer(frame, 0, len(frame), layout) == ([refusal], 0)


@every_version
@examples(2)
@given(data=st.data())
def test_a_frame_cut_off_anywhere_is_malformed(key: int, version: int, data: st.DataObject) -> None:
    layout = layout_of(key, version)
    frame = kio.request_frame(data.draw(requests(key, version)))
    for size in range(kio.body_at(), len(frame)):
        with pytest.raises(MalformedFrameError):
            partitioned.walk(frame, kio.body_at(), size, layout)
    with pytest.raises(MalformedFrameError):
        partitioned.walk(frame + b"\0", kio.body_at(), len(frame) + 1, layout)
    answer = kio.answer_frame(data.draw(answers(key, version).filter(lambda found: found.topics)))
    last_needed = len(answer) - (1 if layout.flexible else 0)  # the tags of the whole are left to whoever reads on
    for size in range(8, last_needed):
        with pytest.raises(MalformedFrameError):
            partitioned.decode_answer(answer, 0, size, layout)


@every_version
@examples(10)
@given(data=st.data())
def test_no_damaged_request_raises_anything_but_malformed(key: int, version: int, data: st.DataObject) -> None:
    frame = bytearray(kio.request_frame(data.draw(requests(key, version))))
    at = data.draw(st.integers(kio.body_at(), len(frame)))
    frame[at : at + 4] = data.draw(st.binary(min_size=1, max_size=6))
    with contextlib.suppress(MalformedFrameError):
        partitioned.walk(frame, kio.body_at(), len(frame), layout_of(key, version))


def test_every_version_served_has_a_definition_in_kio() -> None:
    assert all(kio.has(key, version) for key, version in VERSIONS)
