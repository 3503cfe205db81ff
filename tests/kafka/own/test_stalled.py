"""A coordinator that lost its epoch unnoticed, frozen through its lease or fenced: what it is asked then, it does not
answer from memory.
"""

from __future__ import annotations

from sidecar.v1 import control_pb2 as control
from tests.conftest import StartNode, Unique
from tests.kafka.resources.reading import coordinating
from tests.own import OwnClient, new_token, string
from tests.services import Services
from tests.wait import wait_for


def test_a_coordinator_that_was_frozen_through_its_lease_does_not_tell_its_owner_that_it_owns(
    node_process: StartNode, unique: Unique
) -> None:
    cluster, leader, token = unique("own"), string(unique("leader")), new_token()
    nodes = {number: node_process(cluster=cluster, node_id=number, LEASE_MS="1000") for number in (1, 2)}
    with OwnClient(nodes[1].bootstrap) as asked:
        serving = asked.owner(leader).serving_node
    frozen, other = nodes[serving], nodes[3 - serving]
    with OwnClient(frozen.bootstrap) as own, OwnClient(other.bootstrap) as rival:
        wait_for(lambda: own.own(leader, token=token).error == control.NONE, "the first to own it")
        frozen.pause()
        try:
            wait_for(lambda: rival.own(leader).error == control.NONE, "the other node to grant it")
            own.begin_own(leader, token=token)
        finally:
            frozen.resume()
        try:
            told = own.finish(control.OwnResponse).error
        except ConnectionError:
            told = control.DEPOSED  # severed
        assert told != control.NONE
        assert rival.owner(leader).generation == 1


async def test_a_coordinator_that_was_fenced_by_one_that_died_grants_the_next_claim(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    """Between the fence and the record that tells whose it is: nothing but Kafka's refusal of an append tells of it."""
    node, leader, other = node_process(), string(unique("leader")), string(unique("other"))
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as rival:
        assert own.own(leader).error == control.NONE
        async with coordinating(node, services.kafka_bootstrap):
            pass
        told = rival.own(other)
        assert (told.error, [each.generation for each in told.ownerships]) == (control.NONE, [1])
        assert own.is_severed(), "what a connection owns ends with the epoch in which it was granted"
        assert rival.own(leader).error == control.NONE
