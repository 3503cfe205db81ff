"""Histories by seed: which steps there are when, drawn from a `Mix`.

What one part draws comes from a stream of chance of its own, or stays as it was: so seeds that are kept, with the mix
of their time, mean what they meant.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tests.sim import corners, crossings, releases, removals, scenes, wide
from tests.sim.history import History, Step
from tests.sim.kafka.errors import BEHIND_APPEND
from tests.sim.operators import ACTIONS
from tests.sim.strangers import KINDS
from tests.sim.world import TIGHT, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

WORST: Final = frozenset({"lose records"}) | crossings.KINDS | corners.KINDS
"""Faults that are not in `FAULTS`: one takes more time than others, some are of crossings and corners alone."""
WORK: Final = scenes.KINDS | removals.KINDS | frozenset(
    {
        "produce", "restart", "renew", "close", "consume", "own", "policy", "claim", "join", "stranger", "transact",
        "operate", "replace node",
    }
)  # fmt: skip
"""Kinds of steps that are no faults."""
_LIBRARIES: Final = ("java",) * 3 + ("librdkafka",) * 2 + ("sarama", "franz-go", "aiokafka") + ("plain",) * 2
_TOPICS: Final = (
    "owned", "owned", "queued", "shared", "counted", "ledger", "split", "ordinary", "tallied", "guarded", "counted",
)  # fmt: skip
_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "owned": ("", "", "exclusive", "exclusive_with_fencing", "wait_for_exclusive"),
    "queued": ("", "wait_for_exclusive", "exclusive_with_fencing"),
    "shared": ("", "", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"),
    "counted": ("", "", "", "exclusive_with_fencing"),
    "ledger": ("", "exclusive_with_fencing", "wait_for_exclusive"),
    "split": ("", "wait_for_exclusive", "exclusive_with_fencing"),
    "ordinary": ("", "", "", "exclusive"),
    "tallied": ("", "wait_for_exclusive", "exclusive_with_fencing"),
    "guarded": ("", "", "exclusive"),
}
WEIGHTS: Final = {
    "kill node": 8, "freeze node": 6, "refuse": 6, "kill broker": 4, "elect": 4, "cut path": 4, "reset": 4,
    "suspend node": 2, "drain node": 2, "jump clock": 2, "freeze broker": 2, "elect unclean": 2, "grow": 2,
    "compact": 2, "lag metadata": 2, "hold markers": 2, "move coordinator": 2, "cut brokers": 2, "empty fetches": 2,
    "empty redis": 2, "roll back redis": 2, "silence redis": 2, "stop redis": 2, "lose answers": 2,
}  # fmt: skip
"""How much more often than others a kind of fault is chosen."""
_WITH_IDS_LIST: Final = ("counted", "ledger", "tallied")
_WITH_IDS: Final = frozenset(_WITH_IDS_LIST)
_BY_PARTITION: Final = frozenset({"split", "tallied"})
_SETTINGS: Final = (
    ("__sidecar_default", "min.insync.replicas", "1"),
    ("__sidecar_default", "delete.retention.ms", "1000"),
    ("__sidecar_default", "cleanup.policy", "delete"),
    ("__sidecar_default_events", "retention.ms", "1000"),
    ("__sidecar_default_snapshots", "max.message.bytes", "1000"),
)
_LONG_S: Final = 150.0
_SHORT_S: Final = 5.0
_TODAY: Final[Mapping[str, tuple[int, ...]]] = {
    "produce": (9, 10, 11, 12, 13, 13, 13), "join": (5, 7, 9, 11, 12, 13, 15, 16, 17, 18, 18),
}  # fmt: skip
"""Versions of Produce and Fetch."""


@dataclass(frozen=True, slots=True)
class Mix:
    """How long histories are, in seconds, and which share of them has what takes much time: brokers that forget
    producers, readers of a shadow that come back, ownership records that are lost, minutes in which little happens.
    `compared` end with a comparison of answers, and in `by_id` readers name topics by id: each has a stream of chance
    of its own, so that the rest of what a seed plays stays. `readers`: which share has so many of one topic that they
    wait together. `versions`: of how many clients requests are in a version of today, by topic id in part. `scenes`:
    which share has one of those that chance does not bring (`scenes`). `removals`: which share of all histories has
    something that removes records (`removals`). `crossings`: which share of the others has two things at once
    (`crossings`). `corners`: which share of what is plain still has a moment that crossings do not bring (`corners`).
    `wide`: which share is long, with many partitions and sessions (`wide`). `releases`: which share begins with nodes
    of the last release, and upgrades them (`releases`).
    """

    seconds: tuple[float, float] = (0.7, 1.5)
    brief: float = 0.03
    shadows: float = 0.03
    losses: float = 0.02
    long: float = 0.003
    compared: float = 0.25
    by_id: float = 0.25
    readers: float = 0.05
    versions: float = 0.3
    scenes: float = 0.15
    removals: float = 0.2
    crossings: float = 0.5
    corners: float = 0.9
    wide: float = 0.02
    releases: float = 0.02


USUAL: Final = Mix()
BEFORE_CROSSINGS: Final = replace(USUAL, crossings=0.0, corners=0.0, wide=0.0, releases=0.0)
"""What seeds meant before there were crossings."""
RARE: Final = replace(BEFORE_CROSSINGS, scenes=1.0, removals=0.0)
"""Nothing but histories with a scene."""
BEFORE_SCENES: Final = replace(BEFORE_CROSSINGS, versions=0.0, scenes=0.0, removals=0.0)
"""What seeds meant when those of `test_seeds.FOUND_LAST` were found."""
FIRST: Final = replace(BEFORE_SCENES, seconds=(1.5, 4.0), brief=0.05, shadows=0.05, losses=0.025, long=0.015,
                       compared=0.0, by_id=0.0, readers=0.0)  # fmt: skip
"""The same, of `test_seeds.FOUND`."""
BY_NAME: Final = replace(BEFORE_SCENES, seconds=(0.8, 1.8), by_id=0.0)
"""The same, of `test_seeds.FOUND_LATER`."""
REMOVALS: Final = replace(BEFORE_CROSSINGS, removals=1.0)
"""Nothing but histories that remove records."""
MIXES: Final[Mapping[str, Mix]] = {
    "usual": USUAL, "rare": RARE, "removals": REMOVALS, "wide": replace(USUAL, wide=1.0),
    "crossings": replace(USUAL, crossings=1.0, removals=0.0, scenes=0.0, wide=0.0, releases=0.0),
    "corners": replace(USUAL, crossings=0.0, corners=1.0, removals=0.0, scenes=0.0, wide=0.0, releases=0.0),
    "releases": replace(USUAL, releases=1.0, wide=0.0),
}  # fmt: skip


def make(seed: int, mix: Mix = USUAL) -> History:
    """The history of a seed."""
    rng = random.Random(f"{seed} history")
    brief = rng.random() < mix.brief
    settings = TIGHT if not brief and rng.random() < 0.08 else ()
    shape = Shape(nodes=rng.choice((1, 2, 2, 2, 3)), brief=brief, settings=settings)
    length = round(rng.uniform(*mix.seconds) if not brief else rng.uniform(8.0, 25.0), 2)
    steps = [*_work(rng, length), *_guests(rng, length), *_faults(rng, length, shape)]
    if rng.random() < mix.shadows:
        length += 8.0
        steps += _shadows(rng, length)
    if rng.random() < mix.losses:
        steps.append(Step(round(rng.uniform(0.1, 0.5), 4), "lose records", {"broker": rng.randint(1, 3)}))
        length += 5.0
    if rng.random() < mix.long:
        steps += _long(rng, length)
        length += _LONG_S
    steps += _readers(seed, mix, length)
    weather = {
        "latency": rng.choice((0.0002, 0.0005, 0.002)),
        "spikes": rng.choice((0.0, 0.0, 0.01, 0.05)),
        "spike_s": rng.choice((0.02, 0.1, 0.4)),
        "splits": rng.choice((0.0, 0.02, 0.2)),
    }
    compares = random.Random(f"{seed} compares").random() < mix.compared
    by_id = random.Random(f"{seed} by id").random() < mix.by_id
    steps = list(_of_today(seed, mix, steps))
    history = History(seed, shape, length, _in_order(steps), weather, compares, by_id)
    if random.Random(f"{seed} wide").random() < mix.wide:
        return wide.make(history, FAULTS)
    if random.Random(f"{seed} releases").random() < mix.releases:
        return releases.make(history, FAULTS)
    if random.Random(f"{seed} removes").random() < mix.removals:
        return removals.add(history)
    if random.Random(f"{seed} scene").random() < mix.scenes:
        return scenes.add(history)
    if brief or length >= _SHORT_S:
        return history  # what takes long by itself has crossings enough
    if random.Random(f"{seed} crosses").random() < mix.crossings:
        return crossings.add(history)
    return corners.add(history) if random.Random(f"{seed} has a corner").random() < mix.corners else history


def _in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda step: step.at))


def _of_today(seed: int, mix: Mix, steps: Iterable[Step]) -> Iterator[Step]:
    """Some clients send later versions: of Produce up to the one by topic id, of Fetch as members of groups."""
    rng = random.Random(f"{seed} versions")
    for step in steps:
        versions = _TODAY.get(step.kind)
        if versions is None or rng.random() >= mix.versions:
            yield step
        else:
            yield replace(step, args={**step.args, "version": rng.choice(versions)})


# What applications do ---------------------------------------------------------------------------------------------


def _work(rng: random.Random, length: float) -> Iterator[Step]:
    topics = rng.sample(_TOPICS, rng.choice((1, 1, 2)))
    for number in range(rng.choice((1, 2, 2, 3))):
        topic, app = rng.choice(topics), f"app{number}"
        start = rng.uniform(0.0, length * 0.6) if number else rng.uniform(0.0, 0.3)
        yield Step(round(start, 4), "produce", _producer(rng, app, topic, length - start))
        again = start
        while rng.random() < 0.3 and again < length:
            again = rng.uniform(again, length)
            yield Step(round(again, 4), rng.choice(("restart", "restart", "close", "renew")), {"app": app})
    if rng.random() < 0.5:
        topic = rng.choice(topics)
        yield Step(
            round(rng.uniform(0.0, length / 2), 4), "consume", {"topic": "mirror" if topic == "owned" else topic}
        )
    if rng.random() < 0.15:
        topic = rng.choice(topics)
        wanted = {"deduplication": True} if topic == "shared" else {"access_mode": rng.choice(("exclusive", "shared"))}
        if topic not in _WITH_IDS and topic != "split":
            yield Step(round(rng.uniform(0.0, length), 4), "policy", {"topic": topic, **wanted})
    if rng.random() < 0.3:
        topic = rng.choice(topics)
        if topic not in ("ordinary", "shared", "counted", "guarded"):
            mode = rng.choice(("exclusive", "wait_for_exclusive", "exclusive_with_fencing"))
            partition = 0 if topic in _BY_PARTITION else -1
            args = {"topic": topic, "partition": partition, "mode": mode, "lasts": _lasts(rng)}
            yield Step(round(rng.uniform(0.0, length), 4), "own", args)


def _readers(seed: int, mix: Mix, length: float) -> Iterator[Step]:
    """So many readers of one topic that they wait together. By chances of their own: other steps stay as they are."""
    rng = random.Random(f"{seed} readers")
    if rng.random() < mix.readers:
        topic = rng.choice(("mirror", "owned", "ordinary", "shared"))
        for _ in range(rng.choice((5, 8))):
            yield Step(round(rng.uniform(0.0, length), 4), "consume", {"topic": topic, "shares": True})


def _guests(rng: random.Random, length: float) -> Iterator[Step]:
    """Clients of the other APIs, operators, clients with mistakes: in some histories, few at a time."""

    def moment() -> float:
        return round(rng.uniform(0.0, length), 4)

    if rng.random() < 0.2:
        for _ in range(rng.choice((1, 2, 3, 4))):
            yield Step(moment(), "claim", _claim(rng))
    if rng.random() < 0.2:
        topic = rng.choice(("mirror", "mirror", "mirror", "guarded", "ordinary", "extra1"))
        for _ in range(rng.choice((1, 1, 2))):
            group, joins = f"group{rng.randrange(2)}", rng.random() < 0.4
            args = {"group": group, "topic": topic, "joins": joins, "slow": rng.choice((0.05, 0.3))}
            yield Step(round(moment() / 2, 4), "join", args)
    if rng.random() < 0.2:
        for _ in range(rng.choice((1, 2, 4))):
            topic = rng.choice((*[name for name in _TOPICS if name != "ordinary"], *_WITH_IDS_LIST))
            args = {"topic": topic, "partition": rng.randint(0, 1), "what": rng.choice(KINDS)}
            yield Step(moment(), "stranger", args)
    if rng.random() < 0.05:
        yield Step(moment(), "transact", {"topic": "ordinary", "governed": rng.choice(("owned", "shared"))})
    if rng.random() < 0.25:
        for _ in range(rng.choice((1, 2, 4))):
            yield Step(moment(), "operate", _operation(rng))


def _operation(rng: random.Random) -> dict[str, Any]:
    topic, action = rng.choice(_TOPICS), rng.choice((*sorted(ACTIONS), "make shadow"))
    shadow = rng.choice(("mirror", "mirror", "extra1", "extra2"))
    if action in ("forget", "producers"):
        topic = rng.choice(_WITH_IDS_LIST)
    if shadow == "mirror" and action in ("delete shadow", "cursors", "reset cursor", "change shadow"):
        topic = "owned"
    return {"action": action, "topic": topic, "shadow": shadow}


def _claim(rng: random.Random) -> dict[str, Any]:
    lasts, mode = _lasts(rng), ""
    kind = rng.choice(("strings", "strings", "reading", "reading", "writing"))
    found: dict[str, Any] = {"group": "", "strings": 0, "topic": "", "partitions": [], "mode": mode, "lasts": lasts}
    if kind == "strings":
        return {**found, "strings": rng.choice((1, 1, 2)), "group": rng.choice(("", "", "group0"))}
    topic = rng.choice(("guarded", "guarded", "owned", "ordinary"))
    partitions = rng.choice(([], [0], [1], [0, 1]))
    if kind == "reading":
        return {**found, "group": f"group{rng.randrange(2)}", "topic": topic, "partitions": partitions}
    topic = rng.choice(("owned", "queued", "ledger", "split", "tallied"))
    return {**found, "topic": topic, "partitions": partitions if topic in _BY_PARTITION else []}


def _shadows(rng: random.Random, length: float) -> Iterator[Step]:
    """Readers of a shadow that come back when their cursor is far behind; then its source, or itself, is gone."""
    args = {"library": "java", "mode": "", "ids": False, "every": 0.1, "batches": 40, "burst": 2, "partitions": 2}
    yield Step(0.05, "produce", {"app": "source", "topic": "owned", **args})
    for at, action in ((0.1, "limit shadow"), (rng.uniform(2.0, length), "cursors"), (3.0, "reset cursor")):
        yield Step(at, "operate", {"action": action, "topic": "owned", "shadow": "mirror"})
    group, joins = f"group{rng.randrange(2)}", rng.random() < 0.5
    for at in (0.2, 2.5, 3.5, 4.5):
        member = {"group": group, "topic": "mirror", "joins": joins, "slow": 0.02, "lasts": 0.4}
        yield Step(at, "join", member)
    end = rng.choice(("source", "shadow", "by the node", "grow", "nothing"))
    at = round(rng.uniform(1.0, 5.0), 4)
    if end == "by the node":
        yield Step(at, "operate", {"action": "delete source", "topic": "owned", "shadow": "mirror"})
    elif end == "grow":
        yield Step(at, "grow")
    elif end != "nothing":
        topic = "owned" if end == "source" else "mirror"
        yield Step(at, "delete topic", {"topic": topic, "lasts": rng.uniform(2.0, 9.0)})


def _long(rng: random.Random, behind: float) -> Iterator[Step]:
    """More than two minutes in which little happens: what nodes do by the minute, topics that are gone for good."""
    topic = rng.choice(("owned", "counted", "ledger", "busy", "split"))
    yield Step(round(behind + 0.5, 4), "delete topic", {"topic": topic, "lasts": _LONG_S - 5.0})
    for number in range(5):
        args = {"action": "touch", "topic": "ordinary", "shadow": "mirror"}
        yield Step(round(behind + 2.0 + 32.0 * number, 4), "operate", args)
    for action in ("make shadow", "look", "cursors", "events"):
        at = round(behind + rng.uniform(0.0, _LONG_S), 4)
        yield Step(at, "operate", {"action": action, "topic": "owned", "shadow": rng.choice(("mirror", "extra1"))})


def _producer(rng: random.Random, app: str, topic: str, lasts: float) -> dict[str, Any]:
    library, every = rng.choice(_LIBRARIES), rng.choice((0.02, 0.05, 0.1, 0.2))
    burst, size = rng.choice((1, 1, 2, 5)), rng.choice((0,) * 12 + (2_000, 90_000))
    if rng.random() < 0.01:
        burst, size = 1_100, 0
    return {
        "app": app,
        "topic": topic,
        "library": library,
        "mode": rng.choice(_MODES[topic]),
        "ids": topic in _WITH_IDS and rng.random() < 0.9,
        "every": every,
        "batches": min(rng.choice((10, 40, 40, 40)), int(lasts / every) + 1),
        "burst": burst,
        "partitions": rng.choice((1, 2, 2)),
        "compressed": rng.random() < 0.15,
        "size": size,
        "names": rng.choice((1, 1, 1, 2, 5)),
        "repeats": rng.choice((0.0, 0.0, 0.1, 0.3)),
        "common": rng.random() < 0.5,
    }


# What goes wrong --------------------------------------------------------------------------------------------------


def _faults(rng: random.Random, length: float, shape: Shape) -> Iterator[Step]:
    kinds = rng.choices(sorted(FAULTS), [WEIGHTS.get(kind, 1) for kind in sorted(FAULTS)], k=rng.choice((1, 2, 3, 5)))
    at = rng.uniform(0.2, length)
    for _ in range(rng.choice((5, 5, 5, 6, 6, 8, 10))):
        kind = rng.choice(kinds)
        yield Step(round(at, 4), kind, FAULTS[kind](rng, shape))
        is_soon = rng.random() < 0.5  # what mends the first one meets the second
        at = min(length, at + rng.expovariate(1 / 0.15)) if is_soon else rng.uniform(0.2, length)


def _lasts(rng: random.Random) -> float:
    return round(rng.choice((0.05, 0.3, 0.8, 1.5, 3.0)) * rng.uniform(0.5, 1.5), 3)


def _node(rng: random.Random, shape: Shape) -> int:
    return rng.randint(1, shape.nodes)


def _broker(rng: random.Random, shape: Shape) -> int:
    return rng.randint(1, shape.brokers)


def _partition(rng: random.Random) -> dict[str, Any]:
    topic = rng.choice(
        ("owned", "shared", "counted", "queued", "ledger", "split", "tallied", "__sidecar_default", "busy", "busy")
    )
    return {"topic": topic, "partition": 0 if topic.startswith("__") else rng.randint(0, 1)}


def _path(rng: random.Random, shape: Shape) -> dict[str, Any]:
    """Two hosts of a node's connections; `one` is always the node."""
    node = _node(rng, shape)
    others = ["redis", *[f"kafka-{each}" for each in range(1, shape.brokers + 1)], "clients"]
    return {"node": node, "other": rng.choice(others)}


def _refusal(rng: random.Random, shape: Shape, *, after_append: bool) -> dict[str, Any]:
    """An error of a broker's, of those that it may answer before the work, or behind it."""
    errors = BEHIND_APPEND if after_append else (3, 5, 6, 7, 13, 14, 15, 16, 19, 51, 56, -1)
    return {
        "broker": rng.choice((0, _broker(rng, shape))),  # 0: all of them
        "api": rng.choice((0, 0, 0, 0, 1, 2, 3, 10, 22, 22, 24, 26, 61)),
        "error": rng.choice(errors),
        "times": rng.choice((1, 2, 5)),
        "after_append": after_append,
    }


FAULTS: Final[Mapping[str, Callable[[random.Random, Shape], dict[str, Any]]]] = {
    "kill node": lambda rng, shape: {
        "node": _node(rng, shape), "fuse": int(2 ** rng.uniform(0, 9)), "lasts": _lasts(rng),
        "silently": rng.random() < 0.2,
    },
    "freeze node": lambda rng, shape: {
        "node": _node(rng, shape), "lasts": _lasts(rng), "timers_first": rng.random() < 0.5,
    },
    "suspend node": lambda rng, shape: {"node": _node(rng, shape), "lasts": _lasts(rng)},
    "drain node": lambda rng, shape: {"node": _node(rng, shape), "lasts": _lasts(rng)},
    "jump clock": lambda rng, shape: {
        "node": _node(rng, shape), "by": rng.choice((-86_400.0, -3600.0, -5.0, -0.5, 0.5, 5.0, 3600.0, 86_400.0)),
    },
    "kill broker": lambda rng, shape: {"broker": _broker(rng, shape), "lasts": _lasts(rng)},
    "freeze broker": lambda rng, shape: {"broker": _broker(rng, shape), "lasts": _lasts(rng)},
    "elect": lambda rng, shape: {**_partition(rng), "broker": _broker(rng, shape)},
    "elect unclean": lambda rng, shape: {"partition": rng.randint(0, 1), "broker": _broker(rng, shape)},
    "grow": lambda rng, shape: {},
    "compact": lambda rng, shape: {"topic": rng.choice(("__sidecar_default", "__sidecar_default_snapshots"))},
    "lag metadata": lambda rng, shape: {"broker": _broker(rng, shape), "seconds": _lasts(rng), "lasts": _lasts(rng)},
    "hold markers": lambda rng, shape: {
        "partition": rng.choice((-1, -1, 0, 1)), "lasts": _lasts(rng),
    },
    "move coordinator": lambda rng, shape: _partition(rng),
    "cut brokers": lambda rng, shape: {
        "one": _broker(rng, shape), "other": rng.choice((-1, 1, 2, 3)), "lasts": _lasts(rng),
    },
    "refuse": lambda rng, shape: _refusal(rng, shape, after_append=rng.random() < 0.5),
    "delete topic": lambda rng, shape: {"topic": "busy", "lasts": _lasts(rng)},
    "skew broker": lambda rng, shape: {
        "broker": _broker(rng, shape), "seconds": rng.choice((-3600.0, -5.0, 2.0, 60.0, 3600.0)), "lasts": _lasts(rng),
    },
    "intrude": lambda rng, shape: {
        "topic": rng.choice(("__sidecar_default", "__sidecar_default", "__sidecar_default_snapshots",
        "__sidecar_default_events")),
    },
    "misconfigure": lambda rng, shape: {**dict(zip(("topic", "setting", "value"), rng.choice(_SETTINGS), strict=True)),
        "lasts": _lasts(rng),
    },
    "raise epoch": lambda rng, shape: {"topic": "busy", "to": rng.choice((31_999, 32_000, 32_765, 32_766))},
    "empty fetches": lambda rng, shape: {"broker": _broker(rng, shape), "times": rng.choice((1, 3, 10))},
    "empty redis": lambda rng, shape: {},
    "roll back redis": lambda rng, shape: {},
    "silence redis": lambda rng, shape: {"lasts": _lasts(rng)},
    "stop redis": lambda rng, shape: {"lasts": _lasts(rng)},
    "cut path": lambda rng, shape: {**_path(rng, shape), "lasts": _lasts(rng)},
    "reset": lambda rng, shape: {**_path(rng, shape), "share": rng.choice((0.3, 1.0))},
    "lose answers": lambda rng, shape: {**_path(rng, shape), "share": rng.choice((0.3, 1.0)), "lasts": _lasts(rng)},
}  # fmt: skip
