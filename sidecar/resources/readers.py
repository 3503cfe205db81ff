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
from typing import NamedTuple, Protocol

from sidecar.changelog import Change, Entry, Kind, Tailer
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as state


class Reader(Protocol):
    """A client connection. `session`: `conn:ID`; `bound_sessions`: the sessions `pid:N` for which it has asked by Own
    or Watch; `reader_name`: the name in its client.id, "" if it has none (`ClientIdentity.is_named`); `principal`: the
    one that it logged in with, `User:ANONYMOUS` if it did not.
    """

    @property
    def session(self) -> str: ...
    @property
    def bound_sessions(self) -> Collection[str]: ...
    @property
    def reader_name(self) -> str: ...
    @property
    def principal(self) -> str: ...


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
        is_named = bool(self.name) and reader.reader_name == self.name
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


def _ignore(_: object) -> None:
    """Do nothing: the default until the node sets its own callback."""


class ReaderClaims:
    """All claims of a cluster of nodes, as far as the changelog was read.

    `any` is False if there is no reader claim; `guards` is False if no Fetch has to be checked. `handed_over` is called
    when a claim gets another holder, `narrowed` when a client may have lost the right to read a topic. Neither may
    raise or block.
    """

    __slots__ = ("_claims", "_guarded", "_is_exclusive", "any", "guards", "handed_over", "narrowed")

    def __init__(self, is_exclusive: Callable[[bytes], bool]) -> None:
        """`is_exclusive`: whether the policy `exclusive_reader` applies to a name."""
        self.any = False
        self.guards = False
        self.handed_over: Callable[[HandOver], None] = _ignore
        self.narrowed: Callable[[bytes], None] = _ignore
        self._claims: dict[bytes, dict[str, dict[int | None, Holder]]] = {}
        self._guarded: set[bytes] = set()
        self._is_exclusive = is_exclusive

    def start(self, tailer: Tailer) -> None:
        """Load the claims of the changelog and follow it. Listeners on which `is_exclusive` depends must subscribe
        first.
        """
        tailer.subscribe(self.changed, Kind.CLAIM, Kind.POLICY, Kind.SHADOW)
        for entry in tailer.view.claims():
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

    def changed(self, change: Change) -> None:
        """Apply one record of the changelog, in log order."""
        if change.key.kind is Kind.CLAIM:
            self._claim_changed(change.before, change.after)
        else:
            self._guard()

    def _claim_changed(self, before: Entry[state.Claim] | None, after: Entry[state.Claim] | None) -> None:
        topic = b""
        if before is not None:
            topic = self._take(before.value)
        if after is not None:
            topic = self._put(after.value)
        if topic:
            self._guard(topic)
        if before is None:
            return
        if after is None:
            self._see_who_took(before.value)
        else:
            self._compare(before.value, after.value)

    def _see_who_took(self, record: state.Claim) -> None:
        """Report the new holders of claims that overlap with a deleted one: of the topic if it was a partition's claim,
        and the other way round. In the log the new claim comes before the old one's tombstone; only then do two holders
        overlap.
        """
        topic, partition = _place(record)
        of_group = self._claims.get(topic, {}).get(record.group, {})
        old = Holder.of_record(record)
        whole = of_group.get(None)  # of a topic with thousands of claimed partitions, each is compared with this alone
        for new in of_group.values() if partition is None else () if whole is None else (whole,):
            if new.session != old.session:
                self.handed_over(HandOver(old, new))

    def _compare(self, before: state.Claim, after: state.Claim) -> None:
        if (before.session, before.name) == (after.session, after.name):
            return
        old, new = Holder.of_record(before), Holder.of_record(after)
        if before.resource.name:  # a free string is not read or committed: only sessions matter
            if Session(before.session).is_plain:
                return  # the coordinator, its own node, reports the loss and then closes it
            old, new = Holder(old.session, ""), Holder(new.session, "")
        self.handed_over(HandOver(old, new))

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

    def _guard(self, changed: bytes = b"") -> None:
        """Find the claimed topics whose Fetches must be checked; `changed`: the only topic that can differ."""
        if changed:
            narrowed = {changed} if changed in self._claims and self._is_exclusive(changed) else set[bytes]()
            self._guarded -= {changed} - narrowed
        else:
            guarded = {topic for topic in self._claims if self._is_exclusive(topic)}
            narrowed = guarded - self._guarded
            self._guarded &= guarded
        self._guarded |= narrowed
        self.guards = bool(self._guarded)
        for topic in narrowed:
            self.narrowed(topic)


def _place(record: state.Claim) -> tuple[bytes, int | None]:
    """Return topic and partition (None: all) of a claim; the topic is empty for a free string."""
    resource = record.resource
    return resource.topic.encode(), resource.partition if resource.HasField("partition") else None


def _nearest(claims: Mapping[int | None, Holder], partition: int) -> Holder | None:
    return claims.get(partition) or claims.get(None)
