"""`clients/java` and `clients/go`: one of several processes leads, whatever happens to them and to their node."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import StartNode, Unique
from tests.nodes import NodeProcess
from tests.own import OwnClient, string
from tests.slow.libraries.conftest import Start
from tests.slow.libraries.peers import Peer
from tests.wait import wait_for

WAIT, FENCING, EXCLUSIVE = "WAIT_FOR_EXCLUSIVE", "EXCLUSIVE_WITH_FENCING", "EXCLUSIVE"
SILENCE_MS = "60000"
"""Far more than a test takes, where silence is not what it is about."""


def waiting(node: NodeProcess, resource: str) -> list[str]:
    with OwnClient(node.bootstrap) as own:
        return [each.name for each in own.owners(string(resource)).waiting]


def leads(peer: Peer) -> bool:
    peer.ask("?")
    return peer.expect("leads ") == ["true"]


def test_of_three_one_leads_after_the_other_killed_stopped_or_closed(
    start: Start, node: NodeProcess, unique: Unique
) -> None:
    resource = unique("scheduler")
    first = start("lead", node.bootstrap, "a", resource, WAIT, SILENCE_MS)
    first.expect("elected 1")
    second = start("lead", node.bootstrap, "b", resource, WAIT, SILENCE_MS)
    wait_for(lambda: waiting(node, resource) == ["b"], "b to wait")
    third = start("lead", node.bootstrap, "c", resource, WAIT, SILENCE_MS)
    wait_for(lambda: waiting(node, resource) == ["b", "c"], "c to wait behind b")
    assert [leads(each) for each in (first, second, third)] == [True, False, False]
    first.kill()
    second.expect("elected ")
    assert [leads(each) for each in (second, third)] == [True, False]
    second.stop()
    usurper = start("lead", node.bootstrap, "d", resource, FENCING, SILENCE_MS)
    usurper.expect("elected 2")
    wait_for(lambda: waiting(node, resource) == ["c"], "c, which was evicted, to wait again")
    second.go_on()
    second.expect("lost fenced")
    assert [leads(each) for each in (second, third, usurper)] == [False, False, True]
    wait_for(lambda: waiting(node, resource) == ["c", "b"], "the former leader to wait again")
    usurper.end()
    usurper.expect("lost refused")
    usurper.expect("closed")
    third.expect("elected 1")
    assert second.silent()


def test_a_stopped_leader_knows_that_it_may_have_lost_before_anything_else_happens(
    start: Start, node: NodeProcess, unique: Unique
) -> None:
    peer = start("lead", node.bootstrap, "a", unique("scheduler"), WAIT, "1000")
    peer.expect("elected 1")
    assert leads(peer)
    peer.stop()
    asked = threading.Event()
    threading.Timer(2, asked.set).start()  # twice the silence
    assert asked.wait(10)
    peer.ask("?")
    peer.go_on()
    lines = [peer.line() for _ in range(2)]
    assert sorted(lines) == ["leads false", "lost away"]
    peer.expect("elected ")
    peer.end()


def test_a_leader_whose_node_dies_has_lost_and_runs_again(
    start: Start, node_process: StartNode, unique: Unique
) -> None:
    node, resource = node_process(), unique("scheduler")
    peer = start("lead", node.bootstrap, "a", resource, WAIT, SILENCE_MS)
    peer.expect("elected 1")
    node.kill()
    peer.expect("lost away")
    assert not leads(peer)
    node.start()
    peer.expect("elected 1")
    assert leads(peer)


@pytest.mark.parametrize(("mode", "told"), [(EXCLUSIVE, "failed busy"), (FENCING, "elected 2")])
def test_a_campaign_may_refuse_to_wait(start: Start, node: NodeProcess, unique: Unique, mode: str, told: str) -> None:
    resource = unique("scheduler")
    start("lead", node.bootstrap, "a", resource, WAIT, SILENCE_MS).expect("elected 1")
    start("lead", node.bootstrap, "b", resource, mode, SILENCE_MS).expect(told)


def test_candidates_go_on_at_another_node_when_the_one_that_grants_is_killed(
    start: Start, node_process: StartNode, unique: Unique
) -> None:
    cluster, resource = unique("c"), unique("scheduler")
    nodes = [node_process(cluster=cluster, node_id=number) for number in (1, 2)]
    bootstrap = ",".join(each.bootstrap for each in nodes)
    peers = {name: start("lead", bootstrap, name, resource, WAIT, SILENCE_MS) for name in ("a", "b")}
    with OwnClient(nodes[1].bootstrap) as own:
        wait_for(lambda: own.owners(string(resource)).ownerships[0].owner_name, "an owner")
        found = own.owners(string(resource)).ownerships[0]
    first = peers.pop(found.owner_name)
    first.expect("elected 1")
    nodes[found.serving_node - 1].kill()
    first.expect("lost away")
    [second] = peers.values()
    wait_for(lambda: not first.silent() or not second.silent(), "one of them to lead")
    leader, other = (second, first) if first.silent() else (first, second)
    leader.expect("elected 1")
    assert leads(leader)
    assert not leads(other)
