"""The group coordinator of one broker: committed offsets, and the classic protocol as far as one simple consumer needs
it (`GroupCoordinator`, `GroupMetadataManager`).

Offsets are records of `__consumer_offsets` and move with it. Members are memory: they join again where the coordinator
has moved, as with Kafka, where their metadata would be loaded and their heartbeats awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from sidecar.protocol.schema import Values
from tests.sim.kafka import batches, errors
from tests.sim.kafka.errors import RefusedError

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.replica import Replica


class Commit(NamedTuple):
    """One record of `__consumer_offsets`."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Member:
    """`joining` and `syncing` are answers that are owed."""

    __slots__ = ("assignment", "id", "joining", "metadata", "protocols", "syncing")

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.protocols: list[Values] = []
        self.assignment = b""
        self.joining: Callable[[Values], object] | None = None
        self.syncing: Callable[[Values], object] | None = None


class Group:
    """A classic group: Empty, PreparingRebalance while members join, CompletingRebalance, Stable."""

    __slots__ = ("generation", "leader", "members", "offsets", "protocol", "protocol_type", "state")

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], Commit] = {}
        self.members: dict[str, Member] = {}
        self.generation = 0
        self.leader = ""
        self.protocol = ""
        self.protocol_type = ""
        self.state = "Empty"


class Shard:
    """One partition of `__consumer_offsets`."""

    __slots__ = ("groups", "loading", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.loading = True
        self.groups: dict[str, Group] = {}


class Groups:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.shards: dict[int, Shard] = {}
        self._names = 0

    def elected(self, replica: Replica) -> None:
        shard = self.shards[replica.index] = Shard(replica)
        if not replica.log.end:
            shard.loading = False
            return
        self.broker.later(self.broker.cluster.delay(self.broker.cluster.settings.load), self._load, shard)

    def resigned(self, replica: Replica) -> None:
        self.shards.pop(replica.index, None)

    def _load(self, shard: Shard) -> None:
        for batch in shard.replica.log.batches:
            commits: tuple[Commit, ...] = batch.note
            for commit in commits:
                shard.groups.setdefault(commit.group, Group()).offsets[commit.topic, commit.partition] = commit
        shard.loading = False

    def find(self, name: str) -> tuple[Shard, Group | None]:
        """Raises `RefusedError` 16, 14, 24."""
        if not name:
            raise RefusedError(errors.INVALID_GROUP_ID)
        shard = self.shards.get(self.broker.cluster.group_partition(name))
        if shard is None:
            raise RefusedError(errors.NOT_COORDINATOR)
        if shard.loading:
            raise RefusedError(errors.COORDINATOR_LOAD_IN_PROGRESS)
        return shard, shard.groups.get(name)

    def commit(
        self, name: str, member: str, generation: int, commits: tuple[Commit, ...], done: Callable[[int], object]
    ) -> None:
        """OffsetCommit; -1 and no member is a commit from outside, for a group without members alone."""
        try:
            shard, group = self.find(name)
            group = group or shard.groups.setdefault(name, Group())
            if generation < 0 and group.members:
                raise RefusedError(errors.UNKNOWN_MEMBER_ID)
            if generation >= 0:
                self._check_member(group, member, generation)
            appended = shard.replica.append_note(batches.noted(commits, self.broker.wall_ms()))
        except RefusedError as error:
            done(error.code)
            return

        def replicated(error: int) -> None:
            if not error:
                for commit in commits:
                    group.offsets[commit.topic, commit.partition] = commit
            done(errors.NOT_COORDINATOR if error == errors.NOT_LEADER_OR_FOLLOWER else error)

        shard.replica.when_replicated(appended.last, replicated)

    def _check_member(self, group: Group, member: str, generation: int) -> None:
        if member not in group.members:
            raise RefusedError(errors.UNKNOWN_MEMBER_ID)
        if generation != group.generation:
            raise RefusedError(errors.ILLEGAL_GENERATION)

    # Membership ----------------------------------------------------------------------------------------------------

    def join(self, values: Values, version: int, done: Callable[[Values], object]) -> None:
        """JoinGroup: everybody who is there joins, then all are answered."""

        def refuse(code: int, member_id: str = "") -> None:
            done({"error_code": code, "generation_id": -1, "member_id": member_id, "members": [], "protocol_name": ""})

        try:
            shard, group = self.find(values["group_id"])
        except RefusedError as error:
            refuse(error.code)
            return
        group = group or shard.groups.setdefault(values["group_id"], Group())
        member_id: str = values["member_id"]
        if not member_id:
            self._names += 1
            member_id = f"member-{self.broker.id}-{self.broker.life}-{self._names}"
            if version >= 4:  # KIP-394
                refuse(errors.MEMBER_ID_REQUIRED, member_id)
                return
        member = group.members.setdefault(member_id, Member(member_id))
        member.protocols = values["protocols"]
        member.joining = done
        group.protocol_type = values["protocol_type"]
        if group.state != "PreparingRebalance":
            group.state = "PreparingRebalance"
            timeout = values.get("rebalance_timeout_ms", values["session_timeout_ms"]) / 1000
            self.broker.later(timeout, self._complete, group, group.generation)
        if all(each.joining is not None for each in group.members.values()):
            self._complete(group, group.generation)

    def _complete(self, group: Group, generation: int) -> None:
        if group.state != "PreparingRebalance" or group.generation != generation:
            return
        for member in [each for each in group.members.values() if each.joining is None]:
            del group.members[member.id]
        if not group.members:
            group.state = "Empty"
            return
        group.generation += 1
        group.state = "CompletingRebalance"
        if group.leader not in group.members:
            group.leader = next(iter(group.members))
        group.protocol = self._common_protocol(group)
        listed = [
            {
                "member_id": each.id,
                "metadata": next((one["metadata"] for one in each.protocols if one["name"] == group.protocol), b""),
            }
            for each in group.members.values()
        ]
        for member in group.members.values():
            done, member.joining = member.joining, None
            assert done is not None
            done(
                {
                    "error_code": 0, "generation_id": group.generation, "protocol_type": group.protocol_type,
                    "protocol_name": group.protocol, "leader": group.leader, "member_id": member.id,
                    "members": listed if member.id == group.leader else [],
                }
            )  # fmt: skip

    def _common_protocol(self, group: Group) -> str:
        names = [{one["name"] for one in each.protocols} for each in group.members.values()]
        common: set[Any] = set.intersection(*names)
        first = next(iter(group.members.values())).protocols
        return next((one["name"] for one in first if one["name"] in common), "")

    def sync(self, values: Values, done: Callable[[Values], object]) -> None:
        """SyncGroup: followers wait for the leader's assignment."""
        try:
            _, group = self.find(values["group_id"])
            if group is None:
                raise RefusedError(errors.UNKNOWN_MEMBER_ID)
            self._check_member(group, values["member_id"], values["generation_id"])
            if group.state == "PreparingRebalance":
                raise RefusedError(errors.REBALANCE_IN_PROGRESS)
        except RefusedError as error:
            done({"error_code": error.code, "assignment": b""})
            return
        group.members[values["member_id"]].syncing = done
        if values["member_id"] == group.leader and group.state == "CompletingRebalance":
            for each in values["assignments"]:
                if each["member_id"] in group.members:
                    group.members[each["member_id"]].assignment = each["assignment"]
            group.state = "Stable"
        if group.state == "Stable":
            for member in group.members.values():
                waiting, member.syncing = member.syncing, None
                if waiting is not None:
                    waiting(
                        {
                            "error_code": 0, "protocol_type": group.protocol_type, "protocol_name": group.protocol,
                            "assignment": member.assignment,
                        }
                    )  # fmt: skip

    def heartbeat(self, name: str, member: str, generation: int) -> int:
        """An error code; 27 asks the member to join again."""
        try:
            _, group = self.find(name)
            if group is None:
                return errors.UNKNOWN_MEMBER_ID
            self._check_member(group, member, generation)
        except RefusedError as error:
            return error.code
        return errors.REBALANCE_IN_PROGRESS if group.state == "PreparingRebalance" else errors.NONE

    def leave(self, name: str, member: str) -> int:
        """An error code; the others are asked to join again."""
        try:
            _, group = self.find(name)
        except RefusedError as error:
            return error.code
        if group is None or group.members.pop(member, None) is None:
            return errors.UNKNOWN_MEMBER_ID
        if not group.members:
            group.state = "Empty"
            group.generation += 1
        elif group.state != "PreparingRebalance":
            group.state = "PreparingRebalance"
            self.broker.later(self.broker.cluster.settings.request_timeout, self._complete, group, group.generation)
        return errors.NONE
