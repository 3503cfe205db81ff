"""confluent-kafka: being a member of a group."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from .. import records
from ..records import Seen
from ..runtime import Cell, MismatchError, check, same, until
from .kit import WAIT_S, admin, consumer, create_topic, scenarios, seen, setting_names, take, write


@dataclass
class Member:
    """A subscribed consumer that remembers its rebalances."""

    cell: Cell
    group: str
    topic: str
    settings: dict[str, Any] = field(default_factory=dict)
    assigned: list[set[int]] = field(default_factory=list)
    revoked: list[set[int]] = field(default_factory=list)
    read: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = Consumer(
            {
                "bootstrap.servers": self.cell.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **setting_names(self.settings),
            }
        )
        self.client.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.append({one.partition for one in partitions})

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked.append({one.partition for one in partitions})

    def holds(self) -> set[int]:
        return {one.partition for one in self.client.assignment()}

    def poll(self) -> None:
        message = self.client.poll(0.05)
        if message is not None:
            self.read.append(seen(message))

    def values(self) -> set[bytes | None]:
        return {record.value for record in self.read}


def poll_until(what: str, members: Iterable[Member], condition: Any, within_s: float = 30.0) -> None:
    """Poll all members in turn, as their applications would, until the condition holds."""
    members = list(members)

    def look() -> bool:
        for member in members:
            member.poll()
        return condition()

    try:
        until(what, look, within_s=within_s, every_s=0.0)
    except MismatchError as error:
        held = [sorted(member.holds()) for member in members]
        raise MismatchError(f"{error}; held {held}, assigned {[m.assigned for m in members]}") from error


def both_share(first: Member, second: Member) -> bool:
    return len(first.holds()) == len(second.holds()) == 2 and first.holds() | second.holds() == {0, 1, 2, 3}


def spread(start: int) -> list[records.Written]:
    return [
        one for partition in range(4) for one in records.numbered(5, partition=partition, start=start + 5 * partition)
    ]


@scenarios("rebalance")
def rebalance(cell: Cell) -> None:
    topic, group, fast = create_topic(cell, partitions=4), cell.name("group"), {"heartbeat_interval_ms": 300}
    first = Member(cell, group, topic, fast)
    poll_until("the first member holds all", [first], lambda: first.holds() == {0, 1, 2, 3})
    second = Member(cell, group, topic, fast)
    poll_until("two members share", [first, second], lambda: both_share(first, second))
    write(cell, topic, spread(0))
    poll_until("both read their part", [first, second], lambda: len(first.values() | second.values()) == 20)
    check(not first.values() & second.values(), "a record was read by both members")
    same({one.partition for one in second.read}, second.holds(), "partitions read by the second member")
    for member in (first, second):
        member.client.commit(asynchronous=False)
    second.client.close()
    poll_until("the one that stays holds all", [first], lambda: first.holds() == {0, 1, 2, 3})
    write(cell, topic, spread(20))
    poll_until("it reads all", [first], lambda: len(first.values() - second.values()) >= 30)
    first.client.close()
    check(len(first.read) == len(first.values()), "a record was read twice")


@scenarios("static-membership")
def static_membership(cell: Cell) -> None:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    members = [
        Member(cell, group, topic, {"group_instance_id": name, "heartbeat_interval_ms": 300}) for name in ("one", "two")
    ]
    first, second = members
    poll_until("two members share", members, lambda: both_share(first, second))
    described = admin(cell).describe_consumer_groups([group])[group].result(WAIT_S)
    same({member.group_instance_id for member in described.members}, {"one", "two"}, "instance ids in the description")
    rebalances, held = len(first.assigned), second.holds()
    second.client.close()
    again = Member(cell, group, topic, {"group_instance_id": "two", "heartbeat_interval_ms": 300})
    poll_until("the second is back", [first, again], lambda: again.holds() == held)
    write(cell, topic, spread(0))
    poll_until("both read their part", [first, again], lambda: len(first.values() | again.values()) == 20)
    same(len(first.assigned), rebalances, "rebalances of the member that stayed")
    first.client.close()
    again.client.close()


@scenarios("cooperative")
def cooperative(cell: Cell) -> None:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    settings = {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 300}
    first = Member(cell, group, topic, settings)
    poll_until("the first member holds all", [first], lambda: first.holds() == {0, 1, 2, 3})
    second = Member(cell, group, topic, settings)
    poll_until("two members share", [first, second], lambda: both_share(first, second))
    moved = [partitions for partitions in first.revoked if partitions]
    same(moved, [second.holds()], "partitions revoked from the first member")
    for member in (first, second):
        member.client.close()


@scenarios("group-protocol-consumer")
def consumer_protocol(cell: Cell) -> None:
    topic = create_topic(cell, partitions=4)
    write(cell, topic, spread(0))
    client = Consumer(
        {
            "bootstrap.servers": cell.bootstrap,
            "group.id": cell.name("group"),
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    read: set[bytes | None] = set()
    deadline = time.monotonic() + WAIT_S
    try:
        client.subscribe([topic])
        while len(read) < 20 and time.monotonic() < deadline:
            message = client.poll(0.2)
            if message is not None:
                read.add(seen(message).value)
    finally:
        client.close()
    same(len(read), 20, "records read")


def resume_behind(cell: Cell, topic: str, group: str) -> None:
    with consumer(cell, group) as client:
        client.subscribe([topic])
        same(records.values(take(client, 5)), [b"5", b"6", b"7", b"8", b"9"], "values read by the next member")


@scenarios("commit-sync")
def commit_sync(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    write(cell, topic, records.numbered(10, partition=0))
    with consumer(cell, group) as client:
        client.subscribe([topic])
        take(client, 5)
        same([one.offset for one in client.commit(asynchronous=False) or ()], [5], "offsets committed")
    resume_behind(cell, topic, group)


@scenarios("commit-async")
def commit_async(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    write(cell, topic, records.numbered(10, partition=0))
    results: list[tuple[KafkaError | None, list[int]]] = []

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        results.append((error, [one.offset for one in partitions]))

    with consumer(cell, group, on_commit=on_commit) as client:
        client.subscribe([topic])
        take(client, 5)
        client.pause(client.assignment())
        client.commit(asynchronous=True)
        until("the commit is reported", lambda: client.poll(0.05) or results)
    same(results, [(None, [5])], "results of the commit")
    resume_behind(cell, topic, group)
