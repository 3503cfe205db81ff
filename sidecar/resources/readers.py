"""Which readers may fetch and commit: the reader claims of the changelog, on every node. This module only decides; it
closes no connections.

A claim belongs to one group and is on a topic or on one of its partitions. The claim on the partition has precedence
over the one on the topic; the two may have different holders between two records of one batch. Without a claim every
client may fetch and commit. A commit is checked against the claims of its group. A Fetch names no group, so a holder in
any group may read the partition. It is checked only if the policy `exclusive_reader` applies to the name that is read:
a shadow has its own claims and its source's policy.

A connection is the holder's if it is the claim's session, asked for the claim's session by its producer id, or has the
claim's name and the principal of the client that claimed it. If a former holder had the same name, or the name is a
library's default, only sessions count (Kafka wiki "Single Reader/Writer": there the connection is the owner).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.changelog import Change, Entry, Kind
from sidecar.cluster.resolver import ANONYMOUS
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as state


class Reader(NamedTuple):
    """A client connection. `session`: `conn:ID`; `name`: the name in its client.id, "" if it has none
    (`ClientIdentity.is_named`); `bound_sessions`: the sessions `pid:N` for which it has asked by Own or Watch;
    `principal`: the one that it logged in with.
    """

    session: str
    name: str = ""
    bound_sessions: Collection[str] = ()
    principal: str = ANONYMOUS


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a claim. `name`: its reader name; `deposed`: the names of former holders that lost the claim;
    `principal`: of the client that claimed it, "" if its record does not have it.
    """

    session: str
    name: str
    deposed: frozenset[str] = frozenset()
    generation: int = 1
    principal: str = ""

    @classmethod
    def of_record(cls, record: state.Claim) -> Holder:
        """Make the holder from a changelog record."""
        return cls(record.session, record.name, frozenset(record.deposed), record.generation, record.principal)

    def has_session(self, reader: Reader) -> bool:
        """Return whether a connection is the holder's session, or asked for it by Own or Watch."""
        return reader.session == self.session or self.session in reader.bound_sessions

    def is_reader(self, reader: Reader) -> bool:
        """Return whether a connection is the holder's, by session or by name."""
        if self.has_session(reader):
            return True
        return self.has_name(reader) and self.name not in self.deposed

    def has_name(self, reader: Reader) -> bool:
        """Return whether a connection has the holder's name, and its principal: a name is no secret."""
        is_named = bool(self.name) and reader.name == self.name
        return is_named and self.principal in ("", reader.principal)


class HandOver(NamedTuple):
    """A change of a claim's holder."""

    old: Holder
    new: Holder

    def severs(self, reader: Reader) -> bool:
        """Return whether to close a connection: it is the old holder's, by session or name, not the new one's."""
        if self.new.has_session(reader):
            return False
        if self.old.has_session(reader):
            return True
        return self.old.has_name(reader) and not self.new.has_name(reader)


class Changed(NamedTuple):
    """What follows from a record: claims that got another holder, and topics that a client may no longer read."""

    handed_over: Collection[HandOver]
    narrowed: Collection[bytes]


class ReaderClaims:
    """All claims of a cluster of nodes, as far as the changelog was read. `any` is False if there is no reader claim;
    `guards` is False if no Fetch has to be checked.
    """

    def __init__(self, is_exclusive: Callable[[bytes], bool]) -> None:
        """`is_exclusive`: whether the policy `exclusive_reader` applies to a name."""
        self.any = False
        self.guards = False
        self._claims: dict[bytes, dict[str, dict[int | None, Holder]]] = {}
        self._guarded: set[bytes] = set()
        self._is_exclusive = is_exclusive

    def load(self, claims: Iterable[Entry[state.Claim]]) -> None:
        """Load the claims of the changelog."""
        for entry in claims:
            self._put(entry.value)
        self._guard()

    # What it decides ------------------------------------------------------------------------------------------------

    def may_commit(self, group: str, topic: bytes, partition: int, reader: Reader) -> bool:
        """Return whether a connection may commit an offset of a group."""
        of_group = self._claims.get(topic, {}).get(group)
        holder = None if of_group is None else _nearest(of_group, partition)
        return holder is None or holder.is_reader(reader)

    def may_fetch(self, topic: bytes, partition: int, reader: Reader) -> bool:
        """Return whether a connection may read a partition under this name."""
        if topic not in self._guarded:
            return True
        holders = [_nearest(of_group, partition) for of_group in self._claims[topic].values()]
        found = [holder for holder in holders if holder is not None]
        return not found or any(holder.is_reader(reader) for holder in found)

    def refuses(self, partitions: Iterable[tuple[bytes, int]], reader: Reader) -> bool:
        """Return whether a connection may not read at least one of these partitions."""
        return any(not self.may_fetch(topic, partition, reader) for topic, partition in partitions)

    def may_delete(self, group: str, reader: Reader) -> bool:
        """Return whether a connection may delete a group with all its offsets: no other client has a claim in it."""
        of_group = (groups.get(group, {}) for groups in self._claims.values())
        return all(holder.is_reader(reader) for holders in of_group for holder in holders.values())

    # How it learns --------------------------------------------------------------------------------------------------

    def changed(self, change: Change) -> Changed:
        """Apply one record of the changelog, in log order: of a claim, a policy or a shadow."""
        if change.key.kind is not Kind.CLAIM:
            return Changed((), self._guard())
        before: Entry[state.Claim] | None = change.before
        after: Entry[state.Claim] | None = change.after
        topic = b"" if before is None else self._take(before.value)
        if after is not None:
            topic = self._put(after.value)
        narrowed = self._guard(topic) if topic else ()
        if before is None:
            return Changed((), narrowed)
        passed = self._overlapping(before.value) if after is None else _passed(before.value, after.value)
        return Changed(passed, narrowed)

    def _overlapping(self, record: state.Claim) -> list[HandOver]:
        """Return the new holders of claims that overlap with a deleted one: of the topic if it was a partition's claim,
        and the other way round. In the log the new claim comes before the old one's tombstone; only then do two holders
        overlap.
        """
        topic, partition = _place(record)
        of_group = self._claims.get(topic, {}).get(record.group, {})
        old, whole = Holder.of_record(record), of_group.get(None)
        if partition is not None:  # of a topic with thousands of claimed partitions, each is compared with this alone
            of_group = {} if whole is None else {None: whole}
        return [HandOver(old, new) for new in of_group.values() if new.session != old.session]

    def _put(self, record: state.Claim) -> bytes:
        topic, partition = _place(record)
        if topic:
            groups = self._claims.setdefault(topic, {})
            groups.setdefault(record.group, {})[partition] = Holder.of_record(record)
            self.any = True
        return topic

    def _take(self, record: state.Claim) -> bytes:
        topic, partition = _place(record)
        if topic:
            groups = self._claims[topic]
            del groups[record.group][partition]
            if not groups[record.group]:
                del groups[record.group]
            if not groups:
                del self._claims[topic]
            self.any = bool(self._claims)
        return topic

    def _guard(self, changed: bytes = b"") -> Collection[bytes]:
        """Find the claimed topics whose Fetches must be checked, and return those that are checked more narrowly;
        `changed`: the only topic that can differ.
        """
        if changed:
            narrowed = {changed} if changed in self._claims and self._is_exclusive(changed) else set[bytes]()
            self._guarded -= {changed} - narrowed
        else:
            guarded = {topic for topic in self._claims if self._is_exclusive(topic)}
            narrowed = guarded - self._guarded
            self._guarded &= guarded
        self._guarded |= narrowed
        self.guards = bool(self._guarded)
        return narrowed


def _passed(before: state.Claim, after: state.Claim) -> list[HandOver]:
    """Return the change of a claim's holder, if another one has it now."""
    if (before.session, before.name) == (after.session, after.name):
        return []
    old, new = Holder.of_record(before), Holder.of_record(after)
    if before.resource.name:  # a free string is not read or committed: only sessions matter
        if Session(before.session).is_plain:
            return []  # the coordinator, its own node, reports the loss and then closes it
        old, new = Holder(old.session, ""), Holder(new.session, "")
    return [HandOver(old, new)]


def _place(record: state.Claim) -> tuple[bytes, int | None]:
    """Return topic and partition (None: all) of a claim; the topic is empty for a free string."""
    resource = record.resource
    return resource.topic.encode(), resource.partition if resource.HasField("partition") else None


def _nearest(claims: Mapping[int | None, Holder], partition: int) -> Holder | None:
    return claims.get(partition) or claims.get(None)
