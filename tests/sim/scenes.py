"""Scenes: a few steps that belong together, at moments that chance does not bring, added to a history by its seed.

Each is a function of the history and of a stream of chance that nothing else draws from. A step `as asked` takes
another one as a broker answers a node: in the middle of a takeover, between a decision and its record.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.sim.history import History, Step

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS: Final = frozenset({"as asked", "together", "remake shadow"})
"""Of steps that scenes alone have."""
_INIT_PRODUCER_ID, _ADD_PARTITIONS, _END_TXN, _DESCRIBE_PRODUCERS, _PRODUCE, _FETCH = 22, 24, 26, 61, 0, 1
_OF_A_TAKEOVER: Final = (_INIT_PRODUCER_ID, _ADD_PARTITIONS, _END_TXN, _END_TXN, _DESCRIBE_PRODUCERS, _FETCH, _PRODUCE)
_STOPS: Final = frozenset({"freeze node", "suspend node"})
_A_DAY_S: Final = 45.0
"""In a brief world: longer than brokers remember a producer, and than any lease."""
_WORDS: Final = ("policy", "policy", "change shadow", "change shadow", "make shadow", "delete policy", "delete shadow")


def add(history: History) -> History:
    """The history with a scene."""
    rng = random.Random(f"{history.seed} scenes")
    found = rng.choice(_SCENES)(rng, history)
    return replace(found, steps=tuple(sorted(found.steps, key=lambda step: step.at)))


def produce(rng: random.Random, at: float, topic: str, app: str, **more: Any) -> Step:
    args = {
        "app": app, "topic": topic, "library": rng.choice(("java", "java", "librdkafka", "sarama", "franz-go")),
        "mode": "", "ids": topic in ("counted", "ledger", "tallied"), "every": 0.02, "batches": 60, "burst": 2,
        "partitions": 2,
    }  # fmt: skip
    return Step(round(at, 4), "produce", {**args, **more})


def with_steps(history: History, *steps: Step, **more: Any) -> History:
    return replace(history, steps=(*history.steps, *steps), **more)


def _through_two(rng: random.Random, history: History) -> History:
    """A client pipelines through two nodes at once: part of its batches go to one that does not lead, while leaders
    move.
    """
    shape = replace(history.shape, nodes=max(2, history.shape.nodes))
    topic = rng.choice(("owned", "shared", "counted", "ordinary", "ordinary", "split", "tallied"))
    library, roams = rng.choice(("java", "java", "librdkafka")), rng.choice((0.1, 0.3, 0.5))
    if topic == "ordinary":
        roams = 0.0  # a broker, too, takes a later batch of a producer that it does not know, and refuses the first
    work = [
        produce(rng, rng.uniform(0.0, 0.3), topic, f"roaming{number}", library=library, roams=roams)
        for number in range(rng.choice((1, 1, 2)))
    ]
    moves = [
        Step(round(rng.uniform(0.3, history.length), 4), *rng.choice(_MOVES)(rng, shape.nodes, topic))
        for _ in range(rng.choice((1, 2, 3)))
    ]
    return with_steps(history, *work, *moves, shape=shape)


_MOVES: Final[tuple[Callable[[random.Random, int, str], tuple[str, dict[str, Any]]], ...]] = (
    lambda rng, nodes, topic: ("freeze node", {"node": rng.randint(1, nodes), "lasts": 0.9, "timers_first": False}),
    lambda rng, nodes, topic: ("drain node", {"node": rng.randint(1, nodes), "lasts": 0.3}),
    lambda rng, nodes, topic: ("cut path", {"node": rng.randint(1, nodes), "other": "redis", "lasts": 0.9}),
    lambda rng, nodes, topic: ("elect", {"topic": topic, "partition": rng.randint(0, 1), "broker": rng.randint(1, 3)}),
    lambda rng, nodes, topic: ("reset", {"node": rng.randint(1, nodes), "other": "clients", "share": 0.5}),
)


def _suspended(rng: random.Random, history: History) -> History:
    """A node is suspended for longer than a lease, and than brokers remember a producer, while it carries out what an
    operator said. Others say something else meanwhile.
    """
    shape = replace(history.shape, nodes=max(2, history.shape.nodes), brief=True)
    topic, shadow = rng.choice(("owned", "queued", "ordinary")), rng.choice(("mirror", "mirror", "extra1"))
    first, later = rng.choice(_WORDS), rng.choice((_A_DAY_S / 3, _A_DAY_S * 0.8))
    about = {"topic": "owned" if "shadow" in first else topic, "shadow": shadow}
    kind = "shadow" if "shadow" in first else "policy"
    of = f"{shadow if kind == 'shadow' else topic}/{kind}"
    at = round(rng.uniform(0.2, 0.8), 4)
    second = rng.choice([word for word in _WORDS if kind in word])
    suspend = {"kind": "suspend node", "args": {"node": 0, "lasts": _A_DAY_S}}
    asked = {
        "api": rng.choice((_INIT_PRODUCER_ID, _ADD_PARTITIONS, _END_TXN)),
        "after": rng.choice((0, 0, 1)),
        "of": of,
    }
    if rng.random() < 0.5:  # the last question of a fence
        asked = {"api": _DESCRIBE_PRODUCERS, "after": 0, "of": "__sidecar_default"}
    steps = [
        Step(at, "as asked", {**asked, **suspend}),
        Step(at + 0.01, "together", {"acts": ((1, first),), **about}),
        Step(at + later, "together", {"acts": ((2, second),), **about}),
        Step(at + later + 1.0, "together", {"acts": ((2, rng.choice([w for w in _WORDS if kind in w])),), **about}),
    ]
    quiet = tuple(step for step in history.steps if step.kind not in _STOPS and step.kind != "produce")
    return replace(history, steps=(*quiet, *steps), shape=shape, length=at + _A_DAY_S + 3.0)


def _takeover(rng: random.Random, history: History, kind: str, args: dict[str, Any], topic: str) -> list[Step]:
    """Two applications take a topic from each other, and something happens in the middle of that."""
    at = rng.uniform(0.3, 0.8)
    asked = {"api": rng.choice(_OF_A_TAKEOVER), "after": rng.choice((0, 0, 1, 2, 3)), "of": topic}
    return [
        produce(rng, 0.05, topic, "holder", mode="exclusive_with_fencing"),
        Step(round(at, 4), "as asked", {**asked, "kind": kind, "args": args}),
        produce(rng, at + 0.01, topic, "taker", mode="exclusive_with_fencing"),
    ]


def _forgetful(rng: random.Random, history: History) -> History:
    """Redis is emptied in the middle of a takeover."""
    topic = rng.choice(("owned", "ledger", "split", "tallied", "queued"))
    return with_steps(history, *_takeover(rng, history, "empty redis", {}, topic))


def _anew(rng: random.Random, history: History) -> History:
    """A topic is deleted, and created anew, in the middle of a takeover, and readers of its shadow wait."""
    readers = [
        Step(round(rng.uniform(0.0, 0.5), 4), "consume", {"topic": rng.choice(("mirror", "mirror", "owned")), **more})
        for more in rng.choices(({}, {"shares": True}), k=rng.choice((2, 4)))
    ]
    lasts = round(rng.choice((0.005, 0.05, 0.3)) * rng.uniform(0.5, 1.5), 4)
    steps = _takeover(rng, history, "delete topic", {"topic": "owned", "lasts": lasts}, "owned")
    return with_steps(history, *steps, *readers)


def _at_once(rng: random.Random, history: History) -> History:
    """Two nodes are asked to change the same policy, or shadow, at the same moment; more than once."""
    shape = replace(history.shape, nodes=max(2, history.shape.nodes))
    topic, shadow = rng.choice(("owned", "ordinary", "shared")), rng.choice(("mirror", "extra1"))
    steps: list[Step] = []
    for _ in range(rng.choice((1, 2, 3))):
        kind = rng.choice(("policy", "shadow"))
        words = [rng.choice([word for word in _WORDS if kind in word]) for _ in range(rng.choice((2, 2, 3)))]
        acts = tuple((1 + number % shape.nodes, word) for number, word in enumerate(words))
        about = {"topic": "owned" if kind == "shadow" else topic, "shadow": shadow}
        steps.append(Step(round(rng.uniform(0.1, history.length), 4), "together", {"acts": acts, **about}))
    return with_steps(history, *steps, shape=shape)


def _remade(rng: random.Random, history: History) -> History:
    """A shadow is deleted and created again, over its source or another one, and its readers wait."""
    readers = [
        Step(round(rng.uniform(0.0, 0.5), 4), "consume", {"topic": "mirror", "resets": True, **more})
        for more in rng.choices(({}, {"shares": True}), k=rng.choice((2, 3, 5)))
    ]
    remakes = [
        Step(
            round(rng.uniform(0.3, history.length + 0.5), 4),
            "remake shadow",
            {
                "shadow": "mirror",
                "source": rng.choice(("owned", "owned", "shared")),
                "gap": rng.choice((0.0, 0.02, 0.3)),
            },
        )
        for _ in range(rng.choice((1, 1, 2)))
    ]
    quiet = tuple(step for step in history.steps if step.kind not in _STOPS)
    work = [produce(rng, 0.05, topic, f"source-{topic}") for topic in ("owned", "shared")]
    return replace(history, steps=(*quiet, *work, *readers, *remakes), length=history.length + 1.0)


_SCENES: Final[tuple[Callable[[random.Random, History], History], ...]] = (
    *(_through_two,) * 3, _suspended, *(_forgetful,) * 2, *(_anew,) * 2, *(_at_once,) * 3, *(_remade,) * 3,
)  # fmt: skip
