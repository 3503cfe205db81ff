"""Calls to group coordinators: which groups there are, what they have committed, and a commit from outside.

A commit from outside bears no member and no generation (-1, as `kafka-consumer-groups --reset-offsets` does it): Kafka
takes it for a group without members alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from sidecar.protocol.caller import FixedRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.protocol.primitives import Reader, Writer

_NO_GENERATION = -1
_NO_LEADER_EPOCH = -1
NO_OFFSET = -1


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it. `protocol_type` is empty where nobody but tools has committed for it."""

    name: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupsListed:
    """Answer of ListGroups."""

    error: int
    groups: Sequence[ListedGroup]


@dataclass(frozen=True, slots=True)
class ListGroups(FixedRequest):
    """The groups that one broker coordinates, in every state (version 4: KIP-518)."""

    api_key: ClassVar[int] = 16
    api_version: ClassVar[int] = 4
    flexible: ClassVar[bool] = True

    def encode(self, writer: Writer) -> None:
        writer.array(0, flexible=True)
        writer.tags(flexible=True)

    @classmethod
    def decode(cls, reader: Reader) -> GroupsListed:
        reader.i32()
        error = reader.i16()
        groups: list[ListedGroup] = []
        for _ in range(reader.array(flexible=True, element_bytes=4)):
            groups.append(ListedGroup(reader.compact_string(), reader.compact_string(), reader.compact_string()))
            reader.skip_tags()
        reader.skip_tags()
        return GroupsListed(error, groups)


class DescribedGroup(NamedTuple):
    """A group as its coordinator describes it; "Dead" with error 0: there is none of this name."""

    error: int
    state: str
    members: int


@dataclass(frozen=True, slots=True)
class DescribeGroups(FixedRequest):
    """State and number of members of several groups with one coordinator, by name."""

    api_key: ClassVar[int] = 15
    api_version: ClassVar[int] = 5
    flexible: ClassVar[bool] = True

    groups: Sequence[str]

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.groups), flexible=True)
        for group in self.groups:
            writer.compact_string(group)
        writer.boolean(False)
        writer.tags(flexible=True)

    @classmethod
    def decode(cls, reader: Reader) -> dict[str, DescribedGroup]:
        reader.i32()
        found: dict[str, DescribedGroup] = {}
        for _ in range(reader.array(flexible=True, element_bytes=12)):
            error, name, state = reader.i16(), reader.compact_string(), reader.compact_string()
            reader.compact_string()
            reader.compact_string()
            members = reader.array(flexible=True, element_bytes=7)
            for _ in range(members):
                _skip_member(reader)
            reader.i32()
            reader.skip_tags()
            found[name] = DescribedGroup(error, state, members)
        reader.skip_tags()
        return found


def _skip_member(reader: Reader) -> None:
    for _ in range(6):  # member id, instance id, client id, host, metadata, assignment: each with its length in front
        reader.skip(max(0, reader.uvarint() - 1))
    reader.skip_tags()


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """What a group has committed, by partition of the topic that was asked for; none where it has not."""

    error: int
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OffsetFetch(FixedRequest):
    """What several groups of one coordinator have committed in partitions of one topic, by group (version 8: KIP-709).

    Offsets of transactions that have not ended are not waited for.
    """

    api_key: ClassVar[int] = 9
    api_version: ClassVar[int] = 8
    flexible: ClassVar[bool] = True

    groups: Sequence[str]
    topic: str
    partitions: Sequence[int]

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.groups), flexible=True)
        for group in self.groups:
            writer.compact_string(group)
            writer.array(1, flexible=True)
            writer.compact_string(self.topic)
            writer.array(len(self.partitions), flexible=True)
            for partition in self.partitions:
                writer.i32(partition)
            writer.tags(flexible=True)
            writer.tags(flexible=True)
        writer.boolean(False)
        writer.tags(flexible=True)

    @classmethod
    def decode(cls, reader: Reader) -> dict[str, GroupOffsets]:
        reader.i32()
        found: dict[str, GroupOffsets] = {}
        for _ in range(reader.array(flexible=True, element_bytes=5)):
            group, offsets = reader.compact_string(), dict[int, int]()
            for _ in range(reader.array(flexible=True, element_bytes=3)):
                reader.compact_string()
                for _ in range(reader.array(flexible=True, element_bytes=20)):
                    _read_committed(reader, offsets)
                reader.skip_tags()
            found[group] = GroupOffsets(reader.i16(), offsets)
            reader.skip_tags()
        reader.skip_tags()
        return found


def _read_committed(reader: Reader, offsets: dict[int, int]) -> None:
    partition, offset = reader.i32(), reader.i64()
    reader.i32()
    reader.skip(max(0, reader.uvarint() - 1))
    error = reader.i16()
    reader.skip_tags()
    if not error and offset != NO_OFFSET:
        offsets[partition] = offset


@dataclass(frozen=True, slots=True)
class CommitOffsets(FixedRequest):
    """Commit offsets in one topic for a group without members; answers with an error code by partition."""

    api_key: ClassVar[int] = 8
    api_version: ClassVar[int] = 7

    group: str
    topic: str
    offsets: Mapping[int, int]

    def encode(self, writer: Writer) -> None:
        writer.string(self.group)
        writer.i32(_NO_GENERATION)
        writer.string("")
        writer.string(None)
        writer.array(1)
        writer.string(self.topic)
        writer.array(len(self.offsets))
        for partition, offset in self.offsets.items():
            writer.i32(partition)
            writer.i64(offset)
            writer.i32(_NO_LEADER_EPOCH)
            writer.string("")

    @classmethod
    def decode(cls, reader: Reader) -> dict[int, int]:
        reader.i32()
        found: dict[int, int] = {}
        for _ in range(reader.array(element_bytes=6)):
            reader.string()
            for _ in range(reader.array(element_bytes=6)):
                partition = reader.i32()
                found[partition] = reader.i16()
        return found
