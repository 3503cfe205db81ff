"""kafka-python: being a member of a group."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from .. import records
from ..records import Seen
from ..runtime import Cell, check, same, until
from .kit import JOINING_MS, WAIT_S, admin, consumer, create_topic, scenarios, seen, take, write


class Member(ConsumerRebalanceListener):
    """A subscribed consumer read from by a thread of its own, as an application would; it remembers its rebalances."""

    def __init__(self, cell: Cell, group: str, topic: str, **settings: Any) -> None:
        self.assigned: list[set[int]] = []
        self.revoked: list[set[int]] = []
        self.read: list[Seen] = []
        self.failure: Exception | None = None
        self._stack = ExitStack()
        self._client: KafkaConsumer = self._stack.enter_context(consumer(cell, group=group, **settings))
        self._client.subscribe([topic], listener=self)
        self._commit, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked.append({place.partition for place in revoked})

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.assigned.append({place.partition for place in assigned})

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for batch in self._client.poll(timeout_ms=JOINING_MS).values():
                    self.read += [seen(record) for record in batch]
                if self._commit.is_set():
                    self._client.commit()
                    self._commit.clear()
        except Exception as error:  # noqa: BLE001  shown by the scenario, which runs on another thread
            self.failure = error
        finally:
            self._stack.close()

    def holds(self) -> set[int]:
        if self.failure is not None:
            raise self.failure
        return {place.partition for place in self._client.assignment()}

    def values(self) -> set[bytes | None]:
        return {record.value for record in self.read}

    def commit(self) -> None:
        self._commit.set()
        until("the commit", lambda: not self._commit.is_set() or self.failure)
        self.holds()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        check(not self._thread.is_alive(), "the member did not close")


def both_share(first: Member, second: Member) -> bool:
    return len(first.holds()) == len(second.holds()) == 2 and first.holds() | second.holds() == {0, 1, 2, 3}


def reaches(what: str, condition) -> None:
    until(what, condition, within_s=30.0, every_s=0.02)


def spread(start: int) -> list[records.Written]:
    return [
        one for partition in range(4) for one in records.numbered(5, partition=partition, start=start + 5 * partition)
    ]


@scenarios("rebalance")
def rebalance(cell: Cell) -> None:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    first = Member(cell, group, topic)
    reaches("the first member holds all", lambda: first.holds() == {0, 1, 2, 3})
    second = Member(cell, group, topic)
    reaches("two members share", lambda: both_share(first, second))
    write(cell, topic, spread(0))
    reaches("both read their part", lambda: len(first.values() | second.values()) == 20)
    check(not first.values() & second.values(), "a record was read by both members")
    same({one.partition for one in second.read}, second.holds(), "partitions read by the second member")
    first.commit()
    second.commit()
    second.leave()
    reaches("the one that stays holds all", lambda: first.holds() == {0, 1, 2, 3})
    write(cell, topic, spread(20))
    reaches("it reads all", lambda: len(first.values() - second.values()) >= 30)
    first.leave()
    same(len(first.read), len(first.values()), "records read once")


@scenarios("static-membership")
def static_membership(cell: Cell) -> None:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    first = Member(cell, group, topic, group_instance_id="one")
    second = Member(cell, group, topic, group_instance_id="two")
    reaches("two members share", lambda: both_share(first, second))
    with admin(cell) as client:
        described = client.describe_groups([group])[group]
    same(
        {member["group_instance_id"] for member in described["members"]},
        {"one", "two"},
        "instance ids in the description",
    )
    rebalances, held = len(first.assigned), second.holds()
    second.leave()
    again = Member(cell, group, topic, group_instance_id="two")
    reaches("the second is back", lambda: again.holds() == held)
    write(cell, topic, spread(0))
    reaches("both read their part", lambda: len(first.values() | again.values()) == 20)
    same(len(first.assigned), rebalances, "rebalances of the member that stayed")
    first.leave()
    again.leave()


@scenarios("cooperative")
def cooperative(cell: Cell) -> None:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    settings = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
    first = Member(cell, group, topic, **settings)
    reaches("the first member holds all", lambda: first.holds() == {0, 1, 2, 3})
    second = Member(cell, group, topic, **settings)
    reaches("two members share", lambda: both_share(first, second))
    moved = [partitions for partitions in first.revoked if partitions]
    same(moved, [second.holds()], "partitions revoked from the first member")
    first.leave()
    second.leave()


def resume_behind(cell: Cell, topic: str, group: str) -> None:
    with consumer(cell, topic, group=group) as client:
        same(records.values(take(client, 5)), [b"5", b"6", b"7", b"8", b"9"], "values read by the next member")


@scenarios("commit-sync")
def commit_sync(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    write(cell, topic, records.numbered(10, partition=0))
    with consumer(cell, topic, group=group) as client:
        take(client, 5)
        client.commit()
        same(client.committed(TopicPartition(topic, 0)), 5, "offset committed")
    resume_behind(cell, topic, group)


@scenarios("commit-async")
def commit_async(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    write(cell, topic, records.numbered(10, partition=0))
    results: list[Any] = []
    with consumer(cell, topic, group=group) as client:
        take(client, 5)
        client.pause(TopicPartition(topic, 0))
        client.commit_async(callback=lambda offsets, answer: results.append((offsets, answer)))
        until("the commit is reported", lambda: client.poll(timeout_ms=50) or results)
    [(offsets, answer)] = results
    check(not isinstance(answer, Exception), f"the commit failed: {answer!r}")
    same([one.offset for one in offsets.values()], [5], "offsets committed")
    resume_behind(cell, topic, group)
