"""Two releases in one cluster: nodes of the last one are replaced by today's, and back."""

from __future__ import annotations

import pytest

from tests.sim import former, histories
from tests.sim.history import History, Step
from tests.sim.worker import Worker
from tests.sim.world import Shape

NEEDS_HISTORY = pytest.mark.skipif(bool(former.missing()), reason=former.missing() or "the last release is there")


def _produce(app: str, topic: str, **more: object) -> Step:
    args = {
        "app": app, "topic": topic, "library": "java", "mode": "", "ids": topic == "counted", "every": 0.03,
        "batches": 60, "burst": 2, "partitions": 2,
    }  # fmt: skip
    return Step(0.1, "produce", {**args, **more})


def _replace(at: float, node: int, *, back: bool = False) -> Step:
    return Step(at, "replace node", {"node": node, "former": back, "drains": True, "lasts": 0.1})


@NEEDS_HISTORY
def test_writers_go_on_through_an_upgrade_and_the_way_back() -> None:
    steps = (
        *(_produce(f"app{number}", topic) for number, topic in enumerate(("owned", "shared", "counted"))),
        _replace(0.4, 1), _replace(1.0, 2), _replace(1.6, 1, back=True), _replace(2.2, 2, back=True),
    )  # fmt: skip
    history = History(1, Shape(nodes=2, former=(1, 2)), 2.8, steps, {"latency": 0.0005})
    with Worker(notices=True) as worker:
        outcome = worker.play(history)
    assert outcome.wrong == []
    assert outcome.delivered > 200
    assert {"goes to today's", "goes back"} <= outcome.situations.keys()


def test_a_clone_without_history_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former, "COMMIT", "0" * 40)
    monkeypatch.setattr(former, "_TREE", former.ROOT / ".cache" / "nothing")
    assert former.missing.__wrapped__().startswith("this clone has no commit 000")


def test_histories_of_two_releases_begin_with_the_last_one() -> None:
    for seed in range(5):
        history = histories.make(seed, histories.MIXES["releases"])
        assert history.shape.former == (1, 2, 3)
        assert any(step.kind == "replace node" for step in history.steps)
