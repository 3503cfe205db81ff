"""Steps for moments that mutants need and chance does not bring: answers held back, clients that want a node's time.

Strangers here are known by what they must not get: see `Evidence.believed` and `Evidence.held`.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.sim import wire
from tests.sim.faults import freeze_node, start_again
from tests.sim.history import Step
from tests.sim.host import Host
from tests.sim.kafka_faults import named
from tests.sim.ledger import Sent
from tests.sim.net import End
from tests.sim.wire import LostError, Wire, Writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.channel import Request
    from tests.sim.play import Play

_PATIENCE_S: Final = 8.0
_DESCRIBE_PRODUCERS: Final = 61
_NOBODYS: Final = 5_000_000
"""A producer id that was given to nobody."""
_GLANCE_S: Final = 0.000_5
_OLD_MS: Final = 30 * 3600 * 1000
"""Older than `producer.id.expiration.ms`."""
_MAX_TIMESTAMP_AT: Final = 35
"""Where a batch says how new its newest record is."""


def _is_about(broker: Broker, request: Request, topic: str) -> bool:
    """Whether a request names a topic, and not one whose name only begins so, or has its id."""
    known = broker.image.by_id.items()
    is_named = re.search(re.escape(topic.encode()) + rb"(?![\w.-])", request.frame) is not None
    return is_named or any(found.name == topic and each in request.frame for each, found in known)


def hold_answers(
    play: Play, topic: str, lasts: float, api: int = wire.PRODUCE, brokers: tuple[int, ...] = (1, 2, 3)
) -> None:
    """Brokers do what an API asks of them for a topic, and their answers come when this is over."""
    found = [play.world.cluster.brokers[each] for each in brokers]
    for broker in found:
        broker.keep_back(lambda request, broker=broker: request.key == api and _is_about(broker, request, topic))

    def give_out() -> None:
        for broker in found:
            play.effect("answers held", broker.give_out())

    play.later(lasts, give_out)


def delay_append(play: Play, topic: str, lasts: float) -> None:
    """What a broker is sent next for a topic it takes only when this is over, whatever became of its sender."""
    waiting = [True]
    for broker in play.world.cluster.brokers.values():
        dispatch = broker.dispatch

        def dispatched(
            request: Request, broker: Broker = broker, dispatch: Callable[[Request], None] = dispatch
        ) -> None:
            if request.key != wire.PRODUCE or not _is_about(broker, request, topic) or not waiting:
                dispatch(request)
                return
            waiting.clear()
            play.effect("append delayed", 1)
            play.world.loop.at(None, play.world.now + lasts, dispatch, request)

        broker.dispatch = dispatched


def freeze_asking(play: Play, api: int, lasts: float, after: int = 0) -> None:
    """A node stands still as brokers answer it to an API: the first one that had `after` answers to it before."""
    brokers = play.world.cluster.brokers.values()
    answers = Counter[int]()

    def asks(request: Request) -> bool:
        number = _asker(play, request)
        if request.key == api and number:
            answers[number] += 1
        if answers[number] > after:
            for broker in brokers:
                broker.give_out()
            freeze_node(play, number, lasts, timers_first=False)
        return False

    for broker in brokers:
        broker.keep_back(asks)


def as_asked(play: Play, api: int, after: int, of: str, kind: str, args: dict[str, Any]) -> None:
    """Another step, of this kind, is taken as a broker answers a node that asked an API for a topic, or a transactional
    id that has `of` in its name: the first answer behind `after` others. Its node 0 is the one that asked.
    """
    world, left = play.world, [after + 1]

    def asks(broker: Broker, request: Request) -> None:
        number = _asker(play, request) if request.key == api and left[0] > 0 and not play.over else 0
        if number and _is_about(broker, request, of):
            left[0] -= 1
            if not left[0]:
                mine = {name: number if name == "node" and not value else value for name, value in args.items()}
                play.effect(f"as asked: {kind}")
                world.loop.at(None, world.now, play.take, Step(0.0, kind, mine))

    for broker in world.cluster.brokers.values():
        broker.watchers.append(partial(asks, broker))


def _asker(play: Play, request: Request) -> int:
    """The number of the node that sent a request, 0 where none did."""
    peer = request.channel._peer
    names = peer.link.names if isinstance(peer, End) else ()
    return next((each for each in play.world.nodes if f"node-{each}" in names), 0)


def kill_behind(play: Play, topic: str, partition: int, records: int, lasts: float) -> None:
    """All nodes die as soon as the leader of a partition has appended so many records."""
    cluster, world = play.world.cluster, play.world

    def look() -> None:
        replica = cluster.replica(topic, partition, cluster.leader(topic, partition))
        batches = () if replica is None else replica.log.batches
        if sum(batch.last - batch.base + 1 for batch in batches if not batch.control) < records:
            world.loop.at(None, world.now + _GLANCE_S, look)
            return
        for number in world.nodes:
            world.kill_node(number)
            play.effect("node killed")
            play.later(lasts, lambda number=number: start_again(play, number))

    look()


def delete_records(play: Play, topic: str) -> None:
    """Everything committed is deleted, as by DeleteRecords: no reader gets it any more. Its bytes stay in the active
    segment, so the checker sees it.
    """
    for index in range(play.counts[topic]):
        replica = play.world.cluster.replica(topic, index)
        if replica is not None and replica.log.start < replica.high_watermark:
            replica.advance_start(replica.high_watermark)
            play.effect("records deleted")


def purge(play: Play, topic: str) -> None:
    """A client has nodes delete what is in a topic, as Kafka Streams does with what it has read. Only the node that
    serves the topic may.
    """
    topic = named(play, topic)
    body = wire.delete_records(topic, dict.fromkeys(range(play.counts[topic]), -1), 5_000)

    def answered(data: bytes) -> None:
        play.effect("purged", sum(not code for code in wire.deleted(data).values()))

    _ask(play, "purger", wire.DELETE_RECORDS, lambda: body, answered)


def believe(play: Play, topic: str) -> None:
    """Somebody sends records of yesterday in a batch whose header says that they are new."""
    (record,) = _records(play, "liar", topic, [b"liar/old"])
    batch = bytearray(wire.batch_of([Writable(record.value)], play.world.scheduler.wall_ms() - _OLD_MS))
    struct.pack_into(">q", batch, _MAX_TIMESTAMP_AT, play.world.scheduler.wall_ms())
    body = wire.produce(topic, {0: wire.with_crc(bytes(batch))}, 5000)

    def answered(data: bytes) -> None:
        code = wire.produced(data)[0].error
        play.effect("old records offered", 1)
        if code == 0:
            play.believed.append(f"records of {topic}/0 that are 30 h old were taken, as their header says now")

    _ask(play, "liar", wire.PRODUCE, lambda: body, answered)


def bomb(play: Play, topic: str, size: int, client: str, ids: bool) -> None:
    """A batch that is small, and large when it is opened."""
    (record,) = _records(play, client, topic, [b"\0" * size])
    headers = ((b"sidecar-sequence-id", b"1"),) if ids else ()
    batch = wire.batch_of([Writable(record.value, headers)], play.world.scheduler.wall_ms(), compressed=True)
    play.work.watch(play.world)
    _ask(play, client, wire.PRODUCE, lambda: wire.produce(topic, {0: batch}, 5000), lambda _: play.effect("bomb", 1))


def many_partitions(play: Play, topic: str, count: int) -> None:
    """Batches for so many partitions that a topic has not, of a session that nobody knows."""
    (record,) = _records(play, "lost", topic, [b"lost"])
    batch = wire.batch_of([Writable(record.value)], play.world.scheduler.wall_ms(), _NOBODYS, 0, 0)
    body = wire.produce(topic, {100 + each: batch for each in range(count)}, 5000)
    _ask(play, "lost", wire.PRODUCE, lambda: body, lambda _: play.effect("partitions that are not there", count))


def many_names(play: Play, count: int, length: int) -> None:
    """Metadata of so many topics that nobody has."""
    play.work.watch(play.world)
    names = [f"{number:0{length}}" for number in range(count)]
    _ask(play, "asker", wire.METADATA, lambda: wire.metadata(names), lambda _: play.effect("many names", 1))


def many_requests(play: Play, count: int) -> None:
    """A client sends so many small requests in one go."""
    play.work.watch(play.world)
    _ask_in_a_row(play, "flood", wire.API_VERSIONS, lambda: [b""] * count, "many requests")


def many_bombs(play: Play, topic: str, count: int, size: int) -> None:
    """A client that may write sends in one go so many batches that are small, and a megabyte when they are opened."""
    play.work.watch(play.world)
    records = _records(play, "bomber", topic, [b"%d/" % number + b"\0" * size for number in range(count)])
    now_ms = play.world.scheduler.wall_ms()

    def bodies() -> list[bytes]:
        return [
            wire.produce(topic, {0: wire.batch_of([_with_id(each)], now_ms, compressed=True)}, 5000) for each in records
        ]

    _ask_in_a_row(play, "bomber", wire.PRODUCE, bodies, "many bombs")


def _with_id(record: Sent) -> Writable:
    return Writable(record.value, ((b"sidecar-sequence-id", b"%d" % (record.order + 1)),))


def _records(play: Play, name: str, topic: str, values: list[bytes]) -> list[Sent]:
    play.topics.add(topic)
    found = [
        Sent(name, topic, 0, order, value, idempotent=False, attempts=1, doubtful=True)
        for order, value in enumerate(values)
    ]
    play.world.ledger.sent += found
    return found


def _ask(play: Play, name: str, key: int, body: Callable[[], bytes], answered: Callable[[bytes], Any]) -> None:
    """A process that asks one thing of every node."""
    host = Host(f"client-{name}")
    host.on_death = play.world.network.died

    async def come() -> None:
        for address in play.world.addresses:
            try:
                to = await Wire.open(address, name)
                answered(await to.call(key, body(), _PATIENCE_S))
            except LostError:
                continue
            to.close()

    play.world.spawn(host, come())
    play.guests.append(host)


def _ask_in_a_row(play: Play, name: str, key: int, bodies: Callable[[], list[bytes]], effect: str) -> None:
    """A process that asks many things of every node, behind each other without waiting."""
    host = Host(f"client-{name}")
    host.on_death = play.world.network.died

    async def come() -> None:
        for address in play.world.addresses:
            try:
                to = await Wire.open(address, name)
                answers = to.send_row(key, bodies())
                await asyncio.wait(answers, timeout=_PATIENCE_S)
            except LostError:
                continue
            play.effect(effect, sum(each.done() and each.exception() is None for each in answers))
            to.close()

    play.world.spawn(host, come())
    play.guests.append(host)


MOMENTS: Final[dict[str, Callable[..., None]]] = {
    "hold answers": hold_answers, "delay append": delay_append, "freeze asking": freeze_asking, "as asked": as_asked,
    "kill behind": kill_behind, "delete records": delete_records, "purge": purge, "believe": believe, "bomb": bomb,
    "many bombs": many_bombs, "many names": many_names, "many requests": many_requests,
    "many partitions": many_partitions,
}  # fmt: skip
