"""What removes records: a share of histories has some of it (`add`), by chances of its own.

Records go by retention, DeleteRecords and compaction; replicas are rebuilt from what is left of their log, and know of
producers what that says; a topic goes, and another one comes under its name.

What a node cannot know beforehand is left out: records of topics with sequence ids are deleted through nodes alone
(`docs/use/deduplication.md`), and such a topic is compacted before clients come.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.sim.history import History, Step
from tests.sim.scenes import produce, with_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS: Final = frozenset({"configure", "clean", "empty topic", "purge", "rebuild", "lose disk", "stop broker"})
"""Of steps that have to do with it."""
WITH_IDS: Final = ("counted", "ledger", "tallied")
_WITHOUT_IDS: Final = ("owned", "owned", "queued", "shared", "split", "ordinary")
_CHANGE_POLICIES: Final = frozenset({"policy", "operate", "together"})
_SETTLED_S: Final = 0.3
"""After this time all brokers know how a topic is cleaned."""
_NOTICED_S: Final = 1.5
"""So long after its first record a node has seen that a topic is compacted, and protected its ids."""
_FOREVER_MS: Final = "86400000"


def add(history: History) -> History:
    """The history with something that removes records."""
    rng = random.Random(f"{history.seed} removals")
    found = rng.choice(_WAYS)(rng, history)
    return replace(found, steps=tuple(sorted(found.steps, key=lambda step: step.at)))


def _moment(rng: random.Random, begin: float, end: float) -> float:
    return round(rng.uniform(begin, end), 4)


def _later(history: History, seconds: float) -> History:
    """Everything so much later."""
    steps = tuple(replace(step, at=round(step.at + seconds, 4)) for step in history.steps)
    return replace(history, steps=steps, length=round(history.length + seconds, 4))


def _kill(rng: random.Random, history: History, at: float) -> list[Step]:
    """One node, or all."""
    nodes = list(range(1, history.shape.nodes + 1))
    fuse, lasts = rng.choice((1, 1, 30, 200)), _moment(rng, 0.1, 0.8)
    return [
        Step(at, "kill node", {"node": node, "fuse": fuse, "lasts": lasts, "silently": False})
        for node in rng.choice((nodes, nodes, [rng.choice(nodes)]))
    ]


def _forgets(rng: random.Random, at: float, topic: str) -> list[Step]:
    """A replica loses what its log does not say, and leads."""
    broker, partition, lasts = rng.randint(1, 3), rng.randint(0, 1), _moment(rng, 0.1, 1.5)
    kind = rng.choice(("rebuild", "rebuild", "lose disk", "stop broker", "kill broker"))
    if kind == "rebuild":
        return [Step(at, kind, {"topic": topic, "partition": partition, "broker": broker, "lasts": lasts})]
    leads = Step(round(at + lasts + 3.5, 4), "elect", {"topic": topic, "partition": partition, "broker": broker})
    return [Step(at, kind, {"broker": broker, "lasts": lasts}), leads]


def _some(rng: random.Random, history: History) -> History:
    """Anything, at any time, beside what else the history has."""
    has_ids = any(step.kind in _CHANGE_POLICIES for step in history.steps)
    topics = [step.args["topic"] for step in history.steps if step.kind == "produce"]
    free = [topic for topic in topics if topic not in WITH_IDS and not has_ids]
    steps: list[Step] = []
    for _ in range(rng.choice((1, 2, 4))):
        at, broker = _moment(rng, 0.1, history.length), rng.randint(1, 3)
        lasts = _moment(rng, 0.05, 1.5)
        kind = rng.choice(("empty topic", "purge", "purge", "rebuild", "lose disk", "stop broker"))
        if kind == "empty topic" and not free:
            kind = "purge"
        args: dict[str, Any] = {
            "empty topic": {"topic": rng.choice(free or ["owned"])},
            "purge": {"topic": rng.choice(topics or ["owned"])},
            "rebuild": {"topic": "busy", "partition": rng.randint(0, 1), "broker": broker, "lasts": lasts},
        }.get(kind, {"broker": broker, "lasts": lasts})
        steps.append(Step(at, kind, args))
    return with_steps(history, *steps)


def _cleaned(rng: random.Random, history: History) -> History:
    """A topic is compacted, or has a short retention, while applications with the same keys come and go, nodes die and
    replicas are built anew.
    """
    topic = rng.choice((*WITH_IDS, *WITH_IDS, *_WITHOUT_IDS))
    has_ids = topic in WITH_IDS
    compacts = has_ids or rng.random() < 0.6
    settings = {"segment.ms": rng.choice(("1", "50")), "min.cleanable.dirty.ratio": rng.choice(("0", "0.5"))}
    if compacts:
        policy = "compact" if has_ids else rng.choice(("compact", "compact", "compact,delete"))
        settings |= {"cleanup.policy": policy, "delete.retention.ms": rng.choice(("0", "100", _FOREVER_MS))}
    if not compacts or "delete" in settings["cleanup.policy"]:
        settings |= rng.choice(({"retention.ms": "300"}, {"retention.bytes": "2000"}))
    after = _NOTICED_S if has_ids else 0.0
    length = max(min(history.length, 4.0), _moment(rng, 1.5, 3.0) + after)
    apps = [f"keyed{number}" for number in range(rng.choice((1, 2, 2, 3)))]
    steps: list[Step] = []
    for number, app in enumerate(apps):
        key = rng.choice((b"k0", b"k0", b"k0", b"k1")) if compacts else None
        at = _moment(rng, 0.0, length / 2) if number else 0.05
        batches, every = rng.choice((8, 8, 60)), rng.choice((0.02, 0.02, 0.1))
        steps.append(
            produce(rng, at, topic, app, key=key, batches=batches, every=every, burst=1, partitions=rng.choice((1, 2)))
        )
        if rng.random() < 0.4:
            step = rng.choice(("restart", "close"))
            steps.append(Step(_moment(rng, at, length), step, {"app": app}))
    cleans = {"topic": topic, "after": after}
    steps += [Step(_moment(rng, 0.3 + after, length), "clean", cleans) for _ in range(rng.choice((2, 4, 6)))]
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = _moment(rng, 0.3 + after, length)
        steps += _kill(rng, history, at)
        steps += [
            Step(_moment(rng, at + 0.5, at + 2.0), "restart", {"app": app})
            for app in apps
            for _ in range(rng.choice((0, 1, 3)))
        ]
    for _ in range(rng.choice((0, 0, 1, 2))):
        steps += _forgets(rng, _moment(rng, 0.3, length), topic)
    if rng.random() < 0.5:
        reads = "mirror" if topic == "owned" else topic
        steps.append(Step(_moment(rng, 0.0, length), "consume", {"topic": reads}))
    others = tuple(step for step in history.steps if not (compacts and step.args.get("topic") == topic))
    later = _later(with_steps(replace(history, steps=others), *steps, length=length + 2.0), _SETTLED_S)
    return with_steps(later, Step(0.0, "configure", {"topic": topic, "settings": settings}))


def _purged(rng: random.Random, history: History) -> History:
    """A client deletes, through nodes, what it has read of a topic, and nodes die."""
    topic = rng.choice((*WITH_IDS, *WITH_IDS, "owned", "split"))
    length = max(history.length, _moment(rng, 1.2, 3.0))
    steps = [
        produce(
            rng, 0.05 + number * 0.2, topic, f"purged{number}", batches=rng.choice((20, 60)), burst=rng.choice((1, 2))
        )
        for number in range(rng.choice((1, 1, 2)))
    ]
    for _ in range(rng.choice((1, 2, 3))):
        at = _moment(rng, 0.3, length)
        steps.append(Step(at, "purge", {"topic": topic}))
        if rng.random() < 0.7:
            steps += _kill(rng, history, _moment(rng, at, at + 0.5))
        if rng.random() < 0.3:
            steps += _forgets(rng, _moment(rng, at, at + 0.5), topic)
    steps += [
        Step(_moment(rng, 0.5, length + 1.0), "restart", {"app": "purged0"}) for _ in range(rng.choice((0, 1, 2)))
    ]
    return with_steps(history, *steps, length=round(length + 1.0, 4))


def _deposed(rng: random.Random, history: History) -> History:
    """What a node sent before it died is under way for seconds. Meanwhile another session gets the topic, its records
    and the fence's marker are deleted, and replicas are built from the log, or read it again.
    """
    topic = rng.choice(("owned", "queued", "ledger", "split", "tallied", "owned", "shared"))
    shape = replace(history.shape, nodes=2, brief=False)
    cut = _moment(rng, 0.5, 1.0)
    lasts = _moment(rng, 10.0, 14.0)
    node = rng.randint(1, 2)
    old = produce(rng, 0.05, topic, "deposed", batches=300, every=0.01)
    dies = [
        *[Step(cut, "cut path", {"node": node, "other": f"kafka-{each}", "lasts": lasts}) for each in (1, 2, 3)],
        Step(round(cut + 0.2, 4), "kill node", {"node": node, "fuse": 1, "lasts": lasts + 2.0, "silently": False}),
        Step(round(cut + 0.3, 4), "close", {"app": "deposed"}),
    ]
    at = _moment(rng, cut + 0.4, cut + 1.0)
    mode = rng.choice(("", "exclusive_with_fencing"))
    new = produce(rng, at, topic, "successor", mode=mode, partitions=1, batches=rng.choice((5, 40)))
    removed = _moment(rng, at + 1.5, at + 3.0)
    kind = "purge" if topic in WITH_IDS else rng.choice(("empty topic", "empty topic", "purge"))
    steps = [old, *dies, new, *[Step(round(removed + again, 4), kind, {"topic": topic}) for again in (0.0, 0.4)]]
    for _ in range(rng.choice((1, 2))):
        steps += _forgets(rng, _moment(rng, removed + 0.6, removed + 2.0), topic)
    return replace(history, steps=tuple(steps), shape=shape, length=round(cut + lasts + 1.0, 4), compares=False)


def _reborn(rng: random.Random, history: History) -> History:
    """The source of a shadow is deleted, and created again at once, while readers by name and by id come to one node
    or the other, and somebody writes on.
    """
    source = rng.choice(("owned", "ordinary", "ordinary", "ordinary", "shared"))
    shape = replace(history.shape, nodes=rng.choice((2, 3, 3)), brief=False)
    # librdkafka takes what the former topic lost for delivered, with a node or without, as a later batch is.
    library = rng.choice(("java", "java", "sarama", "franz-go"))
    steps = [produce(rng, _moment(rng, 0.7, 0.9), source, "writer", library=library, every=0.005, batches=400, burst=1)]
    if source != "owned":
        steps.append(Step(0.05, "remake shadow", {"shadow": "mirror", "source": source, "gap": 0.0}))
    for number in range(rng.choice((3, 5, 8))):
        member = {"group": f"group{number}", "topic": "mirror", "joins": rng.random() < 0.1, "slow": 0.2}
        by_version = {**member, "version": rng.choice((7, 11, 12, 13))}
        reader: Sequence[tuple[str, dict[str, Any]]] = (
            ("join", member), ("join", member), ("join", by_version), ("consume", {"topic": "mirror"}),
        )  # fmt: skip
        steps.append(Step(_moment(rng, 0.6, 1.1), *rng.choice(reader)))
    lasts = rng.choice((0.005, 0.005, 0.05))
    steps += [
        Step(_moment(rng, 1.1, 2.0), "delete topic", {"topic": source, "lasts": lasts})
        for _ in range(rng.choice((1, 2, 3)))
    ]
    return replace(history, steps=tuple(steps), shape=shape, length=2.6)


_WAYS: Final[tuple[Callable[[random.Random, History], History], ...]] = (
    *(_some,) * 3, *(_cleaned,) * 4, *(_purged,) * 2, *(_deposed,) * 2, *(_reborn,) * 2,
)  # fmt: skip
