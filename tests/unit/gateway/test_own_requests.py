"""Own, Release and Watch from the first call to the loss of the claims, over the real coordinator and real partitions
with owners. On paper are their log, Kafka and Redis; time is virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID

import pytest

from sidecar.access.prospects import Look, Prospect
from sidecar.changelog import Record
from sidecar.cluster.resolver import NameResolver, Source
from sidecar.exclusive.owning import TopicClaim, TopicOwners
from sidecar.gateway.own import owning
from sidecar.gateway.own.answers import GrantingRooms
from sidecar.gateway.own.apis import OwnApis
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.tasks import Tasks
from sidecar.policy.policies import Scope
from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset
from sidecar.protocol.primitives import I32
from sidecar.protocol.session import Caller, Session
from sidecar.resources.claims import News, Sever
from sidecar.resources.requests import ClaimVerdict
from sidecar.resources.sessions import SESSIONS_LIMIT
from sidecar.v1 import control_pb2 as control
from tests.sim.host import Host
from tests.sim.loop import SimLoop
from tests.unit.exclusive import paper_cluster
from tests.unit.exclusive.paper_cluster import TOPIC
from tests.unit.gateway.test_own_apis import Connection
from tests.unit.resources.test_coordinator import STAMP
from tests.unit.resources.test_coordinator import Node as CoordinatorNode
from tests.wait import wait_until

if TYPE_CHECKING:
    from google.protobuf.message import Message

WAITING, FENCING = control.WAIT_FOR_EXCLUSIVE, control.EXCLUSIVE_WITH_FENCING
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
KEPT_S: Final = 5.0
GRACE_S: Final = 20.0


def resource(name: str | int) -> control.Resource:
    """A partition of the topic, or a free string."""
    return control.Resource(topic=TOPIC, partition=name) if isinstance(name, int) else control.Resource(name=name)


class Client:
    """A connection. `session`: its producer id, or None for the connection itself."""

    _number = 0

    def __init__(self, node: Node, producer_id: int = -1, principal: str = "User:app", name: str = "app") -> None:
        Client._number += 1
        self.node, self.connection_id, self.producer_id = node, Client._number, producer_id
        self.session = Session.by_connection(1, "boot", self.connection_id)
        self.address, self.principal, self.rights, self.identity = "host", principal, None, None
        self.caller = Caller(principal, name)
        self.bound_sessions: set[str] = set()
        self.is_open, self.parks = True, 0
        self.connection: Any = SimpleNamespace(park=self._park)
        node.clients[self.connection_id] = self

    def _park(self) -> None:
        self.parks += 1

    def is_alive(self) -> bool:
        return self.is_open

    def sever(self) -> None:
        if self.is_open:
            self.close()

    def close(self) -> None:
        """As the gateway's callbacks do."""
        self.is_open = False
        self.node.topics.env.bindings.connection_closed(self.connection_id)
        for part in self.node.topics.topic.parts:
            part.connection_closed(self.connection_id)
        self.node.coordinator.connection_closed(self.connection_id)
        self.node.apis.ownerships.connection_closed(self)  # pyright: ignore[reportArgumentType]

    async def _ask(self, key: int, body: Message) -> bytes:
        connection: Any = Connection()
        connection.error_answered = lambda *_: None
        frame = bytearray(body.SerializeToString())
        request = Request(key, 0, 7, b"tests", Frame(frame, 0, len(frame), True), 0)
        await self.node.apis.handlers()[key](self, Exchange(connection, request), request)  # pyright: ignore[reportArgumentType]
        return connection.answer[2 * I32.size :]

    async def own(
        self, token: bytes, *names: str | int, mode: control.AccessMode = control.EXCLUSIVE, wait_s: float = 0.0,
        group: str = "", **claim: Any,
    ) -> control.OwnResponse:  # fmt: skip
        claims = [control.Claim(resource=resource(name), **claim) for name in names]
        request = control.OwnRequest(
            group=group, claims=claims, mode=mode, token=token, wait_ms=int(wait_s * 1000),
            producer_id=self.producer_id, producer_name="me",
        )  # fmt: skip
        return control.OwnResponse.FromString(await self._ask(ApiKey.OWN, request))

    def owns_later(self, token: bytes, *names: str | int, **how: Any) -> asyncio.Task[control.OwnResponse]:
        return asyncio.create_task(self.own(token, *names, **{"mode": WAITING, "wait_s": 60.0, **how}))

    async def release(self, token: bytes, *names: str | int, group: str = "") -> control.ReleaseResponse:
        request = control.ReleaseRequest(token=token, resources=[resource(name) for name in names], group=group)
        return control.ReleaseResponse.FromString(await self._ask(ApiKey.RELEASE, request))

    async def watch(self, token: bytes, wait_s: float = 0.0) -> control.WatchResponse:
        request = control.WatchRequest(token=token, wait_ms=int(wait_s * 1000))
        return control.WatchResponse.FromString(await self._ask(ApiKey.WATCH, request))


class Claims(CoordinatorNode):
    """The coordinator's side, whose clock goes with the loop's."""

    _ahead = 0.0

    @property
    def now(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return asyncio.get_running_loop().time() + self._ahead

    @now.setter
    def now(self, value: float) -> None:
        self._ahead = value - asyncio.get_running_loop().time()


class Node:
    """A node that serves the topic, whose partitions have owners of their own, and coordinates claims."""

    def __init__(self, topics: paper_cluster.Node, claims: Claims) -> None:
        self.topics, self.claims, self.coordinator = topics, claims, claims.room
        self.failures: list[BaseException] = []
        self.tasks = Tasks(self.failures.append)
        env = topics.env
        self.governed: Any = SimpleNamespace(
            env=env, topic=lambda _: topics.topic, topics=SimpleNamespace(connected=lambda *_: None),
            producers=SimpleNamespace(followed_by=lambda _: None, knows_first_id=True),
        )  # fmt: skip
        self.kafka_is_away = False
        self.while_asked: Callable[[], None] = lambda: None
        self._append, claims.append = claims.append, self._logged  # type: ignore[method-assign]
        upstream: Any = SimpleNamespace(metadata=self._metadata)
        self.resolver = NameResolver()
        nothing: Any = SimpleNamespace()
        self.clients: dict[int, Any] = {}
        rooms = GrantingRooms(
            upstream, topics.nodes, self.resolver, self.governed, self.coordinator, TopicOwners(self.governed)
        )  # fmt: skip
        self.apis = OwnApis(rooms, nothing, self.clients, self.tasks)

    async def _metadata(self, request: Any) -> Any:
        self.while_asked()
        if self.kafka_is_away:
            raise DisconnectedError("broker 1 at 10.1.1.1 is away", sent=True)
        partitions = [SimpleNamespace(partition=number) for number in range(3)]
        there = (TOPIC, "__internal", "mirror")
        return SimpleNamespace(
            topics=[SimpleNamespace(name=name, partitions=partitions) for name in request.topics if name in there]
        )

    async def _logged(self, records: Sequence[Record]) -> int:
        """The log of claims as this node reads it, also if it does not coordinate any more."""
        end = await self._append(records)
        for offset, record in enumerate(records, end):
            self.claims.view.apply(Offset(offset), 0, STAMP, record.encode())
        return end

    async def pass_time(self) -> None:
        """As the coordinator's own task."""
        while True:
            await asyncio.sleep(0.5)
            self.coordinator.pass_time()  # pyright: ignore[reportPrivateUsage]

    def owner(self, name: str | int) -> str | None:
        """The session that owns it."""
        if isinstance(name, int):
            part = next((part for part in self.topics.topic.parts if part.scope.partition == name), None)
            return None if part is None or part.state.holder is None else str(part.state.holder.session)
        return self.claims.owners().get(name)


@asynccontextmanager
async def started(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    async with paper_cluster.cluster(3) as paper:
        node = Node(paper.node(scope=Scope.PARTITION, disconnect_grace=GRACE_S), Claims(monkeypatch))
        tasks = [
            asyncio.create_task(each)
            for each in (node.apis.ownerships.run(), node.apis.ownerships.hear(), node.pass_time())
        ]
        yield node
        for task in tasks:
            task.cancel()
        assert node.failures == []


Story = Callable[[Node], Coroutine[Any, Any, None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    """Play a story on a node, in virtual time."""

    async def played(story: Story) -> None:
        async with started(monkeypatch) as node:
            await story(node)

    def in_virtual_time(story: Story) -> None:
        loop, host = SimLoop(), Host("node")
        monkeypatch.setattr(asyncio, "timeout", lambda _: paper_timeout())
        try:
            loop.finish(played(story), host, 10_000)
        finally:
            for task in host.tasks:
                task.cancel()
            loop.run(loop.now + 1)
        assert not loop.crashes, loop.crashes

    return in_virtual_time


@asynccontextmanager
async def paper_timeout() -> AsyncIterator[None]:
    """Stories may last virtual hours."""
    yield


def errors(answer: control.OwnResponse) -> list[int]:
    return [each.error for each in answer.ownerships]


async def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# Sets ---------------------------------------------------------------------------------------------------------------


def test_a_set_is_granted_as_a_whole(play: Any) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        answer = await client.own(A, "leader", 0, 2)
        assert (answer.error, errors(answer), answer.producer_name) == (control.NONE, [0, 0, 0], "me")
        assert [(each.generation, each.owner_session, each.serving_node) for each in answer.ownerships] == [
            (1, "pid:7", 1)
        ] * 3
        assert [node.owner(name) for name in ("leader", 0, 1, 2)] == ["pid:7", "pid:7", None, "pid:7"]
        assert client.bound_sessions == {"pid:7"}
        plain = Client(node)
        assert (await plain.own(b"", "a")).error == (await plain.own(b"", "b", 1)).error == control.NONE
        assert [node.owner(name) for name in ("a", "b", 1)] == [plain.session] * 3, (
            "each without a token is another one"
        )
        assert not plain.bound_sessions

    play(story)


@pytest.mark.parametrize("held", ["leader", 0])
def test_nothing_of_a_set_is_taken_if_a_part_is_held(play: Any, held: str | int) -> None:
    async def story(node: Node) -> None:
        owner, other = Client(node, 7), Client(node, 8)
        assert (await owner.own(A, held)).error == control.NONE
        answer = await other.own(B, "leader", 0, 1)
        assert answer.error == control.HELD
        assert [each.error != 0 for each in answer.ownerships] == [held == "leader", held == 0, False]
        assert [node.owner(name) for name in ("leader", 0, 1)] == [
            "pid:7" if held == "leader" else None, "pid:7" if held == 0 else None, None
        ]  # fmt: skip
        assert (await owner.release(A)).error == control.NONE
        assert (await other.own(B, "leader", 0, 1)).error == control.NONE, "the token of a refused request is free"

    play(story)


@pytest.mark.parametrize("fails", ["log", "topic"])
def test_what_a_set_has_taken_is_released_if_the_rest_fails(play: Any, fails: str) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        assert (await client.own(C, 1)).error == control.NONE
        if fails == "log":
            node.claims.log_fails = True
        else:
            node.topics.redis.is_away = True
        began = asyncio.get_running_loop().time()
        answer = await client.own(A, "leader", 0, 1)
        assert (answer.error, asyncio.get_running_loop().time() - began < 1) == (control.UNAVAILABLE, True)
        assert [node.owner(name) for name in ("leader", 0, 1)] == [None, None, "pid:7"], "it owned 1 before"

    play(story)


def test_a_set_of_which_a_part_is_lost_while_the_rest_is_taken_is_not_granted(play: Any) -> None:
    async def story(node: Node) -> None:
        client, rival = Client(node, 7), Client(node, 8)
        resumes = asyncio.Event()

        async def held_up(request: Any) -> None:
            if getattr(request, "transactional_id", "").endswith("/p1"):
                await resumes.wait()

        node.topics.kafka.before = held_up
        asking = asyncio.create_task(client.own(A, 0, 1, "leader"))
        await wait_for(lambda: node.owner(0) == "pid:7")
        node.topics.kafka.before = None
        assert (await rival.own(B, 0, mode=FENCING)).error == control.NONE
        resumes.set()
        assert errors(await asking) == [control.DEPOSED, control.NONE, control.NONE]
        assert [node.owner(name) for name in (0, 1, "leader")] == ["pid:8", None, None]

    play(story)


def test_a_generation_that_is_asked_for_deposes_the_one_before(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, second, third = (Client(node, number) for number in (7, 8, 9))
        await owner.own(A, 0)
        assert (await second.own(B, 0)).error == control.HELD
        (granted,) = (await second.own(B, 0, generation=1)).ownerships
        assert (granted.error, granted.generation, granted.owner_session) == (control.NONE, 2, "pid:8")
        assert (await third.own(C, 0, generation=1)).error == control.LOWER_GENERATION

    play(story)


# Faults of a request ------------------------------------------------------------------------------------------------


def test_what_cannot_be_owned_is_refused_with_its_reason(play: Any) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        node.resolver.set_shadows({b"mirror": Source(TOPIC.encode(), UUID(int=1), frozenset({"User:app"}))})

        async def refused(topic: str, partition: int | None = None) -> tuple[int, str, int]:
            made = control.Resource(topic=topic, partition=partition)
            claims = [control.Claim(resource=made), control.Claim(resource=control.Resource(name="leader"))]
            request = control.OwnRequest(claims=claims, producer_id=7, token=A)
            answer = control.OwnResponse.FromString(await client._ask(ApiKey.OWN, request))
            assert answer.ownerships[1].error == control.NONE or topic == "orders"
            return answer.error, answer.message, len(node.apis.ownerships.sets)

        missing, none = await refused("gone"), await refused(TOPIC, 9)
        internal, shadow, scope = [await refused(topic) for topic in ("__internal", "mirror", TOPIC)]
        assert missing[0] == none[0] == control.UNKNOWN_RESOURCE
        assert "partition 9 of orders does not exist" in none[1]
        assert (internal[0], "nobody can own it" in internal[1]) == (control.NOT_AUTHORIZED, True)
        assert (shadow[0], "nobody writes to it" in shadow[1]) == (control.NOT_AUTHORIZED, True)
        assert (scope[0], "claim partitions" in scope[1]) == (control.INVALID_REQUEST, True)
        node.kafka_is_away = True
        away = await refused(TOPIC, 0)
        assert (away[0], "10.1.1.1" in away[1]) == (control.UNAVAILABLE, False)
        node.governed.env.draining = True
        assert (await refused(TOPIC, 0))[0] == control.NOT_SERVING
        assert len(node.apis.ownerships.sets) == 0
        assert node.owner("leader") is None

    play(story)


def test_a_shadow_is_claimed_for_reading(play: Any) -> None:
    async def story(node: Node) -> None:
        node.resolver.set_shadows({b"mirror": Source(TOPIC.encode(), UUID(int=1), frozenset({"User:app"}))})
        claim = control.Claim(resource=control.Resource(topic="mirror"))
        request = control.OwnRequest(claims=[claim], producer_id=7, group="readers", token=A)
        answer = control.OwnResponse.FromString(await Client(node, 7)._ask(ApiKey.OWN, request))
        assert (answer.error, answer.ownerships[0].owner_session) == (control.NONE, "pid:7")

    play(story)


def test_requests_that_own_or_wait_are_bounded(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owning, "TICKETS", 3)
    monkeypatch.setattr(owning, "TICKETS_OF_ONE", 2)

    async def story(node: Node) -> None:
        app, other = Client(node, 7), Client(node, 8, "User:other")
        nobody = Client(node, 9, "User:ANONYMOUS")
        assert (await app.own(A, "a")).error == (await app.own(B, "b")).error == control.NONE
        answer = await app.own(C, "c")
        assert (answer.error, "of this principal" in answer.message) == (control.QUEUE_FULL, True)
        assert (await nobody.own(C, "c")).error == control.NONE
        full = await other.own(b"d" * 16, "d")
        assert (full.error, "on this node already" in full.message) == (control.UNAVAILABLE, True)
        await app.release(A)
        assert (await other.own(b"d" * 16, "d")).error == control.NONE

    play(story)


# Waiting ------------------------------------------------------------------------------------------------------------


def test_a_set_that_waits_has_a_place_in_every_queue_and_is_granted_in_order(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first, second = (Client(node, number) for number in (7, 8, 9))
        assert (await owner.own(A, "leader")).error == control.NONE
        early = first.owns_later(B, "leader", 0)
        await turns()
        late = second.owns_later(C, 0)
        await turns()
        assert (early.done(), late.done(), first.parks > 0) == (False, False, True)
        assert node.owner(0) is None, "a set is granted as a whole"
        released = asyncio.get_running_loop().time()
        assert (await owner.release(A)).error == control.NONE
        assert (await early).error == control.NONE
        assert asyncio.get_running_loop().time() - released < 0.1, "the next one is woken, not found by a sweep"
        assert not late.done(), "it may not overtake on what an earlier one waits for"
        assert (await first.release(B, 0)).error == control.NONE
        assert (await late).error == control.NONE
        assert (node.owner("leader"), node.owner(0)) == ("pid:8", "pid:9")

    play(story)


def test_a_wait_that_ends_keeps_the_place_until_the_client_asks_again(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first, second = (Client(node, number) for number in (7, 8, 9))
        await owner.own(A, "leader", 0)
        began = asyncio.get_running_loop().time()
        answer = await first.own(B, "leader", 0, mode=WAITING, wait_s=2.0)
        assert 2 <= asyncio.get_running_loop().time() - began < 2.1
        assert not node.apis.ownerships._parked  # pyright: ignore[reportPrivateUsage]
        assert (answer.error, errors(answer)) == (control.TIMED_OUT, [control.TIMED_OUT] * 2)
        assert [each.owner_session for each in answer.ownerships] == ["pid:7"] * 2
        late = second.owns_later(C, "leader", 0)
        await asyncio.sleep(KEPT_S - 1)
        again = first.owns_later(B, "leader", 0)
        await asyncio.sleep(3 * KEPT_S)
        await owner.release(A)
        assert (await again).error == control.NONE
        assert not late.done()

    play(story)


def test_a_place_that_nobody_asks_for_is_given_up(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first, second = (Client(node, number) for number in (7, 8, 9))
        await owner.own(A, "leader", 0)
        await first.own(B, "leader", 0, mode=WAITING)
        late = second.owns_later(C, "leader", 0)
        await asyncio.sleep(KEPT_S + 2)
        await owner.release(A)
        assert (await late).error == control.NONE
        unknown = await first.watch(B)
        assert (unknown.error, "send the Own request with it again" in unknown.message) == (
            control.UNKNOWN_RESOURCE, True,
        )  # fmt: skip

    play(story)


def test_a_promotion_without_a_call_is_kept_for_the_next_one_and_then_given_up(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first = Client(node, 7), Client(node, 8)
        for hears, held, token in ((True, A, B), (False, C, b"d" * 16)):
            await owner.own(held, "leader", 0)
            await first.own(token, "leader", 0, mode=WAITING)
            await owner.release(held)
            await asyncio.sleep(KEPT_S - 1)
            assert (node.owner("leader"), node.owner(0)) == ("pid:8", "pid:8")
            if hears:
                changed = (await first.watch(token)).changed
                assert [(each.error, each.generation) for each in changed] == [(control.NONE, 1), (control.NONE, 2)]
            await asyncio.sleep(2 * KEPT_S)
            assert (node.owner("leader"), node.owner(0)) == (("pid:8", "pid:8") if hears else (None, None))
            if hears:
                assert (await first.own(token, "leader", 0, mode=WAITING)).error == control.NONE
                assert (await first.release(token)).error == control.NONE
            else:
                assert (await first.watch(token)).error == control.UNKNOWN_RESOURCE

    play(story)


def test_a_promotion_that_cannot_be_given_up_is_given_up_later(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first = Client(node, 7), Client(node, 8)
        await owner.own(A, "leader", 0)
        await first.own(B, "leader", 0, mode=WAITING)
        await owner.release(A)
        await wait_for(lambda: node.owner("leader") == "pid:8")
        node.claims.log_fails = True
        await asyncio.sleep(2 * KEPT_S)
        assert node.owner("leader") == "pid:8"
        node.claims.log_fails = False
        await asyncio.sleep(2 * KEPT_S)
        assert (node.owner("leader"), node.owner(0)) == (None, None)

    play(story)


def test_a_session_has_one_place_and_keeps_it_for_its_other_request(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first, second = (Client(node, number) for number in (7, 8, 9))
        await owner.own(A, 0)
        early, other = first.owns_later(B, 0), second.owns_later(C, 0)
        await turns()
        again = first.owns_later(b"d" * 16, 0)
        await turns()
        assert (await first.release(B)).error == control.NONE
        await owner.release(A)
        assert (await early).error == control.DEPOSED
        done, _ = await asyncio.wait([again, other], return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().error for task in done] == [control.NONE]
        assert (
            await (first if again in done else second).release(b"d" * 16 if again in done else C)
        ).error == control.NONE
        assert [task.result().error for task in (await asyncio.wait([again, other]))[0]] == [control.NONE] * 2

    play(story)


def test_a_watch_keeps_a_place_and_reports_the_promotion(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first = Client(node, 7), Client(node, 8)
        await owner.own(A, "leader", 0)
        await first.own(B, "leader", 0, mode=WAITING)
        watching = asyncio.create_task(first.watch(B, 60.0))
        await asyncio.sleep(2 * KEPT_S)
        await owner.release(A, "leader")
        await asyncio.sleep(1)
        assert not watching.done()
        await owner.release(A)
        assert [each.error for each in (await watching).changed] == [control.NONE] * 2
        assert (await first.watch(B)).changed == [], "it is reported once"
        asked = asyncio.get_running_loop().time()
        assert (await first.watch(B, 30.0)).changed == []
        assert 29 < asyncio.get_running_loop().time() - asked < 31

    play(story)


def test_what_the_coordinator_reports_of_thousands_of_requests_is_carried_out_in_slices(play: Any) -> None:
    async def story(node: Node) -> None:
        events, clients = node.coordinator.events, [Client(node) for _ in range(1_000)]
        for client in clients:
            events.put_nowait(News(A, ()))
            events.put_nowait(Sever(client.connection_id))
        left = [events.qsize()]
        while left[-1]:
            await asyncio.sleep(0)
            left.append(events.qsize())
        assert max(before - after for before, after in pairwise(left)) <= 100
        assert not any(client.is_open for client in clients)

    play(story)


@pytest.mark.parametrize("is_read_again", [False, True])
@pytest.mark.parametrize("name", ["leader", "another"])
def test_no_other_principal_claims_for_a_session_that_may_come_back(
    play: Any, name: str, *, is_read_again: bool
) -> None:
    async def story(node: Node) -> None:
        client, stranger = Client(node, 7), Client(node, 7, principal="User:mallory")
        assert (await client.own(A, "leader")).error == control.NONE
        client.close()
        if is_read_again:
            node.claims.claims = dict(node.coordinator.claims.table.owners)
            node.coordinator.heard({"__claims"})
        answer = await stranger.own(B, name, mode=FENCING)
        assert (answer.error, "belongs to another" in answer.message) == (control.NOT_AUTHORIZED, True)
        assert stranger.bound_sessions == set()
        again = await Client(node, 7).own(A, "leader")
        assert (again.error, again.ownerships[0].generation) == (control.NONE, 1)
        node.topics.env.bindings.given(7, stranger.caller)
        assert (await stranger.own(B, "another")).error == control.NONE, "Kafka gave it the producer id"

    play(story)


def test_a_connection_that_may_not_speak_for_a_session_keeps_nothing_of_it(play: Any) -> None:
    async def story(node: Node) -> None:
        client, full = Client(node, 7), Client(node, 7)
        assert (await client.own(A, "leader", 0)).error == control.NONE
        for number in range(SESSIONS_LIMIT):
            node.coordinator.bind(full.connection_id, f"pid:{100 + number}")
        assert (await full.own(A, "leader", 0)).error == control.INVALID_REQUEST
        client.close()
        await asyncio.sleep(GRACE_S + 1)
        assert (node.owner("leader"), node.owner(0)) == (None, None)

    play(story)


def test_a_request_that_waits_is_withdrawn_by_a_release(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, first, second = (Client(node, number) for number in (7, 8, 9))
        await owner.own(A, "leader")
        early, late = first.owns_later(B, "leader", 0), second.owns_later(C, 0)
        await turns()
        assert (await first.release(B)).error == control.NONE
        answer = await early
        assert (answer.error, "given up by Release" in answer.message) == (control.DEPOSED, True)
        assert (await late).error == control.NONE
        await owner.release(A)
        assert node.owner("leader") is None

    play(story)


@pytest.mark.parametrize("how", ["busy", "busy in the queue"])
def test_an_owner_that_keeps_changing_is_answered_after_ten_seconds(play: Any, how: str) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        node.coordinator.look = lambda _: ClaimVerdict(Prospect.BUSY)  # type: ignore[method-assign]
        if how == "busy in the queue":
            owner = Client(node, 8)
            await owner.own(B, 0)
            answer = await client.own(A, "leader", 0, mode=WAITING, wait_s=30.0)
            assert answer.error == control.TIMED_OUT, "a request with places goes on waiting"
            return
        asked = asyncio.get_running_loop().time()
        answer = await client.own(A, "leader", 0)
        assert (answer.error, "its owner is changing" in answer.message) == (control.UNAVAILABLE, True)
        assert 10 <= asyncio.get_running_loop().time() - asked < 11
        assert node.owner(0) is None

    play(story)


# Losses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["leader", 0])
def test_an_owner_that_is_deposed_hears_of_it_and_keeps_the_rest(play: Any, lost: str | int) -> None:
    async def story(node: Node) -> None:
        owner, rival = Client(node, 7), Client(node, 8)
        await owner.own(A, "leader", 0)
        watching = asyncio.create_task(owner.watch(A, 60.0))
        await turns()
        assert (await rival.own(B, lost, mode=FENCING)).error == control.NONE
        changed = (await watching).changed
        assert owner.is_open is (lost != "leader"), "the connection of a deposed owner of a string is closed"
        owner = Client(node, 7)
        assert [(each.error, each.resource) for each in changed] == [(control.DEPOSED, resource(lost))]
        answer = await owner.own(A, "leader", 0)
        assert errors(answer) == [control.DEPOSED * (lost == name) for name in ("leader", 0)]
        assert answer.error == control.DEPOSED, "the same token never claims again"
        told = await owner.release(A)
        assert told.error == control.DEPOSED
        over = await owner.watch(A)
        assert (over.error, "claim with a new token" in over.message) == (control.DEPOSED, True)
        assert errors(await owner.own(A, "leader", 0)) == [control.DEPOSED] * 2

    play(story)


def test_a_session_that_claims_again_under_another_token_loses_the_first(play: Any) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        await client.own(A, "leader", 0, 1)
        assert (await client.own(B, "leader", 0)).error == control.NONE
        changed = (await client.watch(A)).changed
        assert {(str(each.resource.name or each.resource.partition), each.error) for each in changed} == {
            ("leader", control.DEPOSED), ("0", control.DEPOSED),
        }  # fmt: skip
        assert all("under another token" in each.message for each in changed)
        assert errors(await client.own(A, "leader", 0, 1)) == [control.DEPOSED, control.DEPOSED, control.NONE]
        assert (node.owner("leader"), node.owner(0)) == ("pid:7", "pid:7")

    play(story)


@pytest.mark.parametrize("answers", [True, False])
def test_a_coordinator_whose_lease_is_old_asks_before_it_says_who_owns(play: Any, answers: bool) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        await client.own(A, "leader")
        node.claims.now += 60
        node.claims.redis = None if not answers else node.claims.redis
        node.claims.log_read_fails = not answers
        answer = await client.own(A, "leader")
        assert answer.error == (control.NONE if answers else control.UNAVAILABLE)
        assert node.claims.reads
        assert (await client.own(B, 0)).error == control.NONE, "who owns a topic is not the coordinator's"

    play(story)


def test_claims_that_another_node_coordinates_are_asked_for_there(play: Any) -> None:
    async def story(node: Node) -> None:
        first = Client(node, 7)
        await first.own(A, "leader")
        node.claims.placed = 2
        node.claims.opened_elsewhere()
        await turns()
        assert errors(await first.own(B, "leader")) == [control.NOT_SERVING]
        mixed = await first.own(C, "leader", 0)
        assert (errors(mixed), node.owner(0)) == ([control.NOT_SERVING, control.NONE], None)
        assert (await first.own(C, 0)).error == control.NONE
        assert node.owner(0) == "pid:7", "topics do not need the coordinator"
        moved = Client(node, 7)
        assert (await moved.watch(A)).changed[0].error == control.NOT_SERVING
        node.claims.placed = 1
        assert errors(await moved.own(A, "leader")) != [control.NONE], "another node's epoch stands"

    play(story)


# Connections --------------------------------------------------------------------------------------------------------


def test_what_a_connection_owns_without_a_producer_id_ends_with_it(play: Any) -> None:
    async def story(node: Node) -> None:
        plain, first = Client(node), Client(node, 8)
        await plain.own(A, "leader", 0)
        waiting = first.owns_later(B, "leader", 0)
        queued = Client(node)
        place = queued.owns_later(C, 0)
        await turns()
        plain.close()
        assert (await waiting).error == control.NONE
        queued.close()
        assert (await place).error == control.TIMED_OUT
        await first.release(B)
        await turns()
        assert (node.owner("leader"), node.owner(0)) == (None, None)
        assert len(node.apis.ownerships.sets) == 0

    play(story)


def test_a_session_goes_on_through_another_of_its_connections(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, one, other = Client(node, 7), Client(node, 8), Client(node, 8)
        await owner.own(A, "leader", 0)
        waiting = one.owns_later(B, "leader", 0)
        await turns()
        watching = asyncio.create_task(other.watch(B, 60.0))
        await turns()
        one.close()
        assert (await waiting).error == control.TIMED_OUT
        await owner.release(A)
        assert [each.error for each in (await watching).changed] == [control.NONE] * 2
        assert (node.owner("leader"), node.owner(0)) == ("pid:8", "pid:8")
        third = Client(node, 8)
        assert (await third.own(B, "leader", 0, mode=WAITING)).error == control.NONE
        other.close()
        await asyncio.sleep(3 * GRACE_S)
        assert (node.owner("leader"), node.owner(0)) == ("pid:8", "pid:8")
        third.close()
        await asyncio.sleep(3 * GRACE_S)
        assert (node.owner("leader"), node.owner(0)) == (None, None)

    play(story)


def test_a_session_that_comes_back_after_its_grace_is_the_last_in_every_queue(play: Any) -> None:
    """The coordinator gave up its place for the name. With its old place in the queue of the partition, it and the
    request behind it would wait for each other.
    """

    async def story(node: Node) -> None:
        node.coordinator.claims.sessions.disconnect_grace = 1.0
        owner, first, second = (Client(node, number) for number in (7, 8, 9))
        await owner.own(A, "leader", 0)
        gone = first.owns_later(B, "leader", 0)
        await turns()
        next_one = second.owns_later(C, "leader", 0)
        await turns()
        first.close()
        assert (await gone).error == control.TIMED_OUT
        await asyncio.sleep(KEPT_S - 1)
        back = Client(node, 8).owns_later(B, "leader", 0)
        await turns()
        await owner.release(A)
        assert (await next_one).error == control.NONE
        await second.release(C)
        assert (await back).error == control.NONE

    play(story)


def test_a_set_whose_coordinator_ends_before_it_waits_keeps_no_place(play: Any) -> None:
    async def story(node: Node) -> None:
        def ended(*_: object) -> NoReturn:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node coordinates")

        owner, first, second = (Client(node, number) for number in (7, 8, 9))
        await owner.own(A, "leader")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node.coordinator, "wait", ended)
            answer = await first.own(B, "leader", 0, mode=WAITING, wait_s=60.0)
        assert control.TIMED_OUT not in (answer.error, *errors(answer))
        assert answer.error
        assert (await second.own(C, 0)).error == control.NONE

    play(story)


def test_what_is_granted_belongs_to_every_connection_that_asked_for_it(play: Any) -> None:
    async def story(node: Node) -> None:
        owner, one, other = Client(node, 7), Client(node, 8), Client(node, 8)
        await owner.own(A, "leader", 0)
        waiting = one.owns_later(B, "leader", 0)
        await turns()
        await other.watch(B)
        await owner.release(A)
        assert (await waiting).error == control.NONE
        one.close()
        await asyncio.sleep(3 * GRACE_S)
        assert (node.owner("leader"), node.owner(0)) == ("pid:8", "pid:8")

    play(story)


def test_a_client_that_leaves_while_it_is_decided_gets_nothing(play: Any) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        asking = client.owns_later(A, "leader", 0)
        for _ in range(30):
            await asyncio.sleep(0)
            if len(node.apis.ownerships.sets):
                break
        client.close()
        answer = await asking
        assert answer.error != control.NONE
        await turns(200)
        assert (node.owner("leader"), node.owner(0)) == (None, None)

    play(story)


def test_a_client_that_leaves_while_kafka_is_asked_leaves_nothing(play: Any) -> None:
    """The end of its connection was reported already, and nothing would end what is stored after it."""

    async def story(node: Node) -> None:
        owner, client = Client(node, 7), Client(node, 8)
        await owner.own(A, "leader")
        node.while_asked = client.close
        asking = client.owns_later(B, "leader", 0)
        assert (await asking).error == control.UNAVAILABLE
        assert node.apis.ownerships.sets.get(B) is None
        assert not node.coordinator.is_waiting(B)

    play(story)


def test_a_token_stands_for_one_request_of_one_session(play: Any) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        await client.own(A, "leader")
        other = await client.own(A, "leader", "follower")
        assert (other.error, "another request" in other.message) == (control.INVALID_REQUEST, True)
        plain = Client(node)
        await plain.own(B, 0)
        again = Client(node)
        assert (await again.own(B, 0)).error == control.NONE, "the former connection counts as dead"
        assert (plain.is_open, node.owner(0)) == (False, again.session)
        await again.own(C, "follower")
        assert errors(await Client(node).own(C, "follower")) == [control.DEPOSED], "a string is not claimed twice"
        assert (again.is_open, node.owner("follower")) == (False, None)

    play(story)


def test_the_same_request_twice_at_once_is_one(play: Any) -> None:
    async def story(node: Node) -> None:
        one, other = Client(node, 7), Client(node, 7)
        answers = await asyncio.gather(one.own(A, "leader", 0), other.own(A, "leader", 0))
        assert [answer.error for answer in answers] == [control.NONE] * 2
        assert node.apis.ownerships.sets.of_principal == {"User:app": 1}
        assert (await one.release(A)).error == control.NONE
        assert (node.owner("leader"), node.owner(0)) == (None, None)

    play(story)


# Release ------------------------------------------------------------------------------------------------------------


def test_a_release_ends_what_it_names_and_may_be_repeated(play: Any) -> None:
    async def story(node: Node) -> None:
        client, other = Client(node, 7), Client(node, 8)
        await client.own(A, "leader", 0, 1)
        for _ in range(2):
            assert (await client.release(A, 0)).error == control.NONE
            assert [node.owner(name) for name in ("leader", 0, 1)] == ["pid:7", None, "pid:7"]
        answer = await client.own(A, "leader", 0, 1)
        assert errors(answer) == [control.NONE, control.DEPOSED, control.NONE]
        assert "was released" in answer.ownerships[1].message
        assert (await other.own(B, 0)).error == control.NONE
        assert (await client.watch(A)).changed == []
        for _ in range(2):
            assert (await client.release(A)).error == control.NONE
        assert [node.owner(name) for name in ("leader", 0, 1)] == [None, "pid:8", None]
        assert (await client.watch(A)).error == control.DEPOSED

    play(story)


def test_a_release_that_cannot_be_written_leaves_what_it_names_owned(play: Any) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        await client.own(A, "leader", 0)
        node.claims.log_fails = True
        assert (await client.release(A)).error == control.UNAVAILABLE
        assert (node.owner("leader"), node.owner(0)) == ("pid:7", None)
        node.claims.log_fails = False
        assert (await client.release(A)).error == control.NONE
        assert node.owner("leader") is None
        await client.own(B, "leader", 1)
        node.apis._rooms.topics.release = unreachable  # type: ignore[method-assign]
        assert (await client.release(B)).error == control.UNAVAILABLE
        assert node.owner("leader") == "pid:7", "a release that fails for a topic leaves the rest as it is"
        assert errors(await client.own(B, "leader", 1)) == [control.NONE] * 2

    play(story)


@pytest.mark.parametrize("breaks", ["a takeover", "the coordinator"])
def test_what_fails_as_nobody_expects_leaves_nothing_of_a_request_owned(play: Any, breaks: str) -> None:
    async def story(node: Node) -> None:
        client, topics, coordinator = Client(node, 7), node.apis._rooms.topics, node.apis._rooms.coordinator
        assert errors(await client.own(B, 2)) == [control.NONE]
        take = topics.take

        async def taken(claim: TopicClaim) -> Look:
            return await (broken() if claim.partition == 0 else take(claim))

        async def broken(*_: object) -> Any:
            raise LookupError(breaks)

        with pytest.MonkeyPatch.context() as patch:
            if breaks == "a takeover":
                patch.setattr(topics, "take", taken)
            else:
                patch.setattr(coordinator, "take", broken)
            answer = await client.own(A, "leader", 0, 1, 2)
        assert (answer.error, answer.message) == (control.UNAVAILABLE, "the node failed")
        await node.topics.settled()
        assert [node.owner(name) for name in ("leader", 0, 1, 2)] == [None, None, None, "pid:7"]
        await wait_until(lambda: node.failures, "the node to report it")
        assert [str(error) for error in node.failures] == [breaks]
        node.failures.clear()
        assert errors(await client.own(A, "leader", 0, 1)) == [control.NONE] * 3

    play(story)


async def unreachable(_: object) -> Look:
    return Look(Prospect.REFUSED, control.UNAVAILABLE, "Kafka is away")


def test_a_release_without_a_request_of_its_token_says_who_owns(play: Any) -> None:
    async def story(node: Node) -> None:
        client, other = Client(node, 7), Client(node, 8)
        await client.own(A, "leader", 0)
        for name in ("leader", 0):
            told = await other.release(B, name)
            assert (told.error, "owned by me, not under this token" in told.message) == (control.HELD, True)
        assert (await other.release(B, "nobody's", 1)).error == control.NONE
        assert (await other.release(B)).error == control.NONE
        assert (node.owner("leader"), node.owner(0)) == ("pid:7", "pid:7")
        node.topics.redis.move(2)
        node.topics.learn_of(2)
        served = await Client(node, 9).release(B, 0)
        assert served.error in (control.HELD, control.NOT_SERVING)

    play(story)


def test_a_coordinator_releases_what_an_earlier_one_stored_under_a_token(play: Any) -> None:
    async def story(node: Node) -> None:
        client = Client(node, 7)
        await client.own(A, "leader", "follower")
        node.apis.ownerships.sets.forget(node.apis.ownerships.sets.get(A))  # pyright: ignore[reportArgumentType]
        assert (await client.release(A, "leader")).error == control.NONE
        assert (node.owner("leader"), node.owner("follower")) == (None, "pid:7")
        node.claims.log_fails = True
        assert (await client.release(A)).error == control.UNAVAILABLE
        node.claims.log_fails = False
        assert (await client.release(A)).error == control.NONE
        assert node.owner("follower") is None

    play(story)


@pytest.mark.parametrize(
    ("token", "names", "said"),
    [(b"short", ["a"], "a token has 16 bytes, not 5"), (b"", [], "give a token or resources")],
)
def test_a_release_that_names_nothing_is_refused(play: Any, token: bytes, names: list[str], said: str) -> None:
    async def story(node: Node) -> None:
        answer = await Client(node, 7).release(token, *names)
        assert (answer.error, said in answer.message) == (control.INVALID_REQUEST, True)
        watched = await Client(node, 7).watch(b"short")
        assert watched.error == control.INVALID_REQUEST

    play(story)
