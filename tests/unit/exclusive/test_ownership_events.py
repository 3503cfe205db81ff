"""What nodes report of owners: the events of the history, and what metrics hear."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from metadata.ownership import AccessMode
from sidecar.changelog import SlotName, unpack_offsets
from sidecar.changelog.view import View
from sidecar.exclusive.ownership_events import OwnershipEvents, Subject
from sidecar.policy.policies import Scope
from sidecar.protocol.caller import UpstreamError
from sidecar.takeover.slots import SlotScope
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state
from tests.unit.exclusive.paper_cluster import TOPIC, Client, Node, cluster
from tests.wait import wait_until

FENCING, SHARED = AccessMode.EXCLUSIVE_WITH_FENCING, AccessMode.SHARED


async def told(node: Node) -> list[tuple[str, int, str, str]]:
    """The kind of each event, the generation and session that it is about, and its detail."""
    for _ in range(20):
        await asyncio.sleep(0)
    kinds = state.Event.Kind.Name
    return [(kinds(each.kind), each.generation, each.session, each.detail) for each in node.changelog.events]


async def test_the_history_of_a_topic_whose_owners_change() -> None:
    async with cluster() as paper:
        node, owner, rival = paper.node(), Client(7), Client(8, FENCING)
        assert await owner.send(node, 1) == 0
        assert await rival.send(node, 2) == 0
        assert await node.whole.give_up(rival.session)
        assert await told(node) == [
            ("CLAIMED", 1, "pid:7", ""),
            ("DEPOSED", 1, "pid:7", "by app-8"),
            ("CLAIMED", 2, "pid:8", "deposed app-7"),
            ("RELEASED", 2, "pid:8", ""),
        ]
        claimed, deposed, then, _ = node.changelog.events
        assert (deposed.details.by, then.details.deposed) == ("app-8", "app-7")
        assert not claimed.HasField("details")
        assert {(each.topic, each.client) for each in node.changelog.events} == {(TOPIC, "host")}
        assert [each.name for each in node.changelog.events] == ["app-7", "app-7", "app-8", "app-8"]
        assert claimed.mode != then.mode
        assert len({each.id for each in node.changelog.events}) == len(node.changelog.events)
        assert all(each.node == 1 and each.at_ms and not each.HasField("partition") for each in node.changelog.events)
        assert (claimed.producer_id, claimed.producer_epoch) != (then.producer_id, then.producer_epoch)
        assert owner.claimant.caller is not None
        assert claimed.client_id == owner.claimant.caller.client_id
        assert [dict(unpack_offsets(each.start)) for each in node.changelog.events] == [
            {0: 1, 1: 1}, {0: 3, 1: 2}, {0: 3, 1: 2}, {0: 3, 1: 2},
        ], "an audit reads the log from there"  # fmt: skip
        changes = [arguments[1:] for arguments in node.hooks.reported if arguments[0] == "owner_changed"]
        assert changes == [
            (TOPIC, 1, "app-7", "exclusive"), (TOPIC, 2, "app-8", "exclusive_with_fencing"), (TOPIC, 2, None, None),
        ]  # fmt: skip
        assert [(mode, *found) for _, mode, _, *found in node.reports("takeover")] == [
            ("exclusive", "pid:7", 1, None), ("exclusive_with_fencing", "pid:8", 2, "app-7"),
        ]  # fmt: skip
        assert node.reports("released") == [(TOPIC, "pid:8", 2)]
        ((_, names, by, _),) = node.reports("deposed")
        assert (names, by) == (("app-7",), rival.claimant.caller)


async def test_an_owner_that_goes_on_at_another_node_is_a_failover() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        assert await owner.send(node, 1) == 0
        other = paper.node()
        paper.move(other)
        assert await owner.send(other, 2) == 0
        assert await told(other) == [("FAILOVER", 1, "pid:7", "")]
        assert other.reports("deposed") == []


async def test_an_administrator_deposes_an_owner_for_nobody() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        assert await owner.send(node, 1) == 0
        await node.whole.administer(fence=True)
        assert await told(node) == [("CLAIMED", 1, "pid:7", ""), ("DEPOSED", 1, "pid:7", "deposed app-7")]
        assert node.reports("takeover")[-1][3:] == ("", 2, "app-7")
        assert node.reports("owner_changed")[-1] == (TOPIC, 2, None, None)
        assert node.reports("deposed") == [], "nobody's batch did it"


async def test_sessions_that_share_a_topic_are_events_with_their_slots_and_depose_the_owner() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        assert await owner.send(node, 1) == 0
        assert await node.whole.give_up(owner.session)
        node.allow(SHARED)
        assert await Client(8, SHARED).send(node, 2) == 0
        assert await told(node) == [
            ("CLAIMED", 1, "pid:7", ""), ("RELEASED", 1, "pid:7", ""),
            ("DEPOSED", 1, "pid:7", "shared producers write now"), ("CLAIMED", 0, "pid:8", ""),
        ]  # fmt: skip
        owned, _, deposed, shares = node.changelog.events
        assert deposed.details.reason == "shared producers write now"
        assert (shares.mode, shares.name, shares.producer_id != owned.producer_id) == (control.SHARED, "app-8", True)
        assert node.reports("owner_changed")[-1] == (TOPIC, 1, None, None)


async def test_events_of_a_partition_name_it() -> None:
    async with cluster() as paper:
        node, rival = paper.node(scope=Scope.PARTITION), Client(8, FENCING)
        assert await Client(7).send(node, 1, partition=1) == 0
        assert await rival.send(node, 2, partition=1) == 0
        assert [each[0] for each in await told(node)] == ["CLAIMED", "DEPOSED", "CLAIMED"]
        assert {each.partition for each in node.changelog.events} == {1}
        assert [arguments[0] for arguments in node.reports("deposed")] == [f"{TOPIC}-1"]
        assert node.reports("owner_changed")[-1] == (TOPIC, 2, None, None), "metrics have the topic's highest"


async def test_a_client_that_is_refused_is_an_event_and_one_that_is_lost_is_reported() -> None:
    async with cluster() as paper:
        node = paper.node()
        await node.env.events.client_refused(TOPIC, "app", "host", "44 POLICY_VIOLATION", 77)
        (event,) = node.changelog.events
        assert (event.kind, event.topic, event.name, event.client, event.detail, event.at_ms) == (
            state.Event.REFUSED, TOPIC, "app", "host", "44 POLICY_VIOLATION", 77,
        )  # fmt: skip

        async def lost(_: object) -> None:
            raise UpstreamError("away")

        vars(node.changelog)["add_event"] = lost
        await node.env.events.client_refused(TOPIC, "app", "host", "44", 77)
        assert [arguments[0] for arguments in node.reports("operation_failed")] == [TOPIC]


async def test_a_release_that_redis_does_not_hear_is_one() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        assert await owner.send(node, 1) == 0
        paper.redis.is_away = True
        node.close(owner)
        await node.settled()
        await wait_until(lambda: node.holder is None, "the release")
        assert (await told(node))[-1][:2] == ("RELEASED", 1)


async def test_an_owner_is_reported_again_as_it_is() -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7, FENCING)
        node.env.events.report_again(node.whole.subject)
        assert await owner.send(node, 1) == 0
        node.env.events.report_again(node.whole.subject)
        assert [node.reports("owner_changed")[index] for index in (0, -1)] == [
            (TOPIC, 0, None, None), (TOPIC, 1, "app-7", "exclusive_with_fencing"),
        ]  # fmt: skip


async def test_a_generation_that_the_view_does_not_have_yet_is_reported() -> None:
    reported: list[int] = []

    def owner_changed(_topic: str, generation: int, _owner: str | None, _mode: str | None) -> None:
        reported.append(generation)

    hooks = SimpleNamespace(owner_changed=owner_changed)
    services = SimpleNamespace(changelog=SimpleNamespace(view=View()))
    events = OwnershipEvents(cast(Any, services), cast(Any, None), cast(Any, hooks))
    known = SimpleNamespace(generation=7, holder=None)
    events.report_again(Subject(SlotScope("orders", SlotName("p/3")), cast(Any, known), None))
    await asyncio.sleep(0)
    assert reported == [7]
