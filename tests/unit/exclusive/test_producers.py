"""What clients do to governed topics: nothing is begun for a client that has gone, as nobody would take it back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from metadata.ownership import AccessMode
from sidecar.exclusive import producers as module
from sidecar.exclusive.producers import Producers
from sidecar.exclusive.producing import ProducingState
from sidecar.exclusive.registry import Registry
from sidecar.forwarder.outcome import Outcome
from sidecar.network.aside import Allowance
from sidecar.network.framing import Frame
from sidecar.network.tasks import Tasks
from sidecar.ownership.state import Claimant
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.produce import ProducePart
from sidecar.protocol.session import Caller, Session
from tests.kafka.exclusive.producers import batch_of
from tests.unit.dedup.paper import batch, recs

if TYPE_CHECKING:
    from sidecar.protocol.produce import ProduceResult

TOPIC = b"orders"


class Topic:
    """Takes every batch."""

    ids = None

    def __init__(self) -> None:
        self.taken = 0

    def forward(self, *_: object) -> bool:
        self.taken += 1
        return True


class Node:
    """What the producers of a node need of it."""

    draining = False
    services = SimpleNamespace(upstream=SimpleNamespace(has_partition=lambda _topic, _partition: True))
    forwarder = SimpleNamespace(admit=lambda _size: True)
    bindings = SimpleNamespace(connection_closed=lambda _: None)

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.tasks, self.watchers = Tasks(self.failures.append), list[object]()

    def now(self) -> float:
        return 0.0


def node_with(topic: Any) -> tuple[Any, Registry, Producers]:
    """A node that has one topic."""
    environment: Any = Node()
    topics = Registry(environment)
    topics.by_name[TOPIC] = topics.named[TOPIC.decode()] = topic
    return environment, topics, Producers(environment, topics)


class Client:
    """As much of a client as its batches need."""

    connection_id = 7
    carries_ordinary = False
    session = Session("conn:1-boot-7")
    producer = ("billing", True, None, None)
    caller = Caller("User:app", "billing")
    address = "?"

    allowance = Allowance()

    def __init__(self, *, alive: bool) -> None:
        self.governed = ProducingState()
        self.alive = alive

    def is_alive(self) -> bool:
        return self.alive


def appended(client: Any) -> tuple[Topic, Registry, list[ProduceResult]]:
    """One batch of a client, and its answers."""
    topic, answers, found = Topic(), list[Any](), batch(recs(1))
    _, topics, producers = node_with(topic)
    producers.append(client, ProducePart(TOPIC, 0, 0, len(found)), found, 1_000, answers.append)
    return topic, topics, answers


async def test_all_refused_batches_of_a_request_count_as_one_refusal() -> None:
    """The first refusal is answered at once, the whole of it."""
    node, _, producers = node_with(Topic())
    node.now = lambda: 5.0
    client, answers = cast(Any, Client(alive=True)), list[Any]()
    for _ in range(3):
        producers._refuse(client, answers.append, cast(Any, None))
    assert (len(answers), client.governed.refusals) == (3, 1)


class Parts:
    """A topic of many partitions with their own owners; the connections that were closed there."""

    def __init__(self, count: int) -> None:
        self.closed: list[int] = []
        self.parts = [SimpleNamespace(connection_closed=self.closed.append) for _ in range(count)]


async def test_the_end_of_a_client_of_a_topic_with_many_partitions_leaves_turns_to_others() -> None:
    """A topic may have 100,000 partitions with their own owners."""
    topic: Any = Parts(10_000)
    node, topics, producers = node_with(topic)
    topics.connected(7, topic)
    producers.connection_closed(7)
    longest, seen = len(topic.closed), len(topic.closed)
    while len(topic.closed) < 10_000:
        await asyncio.sleep(0)
        longest, seen = max(longest, len(topic.closed) - seen), len(topic.closed)
    assert longest <= 100
    assert set(topic.closed) == {7}
    await node.tasks.cancel()
    assert not node.failures


def test_a_batch_registers_its_client_with_the_topic() -> None:
    topic, topics, answers = appended(Client(alive=True))
    assert (topic.taken, answers) == (1, [])
    assert topics.claimed_by(Client.connection_id) == 1


def test_for_a_client_that_went_before_its_batch_was_taken_up_nothing_is_begun() -> None:
    """A large request is taken up in slices: its client may go between two of them."""
    topic, topics, answers = appended(Client(alive=False))
    assert (topic.taken, [each.error for each in answers]) == (0, [Outcome(ErrorCode.NETWORK_EXCEPTION).error])
    assert topics.claimed_by(Client.connection_id) == 0


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "ordinary", "expected"),
    [
        (1, False, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0]),
        (0, False, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0]),
        (2, False, [0] * 12),
        (1, True, [0] * 12),
    ],
)
async def test_a_refusal_that_is_repeated_waits_a_tenth_longer_each_time_up_to_a_second(
    topics: int, ordinary: bool, expected: list[float]
) -> None:
    """Unless the connection carries anything else, whose answers would wait too."""
    node, registry, producers = node_with(Topic())
    client = cast(Any, Client(alive=True))
    client.carries_ordinary = ordinary
    for _ in range(topics):
        registry.connected(client.connection_id, cast(Any, Topic()))
    loop, waits = asyncio.get_running_loop(), list[float]()
    for number in range(12):
        node.now = lambda now=float(1 + number): now
        told: asyncio.Future[float] = loop.create_future()
        began = loop.time()
        producers._refuse(client, lambda _, told=told: told.set_result(loop.time()), cast(Any, None))
        waits.append(round(await told - began, 1))
    assert waits == expected


# Whole requests -------------------------------------------------------------------------------------------------------


class Whole(Topic):
    """Takes every request that comes whole."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[Any] = []

    def forward_whole(self, claimant: Claimant, request: Any) -> bool:
        self.whole.append((claimant, request))
        return True


class Sent:
    """A request for two partitions, which may go on whole but for what a test changes."""

    def __init__(self) -> None:
        self.topic = Whole()
        self.node, self.topics, self.producers = node_with(self.topic)
        self.client = cast(Any, Client(alive=True))
        self.claimant = Claimant(Session("pid:7"), "billing", is_named=True, connection=7)
        self.client.governed.claimants[TOPIC, 7] = self.claimant
        self.records: list[Any] = [(TOPIC, 0, batch_of([b"a"], 7, 0, 3)), (TOPIC, 1, batch_of([b"b", b"c"], 7, 0, 0))]
        self.version, self.timeout_ms, self.more = 8, 30_000, b""
        self.moved = 0

    def goes(self) -> bool:
        message = produce_upstream.encode_request(1, b"party", self.version, -1, self.timeout_ms, self.records)
        data = bytearray(b"".join(message))
        body, end = 14 + len(b"party"), len(data)
        request = produce.walk(data, body, end, self.version)
        data += self.more
        data[0:0] = bytes(self.moved)
        frame = Frame(data, self.moved, len(data), owned=True)
        asker = cast(Any, SimpleNamespace(version=self.version))
        return self.producers.append_whole(self.client, request, frame, body + self.moved, self.moved, asker)


def test_a_request_of_one_session_for_partitions_of_one_topic_goes_on_whole() -> None:
    for moved in (0, 5):
        sent = Sent()
        sent.moved = moved
        assert sent.goes()
        ((claimant, request),) = sent.topic.whole
        assert claimant is sent.claimant
        assert [(part.partition, bytes(batch)) for part, batch, _ in request.batches] == [
            (partition, bytes(batch)) for _, partition, batch in sent.records
        ]
        assert [numbers.records for _, _, numbers in request.batches] == [1, 2]
        assert (request.body, request.timeout_ms) == (19 + moved, 30_000)


def _other_session(sent: Sent) -> None:
    sent.records[1] = (TOPIC, 1, batch_of([b"b"], 8, 0, 0))


def _breaks(sent: Sent) -> None:
    sent.records[1][2][-1] ^= 1


def _without_ids_of_its_own(sent: Sent) -> None:
    sent.records = [(TOPIC, 0, batch_of([b"a"], -1, -1, -1))]
    sent.client.governed.claimants[TOPIC, -1] = sent.claimant
    sent.topic.ids = cast(Any, object())


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: sent.topics.by_name.clear(),
        lambda sent: setattr(sent.node, "draining", True),
        lambda sent: sent.client.governed.turned_away.update({(TOPIC, 0): None}),
        lambda sent: sent.producers.existing.waiting.update({TOPIC: None}),
        lambda sent: setattr(sent, "version", 6),
        lambda sent: setattr(sent, "timeout_ms", -1),
        lambda sent: setattr(sent, "timeout_ms", 2**31 - 1),
        lambda sent: setattr(sent, "more", b"x"),
        lambda sent: sent.records.append((b"payments", 0, batch_of([b"a"], 7, 0, 0))),
        lambda sent: sent.client.governed.claimants.clear(),
        _other_session,
        _breaks,
        _without_ids_of_its_own,
    ],
    ids=[
        "not governed", "draining", "batches come again", "a batch waits", "an old version", "a negative timeout",
        "a long timeout", "something follows", "two topics", "an unknown session", "two sessions", "a broken batch",
        "no producer id where ids count",
    ],
)  # fmt: skip
def test_another_request_goes_on_batch_by_batch(change: Any) -> None:
    sent = Sent()
    change(sent)
    assert not sent.goes()
    assert sent.topic.whole == []


def test_at_the_edges_a_request_still_goes_on_whole() -> None:
    for timeout_ms in (0, module.LONGEST_WAIT_MS):
        sent = Sent()
        sent.timeout_ms, sent.version = timeout_ms, 7
        assert sent.goes()
    plain = Sent()
    plain.records = [(TOPIC, 0, batch_of([b"a"], -1, -1, -1))]
    plain.client.governed.claimants[TOPIC, -1] = plain.claimant
    assert plain.goes()


# What is remembered of clients ----------------------------------------------------------------------------------------


def test_what_is_remembered_of_a_connection_and_of_successors_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may make a producer id for each batch."""
    monkeypatch.setattr(module, "_CLAIMANTS_KEPT", 3)
    monkeypatch.setattr(module, "_SUCCESSORS_KEPT", 3)
    forgiven: list[Session] = []
    topic: Any = Topic()
    topic.refusals = SimpleNamespace(forget=forgiven.append)
    node, _, producers = node_with(topic)
    node.bindings = SimpleNamespace(given=lambda *_: None)
    client = cast(Any, Client(alive=True))
    for number in range(1, 5):
        claimant, _ = producers._introduce(client, TOPIC, number)
        producers.initialised(client, 100 + number, number)
    assert claimant.session == Session("pid:4")
    assert set(client.governed.claimants) == {(TOPIC, 4)}
    assert forgiven == [Session(f"pid:{100 + number}") for number in range(1, 5)]
    assert [producers.followed_by(Session(f"pid:{100 + number}")) for number in range(1, 5)] == [
        None, Session("pid:2"), Session("pid:3"), Session("pid:4"),
    ]  # fmt: skip
    successor, _ = producers._introduce(client, TOPIC, 104)
    assert successor.succeeds == Session("pid:4")
    client.governed.renamed()
    assert not client.governed.claimants, "under another client.id it is another client"


def test_a_session_is_a_clients_producer_id_or_its_connection() -> None:
    _, topics, producers = node_with(Topic())
    client = cast(Any, Client(alive=True))
    client.producer = ("billing", False, AccessMode.EXCLUSIVE, 5)
    idempotent, _ = producers._introduce(client, TOPIC, 0)
    plain, topic = producers._introduce(client, TOPIC, -1)
    assert (idempotent.session, plain.session) == (Session("pid:0"), client.session)
    assert idempotent == Claimant(
        Session("pid:0"), "billing", is_named=False, connection=7, mode=AccessMode.EXCLUSIVE, generation=5,
        caller=client.caller,
    )  # fmt: skip
    assert topic is topics.topic(TOPIC.decode())
    assert topics.claimed_by(7) == 1


async def test_topics_that_cannot_become_governed_are_told_with_why() -> None:
    node, _, producers = node_with(Topic())
    errors = {"bad": KafkaError(44, "no")}

    async def govern(topic: str) -> KafkaError | None:
        return errors.get(topic)

    node.catalog = SimpleNamespace(govern=govern)
    assert await producers.govern([b"orders", b"bad"]) == {b"bad": errors["bad"]}


@pytest.mark.parametrize(("session", "knows"), [("pid:0", True), ("pid:1", False), ("conn:1-b-0", False)])
def test_a_record_tells_whether_the_first_producer_id_of_the_cluster_was_given(session: str, knows: bool) -> None:
    _, _, producers = node_with(Topic())
    producers.recorded(session)
    assert producers.knows_first_id is knows
    producers.recorded("pid:5")
    assert producers.knows_first_id is knows
