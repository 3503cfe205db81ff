"""Plays programs on both sides and compares step by step."""

from __future__ import annotations

import pprint
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.local.kafka_config import parse_version
from tests.sim.kafka.differential.player import Player, StuckError
from tests.sim.kafka.differential.steps import Ask, Fault, Program, Step, Together
from tests.sim.kafka.real import Real, warm
from tests.sim.kafka.tables import name_of
from tests.sim.kafka.topics import INTERNAL
from tests.sim.kafka.trouble import RealTrouble, SimulatedTrouble

OVERRIDES: Final = {"auto.leader.rebalance.enable": "false"}
"""Of real brokers: no leader moves by itself."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step that is answered differently, and both answers."""

    program: Program
    place: int
    real: Any
    simulated: Any

    @property
    def brief(self) -> str:
        """Only the request, and where the answers differ."""
        first = f"seed {self.program.seed}, step {self.place}: {show(self.program.steps[self.place])}"
        return "\n".join([first, *(f"    {line}" for line in differing(self.real, self.simulated))])

    def __str__(self) -> str:
        steps = self.program.steps
        lines = [f"seed {self.program.seed} of {self.program.brokers} brokers, step {self.place}", "steps before:"]
        lines += [f"  {number}: {show(step)}" for number, step in enumerate(steps[: self.place])]
        lines += ["request:", f"  {show(steps[self.place])}", "real Kafka:", _shown(self.real)]
        lines += ["simulated:", _shown(self.simulated), "differing:"]
        return "\n".join([*lines, *(f"  {line}" for line in differing(self.real, self.simulated))])


@dataclass(slots=True)
class Tally:
    """What was played."""

    programs: int = 0
    steps: int = 0
    requests: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[int] = field(default_factory=Counter[int])


class Sides:
    """A real cluster that all programs share, and a new simulated one for each; internal topics are placed alike."""

    def __init__(self, real: Real, version: str, brokers: int) -> None:
        self.real = real
        self.brokers = brokers
        major, minor, _ = parse_version(version)
        self.release = major, minor
        warm(self.real)
        for _ in range(500):
            if not self.real.ask(None, 10, 1, {"key": "warm", "key_type": 0})["error_code"]:
                break
            self.real.pause(0.1)
        self.real.init(None)  # the first id is 0, which stands for none in some answers
        self.tally = Tally()

    def _simulated(self) -> SimulatedTrouble:
        one = self.brokers == 1
        made = SimulatedTrouble(
            self.release, brokers=tuple(range(1, self.brokers + 1)), replication=min(3, self.brokers),
            auto_create=True, offsets_partitions=4, topic_defaults={} if one else {"min.insync.replicas": "2"},
        )  # fmt: skip
        made.init(None)
        if not one:
            self._place(made)
        return made

    def _place(self, made: SimulatedTrouble) -> None:
        """Internal topics have the replicas and leaders of the real cluster."""
        topics = [{"name": name} for name in sorted(INTERNAL)]
        for topic in self.real.ask(None, 3, 12, {"topics": topics})["topics"]:
            for part in topic["partitions"]:
                index, leader = part["partition_index"], part["leader_id"]
                made.reassign(topic["name"], index, part["replica_nodes"])
                made.pause(1)
                made.cluster.elect(topic["name"], index, leader)
        made.pause(5)

    def play(self, program: Program) -> Difference | None:
        """Until the first difference. All brokers run afterwards."""
        prefix = f"dif-{uuid.uuid4().hex[:8]}-"
        real, simulated = (Player(talk, prefix, self.brokers) for talk in (self.real, self._simulated()))
        self.tally.programs += 1
        try:
            for place, step in enumerate(program.steps):
                answers = [_played(each, step) for each in (real, simulated)]
                self._count(step, answers[0])
                if answers[0] != answers[1] or str(answers[0]).startswith(StuckError.__name__):
                    return Difference(program, place, *answers)
        finally:
            self._tidy(real, program.seed)
        return None

    def _tidy(self, real: Player, seed: int) -> None:
        if isinstance(self.real, RealTrouble):
            self.real.mend()
        real.alive = set(real.all)
        if self.brokers > 1:
            try:
                real.settle()
            except StuckError as error:
                error.add_note(f"behind seed {seed}: this cluster is of no use any more")
                raise
        for name in real.partitions:
            named = {"topics": [{"name": name, "topic_id": bytes(16)}], "timeout_ms": 10_000}
            self.real.ask(None, 20, 6, named)

    def _count(self, step: Step, answer: Any) -> None:
        self.tally.steps += 1
        asks = step.asks if isinstance(step, Together) else (step,)
        for each in asks:
            self.tally.requests[_kind(each)] += 1
        for code in _codes(answer):
            self.tally.errors[code] += 1

    def shrink(self, difference: Difference, most: int = 120) -> Difference:
        """Leave out steps while the same step is answered differently: halves first, then one by one."""
        best, tries = difference, 0
        size = max(1, difference.place // 2)
        while size and tries < most:
            shrunk = False
            first = 0
            while first < best.place and tries < most:
                places = set(range(first, min(first + size, best.place)))
                tries += 1
                found = self.play(best.program.without({*places, *range(best.place + 1, len(best.program.steps))}))
                wanted = best.program.steps[best.place]
                if found is not None and found.program.steps[found.place] == wanted:
                    best, shrunk = found, True
                else:
                    first += size
            size = size // 2 if size > 1 else int(shrunk)
        return best


def _played(player: Player, step: Step) -> Any:
    """The answers, or what kept a step from having some, which has to be the same on both sides."""
    try:
        return player.play(step)
    except (OSError, AssertionError, StuckError) as error:
        return f"{type(error).__name__}: {error}"


def differing(real: Any, simulated: Any, at: str = "") -> list[str]:
    """Where two answers differ, and how."""
    if isinstance(real, dict) and isinstance(simulated, dict):
        names = dict.fromkeys([*real, *simulated])
        return [line for name in names for line in differing(real.get(name), simulated.get(name), f"{at}.{name}")]
    if isinstance(real, list) and isinstance(simulated, list) and len(real) == len(simulated):
        pairs = enumerate(zip(real, simulated, strict=True))
        return [line for place, (one, other) in pairs for line in differing(one, other, f"{at}[{place}]")]
    return [] if real == simulated else [f"{at}: real {real!r}, simulated {simulated!r}"]


def _kind(step: Step) -> str:
    if isinstance(step, Ask):
        return name_of(step.key)
    return step.what if isinstance(step, Fault) else type(step).__name__


def _codes(answer: Any) -> list[int]:
    if isinstance(answer, dict):
        own = [value for name, value in answer.items() if name.endswith("error_code")]
        return own + [code for value in answer.values() if isinstance(value, list) for code in _codes(value)]
    return [code for each in answer for code in _codes(each)] if isinstance(answer, list) else []


def show(step: Step) -> str:
    """One line, without what is as always."""
    if isinstance(step, Ask):
        return f"{name_of(step.key)} v{step.version} at {' '.join(map(str, step.at))}: {_brief(step.fields)}"
    if isinstance(step, Together):
        return "together: " + " | ".join(map(show, step.asks))
    return str(step)


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_brief(each)}" for name, each in value.items() if each is not None) + "}"
    return f"[{', '.join(map(_brief, value))}]" if isinstance(value, list) else repr(value)[:120]


def _shown(answer: Any) -> str:
    return pprint.pformat(answer, width=110, sort_dicts=False)
