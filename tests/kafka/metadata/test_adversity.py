"""Redis paused, gone, emptied, full, read-only, locked: a typed error within the bound, and all is well afterwards."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import redis

from metadata import (
    AccessMode,
    ClaimRequest,
    ClaimStatus,
    Generation,
    MetadataMisconfigured,
    MetadataProtocolError,
    MetadataStore,
    MetadataUnavailable,
    Node,
    Ownership,
    Policies,
    Reason,
    new_token,
    scripts,
)
from tests.kafka.metadata.servers import OwnServer
from tests.wait import wait_for, wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    StartOwn = Callable[..., OwnServer]
    MakeNode = Callable[..., Node]
    MakeClaim = Callable[..., ClaimRequest]
    MakeOwner = Callable[..., Ownership]

TIMEOUT_MS = 1000
# What a busy machine may add to a bound before it counts as broken: less than a second timeout would.
SLACK_S = 0.9
NONE_KNOWN = Policies(0, {})


@pytest.fixture
async def hurt(own: OwnServer, cluster: str) -> AsyncIterator[MetadataStore]:
    async with MetadataStore(
        own.url, cluster, connect_timeout_ms=TIMEOUT_MS, command_timeout_ms=TIMEOUT_MS, connections=2
    ) as store:
        yield store


async def test_a_paused_server_costs_every_caller_one_timeout_and_the_loop_nothing(hurt: MetadataStore, own: OwnServer):
    await asyncio.gather(hurt.ping(), hurt.ping())
    own.pause()
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    started = time.monotonic()
    # Ten times as many calls as there are connections: waiting for one counts, too.
    failures = await asyncio.gather(*(hurt.policies() for _ in range(20)), return_exceptions=True)
    elapsed = time.monotonic() - started
    ticking.cancel()

    assert all(isinstance(failure, MetadataUnavailable) for failure in failures)
    unavailable = [failure for failure in failures if isinstance(failure, MetadataUnavailable)]
    assert {failure.reason for failure in unavailable} == {Reason.TIMEOUT}
    # Two at first; on a busy machine somebody may get a connection that is given up, and send, in his last moment.
    assert 2 <= sum(failure.maybe_applied for failure in unavailable) < 20, "only what was sent can have been applied"
    assert TIMEOUT_MS / 1000 <= elapsed < TIMEOUT_MS / 1000 + SLACK_S
    assert len(gaps) > 20, "the loop went on"
    assert max(gaps) < TIMEOUT_MS / 1000, "nothing waited for Redis on the loop"

    own.resume()
    await wait_for_async(lambda: _works(hurt), "the same store works when the server goes on")


async def test_what_a_paused_server_runs_late_is_recognised_by_its_token(
    hurt: MetadataStore, own: OwnServer, cluster: str
):
    await hurt.set_policy("warm", "{}", NONE_KNOWN, new_token())
    token = new_token()
    own.pause()
    with pytest.raises(MetadataUnavailable) as failure:
        await hurt.set_policy("orders", "{}", NONE_KNOWN, token)
    assert failure.value.maybe_applied
    own.resume()

    async def version() -> int:
        with suppress(MetadataUnavailable):
            return await hurt.set_policy("orders", "{}", NONE_KNOWN, token)
        return 0

    # Both are in the server's buffers by now: the one given up, and this one.
    assert await wait_for_async(version, "the server answers again") == 2
    assert (await hurt.policies()).version == 2


async def test_a_server_that_is_gone_is_told_apart_and_found_again_at_its_address(
    hurt: MetadataStore, own: OwnServer, make_claim: MakeClaim, make_owner: MakeOwner
):
    await hurt.publish(make_owner(4, "pid:1"))
    own.kill()
    failures: list[MetadataUnavailable] = []
    for _ in range(4):
        with pytest.raises(MetadataUnavailable) as failure:
            await hurt.claim(make_claim("pid:2"))
        failures.append(failure.value)
    assert {failure.reason for failure in failures} == {Reason.AWAY}
    assert not failures[-1].maybe_applied, "nobody was there to apply it"
    own.restart()
    # Empty: neither owner nor cached script is left. The changelog's record brings the owner back.
    known = make_owner(4, "pid:1")
    answer = await hurt.claim(make_claim("pid:2", known=known))
    assert (answer.status, answer.current) == (ClaimStatus.HELD, known)


async def test_nobody_there_at_all(cluster: str):
    async with MetadataStore("redis://127.0.0.1:1/0", cluster, command_timeout_ms=5_000) as store:
        with pytest.raises(MetadataUnavailable, match=r"127\.0\.0\.1:1") as failure:
            await store.ping()
    assert (failure.value.reason, failure.value.maybe_applied) == (Reason.AWAY, False)


async def test_an_older_dump_gives_no_generation_again_that_the_changelog_knows(
    hurt: MetadataStore, own: OwnServer, make_claim: MakeClaim, make_owner: MakeOwner
):
    await hurt.publish(make_owner(3, "pid:1"))
    with own.client() as client:
        client.save()
    later = make_owner(5, "pid:2")
    await hurt.publish(later)
    own.restart()
    await wait_for_async(lambda: _works(hurt), "the restarted server is found")
    stale = (await hurt.ownership("orders")).owner
    assert stale is not None
    assert stale.generation == 3
    answer = await hurt.claim(make_claim("pid:3", mode=AccessMode.EXCLUSIVE_WITH_FENCING, known=later))
    assert (answer.status, answer.generation, answer.current) == (ClaimStatus.GRANTED, 6, later)


async def test_forgotten_scripts_are_sent_again(hurt: MetadataStore, own: OwnServer, make_node: MakeNode):
    token = new_token()
    wishes = (
        lambda: hurt.heartbeat(make_node(1, boot="aa"), ["orders"]),
        lambda: hurt.serve("orders", 1, "aa", last_node=None),
        lambda: hurt.claim(
            ClaimRequest("orders", token, 1, "aa", "pid:1", "name", AccessMode.EXCLUSIVE, lease_ms=60_000)
        ),
        lambda: hurt.publish(Ownership("orders", Generation(1), 1, "pid:1"), token),
        lambda: hurt.release(Ownership("orders", Generation(1), 1, "pid:1")),
        lambda: hurt.ownership("orders"),
        lambda: hurt.abandon("orders", token),
        lambda: hurt.set_policy("orders", "{}", NONE_KNOWN, new_token()),
        lambda: hurt.refill_policies(Policies(7, {})),
        hurt.policies,
        lambda: hurt.keep_queue("orders", 1, "aa", ["pid:2"]),
        lambda: hurt.queue("orders"),
        lambda: hurt.keep_snapshot("orders", 0, b"\x01", (5, 1), b"ids"),
        lambda: hurt.snapshots("orders", b"\x01", [0]),
        lambda: hurt.forget("orders", 1, "aa", 1, ["orders"], [0]),
        lambda: hurt.hand_over("orders", 1, "aa"),
        lambda: hurt.leave(1, "aa"),
    )
    for wish in wishes:
        with own.client() as client:
            client.script_flush()
        before = own.calls("eval")
        await wish()
        assert own.calls("eval") == before + 1, "the text was sent, once"
        with own.client() as client:
            assert client.info("memory")["number_of_cached_scripts"] == 1
    assert len(wishes) == sum(isinstance(value, scripts.Script) for value in vars(scripts).values())


async def test_connections_that_the_server_closed_are_replaced_unnoticed(hurt: MetadataStore, own: OwnServer):
    await asyncio.gather(hurt.ping(), hurt.ping())
    idle = list(hurt._server._idle)
    assert len(idle) == 2
    with own.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)

    async def noticed() -> bool:
        return all([await connection.can_read() for connection in idle if connection.is_connected])

    await wait_for_async(noticed, "the loop has seen the end of the connections")
    await hurt.ping()
    await hurt.ping()


async def test_a_call_that_is_cancelled_gives_its_connection_back(hurt: MetadataStore, own: OwnServer):
    await hurt.ping()
    own.pause()
    for _ in range(10):
        calls = [asyncio.create_task(hurt.policies()) for _ in range(4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    own.resume()
    await wait_for_async(lambda: _works(hurt), "no connection was lost with a call")
    answers = await asyncio.gather(*(hurt.policies() for _ in range(20)))
    assert answers == [NONE_KNOWN] * 20, "no answer went to another call"


async def test_a_full_server_is_told_apart_and_claims_nothing(
    hurt: MetadataStore, own: OwnServer, make_claim: MakeClaim
):
    with own.client() as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(MetadataUnavailable) as failure:
            await hurt.claim(make_claim("pid:1"))
        assert (failure.value.reason, failure.value.maybe_applied) == (Reason.OUT_OF_MEMORY, False)
        assert any("maxmemory" in warning for warning in (await hurt.check_server()).warnings)
        client.config_set("maxmemory", "0")
    assert (await hurt.claim(make_claim("pid:1"))).generation == 1


async def test_a_replica_is_told_apart(hurt: MetadataStore, own: OwnServer, start_own: StartOwn, make_claim: MakeClaim):
    with own.client() as client:
        client.replicaof(*start_own().address)
        wait_for(lambda: client.info("replication")["master_link_status"] == "up", "the replica is in step")
        with pytest.raises(MetadataUnavailable) as failure:
            await hurt.claim(make_claim("pid:1"))
        assert (failure.value.reason, failure.value.maybe_applied) == (Reason.READ_ONLY, False)
        info = await hurt.check_server()
        assert info.role == "slave"
        assert any("replica" in warning for warning in info.warnings)
        client.replicaof("no", "one")
    assert (await hurt.claim(make_claim("pid:1"))).status is ClaimStatus.GRANTED


async def test_a_server_that_still_reads_its_data_is_told_apart(start_own: StartOwn, cluster: str):
    # Loading its 200 keys takes it 2 seconds.
    server = start_own(**{"key-load-delay": "10000", "loading-process-events-interval-bytes": "1024"})
    with server.client() as client:
        client.mset({f"filling:{number}": b"x" * 4096 for number in range(200)})
        client.save()
    async with MetadataStore(server.url, cluster, command_timeout_ms=10_000) as store:
        restarting = asyncio.create_task(asyncio.to_thread(server.restart))

        async def refusal() -> MetadataUnavailable | None:
            try:
                await store.policies()
            except MetadataUnavailable as failure:
                return failure if failure.reason is not Reason.AWAY else None
            return None

        failure = await wait_for_async(refusal, "the server answers although it is loading")
        assert failure is not None
        assert (failure.reason, failure.maybe_applied) == (Reason.LOADING, False)
        await restarting
        assert await store.policies() == NONE_KNOWN


async def test_a_server_held_by_somebody_elses_script_is_told_apart(hurt: MetadataStore, own: OwnServer):
    await hurt.ping()
    with own.client() as client, own.client() as beside:
        client.config_set("busy-reply-threshold", "1")
        endless = asyncio.create_task(asyncio.to_thread(client.eval, "while true do end", 0))

        async def refusal() -> MetadataUnavailable | None:
            try:
                await hurt.policies()
            except MetadataUnavailable as failure:
                return failure if failure.reason is not Reason.TIMEOUT else None
            return None

        failure = await wait_for_async(refusal, "the server says that it is busy")
        assert failure is not None
        assert (failure.reason, failure.maybe_applied) == (Reason.LOADING, False)
        beside.script_kill()
        with pytest.raises(redis.ResponseError):
            await endless
    assert await _works(hurt)


async def test_a_wrong_password_is_told_without_repeating_it(own: OwnServer, cluster: str):
    with own.client() as client:
        client.config_set("requirepass", "right")
        async with MetadataStore(own.url.replace("//", "//:right@"), cluster, command_timeout_ms=10_000) as store:
            await store.ping()
        for login in (":not-this-one@", ""):
            url = own.url.replace("//", f"//{login}")
            async with MetadataStore(url, cluster, command_timeout_ms=10_000) as store:
                with pytest.raises(MetadataUnavailable) as failure:
                    await store.ping()
            assert (failure.value.reason, failure.value.maybe_applied) == (Reason.DENIED, False)
            assert "not-this-one" not in str(failure.value)


async def test_a_user_without_the_permission_is_told_apart(hurt: MetadataStore, own: OwnServer, cluster: str):
    with own.client() as client:
        client.acl_setuser("narrow", enabled=True, passwords=["+secret"], keys=["*"], commands=["+ping"])
    url = own.url.replace("redis://", "redis://narrow:secret@")
    async with MetadataStore(url, cluster, command_timeout_ms=10_000) as store:
        await store.ping()
        with pytest.raises(MetadataUnavailable) as failure:
            await store.policies()
    assert failure.value.reason is Reason.DENIED


async def test_a_user_who_may_not_see_info_is_told_what_to_give(hurt: MetadataStore, own: OwnServer, cluster: str):
    with own.client() as client:
        client.acl_setuser("narrow", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"])
        client.execute_command("ACL", "SETUSER", "narrow", "-info")
    url = own.url.replace("redis://", "redis://narrow:secret@")
    async with MetadataStore(url, cluster, command_timeout_ms=10_000) as store:
        with pytest.raises(
            MetadataMisconfigured, match=r"refuses INFO \(.*'info' command\).* \(ACL SETUSER NAME \+info\)"
        ):
            await store.check_server()
        with own.client() as client:
            client.execute_command("ACL", "SETUSER", "narrow", "+info")
        assert (await store.check_server()).eviction_policy == "noeviction"


async def test_a_defect_of_a_script_is_no_unavailability(hurt: MetadataStore, own: OwnServer, cluster: str):
    with own.client() as client:
        client.set(f"sidecar:{{{cluster}}}:policies", "not a hash")
    with pytest.raises(MetadataProtocolError):
        await hurt.policies()
    await hurt.ping()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_evict_keys_is_refused_with_what_to_set(
    hurt: MetadataStore, own: OwnServer, policy: str
):
    with own.client() as client:
        client.config_set("maxmemory-policy", policy)
        with pytest.raises(MetadataMisconfigured, match=rf"set maxmemory-policy to noeviction \(it is {policy}\)"):
            await hurt.check_server()
        client.config_set("maxmemory-policy", "noeviction")
    assert (await hurt.check_server()).eviction_policy == "noeviction"


async def test_what_the_server_says_of_itself(hurt: MetadataStore, own: OwnServer, start_own: StartOwn, cluster: str):
    info = await hurt.check_server()
    with own.client() as client:
        told = client.info()
    assert (info.role, info.aof_enabled) == ("master", False)
    assert info.name == told.get("server_name", "redis")
    assert info.version == told.get("valkey_version", told["redis_version"])
    assert info.used_memory > 0
    (warning,) = info.warnings
    assert "appendonly" in warning
    async with MetadataStore(start_own(appendonly="yes").url, cluster, command_timeout_ms=10_000) as store:
        assert (await store.check_server()).warnings == ()


async def test_a_unix_socket_and_a_database_number_serve_as_well(tmp_path: Path, start_own: StartOwn, cluster: str):
    path = tmp_path / "redis.sock"
    server = start_own(unixsocket=str(path))
    async with MetadataStore(f"unix://{path}?db=3", cluster, command_timeout_ms=10_000) as store:
        assert store.address == str(path)
        assert await store.set_policy("orders", "{}", NONE_KNOWN, new_token()) == 1
    async with MetadataStore(server.url.replace("/0", "/3"), cluster, command_timeout_ms=10_000) as store:
        assert (await store.policies()).version == 1
    assert server.keys(cluster) == []


async def test_a_closed_store_says_so(own: OwnServer, cluster: str):
    store = MetadataStore(own.url, cluster)
    await store.ping()
    await store.aclose()
    await store.aclose()
    with pytest.raises(MetadataUnavailable) as failure:
        await store.ping()
    assert failure.value.reason is Reason.CLOSED
    with own.client() as client:
        wait_for(lambda: len(client.client_list()) == 1, "the server sees the connections end")


async def _works(store: MetadataStore) -> bool:
    try:
        await store.ping()
    except MetadataUnavailable:
        return False
    return True
