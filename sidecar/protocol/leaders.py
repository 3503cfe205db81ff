"""The new leader of a partition, in answers to Produce and Fetch of a broker that is not the leader (KIP-951): tagged
fields of partitions, and one with the addresses for the whole answer. Brokers name brokers, nodes name nodes.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import MalformedFrameError, Reader, Writer

LEADER_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The error codes with which brokers name the new leader."""
_LEADER: Final = Struct(">ii")
_TAGGED_LEADER: Final = Struct(">BBiiB")


class Leader(NamedTuple):
    """The node that leads a partition under a leader epoch, and where clients reach it."""

    node: int
    epoch: int
    host: str
    port: int


class Found(NamedTuple):
    """The leader that a broker names: its id, -1 for none, and the leader epoch."""

    broker: int
    epoch: int


def leader_tags(tag: int, leader: Leader | None) -> bytes:
    """The tagged fields of a partition; none without a leader."""
    if leader is None:
        return b"\0"
    return b"\x01" + _TAGGED_LEADER.pack(tag, _LEADER.size + 1, leader.node, leader.epoch, 0)


def endpoint_tags(leaders: Iterable[Leader]) -> bytes:
    """The tagged fields of a whole answer: each node once, at its address."""
    nodes = {leader.node: leader for leader in leaders}
    if not nodes:
        return b"\0"
    inner = Writer()
    inner.array(len(nodes), True)
    for leader in nodes.values():
        inner.i32(leader.node)
        inner.text(leader.host, True)
        inner.i32(leader.port)
        inner.text(None, True)
        inner.tags(True)
    writer = Writer()
    writer.uvarint(1)
    writer.uvarint(0)
    writer.uvarint(len(inner.out))
    writer.raw(inner.out)
    return writer.finish()


def read_leader(reader: Reader, tag: int) -> Found | None:
    """Step over the tagged fields of a partition, and return the leader in the field with the number `tag`."""
    start = reader.position
    if start < reader.end and not reader.buffer[start]:
        reader.position = start + 1
        return None
    found = None
    for _ in range(reader.array_of_tags()):
        number, size = reader.uvarint(), reader.uvarint()
        at = reader.skip(size)
        if number == tag:
            if size < _LEADER.size:
                raise MalformedFrameError(f"a leader in {size} bytes")
            found = Found(*_LEADER.unpack_from(reader.buffer, at))
    return found
