"""A client without rights gets the bytes of a broker's answer, whatever stands under the names that it tries: a topic,
a governed one, a shadow, a source of shadows, or nothing. A node looks nothing up for it, so the time of an answer
shows nothing either.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from crc32c import crc32c

from sidecar.cluster.resolver import Source
from sidecar.protocol.messages import admin, cluster, groups, logs, transactions
from sidecar.protocol.topic_ids import NO_TOPIC_ID
from sidecar.security.credentials import PasswordCredentials
from tests.kafka.gateway import by_id
from tests.kafka.security.enforced import USER, enforced_node, set_rules
from tests.kafka.security.secured import PASSWORD, Secured, Wire
from tests.raw import batch, fetch, produce
from tests.unit.protocol import kio_entities as kio
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sidecar.gateway.enforcement import AclMirror
    from sidecar.protocol.metadata import ClusterState, MetadataRequest
    from sidecar.protocol.schema import Message, Values
    from tests.kafka.gateway.virtual import VirtualCluster

HOST: Final = "127.0.0.1"
_LITERAL: Final = ResourcePatternType.LITERAL
PLAIN, GOVERNED, SHADOW, SOURCE, ABSENT = "plain", "governed", "shadow", "source", "absent"
NAMES: Final = (PLAIN, GOVERNED, SHADOW, SOURCE, ABSENT)
GROUP, TRANSACTIONAL_ID = "group", "transaction"
_LAYOUT: Final[Values] = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
_PLACED: Final[Values] = _LAYOUT | {"assignments": [{"partition_index": 0, "broker_ids": [1]}]}


def allowed(kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, _LITERAL, USER, "*", AclOperation.ALL, AclPermissionType.ALLOW)


def table(message: Message, version: int, values: Values) -> bytes:
    return message.encode_request(version, 1, b"me", values)


def message(request: Any) -> bytes:
    return kio.request_frame(request, 1, "me")


def questions(*names: str) -> dict[str, bytes]:
    """Requests about topics, each with the names as its only elements."""
    parts = {(name, 0): 0 for name in names}
    listed = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    epochs = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "1000000"}]
    committed = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    resources: list[Values] = [{"resource_type": 2, "resource_name": name} for name in names]
    return {
        "Fetch": message(fetch(parts, max_wait=0)),
        "ListOffsets": table(
            logs.LIST_OFFSETS,
            6,
            {"replica_id": -1, "topics": [{"name": name, "partitions": listed} for name in names]},
        ),
        "OffsetForLeaderEpoch": table(
            logs.OFFSET_FOR_LEADER_EPOCH,
            4,
            {"replica_id": -1, "topics": [{"topic": name, "partitions": epochs} for name in names]},
        ),
        "DeleteRecords": table(
            logs.DELETE_RECORDS,
            2,
            {
                "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in names],
                "timeout_ms": 5000,
            },
        ),
        "DescribeProducers": table(
            transactions.DESCRIBE_PRODUCERS,
            0,
            {"topics": [{"name": name, "partition_indexes": [0]} for name in names]},
        ),
        "CreateTopics": table(
            admin.CREATE_TOPICS,
            7,
            {"topics": [{"name": name} | _LAYOUT for name in names], "timeout_ms": 5000, "validate_only": False},
        ),
        "CreateTopics with assignments": table(
            admin.CREATE_TOPICS,
            7,
            {"topics": [{"name": name} | _PLACED for name in names], "timeout_ms": 5000, "validate_only": False},
        ),
        "CreatePartitions": table(
            admin.CREATE_PARTITIONS,
            3,
            {
                "topics": [{"name": name, "count": 9, "assignments": None} for name in names],
                "timeout_ms": 5000,
                "validate_only": False,
            },
        ),
        "DeleteTopics 5": table(admin.DELETE_TOPICS, 5, {"topic_names": [*names], "timeout_ms": 5000}),
        "DeleteTopics 6": table(
            admin.DELETE_TOPICS,
            6,
            {"topics": [{"name": name, "topic_id": NO_TOPIC_ID} for name in names], "timeout_ms": 5000},
        ),
        "DeleteTopics by name and id": table(
            admin.DELETE_TOPICS,
            6,
            {"topics": [{"name": name, "topic_id": b"nobody's id 1234"} for name in names], "timeout_ms": 5000},
        ),
        "DescribeConfigs": table(
            admin.DESCRIBE_CONFIGS,
            4,
            {"resources": [each | {"configuration_keys": None} for each in resources]},
        ),
        "IncrementalAlterConfigs": table(
            admin.INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [each | {"configs": configs} for each in resources], "validate_only": False},
        ),
        "OffsetCommit": table(
            groups.OFFSET_COMMIT,
            7,
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": name, "partitions": committed} for name in names],
            },
        ),
        "OffsetFetch": table(
            groups.OFFSET_FETCH,
            7,
            {"group_id": GROUP, "topics": [{"name": name, "partition_indexes": [0]} for name in names]},
        ),
        "AlterConfigs": table(
            admin.ALTER_CONFIGS,
            2,
            {"resources": [each | {"configs": configs} for each in resources], "validate_only": False},
        ),
        "Produce": message(produce(dict.fromkeys(parts, batch()))),
        "Produce in a transaction": message(
            produce(dict.fromkeys(parts, transactional()), transactional_id=TRANSACTIONAL_ID)
        ),
    }


_OF_NAMES_GIVEN_ONCE: Final = {
    "ListOffsets": "a node answers with the partitions of a topic together",
    "OffsetForLeaderEpoch": "the same",
    "DeleteRecords": "the same",
    "OffsetCommit": "the same",
    "Produce": "no client names a partition twice",
    "Produce in a transaction": "the same",
    "AlterConfigs": "a broker gives no answer",
}
"""The requests that are not tried with a name twice, and why."""


def transactional() -> bytes:
    found = batch()
    found[22] |= 0x10
    found[17:21] = crc32c(bytes(found[21:])).to_bytes(4, "big")
    return bytes(found)


async def make_coordinators(broker: Secured) -> None:
    """Wait until the topics of groups and transactions have their leaders."""
    async with broker.wire("PLAINTEXT") as wire:
        for key_type, key in enumerate((GROUP, TRANSACTIONAL_ID)):
            asked: Values = {"key": key, "key_type": key_type}

            async def is_found(asked: Values = asked) -> bool:
                return (await wire.ask_table(cluster.FIND_COORDINATOR, 3, asked))["error_code"] == 0

            await wait_for_async(is_found, f"the coordinator of {key}")

        async def is_loaded() -> bool:
            values: Values = {"group_id": GROUP, "topics": []}
            return (await wire.ask_table(groups.OFFSET_FETCH, 7, values))["error_code"] == 0

        await wait_for_async(is_loaded, "the offsets")


@pytest.fixture(scope="module")
def broker(secured: Secured) -> Secured:
    secured.topics(*(name for name in NAMES if name != ABSENT))
    asyncio.run(make_coordinators(secured))
    return secured


@pytest.fixture
def node(broker: Secured) -> Iterator[tuple[VirtualCluster, AclMirror]]:
    with enforced_node(broker) as made:
        virtual, _ = made
        source = by_id.id_of(f"{HOST}:{broker.ports['PLAINTEXT']}", SOURCE)
        shadow = {SHADOW.encode(): Source(SOURCE.encode(), source, frozenset({"User:victim"}))}
        virtual.resolver.set_policies([GOVERNED], [])
        virtual.resolver.set_shadows(shadow)
        yield made


@pytest.fixture
async def wires(broker: Secured, node: tuple[VirtualCluster, AclMirror]) -> AsyncIterator[tuple[Wire, Wire]]:
    virtual, _ = node
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(broker.wire("SASL_PLAINTEXT"))
        await direct.login(PasswordCredentials("PLAIN", "alice", PASSWORD))
        reader, writer = await asyncio.open_connection(HOST, virtual.nodes[0].port)
        stack.callback(writer.close)
        yield direct, Wire(reader, writer)


async def differences(wires: tuple[Wire, Wire], *names: str) -> list[tuple[str, str, bytes, bytes]]:
    """The requests with other bytes from the node than from the broker."""
    direct, through = wires
    found: list[tuple[str, str, bytes, bytes]] = []
    for name in names:
        for asked in ((name,), (name, name)):
            for what, frame in questions(*asked).items():
                if len(asked) == 1 or what not in _OF_NAMES_GIVEN_ONCE:
                    there, here = await direct.send(frame), await through.send(frame)
                    found += [(what, " ".join(asked), there, here)] if there != here else []
    return found


@pytest.mark.parametrize("groups_too", [False, True])
async def test_a_stranger_gets_the_bytes_of_a_broker(
    broker: Secured, node: tuple[VirtualCluster, AclMirror], wires: tuple[Wire, Wire], groups_too: bool
) -> None:
    kinds = (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID) if groups_too else ()
    await set_rules(broker, *node, [allowed(kind, "*") for kind in kinds])
    assert not await differences(wires, *NAMES)


async def test_nothing_is_looked_up_for_a_stranger(
    broker: Secured, node: tuple[VirtualCluster, AclMirror], wires: tuple[Wire, Wire]
) -> None:
    """A look-up only for names that the node does not know would show in the time of the answer which those are."""
    await set_rules(broker, *node, [])
    upstream, (_, through) = node[0].nodes[0].upstream, wires
    looked_up: list[str] = []
    ask = upstream.metadata

    async def counted(request: MetadataRequest) -> ClusterState:
        looked_up.extend(request.topics or ())
        return await ask(request)

    upstream.metadata = counted  # type: ignore[method-assign]
    for name in NAMES:
        assert upstream.view.route(name.encode()) is None
        for frame in questions(name).values():
            await through.send(frame)
    assert looked_up == []


async def test_who_may_change_a_topic_does_not_learn_of_shadows_that_it_may_not_see(
    broker: Secured, node: tuple[VirtualCluster, AclMirror], wires: tuple[Wire, Wire]
) -> None:
    """alice has all of Kafka's rights; the shadow's allow list lacks her."""
    await set_rules(broker, *node, [allowed(ResourceType.TOPIC, "*"), allowed(ResourceType.GROUP, "*")])
    direct, through = wires
    created = questions(SHADOW)["CreateTopics"]
    assert await through.send(created) == await direct.send(created)
    for what, frame in questions(SHADOW).items():
        assert b"shadow topic" not in await through.send(frame), what
    for version in (5, 6):
        answer = await through.send(questions(SOURCE)[f"DeleteTopics {version}"])
        assert b"this topic has shadows, delete those first: others that you may not see" in answer
