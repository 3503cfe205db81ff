"""Sequence ids of records that Kafka's own cleaning takes out of a log, and a node that dies then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.history import History, Step
from tests.sim.test_seeds import produced
from tests.sim.worker import Worker
from tests.sim.world import Shape


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


def kills(at: float) -> tuple[Step, ...]:
    """Every node dies, without a word, and comes back."""
    return tuple(
        Step(at, "kill node", {"node": number, "fuse": 1, "lasts": 0.3, "silently": False}) for number in (1, 2)
    )


def test_a_topic_goes_on_whose_log_was_purged_before_its_node_died(worker: Worker) -> None:
    """Kafka Streams purges every half a minute: no snapshot had the ids, and the topic accepted nothing any more."""
    steps = (Step(0.1, "produce", produced()), Step(0.9, "purge", {"topic": "counted"}), *kills(1.1))
    outcome = worker.play(History(1, Shape(nodes=2), 3.0, steps, {"latency": 0.002}))
    assert outcome.wrong == []
    assert outcome.effects["purged"]
    assert outcome.effects["node killed"]


@pytest.mark.parametrize("seed", [2, 3])
def test_no_id_is_written_twice_whose_record_was_compacted_before_its_node_died(worker: Worker, seed: int) -> None:
    """Another application overwrites the key: the first one's highest id was in no snapshot, and compacted away."""
    policy = {"topic": "counted", "setting": "cleanup.policy", "value": "compact", "lasts": 10.0}
    one, other = (produced(app=app, key=b"k", batches=10) for app in ("app0", "app1"))
    steps = (
        Step(0.05, "misconfigure", policy),
        Step(0.1, "produce", one),
        Step(0.6, "close", {"app": "app0"}),
        Step(1.5, "produce", other),
        Step(2.5, "compact", {"topic": "counted"}),
        *kills(2.6),
        *(Step(at, "restart", {"app": "app0"}) for at in (3.2, 3.5, 3.8, 4.1, 4.4)),  # by chance with its last ids
    )
    outcome = worker.play(History(seed, Shape(nodes=2), 5.0, steps, {"latency": 0.002}))
    assert outcome.wrong == []
    assert outcome.effects["node killed"]
