"""Tagged fields of Fetch that would make Kafka read other topics, or another reader, than the node."""

from __future__ import annotations

import pytest

from sidecar.protocol import fetch, usual_fetch
from sidecar.protocol.primitives import MalformedFrameError, TaggedFieldsError, Writer, without_tags

MINE, THEIRS = b"\1" * 16, b"\2" * 16
_LIMITS = b"\0\0\1\xf4" + b"\0\0\0\1" + b"\0\x10\0\0" + b"\0" + bytes(4) + b"\xff\xff\xff\xff"
"""Wait, least and most bytes, isolation level, no session."""
_NONE_FORGOTTEN_NO_RACK = b"\1\1"


def field(number: int, content: bytes) -> bytes:
    writer = Writer()
    writer.uvarint(number)
    writer.uvarint(len(content))
    return writer.finish() + content


def partition(index: int, tags: bytes = b"\0") -> bytes:
    return index.to_bytes(4, "big") + bytes(fetch.partition_bytes(17) - 4) + tags


def topic(topic_id: bytes, *partitions: bytes, tags: bytes = b"\0") -> bytes:
    return topic_id + bytes([len(partitions) + 1]) + b"".join(partitions) + tags


def request(*topics: bytes, tags: bytes = b"\0", header: bytes = b"\0") -> bytes:
    return header + _LIMITS + bytes([len(topics) + 1]) + b"".join(topics) + _NONE_FORGOTTEN_NO_RACK + tags


def hidden_topic() -> bytes:
    """The body of a Fetch v17 with a topic in a directory's id that announces more than its 16 bytes. A parser that
    does not look at the announced size reads THEIRS as the second topic, and the rest as content of a tagged field.
    """
    rest = b"\0" + topic(MINE, partition(0)) + _NONE_FORGOTTEN_NO_RACK + b"\0"
    instead = b"\0" + topic(THEIRS, partition(0)) + _NONE_FORGOTTEN_NO_RACK + b"\1\x63" + bytes([len(rest)])
    over_long = topic(MINE, partition(1, b"\1" + field(0, bytes(16) + instead)))[:-1]
    return b"\0" + _LIMITS + b"\3" + over_long + rest


def hidden_replica(replica_id: int) -> bytes:
    """The body of a Fetch v16 of a follower, whose state is in a cluster's id that announces more than one byte."""
    state = replica_id.to_bytes(4, "big", signed=True) + b"\xff" * 8 + b"\1" + field(98, b"ab")
    return request(topic(MINE, partition(0)), tags=b"\2" + field(0, b"\0" + field(1, state)) + field(99, b""))


def walk(body: bytes, version: int) -> fetch.FetchRequest:
    return usual_fetch.walk(body, 0, len(body), version, {MINE: b"mine", THEIRS: b"theirs"})


def test_a_topic_hidden_in_a_tagged_field_is_malformed() -> None:
    with pytest.raises(MalformedFrameError, match="tagged field 0 of a partition in"):
        walk(hidden_topic(), 17)


@pytest.mark.parametrize("replica_id", [2, -1])
def test_a_replica_hidden_in_a_tagged_field_is_malformed(replica_id: int) -> None:
    with pytest.raises(MalformedFrameError, match=r"bytes behind the id of a cluster"):
        walk(hidden_replica(replica_id), 16)


@pytest.mark.parametrize(
    ("number", "size", "is_sound"),
    [(0, 16, True), (0, 15, False), (0, 17, False), (1, 8, True), (1, 9, False), (2, 5, True)],
)
def test_a_known_field_of_a_partition_has_the_size_of_its_type(number: int, size: int, is_sound: bool) -> None:
    body = request(topic(MINE, partition(0, b"\1" + field(number, bytes(size)))))
    with pytest.raises(MalformedFrameError) as refused:
        walk(body, 18)
    assert (type(refused.value) is TaggedFieldsError) == is_sound


@pytest.mark.parametrize("state", [b"", bytes(3), bytes(12), bytes(14)], ids=len)
def test_the_state_of_a_replica_has_its_size(state: bytes) -> None:
    with pytest.raises(MalformedFrameError) as refused:
        walk(request(topic(MINE, partition(0)), tags=b"\1" + field(1, state)), 15)
    assert type(refused.value) is MalformedFrameError


def test_a_follower_is_known_by_the_last_state_that_it_sends_as_kafka_knows_it() -> None:
    nobody, follower = (number.to_bytes(4, "big", signed=True) + bytes(9) for number in (-1, 5))
    one = topic(MINE, partition(0))
    assert walk(request(one, tags=b"\2" + field(1, nobody) + field(1, follower)), 18).replica_id == 5
    with pytest.raises(TaggedFieldsError):
        walk(request(one, tags=b"\2" + field(1, follower) + field(1, nobody)), 18)


def test_everything_but_the_tagged_fields_of_a_request_goes_on() -> None:
    tags = b"\2" + field(2, b"new") + field(10_000, b"")
    body = request(topic(MINE, partition(3, tags), tags=tags), topic(THEIRS), tags=tags, header=tags)
    frame = bytes(4) + body
    with pytest.raises(TaggedFieldsError) as found:
        usual_fetch.walk(frame, 4, len(frame), 18, {})
    plain = request(topic(MINE, partition(3)), topic(THEIRS))
    assert without_tags(frame, 0, len(frame), found.value.sections) == len(plain).to_bytes(4, "big") + plain
    assert [(part.topic, part.partition) for part in walk(plain, 18).parts] == [(b"mine", 3)]
