"""What clients do to governed topics: nothing is begun for a client that has gone, as nobody would take it back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sidecar.exclusive.producers import Producers
from sidecar.exclusive.producing import ProducingState
from sidecar.exclusive.registry import Registry
from sidecar.forwarder.outcome import Outcome
from sidecar.network.aside import Allowance
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.produce import ProducePart
from sidecar.protocol.session import Caller, Session
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
