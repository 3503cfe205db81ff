"""The end of a history: everything is healed, writers get on, newcomers are served, and nothing is left.

What does not come to an end is noted in `Play.stuck`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.sim import clients
from tests.sim.collect import misled, open_shadows
from tests.sim.guests import accept_loss
from tests.sim.host import Host
from tests.sim.inside import at_rest
from tests.sim.kafka_faults import create_again
from tests.sim.net import Weather
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.sim.ledger import Sent
    from tests.sim.play import Play

_CALM_S: Final = 12.0
"""What a healed world gets before it is asked to go on."""
_QUIET_S: Final = 8.0
_DECIDED_S: Final = 2.0
_PROBE_S: Final = 40.0
_REST_S: Final = 10.0
_POLICIES_S: Final = 150.0
"""A policy that a client made ends within two graces, and within a minute if its end failed before."""
_LOOK_S: Final = 0.05
_ASK: Final = "ask for a mode in client.id"
_DEFINITE: Final = frozenset({42, 43, 44, 48, 87, 90, 32, 10})


def heal(play: Play) -> None:
    """Nothing is wrong any more."""
    world = play.world
    play.heal_all()
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
    _wait(play, _CALM_S, lambda: _is_whole(play))
    play.heal_all()  # what a process that died meanwhile asked for
    for number, process in world.nodes.items():
        if not process.host.alive and not process.wanted:
            world.start_node(number)
    world.run(world.now + 30.0, lambda: all(map(world.serving, world.nodes)))
    for number in world.nodes:
        if not world.serving(number):
            play.stuck.append(f"node {number} does not start: {world.nodes[number].node.problem}")


def _wait(play: Play, seconds: float, done: Callable[[], bool]) -> None:
    """Let things happen until a condition holds, which is looked at now and then."""
    until = play.world.now + seconds
    while not done() and play.world.now < until:
        play.world.run(play.world.now + _LOOK_S)


def _is_whole(play: Play) -> bool:
    """Whether brokers are all in sync, and nodes serve."""
    world = play.world
    return (
        all(map(world.serving, world.nodes))
        and len(world.cluster.controller.live) == len(world.cluster.brokers)
        and all(
            len(found.isr) == len(found.replicas) and found.leader >= 0
            for topic in world.cluster.controller.topics.values()
            for found in topic.partitions
        )
    )


def go_on(play: Play) -> None:
    """Clients that still write get on, unless refused or waiting for their turn."""
    world = play.world
    _wait(play, _QUIET_S, lambda: all(task.done() for task in play.operations))
    for topic in sorted(play.reborn):
        create_again(play, topic)
    for topic in sorted(play.emptied):
        accept_loss(play, topic)
        world.run(world.now + _DECIDED_S)
    _wait(play, _QUIET_S, lambda: all(not producer.waiting or producer.is_queued for producer, _ in play.producers))
    open_ones = [
        (producer, host) for producer, host in play.producers if not producer.closed and producer.fatal is None
    ]
    refused = misled(world)
    for producer, _ in play.producers:
        lost_records = producer.topic in play.reborn or any(topic == producer.topic for topic, _ in play.torn)
        was_misled = (producer.session, producer.topic, clients.OUT_OF_ORDER) in refused
        if producer.fatal == clients.OUT_OF_ORDER and not lost_records and not was_misled:
            play.stuck.append(f"{producer.session} ({producer.library.name}) ended: 45 for the batch that comes next")
    sent: list[tuple[clients.Producer, Sent]] = []
    for producer, host in open_ones:
        with world.loop.on(host):
            ids = [1 << 40] if any(s.sequence_id is not None for s in _of(play, producer)) else None
            name = producer.session.partition(".")[0]
            sent += [
                (producer, each) for each in producer.send(0, [f"{producer.session}/on".encode()], ids=ids, name=name)
            ]
    _wait(play, _PROBE_S, lambda: all(each.delivered is not None or producer.is_queued for producer, each in sent))
    for producer, each in sent:
        fine = each.delivered or each.code in _DEFINITE or (each.delivered is None and producer.is_queued)
        numbering = producer.library.raises == "never" and each.code == clients.OUT_OF_ORDER
        limited = producer.library.retries is not None and each.code in (5, 6, 7)  # it tries no longer than that
        # A batch that was refused for good leaves a gap in its numbering, which a new epoch alone gets over.
        waits = producer.library.raises == "nothing" and any(one.code in _DEFINITE for one in _of(play, producer))
        if not fine and not numbering and not limited and not waits and producer.fatal is None:
            play.stuck.append(f"{producer.session} ({producer.library.name}): code {each.code}, {producer.waits_for()}")


def probe(play: Play) -> None:
    """Everybody leaves, and somebody new writes to every partition."""
    world = play.world
    for producer, host in play.producers:
        play.leave(producer, host)
    for host in play.guests:
        world.loop.kill(host)
    world.run(world.now + 0.5)
    host, left = Host("client-probe"), dict[str, str]()
    for topic in sorted(play.topics):
        producer = _probing(play, host, topic, f"probe-{topic}")
        for partition in range(play.counts[topic]):
            left[f"{topic}/{partition}"] = "not asked yet"
            world.spawn(host, _newcomer(play, host, producer, partition, left))
    _wait(play, _PROBE_S, lambda: not left)
    play.stuck += [f"a newcomer in {where}: {why}" for where, why in left.items()]
    _read_out(play)


def _probing(play: Play, host: Host, topic: str, name: str, mode: str = "") -> clients.Producer:
    """Somebody new."""
    world = play.world
    with world.loop.on(host):
        found = clients.Producer(
            clients.LIBRARIES["java"], name, name + mode, world.addresses, topic, world.ledger, world.rng, play.wall_ms,
            key=b"probe",
        )  # fmt: skip
    play.producers.append((found, host))
    return found


async def _newcomer(play: Play, host: Host, producer: clients.Producer, partition: int, left: dict[str, str]) -> None:
    """Write one record, again where it is refused: those who left may keep their places for a moment. Who shall ask for
    a mode, because an operator gave partitions their own owners under a policy `shared`, does so.
    """
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
        if record.message.endswith(_ASK):
            producer = _probing(play, host, producer.topic, f"probe-{where}", ";mode=exclusive")
        await asyncio.sleep(0.5)


def _read_out(play: Play) -> None:
    """Readers come to the end of what there is, of shadows only those that are open to them."""
    shadows = open_shadows(play.world)
    readers = [each for each, _ in play.consumers if not TOPICS[each.topic].shadow_of or each.topic in shadows]

    def done() -> bool:
        return all(not _behind(play, consumer) for consumer in readers)

    if play.consumers:
        _wait(play, _PROBE_S, done)
        for consumer in readers:
            if behind := _behind(play, consumer):
                play.stuck.append(f"a reader of {consumer.topic}: {behind}")
        for consumer, host in play.consumers:
            play.leave(consumer, host)


def rest(play: Play) -> None:
    """Everybody leaves: nothing of them is left in the nodes."""
    for producer, host in play.producers:
        play.leave(producer, host)
    _wait(play, _REST_S, lambda: not list(at_rest(play.world.nodes)))
    play.stuck += at_rest(play.world.nodes)
    _wait(play, _POLICIES_S, lambda: not list(_left_policies(play)))
    play.stuck += _left_policies(play)


def _left_policies(play: Play) -> Iterator[str]:
    """Policies that clients made and that nodes still apply."""
    for number, process in play.world.nodes.items():
        rooms = process.node.rooms
        is_former = play.world.started_as_former(number)  # it keeps them: they end with today's rule
        if process.host.alive and rooms is not None and not is_former:
            for topic in sorted(rooms.governed.env.catalog.by_clients & play.topics):
                yield f"node {number} still applies the policy that a client made for {topic}"


def _behind(play: Play, consumer: clients.Consumer) -> str:
    is_shadow = bool(TOPICS[consumer.topic].shadow_of)
    source = open_shadows(play.world).get(consumer.topic) if is_shadow else consumer.topic
    if source is None:
        return ""  # it was deleted or closed meanwhile
    found: list[str] = []
    for partition in range(play.counts[source]):
        batches = play.world.cluster.committed(source, partition)
        last = max((batch.last for batch in batches if not batch.control), default=-1)
        if consumer.positions.get(partition, 0) <= last:
            found.append(f"partition {partition} at {consumer.positions.get(partition, 0)} of {last}")
    return ", ".join(found)


def _of(play: Play, producer: clients.Producer) -> list[Sent]:
    return [sent for app in play.apps.values() for sent in app.records if sent.session == producer.session]
