"""Share sessions (KIP-932): the partitions that one client reads through a node, and their distribution over brokers.
Pure.

A client has a session with each node that leads partitions for it; a broker has one session per group and member. So a
node has its own session with every broker that leads some of the client's partitions. Two nodes must not share one, so
each node uses its own member id, derived from the member's and the node's. Coordinators never see it: brokers compare
it only with the sessions and the acquired records that they have for it.

An epoch counts the requests of a session: 0 opens it, -1 closes it. A broker releases the records that a member has
acquired when the session or its connection ends, as if the leader had moved.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.schema import Values

Part: TypeAlias = tuple[bytes, int]
"""A partition: topic id and index."""
Acks: TypeAlias = dict[Part, list[Any]]
"""Batches of acknowledgements."""

INITIAL: Final = 0
FINAL: Final = -1
_LAST: Final = 2**31 - 1
_MOST_PARTS: Final = 10_000
_MOST_SESSIONS: Final = 100
"""The limit of sessions per connection; clients have one."""
_MEMBER_LENGTH: Final = 36


def next_epoch(epoch: int) -> int:
    """The epoch of the next request (`ShareRequestMetadata.nextEpoch`)."""
    return 1 if epoch == _LAST else epoch + 1


def member_of(node_id: int, member_id: str) -> str:
    """The member id that this node uses at brokers for a member: in the form of Kafka's UUIDs."""
    digest = hashlib.sha256(f"{node_id}/{member_id}".encode()).digest()[:16]
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


@dataclass(slots=True)
class ShareSession:
    """The session of one member on one connection. `turns` lets brokers take turns if a client wants few records."""

    epoch: int = 1
    parts: dict[Part, None] = field(default_factory=dict[Part, None])
    brokers: dict[int, BrokerSession] = field(default_factory=dict[int, BrokerSession])
    turns: int = 0

    def update(self, fields: Values) -> None:
        """Add the partitions that a ShareFetch names, then remove those that it forgets. Raises `KafkaError`."""
        for topic in fields["topics"]:
            topic_id: bytes = topic["topic_id"]
            self.parts.update(((topic_id, each["partition_index"]), None) for each in topic["partitions"])
        for topic in fields["forgotten_topics_data"]:
            for index in topic["partitions"]:
                self.parts.pop((topic["topic_id"], index), None)
        if len(self.parts) > _MOST_PARTS:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

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


Sessions: TypeAlias = dict[tuple[str, str], ShareSession]
"""The sessions of one connection, by group and member."""


def key_of(fields: Values) -> tuple[str, str]:
    """The group and member of a request. Raises `KafkaError` for an invalid member id (`KafkaApis.isMemberIdValid`)."""
    group, member = fields["group_id"] or "", fields["member_id"] or ""
    if not 0 < len(member) <= _MEMBER_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return group, member


def known(sessions: Sessions, fields: Values) -> ShareSession:
    """The session of a request that opens none. Raises `KafkaError` if there is none, or if its epoch differs."""
    session = sessions.get(key_of(fields))
    if session is None:
        raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
    epoch: int = fields["share_session_epoch"]
    if epoch != FINAL:
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(epoch)
    return session


def opened(sessions: Sessions, fields: Values) -> tuple[ShareSession, ShareSession | None]:
    """A new session, and the one that it replaces. Raises `KafkaError`."""
    key = key_of(fields)
    if acks_in(fields):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if key not in sessions and len(sessions) >= _MOST_SESSIONS:
        raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    session = ShareSession()
    session.update(fields)
    former = sessions.get(key)
    sessions[key] = session
    return session, former


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
            found = parts.get(part, {"partition_index": part[1]})
            parts[part] = found | {"acknowledge_error_code": code, "acknowledge_error_message": said}
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
