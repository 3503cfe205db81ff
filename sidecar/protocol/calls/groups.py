"""Calls to group coordinators: which groups there are, what they have committed, and a commit from outside.

A commit from outside has no member and no generation (-1, as with `kafka-consumer-groups --reset-offsets`): Kafka
accepts it only for a group without members.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.protocol.messages import groups as tables
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View

_NO_GENERATION = -1
_NO_LEADER_EPOCH = -1
NO_OFFSET = -1


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it. `protocol_type` is empty if only tools have committed for it."""

    name: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupsListed:
    """Answer of ListGroups."""

    error: int
    groups: Sequence[ListedGroup]


class ListGroups(View[GroupsListed], of=tables.LIST_GROUPS, version=4):
    """The groups that one broker coordinates, in every state (version 4: KIP-518)."""

    def answered(self, values: Values) -> GroupsListed:
        groups = [
            ListedGroup(each["group_id"], each["protocol_type"], each["group_state"]) for each in values["groups"]
        ]
        return GroupsListed(values["error_code"], groups)


class DescribedGroup(NamedTuple):
    """A group as its coordinator describes it; the state "Dead" with error 0 means that there is no such group."""

    error: int
    state: str
    members: int


class DescribeGroups(View[dict[str, DescribedGroup]], of=tables.DESCRIBE_GROUPS, version=5):
    """State and number of members of several groups with one coordinator, by name."""

    groups: Sequence[str]

    def answered(self, values: Values) -> dict[str, DescribedGroup]:
        return {
            each["group_id"]: DescribedGroup(each["error_code"], each["group_state"], len(each["members"]))
            for each in values["groups"]
        }


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The offsets that a group has committed, by partition of the requested topic."""

    error: int
    offsets: Mapping[int, int]

    @classmethod
    def of(cls, values: Values) -> "GroupOffsets":
        partitions = [each for topic in values["topics"] for each in topic["partitions"] if not each["error_code"]]
        offsets = {each["partition_index"]: each["committed_offset"] for each in partitions}
        known = {partition: offset for partition, offset in offsets.items() if offset != NO_OFFSET}
        return cls(values["error_code"], known)


class OffsetFetch(View[dict[str, GroupOffsets]], of=tables.OFFSET_FETCH, version=8):
    """The committed offsets of several groups of one coordinator in one topic, by group (version 8: KIP-709).

    It does not wait for offsets of open transactions.
    """

    groups: Sequence[str]
    topic: str
    partitions: Sequence[int]

    def asked(self) -> Values:
        topics = [{"name": self.topic, "partition_indexes": self.partitions}]
        return {"groups": [{"group_id": group, "topics": topics} for group in self.groups]}

    def answered(self, values: Values) -> dict[str, GroupOffsets]:
        return {each["group_id"]: GroupOffsets.of(each) for each in values["groups"]}


class CommitOffsets(View[dict[int, int]], of=tables.OFFSET_COMMIT, version=7):
    """Commit offsets in one topic for a group without members; answers with an error code by partition."""

    group: str
    topic: str
    offsets: Mapping[int, int]

    def asked(self) -> Values:
        partitions = [
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": _NO_LEADER_EPOCH,
                "committed_metadata": "",
            }
            for partition, offset in self.offsets.items()
        ]
        return {
            "group_id": self.group,
            "generation_id_or_member_epoch": _NO_GENERATION,
            "topics": [{"name": self.topic, "partitions": partitions}],
        }

    def answered(self, values: Values) -> dict[int, int]:
        partitions = [each for topic in values["topics"] for each in topic["partitions"]]
        return {each["partition_index"]: each["error_code"] for each in partitions}
