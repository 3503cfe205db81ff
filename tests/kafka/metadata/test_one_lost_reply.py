"""One reply is lost after the server ran the script: it ran once, and the same wish again changes nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio

from metadata import (
    AccessMode,
    ClaimRequest,
    Generation,
    MetadataStore,
    MetadataUnavailable,
    Node,
    Ownership,
    Policies,
    Reason,
    new_token,
)
from tests.kafka.metadata.lossy_proxy import LossyProxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kafka.metadata.servers import OwnServer, RedisSide

NODE = Node(1, "aa", "127.0.0.1", 19092)
OTHER = Node(2, "bb", "127.0.0.1", 19093)
OWNED = Ownership("orders", Generation(3), 10, "pid:1", name="billing")
SUCCESSOR = Ownership("orders", Generation(4), 11, "pid:2", name="billing-2")
TOKEN = bytes(range(16))
NONE_KNOWN = Policies(0, {})
CLAIM = ClaimRequest("orders", TOKEN, 1, "aa", "pid:2", "billing-2", AccessMode.EXCLUSIVE_WITH_FENCING, lease_ms=60_000)

WISHES: dict[str, Callable[[MetadataStore], Awaitable[object]]] = {
    "heartbeat": lambda store: store.heartbeat(NODE, ["orders", "audit"], [OWNED]),
    "leave": lambda store: store.leave(1, "aa"),
    "serve": lambda store: store.serve("audit", 1, "aa", last_node=None),
    "hand over": lambda store: store.hand_over("orders", 1, "aa", to=2),
    "claim": lambda store: store.claim(CLAIM),
    "abandon": lambda store: store.abandon("orders", TOKEN),
    "publish": lambda store: store.publish(SUCCESSOR, TOKEN),
    "release": lambda store: store.release(OWNED),
    "set policy": lambda store: store.set_policy("orders", "{}", NONE_KNOWN, TOKEN),
    "delete policy": lambda store: store.delete_policy("payments", NONE_KNOWN, TOKEN),
    "refill policies": lambda store: store.refill_policies(Policies(9, {})),
}


async def _prepare(store: MetadataStore) -> None:
    await store.heartbeat(OTHER)
    await store.heartbeat(NODE, ["orders"])
    await store.publish(OWNED)
    await store.set_policy("payments", "{}", NONE_KNOWN, new_token())


async def _state(store: MetadataStore) -> tuple[Any, ...]:
    """Everything a node can see, but for the milliseconds that are left of leases."""
    live = (await store.heartbeat(OTHER)).live
    owners = [
        (state.resource, state.owner, state.claim and (state.claim.token, state.claim.session, state.claim.generation))
        for state in await store.ownerships()
    ]
    return live, owners, await store.policies()


@pytest.mark.parametrize("wish", WISHES)
async def test_a_wish_whose_reply_was_lost_is_carried_out_once(redis_side: RedisSide, cluster: str, wish: str):
    run = WISHES[wish]
    async with MetadataStore(redis_side.url, f"{cluster}-control", command_timeout_ms=10_000) as control:
        await _prepare(control)
        expected = await run(control)
        expected_state = await _state(control)

    async with (
        LossyProxy(redis_side.address) as proxy,
        MetadataStore(proxy.url, cluster, command_timeout_ms=10_000, connections=1) as store,
        MetadataStore(redis_side.url, cluster, command_timeout_ms=10_000) as beside,
    ):
        await _prepare(store)
        proxy.lose_reply_to(b"EVALSHA")
        with pytest.raises(MetadataUnavailable) as failure:
            await run(store)
        assert proxy.lost == 1
        assert (failure.value.reason, failure.value.maybe_applied) == (Reason.AWAY, True)
        assert await _state(beside) == expected_state, "carried out before its reply was lost"

        again = await run(store)
        assert await _state(beside) == expected_state, "carried out once, although asked for twice"
        if wish not in ("leave", "abandon", "refill policies", "heartbeat"):
            assert again == expected, "the same wish gets the same answer"


async def test_the_store_sends_a_script_once_where_the_librarys_client_runs_it_again(own: OwnServer, cluster: str):
    count = "return redis.call('INCR', KEYS[1])"
    async with LossyProxy(own.address) as proxy:
        client = redis.asyncio.Redis(host="127.0.0.1", port=proxy.port)
        proxy.lose_reply_to(b"EVAL")
        assert await client.eval(count, 1, "counter") == 2, "what the store is protected from happens"  # type: ignore[misc]
        await client.aclose()
        assert proxy.lost == 1

        async with MetadataStore(proxy.url, cluster, command_timeout_ms=10_000) as store:
            await store.policies()
            await store.set_policy("warm", "{}", NONE_KNOWN, new_token())
            before = own.calls("eval", "evalsha")
            proxy.lose_reply_to(b"EVALSHA")
            with pytest.raises(MetadataUnavailable):
                await store.set_policy("orders", "{}", NONE_KNOWN, TOKEN)
            assert proxy.lost == 2
            assert own.calls("eval", "evalsha") == before + 1
            assert await store.set_policy("orders", "{}", NONE_KNOWN, TOKEN) == 2
            assert (await store.policies()).version == 2
