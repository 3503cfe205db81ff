"""Shadows made, changed and deleted by one of several nodes: in which order, and what is left if it cannot be done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.cluster.nodes import Placement
from sidecar.protocol.calls.admin import CreateTopics, DeleteTopic
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.shadow.catalog import BadShadowError, HasShadowsError, NameTakenError, Shadow, UnmadeError
from sidecar.shadow.keeper import HALF_MADE_MS
from sidecar.v1 import state_pb2 as state
from tests.unit.shadow.paper import Node, Nodes

CREATE_TOPICS, DELETE_TOPICS = 19, 20


@pytest.fixture
async def pair(nodes: Nodes) -> tuple[Node, Node]:
    return await nodes.start(), await nodes.start()


async def test_every_node_knows_the_record_before_there_is_a_topic_and_serves_it_at_the_answer(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    here, there = pair
    known: list[tuple[bool, Any, int]] = []

    async def look(request: object) -> None:
        if isinstance(request, CreateTopics):
            found = there.resolver
            known.append((found.is_shadow(b"audit"), found.source(b"audit"), nodes.partitions("audit")))

    here.upstream.before = look
    made = await here.catalog.create("orders", "audit", ["User:a", "User:a"], 7)
    assert known == [(True, None, 0)]
    assert nodes.partitions("audit") == 2
    source = there.resolver.source(b"audit")
    assert source is not None
    assert (source.topic, source.topic_id.bytes) == (b"orders", nodes.kafka.cluster.controller.topics["orders"].id)
    assert source.allow == {"User:a"}
    assert abs(made.created_ms - nodes.kafka.wall_ms()) < 5_000
    assert made == Shadow("audit", "orders", ("User:a",), made.created_ms, True, 7)
    assert there.catalog.all() == [made]
    assert there.record("audit").topic_id == nodes.kafka.cluster.controller.topics["audit"].id
    (event,) = await nodes.events("audit")
    assert (event.kind, event.detail, event.node) == (state.Event.SHADOW, "of orders", 1)
    assert event.details.shadow == there.record("audit")


@pytest.mark.parametrize(
    ("source", "name", "error"),
    [
        ("orders", "a b", BadShadowError),
        ("orders", "", BadShadowError),
        ("orders", ".", BadShadowError),
        ("orders", "..", BadShadowError),
        ("orders", "__audit", BadShadowError),
        ("__sidecar_c", "x", BadShadowError),
        ("audit", "x", BadShadowError),
        ("orders", "orders", NameTakenError),
        ("orders", "payments", NameTakenError),
        ("orders", "audit", NameTakenError),
        ("nothing", "x", LookupError),
    ],
)
async def test_a_shadow_that_cannot_be_leaves_nothing(
    nodes: Nodes, pair: tuple[Node, Node], source: str, name: str, error: type[Exception]
) -> None:
    here, there = pair
    await nodes.kafka.create("payments")
    made = await there.catalog.create("orders", "audit")
    topics = {*nodes.kafka.cluster.controller.topics}
    changes: list[object] = []
    there.catalog.changed = changes.append
    with pytest.raises(error, match=None if error is LookupError else "is a shadow|already|internal|no name"):
        await here.catalog.create(source, name)
    assert {*nodes.kafka.cluster.controller.topics} == topics
    assert there.catalog.all() == [made]
    assert changes == [], "no topic was taken for a shadow, not even for a moment"


async def test_a_name_that_is_taken_is_said_with_what_has_it(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    """Also a name that Kafka takes for another one, as metrics have `_` for `.`."""
    here, there = pair
    await here.catalog.create("orders", "audit.eu")
    with pytest.raises(NameTakenError, match=r"audit.eu is a shadow of orders already"):
        await there.catalog.create("orders", "audit.eu")
    with pytest.raises(NameTakenError, match=r"nearly the name audit_eu already: .*collides"):
        await here.catalog.create("orders", "audit_eu")
    assert [shadow.name for shadow in there.catalog.all()] == ["audit.eu"]


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, NameTakenError, "there is a topic audit already"),
        (ErrorCode.POLICY_VIOLATION, BadShadowError, "Kafka refuses a topic audit: POLICY_VIOLATION"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, BadShadowError, "TOPIC_AUTHORIZATION_FAILED"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, BadShadowError, "INVALID_REPLICATION_FACTOR"),
        (ErrorCode.REQUEST_TIMED_OUT, KafkaError, "topic audit: "),
    ],
)
async def test_what_kafka_refuses_is_said_in_its_words_and_the_record_goes(
    nodes: Nodes, pair: tuple[Node, Node], code: ErrorCode, error: type[Exception], said: str
) -> None:
    here, there = pair
    nodes.kafka.refuse(CREATE_TOPICS, code)
    with pytest.raises(error, match=said):
        await here.catalog.create("orders", "audit")
    assert (there.catalog.all(), nodes.partitions("audit")) == ([], 0)


async def test_of_two_nodes_that_make_it_one_does_and_it_stays(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    """Nobody takes away the record of a shadow that was answered for: its topic would take writes."""
    await nodes.kafka.create("returns", 1)
    for number in range(5):
        name = f"audit-{number}"
        making = (node.catalog.create(of, name) for node, of in zip(pair, ("orders", "returns"), strict=True))
        outcomes = await asyncio.gather(*making, return_exceptions=True)
        (made,) = (outcome for outcome in outcomes if isinstance(outcome, Shadow))
        assert [type(outcome) for outcome in outcomes if outcome is not made] == [NameTakenError]
        for node in pair:
            assert [shadow for shadow in node.catalog.all() if shadow.name == name] == [made]
        assert nodes.partitions(name) == (2 if made.source == "orders" else 1)


async def test_what_becomes_a_shadow_meanwhile_is_no_source(pair: tuple[Node, Node]) -> None:
    catalog = pair[0].catalog
    outcomes = await asyncio.gather(
        catalog.create("orders", "first"), catalog.create("first", "second"), return_exceptions=True
    )
    assert isinstance(outcomes[0], Shadow)
    assert isinstance(outcomes[1], BadShadowError)


async def test_a_creation_waits_until_kafka_shows_the_topic(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    for broker in nodes.kafka.cluster.brokers.values():
        broker.metadata_lag(5)
    began = nodes.kafka.now()
    assert (await pair[0].catalog.create("orders", "audit")).is_made
    assert 5 <= nodes.kafka.now() - began < 6


async def test_a_creation_that_took_too_long_was_given_up_and_can_be_repeated(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    """The other node forgets the record while the first one stands between its topic and its record's id."""
    here, there = pair

    async def stand(request: object, answer: Any) -> None:
        if isinstance(request, CreateTopics):
            here.upstream.behind = None
            await nodes.kafka.pause(HALF_MADE_MS / 1000 - 5)
            await there.look()
            assert there.records.get("audit") is not None
            await nodes.kafka.pause(10)
            there.directory.placement = Placement([there.directory.me])
            await there.look()

    here.upstream.behind = stand
    with pytest.raises(TimeoutError, match="was given up: delete the topic audit"):
        await here.catalog.create("orders", "audit")
    assert there.catalog.all() == []
    await nodes.kafka.delete("audit")
    await nodes.kafka.pause(1)
    assert (await here.catalog.create("orders", "audit")).is_made


async def test_another_shadow_of_the_name_is_not_finished_by_whom_it_does_not_belong_to(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    here, there = pair

    async def anew(request: object, answer: Any) -> None:
        if isinstance(request, CreateTopics):
            here.upstream.behind = None
            await there.records.forget("audit", there.record("audit"))
            await there.records.add("audit", state.Shadow(source="orders", source_topic_id=bytes(16), created_ms=1))

    here.upstream.behind = anew
    with pytest.raises(TimeoutError, match="was given up"):
        await here.catalog.create("orders", "audit")
    assert there.record("audit").topic_id == b""


# Changes ------------------------------------------------------------------------------------------------------------


async def test_a_change_keeps_what_it_does_not_name_and_every_node_knows_it(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    here, there = pair
    made = await here.catalog.create("orders", "audit", ["User:a"])
    limited = await there.catalog.change("audit", auto_reset_backlog_entries=10)
    assert (limited.allow, limited.auto_reset_backlog_entries) == (("User:a",), 10)
    assert here.catalog.all() == [limited]
    closed = await here.catalog.change("audit", allow=[])
    assert (closed.allow, closed.auto_reset_backlog_entries) == ((), 10)
    assert there.catalog.all() == [closed]
    open_again = await here.catalog.change("audit", ["User:b", "User:b"], 0)
    assert open_again == Shadow("audit", "orders", ("User:b",), made.created_ms, True)
    source = there.resolver.source(b"audit")
    assert source is not None
    assert source.allow == {"User:b"}
    events = await nodes.events("audit")
    assert [event.detail for event in events[1:]] == [
        "readers: User:a; cursors more than 10 records behind are reset",
        "readers: nobody; cursors more than 10 records behind are reset",
        "readers: User:b",
    ]
    assert events[-1].details.shadow == there.record("audit")


async def test_a_long_list_of_readers_is_cut_in_the_event_and_whole_in_the_record(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    here, there = pair
    await here.catalog.create("orders", "audit")
    for count, is_long in ((4, False), (5, True)):
        await here.catalog.change("audit", [f"User:{number:0245}" for number in range(count)])
        event = (await nodes.events("audit"))[-1]
        assert event.details.long_allow is is_long
        assert len(event.details.shadow.allow) == (0 if is_long else count)
        assert len(event.detail) <= 1_010
        assert len(there.record("audit").allow) == count


@pytest.mark.parametrize("limit", [-1, 2**63])
async def test_what_cannot_be_set_is_refused(pair: tuple[Node, Node], limit: int) -> None:
    here, there = pair
    await here.catalog.create("orders", "audit", ["User:a"])
    with pytest.raises(BadShadowError, match="auto_reset_backlog_entries"):
        await here.catalog.change("audit", ["User:b"], limit)
    with pytest.raises(BadShadowError, match="no principal"):
        await here.catalog.change("audit", ["b"], 1)
    with pytest.raises(LookupError):
        await here.catalog.change("nothing", ["User:b"])
    assert there.catalog.all()[0].allow == ("User:a",)
    assert (await here.catalog.change("audit", None, 2**63 - 1)).auto_reset_backlog_entries == 2**63 - 1


async def test_a_shadow_that_is_being_made_cannot_be_changed_and_can_be_deleted(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    here, there = pair
    await nodes.kafka.create("audit")
    await there.records.add("audit", state.Shadow(source="orders", source_topic_id=bytes(16), created_ms=1))
    with pytest.raises(UnmadeError, match="audit is being created"):
        await here.catalog.change("audit", ["User:a"])
    assert not here.catalog.all()[0].is_made
    await here.catalog.delete("audit")
    assert (there.catalog.all(), nodes.partitions("audit")) == ([], 1), "somebody's topic stays"


# Deletions ----------------------------------------------------------------------------------------------------------


async def test_a_shadow_is_deleted_after_its_topic_and_told_of_last(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    here, there = pair
    await here.catalog.create("orders", "audit")
    known: list[bool] = []

    async def look(request: object, answer: object) -> None:
        if isinstance(request, DeleteTopic):
            known.append(there.resolver.is_shadow(b"audit"))

    here.upstream.behind = look
    await here.catalog.delete("audit")
    assert (known, there.resolver.is_shadow(b"audit"), nodes.partitions("audit")) == ([True], False, 0)
    event = (await nodes.events("audit"))[-1]
    assert (event.detail, event.details.deleted) == ("deleted", True)
    with pytest.raises(LookupError):
        await here.catalog.delete("audit")


async def test_a_shadow_whose_topic_is_gone_is_deleted_and_one_whose_topic_stays_is_not(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    here, there = pair
    for name in ("audit", "copy"):
        await here.catalog.create("orders", name)
    await nodes.kafka.delete("audit")
    await here.catalog.delete("audit")
    nodes.kafka.refuse(DELETE_TOPICS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="topic copy"):
        await here.catalog.delete("copy")
    assert [shadow.name for shadow in there.catalog.all()] == ["copy"]


async def test_a_slow_deletion_takes_no_other_topic_of_the_name(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    """While one node is about to delete the shadow's topic another one has done so, and somebody has made a topic of
    that name.
    """
    fast, slow = pair
    await fast.catalog.create("orders", "audit")

    async def too_late(request: object) -> None:
        if isinstance(request, DeleteTopic):
            await fast.catalog.delete("audit")
            await nodes.kafka.create("audit", 5)

    slow.upstream.before = too_late
    await slow.catalog.delete("audit")
    assert nodes.partitions("audit") == 5


async def test_a_source_goes_with_its_shadows_by_force_only(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    here, there = pair
    for name in ("copy", "audit"):
        await there.catalog.create("orders", name)
    with pytest.raises(BadShadowError, match="sidecar shadow delete audit"):
        await here.catalog.delete_source("audit", force=True)
    with pytest.raises(HasShadowsError, match=r"orders has shadows.*: audit, copy"):
        await here.catalog.delete_source("orders", force=False)
    assert [nodes.partitions(name) for name in ("orders", "audit", "copy")] == [2, 2, 2]
    await here.catalog.delete_source("orders", force=True)
    assert [nodes.partitions(name) for name in ("orders", "audit", "copy")] == [0, 0, 0]
    assert there.catalog.all() == []
    with pytest.raises(LookupError):
        await here.catalog.delete_source("orders", force=True)


async def test_a_source_without_shadows_needs_no_force_and_what_was_interrupted_can_be_repeated(
    nodes: Nodes, pair: tuple[Node, Node]
) -> None:
    here, there = pair
    await nodes.kafka.create("payments")
    await here.catalog.create("orders", "audit")
    await here.catalog.delete_source("payments", force=False)
    assert nodes.partitions("payments") == 0
    await nodes.kafka.delete("orders")
    with pytest.raises(HasShadowsError):
        await here.catalog.delete_source("orders", force=False)
    await here.catalog.delete_source("orders", force=True)
    assert there.catalog.all() == []


@pytest.mark.parametrize(("more", "is_enough"), [(9, True), (10, False)])
async def test_shadows_that_come_meanwhile_are_deleted_too_up_to_a_bound(
    nodes: Nodes, pair: tuple[Node, Node], more: int, is_enough: bool
) -> None:
    here, there = pair
    await there.catalog.create("orders", "audit-0")
    made = 1

    async def another(request: object, answer: object) -> None:
        nonlocal made
        if isinstance(request, DeleteTopic) and made < more:
            made += 1
            await there.catalog.create("orders", f"audit-{made}")

    here.upstream.behind = another
    if is_enough:
        await here.catalog.delete_source("orders", force=True)
    else:
        with pytest.raises(TimeoutError, match="orders keeps getting new shadows"):
            await here.catalog.delete_source("orders", force=True)
    assert nodes.partitions("orders") == (0 if is_enough else 2)


async def test_a_shadow_that_another_node_made_a_moment_ago_is_not_overlooked(
    nodes: Nodes, pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This node reads it late, and nobody waits for that."""
    here, there = pair
    take = here.log.tailer._take

    async def late(fetched: Any) -> None:
        await asyncio.sleep(2)
        await take(fetched)

    async def nobody(offset: int) -> None:
        pass

    monkeypatch.setattr(here.log.tailer, "_take", late)
    monkeypatch.setattr(nodes, "seen_by_all", nobody)
    await there.catalog.create("orders", "audit")
    assert here.catalog.all() == []
    with pytest.raises(HasShadowsError):
        await here.catalog.delete_source("orders", force=False)


# Lists --------------------------------------------------------------------------------------------------------------


async def test_lists_are_by_name_in_pages_and_by_source(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    here, there = pair
    await nodes.kafka.create("returns", 1)
    for source, name in (("orders", "c"), ("returns", "b"), ("orders", "a"), ("orders", "d")):
        await here.catalog.create(source, name)
    seen: list[str] = []
    there.catalog.changed = lambda shadows: seen.extend(shadow.name for shadow in shadows)

    def names(source: str | None, after: str, most: int) -> tuple[str, bool]:
        found, is_more = there.catalog.page(source, after, most)
        return "".join(shadow.name for shadow in found), is_more

    assert names(None, "", 3) == ("abc", True)
    assert names(None, "c", 3) == ("d", False)
    assert names("orders", "", 3) == ("acd", False)
    assert names("orders", "a", 1) == ("c", True)
    assert names("nothing", "", 3) == ("", False)
    assert [shadow.name for shadow in there.catalog.all()] == [*"abcd"]
    assert [shadow.name for shadow in there.catalog.of("orders")] == [*"acd"]
    assert there.catalog.of("nothing") == ()
    assert there.catalog.closed == 0
    await here.records.change("b", lambda record: setattr(record, "closed", "why"))
    assert (there.catalog.closed, there.catalog.all()[1].closed) == (1, "why")
    assert seen == [*"abcd"]
    source = there.resolver.source(b"b")
    assert source is not None
    assert source.is_closed
    there.catalog.close()
    await here.catalog.delete("a")
    assert there.resolver.is_shadow(b"a")
