"""Who may grant claims, and what ends them: the coordinator of one node, its right in Redis and in the log, and the
connections of its clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from metadata import MetadataError, MetadataProtocolError, MetadataUnavailable, Reason
from metadata.nodes import ServeStatus
from sidecar.access.prospects import Prospect
from sidecar.changelog import MASTER_SLOT, Entry, Key, Kind, Record, View, claim_key
from sidecar.changelog import Change as LogChange
from sidecar.changelog.errors import AppendRefusedError
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.resources import coordinator
from sidecar.resources.claims import News
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.epoch import CLAIMS, CoordinatorEpoch
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import Request, Wish
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

GRACE_S, RECONNECT_S = 10.0, 30.0
STAMP = Stamp(ProducerId(1), ProducerEpoch(0))
PLAIN, IDEMPOTENT = "conn:1-00-1", "pid:11"
OTHER_NODE, NO_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE


class Connection(NamedTuple):
    """A client's connection."""

    number: int
    session: str = PLAIN


class Node:
    """A coordinator, and what its node gives it: the log, Redis, the clock, the other nodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.redis: ServeStatus | None = ServeStatus.GRANTED
        self.holder = 1
        self.redis_error: MetadataError = MetadataUnavailable(Reason.TIMEOUT, "gone")
        self.asked_redis = 0
        self.handed_over: list[Any] = []
        self.log: list[Record] = []
        self.log_fails = False
        self.opens: Callable[[], None] = lambda: None
        self.claims: dict[Key, state.Claim] = {}
        self.answers: list[tuple[str, int]] = []
        self.changed: list[bool] = []
        self.failures: list[BaseException] = []
        self.reads = 0
        self.log_read_fails = False
        self.placed = 1
        self.view = View()
        self._listener: Callable[[LogChange], None] = lambda _: None
        changelog = SimpleNamespace(
            view=self.view,
            clock=SimpleNamespace(elapsed=lambda: self.now, now_ms=lambda: int(self.now * 1000)),
            tailer=SimpleNamespace(subscribe=self._subscribe, reached=self._reached, read_to_end=self._read_to_end),
        )
        store = SimpleNamespace(lease_ms=3_000, serve=self._serve, hand_over=self._hand_over)
        services: Any = SimpleNamespace(changelog=changelog, store=store, node_id=1, boot="boot")
        placement = SimpleNamespace(nodes={1, 2}, of_topic=lambda _: self.placed)
        self.nodes = SimpleNamespace(serving={}, placement=placement)
        events: Any = SimpleNamespace(
            claims_answered=lambda *found: self.answers.append(found),
            claims_granted=lambda *_: None,
            claims_let_go=lambda *_: None,
            coordinator_changed=lambda coordinates, *_: self.changed.append(coordinates),
            claims_failed=self.failures.append,
        )
        tasks = Tasks(self.failures.append)
        self.room = Coordinator(
            services, cast(Any, self.nodes), tasks, events, ClaimLimits(5),
            reconnect_grace=RECONNECT_S, disconnect_grace=GRACE_S,
        )  # fmt: skip
        monkeypatch.setattr(coordinator, "open_epoch", self._open)

    def _subscribe(self, listener: Callable[[LogChange], None], *_: object) -> Callable[[], None]:
        self._listener = listener
        return lambda: None

    async def _reached(self, offset: Offset, timeout: float) -> None: ...

    async def _read_to_end(self, timeout: float) -> None:
        self.reads += 1
        if self.log_read_fails:
            raise DisconnectedError("gone")

    async def _serve(self, topic: str, node: int, boot: str, *, last_node: int | None) -> Any:
        self.asked_redis += 1
        await asyncio.sleep(0)
        if self.redis is None:
            raise self.redis_error
        holder = None if self.redis is ServeStatus.SETTLING else SimpleNamespace(node_id=self.holder)
        return SimpleNamespace(status=self.redis, holder=holder)

    async def _hand_over(self, *asked: Any) -> None:
        self.handed_over.append(asked)

    async def _open(self, _: Any) -> CoordinatorEpoch:
        await asyncio.sleep(0)
        self.opens()
        return CoordinatorEpoch(cast(Any, None), STAMP, cast(Any, self), self.claims)

    async def append(self, records: Sequence[Record]) -> int:
        await asyncio.sleep(0)
        if self.log_fails:
            raise AppendRefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
        self.log += records
        return len(self.log) - len(records)

    def opened_elsewhere(self) -> None:
        """Another node's epoch is in the log."""
        stamp = Stamp(ProducerId(2), ProducerEpoch(0))
        record = Record(Key(Kind.SERVING, CLAIMS, MASTER_SLOT), state.Serving(node=2, producer_id=2))
        self.view.note_writer(stamp)
        self.view.apply(Offset(5), 0, stamp, record.encode())
        self._listener(LogChange(record.key, None, self.view.serving(CLAIMS)))

    def events(self) -> tuple[list[tuple[bytes, int]], list[int]]:
        """What was reported since the last call: tokens with how much they lost, and connections to close."""
        news, severed = list[tuple[bytes, int]](), list[int]()
        while not self.room.events.empty():
            event = self.room.events.get_nowait()
            if isinstance(event, News):
                news.append((event.token, len(event.lost)))
            else:
                severed.append(event.connection)
        return news, severed

    async def take(self, of: Connection, request: Request) -> Prospect:
        self.room.bind(of.number, request.session)
        return (await self.room.take(request, of.number, f"host{of.number}")).prospect

    async def granted(self, of: Connection, name: str, token: bytes = b"t1", **how: Any) -> Prospect:
        return await self.take(of, wanted(name, token, of.session, **how))

    def owners(self) -> dict[str, str]:
        return {claim.resource.name: claim.session for claim in self.room.claims.table.owners.values()}


def wanted(name: str, token: bytes, session: str, mode: control.AccessMode = control.EXCLUSIVE) -> Request:
    resource = control.Resource(name=name)
    return Request(token, session, "me", mode, (Wish(claim_key("", resource), "", resource),))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


@pytest.fixture
async def serving(node: Node) -> Node:
    await node.room.ready()
    return node


# Who coordinates ----------------------------------------------------------------------------------------------------


async def test_a_node_that_redis_and_the_log_let_coordinates(node: Node) -> None:
    await asyncio.gather(node.room.ready(), node.room.ready())
    assert node.room.coordinates
    assert node.asked_redis == 1
    assert node.changed == [True]
    assert node.nodes.serving == {b"__claims": 1}
    assert node.room.node == 1
    assert node.room.served_topics() == ["__claims"]


@pytest.mark.parametrize(
    ("redis", "code"),
    [(None, NO_LEADER), (ServeStatus.HELD, OTHER_NODE), (ServeStatus.SETTLING, NO_LEADER)],
)
async def test_nothing_can_be_claimed_without_the_right_in_redis(
    node: Node, redis: ServeStatus | None, code: ErrorCode
) -> None:
    node.redis, node.holder = redis, 2
    with pytest.raises(KafkaError) as refused:
        await node.room.ready()
    assert refused.value.code == code
    assert node.room.look(wanted("a", b"t1", PLAIN)).prospect is Prospect.BUSY
    for use in (node.granted(Connection(1), "a"), node.room.release(b"t1")):
        with pytest.raises(KafkaError) as refused:
            await use
        assert refused.value.code == OTHER_NODE
    with pytest.raises(KafkaError):
        node.room.wait(wanted("a", b"t1", PLAIN))
    assert node.room.node == (2 if redis is ServeStatus.HELD else 1)
    assert node.room.served_topics() == []
    node.redis, node.placed, node.nodes.serving = ServeStatus.GRANTED, 1, {}
    await node.room.ready()
    assert node.room.coordinates


@pytest.mark.parametrize("how", ["placed elsewhere", "shuts down"])
async def test_a_node_that_is_not_the_one_to_ask_does_not_ask_redis(node: Node, how: str) -> None:
    node.placed = 2 if how == "placed elsewhere" else 1
    if how == "shuts down":
        await node.room.drain()
    with pytest.raises(KafkaError) as refused:
        await node.room.ready()
    assert refused.value.code == OTHER_NODE
    assert node.asked_redis == 0
    assert node.room.node == (2 if how == "placed elsewhere" else None)


async def test_an_epoch_that_cannot_be_opened_gives_no_right(node: Node) -> None:
    def fails() -> None:
        raise DisconnectedError("gone")

    node.opens = fails
    with pytest.raises(KafkaError) as refused:
        await node.room.ready()
    assert refused.value.code == NO_LEADER
    assert not node.room.serving
    assert len(node.failures) == 1


@pytest.mark.parametrize("how", ["log", "heartbeat", "drain"])
async def test_an_epoch_that_another_node_ended_while_it_was_opened_gives_no_right(node: Node, how: str) -> None:
    def ends() -> None:
        if how == "log":
            node.opened_elsewhere()
        elif how == "heartbeat":
            node.room.heard({CLAIMS})
        else:
            node.room.draining = True

    node.opens = ends
    with pytest.raises(KafkaError):
        await node.room.ready()
    assert not node.room.coordinates


@pytest.mark.parametrize("how", ["log", "heartbeat", "redis", "uncertain append"])
async def test_a_coordinator_that_is_replaced_ends_the_claims_of_its_connections(serving: Node, how: str) -> None:
    plain, idempotent = Connection(1), Connection(2, IDEMPOTENT)
    assert await serving.granted(plain, "a", b"t1") is Prospect.READY
    assert await serving.granted(idempotent, "b", b"t2") is Prospect.READY
    serving.events()
    if how == "log":
        serving.opened_elsewhere()
    elif how == "heartbeat":
        serving.room.heard({CLAIMS})
    elif how == "redis":
        serving.redis, serving.holder = ServeStatus.HELD, 2
        with pytest.raises(KafkaError) as refused:
            await serving.granted(plain, "c", b"t3")
        assert refused.value.code == OTHER_NODE
    else:
        serving.room._broken(DisconnectedError("lost"))
    await turns()
    assert not serving.room.coordinates
    assert serving.changed == [True, False]
    news, severed = serving.events()
    assert (sorted(news), severed) == ([(b"t1", 1), (b"t2", 1)], [plain.number])
    assert serving.nodes.serving == ({b"__claims": 2} if how == "redis" else {})


async def test_a_heartbeat_that_loses_another_topic_renews_the_right(serving: Node) -> None:
    serving.now += 10
    assert not serving.room.is_fresh
    serving.room.served_topics()
    serving.now += 1
    serving.room.served_topics()
    serving.room.heard({"orders"})
    assert serving.room.is_fresh
    serving.now += 1.6  # 2.7 s after the first of both
    assert serving.room.is_fresh
    serving.now += 0.2
    assert not serving.room.is_fresh
    assert serving.room.coordinates


@pytest.mark.parametrize(("passed", "reads"), [(0.0, 0), (2.6, 0), (2.8, 1)])
async def test_a_right_without_a_fresh_lease_is_confirmed_by_the_log(serving: Node, passed: float, reads: int) -> None:
    serving.now += passed
    await serving.room.confirm()
    assert serving.reads == reads


@pytest.mark.parametrize("how", ["cannot be read", "shows another node"])
async def test_a_right_that_the_log_does_not_confirm_is_none(serving: Node, how: str) -> None:
    serving.now += 10
    serving.log_read_fails = how == "cannot be read"
    if not serving.log_read_fails:
        serving.opened_elsewhere()
    with pytest.raises(KafkaError) as refused:
        await serving.room.confirm()
    assert refused.value.code == (NO_LEADER if serving.log_read_fails else OTHER_NODE)


async def test_a_node_that_shuts_down_writes_what_is_under_way_and_hands_the_right_over(serving: Node) -> None:
    asker = Connection(1)
    taking = asyncio.create_task(serving.granted(asker, "a"))
    await asyncio.sleep(0)
    await serving.room.drain()
    assert await taking is Prospect.READY
    assert len(serving.log) == 1
    assert serving.events() == ([(b"t1", 1)], [asker.number])
    assert serving.handed_over == [(CLAIMS, 1, "boot")]
    await serving.room.drain()
    assert len(serving.handed_over) == 1


# Claims -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [MetadataUnavailable(Reason.TIMEOUT, "gone"), MetadataProtocolError("killed")])
async def test_no_claim_is_granted_without_an_answer_of_redis_and_owners_keep_what_they_own(
    serving: Node, error: MetadataError
) -> None:
    asker, other = Connection(1), Connection(2, IDEMPOTENT)
    await serving.granted(asker, "a")
    serving.redis, serving.redis_error = None, error
    for use in (
        serving.granted(asker, "b", b"t2"),
        serving.granted(other, "a", b"t3", mode=control.EXCLUSIVE_WITH_FENCING),
    ):
        with pytest.raises(KafkaError) as refused:
            await use
        assert refused.value.code == NO_LEADER
    assert serving.owners() == {"a": PLAIN}
    assert ("unavailable", 1) in serving.answers
    assert serving.room.coordinates
    await serving.room.release(b"t1")  # a release needs no right
    assert serving.owners() == {}


async def test_a_claim_that_cannot_be_written_is_not_granted(serving: Node) -> None:
    serving.log_fails = True
    with pytest.raises(KafkaError):
        await serving.granted(Connection(1), "a")
    await turns()
    assert serving.owners() == {}


@pytest.mark.parametrize("step", ["touched", "decide", "stored"])
async def test_a_defect_answers_what_waits_and_the_log_decides(
    serving: Node, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serving.granted(Connection(1), "a")

    def fails(*_: object) -> None:
        raise ValueError(step)

    monkeypatch.setattr(serving.room.claims, step, fails)
    async with asyncio.timeout(1):
        with pytest.raises(KafkaError):
            await asyncio.gather(serving.granted(Connection(2), "b", b"t2"), serving.room.release(b"t1"))
    monkeypatch.undo()
    assert not serving.room.coordinates
    assert str(serving.failures[-1]) == step


async def test_claims_of_a_connection_end_with_it(serving: Node) -> None:
    await serving.granted(Connection(1), "a")
    serving.room.connection_closed(1)
    await turns()
    assert serving.owners() == {}
    assert serving.log[-1].value is None
    assert serving.events() == ([(b"t1", 1)], [])
    assert serving.room.lost_by(b"t1")
    assert not serving.room.claims.over


async def test_claims_of_a_session_outlive_its_connection_by_a_grace(serving: Node) -> None:
    await serving.granted(Connection(1, IDEMPOTENT), "a")
    serving.room.connection_closed(1)
    await turns()
    assert serving.owners() == {"a": IDEMPOTENT}
    serving.now += GRACE_S / 2
    serving.room.bind(2, IDEMPOTENT)
    serving.now += GRACE_S
    serving.room.pass_time()
    assert serving.owners() == {"a": IDEMPOTENT}
    serving.room.connection_closed(2)
    serving.now += GRACE_S
    serving.room.pass_time()
    await turns()
    assert serving.owners() == {}


async def test_a_grace_that_ends_while_another_node_coordinates_keeps_nobody_awake(serving: Node) -> None:
    running = asyncio.create_task(serving.room.run())
    serving.room.bind(1, IDEMPOTENT)
    serving.placed = 2
    serving.room.heard({CLAIMS})
    serving.room.connection_closed(1)
    serving.now += GRACE_S
    serving.room.connection_closed(2)
    await turns()
    assert serving.room.claims.sessions.next_end() is None
    running.cancel()


async def test_an_end_that_cannot_be_written_is_tried_again(serving: Node) -> None:
    await serving.granted(Connection(1), "a")
    serving.log_fails = True
    serving.room.connection_closed(1)
    await turns()
    assert serving.owners() == {"a": PLAIN}
    assert serving.room.claims.over == {PLAIN: False}
    serving.log_fails = False
    serving.room.pass_time()
    await turns()
    assert serving.owners() == {}
    assert serving.room.claims.over == {}


async def test_a_session_that_came_back_before_its_end_was_written_keeps_its_claims(serving: Node) -> None:
    await serving.granted(Connection(1), "a")
    serving.room.connection_closed(1)
    serving.room.bind(2, PLAIN)
    await turns()
    assert serving.owners() == {"a": PLAIN}
    assert serving.room.claims.over == {}


async def test_a_connection_that_closed_while_it_waited_for_its_turn_gets_nothing(serving: Node) -> None:
    taking = asyncio.create_task(serving.granted(Connection(1), "a"))
    await asyncio.sleep(0)
    serving.room.connection_closed(1)
    assert await taking is Prospect.BUSY
    assert serving.log == []


async def test_a_connection_that_closed_while_its_claim_was_written_loses_it(serving: Node) -> None:
    serving.opens = lambda: None
    append = serving.append

    async def closes(records: Sequence[Record]) -> int:
        offset = await append(records)
        serving.room.connection_closed(1)
        return offset

    serving.append = closes  # type: ignore[method-assign]
    await serving.granted(Connection(1), "a")
    await turns()
    assert serving.owners() == {}
    assert [record.value is None for record in serving.log] == [False, True]


async def test_a_deposed_owner_loses_its_connection_and_hears_of_it(serving: Node) -> None:
    owner, rival = Connection(1), Connection(2, IDEMPOTENT)
    await serving.granted(owner, "a")
    assert await serving.granted(rival, "a", b"t2") is Prospect.REFUSED
    assert serving.events() == ([], [])
    assert await serving.granted(rival, "a", b"t2", mode=control.EXCLUSIVE_WITH_FENCING) is Prospect.READY
    assert serving.owners() == {"a": IDEMPOTENT}
    assert serving.events() == ([(b"t1", 1)], [owner.number])
    assert ("lost", 1) in serving.answers


async def test_a_connection_that_deposes_its_own_session_stays(serving: Node) -> None:
    asker = Connection(1)
    await serving.granted(asker, "a")
    request = wanted("a", b"t2", IDEMPOTENT, control.EXCLUSIVE_WITH_FENCING)
    assert await serving.take(asker, request) is Prospect.READY
    assert serving.events() == ([(b"t1", 1)], [])


async def test_a_request_waits_in_its_queue_until_it_leaves_or_its_turn_comes(serving: Node) -> None:
    owner, first, second = Connection(1), Connection(2, "pid:2"), Connection(3, "pid:3")
    await serving.granted(owner, "a")
    for asker, token in ((first, b"t2"), (second, b"t3")):
        verdict = serving.room.wait(wanted("a", token, asker.session, control.WAIT_FOR_EXCLUSIVE))
        assert verdict.prospect is Prospect.WAIT
        assert serving.room.is_waiting(token)
    assert serving.room.claims.table.waiting.wishes == 2
    assert serving.answers.count(("waiting", 1)) == 2
    serving.room.leave([b"t2", b"unknown"])
    assert not serving.room.is_waiting(b"t2")
    serving.events()
    await serving.room.release(b"t1")
    assert serving.events()[0] == [(b"t1", 1), (b"t3", 0)]
    assert serving.room.look(wanted("a", b"t3", "pid:3", control.WAIT_FOR_EXCLUSIVE)).prospect is Prospect.READY
    assert serving.room.look(wanted("a", b"t4", "pid:4")).prospect is not Prospect.READY
    assert not serving.room.claims.table.owners


async def test_a_refused_request_does_not_wait(serving: Node) -> None:
    await serving.granted(Connection(1), "a")
    assert serving.room.wait(wanted("a", b"t2", IDEMPOTENT)).prospect is Prospect.REFUSED
    assert not serving.room.is_waiting(b"t2")


async def test_a_part_of_a_tokens_claims_may_be_released(serving: Node) -> None:
    resources = [control.Resource(name=name) for name in "ab"]
    wishes = tuple(Wish(claim_key("", resource), "", resource) for resource in resources)
    await serving.take(Connection(1), Request(b"t1", PLAIN, "me", control.EXCLUSIVE, wishes))
    await serving.room.release(b"t1", [wishes[0].key, claim_key("", control.Resource(name="c"))])
    assert serving.owners() == {"b": PLAIN}
    assert serving.room.is_held(wishes[1].key, b"t1", 1)
    assert not serving.room.is_held(wishes[1].key, b"t1", 2)
    assert not serving.room.is_held(wishes[1].key, b"t2", 1)
    assert not serving.room.is_held(wishes[0].key, b"t1", 1)


async def test_sessions_of_an_earlier_coordinator_have_a_grace_to_come_back(node: Node) -> None:
    for name, session in (("a", "pid:1"), ("b", "pid:2")):
        resource = control.Resource(name=name)
        node.claims[claim_key("", resource)] = state.Claim(
            resource=resource, session=session, token=session.encode(), generation=1
        )
    await node.room.ready()
    node.room.bind(1, "pid:1")
    node.now += RECONNECT_S - 1
    node.room.pass_time()
    await turns()
    assert len(node.owners()) == 2
    node.now += 1
    node.room.pass_time()
    await turns()
    assert node.owners() == {"a": "pid:1"}


def test_a_claim_that_another_token_took_is_lost_to_a_node_that_only_reads(node: Node) -> None:
    key = claim_key("", control.Resource(name="a"))

    def entry(token: bytes) -> Entry[Any]:
        return Entry(key, state.Claim(token=token), STAMP, Offset(1), 0)

    node._listener(LogChange(key, None, entry(b"t1")))
    node._listener(LogChange(key, entry(b"t1"), entry(b"t1")))
    assert not node.room.lost_by(b"t1")
    node._listener(LogChange(key, entry(b"t1"), entry(b"t2")))
    assert list(node.room.lost_by(b"t1")) == [key]
    node._listener(LogChange(key, entry(b"t2"), None))
    assert list(node.room.lost_by(b"t2")) == [key]
