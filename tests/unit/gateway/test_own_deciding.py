"""A coordinator epoch that ends while a request is decided: who coordinates now decides, perhaps this node again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.access.prospects import Prospect
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.sets import ClaimSet, Stand
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Caller
from sidecar.resources.requests import ClaimVerdict, Request, Wish, WishAnswer
from sidecar.security.acls import Operation, ResourceType
from sidecar.v1 import control_pb2 as control
from tests.own import string, topic
from tests.unit.gateway.test_access import rights, rule

LEADER = Wish.of("", string("leader"))
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

    def is_held(self, *_: object) -> bool:
        return True

    def look(self, _request: object) -> ClaimVerdict:
        assert self.coordinates
        return ClaimVerdict(self.prospect)

    async def take(self, *_: object) -> ClaimVerdict:
        if self.epochs == 1:
            self.coordinates = False
            raise ENDED
        return ClaimVerdict(Prospect.READY, (WishAnswer(generation=self.epochs),))

    def wait(self, *_: object) -> None:
        self.placed.append(self.epochs)

    def is_waiting(self, _token: bytes) -> bool:
        return self.placed[-1:] == [self.epochs]

    def leave(self, _tokens: object) -> None:
        self.placed.append(0)


class Ground:
    """One request that waits for a string."""

    def __init__(self, coordinator: Coordinator, wish: Wish = LEADER) -> None:
        def owned(claims: ClaimSet) -> control.OwnResponse:
            return control.OwnResponse(ownerships=[control.Ownership(generation=claims.owned[wish.key])])

        def not_coordinating(_asked: object, error: KafkaError) -> control.OwnResponse:
            answer = control.Ownership(error=control.NOT_SERVING, message=error.message)
            return control.OwnResponse(error=answer.error, message=error.message, ownerships=[answer])

        rooms: Any = SimpleNamespace(coordinator=coordinator, topics=SimpleNamespace(mode=None))
        rooms.owned, rooms.not_coordinating = owned, not_coordinating
        rooms.standing = lambda claims, key: control.Ownership(generation=claims.owned[key])  # pyright: ignore[reportUnknownLambdaType]
        asked: Any = SimpleNamespace(token=bytes(16), session="pid:1", wishes={wish.key: wish}, caller=Caller("", ""))
        self.client: Any = SimpleNamespace(connection_id=1, is_alive=lambda: True, rights=None)
        self.claims = ClaimSet(asked, {}, Request(bytes(16), "pid:1", "", control.EXCLUSIVE, (wish,)))
        self.tasks: list[asyncio.Task[None]] = []
        starts: Any = SimpleNamespace(start=lambda work: self.tasks.append(asyncio.create_task(work)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        self.ownerships = Ownerships(rooms, starts)
        self.ownerships.sets.add(self.claims, self.client)
        self.claims.own_calls = 1

    async def decide(self) -> control.OwnResponse | None:
        """What it is answered, unless it is granted or waits."""
        self.ownerships.token_changed(bytes(16), [])
        await self.tasks[-1]
        return self.claims.answer


async def test_a_claim_that_finds_the_coordinator_fenced_is_granted_in_its_next_epoch() -> None:
    ground = Ground(Coordinator())
    assert await ground.decide() is None
    assert ground.claims.owned == {LEADER.key: 2}


async def test_a_claim_that_finds_another_node_coordinating_is_told_which() -> None:
    """The end of the epoch does not tell who coordinates: the next attempt to open one does."""
    ground = Ground(Coordinator(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "node 2 coordinates claims")))
    answer = await ground.decide()
    assert answer is not None
    assert (answer.error, answer.message) == (control.NOT_SERVING, "node 2 coordinates claims")


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_request_that_waits_goes_on_waiting_where_this_node_coordinates_again(comes_back: bool) -> None:
    coordinator = Coordinator(None if comes_back else ENDED)
    coordinator.prospect = Prospect.WAIT
    ground = Ground(coordinator)
    assert await ground.decide() is None
    coordinator.coordinates = False
    answer = await ground.decide()
    if comes_back:
        assert (answer, ground.claims.stand, coordinator.placed) == (None, Stand.WAITING, [1, 2])
    else:
        assert answer is not None
        assert (answer.error, coordinator.placed) == (control.NOT_SERVING, [1, 0])


@pytest.mark.parametrize("calls", [0, 1])
async def test_a_request_that_waits_for_what_its_client_may_not_own_any_more_is_refused(calls: int) -> None:
    coordinator = Coordinator()
    coordinator.prospect = Prospect.WAIT
    ground = Ground(coordinator, Wish.of("readers", topic("orders")))
    client = ground.client
    of_topic, of_group = rule(Operation.READ, "orders"), rule(Operation.READ, "readers", ResourceType.GROUP)
    client.rights = rights(of_topic, of_group)
    assert await ground.decide() is None
    client.rights = rights(of_topic)
    coordinator.prospect, ground.claims.own_calls = Prospect.READY, calls
    answer = await ground.decide()
    assert answer is not None
    assert (answer.error, coordinator.placed) == (control.NOT_AUTHORIZED, [1, 0])
