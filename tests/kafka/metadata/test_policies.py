"""The catalog of policies, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from metadata import MetadataStore, Node, Policies, Policy, new_token

if TYPE_CHECKING:
    from collections.abc import Callable


NONE_KNOWN = Policies(0, {})
EXCLUSIVE = '{"access_mode":"exclusive"}'
SHARED = '{"access_mode":"shared"}'


async def test_each_change_has_a_version_of_its_own(store: MetadataStore):
    assert await store.policies() == NONE_KNOWN
    assert await store.set_policy("orders", EXCLUSIVE, NONE_KNOWN, new_token()) == 1
    assert await store.set_policy("payments.*", SHARED, NONE_KNOWN, new_token()) == 2
    assert await store.set_policy("orders", SHARED, NONE_KNOWN, new_token()) == 3
    assert await store.policies() == Policies(3, {"orders": Policy(SHARED, 3), "payments.*": Policy(SHARED, 2)})
    assert await store.delete_policy("orders", NONE_KNOWN, new_token()) == 4
    assert await store.policies() == Policies(4, {"payments.*": Policy(SHARED, 2)})


async def test_the_same_token_changes_nothing_the_second_time(store: MetadataStore):
    token = new_token()
    assert await store.set_policy("orders", EXCLUSIVE, NONE_KNOWN, token) == 1
    assert await store.set_policy("orders", SHARED, NONE_KNOWN, new_token()) == 2
    # The first wish, delivered once more, must not undo the second.
    assert await store.set_policy("orders", EXCLUSIVE, NONE_KNOWN, token) == 1
    assert await store.policies() == Policies(2, {"orders": Policy(SHARED, 2)})


async def test_changes_at_once_get_versions_without_gap_or_repeat(store: MetadataStore):
    versions = await asyncio.gather(
        *(store.set_policy(f"topic-{number}", SHARED, NONE_KNOWN, new_token()) for number in range(40))
    )
    assert sorted(versions) == list(range(1, 41))


async def test_the_version_goes_on_from_what_the_caller_knows(store: MetadataStore):
    known = Policies(2**53 + 8, {"payments.*": Policy(SHARED, 2**53 + 1)})
    assert await store.set_policy("orders", EXCLUSIVE, known, new_token()) == 2**53 + 9
    assert await store.policies() == Policies(2**53 + 9, {**known.by_name, "orders": Policy(EXCLUSIVE, 2**53 + 9)})


async def test_an_emptied_redis_is_refilled_once(store: MetadataStore):
    known = Policies(7, {"orders": Policy(EXCLUSIVE, 7), "payments.*": Policy(SHARED, 2)})
    assert await store.refill_policies(known)
    assert not await store.refill_policies(known)
    assert await store.policies() == known


async def test_a_rolled_back_redis_loses_what_was_deleted_meanwhile(store: MetadataStore):
    await store.set_policy("deleted", EXCLUSIVE, NONE_KNOWN, new_token())
    known = Policies(5, {"orders": Policy(SHARED, 4)})
    assert await store.refill_policies(known)
    assert await store.policies() == known


async def test_a_node_that_lags_behind_refills_nothing(store: MetadataStore):
    lagging = Policies(1, {"orders": Policy(EXCLUSIVE, 1)})
    await store.refill_policies(lagging)
    await store.delete_policy("orders", lagging, new_token())
    assert not await store.refill_policies(lagging)
    assert await store.policies() == Policies(2, {})


async def test_a_beat_tells_the_newest_version_and_who_applies_it(store: MetadataStore, make_node: Callable[..., Node]):
    ahead, behind = make_node(1, policy_version=1), make_node(2, policy_version=0)
    version = await store.set_policy("orders", EXCLUSIVE, NONE_KNOWN, new_token())
    await store.heartbeat(ahead)
    live = (await store.heartbeat(behind)).live
    assert live.policy_version == version
    assert [node.policy_version for node in live.nodes.values()] == [version, version - 1]
    caught_up = make_node(2, boot=behind.boot, policy_version=1)
    assert (await store.heartbeat(caught_up)).live.nodes[2] == caught_up
