"""Kafka's tools: topics, their configuration and groups."""

from __future__ import annotations

import re

from ..runtime import Cell, check, same, until
from .cluster import node_ids
from .host import Running
from .kit import consume, create_topic, numbered, produce, run, scenarios, start


@scenarios("topics")
def topics(cell: Cell) -> None:
    topic = create_topic(cell, partitions=3, retention_ms="3600000")
    check(topic in run(cell, "kafka-topics", "--list").lines(), "the topic is not listed")
    described = run(cell, "kafka-topics", "--describe", "--topic", topic).out
    check("PartitionCount: 3" in described and "retention.ms=3600000" in described, f"description: {described}")
    again = run(cell, "kafka-topics", "--create", "--topic", topic, expected=1)
    check("TopicExistsException" in again.out + again.err, f"creating it again: {again}")
    run(cell, "kafka-topics", "--delete", "--topic", topic)
    until("the topic is gone", lambda: topic not in run(cell, "kafka-topics", "--list").lines())
    run(cell, "kafka-topics", "--delete", "--topic", topic, expected=1)


@scenarios("partitions")
def partitions(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    run(cell, "kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    until(
        "five partitions", lambda: "PartitionCount: 5" in run(cell, "kafka-topics", "--describe", "--topic", topic).out
    )
    fewer = run(cell, "kafka-topics", "--alter", "--topic", topic, "--partitions", "3", expected=1)
    check("InvalidPartitionsException" in fewer.out + fewer.err, f"fewer partitions: {fewer}")
    produce(cell, topic, [f"{number}\t{number}" for number in range(50)], "--reader-property", "parse.key=true")
    printing = ("--from-beginning", "--formatter-property", "print.partition=true")
    read_from = {line.split("\t")[0] for line in consume(cell, topic, 50, *printing)}
    same(read_from, {f"Partition:{number}" for number in range(5)}, "partitions read")


def topic_config(cell: Cell, topic: str) -> dict[str, str]:
    """What is set on the topic itself."""
    out = run(cell, "kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--describe").out
    return dict(re.findall(r"^\s+(\S+)=(\S*) sensitive", out, re.MULTILINE))


@scenarios("topic-configs")
def topic_configs(cell: Cell) -> None:
    topic = create_topic(cell, retention_ms="3600000", segment_ms="60000")
    same(topic_config(cell, topic), {"retention.ms": "3600000", "segment.ms": "60000"}, "configuration")
    change = ("--entity-type", "topics", "--entity-name", topic, "--alter")
    adding = ("--add-config", "retention.ms=7200000,cleanup.policy=[delete,compact]", "--delete-config", "segment.ms")
    run(cell, "kafka-configs", *change, *adding)
    until(
        "the change",
        lambda: topic_config(cell, topic) == {"retention.ms": "7200000", "cleanup.policy": "delete,compact"},
    )
    refused = run(cell, "kafka-configs", *change, "--add-config", "retention.ms=soon", expected=1)
    check("InvalidConfigurationException" in refused.out + refused.err, f"a bad value: {refused}")


@scenarios("broker-configs")
def broker_configs(cell: Cell) -> str:
    nodes = node_ids(cell)
    for node in nodes:
        out = run(cell, "kafka-configs", "--entity-type", "brokers", "--entity-name", node, "--describe", "--all").out
        found = dict(re.findall(r"^\s+(\S+)=(\S*) sensitive", out, re.MULTILINE))
        for name in ("log.retention.hours", "num.partitions", "min.insync.replicas"):
            check(found.get(name, "").isdigit(), f"{name} of node {node} is {found.get(name)!r}")
    return f"{len(nodes)} node(s)"


def member(cell: Cell, topic: str, group: str) -> Running:
    """A member that has read and committed the five records of its topic and stays."""
    produce(cell, topic, numbered(5))
    running = start(
        cell,
        "kafka-console-consumer",
        *("--topic", topic, "--group", group, "--from-beginning"),
        *("--command-property", "auto.commit.interval.ms=100"),
    )
    running.until("all are read", lambda output: len(output.lines()) == 5)
    return running


def offsets_of(cell: Cell, group: str) -> list[tuple[str, str]]:
    """Partition and offset, as kafka-consumer-groups shows them."""
    out = run(cell, "kafka-consumer-groups", "--describe", "--group", group, "--offsets").lines()
    return [(row[2], row[3]) for row in map(str.split, out) if row[:1] == [group]]


@scenarios("groups")
def groups(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    running = member(cell, topic, group)
    listed = run(cell, "kafka-consumer-groups", "--list", "--state").lines()
    same([line.split()[1:] for line in listed if line.startswith(group)], [["Stable"]], "states listed")
    described = run(cell, "kafka-consumer-groups", "--describe", "--group", group, "--members").lines()
    same([line.split()[-1] for line in described if line.startswith(group)], ["1"], "partitions of the only member")
    refused = run(cell, "kafka-consumer-groups", "--delete", "--group", group).out
    check("GroupNotEmptyException" in refused, f"deleting a group in use: {refused}")
    running.interrupt()


@scenarios("groups-delete")
def groups_delete(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    member(cell, topic, group).interrupt()
    done = run(cell, "kafka-consumer-groups", "--delete", "--group", group).out
    check("was successful" in done, f"deleting: {done}")
    again = run(cell, "kafka-consumer-groups", "--delete", "--group", group).out
    check("GroupIdNotFoundException" in again, f"deleting again: {again}")


@scenarios("group-offsets")
def group_offsets(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    running = member(cell, topic, group)
    until("the offset", lambda: offsets_of(cell, group) == [("0", "5")])
    running.interrupt()


@scenarios("group-offsets-alter")
def group_offsets_alter(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    member(cell, topic, group).interrupt()
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "2", "--execute")
    done = run(cell, "kafka-consumer-groups", *reset).lines()
    same([line.split()[-1] for line in done if topic in line], ["2"], "new offsets")
    same(consume(cell, topic, 3, "--group", group), ["2", "3", "4"], "values read by the next member")


@scenarios("group-offsets-delete")
def group_offsets_delete(cell: Cell) -> None:
    topic, group = create_topic(cell), cell.name("group")
    member(cell, topic, group).interrupt()
    same(offsets_of(cell, group), [("0", "5")], "offsets before")
    done = run(cell, "kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic).out
    check("Successful" in done, f"deleting the offsets: {done}")
    same(offsets_of(cell, group), [], "offsets after")
