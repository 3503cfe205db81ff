"""Share groups (KIP-932) through nodes: records of all brokers reach members once, and rules hold as at a broker."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.gateway import asking
from sidecar.gateway.enforcement import Enforcement
from sidecar.gateway.rights import Rights
from sidecar.local import Kafka, KafkaConfig
from sidecar.local.tools import find_tools
from sidecar.protocol.calls.security import AclBinding
from sidecar.security.acls import Acls, Operation, PatternType, Permission, ResourceType
from tests import raw
from tests.kafka.gateway.by_id import mislead
from tests.kafka.gateway.conftest import create_internal_topics
from tests.kafka.gateway.requests import request
from tests.kafka.gateway.virtual import VirtualCluster
from tests.kafka_calls import kafka_calls
from tests.raw import RawClient
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from sidecar.gateway.client import Client
    from tests.conftest import Unique

pytestmark = pytest.mark.slow
VERSION = "4.3.1"
"""Of the first Kafka in which share groups are switched on."""
PARTITIONS = 12
"""Six are led by one of three nodes alone in one run of 243: their places depend on the name of the topic."""
EACH = 5
EARLIEST = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
_SIZES = {"max_bytes": 2**20, "min_bytes": 1, "max_records": 500, "batch_size": 500}


class Consumer:
    """A member as a share consumer has it: a session with each of the servers that lead something."""

    def __init__(self, bootstrap: str, scene: Scene) -> None:
        self.group, self.topic_id = scene.group, scene.topic_id
        self.member = str(uuid.uuid4())
        with RawClient(bootstrap.split(",", maxsplit=1)[0]) as wire:
            found = wire.ask(request(3, 12, topics=[{"name": scene.topic}]))
            places = {broker.node_id: f"{broker.host}:{broker.port}" for broker in found.brokers}
            leaders = {each.partition_index: each.leader_id for each in found.topics[0].partitions}
        self.places = places
        self._join(places, scene.topic)
        self.wires = {leader: RawClient(places[leader]) for leader in set(leaders.values())}
        self.led = {leader: [each for each in leaders if leaders[each] == leader] for leader in self.wires}
        self.epochs = dict.fromkeys(self.wires, 0)

    def _join(self, places: dict[int, str], topic: str) -> None:
        """Let the coordinator know of the group: it makes the states that brokers keep of its partitions."""
        with RawClient(next(iter(places.values()))) as wire:
            (found,) = wire.ask(request(10, 6, key_type=0, coordinator_keys=[self.group])).coordinators
        with RawClient(places[found.node_id]) as wire:
            beat = request(
                76, 1, group_id=self.group, member_id=self.member, member_epoch=0, subscribed_topic_names=[topic]
            )
            assert wire.ask(beat).error_code.value == 0

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()

    def fetch(
        self, leader: int, *, acks: dict[int, list[tuple[int, int]]] | None = None, kind: int = 1, **changed: Any
    ) -> Any:
        """One ShareFetch to one server, its partitions named at first."""
        first = self.epochs[leader] == 0
        named: dict[int, list[Any]] = {index: [] for index in self.led[leader]} if first else {}
        named |= {index: [_batch(*each, kind) for each in ranges] for index, ranges in (acks or {}).items()}
        parts = [{"partition_index": index, "acknowledgement_batches": found} for index, found in named.items()]
        topics = [{"topic_id": self.topic_id, "partitions": parts}] if parts else []
        asked = {"max_wait": 300, **_SIZES} | changed
        answer = self.wires[leader].ask(
            request(78, 2, **self._whose(leader), **asked, topics=topics, share_acquire_mode=0)
        )
        self.epochs[leader] += 1
        return answer

    def acknowledge(self, leader: int, acks: dict[int, list[tuple[int, int]]], kind: int = 1) -> Any:
        parts = [
            {"partition_index": index, "acknowledgement_batches": [_batch(*each, kind) for each in ranges]}
            for index, ranges in acks.items()
        ]
        topics = [{"topic_id": self.topic_id, "partitions": parts}]
        answer = self.wires[leader].ask(request(79, 2, **self._whose(leader), topics=topics))
        self.epochs[leader] += 1
        return answer

    def _whose(self, leader: int) -> dict[str, Any]:
        return {"group_id": self.group, "member_id": self.member, "share_session_epoch": self.epochs[leader]}

    def take(self, rounds: int = 100, count: int = PARTITIONS * EACH) -> dict[int, list[tuple[int, int]]]:
        """What all servers give, in so many rounds at most: acquired ranges of offsets by partition."""
        taken: dict[int, list[tuple[int, int]]] = {}
        for leader in [leader for _ in range(rounds) for leader in self.wires]:
            for index, ranges in acquired(self.fetch(leader)).items():
                taken.setdefault(index, []).extend(ranges)
            if len(records(taken)) >= count:
                break
        return taken


def _batch(first: int, last: int, kind: int) -> dict[str, Any]:
    return {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}


def acquired(answer: Any) -> dict[int, list[tuple[int, int]]]:
    assert answer.error_code.value == 0, answer
    return {
        part.partition_index: [(int(each.first_offset), int(each.last_offset)) for each in part.acquired_records]
        for topic in answer.responses
        for part in topic.partitions
        if part.acquired_records
    }


def codes(answer: Any) -> set[int]:
    """The errors of a ShareAcknowledge."""
    parts = (part for topic in answer.responses for part in topic.partitions)
    return {answer.error_code.value, *(part.error_code.value for part in parts)}


def records(taken: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int]]:
    ranges = ((index, each) for index, found in taken.items() for each in found)
    return sorted((index, offset) for index, (first, last) in ranges for offset in range(first, last + 1))


ALL = [(index, offset) for index in range(PARTITIONS) for offset in range(EACH)]


class Scene:
    """A topic with records in it, and a group that reads it from its beginning."""

    def __init__(self, kafka: Kafka, unique: Unique) -> None:
        self.kafka = kafka.bootstrap
        self.topic, self.group = unique("orders"), unique("shared")
        self.topic_id = uuid.UUID(int=0)
        self._consumers: list[Consumer] = []

    async def make(self) -> None:
        async with kafka_calls(self.kafka) as calls:
            await calls.create(self.topic, partitions=PARTITIONS)
        with RawClient(self.kafka.split(",")[0]) as wire:
            resource = {"resource_type": 32, "resource_name": self.group, "configs": EARLIEST}
            wire.ask(request(44, 1, resources=[resource], validate_only=False))
            self.topic_id = wire.ask(request(3, 12, topics=[{"name": self.topic}])).topics[0].topic_id
        self.write()

    def write(self) -> None:
        for broker in self.kafka.split(","):
            with RawClient(broker) as wire:
                found = wire.ask(request(3, 12, topics=[{"name": self.topic}]))
                here = next(each.node_id for each in found.brokers if broker.endswith(f":{each.port}"))
                parts = {
                    (self.topic, each.partition_index): raw.batch(count=EACH)
                    for each in found.topics[0].partitions
                    if each.leader_id == here
                }
                if parts:
                    assert {raw.code(each) for each in raw.produced(wire.ask(raw.produce(parts))).values()} == {0}

    def consumer(self, servers: VirtualCluster | None = None) -> Consumer:
        """Of nodes, else of the brokers."""
        consumer = Consumer(servers.bootstrap if servers else self.kafka, self)
        self._consumers.append(consumer)
        return consumer

    def close(self) -> None:
        for each in self._consumers:
            each.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    running = Kafka(tmp_path_factory.mktemp("kafka"), KafkaConfig(version=VERSION, brokers=2))
    running.start()
    create_internal_topics(running.bootstrap)
    yield running
    running.stop(grace=0)


@pytest.fixture
def nodes(kafka: Kafka) -> Iterator[VirtualCluster]:
    """Three nodes in front of two brokers: each node needs both, and each broker has sessions with all of them."""
    with VirtualCluster(kafka.bootstrap, nodes=3, first_id=11) as cluster:
        yield cluster
        assert cluster.events.crashed == []


@pytest.fixture
async def scene(kafka: Kafka, unique: Unique) -> AsyncIterator[Scene]:
    found = Scene(kafka, unique)
    await found.make()
    yield found
    found.close()


async def test_each_record_reaches_one_member_once(scene: Scene, nodes: VirtualCluster) -> None:
    first, second = scene.consumer(nodes), scene.consumer(nodes)
    assert len(first.wires) > 1, "several nodes lead partitions"
    taken = first.take()
    assert records(taken) == ALL
    assert records(second.take(2)) == [], "they are the first member's"
    for leader, led in first.led.items():
        done = first.acknowledge(leader, {index: taken[index] for index in led})
        assert done.error_code.value == 0
        assert {part.error_code.value for topic in done.responses for part in topic.partitions} == {0}
    scene.write()
    later = [(index, offset + EACH) for index, offset in ALL]
    assert records(second.take()) == later


async def test_what_is_released_comes_again_and_so_does_what_a_lost_client_had(
    scene: Scene, nodes: VirtualCluster
) -> None:
    first = scene.consumer(nodes)
    taken = first.take()
    (leader, led), *_ = first.led.items()
    again = first.fetch(leader, acks={index: taken[index] for index in led}, kind=2)
    assert {int(part.acknowledge_error_code) for topic in again.responses for part in topic.partitions} == {0}
    released = [each for each in ALL if each[0] in led]
    back = acquired(again)
    wait_for(lambda: records(_more(first, leader, back)) == released, "the released records")
    first.close()
    second, everything = scene.consumer(nodes), dict[int, list[tuple[int, int]]]()

    def came() -> bool:
        for index, ranges in second.take(1).items():
            everything.setdefault(index, []).extend(ranges)
        return records(everything) == ALL

    wait_for(came, "all that the first member had")


def _more(consumer: Consumer, leader: int, found: dict[int, list[tuple[int, int]]]) -> dict[int, list[tuple[int, int]]]:
    for index, ranges in acquired(consumer.fetch(leader)).items():
        found.setdefault(index, []).extend(ranges)
    return found


@pytest.mark.parametrize("through_nodes", [True, False])
async def test_a_session_is_found_on_another_connection_of_the_member(
    scene: Scene, nodes: VirtualCluster, through_nodes: bool
) -> None:
    """franz-go acknowledges on another connection than it fetches on, also when it closes the session."""
    consumer = scene.consumer(nodes if through_nodes else None)
    taken = consumer.take()
    assert records(taken) == ALL
    (leader, led), *_ = consumer.led.items()
    fetching = consumer.wires[leader]
    first, last = led[0], led[1:]
    with RawClient(consumer.places[leader]) as acknowledging:
        consumer.wires[leader] = acknowledging
        assert codes(consumer.acknowledge(leader, {first: taken[first]})) == {0}
        consumer.wires[leader] = fetching
        assert consumer.fetch(leader, max_wait=0).error_code.value == 0
        consumer.wires[leader], consumer.epochs[leader] = acknowledging, -1
        assert codes(consumer.acknowledge(leader, {index: taken[index] for index in last})) == {0}
    consumer.wires[leader] = fetching
    consumer.close()
    second, others = scene.consumer(nodes), [each for each in ALL if each[0] not in led]
    found: dict[int, list[tuple[int, int]]] = {}

    def came() -> bool:
        for index, ranges in second.take(1).items():
            found.setdefault(index, []).extend(ranges)
        return records(found) == others

    wait_for(came, "what was not acknowledged, and nothing else")


@pytest.mark.parametrize("through_nodes", [True, False])
async def test_a_session_ends_with_the_connection_that_opened_it(
    scene: Scene, nodes: VirtualCluster, through_nodes: bool
) -> None:
    consumer = scene.consumer(nodes if through_nodes else None)
    consumer.take()
    (leader, led), *_ = consumer.led.items()
    fetching = consumer.wires[leader]
    with RawClient(consumer.places[leader]) as other:
        fetching.close()
        consumer.wires[leader] = other

        def ended() -> bool:
            found = consumer.acknowledge(leader, {led[0]: []}).error_code.value
            assert found in (0, 122)
            return found == 122

        wait_for(ended, "the session to end")


@pytest.mark.parametrize("through_nodes", [True, False])
async def test_a_fetch_that_closes_a_session_has_the_answers_to_its_acknowledgements(
    scene: Scene, nodes: VirtualCluster, through_nodes: bool
) -> None:
    """It reads nothing, so acknowledgements are all that the answer has of a partition."""
    consumer = scene.consumer(nodes if through_nodes else None)
    taken = consumer.take()
    (leader, led), *_ = consumer.led.items()
    consumer.epochs[leader] = -1
    closing = consumer.fetch(leader, acks={index: taken[index] for index in led})
    assert closing.error_code.value == 0
    parts = [part for topic in closing.responses for part in topic.partitions]
    assert {part.partition_index for part in parts} == set(led)
    assert {(part.error_code.value, int(part.acknowledge_error_code)) for part in parts} == {(0, 0)}


async def test_a_request_on_another_connection_waits_for_the_session(scene: Scene, nodes: VirtualCluster) -> None:
    """Brokers have to get the requests of a session in their order, and a ShareFetch may wait there for records."""
    consumer = scene.consumer(nodes)
    taken = consumer.take()
    (leader, led), *_ = consumer.led.items()
    fetching = consumer.wires[leader]
    asked = request(78, 2, **consumer._whose(leader), **(_SIZES | {"max_wait": 2_000}), topics=[], share_acquire_mode=0)
    fetching.send(asked)
    consumer.epochs[leader] += 1
    with RawClient(consumer.places[leader]) as acknowledging:
        consumer.wires[leader] = acknowledging

        def arrived() -> bool:
            """The node refuses the epoch while it has not read the ShareFetch yet."""
            found = consumer.acknowledge(leader, {index: taken[index] for index in led})
            if found.error_code.value == 123:
                consumer.epochs[leader] -= 1
                return False
            return codes(found) == {0}

        wait_for(arrived, "the acknowledgement to be accepted")
    assert fetching.receive().error_code.value == 0
    consumer.wires[leader] = fetching


async def test_no_more_records_come_than_were_asked_for(scene: Scene, nodes: VirtualCluster) -> None:
    consumer = scene.consumer(nodes)
    taken: list[tuple[int, int]] = []
    for leader in itertools.islice(itertools.cycle(consumer.wires), 200):
        some = records(acquired(consumer.fetch(leader, max_records=1, batch_size=1, max_wait=100)))
        taken += some
        if len(taken) >= len(ALL):
            break
    assert sorted(taken) == ALL


async def test_sessions_are_refused_as_by_a_broker(scene: Scene, nodes: VirtualCluster) -> None:
    answers: list[list[Any]] = []
    for servers in (nodes, None):
        consumer = scene.consumer(servers)
        leader = next(iter(consumer.wires))
        found: list[Any] = [consumer.acknowledge(leader, {consumer.led[leader][0]: [(0, 0)]})]
        consumer.epochs[leader] = 5
        found += [consumer.fetch(leader), consumer.acknowledge(leader, {})]
        consumer.epochs[leader] = -1
        found.append(consumer.fetch(leader))
        consumer.epochs[leader] = 0
        found.append(consumer.fetch(leader, acks={consumer.led[leader][0]: [(0, 0)]}))
        consumer.epochs[leader] = 0
        assert consumer.fetch(leader).error_code.value == 0
        consumer.epochs[leader] = 7
        found += [consumer.fetch(leader), consumer.acknowledge(leader, {})]
        consumer.member, consumer.epochs[leader] = "", 0
        found.append(consumer.fetch(leader))
        answers.append([answer.error_code.value for answer in found])
    assert answers[0] == answers[1]
    assert set(answers[0]) == {42, 122, 123}


async def test_a_partition_that_is_not_there_has_its_error(scene: Scene, nodes: VirtualCluster) -> None:
    """A topic that is not there has one, too; a broker of 4.3 fails at it in a session's first request."""
    found: list[set[int]] = []
    for servers, topic_id, index in (
        (nodes, scene.topic_id, 77),
        (None, scene.topic_id, 77),
        (nodes, uuid.uuid4(), 0),
    ):
        consumer = scene.consumer(servers)
        consumer.topic_id, leader = topic_id, next(iter(consumer.wires))
        consumer.led[leader] = [index]
        answer = consumer.fetch(leader, max_wait=0)
        found.append({part.error_code.value for topic in answer.responses for part in topic.partitions})
    assert found == [{3}, {3}, {100}]


async def test_a_member_hears_of_a_new_leader_by_the_node_and_never_of_a_broker(
    scene: Scene, nodes: VirtualCluster
) -> None:
    """The node believes that another broker leads a partition, as after an election that it did not hear of."""
    consumer = scene.consumer(nodes)
    taken = consumer.take()
    leader, (index, *_) = next(iter(consumer.led.items()))
    node = next(each for each in nodes.nodes if each.id == leader)
    epoch = mislead(nodes, scene.topic, node=node, partition=index)
    answer = consumer.fetch(leader)
    (part,) = (part for topic in answer.responses for part in topic.partitions if part.error_code.value)
    assert (part.partition_index, part.error_code.value) == (index, 6)
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader, epoch)
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [
        (leader, "127.0.0.1", node.port)
    ]
    scene.write()
    found: dict[int, list[tuple[int, int]]] = {}
    wait_for(lambda: index in _more(consumer, leader, found), "records of the partition that the node has found again")
    assert taken.keys() >= {index}


@pytest.mark.parametrize("limits", [{"min_bytes": 0}, {"max_bytes": 0}, {"max_records": 0}])
async def test_brokers_that_do_not_wait_are_not_asked_without_a_pause(
    scene: Scene, nodes: VirtualCluster, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """One request of a client would become thousands, for as long as it says that it waits."""
    consumer = scene.consumer(nodes)
    assert records(consumer.take()) == ALL
    asked: list[int] = []
    one = asking.one

    async def counted(client: Any, broker: int, *rest: Any) -> Any:
        asked.append(broker)
        return await one(client, broker, *rest)

    monkeypatch.setattr(asking, "one", counted)
    for leader in consumer.wires:
        asked_for: dict[str, Any] = {"max_wait": 3_000, **limits}
        answer = consumer.fetch(leader, **asked_for)
        assert (answer.error_code.value, acquired(answer)) == (0, {})
    assert 0 < len(asked) <= 4 * len(consumer.wires)


async def test_topics_that_are_not_there_are_looked_up_once_for_a_request(
    scene: Scene, nodes: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert records(scene.consumer(nodes).take()) == ALL
    consumer = scene.consumer(nodes)
    leader = next(iter(consumer.wires))
    consumer.led[leader] = [*range(PARTITIONS)]  # of both brokers: they are asked in rounds
    assert acquired(consumer.fetch(leader)) == {}
    looked_up: list[set[bytes]] = []
    for node in nodes.nodes:
        monkeypatch.setattr(node.upstream, "find_ids", _noted(looked_up, node.upstream.find_ids))
    unknown = uuid.uuid4()
    topics = [{"topic_id": unknown, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}]
    answer = consumer.wires[leader].ask(
        request(78, 2, **consumer._whose(leader), max_wait=1_000, **_SIZES, topics=topics, share_acquire_mode=0)
    )
    assert [topic.topic_id for topic in answer.responses if topic.partitions[0].error_code.value == 100] == [unknown]
    assert looked_up == [{unknown.bytes}]


async def test_without_acls_nobody_deletes_or_changes_the_states_of_share_groups(
    scene: Scene, nodes: VirtualCluster
) -> None:
    consumer, name = scene.consumer(nodes), "__share_group_state"
    consumer.take()
    for node in nodes.nodes:
        node.gateway.enforcement = Enforcement(node.upstream, None)
    with RawClient(nodes.bootstrap.split(",", maxsplit=1)[0]) as wire:
        config = {"name": "retention.ms", "config_operation": 0, "value": "1"}
        resource = {"resource_type": 2, "resource_name": name, "configs": [config]}
        (altered,) = wire.ask(request(44, 1, resources=[resource], validate_only=False)).responses
        (deleted,) = wire.ask(request(20, 5, topic_names=[name])).responses
        assert (altered.error_code.value, deleted.error_code.value) == (29, 29)
        (shown,) = wire.ask(request(3, 12, topics=[{"name": name}])).topics
        assert shown.partitions


def _noted(found: list[set[bytes]], ask: Callable[[set[bytes]], Awaitable[bool]]) -> Any:
    async def noted(ids: set[bytes]) -> bool:
        found.append(ids)
        return await ask(ids)

    return noted


class _Mirror:
    take_over = Operation.ALTER

    def __init__(self) -> None:
        self.acls: Acls | None = None

    def allow(self, *names: tuple[ResourceType, str]) -> None:
        self.acls = Acls(
            AclBinding(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.READ, Permission.ALLOW)
            for kind, name in names
        )


class _Enforced:
    def __init__(self, mirror: _Mirror) -> None:
        self._mirror = mirror

    def rights(self, client: Client) -> Rights:
        return Rights(client, "127.0.0.1", self._mirror)

    async def run(self, handle: Any, *request: Any) -> None:
        await handle(*request)


async def test_records_are_for_those_who_may_read_the_topic_in_the_group(scene: Scene, nodes: VirtualCluster) -> None:
    mirror = _Mirror()
    for node in nodes.nodes:
        node.gateway.enforcement = _Enforced(mirror)  # type: ignore[assignment]
    consumer = scene.consumer(nodes)
    leader = next(iter(consumer.wires))
    mirror.allow((ResourceType.TOPIC, scene.topic))
    assert consumer.fetch(leader).error_code.value == 30
    mirror.allow((ResourceType.GROUP, scene.group))
    consumer.epochs[leader] = 0
    answer = consumer.fetch(leader)
    parts = [part for topic in answer.responses for part in topic.partitions]
    assert {part.error_code.value for part in parts} == {29}
    assert not any(part.records or part.acquired_records for part in parts)
    mirror.allow((ResourceType.GROUP, scene.group), (ResourceType.TOPIC, scene.topic))
    allowed: dict[int, list[tuple[int, int]]] = {}
    mine = [each for each in ALL if each[0] in consumer.led[leader]]
    wait_for(lambda: records(_more(consumer, leader, allowed)) == mine, "what it may read now")
    mirror.allow((ResourceType.GROUP, scene.group))
    done = consumer.acknowledge(leader, allowed)
    assert {part.error_code.value for topic in done.responses for part in topic.partitions} == {29}


async def test_kafkas_own_share_consumer_reads_through_nodes(scene: Scene, nodes: VirtualCluster) -> None:
    tools = find_tools(VERSION)
    where = ("--bootstrap-server", nodes.bootstrap)
    consume = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    read = tools.run(consume, *where, "--topic", scene.topic, "--group", scene.group, "--max-messages", str(len(ALL)))
    assert read.stdout.split() == ["v"] * len(ALL)
    groups = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"

    shown = tools.run(groups, *where, "--describe", "--group", scene.group, "--offsets").stdout
    lines = [line.split() for line in shown.splitlines() if line.startswith(scene.group)]
    assert sorted((int(line[2]), int(line[4])) for line in lines) == [(index, 0) for index in range(PARTITIONS)]
    assert scene.group in tools.run(groups, *where, "--list").stdout
    named = ("--group", scene.group, "--topic", scene.topic)
    assert "Successful" in tools.run(groups, *where, "--delete-offsets", *named).stdout
    assert nodes.events.rejected == nodes.events.failed == []
