"""Kafka's tools: what they are told about the cluster, and whom they talk to."""

from __future__ import annotations

import re

from ..runtime import Cell, check, same, until
from .kit import create_topic, numbered, produce, run, scenarios, start
from .transactions import open_transaction

_NODE = re.compile(r"^(\S+:\d+) \(id: (\d+) ", re.MULTILINE)


def node_ids(cell: Cell) -> list[str]:
    """The ids of the nodes of the cluster description."""
    return [number for _, number in _NODE.findall(run(cell, "kafka-broker-api-versions").out)]


@scenarios("cluster")
def cluster(cell: Cell) -> str:
    topic, group = create_topic(cell, partitions=12), cell.name("group")
    produce(cell, topic, numbered(5))
    nodes = dict(_NODE.findall(run(cell, "kafka-broker-api-versions").out))
    cell.only_nodes(nodes, "kafka-broker-api-versions")
    endpoints = run(cell, "kafka-cluster", "list-endpoints", "--bootstrap-server", cell.bootstrap).lines()[1:]
    cell.only_nodes([":".join(line.split()[1:3]) for line in endpoints], "kafka-cluster list-endpoints")
    identity = run(cell, "kafka-cluster", "cluster-id", "--bootstrap-server", cell.bootstrap).out
    check(re.fullmatch(r"Cluster ID: \S+\n", identity), f"no cluster id: {identity}")
    described = run(cell, "kafka-topics", "--describe", "--topic", topic).out
    places = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\S+)\s+Isr: (\S+)", described)
    same(len(places), 12, "partitions described")
    for partition, leader, replicas, in_sync in places:
        on = {leader, *replicas.split(","), *in_sync.split(",")}
        check(on <= set(nodes.values()), f"partition {partition} is on {on}; the nodes are {nodes}")
    reading = start(cell, "kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning")
    reading.until("the records are read", lambda output: len(output.lines()) == 5)
    state = run(cell, "kafka-consumer-groups", "--describe", "--group", group, "--state").out
    cell.only_nodes(re.findall(r"\s(\S+:\d+)\s+\(\d+\)", state), "the state of the group")
    writing = open_transaction(cell, create_topic(cell, "other"), records=50, per_second=25)
    until("the transaction", lambda: cell.name("txn") in run(cell, "kafka-transactions", "list").out)
    transaction = run(cell, "kafka-transactions", "describe", "--transactional-id", cell.name("txn")).lines()[1].split()
    check(transaction[0] in nodes.values(), f"the coordinator of the transaction, {transaction[0]}, is no node")
    cell.hold()
    writing.end()
    reading.interrupt()
    return f"{len(nodes)} node(s)"
