"""Plays a history on a world: takes its steps, has its end played, and has the checker judge what is left.

What a step does is a function of the module that its kind belongs to (`STEPS`), with the history that is played as its
first argument. Every fault is counted when it took effect, under the name of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.sim import applications, ending, faults, guests, kafka_faults
from tests.sim.checker import check
from tests.sim.collect import evidence_of
from tests.sim.comparing import compare
from tests.sim.host import Host
from tests.sim.inside import Inside
from tests.sim.moments import MOMENTS
from tests.sim.net import Weather
from tests.sim.policies import Watch
from tests.sim.words import Words, initial_words
from tests.sim.work import Work
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.sim import clients
    from tests.sim.applications import App
    from tests.sim.history import History, Step
    from tests.sim.members import Member
    from tests.sim.strangers import Stranger
    from tests.sim.world import World

STEPS: Final[Mapping[str, Callable[..., None]]] = {
    **applications.STEPS, **guests.STEPS, **faults.STEPS, **kafka_faults.STEPS, **MOMENTS,
}  # fmt: skip
"""What a step does, by its kind: it is called with the history that is played, and the step's arguments by name."""


@dataclass(slots=True)
class Outcome:
    """What came of a history."""

    seed: int
    wrong: list[str]
    effects: dict[str, int]
    digest: int
    steps: int
    virtual_s: float
    delivered: int
    codes: dict[int, int]
    trace: list[str] = field(default_factory=list)
    lines: dict[str, bytes] = field(default_factory=dict)
    """Statements of the product that ran, where they are watched (`lines`)."""
    record: bytes = b""
    """What everybody outside of the nodes could see, where that is recorded (`behaviour.recorder`)."""
    situations: dict[str, int] = field(default_factory=dict)
    """How often each was noticed, where they are (`noticing`)."""


class Play:
    """One history on one world."""

    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.apps: dict[str, App] = {}
        self.producers: list[tuple[clients.Producer, Host]] = []
        self.consumers: list[tuple[clients.Consumer, Host]] = []
        self.members: list[Member] = []
        self.strangers: list[Stranger] = []
        self.operations: list[Any] = []
        """Of operators, which have to come to an end before the end is looked at."""
        self.guests: list[Host] = []
        """Hosts of clients that nobody waits for."""
        self.believed: list[str] = []
        self.since: dict[tuple[str, int], int] = {}
        self.work = Work()
        self.topics: set[str] = set()
        self.emptied: set[str] = set()
        """Topics with sequence ids of which somebody deleted records past the nodes."""
        self.reborn: set[str] = set()
        """Topics that were deleted and created again."""
        self.torn: set[tuple[str, int]] = set()
        """Partitions that lost committed records by an unclean election."""
        self.counts = dict.fromkeys(TOPICS, world.shape.partitions)
        """How many partitions each topic has by now."""
        self.stuck: list[str] = []
        self.over = False
        self._clients = 0
        self._heals: list[Callable[[], None]] = []
        self.stood_still: dict[int, float] = {}
        """By node: when it was stopped last, and went on; infinity while it stands still."""
        self.wall_ms = world.scheduler.wall_ms
        self.inside = Inside(world)
        self.watch = Watch(world)
        self.words = Words(lambda: world.now, initial=initial_words())

    def run(self) -> Outcome:
        """Play it from beginning to end."""
        world, history = self.world, self.history
        world.begin(history.seed)
        world.network.weather = Weather(**history.weather)
        begin = world.loop.zero = world.now + world.rng.random()
        self.inside.start()
        self.watch.start()
        for step in history.steps:
            world.loop.at(None, begin + step.at, self.take, step)
        world.run(begin + history.length)
        self.over = True
        ending.heal(self)
        ending.go_on(self)
        ending.probe(self)
        if history.compares:
            compare(self)
        ending.rest(self)
        return Outcome(
            history.seed,
            check(evidence_of(self)),
            dict(world.effects + world.cluster.effects + world.redis.effects),
            world.network.digest,
            world.loop.steps,
            world.now - begin,
            sum(sent.delivered is True for sent in world.ledger.sent),
            world.ledger.codes,
        )

    def take(self, step: Step) -> None:
        """Have it happen now. The last step may come a moment behind the end: nothing happens once all is healed."""
        if not self.over:
            STEPS[step.kind](self, **step.args)

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal by itself after some time, or with everything else at the end."""
        self._heals.append(heal)

        def once() -> None:
            if heal in self._heals:
                self._heals.remove(heal)
                heal()

        self.world.loop.at(None, self.world.now + seconds, once)

    def heal_all(self) -> None:
        """Heal now what would heal by itself later."""
        while self._heals:
            self._heals.pop()()

    def effect(self, name: str, count: int = 1) -> None:
        """Something took effect, so many times."""
        if count:
            self.world.effects[name] += count

    def client_host(self, name: str) -> Host:
        """A machine of its own for a client."""
        self._clients += 1
        host = Host(f"client-{name}{self._clients}")
        host.on_death = self.world.network.died
        return host

    def leave(self, client: clients.Producer | clients.Consumer, host: Host) -> None:
        """A process ends without waiting for anything."""
        with self.world.loop.on(host):
            client.close()
        self.world.loop.kill(host)


_NO_FAULTS: Final = frozenset(
    {
        "answers compared",
        "broker_started", "broker_thawed", "claim released", "claimed", "elected", "elected_unclean", "fenced_broker",
        "isr_expanded", "isr_shrunk", "leaderless", "metadata_lag", "node rolled back", "node upgraded",
        "cleaning set", "owned by request", "policy changed", "producer id renewed", "purged", "reassigned",
        "rebuilt replica leads", "start refused", "stranger answered", "transaction committed", "truncated",
    }
)  # fmt: skip
"""Effects that are work, or what follows from a fault."""


FAULTS: Final = "faults that took effect"
OTHERS: Final = "what else happened"


def by_kind(effects: Iterable[str]) -> dict[str, list[str]]:
    """The names of effects: those of faults apart from work and from what follows from faults."""
    found: dict[str, list[str]] = {FAULTS: [], OTHERS: []}
    for name in sorted(effects):
        found[FAULTS if is_fault(name) else OTHERS].append(name)
    return found


def is_fault(effect: str) -> bool:
    """Whether an effect is something that went wrong."""
    return effect not in _NO_FAULTS and not effect.startswith("operator:")
