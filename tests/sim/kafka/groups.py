"""The group coordinator of one broker: committed offsets, and the classic protocol as far as one simple consumer needs
it (`GroupCoordinator`, `GroupMetadataManager`).

Offsets are records of `__consumer_offsets` and move with it. Members are memory: they join again where the coordinator
has moved, as with Kafka, where their metadata would be loaded and their heartbeats awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.protocol.schema import Values
from sidecar.protocol.topic_ids import NO_TOPIC_ID
from tests.sim.kafka import batches, errors
from tests.sim.kafka.errors import RefusedError

if TYPE_CHECKING:
    from tests.sim.kafka.batches import Batch
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.replica import Replica


_SHORTEST_SESSION: Final = 6_000
"""group.min.session.timeout.ms."""
_LONGEST_SESSION: Final = 1_800_000
"""group.max.session.timeout.ms."""
_FIRST_WITHOUT_PROTOCOL: Final = 7
_TOMBSTONE: Final = -(2**63)
"""The offset of a commit that takes the earlier ones away."""
_COMMIT_TIMEOUT_S: Final = 5.0
"""offset.commit.timeout.ms."""
_COMMIT_ERRORS: Final = {
    errors.UNKNOWN_TOPIC_OR_PARTITION: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_LEADER_OR_FOLLOWER: errors.NOT_COORDINATOR,
}
"""What an error of the append to `__consumer_offsets` is answered as: `CoordinatorOperationExceptionHelper`, before 4.0
`GroupMetadataManager.storeOffsets`. Both have more for batches that are too large and for disks, which fail no commit
here.
"""


class Commit(NamedTuple):
    """One record of `__consumer_offsets`."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes = NO_TOPIC_ID
    """By which it was committed (version 10)."""
    at: int = -1
    """Where it stands in the log."""


class Member:
    """`joining` and `syncing` are answers that are owed."""

    __slots__ = ("assignment", "id", "joining", "protocols", "rebalance_s", "syncing")

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.protocols: list[Values] = []
        self.assignment = b""
        self.rebalance_s = 0.0
        self.joining: Callable[[Values], object] | None = None
        self.syncing: Callable[[Values], object] | None = None

    def metadata(self, protocol: str) -> bytes:
        return next((each["metadata"] for each in self.protocols if each["name"] == protocol), b"")


class Group:
    """A classic group: Empty, PreparingRebalance while members join, CompletingRebalance, Stable."""

    __slots__ = (
        "expected",
        "generation",
        "leader",
        "members",
        "offsets",
        "pending",
        "protocol",
        "protocol_type",
        "state",
    )

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], Commit] = {}
        self.pending: dict[int, dict[tuple[str, int], Commit]] = {}
        """By producer id: offsets of transactions that are open."""
        self.members: dict[str, Member] = {}
        self.expected: set[str] = set()
        """Ids that were given to members that have not joined with them yet (KIP-394)."""
        self.generation = 0
        self.leader = ""
        self.protocol = ""
        self.protocol_type = ""
        self.state = "Empty"

    def check_protocols(self, member: str, kind: str, protocols: list[Values]) -> None:
        """That a member fits to the others (`supportsProtocols`). Raises `RefusedError` 23."""
        others = [{one["name"] for one in each.protocols} for each in self.members.values() if each.id != member]
        named = {each["name"] for each in protocols}
        fits = not others or (kind == self.protocol_type and named & set[str].intersection(*others))
        if not kind or not protocols or not fits:
            raise RefusedError(errors.INCONSISTENT_GROUP_PROTOCOL)


class Shard:
    """One partition of `__consumer_offsets`."""

    __slots__ = ("groups", "loading", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.loading = True
        self.groups: dict[str, Group] = {}

    def take(self, commits: tuple[Commit, ...], pid: int, at: int) -> None:
        """Offsets that are in the log; those of a transaction wait for its marker."""
        for commit in commits:
            if commit.offset == _TOMBSTONE and commit.group not in self.groups:
                continue
            group = self.groups.setdefault(commit.group, Group())
            offsets = group.offsets if pid < 0 else group.pending.setdefault(pid, {})
            if commit.offset == _TOMBSTONE:
                offsets.pop((commit.topic, commit.partition), None)
            else:
                offsets[commit.topic, commit.partition] = commit._replace(at=at)

    def ended(self, pid: int, *, commit: bool) -> None:
        for group in self.groups.values():
            offsets = group.pending.pop(pid, {})
            if commit:  # the newer record counts, also one that was committed outside meanwhile
                newer = {
                    place: each
                    for place, each in offsets.items()
                    if place not in group.offsets or group.offsets[place].at < each.at
                }
                group.offsets |= newer


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
        """Since 4.0 what is above the high watermark counts once that has passed it (`CoordinatorRuntime`: reads see
        the last committed offset); until then an older offset is answered, or none.
        """
        if self.shards.get(shard.replica.index) is not shard:
            return
        waits = self.broker.cluster.settings.version >= (4, 0)
        for batch in shard.replica.log.batches:
            if waits and batch.last >= shard.replica.high_watermark:
                shard.replica.when_replicated(batch.last, partial(self._loaded, shard, batch))
            else:
                self._loaded(shard, batch, errors.NONE)
        shard.loading = False

    def _loaded(self, shard: Shard, batch: Batch, error: int) -> None:
        if error == errors.NOT_LEADER_OR_FOLLOWER:
            return
        if batch.control:
            shard.ended(batch.pid, commit=batch.marker == 1)
        else:
            shard.take(batch.note, batch.pid, batch.base)

    def marked(self, replica: Replica, pid: int, *, commit: bool) -> None:
        """A marker is in a partition of offsets (`onTransactionCompleted`)."""
        shard = self.shards.get(replica.index)
        if shard is not None and shard.replica is replica and not shard.loading:
            shard.ended(pid, commit=commit)

    def find_named(self, name: str) -> tuple[Shard, Group | None]:
        """As `find`. Only offsets may belong to a group without a name: raises `RefusedError` 24."""
        if not name:
            raise RefusedError(errors.INVALID_GROUP_ID)
        return self.find(name)

    def find(self, name: str) -> tuple[Shard, Group | None]:
        """Raises `RefusedError` 16, 14."""
        shard = self.shards.get(self.broker.cluster.group_partition(name))
        if shard is None:
            raise RefusedError(errors.NOT_COORDINATOR)
        if shard.loading:
            raise RefusedError(errors.COORDINATOR_LOAD_IN_PROGRESS)
        return shard, shard.groups.get(name)

    def commit(
        self, name: str, member: str, generation: int, commits: tuple[Commit, ...], done: Callable[[int], object],
        stamp: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """OffsetCommit; -1 and no member is a commit from outside, for a group without members alone, unless a stamp
        makes it part of a transaction.
        """
        try:
            shard, group = self.find(name)
            if group is None and generation >= 0:
                older = stamp is not None and self.broker.cluster.settings.version < (4, 0)
                raise RefusedError(errors.UNKNOWN_MEMBER_ID if older else errors.ILLEGAL_GENERATION)
            group = group or shard.groups.setdefault(name, Group())
            if generation >= 0 or group.state != "Empty":
                self._may_commit(group, member, generation, transactional=stamp is not None)
            if not commits:
                done(errors.NONE)
                return
            batch = batches.noted(commits, self.broker.wall_ms(), stamp)
            self._append(shard, batch, stamp[0] if stamp is not None else -1, done)
        except RefusedError as error:
            done(error.code)

    def topic_deleted(self, topic: str) -> None:
        """Its offsets go (`OffsetMetadataManager.onPartitionsDeleted`), also those of open transactions. Before 4.0 so
        does every group without members and offsets (`GroupMetadataManager.cleanupGroupMetadata`).
        """
        runtime = self.broker.cluster.settings.version >= (4, 0)
        for shard in self.shards.values():
            for name, group in list(shard.groups.items()):
                places = [(pid, place) for pid, found in group.pending.items() for place in found if place[0] == topic]
                for pid, place in places:
                    del group.pending[pid][place]
                gone = [place for place in group.offsets if place[0] == topic]
                commits = tuple(Commit(name, *place, _TOMBSTONE, -1, "") for place in gone)
                if commits and not shard.loading:
                    self._append(shard, batches.noted(commits, self.broker.wall_ms()), -1, lambda _: None)
                has_offsets = group.pending or group.offsets.keys() - gone
                if not runtime and group.state == "Empty" and not has_offsets:
                    del shard.groups[name]

    def _may_commit(self, group: Group, member: str, generation: int, *, transactional: bool) -> None:
        """`ClassicGroup.validateOffsetCommit`."""
        if generation >= 0 or member:
            self._check_member(group, member, generation)
        elif not transactional:
            raise RefusedError(errors.UNKNOWN_MEMBER_ID)
        if not transactional and group.state == "CompletingRebalance":
            raise RefusedError(errors.REBALANCE_IN_PROGRESS)

    def _append(self, shard: Shard, batch: Batch, pid: int, done: Callable[[int], object]) -> None:
        """Since 4.0 offsets are appended with acks=1, whatever the ISR is (`CoordinatorPartitionWriter`), and wait for
        the high watermark: a member that waits too long is answered 15, and they count all the same once it has passed
        them. Before that acks=all was asked of the log, and a wait that is too long was answered 7.
        """
        runtime = self.broker.cluster.settings.version >= (4, 0)
        try:
            appended = shard.replica.append_note(batch, 1 if runtime else -1)
        except RefusedError as error:
            done(_COMMIT_ERRORS.get(error.code, error.code))
            return
        is_answered = False

        def answer(error: int) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                done(_COMMIT_ERRORS.get(error, error))

        def replicated(error: int) -> None:
            if not error:
                shard.take(batch.note, pid, appended.base)
            answer(error)

        def overdue() -> None:
            if not is_answered and not runtime and waiting is not None:
                shard.replica.forget(waiting)
            answer(errors.COORDINATOR_NOT_AVAILABLE if runtime else errors.REQUEST_TIMED_OUT)

        waiting = shard.replica.when_replicated(appended.last, replicated)
        if waiting is not None:
            self.broker.later(_COMMIT_TIMEOUT_S, overdue)

    def _check_member(self, group: Group, member: str, generation: int) -> None:
        if member not in group.members:
            raise RefusedError(errors.UNKNOWN_MEMBER_ID)
        if generation != group.generation:
            raise RefusedError(errors.ILLEGAL_GENERATION)

    # Membership ----------------------------------------------------------------------------------------------------

    def join(self, values: Values, version: int, done: Callable[[Values], object]) -> None:
        """JoinGroup: every present member joins, then all are answered."""

        def refuse(code: int, member_id: str) -> None:
            nothing = "" if version < _FIRST_WITHOUT_PROTOCOL else None
            done(
                {
                    "error_code": code, "generation_id": -1, "member_id": member_id, "members": [],
                    "protocol_name": nothing,
                }
            )  # fmt: skip

        member_id: str = values["member_id"]
        try:
            shard, group = self.find_named(values["group_id"])
            if not _SHORTEST_SESSION <= values["session_timeout_ms"] <= _LONGEST_SESSION:
                raise RefusedError(errors.INVALID_SESSION_TIMEOUT)
            if member_id and (group is None or member_id not in (*group.members, *group.expected)):
                raise RefusedError(errors.UNKNOWN_MEMBER_ID)
            group = group or Group()
            group.check_protocols(member_id, values["protocol_type"], values["protocols"])
        except RefusedError as error:
            refuse(error.code, member_id)
            return
        shard.groups.setdefault(values["group_id"], group)
        if not member_id:
            self._names += 1
            member_id = f"member-{self.broker.id}-{self.broker.life}-{self._names}"
            if version >= 4:  # KIP-394
                group.expected.add(member_id)
                refuse(errors.MEMBER_ID_REQUIRED, member_id)
                return
        group.expected.discard(member_id)
        is_new = member_id not in group.members
        member = group.members.setdefault(member_id, Member(member_id))
        protocols = [{"name": each["name"], "metadata": each["metadata"]} for each in values["protocols"]]
        is_follower = group.state == "Stable" and member_id != group.leader
        if not is_new and member.protocols == protocols and (group.state == "CompletingRebalance" or is_follower):
            done(self._joined(group, member))
            return
        member.protocols = protocols
        member.joining = done
        group.protocol_type = values["protocol_type"]
        member.rebalance_s = values.get("rebalance_timeout_ms", values["session_timeout_ms"]) / 1000
        if group.state != "PreparingRebalance":
            self._prepare(group)
        if all(each.joining is not None for each in group.members.values()):
            self._complete(group, group.generation)

    def _prepare(self, group: Group) -> None:
        """`prepareRebalance`: who waits for an assignment has to join again."""
        if group.state == "CompletingRebalance":
            for member in group.members.values():
                member.assignment = b""
                waiting, member.syncing = member.syncing, None
                if waiting is not None:
                    waiting({"error_code": errors.REBALANCE_IN_PROGRESS, "assignment": b""})
        group.state = "PreparingRebalance"
        timeout = max(each.rebalance_s for each in group.members.values())
        self.broker.later(timeout, self._complete, group, group.generation)

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
        for member in group.members.values():
            done, member.joining = member.joining, None
            assert done is not None
            done(self._joined(group, member))

    def _joined(self, group: Group, member: Member) -> Values:
        """The answer to a member of this generation."""
        listed = [{"member_id": each.id, "metadata": each.metadata(group.protocol)} for each in group.members.values()]
        return {
            "error_code": 0, "generation_id": group.generation, "protocol_type": group.protocol_type,
            "protocol_name": group.protocol, "leader": group.leader, "member_id": member.id,
            "members": listed if member.id == group.leader else [],
        }  # fmt: skip

    def _common_protocol(self, group: Group) -> str:
        names = [{one["name"] for one in each.protocols} for each in group.members.values()]
        common: set[Any] = set.intersection(*names)
        first = next(iter(group.members.values())).protocols
        return next((one["name"] for one in first if one["name"] in common), "")

    def sync(self, values: Values, done: Callable[[Values], object]) -> None:
        """SyncGroup: followers wait for the leader's assignment."""
        try:
            _, group = self.find_named(values["group_id"])
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
            _, group = self.find_named(name)
            if group is None:
                return errors.UNKNOWN_MEMBER_ID
            self._check_member(group, member, generation)
        except RefusedError as error:
            return error.code
        return errors.REBALANCE_IN_PROGRESS if group.state == "PreparingRebalance" else errors.NONE

    def leave(self, name: str, member: str) -> int:
        """An error code; the others are asked to join again."""
        try:
            _, group = self.find_named(name)
        except RefusedError as error:
            return error.code
        if group is None or group.members.pop(member, None) is None:
            return errors.UNKNOWN_MEMBER_ID
        if not group.members:
            group.state = "Empty"
            group.generation += 1
        elif group.state != "PreparingRebalance":
            self._prepare(group)
        elif all(each.joining is not None for each in group.members.values()):
            self._complete(group, group.generation)
        return errors.NONE
