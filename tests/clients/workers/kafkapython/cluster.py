"""kafka-python: what it is told about the cluster, and whom it talks to."""

from __future__ import annotations

from .. import records
from ..runtime import Cell, check, same
from .kit import admin, consumer, create_topic, producer, scenarios, send, take
from .transactions import transactional


@scenarios("cluster")
def cluster(cell: Cell) -> str:
    topic, group = create_topic(cell, partitions=12), cell.name("group")
    with (
        producer(cell) as writing,
        transactional(cell) as atomic,
        consumer(cell, topic, group=group) as reading,
        admin(cell) as asking,
    ):
        send(writing, topic, [one for number in range(12) for one in records.numbered(1, partition=number)])
        atomic.begin_transaction()
        send(atomic, topic, records.numbered(1, partition=0))
        atomic.commit_transaction()
        take(reading, 13)
        described = asking.describe_cluster()
        nodes = {broker["broker_id"]: f"{broker['host']}:{broker['port']}" for broker in described["brokers"]}
        cell.only_nodes(nodes.values(), "the cluster description")
        check(described["controller_id"] in nodes, f"controller {described['controller_id']} is none of {list(nodes)}")
        for partition in asking.describe_topics([topic])[0]["partitions"]:
            on = {partition["leader_id"], *partition["replica_nodes"], *partition["isr_nodes"]}
            check(on <= set(nodes), f"partition {partition['partition_index']} is on {on}; the nodes are {list(nodes)}")
            check(partition["leader_id"] in partition["isr_nodes"], "a leader is not in sync")
        same(asking.describe_groups([group])[group]["group_state"], "Stable", "state of the group")
        clients = (
            ("producer", writing._sender._client),
            ("transactional producer", atomic._sender._client),
            ("consumer", reading._client),
        )
        for what, client in clients:
            cluster_view = client.cluster
            known = [*cluster_view.brokers(), *cluster_view._coordinator_brokers.values()]
            cell.only_nodes((f"{broker.host}:{broker.port}" for broker in known), f"what the {what} knows")
        cell.hold()
    return f"{len(nodes)} node(s)"
