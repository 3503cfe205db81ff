"""Share sessions (KIP-932): the partitions that one member reads through a node, and their distribution over brokers.
Pure.

A session belongs to a group and a member, as at a broker (`ShareSessionCache`): requests of a session may come on any
of the member's connections. It ends with the connection that opened it, and all of its requests to brokers are sent for
that connection, because a broker, too, ends a session with the connection on which it was opened. Unlike at a broker,
it also belongs to a principal: a client that names another principal's member has a session of its own.

A member has a session with each node that leads partitions for it; a broker has one session per group and member. So a
node has its own session with every broker that leads some of the member's partitions. Two nodes must not share one, so
each node uses its own member id, derived from the member's, its principal and the node's. Coordinators never see it:
brokers compare it only with the sessions and the acquired records that they have for it.

An epoch counts the requests of a session: 0 opens it, -1 closes it. A broker releases the records that a member has
acquired when the session or its connection ends, as if the leader had moved.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from sidecar.cluster.resolver import ANONYMOUS
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.schema import Values

if TYPE_CHECKING:
    from sidecar.gateway.client import Client

Part: TypeAlias = tuple[bytes, int]
"""A partition: topic id and index."""
Acks: TypeAlias = dict[Part, list[Any]]
"""Batches of acknowledgements."""


class Key(NamedTuple):
    """What a session belongs to."""

    principal: str
    group: str
    member: str


INITIAL: Final = 0
FINAL: Final = -1
_LAST: Final = 2**31 - 1
_MOST_PARTS: Final = 10_000
"""The limit of partitions in a session."""
_MOST_PARTS_OF_ONE: Final = 200_000
"""The limit of partitions in all sessions of a principal: up to 60 MB."""
_MOST_SESSIONS: Final = 2_000
"""The limit of sessions at a node, as of a broker by default (`group.share.max.share.sessions`)."""
_MOST_SESSIONS_OF_ONE: Final = 1_000
"""The limit of sessions of a principal that has logged in."""
_MOST_SESSIONS_OF_CONNECTION: Final = 100
"""The limit of sessions that one connection opens; clients open one."""
_MEMBER_LENGTH: Final = 36


def next_epoch(epoch: int) -> int:
    """The epoch of the next request (`ShareRequestMetadata.nextEpoch`)."""
    return 1 if epoch == _LAST else epoch + 1


def member_of(node_id: int, principal: str, member_id: str) -> str:
    """The member id that this node uses at brokers for a principal's member: in the form of Kafka's UUIDs."""
    digest = hashlib.sha256("\0".join((str(node_id), principal, member_id)).encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(slots=True)
class BrokerSession:
    """The session with one broker: the epoch of the next request, and the partitions that the broker knows."""

    epoch: int = INITIAL
    parts: set[Part] = field(default_factory=set[Part])

    def ask(self, wanted: Iterable[Part], acks: Acks) -> tuple[list[Values], list[Values]]:
        """The topics of the next request, which counts as sent: added or acknowledged ones, and forgotten ones."""
        wanted = [*wanted]
        added = {part: acks.get(part, []) for part in wanted if part not in self.parts or part in acks}
        forgotten = self.parts.difference(wanted)
        added |= acks  # also for forgotten partitions: the member still has their records
        self.parts = set(wanted)
        self.epoch = next_epoch(self.epoch)
        topics = _by_topic(
            (part, {"partition_index": part[1], "acknowledgement_batches": batches}) for part, batches in added.items()
        )
        return topics, _by_topic((part, part[1]) for part in sorted(forgotten))


@dataclass(slots=True, eq=False)
class ShareSession:
    """The session of one member. `member`: its id at brokers. `opener`: the client connection with which it ends.
    `turns` lets brokers take turns if a client wants few records.
    """

    key: Key
    member: str
    opener: Client
    epoch: int = 1
    parts: dict[Part, None] = field(default_factory=dict[Part, None])
    brokers: dict[int, BrokerSession] = field(default_factory=dict[int, BrokerSession])
    turns: int = 0
    is_over: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while brokers are asked, so that they get the session's requests in the order of their epochs."""

    def acks_by_broker(self, acks: Acks, leader: Callable[[Part], int]) -> tuple[dict[int, Acks], list[Part]]:
        """The acknowledgements by the broker that gave the records, and the partitions for which there is none: their
        records are released. For a forgotten partition it is the leader, if the session with that broker still exists.
        """
        found: dict[int, Acks] = {}
        nowhere: list[Part] = []
        for part, batches in acks.items():
            broker = next((each for each, session in self.brokers.items() if part in session.parts), None)
            broker = leader(part) if broker is None else broker
            if broker not in self.brokers:
                nowhere.append(part)
            else:
                found.setdefault(broker, {})[part] = batches
        return found, nowhere


class ShareSessions:
    """The sessions of all clients of a node."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._sessions: dict[Key, ShareSession] = {}
        self._by_connection: defaultdict[int, set[ShareSession]] = defaultdict(set)
        self._of_principal: Counter[str] = Counter()
        self._parts_of_principal: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def known(self, client: Client, fields: Values) -> ShareSession:
        """The session of a request that opens none. Raises `KafkaError` if there is none, or if its epoch differs."""
        session = self._sessions.get(key_of(client, fields))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        epoch: int = fields["share_session_epoch"]
        if epoch != FINAL:
            if epoch != session.epoch:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = next_epoch(epoch)
        return session

    def open(self, client: Client, fields: Values) -> tuple[ShareSession, ShareSession | None]:
        """A new session, and the one that it replaces. Raises `KafkaError`."""
        key = key_of(client, fields)
        if acks_in(fields):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if client.connection.closed:  # its end has been handled, and would not end this session
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        former = self._sessions.get(key)
        self._check_room(client, former)
        if former is not None:
            self.close(former)
        session = ShareSession(key, member_of(self._node_id, key.principal, key.member), client)
        self._sessions[key] = session
        self._by_connection[client.connection.id].add(session)
        self._of_principal[key.principal] += 1
        try:
            self.update(session, fields)
        except KafkaError:
            self.close(session)
            raise
        return session, former

    def _check_room(self, client: Client, former: ShareSession | None) -> None:
        """Raises `KafkaError` if there is no room for another session; one that is replaced gives its place."""
        opened = self._by_connection.get(client.connection.id, set[ShareSession]())
        is_full = len(opened) >= _MOST_SESSIONS_OF_CONNECTION and former not in opened
        if former is None:
            of_one = 0 if client.principal == ANONYMOUS else self._of_principal[client.principal]
            is_full = is_full or len(self._sessions) >= _MOST_SESSIONS or of_one >= _MOST_SESSIONS_OF_ONE
        if is_full:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def update(self, session: ShareSession, fields: Values) -> None:
        """Add the partitions that a ShareFetch names, then remove those that it forgets. Raises `KafkaError`."""
        principal, parts = session.key.principal, session.parts
        topics: list[Values] = fields["topics"]
        named = ((topic["topic_id"], each["partition_index"]) for topic in topics for each in topic["partitions"])
        added = dict.fromkeys(part for part in named if part not in parts)
        total = self._parts_of_principal[principal] + len(added)
        if len(parts) + len(added) > _MOST_PARTS or total > _MOST_PARTS_OF_ONE:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        before = len(parts)
        parts.update(added)
        for topic in fields["forgotten_topics_data"]:
            for index in topic["partitions"]:
                parts.pop((topic["topic_id"], index), None)
        self._parts_of_principal[principal] += len(parts) - before

    def close(self, session: ShareSession) -> None:
        """The session is over: no request finds it any more. Does nothing if it already was."""
        if session.is_over:
            return
        session.is_over = True
        del self._sessions[session.key]
        connection, principal = session.opener.connection.id, session.key.principal
        self._by_connection[connection].discard(session)
        if not self._by_connection[connection]:
            del self._by_connection[connection]
        for counts, count in ((self._of_principal, 1), (self._parts_of_principal, len(session.parts))):
            counts[principal] -= count
            if not counts[principal]:
                del counts[principal]

    def connection_closed(self, connection_id: int) -> None:
        """End the sessions that this connection opened."""
        for session in list(self._by_connection.get(connection_id, ())):
            self.close(session)


def key_of(client: Client, fields: Values) -> Key:
    """The key of a request. Raises `KafkaError` for an invalid member id (`KafkaApis.isMemberIdValid`)."""
    group, member = fields["group_id"] or "", fields["member_id"] or ""
    if not 0 < len(member) <= _MEMBER_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return Key(client.principal, group, member)


def acks_in(fields: Values) -> Acks:
    """The acknowledgements in a request."""
    found: Acks = {}
    for topic in fields["topics"]:
        for each in topic["partitions"]:
            if each["acknowledgement_batches"]:
                found[topic["topic_id"], each["partition_index"]] = each["acknowledgement_batches"]
    return found


def split(count: int, among: int, turn: int) -> list[int]:
    """Splits `count` into `among` parts. The parts that get one more than others move on by one with each turn."""
    each, rest = divmod(count, among)
    return [each + ((index - turn) % among < rest) for index in range(among)]


def _by_topic(elements: Iterable[tuple[Part, Any]]) -> list[Values]:
    topics: dict[bytes, list[Any]] = {}
    for (topic_id, _), element in elements:
        topics.setdefault(topic_id, []).append(element)
    return [{"topic_id": topic_id, "partitions": found} for topic_id, found in topics.items()]


_NO_LEADER: Final = {"leader_id": -1, "leader_epoch": -1}


@dataclass(slots=True, eq=False)
class Gathered:
    """Merges brokers' answers into one. Leaders that they name are left out: `leader_hints` names nodes."""

    parts: dict[Part, Values] = field(default_factory=dict[Part, Values])
    acked: dict[Part, tuple[int, str | None]] = field(default_factory=dict[Part, tuple[int, str | None]])
    error: int = 0
    message: str | None = None
    throttle_ms: int = 0
    lock_ms: int = 0
    has_records: bool = False

    def take(self, answer: Values) -> None:
        """Add a broker's answer to ShareFetch."""
        self._front(answer)
        for topic in answer["responses"]:
            for found in topic["partitions"]:
                part = topic["topic_id"], found["partition_index"]
                if found["acknowledge_error_code"] or part not in self.acked:
                    self.acked[part] = found["acknowledge_error_code"], found["acknowledge_error_message"]
                if found["records"] or found["error_code"] or part not in self.parts:
                    self.parts[part] = found
                self.has_records = self.has_records or bool(found["records"]) or bool(found["error_code"])

    def take_acknowledged(self, answer: Values) -> None:
        """Add a broker's answer to ShareAcknowledge."""
        self._front(answer)
        for topic in answer["responses"]:
            for found in topic["partitions"]:
                self.acked[topic["topic_id"], found["partition_index"]] = found["error_code"], found["error_message"]

    def _front(self, answer: Values) -> None:
        self.throttle_ms = max(self.throttle_ms, answer["throttle_time_ms"])
        lock_ms: int = answer.get("acquisition_lock_timeout_ms", 0)
        self.lock_ms = min(self.lock_ms, lock_ms) if self.lock_ms and lock_ms else self.lock_ms or lock_ms

    def refuse(self, parts: Iterable[Part], code: int) -> None:
        """Refuse to read these partitions."""
        for part in parts:
            self.parts[part] = {"partition_index": part[1], "error_code": code}

    def not_acknowledged(self, parts: Iterable[Part], code: int) -> None:
        """Report that acknowledgements for these partitions failed."""
        self.acked.update((part, (code, None)) for part in parts)

    def fetched(self) -> Values:
        """The answer to ShareFetch."""
        parts = dict(self.parts)
        for part, (code, said) in self.acked.items():
            fetched = parts.get(part, {"partition_index": part[1], "error_code": ErrorCode.NONE})  # only acknowledged
            parts[part] = fetched | {"acknowledge_error_code": code, "acknowledge_error_message": said}
        return self._answer(parts)

    def acknowledged(self) -> Values:
        """The answer to ShareAcknowledge."""
        return self._answer(
            {
                part: {"partition_index": part[1], "error_code": code, "error_message": said}
                for part, (code, said) in self.acked.items()
            }
        )

    def _answer(self, parts: Mapping[Part, Values]) -> Values:
        return {
            "throttle_time_ms": self.throttle_ms,
            "error_code": self.error,
            "error_message": self.message,
            "acquisition_lock_timeout_ms": self.lock_ms,
            "responses": _by_topic((part, found | {"current_leader": _NO_LEADER}) for part, found in parts.items()),
            "node_endpoints": [],
        }
