"""A whole world: brokers, Redis, network, nodes, on one clock and one seed.

The nodes are the product's own, unmodified, without their HTTP side. A world takes over its process: see `virtual`.
"""

from __future__ import annotations

import json
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata.ownership import AccessMode
from sidecar.exclusive import shared
from sidecar.node.connecting import StartError
from sidecar.node.node import Node
from sidecar.policy.policies import PolicyFields, Scope
from sidecar.settings import load
from sidecar.settings.loaded import LoadedSettings
from tests.sim import former, virtual, wire
from tests.sim.chance import Chance
from tests.sim.host import Host
from tests.sim.kafka import Cluster, ClusterSettings
from tests.sim.ledger import Ledger
from tests.sim.loop import SimLoop
from tests.sim.net import Network
from tests.sim.redis import SimRedis

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Mapping

    from tests.sim.net import Acceptor, WireEnd

REDIS: Final = "redis"
NODE_PORT: Final = 19092
BRIEF_MS: Final = 16_000
"""How long brokers remember a producer in a brief world: a fence that is not renewed is gone after this."""
_RESTART_S: Final = 0.5
_START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that every history finds there, and its policy."""

    mode: AccessMode | None = None
    dedup: bool = False
    scope: Scope | None = None
    exclusive_reader: bool | None = None
    shadow_of: str | None = None

    @property
    def policy(self) -> PolicyFields | None:
        """None: it is an ordinary topic."""
        if self.mode is None:
            return None
        return PolicyFields(self.mode, self.dedup or None, self.exclusive_reader, self.scope)


TOPICS: Final[Mapping[str, TopicPlan]] = {
    "ordinary": TopicPlan(),
    "owned": TopicPlan(mode=AccessMode.EXCLUSIVE),
    "queued": TopicPlan(mode=AccessMode.WAIT_FOR_EXCLUSIVE),
    "shared": TopicPlan(mode=AccessMode.SHARED),
    "counted": TopicPlan(mode=AccessMode.SHARED, dedup=True),
    "ledger": TopicPlan(mode=AccessMode.EXCLUSIVE, dedup=True),
    "split": TopicPlan(mode=AccessMode.EXCLUSIVE, scope=Scope.PARTITION),
    "tallied": TopicPlan(mode=AccessMode.EXCLUSIVE, dedup=True, scope=Scope.PARTITION),
    "guarded": TopicPlan(mode=AccessMode.SHARED, exclusive_reader=True),
    "mirror": TopicPlan(shadow_of="owned"),
}
SETTINGS: Final[Mapping[str, Any]] = {
    "client_quotas": False,
    "lease_ms": 600,
    "reconnect_grace_ms": 800,
    "redis_timeout_ms": 300,
    "kafka_connect_timeout_ms": 500,
    "kafka_request_timeout_ms": 3000,
}


TIGHT: Final[tuple[tuple[str, Any], ...]] = (
    ("linger_ms", 2),
    ("producer_names_limit", 3),
    ("queue_limit", 1),
    ("retry_buffer_bytes", 1024 * 1024),
)
"""Settings of nodes that have room for little."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a world is made of. `brief`: brokers forget a producer within seconds: fences have to be kept alive.
    `partitions`: of each topic. `pool`: so many slots a shared topic has before a session gets one of another that
    left, 0: as many as the product has it. `former`: nodes that begin as the last release (`former`).
    """

    nodes: int = 2
    brokers: int = 3
    brief: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    partitions: int = 2
    pool: int = 0
    former: tuple[int, ...] = ()


class SimScheduler:
    """Implements the `Scheduler` of `tests.sim.kafka`: nothing of it belongs to a host."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.rng = rng
        self._loop = loop

    def now(self) -> float:
        return self._loop.now

    def wall_ms(self) -> int:
        return int((virtual.EPOCH_S + self._loop.now) * 1000)

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> Any:
        return self._loop.at(None, self._loop.now + delay, call, *args)


@dataclass(slots=True, eq=False)
class Process:
    """One start of a node."""

    host: Host
    node: Node
    starting: Any
    wanted: bool = True


@dataclass(slots=True)
class Event:
    """Something that a host logged."""

    at: float
    host: str
    fields: dict[str, Any]

    @property
    def line(self) -> str:
        """Without the moment."""
        rest = {name: value for name, value in self.fields.items() if name not in ("event", "level", "exc_info")}
        return f"{self.host:<8} {self.fields.get('event')} {json.dumps(rest, default=str)}"


class World:
    """Made, `start`ed with all nodes and topics; then `begin` gives it the seed of one history. `steady`: see
    `chance`.
    """

    def __init__(self, seed: int, shape: Shape, *, steady: bool = False) -> None:
        self.shape = shape
        if shape.pool:
            shared.POOL = shape.pool
        self.release = former.load() if shape.former else None
        self.former = set(shape.former)
        """Nodes that start as the last release."""
        self.started: list[tuple[float, int, bool]] = []
        """When a node was started, and whether as the last release."""
        self.loop = SimLoop(steady=steady)
        self.events: list[Event] = []
        self.keeps_events = False
        self.rng = virtual.install(self.loop, seed, self._logged, steady=steady)
        self.network = self.loop.network = Network(self.loop, self.rng)
        if steady:
            self.network.by_path = Chance("network")
        self.redis = SimRedis(self.loop, lambda: virtual.EPOCH_S + self.loop.now)
        self.network.acceptors[REDIS, 6379] = self.redis.accept
        self.scheduler = SimScheduler(self.loop, self.rng)
        brief: dict[str, Any] = {} if not shape.brief else {
            "producer_expiration_ms": BRIEF_MS, "transactional_id_expiration_ms": 4 * BRIEF_MS, "expiration_check": 1.0,
        }  # fmt: skip
        settings = ClusterSettings(
            brokers=tuple(range(1, shape.brokers + 1)), session=1.5, heartbeat=0.3, replica_lag=3.0, **brief
        )
        self.cluster = Cluster(self.scheduler, settings)
        for number, broker in self.cluster.brokers.items():
            self.network.acceptors[broker.address] = _acceptor(self.cluster, number)
        self.nodes: dict[int, Process] = {}
        self.dead: list[Process] = []
        self.effects: Counter[str] = Counter()
        self.ledger = Ledger()
        self.admin = Host("admin")
        self.logged: Counter[str] = Counter()
        self.heard: Callable[[str, str, str], None] | None = None
        """Hears what operators do at which node, and how it ends."""

    # Hosts and time -----------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.loop.now

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Let everything happen up to a moment."""
        self.loop.run(until, stop)

    def do(self, work: Coroutine[Any, Any, Any], within: float = 60.0) -> Any:
        """Run until somebody on the administrator's machine is done with something."""
        return self.loop.finish(work, self.admin, within)

    def spawn(self, host: Host, work: Coroutine[Any, Any, Any]) -> Any:
        """Start something on a host."""
        with self.loop.on(host):
            return self.loop.create_task(work)

    def _logged(self, at: float, host: str, fields: dict[str, Any]) -> None:
        self.logged[str(fields.get("event"))] += 1
        if self.keeps_events:
            self.events.append(Event(at, host, fields))
        if fields.get("exc_info"):
            error = fields["exc_info"]
            frames = traceback.extract_tb(error.__traceback__) if isinstance(error, BaseException) else []
            way = " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(frames))
            self.loop.crashes.append(f"{at - self.loop.zero:.3f} {host}: {fields.get('event')} {error!r} {way}")

    # Nodes --------------------------------------------------------------------------------------------------------

    def address(self, number: int) -> tuple[str, int]:
        """Where clients reach a node."""
        return f"node-{number}", NODE_PORT

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of all nodes, dead ones included."""
        return [self.address(number) for number in range(1, self.shape.nodes + 1)]

    def start_node(self, number: int) -> Process:
        """Start a node's process; a supervisor starts it again where it ends by itself."""
        host = Host(f"node-{number}")
        host.on_death = self.network.died
        values = {
            "bootstrap_servers": ",".join(f"{b.address[0]}:{b.address[1]}" for b in self.cluster.brokers.values()),
            "redis_url": f"redis://{REDIS}:6379/0",
            "listen": f"node-{number}:{NODE_PORT}",
            "advertise": f"node-{number}:{NODE_PORT}",
            "admin_listen": f"node-{number}:18080",
            "node_id": number,
            **SETTINGS,
            **dict(self.shape.settings),
        }
        self.started.append((self.now, number, number in self.former))
        with self.loop.on(host):
            if self.release is not None and number in self.former:
                host.turn, node = former.turn(), former.node(values)
            else:
                node = Node(LoadedSettings(_settings(values)))
            process = Process(host, node, self.loop.create_task(node.start()))
        process.starting.add_done_callback(lambda task: self._started(number, process, task))
        if (before := self.nodes.get(number)) is not None:
            process.host.wall_offset = before.host.wall_offset
            self.dead.append(before)
        self.nodes[number] = process
        return process

    def _started(self, number: int, process: Process, task: Any) -> None:
        error = task.exception() if not task.cancelled() else None
        if error is None:
            return
        if type(error).__name__ != StartError.__name__:  # the last release has a class of its own
            self.loop.crashes.append(f"{self.now - self.loop.zero:.6f} node-{number} did not start: {error!r}")
        self.effects["start refused"] += 1
        self.logged[f"StartError: {error}"] += 1
        self.loop.at(None, self.now, self.loop.kill, process.host)
        self.loop.at(None, self.now + _RESTART_S, self._restart, number, process)

    def _restart(self, number: int, process: Process) -> None:
        if self.nodes.get(number) is process and process.wanted:
            self.start_node(number)

    def started_as_former(self, number: int) -> bool:
        """Whether a node runs as the last release."""
        return next(is_former for _, each, is_former in reversed(self.started) if each == number)

    def kill_node(self, number: int) -> None:
        """Its process is gone, now."""
        process = self.nodes[number]
        process.wanted = False
        if process.host.alive:
            self.loop.kill(process.host)

    def serving(self, number: int) -> bool:
        """Whether a node lives and has started."""
        process = self.nodes[number]
        return process.host.alive and process.starting.done() and not process.starting.cancelled()

    def governed(self, number: int) -> Any:
        """The governed topics of a node, for what an operator asks of it."""
        rooms = self.nodes[number].node.rooms
        assert rooms is not None
        return rooms.governed

    # Beginning ----------------------------------------------------------------------------------------------------

    def start(self, topics: Mapping[str, TopicPlan] = TOPICS) -> None:
        """All nodes serve, topics and policies are there, nothing is under way."""
        partitions = self.shape.partitions
        self.do(self._create_topics({name: partitions for name, plan in topics.items() if not plan.shadow_of}))
        for number in range(1, self.shape.nodes + 1):
            self.start_node(number)
        self.run(self.now + _START_S, lambda: all(map(self.serving, self.nodes)))
        if not all(map(self.serving, self.nodes)):
            raise RuntimeError(f"nodes did not start: {[p.node.problem for p in self.nodes.values()]}")
        for name, plan in topics.items():
            if (policy := plan.policy) is not None:
                told = former.policy(policy) if 1 in self.former else policy
                self.do_on(1, former.environment(self.governed(1)).catalog.set(name, told))
            if plan.shadow_of:
                rooms = self.nodes[1].node.rooms
                assert rooms is not None
                self.do_on(1, rooms.shadows.create(plan.shadow_of, name))
        self.run(self.now + 1.0)

    def do_on(self, number: int, work: Coroutine[Any, Any, Any], within: float = 30.0) -> Any:
        """Have a node do something, as its HTTP side would."""
        return self.loop.finish(work, self.nodes[number].host, within)

    async def _create_topics(self, topics: Mapping[str, int]) -> None:
        brokers = list(self.cluster.brokers.values())
        left = dict(topics)
        for _ in range(50):
            for broker in brokers:
                to = await wire.Wire.open(broker.address, "admin")
                answer = wire.created(await to.call(wire.CREATE_TOPICS, wire.create_topics(left, len(brokers)), 10.0))
                to.close()
                left = {name: left[name] for name, code in answer.items() if code not in (0, 36)}
                if not left:
                    return
        raise RuntimeError(f"topics cannot be created: {left}")

    def begin(self, seed: int) -> None:
        """From here on everything goes by this seed."""
        self.rng = virtual.reseed(seed)
        self.network.rng = self.scheduler.rng = self.rng
        if self.network.by_path is not None:
            self.network.by_path.become(seed)
        self.network.digest = self.network.deliveries = self.network.bytes = 0
        self.loop.steps = 0
        self.redis.effects.clear()
        self.cluster.effects.clear()
        self.effects.clear()
        self.logged.clear()
        self.redis.keep()


_SETTINGS: dict[tuple[tuple[str, Any], ...], Any] = {}


def _settings(values: dict[str, Any]) -> Any:
    """Checked settings; the same values are checked once."""
    key = tuple(sorted(values.items()))
    if key not in _SETTINGS:
        _SETTINGS[key] = load(values)
    return _SETTINGS[key]


def _acceptor(cluster: Any, number: int) -> Acceptor:
    def accept(peer: WireEnd) -> Any:
        try:
            return cluster.accept(number, peer)
        except ConnectionRefusedError:
            return None

    return accept
