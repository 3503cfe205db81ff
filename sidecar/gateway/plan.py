"""What is done with each partition that a request for the partitions' leaders names: Produce, Fetch, ListOffsets,
OffsetForLeaderEpoch, DeleteRecords, ShareFetch. Pure: it sends nothing and looks nothing up.

`plan` has the order of all checks, in one place:

1. A topic that the client has no right to (`Facts.denied`), before anything shows whether it exists.
2. A partition that is refused for a reason of its own (`Facts.withheld`).
3. A kind of topics that the API refuses, and governed topics, which Produce gives to the room `exclusive`.
4. A shadow is read from its source's log, if the client may read the shadow and the source still is that topic.
5. The leader of the log.

A fact that is not known gives the verdict `Missing`. The caller looks it up, notes in `Facts.asked` that it did, and
plans again. Each partition is judged by itself: a large request is planned in portions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeAlias

from sidecar.cluster.resolver import NameResolver, TopicKind, is_legal
from sidecar.cluster.view import NO_LEADER, ClusterView
from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.client import Client
from sidecar.gateway.rights import Rights
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.primitives import new_tuple
from sidecar.protocol.topic_ids import is_stand_in
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.views import Part, PartT, Read, source_of

REFUSED: Final[Mapping[int, KafkaError]] = {code: KafkaError(code) for code in ErrorCode}
"""The errors without a message, as by brokers."""
_NOT_NOW: Final = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "Kafka cannot be asked now")
_READ: Final = PerTopic(Operation.READ)
_NOTHING: Final[Mapping[Any, Any]] = {}


class Fact(Enum):
    """What may have to be looked up; in this order, because one fact may change what else is missing."""

    NAME = "the topic that has an id"
    POLICY = "the policy of a topic, for a client that asks for a mode or a generation"
    LEADER = "the leaders of a topic"


class Missing(NamedTuple):
    """The verdict that waits for a fact about a topic: the one whose log is read, or a stand-in for an id. `topic_id`:
    as in `Source`.
    """

    fact: Fact
    topic: bytes
    topic_id: bytes = b""


class Source(NamedTuple):
    """The verdict for a partition of a shadow: the leader of its source's log, the source, and the topic id for which
    the shadow was created.
    """

    leader: int
    topic: bytes
    topic_id: bytes


GOVERNED: Final = TopicKind.GOVERNED
_ORDINARY: Final = TopicKind.ORDINARY
"""Members of enums by names of their own: before Python 3.12 each access is a call."""


Verdict: TypeAlias = int | Source | TopicKind | KafkaError | Missing
"""An int is the broker that leads the partition. An error refuses it. The node itself writes to one that is `GOVERNED`.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """How an API treats topics. `passed`: the kinds whose partitions go to their own leaders. `refused`: the error for
    all topics of a kind. Of the others, governed topics are the node's own, and shadows are read from their sources.
    `leaderless`: the error for a partition without a leader, `not_now` for a fact that Kafka could not be asked for.
    """

    passed: tuple[TopicKind, ...]
    refused: Mapping[TopicKind, KafkaError]
    leaderless: KafkaError = REFUSED[ErrorCode.LEADER_NOT_AVAILABLE]
    not_now: KafkaError = _NOT_NOW

    @classmethod
    def of(cls, shadow: ShadowRule, *, governs: bool = False, reads: bool = False) -> Rule:
        """The rule of an API that treats shadows by this rule. `governs`: it writes to governed topics. `reads`: it
        reads records, of the sidecar's own topics too. Java's consumer throws an IllegalStateException if an answer to
        Fetch has LEADER_NOT_AVAILABLE (`FetchCollector.handleInitializeErrors`).
        """
        refused = {kind: error for kind in TopicKind if (error := shadow.refused(kind)) is not None}
        if reads:
            refused.pop(TopicKind.INTERNAL, None)
        apart = refused.keys() | ({TopicKind.SHADOW} if shadow is ShadowRule.READ else set())
        apart |= {TopicKind.GOVERNED} if governs else set()
        passed = tuple(kind for kind in TopicKind if kind not in apart)
        stale = REFUSED[ErrorCode.NOT_LEADER_OR_FOLLOWER]
        return cls(passed, refused, stale, stale) if reads else cls(passed, refused)


class Facts(NamedTuple):
    """What is known for a request of a client. `denied`: the topics that it has no right to; `withheld`: partitions
    that are refused although it has the right. `asked`: the facts that were looked up; False if Kafka did not answer.
    `by_id`: the request names topics by id. `needs_policy`: an ordinary topic becomes governed first.
    """

    view: ClusterView
    resolver: NameResolver
    principal: str
    denied: Mapping[bytes, KafkaError] = _NOTHING
    withheld: Mapping[tuple[bytes, int], ErrorCode] = _NOTHING
    asked: Mapping[Fact, bool] = _NOTHING
    by_id: bool = False
    needs_policy: bool = False


def facts_to_read(
    view: ClusterView,
    resolver: NameResolver,
    claims: ReaderClaims,
    client: Client,
    parts: Iterable[Part],
    asked: Mapping[Fact, bool],
    by_id: bool,
) -> Facts:
    """The facts of a request that reads these partitions. Reader claims withhold partitions."""
    rights, withheld = client.rights, _NOTHING
    if claims.guards:
        reader = client.reader
        claimed = [(each.topic, each.partition) for each in parts]
        claimed = [where for where in claimed if not claims.may_fetch(*where, reader)]
        withheld = dict.fromkeys(claimed, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refused = _NOTHING if rights is None else denied(rights, _READ, parts)
    return new_tuple(Facts, (view, resolver, client.principal, refused, withheld, asked, by_id, False))


def denied(rights: Rights, access: PerTopic, parts: Iterable[Part]) -> Mapping[bytes, KafkaError]:
    """The topics to which a client has no right."""
    refused = rights.refused(access.operation, parts)
    if not refused or (access.instead is not None and rights.cluster(access.instead)):
        return _NOTHING
    return dict.fromkeys(refused, REFUSED[ErrorCode.TOPIC_AUTHORIZATION_FAILED])


def plan(parts: Iterable[Part], rule: Rule, facts: Facts) -> list[Verdict]:
    """The verdict for each of these partitions, in their order."""
    view, resolver, _, denied, withheld, _, by_id, needs_policy = facts
    kinds, passed = resolver.kinds, rule.passed
    verdicts: list[Verdict] = []
    for part in parts:
        topic, partition = part.topic, part.partition
        if denied and topic in denied and not (by_id and _is_nameless(topic, denied[topic])):
            verdict: Verdict = denied[topic]
        elif withheld and (topic, partition) in withheld:
            verdict = REFUSED[withheld[topic, partition]]
        elif (kind := kinds[topic]) not in passed:
            verdict = kind if kind is GOVERNED else _apart(topic, partition, kind, rule, facts)
        elif needs_policy and kind is _ORDINARY and is_legal(topic):
            verdict = Missing(Fact.POLICY, topic)
        elif (verdict := view.leader(topic, partition)) == NO_LEADER:
            verdict = _leaderless(topic, partition, rule, facts)
        verdicts.append(verdict)
    return verdicts


def only_verdict(verdicts: list[Verdict]) -> Verdict | None:
    """The verdict on all partitions, if there is only one. If it is a broker, the request is sent to it as it is."""
    return verdicts[0] if verdicts and verdicts.count(verdicts[0]) == len(verdicts) else None


def _read(part: PartT, verdict: int | Source | Missing) -> Read[PartT]:
    """A partition with its log."""
    return Read(part, part.topic) if isinstance(verdict, int) else Read(part, verdict.topic, verdict.topic_id)


def reads_of(parts: Iterable[PartT], verdicts: Iterable[Verdict]) -> list[Read[PartT]] | None:
    """Each partition with the log that is read, whether or not its leader is known. None if one is refused, or two
    names have the same log: one request for a log can name it once.
    """
    reads: list[Read[PartT]] = []
    names: dict[bytes, bytes] = {}
    for part, verdict in zip(parts, verdicts, strict=True):
        if isinstance(verdict, (KafkaError, TopicKind)):
            return None
        read = _read(part, verdict)
        if names.setdefault(read.log, part.topic) != part.topic:
            return None
        reads.append(read)
    return reads


class Routes(Generic[PartT]):
    """The verdicts on a request, gathered. `by_leader`: what to read from each broker, one read for a partition that is
    named several times: its last element counts, as at a broker. `refused`: partitions by error code. `missing`: the
    facts to look up first.
    """

    def __init__(self) -> None:
        self.by_leader: dict[int, dict[tuple[bytes, int], Read[PartT]]] = {}
        self.refused: dict[int, list[PartT]] = {}
        self.missing: set[Missing] = set()

    def add(self, parts: Iterable[PartT], verdicts: Iterable[Verdict]) -> None:
        """Add the verdicts on some more partitions."""
        for part, verdict in zip(parts, verdicts, strict=True):
            if isinstance(verdict, (int, Source)):
                leader = verdict if isinstance(verdict, int) else verdict.leader
                self.by_leader.setdefault(leader, {})[part.topic, part.partition] = _read(part, verdict)
            elif isinstance(verdict, Missing):
                self.missing.add(verdict)
            elif isinstance(verdict, KafkaError):
                self.refused.setdefault(verdict.code, []).append(part)


def _is_nameless(topic: bytes, error: KafkaError) -> bool:
    """Whether an error is about a topic of an unknown id: it may be any topic."""
    return error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and is_stand_in(topic)


def _apart(topic: bytes, partition: int, kind: TopicKind, rule: Rule, facts: Facts) -> Verdict:
    """The verdict for a topic that is refused, or whose log is its source's."""
    if (error := rule.refused.get(kind)) is not None:
        return REFUSED[error.code] if facts.resolver.hides(topic, facts.principal) else error
    source = source_of(topic, facts.principal, facts.resolver, facts.view)
    if isinstance(source, ErrorCode):
        return REFUSED[source]
    leader, topic_id = facts.view.leader(source.topic, partition), source.topic_id.bytes
    if leader == NO_LEADER:
        return _leaderless(source.topic, partition, rule, facts, topic_id)
    return Source(leader, source.topic, topic_id)


def _leaderless(log: bytes, partition: int, rule: Rule, facts: Facts, topic_id: bytes = b"") -> Verdict:
    """The verdict for a partition without a known leader, or of a topic without a known name."""
    fact = Fact.NAME if facts.by_id and is_stand_in(log) else Fact.LEADER
    answered = facts.asked.get(fact)
    if answered is None:
        return Missing(fact, log, topic_id)
    if not answered:
        return rule.not_now
    if fact is Fact.NAME:
        return REFUSED[ErrorCode.UNKNOWN_TOPIC_ID]
    why = facts.view.why_no_leader(log, partition)
    return rule.leaderless if why == ErrorCode.LEADER_NOT_AVAILABLE else REFUSED[why]
