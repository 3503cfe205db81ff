"""Plays a history on a world, heals everything, sees that all goes on, and collects what there is to see.

Every fault is counted when it took effect, under the name of its kind. What an application does runs on a host of its
own, one per session, as its process would.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sidecar.node.view import NodeView
from sidecar.v1 import control_pb2 as control
from tests.sim import clients, wire
from tests.sim.checker import Evidence, check
from tests.sim.claimants import Claimant, Wishes
from tests.sim.collect import OWNERSHIP, collect
from tests.sim.host import Host
from tests.sim.inside import Inside, at_rest
from tests.sim.ledger import Told
from tests.sim.members import Member
from tests.sim.moments import MOMENTS
from tests.sim.net import Weather
from tests.sim.operators import LOOSENING, OF_OWNERS, Operator, operate
from tests.sim.strangers import Stranger, intrude, transact
from tests.sim.work import Work
from tests.sim.world import REDIS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.sim.histories import History, Step
    from tests.sim.ledger import Sent
    from tests.sim.net import Link
    from tests.sim.world import World

_CALM_S: Final = 12.0
"""What a healed world gets before it is asked to go on."""
_QUIET_S: Final = 8.0
_PROBE_S: Final = 40.0
_REST_S: Final = 10.0
_LAGS_S: Final = 4.5
_CONVINCED: Final = 15
"""Refusals in a row after which a newcomer takes them for what the topic's policy wants."""
_LOOK_S: Final = 0.05
_MOST_PARTITIONS: Final = 3
_OWNING: Final = control.DESCRIPTOR.enum_types_by_name["AccessMode"].values_by_name
ZEROED: Final = {"name:string0"}
"""Keys of claims that may be made under generation 0."""
_DEFINITE: Final = frozenset({42, 43, 44, 48, 87, 90, 32, 10})


@dataclass(slots=True, eq=False)
class App:
    """An application: sessions one after the other that write records under one name."""

    name: str
    args: dict[str, Any]
    sessions: int = 0
    producer: clients.Producer | None = None
    host: Host | None = None
    left: int = 0
    closed: bool = False
    records: list[Sent] = field(default_factory=list)
    next_ids: dict[tuple[int, str], int] = field(default_factory=dict)
    """By partition and producer name."""


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
        self.believed: list[str] = []
        self.since: dict[tuple[str, int], int] = {}
        self.work = Work()
        """Hosts of clients that nobody waits for."""
        self.aborting: set[str] = set()
        """Topics that somebody writes to in transactions."""
        self.topics: set[str] = set()
        self.loose: set[str] = set()
        self.foreign: set[str] = set()
        self.reborn: set[str] = set()
        """Topics that were deleted and created again."""
        self.wrecked = False
        self.torn: set[str] = set()
        self.bare: set[str] = set()
        self.counts = {name: plan.partitions for name, plan in TOPICS.items()}
        """How many partitions each topic has by now."""
        self.stuck: list[str] = []
        self._over = False
        self._clients = 0
        self._heals: list[Callable[[], None]] = []
        self._tasks: list[Any] = []
        self._wall_ms = world.scheduler.wall_ms
        self.inside = Inside(world)

    def run(self) -> Outcome:
        """Play it from beginning to end."""
        world, history = self.world, self.history
        world.begin(history.seed)
        world.network.weather = Weather(**history.weather)
        begin = world.now + world.rng.random()
        self.inside.start()
        for step in history.steps:
            world.loop.at(None, begin + step.at, self._take, step)
        world.run(begin + history.length)
        self._over = True
        self._heal()
        self._go_on()
        self._probe()
        self._rest()
        evidence = self._evidence()
        return Outcome(
            history.seed,
            check(evidence),
            dict(world.effects + world.cluster.effects + world.redis.effects),
            world.network.digest,
            world.loop.steps,
            world.now - begin,
            sum(sent.delivered is True for sent in world.ledger.sent),
            world.ledger.codes,
        )

    def _take(self, step: Step) -> None:
        if (moment := MOMENTS.get(step.kind)) is not None:
            moment(self, **step.args)
        else:
            getattr(self, "_" + step.kind.replace(" ", "_"))(**step.args)

    def _later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal by itself after some time, or with everything else at the end."""
        self._heals.append(heal)

        def once() -> None:
            if heal in self._heals:
                self._heals.remove(heal)
                heal()

        self.world.loop.at(None, self.world.now + seconds, once)

    def _effect(self, name: str, count: int = 1) -> None:
        if count:
            self.world.effects[name] += count

    later = _later
    effect = _effect

    # Applications -------------------------------------------------------------------------------------------------

    def _produce(self, app: str, **args: Any) -> None:
        found = self.apps[app] = App(app, args, left=args["batches"])
        self.topics.add(args["topic"])
        if args["topic"] == "ordinary" and args["mode"]:
            self.loose.add("ordinary")  # it gets a policy
        self._session(found)

    def _session(self, app: App) -> None:
        """A new process of an application, with a producer of its own."""
        args = app.args
        app.sessions += 1
        app.closed = False
        host = app.host = Host(f"client-{app.name}")
        host.on_death = self.world.network.died
        client_id = f"{app.name};mode={args['mode']}" if args["mode"] else app.name
        with self.world.loop.on(host):
            app.producer = clients.Producer(
                clients.LIBRARIES[args["library"]], f"{app.name}.{app.sessions}", client_id, self.world.addresses,
                args["topic"], self.world.ledger, self.world.rng, self._clock(args.get("age", 0.0)),
                compressed=args.get("compressed", False),
            )  # fmt: skip
        self.producers.append((app.producer, host))
        self.world.spawn(host, self._write(app, app.producer))

    def _clock(self, age: float) -> Callable[[], int]:
        """The time that an application's records carry: they are so many seconds old."""
        return self._wall_ms if not age else lambda: self._wall_ms() - int(age * 1000)

    async def _write(self, app: App, producer: clients.Producer) -> None:
        rng, args = self.world.rng, app.args
        again = self._unfinished(app)
        while not producer.closed and not self._over and (app.left > 0 or again):
            await asyncio.sleep(args["every"] * (0.5 + rng.random()))
            if producer.closed or self._over:
                return
            if producer.fatal is not None:
                if app.sessions < 4:
                    await asyncio.sleep(0.3)
                    self.world.loop.at(None, self.world.now, self._restart, app.name)
                return
            if producer.waiting > 10:
                continue
            most = self.counts[args["topic"]] if args["partitions"] > 1 else 1
            partition, count = rng.randrange(most), rng.randint(1, args["burst"])
            ids, names = None, None
            if args["ids"]:
                if not again and rng.random() < args.get("repeats", 0.0):
                    again = self._unfinished(app)
                partition, ids, names = self._ids(app, again, partition, count)
                count = len(ids)
            else:
                app.left -= 1
            size = args.get("size", 0)
            values = [
                b"%s/%d/%d%s" % (producer.session.encode(), partition, len(app.records) + n, b"." * size)
                for n in range(count)
            ]
            several = names if args.get("names", 1) > 1 else None
            app.records += producer.send(partition, values, ids=ids, name=app.name, names=several)

    def _ids(
        self, app: App, again: list[tuple[int, str, int]], partition: int, count: int
    ) -> tuple[int, list[int], list[str]]:
        """The ids of the next batch, each with its name: what is to be sent `again`, and what is new behind it."""
        rng, several = self.world.rng, app.args.get("names", 1)
        ids, names = list[int](), list[str]()
        if again:
            partition = again[0][0]
            while again and again[0][0] == partition and len(ids) < app.args["burst"]:
                _, name, each = again.pop(0)
                ids.append(each)
                names.append(name)
            if again or rng.random() < 0.5:
                return partition, ids, names
        app.left -= 1
        for _ in range(count):
            whose = "all" if app.args.get("common") else app.name
            name = app.name if several == 1 else f"{whose}-{rng.randrange(several)}"
            first = app.next_ids.get((partition, name), 0)
            app.next_ids[partition, name] = first + 1
            ids.append(first)
            names.append(name)
        return partition, ids, names

    def _unfinished(self, app: App) -> list[tuple[int, str, int]]:
        """Ids from the first one on that was not acknowledged, in each partition: what an application that comes back
        sends again.
        """
        if not app.args["ids"]:
            return []
        found: list[tuple[int, str, int]] = []
        for (partition, name), behind in sorted(app.next_ids.items()):
            done = {
                sent.sequence_id
                for sent in app.records
                if (sent.partition, sent.name) == (partition, name) and sent.delivered
            }
            first = next((each for each in range(behind) if each not in done), behind)
            first = max(0, first - self.world.rng.choice((0, 0, 1, 3)))  # it was behind with writing down how far it is
            found += [(partition, name, each) for each in range(first, behind)]
        return found

    def _restart(self, app: str) -> None:
        found = self.apps.get(app)
        if found is not None and not self._over:
            self._close(app)
            self._session(found)

    def _renew(self, app: str) -> None:
        """It asks for another producer id, in the name of the one it has."""
        found = self.apps.get(app)
        if found is not None and found.producer is not None and found.producer.initialise_again():
            self._effect("producer id renewed")

    def _close(self, app: str) -> None:
        found = self.apps.get(app)
        if found is None or found.producer is None or found.host is None:
            return
        self._leave(found.producer, found.host)

    def _leave(self, client: clients.Producer | clients.Consumer, host: Host) -> None:
        """A process ends without waiting for anything."""
        with self.world.loop.on(host):
            client.close()
        self.world.loop.kill(host)

    def _consume(self, topic: str) -> None:
        self.topics.add(TOPICS[topic].shadow_of or topic)
        self._clients += 1
        host = Host(f"client-reader{self._clients}")
        host.on_death = self.world.network.died
        with self.world.loop.on(host):
            consumer = clients.Consumer(
                f"reader{self._clients}", self.world.addresses, topic, self.world.ledger, self.world.rng
            )
        self.consumers.append((consumer, host))
        self.world.spawn(host, consumer.run())

    def _client(self, name: str) -> Host:
        """A machine of its own for a client."""
        self._clients += 1
        host = Host(f"client-{name}{self._clients}")
        host.on_death = self.world.network.died
        return host

    def _claim(self, group: str, strings: int, topic: str, partitions: list[int], mode: str, lasts: float) -> None:
        """Somebody claims strings, or a topic for reading or writing, by the own API."""
        host = self._client("claimant")
        if topic and not group:
            self.topics.add(topic)
        wishes = Wishes(
            group, tuple(f"string{each}" for each in range(strings)), topic, tuple(partitions),
            self._generation(group, strings) if topic == "" or group else None,
        )  # fmt: skip
        with self.world.loop.on(host):
            claimant = Claimant(
                host.name, wishes, self.world.addresses, self.counts, self.world.ledger, self.world.rng, self._effect,
            )  # fmt: skip
        self.world.spawn(host, claimant.run(lasts, lambda: self._over))
        self.guests.append(host)

    def _generation(self, group: str, strings: int) -> int | None:
        rng = self.world.rng
        if strings == 1 and not group:
            return rng.choice((None, None, 0, 1, 3, 2**63 - 1))
        return rng.choice((None, None, None, 1, 2, 7))

    def _join(self, group: str, topic: str, joins: bool, slow: float, lasts: float = 60.0) -> None:
        """A consumer of a group, for so long."""
        host = self._client("member")
        count = self.counts.get(topic, 2)
        with self.world.loop.on(host):
            member = Member(
                group, host.name, self.world.addresses, topic, count, self.world.ledger, self.world.rng, joins=joins
            )
        self.members.append(member)
        until = self.world.now + lasts
        self.world.spawn(host, member.run(lambda: self._over or self.world.now > until, slow))
        self.guests.append(host)

    def _stranger(self, topic: str, partition: int, what: str) -> None:
        """A client of another make, or with mistakes, at the node that leads the partition or at any."""
        host = self._client("stranger")
        self.topics.add(topic)
        if what in ("headers", "large", "many", "old", "blind"):
            self.foreign.add(topic)  # it writes under sequence ids of nobody's
        stranger = Stranger(
            host.name, self._address(topic, partition), topic, partition, self.world.ledger, self.world.rng,
            self._wall_ms,
        )  # fmt: skip

        self.strangers.append(stranger)

        async def come() -> None:
            self._effect("stranger answered", await stranger.run(what))

        self.world.spawn(host, come())
        self.guests.append(host)

    def _address(self, topic: str, partition: int) -> tuple[str, int]:
        """Of the node that most probably serves a topic."""
        rng, world = self.world.rng, self.world
        for number, process in world.nodes.items():
            rooms = process.node.rooms
            if process.host.alive and rooms is not None and rooms.governor.serves(topic) and rng.random() < 0.9:
                return world.address(number)
        return rng.choice(world.addresses)

    def _transact(self, topic: str, governed: str) -> None:
        """A transactional producer."""
        host = self._client("transact")
        self.topics.add(topic)
        self.aborting.add(topic)
        stranger = Stranger(
            host.name, self.world.rng.choice(self.world.addresses), topic, 0, self.world.ledger, self.world.rng,
            self._wall_ms,
        )  # fmt: skip

        async def come() -> None:
            addresses = self.world.addresses
            done = await transact(stranger, lambda: self.world.rng.choice(addresses), governed, lambda: self._over)
            self._effect("transaction committed", done)

        self.world.spawn(host, come())
        self.guests.append(host)

    def _operate(self, action: str, topic: str, shadow: str) -> None:
        """An operator asks a node for something."""
        if action in LOOSENING:
            self.loose.add(topic)
        if "shadow" in action or action == "delete source":
            self.loose |= {shadow, "mirror"}
        if action == "prefix":
            self.loose |= {name for name in TOPICS if name.startswith(topic[:3])}
        numbers = [each for each in self.world.nodes if self.world.serving(each)]
        if not numbers:
            return
        number = self.world.rng.choice(numbers)
        if action in OF_OWNERS:
            number = next((each for each in numbers if self.world.governor(each).serves(topic)), number)
        process = self.world.nodes[number]
        who = Operator(NodeView(process.node), self.world.rng, topic, shadow, self.counts.get(topic, 2))

        if action == "delete source":
            self.reborn.add(topic)

        async def ask() -> None:
            if await operate(action, who, lambda why: self.world.logged.update([f"{action}: {why}"])):
                self._effect(f"operator: {action}")

        if action == "delete source":
            self.operations.append(self.world.spawn(process.host, ask()))
        else:
            self.world.spawn(process.host, ask())

    def _policy(self, topic: str, **fields: Any) -> None:
        self.loose.add(topic)
        self.topics.add(topic)
        number = next((each for each in self.world.nodes if self.world.serving(each)), None)
        if number is not None:
            from sidecar.exclusive.policies import PolicyFields  # noqa: PLC0415

            host = self.world.nodes[number].host
            self.world.spawn(host, self._set_policy(number, topic, PolicyFields(**_modes(fields))))

    async def _set_policy(self, number: int, topic: str, change: Any) -> None:
        try:
            await self.world.governor(number).catalog.set(topic, change)
        except Exception as error:  # noqa: BLE001 - a policy that cannot be set now is no one's fault
            self.world.logged[f"policy: {type(error).__name__}"] += 1
        else:
            self._effect("policy changed")
            if change.deduplication:
                for partition in range(self.counts[topic]):
                    batches = self.world.cluster.committed(topic, partition)
                    self.since[topic, partition] = batches[-1].last + 1 if batches else 0

    def _own(self, topic: str, partition: int, mode: str, lasts: float) -> None:
        self.topics.add(topic)
        self._clients += 1
        host = Host(f"client-owner{self._clients}")
        resource = control.Resource(topic=topic, partition=None if partition < 0 else partition)
        request = control.OwnRequest(
            claims=[control.Claim(resource=resource)],
            mode=_OWNING[mode.upper()].number,  # type: ignore[arg-type]
            producer_name=f"owner{self._clients}",
            token=self.world.rng.randbytes(16),
            wait_ms=500,
        )
        self.world.spawn(host, self._hold(host, request, lasts))

    async def _hold(self, host: Host, request: control.OwnRequest, lasts: float) -> None:
        addresses, loop = self.world.addresses, self.world.loop
        until, place = loop.time() + 6.0, self.world.rng.randrange(len(addresses))
        resource = request.claims[0].resource
        partitions = (resource.partition,) if resource.HasField("partition") else range(self.counts[resource.topic])
        while loop.time() < until and not self._over:
            try:
                to = await wire.Wire.open(addresses[place], request.producer_name)
                answer = control.OwnResponse.FromString(await to.call(wire.OWN, request.SerializeToString(), 3.0))
            except wire.LostError:
                await asyncio.sleep(0.2)
                place = (place + 1) % len(addresses)
                continue
            for told in answer.ownerships:
                if told.error == control.NONE and answer.error == control.NONE:
                    owner = told.owner_name or request.producer_name
                    self.world.ledger.told += [
                        Told(f"{resource.topic}/{each}", told.generation, owner, loop.time(), granted=True)
                        for each in partitions
                    ]
                elif told.error == control.NOT_SERVING and 1 <= told.serving_node <= len(addresses):
                    place = told.serving_node - 1
            if answer.error == control.NONE:
                self._effect("owned by request")
                await asyncio.sleep(lasts)
                to.close()
                return
            to.close()
            await asyncio.sleep(0.1)

    # Faults of nodes ----------------------------------------------------------------------------------------------

    def _kill_node(self, node: int, fuse: int, lasts: float, silently: bool) -> None:
        process = self.world.nodes[node]
        host = process.host
        if not host.alive or host.frozen:
            return

        def died(dead: Host) -> None:
            self._effect("node killed")
            process.wanted = False
            self.world.network.died(dead, silently=silently)
            self._later(lasts, lambda: self._start_again(node))

        host.on_death = died
        host.fuse = fuse
        self.world.loop.at(None, self.world.now + 0.3, self.world.loop.kill, host)

    def _start_again(self, node: int) -> None:
        if not self.world.nodes[node].host.alive:
            self.world.start_node(node)

    start_again = _start_again

    def _freeze_node(self, node: int, lasts: float, timers_first: bool) -> None:
        self._stop(node, lasts, "node frozen", timers_first=timers_first)

    freeze_node = _freeze_node

    def _suspend_node(self, node: int, lasts: float) -> None:
        self._stop(node, lasts, "node suspended")

    def _stop(self, node: int, lasts: float, name: str, *, timers_first: bool = False) -> None:
        loop, host, began = self.world.loop, self.world.nodes[node].host, self.world.now
        if not host.alive or host.frozen:
            return
        loop.freeze(host)

        def thaw() -> None:
            if host.alive and host.frozen:
                self._effect(name, int(bool(host.held)))
                slept = self.world.now - began if name == "node suspended" else 0.0
                loop.thaw(host, slept=slept, timers_first=timers_first)

        self._later(lasts, thaw)

    def _drain_node(self, node: int, lasts: float) -> None:
        process = self.world.nodes[node]
        if not process.host.alive or process.host.frozen or not self.world.serving(node) or not process.wanted:
            return
        process.wanted = False

        async def end() -> None:
            await process.node.drain()
            await process.node.stop()
            self._effect("node drained")
            self.world.loop.at(None, self.world.now, self.world.loop.kill, process.host)
            self._later(lasts, lambda: self._start_again(node))

        self.world.spawn(process.host, end())

    def _jump_clock(self, node: int, by: float) -> None:
        self.world.nodes[node].host.wall_offset += by
        self._effect("clock jumped")

    # Faults of Kafka ----------------------------------------------------------------------------------------------

    def _kill_broker(self, broker: int, lasts: float) -> None:
        found = self.world.cluster.brokers[broker]
        if found.alive:
            found.kill()
            self._later(lasts, found.start)

    def _freeze_broker(self, broker: int, lasts: float) -> None:
        found = self.world.cluster.brokers[broker]
        if found.alive and not found.frozen:
            found.freeze()
            self._later(lasts, found.thaw)

    def _named(self, topic: str) -> str:
        """`busy`: one that somebody writes to."""
        busy = sorted(self.topics - {"ordinary"}) or sorted(self.topics) or ["owned"]
        return self.world.rng.choice(busy) if topic == "busy" else topic

    def _is_there(self, topic: str) -> bool:
        return topic in self.world.cluster.controller.topics

    def _elect(self, topic: str, partition: int, broker: int) -> None:
        topic = self._named(topic)
        if self._is_there(topic) and self.world.cluster.leader(topic, partition) != broker:
            self._effect("leader elected", int(self.world.cluster.elect(topic, partition, broker)))

    def _elect_unclean(self, partition: int, broker: int) -> None:
        topic = self._named("busy")
        if self._is_there(topic) and self._elect_losing(topic, partition, broker):
            self.torn.add(topic)

    def _elect_losing(self, topic: str, partition: int, broker: int) -> bool:
        """Elect a broker whether it is in sync or not. True where committed batches are lost by that, or may be."""
        cluster = self.world.cluster
        replicas = {each: cluster.replica(topic, partition, each) for each in cluster.brokers}
        known = [each for each in replicas.values() if each is not None]
        committed = {
            (batch.last, bytes(batch.data))
            for each in known
            for batch in each.log.batches
            if batch.last < each.high_watermark
        }
        mine = replicas[broker]
        has = {(batch.last, bytes(batch.data)) for batch in mine.log.batches} if mine is not None else set()
        before = cluster.effects["elected_unclean"]
        cluster.elect(topic, partition, broker, unclean=True)
        is_unclean = cluster.effects["elected_unclean"] > before
        return is_unclean and (len(known) < len(replicas) or not committed <= has)

    def _grow(self) -> None:
        """An operator adds a partition."""
        topic = self._named("busy")
        if self._is_there(topic) and self.counts[topic] < _MOST_PARTITIONS:
            self.counts[topic] += 1
            self.world.cluster.controller.grow(topic, self.counts[topic])
            self._effect("topic grown")

    def _delete_topic(self, topic: str, lasts: float) -> None:
        """Past the nodes; it is created again under its name."""
        controller, topic = self.world.cluster.controller, self._named(topic)
        if topic not in controller.topics:
            return
        controller.delete(topic)
        self._effect("topic deleted")
        if topic in TOPICS and TOPICS[topic].shadow_of:
            self.loose.add(topic)
            return
        self.reborn.add(topic)
        self._later(lasts, lambda: self._create(topic))

    def _create(self, topic: str) -> None:
        controller = self.world.cluster.controller
        if topic not in controller.topics:
            self.counts[topic] = TOPICS[topic].partitions
            controller.create(topic, self.counts[topic], len(controller.live), {})

    def _skew_broker(self, broker: int, seconds: float, lasts: float) -> None:
        """Its clock is wrong for a while."""
        found = self.world.cluster.brokers[broker]
        if found.skew_ms:
            return
        found.skew_ms = int(seconds * 1000)
        self._effect("broker's clock skewed")

        def right() -> None:
            found.skew_ms = 0

        self._later(lasts, right)

    def _raise_epoch(self, topic: str, to: int) -> None:
        """The slot has been opened so often that its epochs come to their end."""
        topic = self._named(topic)
        slot = "/p0" if TOPICS[topic].scope else ""
        self._effect("epochs used up", int(self.world.cluster.raise_epoch(f"sidecar.default.{topic}{slot}", to)))

    def _lose_records(self, broker: int) -> None:
        """A broker that lags for so long that it leaves the ISR of the ownership topic leads it after all: the newest
        records are gone, for all nodes.
        """
        cluster = self.world.cluster
        others = [each for each in cluster.brokers if each != broker]
        if cluster.leader(OWNERSHIP, 0) == broker:
            cluster.elect(OWNERSHIP, 0, others[0])
        for other in others:
            cluster.cut(broker, other)

        def elect() -> None:
            if self._elect_losing(OWNERSHIP, 0, broker):
                self.wrecked = True
                self._effect("ownership records lost")
            for other in others:
                cluster.heal(broker, other)

        self._later(_LAGS_S, elect)

    def _misconfigure(self, topic: str, setting: str, value: str, lasts: float) -> None:
        """Somebody changes a setting of an internal topic that nodes rely on: they do not start with it."""
        controller = self.world.cluster.controller
        before = controller.topics[topic].config.own.get(setting)
        if before == value:
            return  # it is already, and who did it puts it right
        controller.configure(topic, {setting: value})
        self._effect("internal topic misconfigured")
        self._later(lasts, lambda: controller.configure(topic, {setting: before}))

    def _intrude(self, topic: str) -> None:
        """Records that no node wrote, or that this version does not know, in an internal topic."""
        cluster, rng = self.world.cluster, self.world.rng
        partition = rng.randrange(len(cluster.controller.topics[topic].partitions))
        leader = cluster.leader(topic, partition)
        if leader < 0:
            return
        host = self._client("intruder")
        address = cluster.brokers[leader].address

        async def come() -> None:
            self._effect("intruder wrote", int(await intrude(address, topic, partition, rng, self._wall_ms)))

        self.world.spawn(host, come())
        self.guests.append(host)

    def _compact(self, topic: str) -> None:
        """Everything in the log so far is compacted."""
        self.world.cluster.roll(topic)
        self.world.cluster.compact(topic)
        self._effect("compacted")

    def _lag_metadata(self, broker: int, seconds: float, lasts: float) -> None:
        found = self.world.cluster.brokers[broker]
        found.metadata_lag(seconds)
        self._later(lasts, lambda: found.metadata_lag(0.0))
        self._effect("metadata lags")

    def _hold_markers(self, partition: int, lasts: float, of: str = "") -> None:
        """`of`: those of transactional ids that begin so."""
        cluster = self.world.cluster
        cluster.hold_markers(lambda _topic, index, slot: (partition < 0 or index == partition) and slot.startswith(of))
        self._later(lasts, cluster.release)

    def _move_coordinator(self, topic: str, partition: int) -> None:
        topic = self._named(topic)
        slot = f"/p{partition}" if TOPICS.get(topic) is not None and TOPICS[topic].scope else ""
        self.world.cluster.move_coordinator(f"sidecar.default.{topic}{slot}")

    def _cut_brokers(self, one: int, other: int, lasts: float) -> None:
        if one != other:
            cluster = self.world.cluster
            cluster.cut(one, other)
            self._later(lasts, lambda: cluster.heal(one, other))

    def _refuse(self, broker: int, api: int, error: int, times: int, after_append: bool) -> None:
        if api == wire.PRODUCE:
            self.bare.add("ordinary")
        for number, found in self.world.cluster.brokers.items():
            if broker in (0, number):
                found.refuse(api, error, times, after_append)

    def _empty_fetches(self, broker: int, times: int) -> None:
        self.world.cluster.brokers[broker].empty_fetches(times)

    # Faults of Redis ----------------------------------------------------------------------------------------------

    def _empty_redis(self) -> None:
        self.world.redis.empty()

    def _roll_back_redis(self) -> None:
        self.world.redis.roll_back()

    def _silence_redis(self, lasts: float) -> None:
        self.world.redis.silence()
        self._later(lasts, self.world.redis.speak)

    def _stop_redis(self, lasts: float) -> None:
        if self.world.redis.is_up:
            self.world.redis.down()
            self._effect("redis stopped")
            self._later(lasts, self.world.redis.up)

    # Faults of the network ----------------------------------------------------------------------------------------

    def _others(self, other: str) -> Iterable[str]:
        return sorted({host.name for _, host in self.producers + self.consumers}) if other == "clients" else (other,)

    def _links(self, node: int, other: str, share: float) -> list[Link]:
        rng, network = self.world.rng, self.world.network
        found = [link for name in self._others(other) for link in network.between(f"node-{node}", name)]
        return [link for link in found if rng.random() < share]

    def _cut_path(self, node: int, other: str, lasts: float) -> None:
        network = self.world.network
        for name in self._others(other):
            one = f"node-{node}"
            self._effect("path cut", int(bool(network.between(one, name))))
            network.cut(one, name)
            self._later(lasts, lambda one=one, name=name: network.heal(one, name))

    def _reset(self, node: int, other: str, share: float) -> None:
        for link in self._links(node, other, share):
            self.world.network.reset(link)
            self._effect("connection reset")

    def _lose_answers(self, node: int, other: str, share: float, lasts: float) -> None:
        for link in self._links(node, other, share):
            self.world.network.lose_answers(link, lasts)
            self._effect("answers lost")

    # The end ------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Nothing is wrong any more."""
        world = self.world
        while self._heals:
            self._heals.pop()()
        world.network.heal_all()
        world.network.weather = Weather()
        for broker in world.cluster.brokers.values():
            broker.refusals.clear()
            broker.empty = 0
            broker.metadata_lag(0.0)
        for number, process in world.nodes.items():
            if process.host.alive and process.host.fuse >= 0:
                process.host.fuse = -1
            if not process.host.alive:
                world.start_node(number)
        world.run(world.now + 0.5)
        self._wait(_CALM_S, self._is_whole)
        while self._heals:  # what a process that died meanwhile asked for
            self._heals.pop()()
        for number, process in world.nodes.items():
            if not process.host.alive and not process.wanted:
                world.start_node(number)
        world.run(world.now + 30.0, lambda: all(map(world.serving, world.nodes)))
        for number in world.nodes:
            if not world.serving(number):
                self.stuck.append(f"node {number} does not start: {world.nodes[number].node.problem}")

    def _wait(self, seconds: float, done: Callable[[], bool]) -> None:
        """Let things happen until a condition holds, which is looked at now and then."""
        until = self.world.now + seconds
        while not done() and self.world.now < until:
            self.world.run(self.world.now + _LOOK_S)

    def _is_whole(self) -> bool:
        """Whether brokers are all in sync, and nodes serve."""
        world = self.world
        return (
            all(map(world.serving, world.nodes))
            and len(world.cluster.controller.live) == len(world.cluster.brokers)
            and all(
                len(found.isr) == len(found.replicas) and found.leader >= 0
                for topic in world.cluster.controller.topics.values()
                for found in topic.partitions
            )
        )

    def _go_on(self) -> None:
        """Whoever still writes gets on, unless it was refused or waits for its turn."""
        world = self.world
        self._wait(_QUIET_S, lambda: all(task.done() for task in self.operations))
        for topic in sorted(self.reborn):
            self._create(topic)
        self._wait(_QUIET_S, lambda: all(not producer.waiting or producer.is_queued for producer, _ in self.producers))
        open_ones = [
            (producer, host) for producer, host in self.producers if not producer.closed and producer.fatal is None
        ]
        sent: list[tuple[clients.Producer, Sent]] = []
        for producer, host in open_ones:
            with world.loop.on(host):
                ids = [1 << 40] if any(s.sequence_id is not None for s in _of(self, producer)) else None
                name = producer.session.partition(".")[0]
                sent += [
                    (producer, each)
                    for each in producer.send(0, [f"{producer.session}/on".encode()], ids=ids, name=name)
                ]
        self._wait(_PROBE_S, lambda: all(each.delivered is not None or producer.is_queued for producer, each in sent))
        for producer, each in sent:
            fine = each.delivered or each.code in _DEFINITE or (each.delivered is None and producer.is_queued)
            numbering = producer.library.raises == "never" and each.code == clients.OUT_OF_ORDER
            limited = producer.library.retries is not None and each.code in (5, 6, 7)  # it tries no longer than that
            if not fine and not numbering and not limited and producer.fatal is None:
                self.stuck.append(
                    f"{producer.session} ({producer.library.name}): code {each.code}, {producer.waits_for()}"
                )

    def _probe(self) -> None:
        """Everybody leaves, and somebody new writes to every partition."""
        world = self.world
        for producer, host in self.producers:
            self._leave(producer, host)
        for host in self.guests:
            world.loop.kill(host)
        world.run(world.now + 0.5)
        host, left = Host("client-probe"), dict[str, str]()
        for topic in sorted(self.topics):
            with world.loop.on(host):
                producer = clients.Producer(
                    clients.LIBRARIES["java"], f"probe-{topic}", f"probe-{topic}", world.addresses, topic,
                    world.ledger, world.rng, self._wall_ms,
                )  # fmt: skip
            self.producers.append((producer, host))
            for partition in range(self.counts[topic]):
                left[f"{topic}/{partition}"] = "not asked yet"
                world.spawn(host, self._newcomer(producer, partition, left))
        self._wait(_PROBE_S, lambda: not left)
        self.stuck += [f"a newcomer in {where}: {why}" for where, why in left.items()]
        self._read_out()

    async def _newcomer(self, producer: clients.Producer, partition: int, left: dict[str, str]) -> None:
        """Write one record, again where it is refused: those who left may keep their places for a moment."""
        where = f"{producer.topic}/{partition}"
        for attempt in range(100):
            (record,) = producer.send(partition, [f"probe/{where}/{attempt}".encode()])
            while record.delivered is None:
                await asyncio.sleep(0.05)
                left[where] = f"code {record.code} {record.message or producer.waits_for()}"
            if record.delivered:
                del left[where]
                return
            left[where] = f"code {record.code} {record.message}"
            if attempt > _CONVINCED and producer.topic in self.loose and record.code in _DEFINITE:
                del left[where]  # an operator's policy says so
                return
            await asyncio.sleep(0.5)

    def _read_out(self) -> None:
        """Readers come to the end of what there is."""

        def done() -> bool:
            return all(not self._behind(consumer) for consumer, _ in self.consumers)

        if self.consumers:
            self._wait(_PROBE_S, done)
            for consumer, _ in self.consumers:
                if behind := self._behind(consumer):
                    self.stuck.append(f"a reader of {consumer.topic}: {behind}")
            for consumer, host in self.consumers:
                self._leave(consumer, host)

    def _rest(self) -> None:
        """Everybody leaves: nothing of them is left in the nodes."""
        for producer, host in self.producers:
            self._leave(producer, host)
        self._wait(_REST_S, lambda: not list(at_rest(self.world.nodes)))
        self.stuck += at_rest(self.world.nodes)

    def _behind(self, consumer: clients.Consumer) -> str:
        source = TOPICS[consumer.topic].shadow_of or consumer.topic
        if source in self.reborn or consumer.topic in self.loose:
            return ""  # its place is one of another log; a shadow that an operator changed may be closed to it
        found: list[str] = []
        for partition in range(self.counts[source]):
            batches = self.world.cluster.committed(source, partition)
            last = max((batch.last for batch in batches if not batch.control), default=-1)
            if consumer.positions.get(partition, 0) <= last:
                found.append(f"partition {partition} at {consumer.positions.get(partition, 0)} of {last}")
        return ", ".join(found)

    def _evidence(self) -> Evidence:
        sessions: dict[str, set[str]] = {}
        for producer, _ in self.producers:
            sessions.setdefault(producer.session, set()).update(f"pid:{each}" for each in producer.producer_ids)
        for stranger in self.strangers:
            sessions[stranger.name] = {f"pid:{stranger.producer_id}"} if stranger.producer_id >= 0 else set()
        counted = {name for name in self.topics if TOPICS[name].dedup and name not in self.loose | self.foreign}
        evidence = collect(self.world, {topic: self.counts[topic] for topic in self.topics})
        evidence.sessions, evidence.counted = sessions, counted
        evidence.stuck, evidence.torn = self.stuck, self.torn | self.reborn
        evidence.bare, evidence.loose = self.bare | self.reborn, self.loose | self.reborn
        evidence.inside = self.inside.wrong
        evidence.since = self.since if not self.torn | self.reborn else {}
        evidence.believed, evidence.held = self.believed, self.work.held
        evidence.wrecked, evidence.zeroed = self.wrecked, ZEROED
        if self.history.shape.settings:  # names are forgotten for want of room
            evidence.counted = set()
        evidence.sometimes = {name for name in self.topics if TOPICS[name].dedup} | self.loose | self.foreign
        return evidence


_NO_FAULTS: Final = frozenset(
    {
        "broker_started", "broker_thawed", "claim released", "claimed", "elected", "elected_unclean", "fenced_broker",
        "isr_expanded", "isr_shrunk", "leaderless", "metadata_lag", "owned by request", "policy changed",
        "producer id renewed", "start refused", "stranger answered", "transaction committed", "truncated",
    }
)  # fmt: skip
"""Effects that are work, or what follows from a fault."""


def is_fault(effect: str) -> bool:
    """Whether an effect is something that went wrong."""
    return effect not in _NO_FAULTS and not effect.startswith("operator:")


def _of(play: Play, producer: clients.Producer) -> list[Sent]:
    return [sent for app in play.apps.values() for sent in app.records if sent.session == producer.session]


def _modes(fields: dict[str, Any]) -> dict[str, Any]:
    from metadata.ownership import AccessMode  # noqa: PLC0415

    return {name: AccessMode(value) if name == "access_mode" else value for name, value in fields.items()}


__all__ = ["REDIS", "App", "Outcome", "Play"]
