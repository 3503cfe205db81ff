"""Faults of Kafka, as steps of a history: of brokers, and of topics that somebody changes past the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.collect import OWNERSHIP
from tests.sim.kafka import cleaner
from tests.sim.strangers import intrude as intrude_in
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.replica import Replica
    from tests.sim.play import Play

_APART_S: Final = 0.3
_LAGS_S: Final = 4.5
_CAUGHT_UP_S: Final = 2.0
"""After this time a replica without a log is in sync."""


def kill_broker(play: Play, broker: int, lasts: float) -> None:
    found = play.world.cluster.brokers[broker]
    if found.alive:
        found.kill()
        play.later(lasts, found.start)


def freeze_broker(play: Play, broker: int, lasts: float) -> None:
    found = play.world.cluster.brokers[broker]
    if found.alive and not found.frozen:
        found.freeze()
        play.later(lasts, found.thaw)


def named(play: Play, topic: str) -> str:
    """`busy`: one that somebody writes to."""
    busy = sorted(play.topics - {"ordinary"}) or sorted(play.topics) or ["owned"]
    return play.world.rng.choice(busy) if topic == "busy" else topic


def _is_there(play: Play, topic: str) -> bool:
    return topic in play.world.cluster.controller.topics


def elect(play: Play, topic: str, partition: int, broker: int) -> None:
    topic = named(play, topic)
    if _is_there(play, topic) and play.world.cluster.leader(topic, partition) != broker:
        play.effect("leader elected", int(play.world.cluster.elect(topic, partition, broker)))


def elect_unclean(play: Play, partition: int, broker: int) -> None:
    topic = named(play, "busy")
    if _is_there(play, topic) and _elect_losing(play, topic, partition, broker):
        play.torn.add((topic, partition))


def _elect_losing(play: Play, topic: str, partition: int, broker: int) -> bool:
    """Elect a broker whether it is in sync or not. True where committed batches are lost by that, or may be."""
    cluster = play.world.cluster
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


def grow(play: Play) -> None:
    """An operator adds a partition."""
    topic = named(play, "busy")
    if _is_there(play, topic) and play.counts[topic] == play.world.shape.partitions:
        play.counts[topic] += 1
        play.world.cluster.controller.grow(topic, play.counts[topic])
        play.effect("topic grown")


def delete_topic(play: Play, topic: str, lasts: float) -> None:
    """Past the nodes; it is created again under its name."""
    controller, topic = play.world.cluster.controller, named(play, topic)
    if topic not in controller.topics:
        return
    controller.delete(topic)
    play.effect("topic deleted")
    if topic in TOPICS and TOPICS[topic].shadow_of:
        play.words.unsaid.add(f"shadow/{topic}")
        return
    play.reborn.add(topic)
    play.later(lasts, lambda: create_again(play, topic))


def create_again(play: Play, topic: str) -> None:
    controller = play.world.cluster.controller
    if topic not in controller.topics and controller.live:  # else at the end of the history
        play.counts[topic] = play.world.shape.partitions
        controller.create(topic, play.counts[topic], len(controller.live), {})


def skew_broker(play: Play, broker: int, seconds: float, lasts: float) -> None:
    """Its clock is wrong for a while."""
    found = play.world.cluster.brokers[broker]
    if found.skew_ms:
        return
    found.skew_ms = int(seconds * 1000)
    play.effect("broker's clock skewed")

    def right() -> None:
        found.skew_ms = 0

    play.later(lasts, right)


def raise_epoch(play: Play, topic: str, to: int) -> None:
    """The slot has been opened so often that its epochs come to their end."""
    topic = named(play, topic)
    slot = "/p0" if TOPICS[topic].scope else ""
    play.effect("epochs used up", int(play.world.cluster.raise_epoch(f"sidecar.default.{topic}{slot}", to)))


def lose_records(play: Play, broker: int) -> None:
    """A broker that lags so much that it leaves the ISR of the ownership topic leads it after all: the newest
    records are gone, for all nodes.
    """
    cluster = play.world.cluster
    others = [each for each in cluster.brokers if each != broker]
    if cluster.leader(OWNERSHIP, 0) == broker:
        cluster.elect(OWNERSHIP, 0, others[0])
    for other in others:
        cluster.cut(broker, other)

    def elect() -> None:
        if _elect_losing(play, OWNERSHIP, 0, broker):
            play.effect("ownership records lost")
            play.words.lost = True
        for other in others:
            cluster.heal(broker, other)

    play.later(_LAGS_S, elect)


def misconfigure(play: Play, topic: str, setting: str, value: str, lasts: float) -> None:
    """Somebody changes a setting of an internal topic that nodes rely on: they do not start with it."""
    controller = play.world.cluster.controller
    before = controller.topics[topic].config.own.get(setting)
    if before == value:
        return  # it is already, and the fault that did it puts it right
    controller.configure(topic, {setting: value})
    play.effect("internal topic misconfigured")
    play.later(lasts, lambda: controller.configure(topic, {setting: before}))


def intrude(play: Play, topic: str) -> None:
    """Records that no node wrote, or that this version does not know, in an internal topic."""
    cluster, rng = play.world.cluster, play.world.rng
    partition = rng.randrange(len(cluster.controller.topics[topic].partitions))
    leader = cluster.leader(topic, partition)
    if leader < 0:
        return
    host = play.client_host("intruder")
    address = cluster.brokers[leader].address

    async def come() -> None:
        play.effect("intruder wrote", int(await intrude_in(address, topic, partition, rng, play.wall_ms)))

    play.world.spawn(host, come())
    play.guests.append(host)


def compact(play: Play, topic: str) -> None:
    """Everything in the log so far is compacted."""
    play.world.cluster.roll(topic)
    play.world.cluster.compact(topic)


def configure(play: Play, topic: str, settings: dict[str, str]) -> None:
    """Somebody sets how a topic is cleaned."""
    if _is_there(play, topic):
        play.world.cluster.controller.configure(topic, settings)
        play.effect("cleaning set")


def clean(play: Play, topic: str, after: float = 0.0) -> None:
    """Brokers delete by retention, and compact, each at its own moment (`LogManager.cleanupLogs`, `LogCleaner`), once
    nodes had so much time to protect the first record.
    """
    topic, world = named(play, topic), play.world

    def clean_one(broker: Broker) -> None:
        for replica in list(broker.replicas.values()) if broker.alive and not broker.frozen else ():
            batches = replica.log.batches
            if replica.topic.name == topic and batches and _had_time(play, replica, after):
                cleaner.retain(replica)
                cleaner.compact(replica)

    for broker in world.cluster.brokers.values():
        world.loop.at(None, world.now + world.rng.uniform(0.0, _APART_S), clean_one, broker)


def _had_time(play: Play, replica: Replica, seconds: float) -> bool:
    """Whether the first record is so old, and is protected, or no node stood still since: one that does protects
    nothing, and Kafka's cleaner does not wait for it.
    """
    since = play.world.now - seconds
    could = (
        not seconds or replica.config.min_compaction_lag_ms > 0 or since >= max(play.stood_still.values(), default=0.0)
    )
    return replica.log.batches[0].at <= since and could


def empty_topic(play: Play, topic: str) -> None:
    """An operator deletes all records so far at the brokers (DeleteRecords). They are kept for the checker."""
    topic, cluster = named(play, topic), play.world.cluster
    if TOPICS[topic].dedup:
        play.emptied.add(topic)
    for index in range(play.counts[topic]) if _is_there(play, topic) else ():
        leader = cluster.replica(topic, index)
        if leader is not None and leader.leading and leader.high_watermark > leader.log.start:
            leader.advance_start(leader.high_watermark)
            play.effect("records deleted")


def rebuild(play: Play, topic: str, partition: int, broker: int, lasts: float) -> None:
    """A partition is moved away from a broker, and back: the replica is built from the leader's log, as on a new disk.
    It leads when it has caught up.
    """
    topic, cluster = named(play, topic), play.world.cluster
    if not _is_there(play, topic):
        return
    before = cluster.controller.topics[topic]
    replicas = before.partitions[partition].replicas
    others = tuple(each for each in replicas if each != broker)
    if not set(before.partitions[partition].isr) & set(others) & cluster.controller.live:
        return

    def is_same() -> bool:
        return _is_there(play, topic) and cluster.controller.topics[topic].id == before.id

    def back() -> None:
        if is_same():
            cluster.controller.reassign(topic, partition, replicas)

    def lead() -> None:
        if is_same():
            play.effect("rebuilt replica leads", int(cluster.elect(topic, partition, broker)))

    cluster.controller.reassign(topic, partition, others)
    play.later(lasts, back)
    play.later(lasts + _CAUGHT_UP_S, lead)


def lose_disk(play: Play, broker: int, lasts: float) -> None:
    """A broker dies, and comes back with an empty disk once it is in sync nowhere: but for partitions of which it is
    the only one, and whose disk nobody replaces.
    """
    found, cluster = play.world.cluster.brokers[broker], play.world.cluster
    if not found.alive:
        return
    found.kill()

    def start() -> None:
        if found.alive:
            return
        for topic in cluster.controller.topics.values():
            for index, partition in enumerate(topic.partitions):
                if broker not in partition.isr and found.disks.pop((topic.id, index), None) is not None:
                    play.effect("replica's disk lost")
        found.start()

    play.later(lasts + cluster.settings.session, start)


def stop_broker(play: Play, broker: int, lasts: float) -> None:
    """A controlled shutdown, and a start."""
    found = play.world.cluster.brokers[broker]
    if found.alive:
        found.stop()
        play.effect("broker stopped")
        play.later(lasts, found.start)


def lag_metadata(play: Play, broker: int, seconds: float, lasts: float) -> None:
    found = play.world.cluster.brokers[broker]
    found.metadata_lag(seconds)
    play.later(lasts, lambda: found.metadata_lag(0.0))
    play.effect("metadata lags")


def hold_markers(play: Play, partition: int, lasts: float, of: str = "") -> None:
    """`of`: those of transactional ids that begin so, and are no policy's; all where it is empty."""
    cluster = play.world.cluster

    def is_held(_topic: str, index: int, slot: str) -> bool:
        is_meant = not of or (slot.startswith(of) and not slot.endswith("/policy"))
        return is_meant and (partition < 0 or index == partition)

    cluster.hold_markers(is_held)
    play.later(lasts, cluster.release)


def move_coordinator(play: Play, topic: str, partition: int) -> None:
    topic = named(play, topic)
    slot = f"/p{partition}" if TOPICS.get(topic) is not None and TOPICS[topic].scope else ""
    play.world.cluster.move_coordinator(f"sidecar.default.{topic}{slot}")


def cut_brokers(play: Play, one: int, other: int, lasts: float) -> None:
    if one != other:
        cluster = play.world.cluster
        cluster.cut(one, other)
        play.later(lasts, lambda: cluster.heal(one, other))


def refuse(play: Play, broker: int, api: int, error: int, times: int, after_append: bool) -> None:
    for number, found in play.world.cluster.brokers.items():
        if broker in (0, number):
            found.refuse(api, error, times, after_append)


def limit_batches(play: Play, topic: str, size: int, lasts: float) -> None:
    """Somebody lowers a topic's `max.message.bytes`. A batch that is in the log is too large as well, if it comes again
    (`a_batch_in_the_log_that_comes_again_is_too_large_for_a_smaller_limit`).
    """
    topic, controller = named(play, topic), play.world.cluster.controller
    if not _is_there(play, topic) or "max.message.bytes" in controller.topics[topic].config.own:
        return

    def unlimited() -> None:
        if _is_there(play, topic):
            controller.configure(topic, {"max.message.bytes": None})

    controller.configure(topic, {"max.message.bytes": str(size)})
    play.effect("batches limited")
    play.later(lasts, unlimited)


def empty_fetches(play: Play, broker: int, times: int) -> None:
    play.world.cluster.brokers[broker].empty_fetches(times)


STEPS: Final[Mapping[str, Callable[..., None]]] = {
    "kill broker": kill_broker, "freeze broker": freeze_broker, "elect": elect, "elect unclean": elect_unclean,
    "grow": grow, "delete topic": delete_topic, "skew broker": skew_broker, "raise epoch": raise_epoch,
    "lose records": lose_records, "misconfigure": misconfigure, "intrude": intrude, "compact": compact,
    "configure": configure, "clean": clean, "empty topic": empty_topic, "rebuild": rebuild, "lose disk": lose_disk,
    "stop broker": stop_broker,
    "lag metadata": lag_metadata, "hold markers": hold_markers, "move coordinator": move_coordinator,
    "cut brokers": cut_brokers, "refuse": refuse, "empty fetches": empty_fetches,
    "limit batches": limit_batches,
}  # fmt: skip
