"""Crossings: two things at once, in which the situation of a rule occurs (`situations`). A part of histories has one.

Each is a function of a stream of chance and of a history. The rest of the history is thinned out: of its kinds of
steps, each stays or goes (swarm testing). So a history is not longer for its crossing, and what stays meets it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.sim.history import History, Step
from tests.sim.kafka.errors import BEHIND_APPEND
from tests.sim.world import TIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS: Final = frozenset({"hold answers", "delay append"})
"""Of steps that crossings alone have."""
_PRODUCE, _FETCH, _LIST_OFFSETS, _END_TXN, _INIT_PRODUCER_ID, _DESCRIBE_PRODUCERS = 0, 1, 2, 26, 22, 61
_OWNERSHIP: Final = "__sidecar_default"
OWNED: Final = ("owned", "ledger", "split", "tallied", "queued")
BESIDE: Final = ("shared", "counted")
WITH_IDS: Final = ("counted", "ledger", "tallied")
_LIBRARIES: Final = ("java", "java", "java", "librdkafka", "librdkafka", "sarama", "franz-go", "aiokafka", "plain")
_VERSIONS: Final = (8, 9, 10, 11, 12, 13)
_AT_A_RECORD: Final = {"api": _PRODUCE, "of": _OWNERSHIP}
POOL: Final = 3
"""So few slots a shared topic has before a session gets one of another, in a crowd."""


def add(history: History) -> History:
    """The history with a crossing, and with half of its own kinds of steps."""
    rng = random.Random(f"{history.seed} crossing")
    (cross,) = rng.choices(list(_CROSSINGS), list(_CROSSINGS.values()))
    return thinned(rng, history, cross)


def thinned(rng: random.Random, history: History, cross: Callable[[random.Random, History], History]) -> History:
    """The history with half of its own kinds of steps, and with what `cross` adds."""
    kinds = sorted({step.kind for step in history.steps})
    gone = {kind for kind in kinds if rng.random() < 0.5}
    quiet = tuple(step for step in history.steps if step.kind not in gone)
    found = cross(rng, replace(history, steps=quiet))
    if not any(step.kind == "produce" for step in found.steps):
        found = with_steps(found, *(step for step in history.steps if step.kind == "produce"))
    found = _of_its_nodes(found)
    last = max((step.at for step in found.steps), default=0.0)
    steps = tuple(sorted(found.steps, key=lambda step: step.at))
    return replace(found, steps=steps, length=max(found.length, round(last + 0.3, 4)))


def _of_its_nodes(history: History) -> History:
    """Without what is for a node that there is not: some crossings have fewer than the history had."""
    nodes = history.shape.nodes

    def is_there(step: Step) -> bool:
        acts = step.args.get("acts", ())
        return step.args.get("node", 0) <= nodes and all(number <= nodes for number, _ in acts)

    return replace(history, steps=tuple(step for step in history.steps if is_there(step)))


def with_steps(history: History, *steps: Step, **more: Any) -> History:
    return replace(history, steps=(*history.steps, *steps), **more)


def at_least(history: History, least: int) -> History:
    return replace(history, shape=replace(history.shape, nodes=max(least, history.shape.nodes)))


def produce(rng: random.Random, at: float, topic: str, app: str, **more: Any) -> Step:
    """An application that writes without a pause."""
    args = {
        "app": app, "topic": topic, "library": rng.choice(_LIBRARIES), "mode": "", "ids": topic in WITH_IDS,
        "every": rng.choice((0.005, 0.01, 0.02)), "batches": 40, "burst": rng.choice((1, 2, 5)), "partitions": 2,
    }  # fmt: skip
    return Step(round(at, 4), "produce", {**args, **more})


def rival(rng: random.Random, at: float, topic: str) -> Step:
    return produce(rng, at, topic, f"rival{round(at * 10_000)}", mode="exclusive_with_fencing", batches=8)


def lasting(rng: random.Random, *seconds: float) -> float:
    return round(rng.choice(seconds) * rng.uniform(0.6, 1.4), 4)


def _error(
    rng: random.Random, at: float, errors: tuple[int, ...], times: tuple[int, ...], *, after_append: bool
) -> Step:
    return refuse(at, rng.choice(errors), rng.choice(times), after_append=after_append)


def refuse(at: float, error: int, times: int, *, after_append: bool) -> Step:
    """Brokers answer some batches with an error. `after_append`: behind the append, if it is one that comes there."""
    args = {"broker": 0, "api": _PRODUCE, "error": error, "times": times}
    return Step(round(at, 4), "refuse", {**args, "after_append": after_append and error in BEHIND_APPEND})


def _disturb(rng: random.Random, history: History, at: float, topic: str) -> Step:
    """What ends a slot epoch, or takes its partitions away."""
    node = rng.randint(1, history.shape.nodes)
    partition = 0 if topic in ("split", "tallied") else rng.randint(0, 1)
    return rng.choice((
        lambda: rival(rng, at, topic),
        lambda: rival(rng, at, topic),
        lambda: rival(rng, at, topic),
        lambda: Step(at, "grow"),
        lambda: Step(at, "delete topic", {"topic": topic, "lasts": lasting(rng, 0.01, 0.2)}),
        lambda: Step(at, "drain node", {"node": node, "lasts": lasting(rng, 0.3)}),
        lambda: Step(at, "operate", {"action": "policy", "topic": topic, "shadow": "mirror"}),
        lambda: Step(at, "operate", {"action": "fence", "topic": topic, "shadow": "mirror"}),
        lambda: Step(at, "elect", {"topic": topic, "partition": partition, "broker": rng.randint(1, 3)}),
        lambda: Step(at, "freeze node", {"node": node, "lasts": lasting(rng, 0.9), "timers_first": False}),
        lambda: Step(at, "cut path", {"node": node, "other": "redis", "lasts": lasting(rng, 0.9)}),
    ))()  # fmt: skip


# Batches in flight ------------------------------------------------------------------------------------------------


def _late_answers(rng: random.Random, history: History) -> History:
    """Leaders append what they are sent, and answer when the slot epoch has ended."""
    topic, at = rng.choice((*OWNED, *BESIDE)), rng.uniform(0.3, 0.7)
    held = Step(round(at, 4), "hold answers", {"topic": topic, "lasts": lasting(rng, 0.1, 0.3, 0.8)})
    work = [produce(rng, 0.05, topic, f"holder{number}") for number in range(rng.choice((1, 2)))]
    disturbing = [_disturb(rng, history, round(at + rng.uniform(0.01, 0.06), 4), topic) for _ in range(2)]
    return with_steps(history, *work, held, *disturbing)


def _late_append(rng: random.Random, history: History) -> History:
    """A batch reaches its leader when the next epoch is open, in front of the marker or behind it."""
    topic, at = rng.choice(("owned", "ledger", *BESIDE, *BESIDE, *BESIDE)), rng.uniform(0.3, 0.7)
    is_beside = topic in BESIDE
    steps = [produce(rng, 0.05, topic, f"holder{number}", every=0.005) for number in range(3 if is_beside else 1)]
    steps.append(Step(round(at, 4), "delay append", {"topic": topic, "lasts": lasting(rng, 0.08, 0.12, 0.3)}))
    steps.append(rival(rng, at + 0.005, topic))
    if rng.random() < 0.8:
        of = f"sidecar.default.{topic}" + ("/" if is_beside else "")
        steps.append(Step(round(at, 4), "hold markers", {"partition": -1, "lasts": lasting(rng, 0.3, 0.5), "of": of}))
    return with_steps(history, *steps)


def _timed_out(rng: random.Random, history: History) -> History:
    """Leaders append what they are sent, and do not answer before everybody has given up."""
    topic, at = rng.choice((*OWNED, *BESIDE)), rng.uniform(0.3, 0.5)
    library = rng.choice(("java", "librdkafka", "sarama", "plain"))
    more = {"every": rng.choice((0.1, 0.4)), "batches": 30, "library": library}
    work = [produce(rng, 0.05, topic, f"holder{number}", **more) for number in range(2)]
    held = {"topic": topic, "lasts": round(rng.uniform(3.2, 6.0), 4), "brokers": (rng.randint(1, 3), rng.randint(1, 3))}
    return with_steps(history, *work, Step(round(at, 4), "hold answers", held), length=6.5)


def _renewed(rng: random.Random, history: History) -> History:
    """Fences are renewed, as brokers forget producers soon, while leaders do not answer."""
    shape = replace(history.shape, nodes=2, brief=True, settings=())
    topic = rng.choice((*OWNED, *BESIDE))
    work = [produce(rng, 0.05, topic, f"slow{number}", every=0.4, batches=18) for number in range(2)]
    steps = [
        Step(round(at, 4), "hold answers", {"topic": topic, "lasts": 2.0})
        for at in (rng.uniform(1.0, 2.0), rng.uniform(4.0, 5.0))
    ]
    return with_steps(history, *work, *steps, shape=shape, length=8.0)


def _failures(rng: random.Random, history: History) -> History:
    """Leaders fail some of many batches, and answer the rest."""
    topic = rng.choice((*OWNED, *BESIDE))
    libraries = ("java", "librdkafka", "librdkafka", "plain")
    work = [produce(rng, 0.05, topic, "busy", library=rng.choice(libraries), every=0.004, batches=120, partitions=1)]
    errors = [
        _error(rng, rng.uniform(0.3, 0.9), (6, 6, 56, 56, 7, 19), (1, 1, 1, 6), after_append=rng.random() < 0.8)
        for _ in range(rng.choice((1, 2, 4)))
    ]
    rest = [
        Step(round(rng.uniform(0.4, 0.9), 4), "reset", {"node": 1, "other": f"kafka-{broker}", "share": 1.0})
        for broker in (1, 2, 3)
    ]
    redis = [Step(round(rng.uniform(0.2, 0.5), 4), rng.choice(("stop redis", "silence redis")), {"lasts": 1.0})]
    weather = {**history.weather, "latency": rng.choice((0.002, 0.005, 0.008)), "spikes": rng.choice((0.0, 0.05))}
    some = rest[: rng.choice((0, 1, 3))]
    return with_steps(history, *work, *errors, *some, *(redis if rng.random() < 0.5 else ()), weather=weather)


def _silent_broker(rng: random.Random, history: History) -> History:
    """A broker is stopped, or cut off, with batches in flight, and another one leads."""
    topic, broker, at = rng.choice((*OWNED, *BESIDE)), rng.randint(1, 3), rng.uniform(0.3, 0.6)
    steps = [produce(rng, 0.05, topic, f"holder{number}", batches=100) for number in range(2)]
    steps += [
        Step(0.2, "elect", {"topic": topic, "partition": index, "broker": broker})
        for index in range(rng.choice((1, 2)))
    ]
    lasts = round(rng.uniform(2.4, 4.0), 4)
    if rng.random() < 0.8:
        steps.append(Step(round(at, 4), "freeze broker", {"broker": broker, "lasts": lasts}))
    else:
        steps.append(Step(round(at, 4), "cut brokers", {"one": broker, "other": -1, "lasts": lasts}))
        steps += [
            Step(round(at, 4), "cut brokers", {"one": broker, "other": other, "lasts": lasts})
            for other in (1, 2, 3)
            if other != broker
        ]
    return with_steps(history, *steps, length=max(history.length, at + lasts + 0.3))


# Takeovers --------------------------------------------------------------------------------------------------------


def _between(
    rng: random.Random, history: History, topic: str, kind: str, args: dict[str, Any], at: float
) -> list[Step]:
    """Two applications take a topic from each other, and something happens between the fence and its record."""
    asked = rng.choice((
        {"api": _DESCRIBE_PRODUCERS, "after": rng.choice((0, 1, 1, 2, 3)), "of": topic},
        {"api": _END_TXN, "after": rng.choice((0, 1)), "of": topic},
        {"api": _FETCH, "after": 0, "of": topic},
        {"api": _LIST_OFFSETS, "after": rng.choice((1, 2, 3, 4)), "of": topic},
        {"api": _LIST_OFFSETS, "after": rng.choice((1, 2, 3, 4)), "of": topic},
        {"api": _PRODUCE, "after": rng.choice((0, 1, 2)), "of": _OWNERSHIP},
    ))  # fmt: skip
    return [
        produce(rng, 0.05, topic, "holder", mode="exclusive_with_fencing"),
        Step(round(at, 4), "as asked", {**asked, "kind": kind, "args": args}),
        rival(rng, at + 0.01, topic),
    ]


def _dies(rng: random.Random, history: History) -> History:
    """The node dies in the middle of a takeover."""
    history, topic, at = at_least(history, 2), rng.choice((*OWNED, *BESIDE)), rng.uniform(0.3, 0.6)
    args = {"node": 0, "fuse": int(2 ** rng.uniform(0, 5)), "lasts": lasting(rng, 0.05, 0.5), "silently": False}
    return with_steps(history, *_between(rng, history, topic, "kill node", args, at))


def _stops(rng: random.Random, history: History) -> History:
    """The node is stopped for longer than its lease in the middle of a takeover, and another one takes the topic."""
    history, topic, at = at_least(history, 2), rng.choice((*OWNED, *BESIDE)), rng.uniform(0.3, 0.6)
    kind, lasts = rng.choice(("freeze node", "freeze node", "suspend node")), round(rng.uniform(1.3, 2.2), 4)
    args = {"node": 0, "lasts": lasts} | ({"timers_first": rng.random() < 0.5} if kind == "freeze node" else {})
    others = [produce(rng, at + 0.05 * number, topic, f"other{number}", batches=60) for number in range(2)]
    steps = [*_between(rng, history, topic, kind, args, at), *others]
    return with_steps(history, *steps, length=max(history.length, at + lasts + 0.5))


def _changes(rng: random.Random, history: History) -> History:
    """Leaders, the coordinator, partitions or the topic change in the middle of a takeover."""
    topic, at = rng.choice((*OWNED, *BESIDE)), rng.uniform(0.3, 0.6)
    kind, args = rng.choice((
        ("elect", {"topic": topic, "partition": rng.randint(0, 1), "broker": rng.randint(1, 3)}),
        ("elect", {"topic": topic, "partition": rng.randint(0, 1), "broker": rng.randint(1, 3)}),
        ("elect", {"topic": _OWNERSHIP, "partition": 0, "broker": rng.randint(1, 3)}),
        ("move coordinator", {"topic": topic, "partition": 0}),
        ("grow", {}),
        ("delete topic", {"topic": topic, "lasts": lasting(rng, 0.005, 0.05)}),
        ("kill broker", {"broker": rng.randint(1, 3), "lasts": lasting(rng, 0.5, 1.5)}),
        ("reset", {"node": 1, "other": f"kafka-{rng.randint(1, 3)}", "share": 1.0}),
        ("empty redis", {}),
        ("roll back redis", {}),
        ("hold answers", {"topic": topic, "lasts": 0.4, "api": _DESCRIBE_PRODUCERS, "brokers": (rng.randint(1, 3),)}),
    ))  # fmt: skip
    api = rng.choice((_INIT_PRODUCER_ID, 24, _END_TXN, _DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS))
    asked = {"api": api, "after": rng.choice((0, 0, 1, 2)), "of": topic}
    steps = [
        produce(rng, 0.05, topic, "holder"),
        Step(round(at, 4), "as asked", {**asked, "kind": kind, "args": args}),
        rival(rng, at + 0.01, topic),
    ]
    if rng.random() < 0.25:
        lasts = lasting(rng, 0.3)
        steps += [Step(round(at - 0.02, 4), "kill broker", {"broker": each, "lasts": lasts}) for each in (1, 2, 3)]
    if kind == "elect" and rng.random() < 0.5:  # what the former leader alone has is not committed
        steps.append(Step(0.1, "cut brokers", {"one": 1, "other": rng.choice((2, 3)), "lasts": lasting(rng, 0.8)}))
    return with_steps(history, *steps)


def _incomplete(rng: random.Random, history: History) -> History:
    """The coordinator does not know a partition, or one leader does not answer: a fence is not complete."""
    topic, at = rng.choice((*OWNED, *BESIDE)), rng.uniform(0.4, 0.7)
    steps = [produce(rng, 0.05, topic, "holder"), rival(rng, at + 0.02, topic)]
    if rng.random() < 0.5:
        lags = {"broker": 0, "seconds": 0.6, "lasts": 0.8}
        steps += [Step(round(at - 0.1, 4), "lag metadata", {**lags, "broker": each}) for each in (1, 2, 3)][
            : rng.choice((1, 2))
        ]
        steps += [
            Step(round(at - 0.05, 4), "grow"),
            Step(round(at, 4), "move coordinator", {"topic": topic, "partition": 0}),
        ]
    else:
        about = rng.choice((topic, _OWNERSHIP))
        held = {
            "topic": about,
            "lasts": lasting(rng, 0.3, 0.6),
            "api": _DESCRIBE_PRODUCERS,
            "brokers": (rng.randint(1, 3),),
        }
        steps.append(Step(round(at, 4), "hold answers", held))
    return with_steps(history, *steps)


def _without_redis(rng: random.Random, history: History) -> History:
    """Redis is away while topics are taken, and while their owner's epoch has to be opened again."""
    topic, at, lasts = rng.choice(OWNED), rng.uniform(0.2, 0.5), lasting(rng, 0.5, 1.0)
    library = rng.choice(("plain", "plain", "java", "librdkafka"))
    steps = [
        produce(rng, 0.02, topic, "holder", library=library, batches=100),
        Step(round(at, 4), rng.choice(("stop redis", "stop redis", "silence redis")), {"lasts": lasts}),
        refuse(at + 0.02, rng.choice((7, 10, 47)), 4, after_append=True),
        rival(rng, at + rng.choice((0.05, 0.2)), topic),
        Step(round(at, 4), "claim", claim(strings=1, lasts=0.3)),
    ]
    return with_steps(history, *steps, length=max(history.length, at + lasts + 0.3))


def _used_up(rng: random.Random, history: History) -> History:
    """A slot's epochs come to their end while sessions take it from each other."""
    topic = rng.choice(("owned", "ledger", "shared"))
    steps = [
        produce(rng, 0.02, topic, "holder"),
        Step(0.3, "raise epoch", {"topic": topic, "to": rng.choice((31_998, 31_999, 32_000))}),
        *(rival(rng, at, topic) for at in (0.35, 0.6, 0.8)[: rng.choice((1, 2, 3))]),
    ]
    return with_steps(history, *steps)


# Sessions ---------------------------------------------------------------------------------------------------------


def _crowd(rng: random.Random, history: History) -> History:
    """Many sessions write beside each other, more than there are slots: they come, leave and come back."""
    topic = rng.choice(BESIDE)
    shape = replace(history.shape, nodes=rng.choice((1, 2)), brief=False, settings=(), pool=POOL)
    count, length, at_once = rng.choice((8, 12, 15)), 1.5, round(rng.uniform(0.5, 0.9), 4)
    steps: list[Step] = []
    for number in range(count):
        app, at = f"crowd{number}", rng.uniform(0.0, 0.9)
        every = rng.choice((0.01, 0.02, 0.4))
        libraries = ("java", "java", "librdkafka", "sarama", "plain")
        steps.append(
            produce(rng, at, topic, app, library=rng.choice(libraries), every=every, batches=rng.choice((3, 10, 20)))
        )
        if rng.random() < 0.5:
            steps.append(
                Step(round(at + rng.uniform(0.1, 0.6), 4), rng.choice(("restart", "close", "close")), {"app": app})
            )
    steps += [
        Step(
            round(rng.uniform(0.3, length), 4),
            "reset",
            {"node": rng.randint(1, 2), "other": "clients", "share": 0.5},
        )
        for _ in range(rng.choice((0, 1, 2)))
    ]
    if rng.random() < 0.5:  # all lose their connections, and newcomers are there first
        everybody = {"other": "clients", "share": 1.0}
        steps += [Step(at_once, "reset", {"node": node, **everybody}) for node in (1, 2)]
        steps += [
            produce(rng, at_once + 0.02 * number, topic, f"newcomer{number}", every=0.01, batches=10)
            for number in range(1, 5)
        ]
    elif rng.random() < 0.6:
        steps.append(_disturb(rng, history, round(rng.uniform(0.4, 1.2), 4), topic))
    return with_steps(history, *steps, shape=shape, length=length)


def _returning(rng: random.Random, history: History) -> History:
    """Sessions leave a topic, others own it meanwhile, and the first ones go on."""
    topic = rng.choice(("owned", "ledger", "split", "owned"))
    libraries = ("java", "librdkafka", "franz-go")
    slow = produce(rng, 0.02, topic, "slow", library=rng.choice(libraries), every=1.6, batches=4, partitions=1)
    at = rng.uniform(0.9, 1.2)
    steps = [
        produce(rng, 0.01, topic, "first", library=rng.choice(libraries), every=0.02, batches=10, partitions=1)
        if rng.random() < 0.3
        else slow,
        Step(round(at, 4), "reset", {"node": 1, "other": "clients", "share": 1.0}),
        Step(round(at, 4), "reset", {"node": 2, "other": "clients", "share": 1.0}),
        produce(rng, at + 0.2, topic, "between", batches=10, partitions=1),
        Step(round(at + 1.7, 4), "close", {"app": "between"}),
    ]
    return with_steps(at_least(history, 2), *steps, length=max(history.length, 4.5))


def _waiting(rng: random.Random, history: History) -> History:
    """Sessions wait for a topic, and their turn comes when its owner, or its node, ends."""
    topic, at = rng.choice(("queued", "owned", "ledger")), rng.uniform(0.5, 0.8)
    steps = [
        produce(rng, 0.02 + 0.1 * number, topic, f"waiting{number}", mode="wait_for_exclusive", batches=60)
        for number in range(rng.choice((2, 3, 4)))
    ]
    steps.append(Step(round(at, 4), "close", {"app": "waiting0"}))
    steps.append(_disturb(rng, history, round(at + rng.uniform(-0.1, 0.1), 4), topic))
    return with_steps(history, *steps)


def _raises(rng: random.Random, history: History) -> History:
    """Clients raise their own epoch, again and again, while others want the topic."""
    topic = rng.choice((*OWNED, *BESIDE))
    libraries = ("java", "librdkafka", "librdkafka", "franz-go", "sarama")
    at = rng.uniform(0.3, 0.6)
    steps = [
        produce(rng, 0.02, topic, "raising", library=rng.choice(libraries), every=0.01, batches=100),
        *(
            _error(rng, at + 0.1 * number, (45, 45, 10, 87, 2, 59), (1, 2), after_append=False)
            for number in range(rng.choice((1, 2, 3)))
        ),
    ]
    kind = rng.choice(("rival", "freeze", "held", "policy", "slow record", "slow record", "slow record"))
    if kind == "rival":
        steps.append(rival(rng, at + rng.uniform(0.0, 0.2), topic))
    elif kind == "slow record":  # the next epoch's record is there, and its answer is late
        held = {"topic": _OWNERSHIP, "lasts": lasting(rng, 0.5, 0.9)}
        steps.append(Step(round(at - 0.02, 4), "hold answers", held))
        steps.append(_disturb(rng, history, round(at + rng.uniform(0.05, 0.2), 4), topic))
    elif kind == "held":
        steps.append(Step(round(at, 4), "hold answers", {"topic": topic, "lasts": 0.3}))
    elif kind == "freeze":
        asked = {"api": _INIT_PRODUCER_ID, "after": 0, "of": topic}
        args = {"node": 0, "lasts": 1.2, "timers_first": False}
        steps.append(Step(round(at - 0.02, 4), "as asked", {**asked, "kind": "freeze node", "args": args}))
        steps.append(rival(rng, at + 0.3, topic))
        history = replace(at_least(history, 2), length=max(history.length, 2.2))
    elif kind == "policy":
        asked = {"api": _INIT_PRODUCER_ID, "after": 0, "of": topic}
        changed = {"action": "policy", "topic": topic, "shadow": "mirror"}
        steps.append(Step(round(at - 0.02, 4), "as asked", {**asked, "kind": "operate", "args": changed}))
    return with_steps(history, *steps)


# Sequence ids, claims, readers ------------------------------------------------------------------------------------


def repeats(rng: random.Random, history: History) -> History:
    """Applications come back with ids that they sent before, while nodes die and topics move."""
    history, topic = at_least(history, rng.choice((1, 2))), rng.choice(WITH_IDS)
    steps: list[Step] = []
    for number in range(rng.choice((1, 2))):
        app = f"again{number}"
        steps.append(produce(rng, 0.02, topic, app, repeats=rng.choice((0.1, 0.3)), names=rng.choice((1, 1, 2)),
                             common=rng.random() < 0.5, partitions=rng.choice((1, 2)), batches=60))  # fmt: skip
        steps += [Step(round(rng.uniform(0.3, 1.2), 4), "restart", {"app": app}) for _ in range(rng.choice((1, 2, 3)))]
    for _ in range(rng.choice((1, 2))):
        node, at = rng.randint(1, history.shape.nodes), round(rng.uniform(0.3, 1.0), 4)
        steps.append(rng.choice((
            Step(at, "kill node", {"node": node, "fuse": int(2 ** rng.uniform(0, 9)), "lasts": 0.2, "silently": False}),
            Step(at, "drain node", {"node": node, "lasts": 0.2}),
            Step(at, "hold answers", {"topic": topic, "lasts": 0.2}),
            Step(at, "hold answers", {"topic": _OWNERSHIP, "lasts": 0.2}),
        )))  # fmt: skip
    at, kind = round(rng.uniform(0.4, 0.9), 4), rng.choice(("in flight", "held drop", "held drop", "dies", "dies"))
    if kind != "dies":  # ids come again while the first batch is in flight, or the record of a drop
        about = topic if kind == "in flight" else _OWNERSHIP
        steps.append(Step(at, "hold answers", {"topic": about, "lasts": 0.4}))
        steps.append(Step(round(at + 0.03, 4), "restart", {"app": "again0"}))
    if kind == "held drop":
        steps.append(_disturb(rng, history, round(at + rng.uniform(0.1, 0.3), 4), topic))
    if kind == "dies":  # a node dies as it records a drop
        dies = {"node": 0, "fuse": rng.choice((1, 1, 3)), "lasts": 0.2, "silently": False}
        steps.append(Step(at, "restart", {"app": "again0"}))
        asked = {**_AT_A_RECORD, "after": rng.choice((0, 0, 1)), "kind": "kill node", "args": dies}
        steps.append(Step(round(at + rng.uniform(0.02, 0.15), 4), "as asked", asked))
    return with_steps(history, *steps, length=max(history.length, 1.4))


def _back_again(rng: random.Random, history: History) -> History:
    """A topic with ids moves to another node, and back to the first one, which remembers some."""
    topic = rng.choice(WITH_IDS)
    steps = [produce(rng, 0.02, topic, f"moved{number}", repeats=0.2, batches=120) for number in range(2)]
    steps += [
        Step(round(at + rng.uniform(0.0, 0.1), 4), "cut path", {"node": node, "other": "redis", "lasts": 1.2})
        for at, node in ((0.3, 1), (1.8, 2), (3.3, 1))
    ]
    return with_steps(at_least(history, 2), *steps, length=max(history.length, 4.8))


def _many_names(rng: random.Random, history: History) -> History:
    """More producer names than a partition has room for."""
    topic = rng.choice(WITH_IDS)
    shape = replace(history.shape, nodes=2, brief=False, settings=TIGHT)
    steps = [
        produce(
            rng, 0.02 + 0.2 * number, topic, f"named{number}", names=rng.choice((1, 5, 5)), partitions=1, batches=20
        )
        for number in range(rng.choice((2, 4)))
    ]
    steps += [Step(round(rng.uniform(0.3, 0.8), 4), "close", {"app": "named0"})]
    return with_steps(history, *steps, shape=shape)


def claim(**more: Any) -> dict[str, Any]:
    """Arguments of a step `claim`."""
    return {"group": "", "strings": 0, "topic": "", "partitions": [], "mode": "", "lasts": 0.5, **more}


def _claims(rng: random.Random, history: History) -> History:
    """Many claim the same; their connections, their coordinator or Redis end at work."""
    history, steps = at_least(history, 2), list[Step]()
    for _ in range(rng.choice((5, 8, 11))):
        about = rng.choice((
            {"strings": 1}, {"strings": 1}, {"strings": 2}, {"group": "group0", "topic": "guarded", "partitions": [0]},
        ))  # fmt: skip
        steps.append(Step(round(rng.uniform(0.0, 0.8), 4), "claim", claim(**about, lasts=lasting(rng, 0.05, 0.5, 1.5))))
    together = {"other": "guests", "share": 0.7}
    for node in range(1, history.shape.nodes + 1):
        steps.append(Step(round(rng.uniform(0.4, 1.2), 4), "reset", {"node": node, **together}))
    for _ in range(rng.choice((0, 1, 2))):
        node, at = rng.randint(1, history.shape.nodes), round(rng.uniform(0.2, 0.9), 4)
        steps.append(rng.choice((
            Step(at, "stop redis", {"lasts": 0.6}),
            Step(at, "cut path", {"node": node, "other": "redis", "lasts": 1.0}),
            Step(at, "freeze node", {"node": node, "lasts": 1.0, "timers_first": False}),
            Step(at, "hold answers", {"topic": _OWNERSHIP, "lasts": lasting(rng, 0.1, 0.3)}),
            Step(at, "as asked", {**_AT_A_RECORD, "after": rng.choice((0, 1, 2)), "kind": "freeze node",
                 "args": {"node": 0, "lasts": 1.2, "timers_first": False}}),
        )))  # fmt: skip
    return with_steps(history, *steps, length=max(history.length, 1.8))


def _audience(rng: random.Random, history: History) -> History:
    """Many readers wait together, some far away, while records are stored one after the other."""
    topic = rng.choice(("owned", "ordinary", "shared", "mirror"))
    written = "owned" if topic == "mirror" else topic
    steps = [
        Step(round(rng.uniform(0.0, 0.3), 4), "consume", {"topic": topic, "shares": True})
        for _ in range(rng.choice((5, 7)))
    ]
    steps.append(produce(rng, 0.1, written, "source", library="java", every=0.01, burst=1, partitions=1, batches=90))
    weather = {**history.weather, "spikes": rng.choice((0.05, 0.15)), "spike_s": rng.choice((0.05, 0.15))}
    return with_steps(history, *steps, weather=weather)


def _versions(rng: random.Random, history: History) -> History:
    """Clients of several ages write through one node."""
    shape = replace(history.shape, nodes=1)
    topics = rng.sample((*OWNED, *BESIDE, "ordinary"), 2)
    versions = rng.sample(_VERSIONS, 4)
    steps = [
        produce(rng, rng.uniform(0.0, 0.5), rng.choice(topics), f"aged{number}", version=version, batches=15)
        for number, version in enumerate([*versions, 13])
    ]
    return with_steps(history, *steps, shape=shape)


_CROSSINGS: Final[dict[Callable[[random.Random, History], History], float]] = {
    _late_answers: 2, _late_append: 4, _timed_out: 2, _renewed: 2, _failures: 3, _silent_broker: 3, _dies: 4, _stops: 4,
    _changes: 4, _incomplete: 4, _without_redis: 2, _used_up: 0.5, _crowd: 4, _returning: 1, _waiting: 1, _raises: 4,
    repeats: 3, _back_again: 2, _many_names: 2, _claims: 4, _audience: 1, _versions: 0.5,
}  # fmt: skip
