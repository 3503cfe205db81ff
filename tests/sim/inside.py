"""What must hold inside the nodes at every moment, looked at every few milliseconds of virtual time.

`Inside.look` takes facts from the nodes' objects (`facts_of`) and hands them to `judge`, which is pure: each of its
rules has a test with facts that break it (`test_inside.py`). `at_rest` is for the end, when nobody is connected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from sidecar.ownership.invariants import assert_sound, assert_whole
from sidecar.resources.claim_table import assert_owners, assert_queues
from tests.sim.former import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.sim.world import Process, World

EVERY_S: Final = 0.03
_MOST: Final = 5
_TASKS: Final = 150
"""A node at rest has some dozens."""


@dataclass(slots=True)
class Work:
    """A slot epoch that a live node works under. `stamp`: producer id and epoch. `under_way`: first stamped sequence
    and records of each batch that is under way, by partition.
    """

    node: int
    slot: tuple[str, str]
    stamp: tuple[int, int]
    generation: int
    session: str
    under_way: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Facts:
    """All nodes at one moment. `marks`: the highest id in the log, and that was sent, by the object that remembers it
    (kept by the facts, so that no later one has its address), topic, partition and name, where they are known. `held`:
    bytes that each node's forwarder holds, and may hold. `queues`: who waits, in order, each with the moment at which
    it came, by node and what is waited for, under one slot epoch: at a takeover those who waited at another node come
    in front. `refused`: of how many partitions each node remembers refused sequences of a session, by node and topic.
    `partitions`: what a topic has at most.
    """

    works: tuple[Work, ...] = ()
    marks: Mapping[tuple[object, str, int, bytes], tuple[int, int]] = field(default_factory=dict)
    held: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    queues: Mapping[tuple[int, str], tuple[tuple[str, float], ...]] = field(default_factory=dict)
    refused: Mapping[tuple[int, str], int] = field(default_factory=dict)
    partitions: int = 3


def judge(before: Facts, now: Facts) -> Iterator[str]:
    """What is wrong with a moment, given the one before."""
    yield from _judge_works(now.works)
    for key, (highest, sent) in now.marks.items():
        if sent < highest:
            yield f"{key[1:]}: id {highest} is in the log, {sent} the highest that was sent"
        if key in before.marks and highest < before.marks[key][0]:
            yield f"{key[1:]}: the highest id in the log fell from {before.marks[key][0]} to {highest}"
    for node, (held, limit) in now.held.items():
        if not 0 <= held <= limit:
            yield f"node {node} holds {held} bytes of batches, {limit} at most"
    for (node, topic), partitions in now.refused.items():
        if partitions > now.partitions:
            yield f"node {node} remembers what was refused in {partitions} partitions of {topic}, which it has not"
    for where, queue in now.queues.items():
        places = {each: place for place, each in enumerate(queue)}
        stayed = [places[each] for each in before.queues.get(where, ()) if each in places]
        if stayed != sorted(stayed):
            yield f"the queue of {where} was reordered: {before.queues[where]}, then {queue}"


def _judge_works(works: Iterable[Work]) -> Iterator[str]:
    stamps: dict[tuple[int, int], Work] = {}
    owners: dict[tuple[tuple[str, str], int], Work] = {}
    for work in works:
        other = stamps.setdefault(work.stamp, work)
        if other is not work:
            yield f"nodes {other.node} and {work.node} both stamp {work.stamp} for {work.slot}"
        other = owners.setdefault((work.slot, work.generation), work)
        if other.session != work.session and _is_owned(work) and _is_owned(other):
            yield (
                f"generation {work.generation} of {work.slot} is {other.session} on node {other.node} and"
                f" {work.session} on node {work.node}"
            )
        for partition, batches in work.under_way.items():
            for (first, count), (second, more) in pairwise(sorted(set(batches))):
                if second < first + count:
                    where = f"{work.slot}/{partition}"
                    yield f"{where}: sequences {first}+{count} and {second}+{more} are under way together"


def _is_owned(work: Work) -> bool:
    return bool(work.session) and work.generation > 0


class Inside:
    """Looks at a world now and then. `wrong`: what it found."""

    def __init__(self, world: World) -> None:
        self.wrong: list[str] = []
        self.looks = 0
        self._world = world
        self._before = Facts()

    def start(self) -> None:
        """From now on."""
        self._world.loop.at(None, self._world.now + EVERY_S, self._again)

    def _again(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Once."""
        self.looks += 1
        now = facts_of(self._world.nodes)
        now.partitions = self._world.shape.partitions + 1
        if len(self.wrong) < _MOST:
            self.wrong += [f"{self._world.now - self._world.loop.zero:.3f} {each}" for each in judge(self._before, now)]
        self._before = now


def facts_of(nodes: Mapping[int, Process]) -> Facts:
    """What the nodes' objects say now."""
    works: list[Work] = []
    marks: dict[tuple[object, str, int, bytes], tuple[int, int]] = {}
    held: dict[int, tuple[int, int]] = {}
    queues: dict[tuple[int, str], tuple[tuple[str, float], ...]] = {}
    refused: dict[tuple[int, str], int] = {}
    for number, process in nodes.items():
        rooms = process.node.rooms
        if not process.host.alive or rooms is None:
            continue
        claims = getattr(rooms.claims, "claims", None)
        if claims is not None:
            assert_owners(claims.table, claims.table.owners)
            assert_queues(claims.table)
        held[number] = rooms.forwarder.held_bytes, rooms.forwarder.buffer_bytes
        for topic in named(rooms.governed).values():
            if found := topic.refusals._found:
                refused[number, topic.name] = max(map(len, found.values()))
            for part in topic.parts:
                state = getattr(part, "state", None)  # nodes of the last release have none
                if state is not None:
                    assert_sound(state)
                    assert_whole(state)
                works += [_work(number, each) for each in (part, *part.shared._sessions.values()) if each.writer.epoch]
                if part.writer.epoch is not None and state is not None and (waiting := state.places):
                    found = tuple((session, place.since) for session, place in waiting.items())
                    queues[number, f"{part.scope.resource} under {part.writer.epoch.taken.stamp}"] = found
            for index, state in topic.ids.partitions.items() if topic.ids is not None else ():
                known = state.marks
                for mark in known if state.is_known else ():  # else they are let go of, or being read anew
                    marks[known, topic.name, index, mark.name] = mark.id, known.pushed(mark.name)
    return Facts(tuple(works), marks, held, queues, refused)


def _work(number: int, who: Any) -> Work:
    epoch = who.writer.epoch
    taken = epoch.taken
    under_way = {
        index: tuple(
            (append.sequence, append.records)
            for append in (*lane._queue, *lane._in_flight, *lane.retried)
            if append.sequence is not None
        )
        for index, lane in epoch._lanes.items()
        if not lane.idle
    }
    stamp = taken.stamp.producer_id, taken.stamp.epoch
    slot = who.scope.topic, str(who.scope.slot)
    return Work(number, slot, stamp, taken.generation, taken.session, under_way)


def at_rest(nodes: Mapping[int, Process]) -> Iterator[str]:
    """What is left in nodes that nobody is connected to, and has no work."""
    for number, process in nodes.items():
        rooms = process.node.rooms
        if not process.host.alive or rooms is None:
            continue
        if rooms.forwarder.held_bytes:
            yield f"node {number} still holds {rooms.forwarder.held_bytes} bytes of batches"
        governed: Any = rooms.governed
        registry = getattr(governed, "topics", governed.producers)  # of the last release
        if registry._of_connection:
            yield f"node {number} remembers connections that are gone: {len(registry._of_connection)}"
        if hasattr(governed, "topics"):  # not of the last release
            for what, count in _left(rooms):
                if count:
                    yield f"node {number} at rest still has {count} {what}"
        tasks = [task for task in process.host.tasks if not task.done()]
        if len(tasks) > _TASKS:
            yield f"node {number} has {len(tasks)} tasks, the last {tasks[-1].get_coro()}"


def _left(rooms: Any) -> Iterator[tuple[str, int]]:
    """What ends with connections, and how much of it there is."""
    env, claims = rooms.governed.env, rooms.claims.claims
    yield "producer ids that closed connections claimed for", len(env.bindings._claimed) + len(env.bindings._claims)
    yield "closed connections with refused sequences", len(rooms.governed.topics.refused._of_connection)
    yield "closed connections that speak for sessions", len(claims.sessions._of) + len(claims.sessions._connections)
    yield "sessions in their grace", len(claims.sessions._until)
    yield "waiting requests for claims", len(claims.table.waiting.by_token)
    yield "events of claims that nobody took", claims.events.qsize()
    yield "held claims", len(claims.table.owners)
    for topic in named(rooms.governed).values():
        for part in topic.parts:
            state = part.state
            holder, shared = state.holder, part.shared.connected()
            yield f"closed connections that are tainted in {part.scope}", len(state.tainted)
            yield f"closed connections that may be ghosts in {part.scope}", len(state.ghosts)
            yield f"connections of the owner of {part.scope}", len(holder.connections) if holder is not None else 0
            yield f"connected shared sessions of {part.scope}", len(shared)
            yield f"held batches and requests of {part.scope}", len(part._held) + len(part._requests)
            kept = sum(place.until > env.now() for place in state.places.values())
            yield f"places in the queue of {part.scope}", kept  # the next batch removes the others
