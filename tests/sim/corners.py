"""Corners: moments of a few milliseconds in which the situation of a rule occurs that crossings do not bring
(`situations`). A part of the plain histories has one.

Each is as a crossing, and draws from a stream of chance of its own, so histories without a corner stay as they were.
What has to happen at one moment is bound to what a node asks (`as asked`), or queued at the brokers (`refuse`).
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.sim import crossings
from tests.sim.crossings import BESIDE, OWNED, WITH_IDS, at_least, claim, lasting, produce, refuse, rival, with_steps
from tests.sim.history import History, Step
from tests.sim.world import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS: Final = frozenset({"limit batches", "accept loss"})
"""Of steps that corners alone have."""
_PRODUCE, _LIST_OFFSETS, _INIT_PRODUCER_ID, _DESCRIBE_PRODUCERS = 0, 2, 22, 61
_OWNERSHIP: Final = "__sidecar_default"
_LEASE_S: Final = SETTINGS["lease_ms"] / 1000
_HELD: Final = ("owned", "ledger", "split", "tallied")
"""Topics whose owner refuses others at once."""
_RAISING: Final = ("java", "java", "librdkafka", "franz-go", "sarama")
"""Libraries that raise their own epoch."""


def add(history: History) -> History:
    """The history with a corner."""
    rng = random.Random(f"{history.seed} corner")
    (corner,) = rng.choices(list(_CORNERS), list(_CORNERS.values()))
    return crossings.thinned(rng, history, corner)


def _moment(rng: random.Random) -> float:
    return round(rng.uniform(0.4, 0.7), 4)


def _asked(at: float, api: int, of: str, kind: str, args: dict[str, Any], after: int = 0) -> Step:
    return Step(round(at, 4), "as asked", {"api": api, "after": after, "of": of, "kind": kind, "args": args})


# Nodes that come back ---------------------------------------------------------------------------------------------


def _returns(rng: random.Random, history: History) -> History:
    """The node of a topic's owner is stopped, another one takes the topic, and the first one goes on."""
    history, topic, at = at_least(history, 2), rng.choice((*OWNED, *BESIDE)), _moment(rng)
    lasts = lasting(rng, 3.0)
    stops = {"node": 0, "lasts": lasts} | rng.choice(({"timers_first": True}, {"timers_first": False}))
    steps = [
        *(produce(rng, 0.05, topic, f"holder{number}", batches=100) for number in range(2)),
        _asked(at, _PRODUCE, topic, "freeze node", stops),
        *(rival(rng, at + _LEASE_S + each, topic) for each in (0.4, 0.6, 0.8)),
    ]
    return with_steps(history, *steps, length=max(history.length, at + lasts + 0.5))


def _stops(rng: random.Random, history: History) -> History:
    """A node is stopped between its fence and the record of it, and another one takes the topic."""
    history, topic, at = at_least(history, 2), rng.choice((*OWNED, *BESIDE)), _moment(rng)
    lasts = round(rng.uniform(1.4, 2.0), 4)
    stops = {"node": 0, "lasts": lasts, "timers_first": rng.random() < 0.5}
    steps = [
        produce(rng, 0.05, topic, "holder"),
        _asked(at, _LIST_OFFSETS, topic, "freeze node", stops, after=rng.choice((0, 2, 2))),
        rival(rng, at + 0.01, topic),
        *(rival(rng, at + _LEASE_S + each, topic) for each in (0.3, 0.5)),
    ]
    return with_steps(history, *steps, length=max(history.length, at + lasts + 0.5))


def _leaderless(rng: random.Random, history: History) -> History:
    """Sessions want a topic while no broker leads anything."""
    topic, at, lasts = rng.choice((*OWNED, *BESIDE)), _moment(rng), lasting(rng, 0.4)
    dies = [Step(at, "kill broker", {"broker": broker, "lasts": lasts}) for broker in (1, 2, 3)]
    rivals = [rival(rng, at + lasts * each, topic) for each in (0.3, 0.5, 0.7)]
    return with_steps(history, produce(rng, 0.05, topic, "holder"), *dies, *rivals)


def _ghost(rng: random.Random, history: History) -> History:
    """A plain client comes back under its own name while the node still has its former connection."""
    topic, at = rng.choice(_HELD), _moment(rng)
    steps = [
        produce(rng, 0.05, topic, "ghost", library="plain", batches=60, partitions=1),
        *(
            Step(round(at + after, 4), "restart", {"app": "ghost", "lingers": lasting(rng, 0.2, 0.5)})
            for after in (0.0, 0.6)
        ),
    ]
    return with_steps(history, *steps)


# Raised epochs ----------------------------------------------------------------------------------------------------


def _raising(rng: random.Random, at: float, topic: str) -> list[Step]:
    """A client that raises its epoch at a moment, as one of its batches is refused, when it has few in flight."""
    args = {"library": rng.choice(_RAISING), "every": 0.03, "burst": 1, "batches": 60, "partitions": 1}
    return [produce(rng, 0.05, topic, "raising", **args), refuse(at, rng.choice((10, 87)), 1, after_append=False)]


def _refused_raise(rng: random.Random, history: History) -> History:
    """The node is stopped while Kafka raises the epoch of a slot, and another node takes it meanwhile."""
    history, topic, at = at_least(history, 2), rng.choice((*OWNED, *BESIDE)), _moment(rng)
    lasts = lasting(rng, 2.5)
    stops = {"node": 0, "lasts": lasts, "timers_first": False}
    steps = [
        *_raising(rng, at, topic),
        _asked(at, _INIT_PRODUCER_ID, topic, "freeze node", stops),
        *(rival(rng, at + _LEASE_S + each, topic) for each in (0.5, 0.7, 0.9)),
    ]
    return with_steps(history, *steps, length=max(history.length, at + lasts + 0.5))


def _dropped_raise(rng: random.Random, history: History) -> History:
    """A session writes beside others, and its next epoch is being opened from memory when the whole topic is fenced:
    the record's answer is late.
    """
    topic, at = rng.choice(BESIDE), _moment(rng)
    late = {"topic": _OWNERSHIP, "lasts": lasting(rng, 0.6, 1.0)}
    fences = {"action": "fence", "topic": topic, "shadow": "mirror"}
    steps = [
        *_raising(rng, at, topic),
        produce(rng, 0.05, topic, "other"),
        _asked(at, _INIT_PRODUCER_ID, topic, "hold answers", late),
        *(
            rng.choice((rival(rng, at + after, topic), Step(round(at + after, 4), "operate", fences)))
            for after in (0.15, 0.25)
        ),
    ]
    return with_steps(history, *steps)


# Batches in doubt -------------------------------------------------------------------------------------------------


def _given_up(rng: random.Random, history: History) -> History:
    """A batch is in the log and its answer is lost, and its second try is refused: the topic takes less by then."""
    topic, at = rng.choice((*OWNED, *BESIDE)), _moment(rng)
    work = produce(rng, 0.05, topic, "holder", library=rng.choice(("plain", "plain", "java", "librdkafka")), size=2_000)
    lost = refuse(at, rng.choice((6, 7, 20, 56, -1)), rng.choice((1, 1, 2)), after_append=True)
    if rng.random() < 0.5:
        again = refuse(at, rng.choice((10, 87)), rng.choice((1, 2)), after_append=False)
    else:
        again = Step(round(at + 0.005, 4), "limit batches", {"topic": topic, "size": 1_000, "lasts": lasting(rng, 0.3)})
    return with_steps(history, work, lost, again)


def _failed_in_front(rng: random.Random, history: History) -> History:
    """A leader fails one of several batches in flight, and has appended it and those behind it."""
    topic, at = rng.choice((*OWNED, *BESIDE)), _moment(rng)
    more = {"library": rng.choice(("java", "librdkafka")), "every": 0.002, "burst": 1, "batches": 200, "partitions": 1}
    errors = [refuse(at + 0.15 * number, rng.choice((6, 56, 13, -1)), 1, after_append=True) for number in range(4)]
    weather = {**history.weather, "latency": rng.choice((0.005, 0.008))}
    return with_steps(history, produce(rng, 0.05, topic, "busy", **more), *errors, weather=weather)


def _moved_in_silence(rng: random.Random, history: History) -> History:
    """A leader does not answer, and another one is elected meanwhile."""
    topic, at, broker = rng.choice((*OWNED, *BESIDE)), round(rng.uniform(0.3, 0.5), 4), rng.randint(1, 3)
    placed = [{"topic": topic, "partition": 0, "broker": each} for each in (broker, 1 + broker % 3)]
    steps = [
        produce(rng, 0.05, topic, "holder", batches=60, partitions=1),
        Step(0.2, "elect", placed[0]),
        Step(at, "hold answers", {"topic": topic, "lasts": 3.2, "brokers": (broker,)}),
        Step(round(at + 0.2, 4), "elect", placed[1]),
    ]
    return with_steps(history, *steps, length=max(history.length, at + 3.4))


# Claims -----------------------------------------------------------------------------------------------------------


def _queue_ends(rng: random.Random, history: History) -> History:
    """Clients wait for what another one has, and their connections end."""
    history, at = at_least(history, 2), _moment(rng)
    about = rng.choice(({"strings": 1}, {"strings": 2}, {"group": "group0", "topic": "guarded", "partitions": [0]}))
    steps = [Step(0.1, "claim", claim(**about, lasts=2.0))]
    waits = claim(**about, mode="wait_for_exclusive", lasts=0.1)
    steps += [Step(round(rng.uniform(0.2, at), 4), "claim", waits) for _ in range(rng.choice((3, 5)))]
    for each in (0.0, 0.15):
        ends = {"other": "guests", "share": rng.choice((0.5, 1.0))}
        steps += [
            Step(round(at + each, 4), "reset", {"node": node, **ends}) for node in range(1, history.shape.nodes + 1)
        ]
    return with_steps(history, *steps, length=max(history.length, 1.5))


def _ends_at_work(rng: random.Random, history: History) -> History:
    """Another node takes the claims over, while the records of some wait for their answer."""
    history, at = at_least(history, 2), _moment(rng)
    steps = [
        Step(
            round(rng.uniform(0.1, at + 0.2), 4),
            "claim",
            claim(strings=rng.choice((1, 2)), lasts=lasting(rng, 0.1, 0.5)),
        )
        for _ in range(rng.choice((6, 10)))
    ]
    away = {"node": 0, "other": "redis", "lasts": lasting(rng, 2.0)}
    steps += [
        Step(at, "hold answers", {"topic": _OWNERSHIP, "lasts": lasting(rng, 1.6)}),
        _asked(at, _PRODUCE, _OWNERSHIP, "cut path", away),
    ]
    return with_steps(history, *steps, length=max(history.length, at + 2.2))


def _two_coordinators(rng: random.Random, history: History) -> History:
    """The node that coordinates claims is stopped, and another one does so."""
    history, at = at_least(history, 2), _moment(rng)
    stops = {"node": 0, "lasts": lasting(rng, 1.5), "timers_first": False}
    claims = [
        Step(round(at + each, 4), "claim", claim(strings=rng.choice((1, 2)), lasts=lasting(rng, 0.1, 0.5)))
        for each in (-0.3, -0.1, 0.02, 0.05, 0.7, 0.9, 1.1, 1.3)
    ]
    steps = [*claims, _asked(at, _PRODUCE, _OWNERSHIP, "freeze node", stops)]
    return with_steps(history, *steps, length=max(history.length, at + 2.2))


# Ids that are lost ------------------------------------------------------------------------------------------------


def _lost_ids(rng: random.Random, history: History) -> History:
    """Somebody deletes records at the brokers, past the nodes, before a snapshot has their ids, and the nodes die: the
    partition accepts nothing until an operator decides.
    """
    topic, at = rng.choice(WITH_IDS), round(rng.uniform(0.3, 0.5), 4)
    nodes = range(1, history.shape.nodes + 1)
    dies = {"fuse": 1, "lasts": lasting(rng, 0.1, 0.3), "silently": False}
    steps = [
        produce(rng, 0.05, topic, f"lost{number}", names=rng.choice((1, 2)), every=0.02)
        for number in range(rng.choice((1, 2)))
    ]
    steps.append(Step(at, "empty topic", {"topic": topic}))
    steps += [Step(round(at + 0.02, 4), "kill node", {"node": node, **dies}) for node in nodes]
    decided = round(at + lasting(rng, 1.5), 4)
    steps += [Step(decided, "accept loss", {"topic": topic})]
    steps += [
        Step(round(rng.uniform(at + 0.3, decided + 0.5), 4), "restart", {"app": "lost0"})
        for _ in range(rng.choice((0, 1, 2)))
    ]
    others = tuple(
        step for step in history.steps if step.kind not in ("policy", "operate") and step.args.get("topic") != topic
    )
    return replace(history, steps=(*others, *steps), length=max(history.length, decided + 0.8))


def _again_in_flight(rng: random.Random, history: History) -> History:
    """An application comes back with ids of batches that are in flight: leaders do not answer."""
    topic, at = rng.choice(("counted", "counted", "ledger")), _moment(rng)
    steps = [
        produce(
            rng, 0.05, topic, "again", every=0.01, batches=60, partitions=1, library=rng.choice(("java", "librdkafka"))
        ),
        Step(at, "hold answers", {"topic": topic, "lasts": lasting(rng, 0.5)}),
        *(Step(round(at + after, 4), "restart", {"app": "again"}) for after in (0.03, 0.2)),
    ]
    return with_steps(history, *steps)


# Fences -----------------------------------------------------------------------------------------------------------


def _silent_leader(rng: random.Random, history: History) -> History:
    """A node asks leaders whether they know a fence, and the connection to one of them breaks before it answers."""
    topic, at, broker = rng.choice((*OWNED, *BESIDE)), round(rng.uniform(0.6, 0.8), 4), rng.randint(1, 3)
    held = {"topic": topic, "lasts": 0.6, "api": _DESCRIBE_PRODUCERS, "brokers": (broker,)}
    steps = [
        produce(rng, 0.05, topic, "holder"),
        Step(0.2, "elect", {"topic": topic, "partition": 0, "broker": broker}),
        Step(0.2, "elect", {"topic": topic, "partition": 1, "broker": 1 + broker % 3}),
        Step(at, "hold answers", held),
        rival(rng, at + 0.01, topic),
    ]
    for node in range(1, history.shape.nodes + 1):
        breaks = {"node": node, "other": f"kafka-{broker}", "share": 1.0}
        steps += [Step(round(at + after, 4), "reset", breaks) for after in (0.15, 0.25, 0.4)]
    return with_steps(history, *steps)


def _several(rng: random.Random, history: History) -> History:
    """A topic is fenced while several sessions beside each other have batches in flight."""
    topic, at = rng.choice(BESIDE), _moment(rng)
    fences = {"action": "fence", "topic": topic, "shadow": "mirror"}
    steps = [
        *(produce(rng, 0.05, topic, f"beside{number}", every=0.01, batches=80) for number in range(3)),
        Step(at, "hold answers", {"topic": topic, "lasts": lasting(rng, 0.4)}),
        rng.choice((rival(rng, at + 0.1, topic), Step(round(at + 0.1, 4), "operate", fences))),
    ]
    return with_steps(history, *steps)


def _renewed(rng: random.Random, history: History) -> History:
    """Brokers forget producers soon, so fences are renewed, and leaders hardly ever answer."""
    shape = replace(history.shape, nodes=2, brief=True, settings=())
    topic = rng.choice((*OWNED, *BESIDE))
    work = [produce(rng, 0.05, topic, f"slow{number}", every=0.3, batches=25) for number in range(2)]
    held = [Step(at, "hold answers", {"topic": topic, "lasts": 2.0}) for at in (1.0, 3.2, 5.4)]
    return with_steps(history, *work, *held, shape=shape, length=8.0)


_CORNERS: Final[dict[Callable[[random.Random, History], History], float]] = {
    _returns: 1, _stops: 2, _leaderless: 2, _ghost: 4, _refused_raise: 3, _dropped_raise: 5,
    _given_up: 4, _failed_in_front: 3, _moved_in_silence: 2, _queue_ends: 3, _ends_at_work: 2.5, _two_coordinators: 2,
    _lost_ids: 2.5, _again_in_flight: 4, _silent_leader: 2.5, _several: 1, _renewed: 1.5, crossings.repeats: 3,
}  # fmt: skip
