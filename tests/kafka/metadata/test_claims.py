"""Claiming, publishing and releasing a resource, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from metadata import (
    AccessMode,
    ClaimInProgress,
    ClaimRequest,
    ClaimStatus,
    Generation,
    Holder,
    MetadataStore,
    Node,
    Ownership,
    new_token,
)
from metadata.nodes import ServeStatus
from metadata.ownership import MAX_INT64
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.metadata.servers import RedisSide

    MakeClaim = Callable[..., ClaimRequest]
    MakeOwner = Callable[..., Ownership]
    MakeNode = Callable[..., Node]


async def test_the_first_owner_gets_generation_1(store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner):
    request = make_claim("pid:1")
    answer = await store.claim(request)
    assert (answer.status, answer.generation, answer.current) == (ClaimStatus.GRANTED, 1, None)
    record = make_owner(1, "pid:1")
    published = await store.publish(record, request.token)
    assert (published.accepted, published.current) == (True, record)
    state = await store.ownership("orders")
    assert (state.owner, state.claim) == (record, None)


async def test_a_rival_learns_who_holds_the_topic_and_moves_nothing(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    holder = make_owner(1, "pid:1")
    await store.publish(holder)
    for mode in (AccessMode.EXCLUSIVE, AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.SHARED):
        answer = await store.claim(make_claim("pid:2", mode=mode))
        assert (answer.status, answer.current, answer.generation) == (ClaimStatus.HELD, holder, None)
    state = await store.ownership("orders")
    assert (state.owner, state.claim) == (holder, None)


async def test_a_fencing_claim_is_told_whom_it_deposes(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    holder = make_owner(4, "pid:1")
    await store.publish(holder)
    answer = await store.claim(make_claim("pid:2", mode=AccessMode.EXCLUSIVE_WITH_FENCING))
    assert (answer.status, answer.generation, answer.current) == (ClaimStatus.GRANTED, 5, holder)


async def test_the_owner_that_comes_back_keeps_its_generation(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    owner = make_owner(7, "pid:1")
    await store.publish(owner)
    for asked in (None, 0, 3, 7):
        request = make_claim("pid:1", boot="bb", node_id=2, asked=asked)
        answer = await store.claim(request)
        assert (answer.status, answer.generation) == (ClaimStatus.GRANTED, 7)
        await store.abandon("orders", request.token)
    moved = make_owner(7, "pid:1", node_id=2, producer_epoch=8)
    assert (await store.publish(moved)).accepted
    assert (await store.publish(owner)).current == moved


@pytest.mark.parametrize(
    ("asked", "status", "generation"),
    [
        (0, ClaimStatus.GRANTED, 8),
        (1, ClaimStatus.LOWER_GENERATION, None),
        (6, ClaimStatus.LOWER_GENERATION, None),
        (7, ClaimStatus.GRANTED, 8),
        (8, ClaimStatus.GRANTED, 8),
        (9, ClaimStatus.GRANTED, 9),
        (1 << 60, ClaimStatus.GRANTED, 1 << 60),
        (MAX_INT64, ClaimStatus.GRANTED, MAX_INT64),
    ],
)
@pytest.mark.parametrize("held", [True, False], ids=["held", "free"])
async def test_a_generation_asked_for_deposes_unless_it_is_lower(
    store: MetadataStore,
    make_claim: MakeClaim,
    make_owner: MakeOwner,
    asked: int,
    status: ClaimStatus,
    generation: int | None,
    *,
    held: bool,
):
    await store.publish(make_owner(7, "pid:1" if held else None))
    answer = await store.claim(make_claim("pid:2", asked=asked))
    assert (answer.status, answer.generation) == (status, generation)


@pytest.mark.parametrize("last", [9, 99, 1_234_999, 2**53, 2**53 + 1, 2**62 - 1, MAX_INT64 - 1])
async def test_the_next_generation_is_exact_up_to_int64(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner, last: int
):
    await store.publish(make_owner(last, "pid:1"))
    answer = await store.claim(make_claim("pid:2", mode=AccessMode.EXCLUSIVE_WITH_FENCING))
    assert (answer.status, answer.generation) == (ClaimStatus.GRANTED, last + 1)


async def test_after_the_last_generation_nobody_new_owns_the_topic_but_its_owner_comes_back(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    await store.publish(make_owner(MAX_INT64, "pid:1"))
    for asked in (None, 0, MAX_INT64):
        request = make_claim("pid:2", mode=AccessMode.EXCLUSIVE_WITH_FENCING, asked=asked)
        assert (await store.claim(request)).status is ClaimStatus.EXHAUSTED
    assert (await store.claim(make_claim("pid:1"))).generation == MAX_INT64


async def test_an_owner_that_asks_for_more_than_it_has_gets_a_new_generation(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    await store.publish(make_owner(7, "pid:1"))
    assert (await store.claim(make_claim("pid:1", asked=12))).generation == 12


async def test_of_many_sessions_that_claim_at_once_exactly_one_is_granted(
    redis_side: RedisSide, cluster: str, make_claim: MakeClaim
):
    async with MetadataStore(redis_side.url, cluster, command_timeout_ms=10_000, connections=8) as store:
        claims = [make_claim(f"pid:{number}") for number in range(50)]
        answers = await asyncio.gather(*(store.claim(claim) for claim in claims))
        winners = [claim for claim, answer in zip(claims, answers, strict=True) if answer.status is ClaimStatus.GRANTED]
        assert len(winners) == 1
        rivals = {answer.rival for answer in answers if answer.status is ClaimStatus.BUSY}
        assert rivals == {winners[0].session}
        assert sum(answer.status is ClaimStatus.BUSY for answer in answers) == 49


async def test_the_same_token_gets_the_same_generation_and_a_renewed_lease(store: MetadataStore, make_claim: MakeClaim):
    request = make_claim("pid:1", lease_ms=400)
    assert (await store.claim(request)).generation == 1
    first = (await store.ownership("orders")).claim
    assert first is not None
    assert (first.session, first.token, first.generation) == ("pid:1", request.token, 1)

    async def aged() -> bool:
        claim = (await store.ownership("orders")).claim
        return claim is None or claim.remaining_ms < 200

    assert await wait_for_async(aged, "the claim's lease runs down")
    again = await store.claim(request)
    assert (again.status, again.generation) == (ClaimStatus.GRANTED, 1)
    renewed = (await store.ownership("orders")).claim
    assert isinstance(renewed, ClaimInProgress)
    assert renewed.remaining_ms > 200


async def test_a_claim_whose_lease_ran_out_gives_way_and_its_generation_is_not_given_again(
    store: MetadataStore, make_claim: MakeClaim
):
    stuck, eager = make_claim("pid:1", lease_ms=1000), make_claim("pid:2")
    assert (await store.claim(stuck)).generation == 1
    busy = await store.claim(eager)
    assert (busy.status, busy.rival) == (ClaimStatus.BUSY, "pid:1")
    assert 0 < busy.wait_ms <= 1000
    assert busy.status.retryable

    async def granted() -> int | None:
        return (await store.claim(eager)).generation

    assert await wait_for_async(granted, "the claim that is stuck gives way") == 2
    assert (await store.claim(stuck)).status is ClaimStatus.OVER


async def test_a_token_is_used_up_by_publishing_and_by_abandoning(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    abandoned, published = make_claim("pid:1"), make_claim("pid:2")
    await store.claim(abandoned)
    assert await store.abandon("orders", abandoned.token)
    assert not await store.abandon("orders", abandoned.token)
    assert (await store.claim(abandoned)).status is ClaimStatus.OVER
    assert (await store.claim(published)).generation == 2
    await store.publish(make_owner(2, "pid:2"), published.token)
    assert (await store.claim(published)).status is ClaimStatus.OVER


async def test_nobody_abandons_the_claim_of_another_token(store: MetadataStore, make_claim: MakeClaim):
    request = make_claim("pid:1")
    await store.claim(request)
    assert not await store.abandon("orders", new_token())
    assert (await store.claim(make_claim("pid:2"))).status is ClaimStatus.BUSY


async def test_a_claim_that_the_changelog_has_overtaken_blocks_nobody(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    overtaken = make_claim("pid:1")
    await store.claim(overtaken)
    await store.publish(make_owner(5, None))
    assert (await store.claim(make_claim("pid:2"))).generation == 6


async def test_leaving_ends_the_nodes_claims(store: MetadataStore, make_claim: MakeClaim):
    await store.claim(make_claim("pid:1", boot="aa"))
    await store.claim(make_claim("pid:1", boot="bb", resource="payments"))
    await store.leave(1, "aa")
    assert (await store.claim(make_claim("pid:2"))).status is ClaimStatus.GRANTED
    assert (await store.claim(make_claim("pid:2", resource="payments"))).status is ClaimStatus.BUSY


async def test_an_empty_redis_takes_owner_and_generation_from_the_changelog(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    known = make_owner(9, "pid:1")
    refused = await store.claim(make_claim("pid:2", known=known))
    assert (refused.status, refused.current) == (ClaimStatus.HELD, known)
    assert (await store.ownership("orders")).owner == known
    free = make_owner(9, None, resource="payments")
    assert (await store.claim(make_claim("pid:2", resource="payments", known=free))).generation == 10
    same = make_owner(9, "pid:1", resource="audit")
    assert (await store.claim(make_claim("pid:1", resource="audit", known=same))).generation == 9


async def test_what_the_changelog_knows_less_of_does_not_set_redis_back(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    older = make_owner(3, "pid:1")
    newer = make_owner(4, None)
    await store.publish(newer)
    answer = await store.claim(make_claim("pid:1", known=older))
    assert (answer.generation, answer.current) == (5, newer)


async def test_a_topic_that_another_live_node_serves_is_claimed_there(
    store: MetadataStore, make_claim: MakeClaim, make_node: MakeNode
):
    server = make_node(2)
    await store.heartbeat(server, ["orders"])
    answer = await store.claim(make_claim("pid:1", topic="orders"))
    assert (answer.status, answer.server) == (ClaimStatus.ELSEWHERE, Holder(2, server.boot))
    granted = await store.claim(make_claim("pid:1", topic="orders", node_id=2, boot=server.boot))
    assert granted.status is ClaimStatus.GRANTED


async def test_an_older_or_equal_record_never_replaces_a_newer_one(store: MetadataStore, make_owner: MakeOwner):
    first, moved, released, next_owner = (
        make_owner(1, "pid:1"),
        make_owner(1, "pid:1", node_id=2),
        make_owner(1, None),
        make_owner(2, "pid:2"),
    )
    history = [first, moved, released, next_owner]
    for number, record in enumerate(history):
        assert (await store.publish(record)).accepted
        for older in history[:number]:
            answer = await store.publish(older)
            assert (answer.accepted, answer.current) == (False, record)
        assert (await store.publish(record)).accepted


async def test_release_clears_the_owner_and_keeps_the_generation(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    owner = make_owner(6, "pid:1")
    await store.publish(owner)
    for _ in range(2):
        answer = await store.release(owner)
        assert answer.released
        assert (answer.current.session, answer.current.generation) == (None, 6)
        assert answer.current.name == owner.name
    assert not (await store.publish(owner)).accepted
    assert (await store.claim(make_claim("pid:1"))).generation == 7


async def test_a_session_that_let_go_goes_on_with_its_generation_if_nobody_came_between(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    owner = make_owner(6, "pid:1")
    await store.publish(owner)
    held = await store.claim(make_claim("pid:2", returns_to=6))
    assert held.status is ClaimStatus.HELD, "only a free resource is returned to"
    await store.release(owner)
    returning = make_claim("pid:1", returns_to=6)
    assert (await store.claim(returning)).generation == 6
    assert (await store.publish(make_owner(6, "pid:1"), returning.token)).accepted
    await store.publish(make_owner(7, None))
    assert (await store.claim(make_claim("pid:1", returns_to=6))).generation == 8


async def test_a_session_that_let_go_and_asks_for_a_higher_generation_gets_it(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    await store.publish(make_owner(6, None))
    assert (await store.claim(make_claim("pid:1", returns_to=6, asked=9))).generation == 9


async def test_nobody_returns_to_what_was_never_owned(store: MetadataStore, make_claim: MakeClaim):
    assert (await store.claim(make_claim("pid:1", returns_to=0))).generation == 1


async def test_a_late_release_does_not_touch_a_newer_owner_nor_the_same_one_after_a_failover(
    store: MetadataStore, make_owner: MakeOwner
):
    owner, failed_over, successor = make_owner(6, "pid:1"), make_owner(6, "pid:1", node_id=2), make_owner(7, "pid:2")
    await store.publish(owner)
    await store.publish(failed_over)
    late = await store.release(owner)
    assert (late.released, late.current) == (False, failed_over)
    await store.publish(successor)
    late = await store.release(failed_over)
    assert (late.released, late.current) == (False, successor)


async def test_a_release_that_redis_forgot_the_owner_of_is_written_down(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    owner = make_owner(6, "pid:1")
    assert (await store.release(owner)).released
    assert (await store.claim(make_claim("pid:2", known=owner))).generation == 7


async def test_a_beat_restores_owners_that_redis_lost_and_not_what_is_old(
    store: MetadataStore, redis_side: RedisSide, cluster: str, make_node: MakeNode, make_owner: MakeOwner
):
    node, owner = make_node(1), make_owner(3, "pid:1")
    await store.publish(owner)
    assert (await store.heartbeat(node, ["orders"], [owner])).restored == 0
    redis_side.empty(cluster)
    assert (await store.heartbeat(node, ["orders"], [owner])).restored == 1
    assert (await store.ownership("orders")).owner == owner
    await store.release(owner)
    assert (await store.heartbeat(node, ["orders"], [owner])).restored == 0
    assert (await store.ownership("orders")).owner != owner


async def test_names_of_every_kind_come_back_as_they_were(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    for name in ("", "with blank", 'quote " and \\', "line\nbreak", "žluťoučký 🐎", "\udcff\udc80", "- 1 2"):
        for resource in ("orders", "orders.p0", "{braces} and blank", "ключ"):
            record = make_owner(1, "conn:1-2", name=name, resource=resource)
            await store.publish(record)
            assert (await store.ownership(resource)).owner == record
            await store.claim(make_claim("conn:9", resource=resource, name=name))
    assert len(await store.ownerships()) == 4


async def test_everything_that_is_owned_or_claimed_is_listed(
    store: MetadataStore, make_claim: MakeClaim, make_owner: MakeOwner
):
    owner = make_owner(3, "pid:1", resource="audit")
    await store.publish(owner)
    request = make_claim("pid:2", resource="billing")
    await store.claim(request)
    audit, billing = await store.ownerships()
    assert (audit.resource, audit.owner, audit.claim) == ("audit", owner, None)
    assert (billing.resource, billing.owner) == ("billing", None)
    assert billing.claim is not None
    assert (billing.claim.token, billing.claim.generation) == (request.token, Generation(1))
    nothing = await store.ownership("unknown")
    assert (nothing.owner, nothing.claim) == (None, None)


async def test_the_queue_is_kept_by_the_node_that_serves_and_read_by_any(store: MetadataStore, make_node: MakeNode):
    serving, other = make_node(1), make_node(2)
    assert await store.queue("orders") == []
    await store.heartbeat(serving, ["orders"])
    await store.heartbeat(other)
    assert await store.keep_queue("orders", 1, serving.boot, ["pid:7", "conn:1-2-3", "pid:8"])
    assert not await store.keep_queue("orders", 2, other.boot, ["pid:9"])
    assert not await store.keep_queue("orders", 1, other.boot, ["pid:9"])
    assert await store.queue("orders") == ["pid:7", "conn:1-2-3", "pid:8"]
    await store.leave(1, serving.boot)
    assert await store.queue("orders") == ["pid:7", "conn:1-2-3", "pid:8"]
    await store.serve("orders", 2, other.boot, last_node=None)
    assert await store.keep_queue("orders", 2, other.boot, [])
    assert await store.queue("orders") == []


async def test_a_topic_that_is_gone_leaves_nothing(
    store: MetadataStore, make_node: MakeNode, make_claim: MakeClaim, make_owner: MakeOwner
):
    serving, other = make_node(1), make_node(2)
    await store.heartbeat(serving, ["orders"])
    await store.heartbeat(other)
    request = make_claim("pid:1", resource="orders/p0", boot=serving.boot)
    await store.claim(request)
    assert not await store.forget("orders", 1, serving.boot, 9, ["orders", "orders/p0"], [0]), "it is claimed"
    await store.publish(make_owner(1, "pid:1", resource="orders/p0"), request.token)
    await store.keep_queue("orders", 1, serving.boot, ["pid:7"])
    await store.keep_snapshot("orders", 0, b"id", (5, 1), b"ids")
    assert not await store.forget("orders", 2, other.boot, 9, ["orders", "orders/p0"], [0]), "another node serves it"
    assert not await store.forget("orders", 1, serving.boot, 0, ["orders", "orders/p0"], [0]), "it has a newer owner"
    assert await store.queue("orders") == ["pid:7"]
    for _ in range(2):
        assert await store.forget("orders", 1, serving.boot, 1, ["orders", "orders/p0"], [0])
        assert (await store.ownership("orders/p0")).owner is None
        assert await store.queue("orders") == []
        assert await store.snapshots("orders", b"id", [0]) == {}
    answer = await store.claim(make_claim("pid:2", resource="orders/p0", boot=serving.boot))
    assert answer.generation == 1, "no ticket is left: the changelog says where generations go on"
    assert (await store.serve("orders", 2, other.boot, last_node=None)).status is ServeStatus.GRANTED
