"""A Release that comes while its request is being promoted: what is granted then is given back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from sidecar.access.prospects import Prospect
from sidecar.access.rules import KEPT_S
from sidecar.changelog import Key
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.sets import ClaimSet, Stand
from sidecar.protocol.session import Caller
from sidecar.resources.requests import ClaimVerdict, Request, Wish, WishAnswer
from sidecar.v1 import control_pb2 as control
from tests.own import string
from tests.wait import wait_until

LEADER = Wish.of("", string("leader"))


class Coordinator:
    """Grants when it is told that a grant was written down."""

    coordinates = True

    def __init__(self) -> None:
        self.taking = asyncio.Event()
        self.written = asyncio.Event()
        self.left = self.is_placed = False
        self.prospect = Prospect.READY
        self.released: list[Key] = []

    def is_held(self, *_: object) -> bool:
        return False

    def look(self, _request: object) -> Any:
        return ClaimVerdict(self.prospect)

    def wait(self, *_: object) -> None:
        self.is_placed = True

    def is_waiting(self, _token: bytes) -> bool:
        return self.is_placed

    async def take(self, *_: object) -> Any:
        self.taking.set()
        await self.written.wait()
        return ClaimVerdict(Prospect.READY, (WishAnswer(generation=7),))

    async def release(self, _token: bytes, keys: list[Key]) -> None:
        self.released += keys

    def leave(self, _tokens: list[bytes]) -> None:
        self.left = True


class Ground:
    """One request that waits for a string."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        rooms: Any = SimpleNamespace(
            coordinator=self.coordinator,
            topics=SimpleNamespace(mode=None),
            owned=lambda _ticket: control.OwnResponse(ownerships=[control.Ownership(generation=7)]),  # pyright: ignore[reportUnknownLambdaType]
            standing=lambda _ticket, target: control.Ownership(generation=7),  # pyright: ignore[reportUnknownLambdaType]
        )
        self.tasks: list[asyncio.Task[None]] = []
        starts: Any = SimpleNamespace(start=lambda work: self.tasks.append(asyncio.create_task(work)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        asked: Any = SimpleNamespace(
            token=bytes(16), session="pid:1", wishes={LEADER.key: LEADER}, caller=Caller("", "")
        )
        client: Any = SimpleNamespace(connection_id=1, is_alive=lambda: True, rights=None)
        request = Request(bytes(16), "pid:1", "", control.EXCLUSIVE, (LEADER,))
        self.ownerships, self.claims = Ownerships(rooms, starts), ClaimSet(asked, {}, request)
        self.ownerships.sets.add(self.claims, client)
        self.ownerships.sets.waits(self.claims)

    async def promote(self) -> None:
        """What it waits for is free; it is being written down."""
        self.ownerships.token_changed(bytes(16), [])
        await self.coordinator.taking.wait()


async def test_what_is_being_granted_is_withdrawn_once_it_is_decided() -> None:
    ground = Ground()
    await ground.promote()
    withdrawing = asyncio.create_task(ground.ownerships.withdraw(ground.claims))
    await asyncio.sleep(0)
    assert not ground.coordinator.left
    ground.coordinator.written.set()
    await withdrawing
    assert (ground.claims.stand, ground.claims.owned) == (Stand.OWNING, {LEADER.key: 7})
    await ground.ownerships.let_go(ground.claims, list(ground.claims.owned))
    assert (ground.coordinator.released, ground.claims.stand) == ([LEADER.key], Stand.OVER)


async def test_what_nobody_asked_for_is_not_given_up_while_it_is_being_granted() -> None:
    ground = Ground()
    ground.ownerships.sets.left_alone(ground.claims, asyncio.get_running_loop().time())
    await ground.promote()
    lapsed = ground.claims.kept_until = ground.claims.kept_until - 2 * KEPT_S
    sweeping = asyncio.create_task(ground.ownerships.run())
    await wait_until(lambda: ground.claims.kept_until > lapsed, "its place to be kept on")
    ground.coordinator.written.set()
    for task in ground.tasks:
        await task
    sweeping.cancel()
    assert not ground.coordinator.left
    assert ground.ownerships.sets.get(bytes(16)) is ground.claims
    assert (ground.claims.stand, ground.claims.is_promoted) == (Stand.OWNING, True)


async def test_a_place_that_is_taken_while_nobody_calls_is_given_up() -> None:
    """The Own that asked for it ended while it was decided, and another connection of its session stands."""
    ground = Ground()
    ground.coordinator.prospect = Prospect.WAIT
    ground.ownerships.token_changed(bytes(16), [])
    await wait_until(lambda: ground.claims.kept_until > 0, "its place to be kept for a while")
    ends = ground.claims.kept_until
    ground.ownerships.token_changed(bytes(16), [])
    await asyncio.gather(*ground.tasks)
    assert ground.claims.kept_until == ends, "what happens to it is no call for it"
    ground.claims.kept_until -= 2 * KEPT_S
    sweeping = asyncio.create_task(ground.ownerships.run())
    await wait_until(lambda: ground.coordinator.left, "its place to be given up")
    sweeping.cancel()
    assert ground.ownerships.sets.get(bytes(16)) is None
