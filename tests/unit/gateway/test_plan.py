"""The plan of a request for leaders: the order of the checks, and that each partition is judged by itself."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.cluster.resolver import ANYBODY, INTERNAL_PREFIX, NameResolver, Source, TopicKind
from sidecar.cluster.view import NO_LEADER, ClusterView
from sidecar.gateway import plan as planning
from sidecar.gateway.plan import (
    REFUSED,
    Fact,
    Facts,
    Missing,
    Routes,
    Rule,
    Verdict,
    facts_to_read,
    only_verdict,
    plan,
    reads_of,
)
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.protocol.topic_ids import stand_in
from sidecar.resources.readers import Reader
from sidecar.shadow.views import Read

ALICE, BOB = "User:alice", "User:bob"
INTERNAL = INTERNAL_PREFIX + b"c"
NAMES = [b"orders", b"others", b"governed", b"audit", b"secret", b"making", INTERNAL, b"gone", b"not legal!"]
"""`audit` and `secret` are shadows of `orders` and `others`, `making` is about to be one."""
RULES = {
    "fetches": Rule.of(ShadowRule.READ, reads=True),
    "shares": Rule.of(ShadowRule.REFUSED, reads=True),
    "reads": Rule.of(ShadowRule.READ),
    "changes": Rule.of(ShadowRule.REFUSED),
    "writes": Rule.of(ShadowRule.REFUSED, governs=True),
}
LOOKED_UP = {Fact.NAME: True, Fact.LEADER: True}
DENIED = REFUSED[ErrorCode.TOPIC_AUTHORIZATION_FAILED]


class Part(NamedTuple):
    topic: bytes
    partition: int = 0


class Topic(NamedTuple):
    """What Kafka has of a topic: its id, and the leader of each partition."""

    number: int
    leaders: tuple[int, ...]


def resolver_of(*, closed: bool = False) -> NameResolver:
    resolver = NameResolver()
    resolver.set_policies(["governed"], [])
    resolver.set_shadows(
        {
            b"audit": Source(b"orders", UUID(int=1), is_closed=closed),
            b"secret": Source(b"others", UUID(int=1), frozenset({ALICE})),
            b"making": None,
        }
    )
    return resolver


def view_of(topics: dict[bytes, Topic]) -> ClusterView:
    view = ClusterView()
    learn(view, topics)
    return view


def learn(view: ClusterView, topics: dict[bytes, Topic]) -> None:
    found = tuple(
        TopicState(
            name.decode(), 0, UUID(int=topic.number), False,
            tuple(PartitionState(index, 0, leader, 1) for index, leader in enumerate(topic.leaders)),
        )
        for name, topic in topics.items()
    )  # fmt: skip
    view.apply(ClusterState(0, (Broker(1, "a", 1), Broker(2, "b", 2)), "c", 1, found))


def id_of(name: bytes) -> bytes:
    """What stands for a topic of which only the id is known."""
    return stand_in(name.ljust(16, b"."))


def walked(request: list[Part], known: Facts) -> list[Part]:
    """The request as it is walked: by ids, the topics that the view does not have have no names."""
    there = known.view.route
    return [
        part._replace(topic=part.topic if there(part.topic) or not known.by_id else id_of(part.topic))
        for part in request
    ]


ORDERS = {b"orders": Topic(1, (1, 2, NO_LEADER))}


def verdict(part: Part, rule: Rule = RULES["reads"], topics: dict[bytes, Topic] = ORDERS, **facts: object) -> Verdict:
    known: dict[str, object] = {"view": view_of(topics), "resolver": resolver_of(), "principal": ALICE} | facts
    (found,) = plan([part], rule, Facts(**known))  # pyright: ignore[reportArgumentType]
    return found


def code(found: Verdict) -> int:
    assert isinstance(found, KafkaError)
    return found.code


# Examples -------------------------------------------------------------------------------------------------------------


def test_a_partition_goes_to_its_leader_and_a_shadows_to_its_sources() -> None:
    assert [verdict(Part(b"orders", index)) for index in (0, 1)] == [1, 2]
    assert verdict(Part(b"audit", 1)) == planning.Source(2, b"orders", UUID(int=1).bytes)
    assert verdict(Part(b"governed"), topics={b"governed": Topic(1, (2,))}) == 2


@pytest.mark.parametrize("name", ["fetches", "shares"])
def test_who_reads_records_is_never_told_that_a_leader_is_not_available(name: str) -> None:
    """Java's consumer takes that for a fault of its own."""

    def codes(asked: dict[Fact, bool]) -> list[int]:
        return [code(verdict(Part(b"orders", index), RULES[name], asked=asked)) for index in (2, 3)]

    assert codes(LOOKED_UP) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes({Fact.LEADER: False}) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    nameless = verdict(Part(stand_in(b"i" * 16)), RULES[name], by_id=True, asked={Fact.NAME: False})
    assert code(nameless) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert verdict(Part(INTERNAL), RULES[name]) == Missing(Fact.LEADER, INTERNAL), (
        "they may read the sidecar's own topics"
    )


@pytest.mark.parametrize("guards", [True, False])
def test_a_partition_that_another_reader_has_claimed_is_withheld(*, guards: bool) -> None:
    me = Reader("conn:1", principal=ALICE)
    client: Any = SimpleNamespace(principal=ALICE, rights=None, reader=me)
    claims: Any = SimpleNamespace(guards=guards, may_fetch=lambda *asked: asked != (b"orders", 1, me))
    asked = [Part(b"orders"), Part(b"orders", 1), Part(b"others")]
    known = facts_to_read(view_of(ORDERS), resolver_of(), claims, client, asked, {}, False)
    assert known.withheld == ({(b"orders", 1): ErrorCode.TOPIC_AUTHORIZATION_FAILED} if guards else {})


def test_each_partition_is_read_from_one_log_unless_it_is_refused_or_has_two_names() -> None:
    asked = [Part(b"audit"), Part(b"others"), Part(b"audit", 1), Part(b"gone")]
    source = planning.Source(1, b"orders", b"id")
    verdicts: list[Verdict] = [source, 2, source, Missing(Fact.LEADER, b"gone")]
    logs = (b"orders", b"id"), (b"others", b""), (b"orders", b"id"), (b"gone", b"")
    assert reads_of(asked, verdicts) == [Read(part, *log) for part, log in zip(asked, logs, strict=True)]
    assert reads_of([*asked, Part(b"orders", 2)], [*verdicts, 1]) is None, "the log of `audit`, too"
    assert reads_of(asked, [*verdicts[:3], DENIED]) is None


def test_produce_alone_treats_governed_topics_apart() -> None:
    assert verdict(Part(b"governed"), RULES["writes"]) is TopicKind.GOVERNED
    assert verdict(Part(b"governed"), RULES["changes"]) == Missing(Fact.LEADER, b"governed")


def test_a_topic_gets_a_policy_before_its_leader_matters_if_its_client_asks_for_a_mode() -> None:
    def asks(name: bytes) -> Verdict:
        return verdict(Part(name), RULES["writes"], needs_policy=True)

    assert [asks(name) for name in (b"orders", b"gone")] == [
        Missing(Fact.POLICY, b"orders"),
        Missing(Fact.POLICY, b"gone"),
    ]
    assert asks(b"governed") is TopicKind.GOVERNED
    assert asks(b"not legal!") == Missing(Fact.LEADER, b"not legal!"), "it cannot have one"


def test_a_topic_of_an_unknown_id_is_looked_up_whatever_the_rights_to_topics_are() -> None:
    """It may be any topic. But a client without the right to its transactional id does not learn which ones exist."""
    nameless, no_id = stand_in(b"i" * 16), REFUSED[ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    for refused in ({}, {nameless: DENIED}):
        assert verdict(Part(nameless), by_id=True, denied=refused) == Missing(Fact.NAME, nameless)
        found = [verdict(Part(nameless), by_id=True, denied=refused, asked={Fact.NAME: it}) for it in (True, False)]
        assert [code(each) for each in found] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.LEADER_NOT_AVAILABLE]
    assert verdict(Part(nameless), by_id=True, denied={nameless: no_id}) is no_id
    assert verdict(Part(nameless), denied={nameless: DENIED}) is DENIED, "a request by names has no ids"
    assert verdict(Part(nameless)) == Missing(Fact.LEADER, nameless)


def test_what_an_api_refuses_is_refused_before_any_look_up() -> None:
    assert [verdict(Part(name), RULES["changes"]) for name in (b"audit", INTERNAL)] == [
        TopicKind.SHADOW.change_refused, TopicKind.INTERNAL.change_refused
    ]  # fmt: skip
    hidden = verdict(Part(b"secret"), RULES["changes"], principal=BOB)
    assert hidden is DENIED, "nothing says that there is a shadow"


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", NAMES)
def test_rights_come_first(rule: Rule, name: bytes) -> None:
    refused = {"denied": {name: DENIED}, "withheld": {(name, 0): ErrorCode.INVALID_REQUEST}}
    assert verdict(Part(name), rule, **refused) is DENIED


def test_a_withheld_partition_is_refused_alone() -> None:
    withheld = {(b"orders", 0): ErrorCode.INVALID_REQUEST, (b"audit", 0): ErrorCode.INVALID_REQUEST}
    assert [code(verdict(Part(name), withheld=withheld)) for name in (b"orders", b"audit")] == [42, 42]
    assert verdict(Part(b"orders", 1), withheld=withheld) == 2


def test_a_shadow_is_read_by_those_whom_it_allows_from_the_topic_that_it_was_made_for() -> None:
    again, closed = {b"orders": Topic(2, (1,))}, resolver_of(closed=True)
    assert code(verdict(Part(b"secret"), principal=BOB)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code(verdict(Part(b"audit"), topics=again)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(verdict(Part(b"audit"), resolver=closed)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(verdict(Part(b"making"))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_is_looked_up_once_by_the_name_of_the_log() -> None:
    assert verdict(Part(b"orders", 2)) == Missing(Fact.LEADER, b"orders")
    assert verdict(Part(b"audit", 2)) == Missing(Fact.LEADER, b"orders", UUID(int=1).bytes)
    assert verdict(Part(b"secret")) == Missing(Fact.LEADER, b"others", UUID(int=1).bytes)
    assert [code(verdict(Part(b"orders", index), asked=LOOKED_UP)) for index in (2, 3)] == [5, 3]
    assert [code(verdict(Part(b"orders", index), asked={Fact.LEADER: False})) for index in (2, 3)] == [5, 5]


def test_a_request_goes_as_it_is_if_there_is_one_verdict_on_all_partitions() -> None:
    verdicts: list[Verdict] = [1, 2, planning.Source(1, b"orders", b"1"), Missing(Fact.LEADER, b"gone"), DENIED]
    for found, other in pairwise(verdicts):
        assert [only_verdict(each) for each in ([found], [found] * 3)] == [found] * 2
        assert [only_verdict(each) for each in ([found, other], [other, found], [])] == [None] * 3


def test_routes_have_a_partition_that_is_named_twice_once() -> None:
    routes, asked = Routes[Part](), [Part(b"orders"), Part(b"orders"), Part(b"others"), Part(b"audit", 1), Part(b"x")]
    routes.add(asked, [1, 1, DENIED, planning.Source(1, b"orders", b"id"), Missing(Fact.LEADER, b"x")])
    audit, orders = Part(b"audit", 1), Part(b"orders")
    assert routes.by_leader == {1: {orders: Read(orders, b"orders"), audit: Read(audit, b"orders", b"id")}}
    assert (routes.refused, routes.missing) == ({29: [Part(b"others")]}, {Missing(Fact.LEADER, b"x")})


# Properties -----------------------------------------------------------------------------------------------------------

topics = st.dictionaries(
    st.sampled_from(NAMES[:-2]),
    st.builds(
        Topic, st.integers(1, 2), st.lists(st.sampled_from([1, 2, NO_LEADER]), min_size=1, max_size=3).map(tuple)
    ),
)
requests = st.lists(st.builds(Part, st.sampled_from(NAMES), st.integers(0, 3)), max_size=12)
facts = st.builds(
    Facts,
    topics.map(view_of),
    st.builds(resolver_of, closed=st.booleans()),
    st.sampled_from([ALICE, BOB, ANYBODY]),
    st.dictionaries(st.sampled_from(NAMES), st.just(DENIED), max_size=3),
    st.dictionaries(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), st.just(ErrorCode.INVALID_REQUEST)),
    st.sampled_from([{}, LOOKED_UP, {Fact.LEADER: False}]),
    st.booleans(),
    st.booleans(),
)
rules = st.sampled_from([*RULES.values()])


@given(requests, rules, facts, st.lists(st.integers(0, 12), max_size=3))
def test_the_plan_of_the_whole_is_that_of_its_parts(
    request: list[Part], rule: Rule, known: Facts, cuts: list[int]
) -> None:
    ends = [0, *sorted(cuts), len(request)]
    assert plan(request, rule, known) == [
        verdict for first, end in pairwise(ends) for verdict in plan(request[first:end], rule, known)
    ]


@given(requests, rules, facts, facts)
def test_a_refusal_by_rights_shows_nothing_of_the_topic(
    request: list[Part], rule: Rule, known: Facts, otherwise: Facts
) -> None:
    """Neither whether it exists, nor of what kind it is, nor whether it was looked up."""
    otherwise = otherwise._replace(denied=known.denied)
    for part, *verdicts in zip(request, plan(request, rule, known), plan(request, rule, otherwise), strict=True):
        assert part.topic not in known.denied or verdicts == [DENIED, DENIED]


@given(requests, rules, topics, st.sets(st.sampled_from(NAMES)), facts)
def test_a_plan_is_complete_once_what_it_misses_was_looked_up(
    request: list[Part], rule: Rule, there: dict[bytes, Topic], unknown: set[bytes], known: Facts
) -> None:
    """It asks for each fact once, and then is the plan of one who knew all from the start. What it said before still
    holds.
    """
    known = known._replace(view=view_of({name: it for name, it in there.items() if name not in unknown}), asked={})
    before = plan(walked(request, known), rule, known)
    for fact in Fact:
        verdicts = plan(walked(request, known), rule, known)
        missing = {it.topic for it in verdicts if isinstance(it, Missing) and it.fact is fact}
        if fact is Fact.POLICY:
            known = known._replace(needs_policy=False)
        else:
            learn(known.view, {name: it for name, it in there.items() if not missing.isdisjoint((name, id_of(name)))})
            known = known._replace(asked={**known.asked, fact: True})
    complete = known._replace(view=view_of(there))
    found = plan(walked(request, known), rule, known)
    assert not any(isinstance(verdict, Missing) for verdict in found)
    assert found == plan(walked(request, complete), rule, complete)
    assert all(isinstance(first, Missing) or first == last for first, last in zip(before, found, strict=True))
