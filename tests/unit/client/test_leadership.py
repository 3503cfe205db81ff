"""Leadership against a node on paper: what it asks, what it makes of the answers, and that nothing stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sidecar.client import Leadership, ProducerBusyError, ProducerFencedError, SidecarError, SidecarUnavailableError
from sidecar.client.errors import OwnError
from sidecar.client.sync import Leadership as SyncLeadership
from sidecar.local.ports import free_ports
from sidecar.v1 import control_pb2 as control
from tests.unit.client.paper_claims import FENCING_BASE, HOST, OWN, WATCH, PaperClaims, elsewhere, paper_claims


@pytest.fixture
async def node() -> AsyncIterator[PaperClaims]:
    async with paper_claims() as found:
        yield found


def at(*nodes: PaperClaims) -> str:
    return ",".join(f"{HOST}:{each.port}" for each in nodes)


async def refused(error: control.Error, node: PaperClaims) -> SidecarError:
    node.refusals.append(control.OwnResponse(error=error, message="so it is"))
    with pytest.raises(SidecarError, match="so it is") as found:
        await Leadership(at(node), "scheduler", name="b", timeout=0.2).start()
    return found.value


# Leading --------------------------------------------------------------------------------------------------------------


async def test_it_leads_inside_the_block_and_lets_go_behind_it(node: PaperClaims) -> None:
    assert Leadership(at(node), "scheduler", name="a").fencing_token == 0
    async with Leadership(at(node), "scheduler", name="a") as lead:
        assert lead.fencing_token == FENCING_BASE + 1
        assert (lead.name, lead.generation, lead.is_leader, lead.error) == ("a", 1, True, None)
        assert node.owner is not None
        assert node.owner.name == "a"
    assert node.owner is None  # at once: it waited for the node's word
    assert (lead.is_leader, lead.generation, lead.error, lead.fencing_token) == (False, 1, None, FENCING_BASE + 1)
    await asyncio.wait_for(lead.lost(), 5)
    await node.until(lambda: not node.lines)


@pytest.mark.parametrize(
    ("settings", "resource", "group"),
    [
        ({"resource": "scheduler"}, control.Resource(name="scheduler"), ""),
        ({"resource": "s", "group": "g"}, control.Resource(name="s"), "g"),
        ({"topic": "orders"}, control.Resource(topic="orders"), ""),
        ({"topic": "orders", "partition": 0}, control.Resource(topic="orders", partition=0), ""),
        ({"topic": "orders", "partition": 3, "group": "g"}, control.Resource(topic="orders", partition=3), "g"),
    ],
)
async def test_what_is_claimed_is_what_is_asked_for(
    node: PaperClaims, settings: dict[str, Any], resource: control.Resource, group: str
) -> None:
    async with Leadership(at(node), **settings, name="a"):
        (asked,) = node.told
    assert asked.claims == [control.Claim(resource=resource)]
    assert (asked.group, asked.producer_name, asked.producer_id, len(asked.token)) == (group, "a", -1, 16)
    assert not asked.claims[0].HasField("generation")


async def test_a_generation_of_0_is_one(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", generation=0):
        assert node.told[0].claims[0].HasField("generation")


async def test_one_connection_owns_and_another_watches(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a"):
        assert node.owner is not None
        owning = node.owner.line
        await node.until(lambda: any(WATCH in each.keys for each in node.lines))
        assert WATCH not in owning.keys
        assert OWN in owning.keys
        assert len(node.lines) == 2


async def test_who_waits_leads_once_the_leader_has_gone(node: PaperClaims) -> None:
    following = Leadership(at(node), "scheduler", name="b", timeout=0.2, silence=1)
    async with Leadership(at(node), "scheduler", name="a"):
        waiting = asyncio.create_task(following.start())
        await node.until(lambda: len(node.queue) == 2)
        first = node.told[-1].token
        await node.until(lambda: sum(each.producer_name == "b" for each in node.told) > 3)  # far beyond its timeout
        assert {each.token for each in node.told if each.producer_name == "b"} == {first}
        node.refusals.append(control.OwnResponse(error=control.UNAVAILABLE))
        await node.until(lambda: not node.refusals)
        asked = len(node.told)
        await node.until(lambda: len(node.told) > asked)
        assert not waiting.done()
        assert not following.is_leader
    await waiting
    assert (following.is_leader, following.generation) == (True, 2)
    await following.close()


async def test_a_rival_that_does_not_wait_is_told_who_leads(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a") as lead:
        with pytest.raises(ProducerBusyError, match="a owns it") as busy:
            await Leadership(at(node), "scheduler", name="b", mode="exclusive").start()
        assert (busy.value.code, busy.value.retryable) == (OwnError.HELD, True)
        assert lead.is_leader


# Losing it ------------------------------------------------------------------------------------------------------------


async def test_who_is_deposed_hears_it_at_once_and_why(node: PaperClaims) -> None:
    lead = Leadership(at(node), "scheduler", name="a", silence=1000)
    winner = Leadership(at(node), "scheduler", name="b", mode="exclusive_with_fencing")
    async with lead, winner:
        await asyncio.wait_for(lead.lost(), 5)
        assert (lead.is_leader, winner.is_leader) == (False, True)
        assert isinstance(lead.error, ProducerFencedError)
        assert "b took it" in str(lead.error)
        await node.until(lambda: len(node.lines) == 2)  # the winner's
    await node.until(lambda: not node.lines)


async def test_who_waits_and_is_evicted_is_told(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a"):
        waiting = asyncio.create_task(Leadership(at(node), "scheduler", name="b", silence=1000).start())
        await node.until(lambda: len(node.queue) == 2)
        async with Leadership(at(node), "scheduler", name="c", mode="exclusive_with_fencing"):
            with pytest.raises(ProducerFencedError, match="c took it"):
                await asyncio.wait_for(waiting, 5)


async def test_a_severed_connection_is_the_end_of_it(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a", silence=1000) as lead:
        node.sever()
        node.depose("b took it")
        await asyncio.wait_for(lead.lost(), 5)
        assert isinstance(lead.error, ProducerFencedError)  # the node's word counts, though it comes second
        await node.until(lambda: not node.lines)
        assert len(node.told) == 1  # never taken back


async def test_a_node_that_dies_takes_the_claim_with_it_for_good(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a", silence=1000) as lead:
        node.cut()
        await asyncio.wait_for(lead.lost(), 5)
        assert isinstance(lead.error, SidecarUnavailableError)
        assert not lead.is_leader
        await node.until(lambda: not node.lines)
        assert (len(node.told), node.owner) == (1, None)


async def test_only_the_watch_may_break_and_is_begun_anew(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a", silence=1000) as lead:
        for _ in range(3):
            await node.until(lambda: any(WATCH in each.keys for each in node.lines))
            watcher = next(each for each in node.lines if WATCH in each.keys)
            watcher.writer.transport.abort()
            await node.until(lambda gone=watcher: gone not in node.lines)
        assert lead.is_leader
        node.depose("over")
        await asyncio.wait_for(lead.lost(), 5)
        assert "over" in str(lead.error)


async def test_a_silent_node_is_believed_for_so_long_and_no_longer(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a", silence=1) as lead:
        node.silent = True
        assert lead.is_leader
        await asyncio.wait_for(lead.lost(), 10)
        assert not lead.is_leader
        assert "vouched" in str(lead.error)
        await node.until(lambda: not node.lines)  # so that the node lets go of it too


async def test_whoever_was_stalled_himself_does_not_believe_to_lead(
    node: PaperClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop stood still for longer than the silence: it is known before anything else runs."""
    async with Leadership(at(node), "scheduler", name="a", silence=5) as lead:
        assert lead.is_leader
        loop = asyncio.get_running_loop()
        late = loop.time() + 5.1
        monkeypatch.setattr(lead._claim, "_clock", lambda: late)
        assert not lead.is_leader
        monkeypatch.undo()


async def test_a_node_that_knows_the_claim_no_more_has_ended_it(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a", silence=1) as lead:
        assert node.owner is not None
        node.queue.clear()
        await asyncio.wait_for(lead.lost(), 5)
        assert isinstance(lead.error, ProducerFencedError)
        assert "nobody knows this token" in str(lead.error)


# Finding the node -----------------------------------------------------------------------------------------------------


async def test_it_goes_to_the_node_that_it_is_sent_to(node: PaperClaims) -> None:
    async with paper_claims() as third, paper_claims() as other:
        node.nodes = {1: node.port, 2: third.port, 3: other.port}
        node.refusals.append(elsewhere(3))
        async with Leadership(at(node), "scheduler", name="a") as lead:
            assert (len(node.told), len(third.told), len(other.told)) == (1, 0, 1)
            assert lead.is_leader
        await node.until(lambda: not node.lines)


async def test_it_tries_elsewhere_first_where_a_node_hangs_up(node: PaperClaims) -> None:
    async with paper_claims() as other:
        node.nodes = {1: node.port, 2: other.port}
        node.hang_up = 1
        async with Leadership(at(node), "scheduler", name="a"):
            assert (node.owner, len(other.told)) == (None, 1)


async def test_it_asks_again_while_nobody_can_and_then_says_so(node: PaperClaims) -> None:
    node.refusals += [control.OwnResponse(error=control.UNAVAILABLE), elsewhere(-1), elsewhere(7)]
    async with Leadership(at(node), "scheduler", name="a"):
        assert len(node.told) == 4
    node.refusals += [control.OwnResponse(error=control.UNAVAILABLE, message="Redis is away")] * 100
    with pytest.raises(SidecarUnavailableError, match="Redis is away"):
        await Leadership(at(node), "scheduler", name="a", timeout=0.3).start()
    await node.until(lambda: not node.lines)


async def test_who_waits_goes_on_at_another_node_where_his_own_dies(node: PaperClaims) -> None:
    async with paper_claims() as other:
        node.nodes = {1: node.port, 2: other.port}
        lead = Leadership(at(node), "scheduler", name="b")
        async with Leadership(at(node), "scheduler", name="a"):
            waiting = asyncio.create_task(lead.start())
            await node.until(lambda: len(node.queue) == 2)
            first = node.told[-1].token
            await node.stop()
            await asyncio.wait_for(waiting, 10)
        assert lead.is_leader
        assert [each.token == first for each in other.told] == [False]
        await lead.close()
        await node.start()  # for the fixture to stop


async def test_where_nobody_listens_it_gives_up_in_time() -> None:
    with pytest.raises(SidecarUnavailableError, match="cannot be reached") as away:
        await Leadership(f"{HOST}:{free_ports(1)[0]}", "scheduler", timeout=0.3).start()
    assert away.value.retryable


async def test_a_claim_whose_answer_was_lost_is_no_rival(node: PaperClaims) -> None:
    """The connection breaks with the answer under way: the node may have granted it, and holds it until it knows."""
    held = control.Ownership(error=control.HELD, message="a owns it", owner_name="a")
    ghost = control.OwnResponse(error=control.HELD, message="a owns it", ownerships=[held])
    node.refusals.append(ghost)
    with pytest.raises(ProducerBusyError, match="a owns it"):  # it never asked before: this is another of the name
        await Leadership(at(node), "scheduler", name="a", mode="exclusive").start()
    node.hang_up = 1
    node.refusals += [ghost, ghost]
    async with Leadership(at(node), "scheduler", name="a", mode="exclusive") as lead:
        assert lead.is_leader
        assert not node.refusals
    held.owner_name = "b"
    node.hang_up = 1
    node.refusals.append(control.OwnResponse(error=control.HELD, message="b owns it", ownerships=[held]))
    with pytest.raises(ProducerBusyError, match="b owns it"):
        await Leadership(at(node), "scheduler", name="a", mode="exclusive").start()


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (control.INVALID_REQUEST, SidecarError),
        (control.UNAVAILABLE, None),
        (control.HELD, ProducerBusyError),
        (control.LOWER_GENERATION, ProducerBusyError),
        (control.DEPOSED, ProducerFencedError),
        (control.UNKNOWN_RESOURCE, SidecarError),
        (control.NOT_AUTHORIZED, SidecarError),
        (control.QUEUE_FULL, ProducerBusyError),
    ],
)
async def test_a_refusal_bears_the_nodes_code_and_words(
    node: PaperClaims, error: control.Error, kind: type[SidecarError] | None
) -> None:
    if kind is None:
        node.refusals += [control.OwnResponse(error=error, message="so it is")] * 100
        kind = SidecarUnavailableError
    found = await refused(error, node)
    assert (type(found), found.code) == (kind, OwnError(error))
    await node.until(lambda: not node.lines)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "either a resource or a topic"),
        ({"resource": "x", "topic": "y"}, "either a resource or a topic"),
        ({"resource": ""}, "resource is empty"),
        ({"topic": ""}, "topic is empty"),
        ({"resource": "x", "partition": 0}, "partition 0"),
        ({"topic": "x", "partition": -1}, "partition -1"),
        ({"resource": "x", "mode": "shared"}, "mode"),
        ({"resource": "x", "group": ""}, "group"),
        ({"resource": "x", "name": "rdkafka"}, "default of client libraries"),
        ({"resource": "x", "generation": -1}, "generation -1"),
        ({"resource": "x", "timeout": 0}, "timeout"),
        ({"resource": "x", "silence": 0.5}, "silence"),
        ({"resource": "x", "bootstrap": ""}, "address"),
    ],
)
def test_what_cannot_be_is_refused_at_once(settings: dict[str, Any], told: str) -> None:
    settings = {"bootstrap": "host:1"} | settings
    with pytest.raises(ValueError, match=told):
        Leadership(**settings)


@pytest.mark.parametrize("kind", [Leadership, SyncLeadership])
def test_a_name_is_never_taken_for_what_is_claimed(kind: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        kind("host:1", "scheduler", "host-1")


# The end --------------------------------------------------------------------------------------------------------------


async def test_it_is_used_once_and_closed_at_will(node: PaperClaims) -> None:
    lead = Leadership(at(node), "scheduler", name="a")
    async with lead:
        with pytest.raises(RuntimeError, match="used once"):
            await lead.start()
        await asyncio.gather(lead.close(), lead.close())
    await lead.close()
    never = Leadership(at(node), "scheduler", name="a")
    await never.close()
    await never.lost()
    with pytest.raises(RuntimeError, match="used once"):
        await never.start()


async def test_closed_while_it_waits_it_ends(node: PaperClaims) -> None:
    async with Leadership(at(node), "scheduler", name="a"):
        following = Leadership(at(node), "scheduler", name="b")
        waiting = asyncio.create_task(following.start())
        await node.until(lambda: len(node.queue) == 2)
        await following.close()
        with pytest.raises(RuntimeError, match="closed before it began"):
            await waiting
        await node.until(lambda: len(node.queue) == 1 and len(node.lines) == 2)


async def test_a_silent_node_does_not_hold_up_the_end_for_long(
    node: PaperClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client._own_claim._SHORT_S", 0.2)
    lead = Leadership(at(node), "scheduler", name="a")
    async with lead:
        node.silent = True
    await lead.lost()
    await node.until(lambda: not node.lines)


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_anywhere_on_the_way_in_nothing_stays_open_or_owned(node: PaperClaims, times: int) -> None:
    """Cut short after each turn of the loop, one more each time, until it leads; and once more while it ends."""
    for turns in range(1, 1000):
        lead = Leadership(at(node), "scheduler", name="a", mode="exclusive")
        start = asyncio.create_task(lead.start())
        for _ in range(turns):
            if start.done():
                break
            await asyncio.sleep(0)
        if start.done():
            await lead.close()
            break
        for _ in range(times):
            start.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await start
        assert not lead.is_leader
        await asyncio.wait_for(lead.lost(), 5)
        await node.until(lambda: not node.lines)
        assert node.owner is None
    assert turns > 5
    await node.until(lambda: not node.lines)


async def test_cancelled_in_the_moment_of_the_grant_it_is_let_go_of(node: PaperClaims) -> None:
    first = Leadership(at(node), "scheduler", name="a")
    await first.start()
    following = Leadership(at(node), "scheduler", name="b")
    waiting = asyncio.create_task(following.start())
    await node.until(lambda: len(node.queue) == 2)
    await first.close()
    await node.until(lambda: node.owner is not None and node.owner.name == "b")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await node.until(lambda: not node.lines)
    assert node.owner is None
