"""What clients do to governed topics: nothing is begun for a client that has gone, as nobody would take it back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sidecar.exclusive.producers import Producers
from sidecar.exclusive.producing import ProducingState
from sidecar.forwarder.outcome import Outcome
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


class Topics:
    """One governed topic."""

    draining = False
    tasks = None
    services = SimpleNamespace(upstream=SimpleNamespace(has_partition=lambda _topic, _partition: True))

    def __init__(self) -> None:
        self.one = Topic()
        self.forwarder = SimpleNamespace(admit=lambda _size: True)
        self.by_name = {TOPIC: self.one}

    def topic(self, _name: str) -> Topic:
        return self.one

    def missing(self, _name: bytes) -> None:
        """Not looked at."""

    def now(self) -> float:
        return 0.0


class Client:
    """As much of a client as its batches need."""

    connection_id = 7
    session = Session("conn:1-boot-7")
    producer = ("billing", True, None, None)
    caller = Caller("User:app", "billing")
    address = "?"

    def __init__(self, *, alive: bool) -> None:
        self.governed = ProducingState()
        self.alive = alive

    def is_alive(self) -> bool:
        return self.alive


def appended(client: Any) -> tuple[Topics, Producers, list[ProduceResult]]:
    """One batch of a client, and its answers."""
    topics: Any = Topics()
    producers = Producers(topics)
    answers: list[ProduceResult] = []
    found = batch(recs(1))
    producers.append(client, ProducePart(TOPIC, 0, 0, len(found)), found, 1_000, answers.append)
    return topics, producers, answers


def test_a_batch_registers_its_client_with_the_topic() -> None:
    topics, producers, answers = appended(Client(alive=True))
    one: Any = topics.one
    assert (topics.one.taken, answers) == (1, [])
    assert producers.has_clients(one)


def test_for_a_client_that_went_before_its_batch_was_taken_up_nothing_is_begun() -> None:
    """A large request is taken up in slices: its client may go between two of them."""
    topics, producers, answers = appended(Client(alive=False))
    one: Any = topics.one
    assert (topics.one.taken, [each.error for each in answers]) == (0, [Outcome(ErrorCode.NETWORK_EXCEPTION).error])
    assert not producers.has_clients(one)
