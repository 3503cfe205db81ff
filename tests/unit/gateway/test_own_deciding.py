"""What happens while a request is decided: a coordinator epoch ends, a Release comes, no call comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.access.prospects import Prospect
from sidecar.access.rules import KEPT_S
from sidecar.changelog import Key
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.sets import ClaimSet, Stand
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Caller
from sidecar.resources.requests import ClaimVerdict, Request, Wish, WishAnswer
from sidecar.security.acls import Operation, ResourceType
from sidecar.v1 import control_pb2 as control
from tests.own import string, topic
from tests.unit.gateway.test_access import rights, rule
from tests.wait import wait_until

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


class SlowCoordinator(Coordinator):
    """Grants when the test says that a grant was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.taking, self.written = asyncio.Event(), asyncio.Event()
        self.released: list[Key] = []

    def is_held(self, *_: object) -> bool:
        return False

    async def take(self, *_: object) -> ClaimVerdict:
        self.taking.set()
        await self.written.wait()
        return ClaimVerdict(Prospect.READY, (WishAnswer(generation=7),))

    async def release(self, _token: bytes, keys: list[Key]) -> None:
        self.released += keys

    @property
    def left(self) -> bool:
        return self.placed[-1:] == [0]


class Ground:
    """One request for a string."""

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
        self.client: Any = SimpleNamespace(connection_id=1, address="", is_alive=lambda: True, rights=None)
        self.claims = ClaimSet(asked, {}, Request(bytes(16), "pid:1", "", control.EXCLUSIVE, (wish,)))
        self.tasks: list[asyncio.Task[None]] = []
        starts: Any = SimpleNamespace(start=lambda work: self.tasks.append(asyncio.create_task(work)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        self.ownerships = Ownerships(rooms, {}, starts)
        self.ownerships.sets.add(self.claims, self.client)
        self.claims.own_calls = 1

    async def decide(self) -> control.OwnResponse | None:
        """What it is answered, unless it is granted or waits."""
        self.ownerships._token_changed(bytes(16), [])
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


# A Release, or no call at all, while it is being promoted ---------------------------------------------------------


def waiting() -> tuple[SlowCoordinator, Ground]:
    """A request that waits without a call; what it waits for is free."""
    coordinator = SlowCoordinator()
    ground = Ground(coordinator)
    ground.claims.own_calls = 0
    ground.ownerships.sets.waits(ground.claims)
    return coordinator, ground


async def test_what_is_being_granted_is_withdrawn_once_it_is_decided() -> None:
    coordinator, ground = waiting()
    ground.ownerships._token_changed(bytes(16), [])
    await coordinator.taking.wait()
    withdrawing = asyncio.create_task(ground.ownerships.withdraw(ground.claims))
    await asyncio.sleep(0)
    assert not coordinator.left
    coordinator.written.set()
    await withdrawing
    assert (ground.claims.stand, ground.claims.owned) == (Stand.OWNING, {LEADER.key: 7})
    await ground.ownerships.let_go(ground.claims, list(ground.claims.owned))
    assert (coordinator.released, ground.claims.stand) == ([LEADER.key], Stand.OVER)


async def test_what_nobody_asked_for_is_not_given_up_while_it_is_being_granted() -> None:
    coordinator, ground = waiting()
    ground.ownerships.sets.left_alone(ground.claims, asyncio.get_running_loop().time())
    ground.ownerships._token_changed(bytes(16), [])
    await coordinator.taking.wait()
    lapsed = ground.claims.kept_until = ground.claims.kept_until - 2 * KEPT_S
    sweeping = asyncio.create_task(ground.ownerships.run())
    await wait_until(lambda: ground.claims.kept_until > lapsed, "its place to be kept on")
    coordinator.written.set()
    for task in ground.tasks:
        await task
    sweeping.cancel()
    assert not coordinator.left
    assert ground.ownerships.sets.get(bytes(16)) is ground.claims
    assert (ground.claims.stand, ground.claims.is_promoted) == (Stand.OWNING, True)


async def test_a_place_that_is_taken_while_nobody_calls_is_given_up() -> None:
    """The Own that asked for it ended while it was decided, and another connection of its session stands."""
    coordinator, ground = waiting()
    coordinator.prospect = Prospect.WAIT
    ground.ownerships._token_changed(bytes(16), [])
    await wait_until(lambda: ground.claims.kept_until > 0, "its place to be kept for a while")
    ends = ground.claims.kept_until
    ground.ownerships._token_changed(bytes(16), [])
    await asyncio.gather(*ground.tasks)
    assert ground.claims.kept_until == ends, "what happens to it is no call for it"
    ground.claims.kept_until -= 2 * KEPT_S
    sweeping = asyncio.create_task(ground.ownerships.run())
    await wait_until(lambda: coordinator.left, "its place to be given up")
    sweeping.cancel()
    assert ground.ownerships.sets.get(bytes(16)) is None
