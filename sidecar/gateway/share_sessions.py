"""Share sessions (KIP-932): what one client reads through a node, and how that is spread over brokers. Pure.

A client has a session with each node that it takes for a leader, a broker one session for each group and member. So a
node keeps a session of its own with every broker that leads some of the client's partitions, and two nodes must not
share one: each asks under a member id of its own, made of the member's and the node's. Coordinators never see it:
brokers compare it with nothing but the sessions and the acquired records that they have under it.

An epoch counts the requests of a session: 0 opens it, -1 closes it. Records that a member has acquired under a session
are released by the broker when that ends, and with the connection: as they would be if the leader had moved.
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
"""Of one connection. Clients have one."""
_MEMBER_LENGTH: Final = 36


def next_epoch(epoch: int) -> int:
    """The one of the request after (`ShareRequestMetadata.nextEpoch`)."""
    return 1 if epoch == _LAST else epoch + 1


def member_of(node_id: int, member_id: str) -> str:
    """Under which member id this node asks brokers for a member: in the form of Kafka's UUIDs."""
    digest = hashlib.sha256(f"{node_id}/{member_id}".encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(slots=True)
class BrokerSession:
    """With one broker: the epoch of the next request, and the partitions that it knows of."""

    epoch: int = INITIAL
    parts: set[Part] = field(default_factory=set[Part])

    def ask(self, wanted: Iterable[Part], acks: Acks) -> tuple[list[Values], list[Values]]:
        """The next request: what it adds or acknowledges, and what it forgets. It counts as sent."""
        wanted = [*wanted]
        added = {part: acks.get(part, []) for part in wanted if part not in self.parts or part in acks}
        forgotten = self.parts.difference(wanted)
        added |= acks  # also of what was forgotten, now or before: its records are the member's still
        self.parts = set(wanted)
        self.epoch = next_epoch(self.epoch)
        topics = _by_topic(
            (part, {"partition_index": part[1], "acknowledgement_batches": batches}) for part, batches in added.items()
        )
        return topics, _by_topic((part, part[1]) for part in sorted(forgotten))


@dataclass(slots=True)
class ShareSession:
    """Of one member on one connection. `turns` lets brokers take turns where a client wants few records."""

    epoch: int = 1
    parts: dict[Part, None] = field(default_factory=dict[Part, None])
    brokers: dict[int, BrokerSession] = field(default_factory=dict[int, BrokerSession])
    turns: int = 0

    def update(self, fields: Values) -> None:
        """Add what a ShareFetch names, then take away what it forgets. Raises `KafkaError`."""
        for topic in fields["topics"]:
            topic_id: bytes = topic["topic_id"]
            self.parts.update(((topic_id, each["partition_index"]), None) for each in topic["partitions"])
        for topic in fields["forgotten_topics_data"]:
            for index in topic["partitions"]:
                self.parts.pop((topic["topic_id"], index), None)
        if len(self.parts) > _MOST_PARTS:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def acks_by_broker(self, acks: Acks, leader: Callable[[Part], int]) -> tuple[dict[int, Acks], list[Part]]:
        """Which broker gave the records, and the partitions of which none did: their records are nobody's any more.
        Of a partition that was forgotten it was its leader, if the session with that one goes on.
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
"""Of one connection, by group and member."""


def key_of(fields: Values) -> tuple[str, str]:
    """Whose session a request is for. Raises `KafkaError` for no member id (`KafkaApis.isMemberIdValid`)."""
    group, member = fields["group_id"] or "", fields["member_id"] or ""
    if not 0 < len(member) <= _MEMBER_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return group, member


def known(sessions: Sessions, fields: Values) -> ShareSession:
    """The session of a request that opens none. Raises `KafkaError` where there is none, or at another epoch."""
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
    """A new session, and the one that it takes the place of. Raises `KafkaError`."""
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
    """What a request acknowledges."""
    found: Acks = {}
    for topic in fields["topics"]:
        for each in topic["partitions"]:
            if each["acknowledgement_batches"]:
                found[topic["topic_id"], each["partition_index"]] = each["acknowledgement_batches"]
    return found


def split(count: int, among: int, turn: int) -> list[int]:
    """A number in as many parts; the parts that are larger by one, or not 0, move on by one with each turn."""
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
    """What brokers answered, to become one answer. Leaders that they name are left out: `leader_hints` names nodes."""

    parts: dict[Part, Values] = field(default_factory=dict[Part, Values])
    acked: dict[Part, tuple[int, str | None]] = field(default_factory=dict[Part, tuple[int, str | None]])
    error: int = 0
    message: str | None = None
    throttle_ms: int = 0
    lock_ms: int = 0
    has_records: bool = False

    def take(self, answer: Values) -> None:
        """An answer to ShareFetch."""
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
        """An answer to ShareAcknowledge."""
        self._front(answer)
        for topic in answer["responses"]:
            for found in topic["partitions"]:
                self.acked[topic["topic_id"], found["partition_index"]] = found["error_code"], found["error_message"]

    def _front(self, answer: Values) -> None:
        self.throttle_ms = max(self.throttle_ms, answer["throttle_time_ms"])
        lock_ms: int = answer.get("acquisition_lock_timeout_ms", 0)
        self.lock_ms = min(self.lock_ms, lock_ms) if self.lock_ms and lock_ms else self.lock_ms or lock_ms

    def refuse(self, parts: Iterable[Part], code: int) -> None:
        """Nothing is read of these."""
        for part in parts:
            self.parts[part] = {"partition_index": part[1], "error_code": code}

    def not_acknowledged(self, parts: Iterable[Part], code: int) -> None:
        """Nothing is acknowledged of these."""
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
