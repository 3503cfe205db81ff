"""Groups whose coordinator assigns partitions (KIP-848), through nodes."""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from sidecar.protocol.errors import ErrorCode
from tests import raw
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.test_shadows import Topics, topics
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from sidecar.local import Kafka
    from tests.conftest import Unique
    from tests.kafka.gateway.virtual import VirtualCluster
    from tests.services import Services

__all__ = ["topics"]
_TOPIC = 2
"""`ConfigResource.Type.TOPIC`."""


def beat(group: str, member: str, epoch: int = 0, **changed: Any) -> Any:
    """A heartbeat; without more it changes nothing."""
    values: dict[str, Any] = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    if epoch == 0:
        values |= {"rebalance_timeout": 30_000, "topic_partitions": []}
    return request(68, 1, group_id=group, member_id=member, member_epoch=epoch, **values | changed)


def take(consumer: Consumer, count: int, what: str) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []

    def came() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            place = message.topic(), message.partition(), message.offset()
            found.append(place)  # type: ignore[arg-type]
        return len(found) >= count

    wait_for(came, what, 60)
    return found


def consumer(bootstrap: str, group: str, **changed: Any) -> Consumer:
    settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "log_level": 0, **changed}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})


def fill(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(partitions * each):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(30) == 0


def test_a_group_of_the_new_protocol_reads_a_shadow_and_keeps_its_place_there(topics: Topics, unique: Unique) -> None:
    group, several = unique("group"), 5
    with consumer(topics.node.bootstrap, group) as reader:
        reader.subscribe([topics.shadow])
        found = take(reader, several, "records of the source, by the shadow's name")
        assert {name for name, _, _ in found} == {topics.shadow}
        reader.commit(asynchronous=False)
        places = reader.committed([TopicPartition(topics.shadow, index) for index in range(2)], 20)
        assert any(place.offset > 0 for place in places)
        beside = reader.committed([TopicPartition(topics.source, index) for index in range(2)], 20)
        assert all(place.offset < 0 for place in beside), "the source's cursors are others"


def test_a_shadow_that_is_not_for_a_member_is_not_assigned_to_it(topics: Topics, unique: Unique) -> None:
    topics.expose(topics.shadow, allow="User:somebody-else")
    group = unique("group")
    with RawClient(topics.node.bootstrap) as wire:
        named = wire.ask(beat(group, "m", subscribed_topic_names=[topics.shadow]))
        assert named.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        matched = wire.ask(beat(group, "m", subscribed_topic_regex=f"{topics.shadow}.*", subscribed_topic_names=[]))
        assert matched.error_code.value == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert "java.util.regex.Pattern" in matched.error_message
        assert wire.ask(beat(group, "m", subscribed_topic_names=[topics.source])).error_code.value == 0


def test_an_expression_brings_a_member_nothing_of_a_shadow_that_is_taken_from_it(
    topics: Topics, unique: Unique
) -> None:
    """The coordinator keeps the expression, and has the rights of the node."""
    group, member = unique("group"), str(uuid.uuid4())
    with RawClient(topics.node.bootstrap) as wire:
        joined = wire.ask(beat(group, member, subscribed_topic_regex=f"{topics.shadow}.*", subscribed_topic_names=[]))
        assert joined.error_code.value == 0
        answer = assigned(wire, group, member, int(joined.member_epoch))
        topics.expose(topics.shadow, allow="User:somebody-else")
        whole: dict[str, Any] = {"subscribed_topic_names": [topics.source], "topic_partitions": []}
        refused = wire.ask(beat(group, member, int(answer.member_epoch), rebalance_timeout=30_000, **whole))
        assert refused.error_code.value == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert refused.assignment is None


def test_a_member_keeps_a_shadow_that_it_named_as_it_does_a_topic_at_a_broker(topics: Topics, unique: Unique) -> None:
    group, members = unique("group"), [str(uuid.uuid4()) for _ in range(2)]
    names = [[topics.shadow, topics.source], [topics.source]]
    with RawClient(topics.node.bootstrap) as wire:
        (shadow,) = wire.ask(raw.metadata([topics.shadow], version=12)).topics
        joined = wire.ask(beat(group, members[0], subscribed_topic_names=names[0]))
        topics.expose(topics.shadow, allow="User:somebody-else")
        assert wire.ask(beat(group, members[1], subscribed_topic_names=names[1])).error_code.value == 0
        less = assigned(wire, group, members[0], int(joined.member_epoch))
        assert shadow.topic_id in {each.topic_id for each in less.assignment.topic_partitions}


def test_no_answer_names_a_shadow_that_its_allow_list_hides(topics: Topics, unique: Unique) -> None:
    """Metadata does not list it: nor do groups that read it, lists of settings, and directories."""
    group, member = unique("group"), str(uuid.uuid4())

    def seen(wire: RawClient) -> list[bool]:
        (described,) = wire.ask(request(69, 1, group_ids=[group])).groups
        resources = wire.ask(request(74, 1, resource_types=[])).config_resources
        directories = wire.ask(request(35, 4, topics=None)).results
        names = [
            {each.topic_name for member in described.members for each in member.assignment.topic_partitions},
            {each.resource_name for each in resources if each.resource_type == _TOPIC},
            {topic.name for directory in directories for topic in directory.topics},
        ]
        assert all(topics.source in each for each in names[1:])
        code = described.error_code.value
        assert code == (0 if names[0] else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [topics.shadow in each for each in names]

    with RawClient(topics.node.bootstrap) as wire:
        joined = wire.ask(beat(group, member, subscribed_topic_names=[topics.shadow]))
        if joined.assignment is None or not joined.assignment.topic_partitions:
            assigned(wire, group, member, int(joined.member_epoch))
        assert seen(wire) == [True] * 3
        topics.expose(topics.shadow, allow="User:somebody-else")
        assert seen(wire) == [False] * 3


def assigned(wire: RawClient, group: str, member: str, epoch: int) -> Any:
    """The heartbeat that brings a member an assignment."""
    answers: list[Any] = []

    def comes() -> bool:
        answers.append(wire.ask(beat(group, member, answers[-1].member_epoch if answers else epoch)))
        assert answers[-1].error_code.value == 0
        return answers[-1].assignment is not None and bool(answers[-1].assignment.topic_partitions)

    wait_for(comes, "an assignment", 60)
    return answers[-1]


async def test_a_group_moves_on_line_from_the_classic_protocol_to_the_new_one(
    one_node: VirtualCluster, services: Services, unique: Unique
) -> None:
    topic, group = unique("orders"), unique("group")
    async with kafka_calls(services.kafka_bootstrap) as calls:
        await calls.create(topic, partitions=4)
    with ExitStack() as stack:
        old = stack.enter_context(consumer(one_node.bootstrap, group, **{"group.protocol": "classic"}))
        old.subscribe([topic])
        wait_for(lambda: old.poll(0.1) is None and len(old.assignment()) == 4, "all for the only member", 60)
        new = stack.enter_context(consumer(one_node.bootstrap, group))
        new.subscribe([topic])

        def shared() -> bool:
            old.poll(0.1)
            new.poll(0.1)
            theirs = [{place.partition for place in each.assignment()} for each in (old, new)]
            return all(theirs) and not theirs[0] & theirs[1] and len(theirs[0] | theirs[1]) == 4

        wait_for(shared, "the partitions to be shared between both protocols", 90)
        with RawClient(one_node.bootstrap) as wire:
            (described,) = wire.ask(request(69, 1, group_ids=[group])).groups
        assert described.error_code.value == 0
        assert sorted(int(member.member_type) for member in described.members) == [0, 1], "one of each kind"


async def test_members_stay_while_their_group_moves_to_another_coordinator(
    three_nodes: VirtualCluster, kafka_cluster: Kafka, unique: Unique
) -> None:
    topic, group, member = unique("orders"), unique("group"), str(uuid.uuid4())
    async with kafka_calls(kafka_cluster.bootstrap) as calls:
        await calls.create(topic, partitions=2, replicas=3)
    with RawClient(kafka_cluster.bootstrap) as direct:
        coordinator = direct.ask(request(10, 4, coordinator_keys=[group])).coordinators[0].node_id
    with RawClient(three_nodes.nodes[1].bootstrap) as wire:
        joined = wire.ask(beat(group, member, subscribed_topic_names=[topic]))
        assert joined.error_code.value == 0
        epochs = [int(joined.member_epoch)]
        kafka_cluster.kill(coordinator)
        try:
            refused: set[int] = set()

            def goes_on() -> bool:
                answer = wire.ask(beat(group, member, epochs[-1]))
                code = answer.error_code.value
                if code == 0:
                    epochs.append(int(answer.member_epoch))
                    return True
                refused.add(code)
                wire.ask(request(10, 4, coordinator_keys=[group]))  # what a client does that is told 15 or 16
                time.sleep(0.05)
                return False

            wait_for(goes_on, "another coordinator", 60)
            assert refused <= {14, 15, 16}
            assert ErrorCode.COORDINATOR_NOT_AVAILABLE in refused, "the coordinator was lost"
        finally:
            kafka_cluster.restart(coordinator)
