"""aiokafka: what it is told about the cluster, and whom it talks to."""

from __future__ import annotations

from .. import records
from ..runtime import Cell, check
from .kit import admin, consumer, create_topic, producer, scenarios, send, take


@scenarios("cluster")
async def cluster(cell: Cell) -> str:
    topic, group = await create_topic(cell, partitions=12), cell.name("group")
    async with (
        producer(cell) as writing,
        producer(cell, transactional_id=cell.name("txn")) as atomic,
        consumer(cell, topic, group=group) as reading,
        admin(cell) as asking,
    ):
        await send(writing, topic, [one for number in range(12) for one in records.numbered(1, partition=number)])
        async with atomic.transaction():
            await send(atomic, topic, records.numbered(1, partition=0))
        await take(reading, 13)
        described = await asking.describe_cluster()
        nodes = {broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in described["brokers"]}
        cell.only_nodes(nodes.values(), "the cluster description")
        check(described["controller_id"] in nodes, f"controller {described['controller_id']} is none of {list(nodes)}")
        for partition in (await asking.describe_topics([topic]))[0]["partitions"]:
            on = {partition["leader"], *partition["replicas"], *partition["isr"]}
            check(on <= set(nodes), f"partition {partition['partition']} is on {on}; the nodes are {list(nodes)}")
            check(
                partition["leader"] in partition["isr"],
                f"the leader of partition {partition['partition']} is not in sync",
            )
        check(await asking.find_coordinator(group) in nodes, "the coordinator of the group is no node")
        for what, client in (
            ("producer", writing.client),
            ("transactional producer", atomic.client),
            ("consumer", reading._client),
        ):
            cell.only_nodes((f"{one.host}:{one.port}" for one in client.cluster.brokers()), f"what the {what} knows")
            # Coordinators are not in that list, but each has a connection of its own.
            cell.only_nodes((f"{one.host}:{one.port}" for one in client._conns.values()), f"the {what}'s connections")
        cell.hold()
    return f"{len(nodes)} node(s)"
