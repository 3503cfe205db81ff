"""Brokers that die and leaders that move under traffic: clients behind a node lose and repeat nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.passthrough.checked import AiokafkaWriting, GroupReading, LibrdkafkaWriting, check, log_of
from tests.kafka.passthrough.conftest import leaders_of
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.passthrough.conftest import MakeTopic
    from tests.nodes import NodeProcess

PARTITIONS = 6


def coordinator_of(kafka: Kafka, group: str, *, asked: int) -> int:
    with RawClient(kafka.address(asked)) as direct:
        return direct.ask(raw.find_coordinator(group)).node_id


def elect_preferred(kafka: Kafka, topic: str) -> None:
    """Give every partition back to its first replica, once all replicas are in sync."""
    with RawClient(kafka.address(1)) as direct:

        def in_sync() -> bool:
            partitions = direct.ask(raw.metadata([topic])).topics[0].partitions
            return all(len(found.isr_nodes) == 3 for found in partitions)

        wait_for(in_sync, "all replicas in sync", 60)
        parts = [{"topic": topic, "partitions": list(range(PARTITIONS))}]
        direct.ask(request(43, 2, election_type=0, topic_partitions=parts, timeout=10_000))


@pytest.mark.timeout(240)
def test_nothing_is_lost_or_repeated_when_a_broker_is_killed_and_comes_back(
    kafka_cluster: Kafka, node_of_three: NodeProcess, topic_of_three: MakeTopic, unique: Unique
) -> None:
    """The broker that is killed leads partitions and coordinates the readers' group; later it leads them again."""
    topic, group = topic_of_three(partitions=PARTITIONS, replicas=3), unique("readers")
    bootstrap = node_of_three.bootstrap
    first = leaders_of(kafka_cluster.bootstrap, topic)
    with (
        LibrdkafkaWriting("rdkafka", bootstrap, topic, PARTITIONS) as rdkafka,
        AiokafkaWriting("aiokafka", bootstrap, topic, PARTITIONS) as aiokafka,
        GroupReading(bootstrap, topic, group) as readers,
    ):
        everybody = (rdkafka, aiokafka, readers)
        for one in everybody:
            one.goes_on()
        victim = coordinator_of(kafka_cluster, group, asked=1)
        assert victim in first.values()
        kafka_cluster.kill(victim)
        for one in everybody:
            one.goes_on()
        survivor = next(number for number in (1, 2, 3) if number != victim)
        wait_for(
            lambda: victim not in leaders_of(kafka_cluster.address(survivor), topic).values(), "the leaders to move"
        )
        wait_for(lambda: coordinator_of(kafka_cluster, group, asked=survivor) != victim, "the coordinator to move")
        kafka_cluster.restart(victim)
        elect_preferred(kafka_cluster, topic)
        wait_for(lambda: leaders_of(kafka_cluster.bootstrap, topic) == first, "the leaders to move back", 30)
        for one in everybody:
            one.goes_on()
        acked = {f"{one.name}:{number}".encode() for one in (rdkafka, aiokafka) for _, number in one.acked.copy()}
        wait_for(lambda: readers.failures or acked <= readers.seen, "the readers to have seen it all", 60)
    log = log_of(kafka_cluster.bootstrap, topic, PARTITIONS)
    for writer in (rdkafka, aiokafka):
        assert len(writer.acked) == writer.sent
        check(log, writer)


@pytest.mark.timeout(180)
def test_leaders_that_move_while_all_brokers_live_cost_nothing(
    kafka_cluster: Kafka, node_of_three: NodeProcess, topic_of_three: MakeTopic
) -> None:
    """Replicas are given another order and elections follow: old leaders answer NOT_LEADER_OR_FOLLOWER."""
    topic = topic_of_three(partitions=PARTITIONS, replicas=3)
    seen = [leaders_of(kafka_cluster.bootstrap, topic)]
    with LibrdkafkaWriting("rdkafka", node_of_three.bootstrap, topic, PARTITIONS) as writer:
        writer.goes_on()
        for turn in (1, 2):
            reassign(kafka_cluster, topic, turn)
            elect_preferred(kafka_cluster, topic)

            def moved() -> dict[int, int]:
                found = leaders_of(kafka_cluster.bootstrap, topic)
                return found if all(leader != found.get(index) for index, leader in seen[-1].items()) else {}

            seen.append(wait_for(moved, "all leaders to move", 30))  # brokers do not hear of it at the same moment
            writer.goes_on()
    log = log_of(kafka_cluster.bootstrap, topic, PARTITIONS)
    assert len(writer.acked) == writer.sent
    check(log, writer)


def reassign(kafka: Kafka, topic: str, turn: int) -> None:
    """Order each partition's replicas anew, so that another one is the preferred leader (KIP-455)."""
    with RawClient(kafka.address(1)) as direct:
        partitions = direct.ask(raw.metadata([topic])).topics[0].partitions
        wanted: dict[int, list[int]] = {}
        for found in partitions:
            others = [one for one in sorted(found.replica_nodes) if one != found.leader_id]
            wanted[found.partition_index] = [others[turn % 2], found.leader_id, others[(turn + 1) % 2]]
        body = (45).to_bytes(2, "big") + (0).to_bytes(2, "big") + (77).to_bytes(4, "big") + b"\x00\x01r\x00"
        body += (10_000).to_bytes(4, "big") + b"\x02" + bytes([len(topic) + 1]) + topic.encode()
        body += bytes([len(wanted) + 1])
        for index, replicas in sorted(wanted.items()):
            body += index.to_bytes(4, "big") + bytes([len(replicas) + 1])
            body += b"".join(replica.to_bytes(4, "big") for replica in replicas) + b"\x00"
        body += b"\x00\x00"
        direct.send_bytes(len(body).to_bytes(4, "big") + body)
        answer = direct.receive_frame()
        assert answer[9 + 4 : 9 + 6] == b"\x00\x00", answer
