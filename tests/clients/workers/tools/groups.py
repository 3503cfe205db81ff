"""Kafka's tools: being a member of a group."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..runtime import Cell, MismatchError, check, same, until
from .host import Running
from .kit import consume, create_topic, numbered, produce, run, scenarios, start

ALL = {0, 1, 2, 3}


@dataclass(frozen=True)
class Member:
    """A kafka-verifiable-consumer, which tells of its rebalances and of what it read, a line of JSON each."""

    running: Running

    @classmethod
    def join(cls, cell: Cell, group: str, topic: str, *options: str) -> Member:
        arguments = ("--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--verbose", *options)
        return cls(start(cell, "kafka-verifiable-consumer", *arguments))

    def events(self, name: str) -> list[dict]:
        output = self.running.look()
        if output.exit is not None:
            raise MismatchError(f"a member ended with {output.exit}:\n{output.err[-2000:]}")
        told = [json.loads(line) for line in output.lines() if line.startswith("{")]
        return [event for event in told if event["name"] == name]

    def moves(self, name: str) -> list[set[int]]:
        return [{one["partition"] for one in event["partitions"]} for event in self.events(f"partitions_{name}")]

    def holds(self, *, cooperative: bool = False) -> set[int]:
        """What it holds, by its own account."""
        if not cooperative:
            return (self.moves("assigned") or [set()])[-1]
        gained = set().union(*self.moves("assigned"))
        return gained - set().union(*self.moves("revoked"))

    def values(self) -> list[str]:
        return [event["value"] for event in self.events("record_data")]


def both_share(first: Member, second: Member, *, cooperative: bool = False) -> bool:
    one, other = first.holds(cooperative=cooperative), second.holds(cooperative=cooperative)
    return len(one) == len(other) == 2 and one | other == ALL


def spread(cell: Cell, topic: str, start_at: int) -> None:
    """Twenty records with different keys, so that all partitions get some."""
    lines = [f"{number}\t{number}" for number in range(start_at, start_at + 20)]
    produce(cell, topic, lines, "--reader-property", "parse.key=true")


@scenarios("rebalance")
def rebalance(cell: Cell) -> str:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    first = Member.join(cell, group, topic)
    until("the first member holds all", lambda: first.holds() == ALL)
    second = Member.join(cell, group, topic)
    until("two members share", lambda: both_share(first, second))
    spread(cell, topic, 0)
    until("both read their part", lambda: len(first.values()) + len(second.values()) == 20)
    same({*first.values(), *second.values()}, set(numbered(20)), "values read")
    check(first.values(), "the first member read nothing")
    second.running.interrupt()
    until("the one that stays holds all", lambda: first.holds() == ALL)
    spread(cell, topic, 20)
    until("it reads all", lambda: set(numbered(20, 20)) <= set(first.values()))
    first.running.interrupt()
    return "verifiable consumer"


@scenarios("static-membership")
def static_membership(cell: Cell) -> str:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    first = Member.join(cell, group, topic, "--group-instance-id", "one")
    second = Member.join(cell, group, topic, "--group-instance-id", "two")
    until("two members share", lambda: both_share(first, second))
    described = run(cell, "kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose").out
    check(" one " in described and " two " in described, f"instance ids missing in {described}")
    rebalances, held = len(first.moves("assigned")), second.holds()
    second.running.interrupt()
    again = Member.join(cell, group, topic, "--group-instance-id", "two")
    until("the second is back", lambda: again.holds() == held)
    spread(cell, topic, 0)
    until("both read their part", lambda: set(numbered(20)) == {*first.values(), *again.values()})
    same(len(first.moves("assigned")), rebalances, "rebalances of the member that stayed")
    first.running.interrupt()
    again.running.interrupt()
    return "verifiable consumer"


@scenarios("cooperative")
def cooperative(cell: Cell) -> str:
    topic, group = create_topic(cell, partitions=4), cell.name("group")
    strategy = ("--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    first = Member.join(cell, group, topic, *strategy)
    until("the first member holds all", lambda: first.holds(cooperative=True) == ALL)
    second = Member.join(cell, group, topic, *strategy)
    until("two members share", lambda: both_share(first, second, cooperative=True))
    moved = [partitions for partitions in first.moves("revoked") if partitions]
    same(moved, [second.holds(cooperative=True)], "partitions revoked from the first member")
    first.running.interrupt()
    second.running.interrupt()
    return "verifiable consumer"


@scenarios("group-protocol-consumer")
def consumer_protocol(cell: Cell) -> str:
    topic = create_topic(cell)
    produce(cell, topic, numbered(5))
    reading = start(
        cell,
        "kafka-console-consumer",
        *("--topic", topic, "--group", cell.name("group"), "--from-beginning", "--max-messages", "5"),
        *("--command-property", "group.protocol=consumer"),
    )
    same(reading.end().lines(), numbered(5), "values read")
    return "console consumer"


@scenarios("commit-sync")
def commit_sync(cell: Cell) -> str:
    topic, group = create_topic(cell), cell.name("group")
    produce(cell, topic, numbered(10))
    where = ("--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--max-messages", "5")
    run(cell, "kafka-verifiable-consumer", *where)
    same(consume(cell, topic, 5, "--group", group), numbered(5, 5), "values read by the next member")
    return "verifiable consumer"


@scenarios("commit-async")
def commit_async(cell: Cell) -> str:
    topic, group = create_topic(cell), cell.name("group")
    produce(cell, topic, numbered(5))
    arguments = ("--topic", topic, "--group", group, "--from-beginning")
    running = start(cell, "kafka-console-consumer", *arguments, "--command-property", "auto.commit.interval.ms=100")
    running.until("all are read", lambda output: len(output.lines()) == 5)

    def committed() -> bool:
        described = run(cell, "kafka-consumer-groups", "--describe", "--group", group, "--offsets").lines()
        rows = [line.split() for line in described if topic in line]
        return [row[3] for row in rows] == ["5"]

    until("the commit in the background", committed)
    running.interrupt()
    produce(cell, topic, numbered(5, 5))
    same(consume(cell, topic, 5, "--group", group), numbered(5, 5), "values read by the next member")
    return "console consumer, auto commit"
