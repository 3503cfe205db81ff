"""A coordinator epoch that ends while a request is decided: who coordinates now decides, perhaps this node again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.access.prospects import Prospect
from sidecar.gateway.own.asked import WHOLE, Target
from sidecar.gateway.own.granting import Granting
from sidecar.gateway.own.tickets import Stand, Ticket, Tickets
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Caller
from sidecar.resources.requests import ClaimVerdict
from sidecar.security.acls import Operation, ResourceType
from sidecar.v1 import control_pb2 as control
from tests.unit.gateway.test_access import rights, rule

LEADER = Target("", "", WHOLE, "leader")
ENDED = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node coordinates claims no more")


class Coordinator:
    """Finds at its first append that it was fenced. `next_epoch`: what keeps this node from a new epoch."""

    def __init__(self, next_epoch: KafkaError | None = None) -> None:
        self.coordinates = True
        self.prospect = Prospect.READY
        self.epochs = 1
        self.placed: list[int] = []
        """The epochs in which it got a place."""
        self._next_epoch = next_epoch

    async def ready(self) -> None:
        if self._next_epoch is not None:
            raise self._next_epoch
        self.coordinates = True
        self.epochs += 1

    def look(self, _request: object) -> ClaimVerdict:
        assert self.coordinates
        return ClaimVerdict(self.prospect)

    async def take(self, *_: object) -> ClaimVerdict:
        if self.epochs == 1:
            self.coordinates = False
            raise ENDED
        return ClaimVerdict(Prospect.READY, (control.Ownership(generation=self.epochs),))

    def wait(self, *_: object) -> None:
        self.placed.append(self.epochs)

    def is_waiting(self, _token: bytes) -> bool:
        return self.placed[-1:] == [self.epochs]

    def leave(self, _tokens: object) -> None:
        self.placed.append(0)


def granting(coordinator: Coordinator) -> tuple[Granting, Ticket]:
    def owned(ticket: Ticket) -> control.OwnResponse:
        return control.OwnResponse(ownerships=[control.Ownership(generation=ticket.owned[LEADER])])

    def not_coordinating(_asked: object, error: KafkaError) -> control.OwnResponse:
        return control.OwnResponse(error=control.NOT_SERVING, message=error.message)

    tickets = Tickets()
    rooms: Any = SimpleNamespace(coordinator=coordinator, topics=SimpleNamespace(mode=None))
    rooms.owned, rooms.not_coordinating = owned, not_coordinating
    asked: Any = SimpleNamespace(
        token=bytes(16), session="pid:1", targets=(LEADER,), read=(LEADER,), caller=Caller("", "")
    )
    client: Any = SimpleNamespace(connection_id=1, is_alive=lambda: True, rights=None)
    request: Any = object()
    ticket = Ticket(asked, {}, request, {})
    tickets.add(ticket, client)
    return Granting(rooms, tickets), ticket


async def test_a_claim_that_finds_the_coordinator_fenced_is_granted_in_its_next_epoch() -> None:
    room, ticket = granting(Coordinator())
    answer = await room.attempt(ticket)
    assert answer is not None
    assert [each.generation for each in answer.ownerships] == [2]


async def test_a_claim_that_finds_another_node_coordinating_is_told_which() -> None:
    """The end of the epoch does not tell who coordinates: the next attempt to open one does."""
    room, ticket = granting(Coordinator(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "node 2 coordinates claims")))
    answer = await room.attempt(ticket)
    assert answer is not None
    assert (answer.error, answer.message) == (control.NOT_SERVING, "node 2 coordinates claims")


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_request_that_waits_goes_on_waiting_where_this_node_coordinates_again(comes_back: bool) -> None:
    coordinator = Coordinator(None if comes_back else ENDED)
    coordinator.prospect = Prospect.WAIT
    room, ticket = granting(coordinator)
    assert await room.attempt(ticket) is None
    coordinator.coordinates = False
    answer = await room.attempt(ticket)
    if comes_back:
        assert (answer, ticket.stand, coordinator.placed) == (None, Stand.WAITING, [1, 2])
    else:
        assert answer is not None
        assert (answer.error, coordinator.placed) == (control.NOT_SERVING, [1, 0])


async def test_a_request_that_waits_for_what_its_client_may_not_own_any_more_is_refused() -> None:
    coordinator = Coordinator()
    coordinator.prospect = Prospect.WAIT
    room, ticket = granting(coordinator)
    target, asked, client = Target("readers", "orders", WHOLE, ""), ticket.asked, ticket.client
    vars(asked).update(targets=(target,), generations=(None,))
    of_topic, of_group = rule(Operation.READ, "orders"), rule(Operation.READ, "readers", ResourceType.GROUP)
    client.rights = rights(of_topic, of_group)  # pyright: ignore[reportAttributeAccessIssue]
    assert await room.attempt(ticket) is None
    client.rights = rights(of_topic)  # pyright: ignore[reportAttributeAccessIssue]
    coordinator.prospect = Prospect.READY
    answer = await room.attempt(ticket)
    assert answer is not None
    assert (answer.error, coordinator.placed) == (control.NOT_AUTHORIZED, [1, 0])
