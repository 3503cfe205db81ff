"""Every API × resource × rule: what a broker with Kafka's own authorizer answers a user, and what a node answers the
same user, whose rights it knows by the mirrored ACLs alone.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from struct import pack, unpack_from
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from crc32c import crc32c

from sidecar.local.kafka_config import default_version, parse_version
from sidecar.protocol import fetch
from sidecar.protocol.messages import admin, cluster, groups, logs, new_groups, security, shares, transactions
from sidecar.protocol.new_batch import NewRecord, build_batch
from sidecar.protocol.schema import TAGS
from sidecar.protocol.topic_ids import NO_TOPIC_ID
from sidecar.security.acls import CLUSTER_NAME
from sidecar.security.credentials import PasswordCredentials
from tests.kafka.gateway import by_id
from tests.kafka.security import sharing
from tests.kafka.security.enforced import USER, enforced_node, set_rules
from tests.kafka.security.secured import PASSWORD, Secured, Wire, secured_kafka
from tests.offered import OFFERED
from tests.unit.protocol import kio_entities as kio

if TYPE_CHECKING:
    from sidecar.gateway.enforcement import AclMirror
    from sidecar.protocol.schema import Message, Values
    from tests.kafka.gateway.virtual import VirtualCluster

HOST: Final = "127.0.0.1"
TOPICS: Final = ("open", "shut")
ABSENT: Final = "absent"
NAMES: Final = (*TOPICS, ABSENT)
GROUPS: Final = ("mine", "theirs")
NEW_GROUPS: Final = ("new-mine", "new-theirs")
"""Of KIP-848, with a member that has all topics."""
_STREAMS: Final = "streams"
_NEWEST: Final = "4.4.0"
_WITH_NEW_GROUPS: Final = (4, 2, 0)
"""The first Kafka that has Streams groups and share groups switched on."""
IDS: Final = ("id-mine", "id-theirs")
ROUNDS: Final = 30


class Question(NamedTuple):
    """One request."""

    message: Message
    version: int
    values: Values

    @property
    def name(self) -> str:
        return f"{self.message.key} v{self.version} {self.values}"


def named(*names: str, partitions: str, element: Any) -> list[Values]:
    return [{"name": name, partitions: [element]} for name in names]


def _commit(index: int = 0) -> Values:
    return {"partition_index": index, "committed_offset": 5, "committed_metadata": ""}


def _member(group: str) -> Values:
    return {"group_id": group, "generation_id": 3, "member_id": "nobody"}


def _txn(name: str) -> Values:
    return {"transactional_id": name, "producer_id": 12345, "producer_epoch": 0}


def _quota(user: str) -> Values:
    return {"entity": [{"entity_type": "user", "entity_name": user}], "ops": []}


def share_questions() -> list[Question]:
    """Of share groups (KIP-932). Nothing was read in any of them."""
    topics = [{"topic_name": name, "partitions": [0]} for name in TOPICS]
    altered = [
        {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]} for name in (ABSENT, "shut")
    ]
    found = [
        Question(
            shares.SHARE_GROUP_DESCRIBE,
            1,
            {"group_ids": ["gone-mine", *GROUPS, *sharing.GROUPS], "include_authorized_operations": True},
        ),
        Question(
            shares.DESCRIBE_SHARE_GROUP_OFFSETS,
            1,
            {
                "groups": [
                    {"group_id": group, "topics": each}
                    for group, each in zip((*GROUPS, *sharing.GROUPS), (topics, None, None, topics), strict=True)
                ]
            },
        ),
    ]
    for group in (*GROUPS, *sharing.GROUPS):
        found += [
            Question(
                shares.SHARE_GROUP_HEARTBEAT,
                1,
                {"group_id": group, "member_id": "nobody", "member_epoch": 3, "subscribed_topic_names": subscribed},
            )
            for subscribed in (None, ["open"], [*TOPICS])
        ]
        named = [{"topic_name": name} for name in TOPICS]
        found += [
            Question(shares.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": f"gone-{group}", "topics": named}),
            Question(shares.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": group, "topics": altered}),
        ]
    return found


def questions() -> list[Question]:
    """None of them changes what another one is about."""
    found = [
        Question(cluster.METADATA, 9, {"topics": None, "include_topic_authorized_operations": True}),
        Question(cluster.METADATA, 0, {"topics": []}),
        Question(cluster.METADATA, 1, {"topics": [{"name": name} for name in TOPICS]}),
        Question(
            cluster.METADATA,
            8,
            {
                "topics": [{"name": name} for name in NAMES],
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": True,
                "include_topic_authorized_operations": True,
            },
        ),
        *(
            Question(
                cluster.DESCRIBE_TOPIC_PARTITIONS,
                0,
                {"topics": [{"name": name} for name in named], "response_partition_limit": limit, "cursor": cursor},
            )
            for named in (NAMES, ())
            for limit, cursor in ((2000, None), (1, None), (1, {"topic_name": "shut", "partition_index": 0}))
        ),
        Question(cluster.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True}),
        Question(
            logs.LIST_OFFSETS,
            6,
            {
                "replica_id": -1,
                "topics": named(*NAMES, partitions="partitions", element={"partition_index": 0, "timestamp": -1}),
            },
        ),
        Question(
            logs.OFFSET_FOR_LEADER_EPOCH,
            4,
            {
                "replica_id": -1,
                "topics": [
                    {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
                    for name in NAMES
                ],
            },
        ),
        Question(
            logs.DELETE_RECORDS,
            2,
            {
                "topics": named(*NAMES, partitions="partitions", element={"partition_index": 0, "offset": 0}),
                "timeout_ms": 5000,
            },
        ),
        Question(
            transactions.DESCRIBE_PRODUCERS, 0, {"topics": named(*NAMES, partitions="partition_indexes", element=0)}
        ),
        Question(
            admin.CREATE_TOPICS,
            7,
            {
                "topics": [
                    {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
                    for name in (*TOPICS, "new", "twice", "twice")
                ],
                "timeout_ms": 5000,
                "validate_only": True,
            },
        ),
        Question(admin.DELETE_TOPICS, 5, {"topic_names": [ABSENT], "timeout_ms": 5000}),
        Question(
            admin.CREATE_PARTITIONS,
            3,
            {
                "topics": [{"name": name, "count": 2, "assignments": None} for name in NAMES],
                "timeout_ms": 5000,
                "validate_only": True,
            },
        ),
        Question(
            admin.DESCRIBE_CONFIGS,
            4,
            {
                "resources": [
                    {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}
                    for name in NAMES
                ]
                + [{"resource_type": 4, "resource_name": "", "configuration_keys": ["log.retention.ms"]}]
            },
        ),
        Question(
            admin.INCREMENTAL_ALTER_CONFIGS,
            1,
            {
                "resources": [
                    {
                        "resource_type": 2,
                        "resource_name": name,
                        "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1000000"}],
                    }
                    for name in NAMES
                ],
                "validate_only": True,
            },
        ),
        Question(
            admin.ALTER_CONFIGS,
            2,
            {
                "resources": [
                    {"resource_type": 2, "resource_name": "open", "configs": []},
                    {"resource_type": 4, "resource_name": "", "configs": []},
                ],
                "validate_only": True,
            },
        ),
        Question(admin.DESCRIBE_LOG_DIRS, 4, {"topics": []}),
        Question(admin.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout_ms": 5000}),
        *(
            Question(admin.ELECT_LEADERS, version, {"topic_partitions": named_partitions, "timeout_ms": 5000})
            for version in (0, 2)
            for named_partitions in (None, [{"topic": name, "partitions": [0]} for name in NAMES])
        ),
        Question(
            security.DESCRIBE_ACLS,
            3,
            {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
        ),
        Question(
            security.CREATE_ACLS,
            3,
            {
                "creations": [
                    {
                        "resource_type": 2,
                        "resource_name": "",
                        "resource_pattern_type": 3,
                        "principal": USER,
                        "host": "*",
                        "operation": 3,
                        "permission_type": 3,
                    }
                ]
            },
        ),
        Question(
            security.DELETE_ACLS,
            3,
            {
                "filters": [
                    {
                        "resource_type_filter": 2,
                        "resource_name_filter": "no such",
                        "pattern_type_filter": 3,
                        "operation": 3,
                        "permission_type": 3,
                    }
                ]
            },
        ),
        Question(security.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}),
        Question(security.ALTER_CLIENT_QUOTAS, 1, {"entries": [_quota("x")], "validate_only": True}),
        Question(security.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "nobody"}]}),
        Question(
            security.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        ),
        Question(groups.LIST_GROUPS, 4, {"states_filter": []}),
        Question(groups.DESCRIBE_GROUPS, 5, {"groups": [*GROUPS], "include_authorized_operations": True}),
        *(Question(groups.DELETE_GROUPS, version, {"groups_names": ["gone", "gone-too"]}) for version in (2, 3)),
        Question(transactions.LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []}),
        Question(transactions.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [*IDS]}),
        Question(
            transactions.INIT_PRODUCER_ID,
            4,
            {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1},
        ),
    ]
    for group in GROUPS:
        topics = named(*TOPICS, partitions="partitions", element=_commit())
        fetched = named(*NAMES, partitions="partition_indexes", element=0)
        found += [
            Question(cluster.FIND_COORDINATOR, 3, {"key": group, "key_type": 0}),
            Question(
                groups.OFFSET_COMMIT,
                7,
                {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics},
            ),
            Question(groups.OFFSET_FETCH, 7, {"group_id": group, "topics": fetched}),
            Question(groups.OFFSET_FETCH, 1, {"group_id": group, "topics": fetched}),
            Question(groups.OFFSET_FETCH, 6, {"group_id": group, "topics": None}),
            Question(
                groups.OFFSET_DELETE,
                0,
                {
                    "group_id": "gone-" + group,
                    "topics": named(*TOPICS, partitions="partitions", element={"partition_index": 0}),
                },
            ),
            Question(groups.HEARTBEAT, 4, _member(group)),
            Question(
                groups.SYNC_GROUP,
                5,
                _member(group) | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []},
            ),
            Question(groups.LEAVE_GROUP, 2, {"group_id": group, "member_id": "nobody"}),
            Question(
                groups.JOIN_GROUP,
                4,
                {
                    "group_id": group,
                    "session_timeout_ms": 1,
                    "rebalance_timeout_ms": 1,
                    "member_id": "",
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": b""}],
                },
            ),
        ]
        found += [
            Question(
                new_groups.CONSUMER_GROUP_HEARTBEAT,
                1,
                _member(group) | {"member_epoch": 3, "subscribed_topic_names": subscribed, "topic_partitions": None},
            )
            for subscribed in (None, ["open"], [*TOPICS])
        ]
    found += [
        Question(cluster.FIND_COORDINATOR, version, {"coordinator_keys": keys, "key_type": kind})
        for version in (4, 5, 6)
        for kind, keys in enumerate(([*GROUPS], [*IDS]))
    ]
    found += [
        Question(
            new_groups.CONSUMER_GROUP_DESCRIBE,
            1,
            {"group_ids": [*GROUPS, *NEW_GROUPS], "include_authorized_operations": True},
        ),
        Question(admin.LIST_CONFIG_RESOURCES, 1, {"resource_types": [16, 32]}),
    ]
    for topics in (["open"], [*TOPICS]):
        made = {"partitions": 1, "replication_factor": 1, "topic_configs": []}
        subtopology = {
            "subtopology_id": "0",
            "source_topics": topics[:1],
            "state_changelog_topics": [{"name": name} | made for name in topics[1:]],
        }
        node = {"name": "source", "node_type": 1, "source_topics": topics}
        description = {"subtopologies": [{"subtopology_id": "0", "nodes": [node]}], "global_stores": []}
        found += [
            Question(
                new_groups.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
                0,
                _member(group) | {"topology_epoch": 1, "topology_description": description},
            )
            for group in GROUPS
        ]
        found += [
            Question(
                new_groups.STREAMS_GROUP_HEARTBEAT,
                version,
                _member(group)
                | {"member_epoch": 3, "process_id": "p", "topology": {"epoch": 1, "subtopologies": [subtopology]}},
            )
            for group in GROUPS
            for version in (0, 1)
        ]
    with_descriptions = {"include_topology_description": True}
    described = {"group_ids": [*GROUPS, _STREAMS], "include_authorized_operations": True}
    found += [
        *(Question(new_groups.STREAMS_GROUP_DESCRIBE, version, described | with_descriptions) for version in (0, 1)),
        *share_questions(),
    ]
    for name in IDS:
        for group in GROUPS:
            topics = named(*TOPICS, partitions="partitions", element=_commit())
            found += [
                Question(transactions.ADD_OFFSETS_TO_TXN, 3, _txn(name) | {"group_id": group}),
                Question(groups.TXN_OFFSET_COMMIT, 2, _txn(name) | {"group_id": group, "topics": topics}),
            ]
        found += [
            Question(cluster.FIND_COORDINATOR, 3, {"key": name, "key_type": 1}),
            Question(
                transactions.ADD_PARTITIONS_TO_TXN,
                3,
                _txn(name) | {"topics": [{"name": each, "partitions": [0]} for each in NAMES]},
            ),
            Question(transactions.END_TXN, 3, _txn(name) | {"committed": True}),
            Question(transactions.END_TXN, 5, _txn(name) | {"committed": True}),
        ]
    return found


QUESTIONS: Final = questions()
_OF_NEW_GROUPS: Final = {
    new_groups.STREAMS_GROUP_HEARTBEAT.key,
    new_groups.STREAMS_GROUP_DESCRIBE.key,
    *(question.message.key for question in share_questions()),
}


def is_served(question: Question, broker: Secured) -> bool:
    """Whether brokers of this version answer it."""
    version = parse_version(broker.kafka.config.version)
    if question.version > OFFERED[broker.kafka.config.version].get(question.message.key, -1):
        return False
    return version >= _WITH_NEW_GROUPS or question.message.key not in _OF_NEW_GROUPS


async def ids_of(broker: Secured) -> dict[str, bytes]:
    """The ids of the topics, by name."""
    async with broker.wire("PLAINTEXT") as wire:
        asked: Values = {"topics": [{"name": name} for name in TOPICS], "allow_auto_topic_creation": False}
        found = await wire.ask_table(cluster.METADATA, 12, asked)
    ids = {each["name"]: each["topic_id"] for each in found["topics"]}
    assert len({*ids.values(), NO_TOPIC_ID}) == len(TOPICS) + 1
    return ids


async def questions_by_id(broker: Secured) -> list[Question]:
    """Those that name topics by their ids (KIP-516)."""
    ids = [*(await ids_of(broker)).values()]
    named: list[Values] = [{"topic_id": each, "name": None} for each in (*ids, b"nobody's id 1234")]
    return [
        Question(cluster.METADATA, 12, {"topics": named[:2]}),
        Question(cluster.METADATA, 13, {"topics": [*named, {"name": "open"}]}),
        Question(cluster.METADATA, 12, {"topics": named, "include_topic_authorized_operations": True}),
        Question(cluster.METADATA, 10, {"topics": [{"name": name} for name in NAMES]}),
        Question(admin.DELETE_TOPICS, 6, {"topics": _undeleted(ids), "timeout_ms": 5000}),
        *_offsets_by_id([*ids, b"nobody's id 1234"]),
    ]


def _offsets_by_id(ids: list[bytes]) -> list[Question]:
    """Of groups: versions 8 and 9 by name, 10 by id (KIP-848). Which rights an element lacks shows in its code."""
    fetched = [{"name": name, "partition_indexes": [0]} for name in NAMES]
    by_id = [{"topic_id": each, "partition_indexes": [number]} for number, each in enumerate(ids)]
    found: list[Question] = []
    for version, named in ((8, fetched), (9, fetched), (10, by_id)):
        asked = [{"group_id": group, "member_epoch": -1, "topics": each} for group in GROUPS for each in (named, None)]
        found += [
            Question(groups.OFFSET_FETCH, version, {"groups": asked}),
            Question(groups.OFFSET_FETCH, version, {"groups": asked[:1]}),
        ]
    topics = [{"topic_id": each, "partitions": [_commit(number)]} for number, each in enumerate(ids)]
    commits = ({"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics} for group in GROUPS)
    found += [Question(groups.OFFSET_COMMIT, 10, each) for each in commits]
    in_transactions = (_txn(name) | {"group_id": group, "topics": topics} for name in IDS for group in GROUPS)
    return [*found, *(Question(groups.TXN_OFFSET_COMMIT, 6, each) for each in in_transactions)]


def _undeleted(ids: list[bytes]) -> list[Values]:
    """What no controller deletes, whoever asks: each topic is named twice, or by name and id."""
    nobodys: list[Values] = [{"topic_id": b"nobody's id 1234", "name": None}, {"topic_id": NO_TOPIC_ID, "name": ABSENT}]
    twice: list[Values] = [{"topic_id": ids[0], "name": None}] * 2
    return [*nobodys, *twice, {"topic_id": ids[1], "name": TOPICS[1]}, {"topic_id": NO_TOPIC_ID, "name": None}]


def batch_of(*, transactional: bool) -> bytearray:
    batch = build_batch([NewRecord(None, b"value", (), int(time.time() * 1000))], -1, -1, -1)
    if transactional:
        batch[22] |= 0x10
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def produce(transactional: bool, acks: int = -1) -> bytes:
    """A Produce v7 to all topics under a transactional id; the batches say whether they are transactional."""
    batch = batch_of(transactional=transactional)
    topics = b"".join(text(name) + one(pack(">ii", 0, len(batch)) + batch) for name in NAMES)
    body = text("id-mine") + pack(">hi", acks, 5000) + pack(">i", len(NAMES)) + topics
    frame = pack(">hhi", 0, 7, 1) + text("me") + body
    return pack(">i", len(frame)) + frame


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def one(element: bytes) -> bytes:
    return pack(">i", 1) + element


def produced(frame: bytes) -> dict[str, int]:
    """The error code of each topic in an answer v7."""
    found: dict[str, int] = {}
    at = 12
    for _ in range(len(NAMES)):
        (size,) = unpack_from(">h", frame, at)
        name = frame[at + 2 : at + 2 + size].decode()
        at += 2 + size + 4
        _, found[name] = unpack_from(">ih", frame, at)
        at += 30
    return found


def fetching(replica_id: int = -1) -> bytes:
    """A Fetch v11 of all topics that waits for nothing."""
    element = pack(">iiqqi", 0, -1, 0, -1, 1000)
    topics: list[tuple[bytes, Any]] = [(name.encode(), element) for name in NAMES]
    frame = bytearray(fetch.encode_request(1, b"me", 11, (0, 0, 1_000_000, 0), topics))
    frame[16:20] = pack(">i", replica_id)
    return bytes(frame)


def fetched(frame: bytes) -> dict[str, int]:
    return {part.topic.decode(): part.error for part in fetch.walk_answer(frame, 0, len(frame), 11).parts}


_OF_ITS_OWN: Final = frozenset(
    {
        TAGS, "throttle_time_ms", "error_message", "brokers", "controller_id", "node_id", "host", "port",
        "cluster_id", "leader_id", "leader", "replica_nodes", "isr_nodes", "offline_replicas", "producer_id",
        "member_id", "log_dir", "total_bytes", "usable_bytes", "partition_size", "offset_lag", "active_producers",
        "synonyms", "documentation", "topic_id",
    }
)  # fmt: skip
"""What a node says in words or numbers of its own."""


def told(value: Any) -> Any:
    """An answer without these, its lists in an order of their own."""
    if isinstance(value, dict):
        found: dict[str, Any] = {key: told(each) for key, each in value.items() if key not in _OF_ITS_OWN}
        if value.get("is_internal"):  # not written to through a node, whatever ACLs say
            found.pop("topic_authorized_operations", None)
        return found
    if isinstance(value, list):
        return sorted((told(each) for each in value), key=repr)
    return value


_JOINING: Final[Values] = {"member_epoch": 0, "rebalance_timeout_ms": 60_000}


async def join(broker: Secured) -> None:
    """Give the groups a member each, which sends no further heartbeat."""
    async with broker.wire("PLAINTEXT") as wire:
        for group in NEW_GROUPS:
            values = _JOINING | {"group_id": group, "member_id": f"of-{group}", "topic_partitions": []}
            values |= {"subscribed_topic_names": [*TOPICS]}
            answer = await ask_twice(wire, Question(new_groups.CONSUMER_GROUP_HEARTBEAT, 1, values))
            assert answer["error_code"] == 0
        if parse_version(broker.kafka.config.version) >= _WITH_NEW_GROUPS:
            subtopology = {"subtopology_id": "0", "source_topics": ["open"], "repartition_sink_topics": ["shut"]}
            values = _JOINING | {
                "group_id": _STREAMS,
                "member_id": "one",
                "process_id": "p",
                "topology": {"epoch": 1, "subtopologies": [subtopology]},
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
                "client_tags": [],
                "task_offsets": None,
                "task_end_offsets": None,
            }
            answer = await ask_twice(wire, Question(new_groups.STREAMS_GROUP_HEARTBEAT, 0, values))
            assert answer["error_code"] == 0, answer
            await sharing.join(broker, TOPICS)


async def make_coordinators(broker: Secured) -> None:
    """The topics of groups and transactions are made when somebody asks first."""
    async with broker.wire("PLAINTEXT") as wire:
        for kind, keys in enumerate(
            ((*GROUPS, *NEW_GROUPS, *sharing.GROUPS, _STREAMS, "gone-mine", "gone-theirs"), IDS)
        ):
            for key in keys:
                question = Question(cluster.FIND_COORDINATOR, 3, {"key": key, "key_type": kind})
                await ask_twice(wire, question)


HOT: Final = {
    "produce": (produce(transactional=False), produced),
    "produce in a transaction": (produce(transactional=True), produced),
    "fetch": (fetching(), fetched),
}
"""Requests that are written by hand, and what is compared of their answers."""
_OF_REFUSALS: Final = frozenset({29, 53})


@pytest.fixture(scope="module", params=[default_version(), pytest.param(_NEWEST, marks=pytest.mark.slow)])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One of its own: whole lists of topics and groups are compared, and nodes' own topics are shown otherwise by a
    node. Sessions of its members last as long as the tests take.
    """
    kinds = ["consumer", "streams", "share"] if parse_version(request.param) >= _WITH_NEW_GROUPS else ["consumer"]
    names = [f"group_{kind}_{most}session_timeout_ms" for kind in kinds for most in ("max_", "")]
    overrides: dict[str, Any] = {
        "auto_create_topics_enable": "false",
        "group_initial_rebalance_delay_ms": "0",
        **dict.fromkeys(names, "600000"),
    }
    with secured_kafka(tmp_path_factory.mktemp("access"), version=request.param, **overrides) as running:
        running.topics(*TOPICS)
        asyncio.run(make_coordinators(running))
        asyncio.run(join(running))
        yield running


@pytest.fixture
def node(broker: Secured) -> Iterator[tuple[VirtualCluster, AclMirror]]:
    with enforced_node(broker) as made:
        yield made


EVERYTHING: Final = [
    AclBinding(kind, name, ResourcePatternType.LITERAL, USER, "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for kind, name in (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.BROKER, CLUSTER_NAME),
        (ResourceType.TRANSACTIONAL_ID, "*"),
    )
]


def random_rules(dice: random.Random) -> list[AclBinding]:
    """Some ALLOW and DENY for alice, half of them for everybody."""
    found: list[AclBinding] = []
    kinds = {
        ResourceType.TOPIC: (*NAMES, "*", "new"),
        ResourceType.GROUP: (*GROUPS, *NEW_GROUPS, *sharing.GROUPS, "*", "gone-mine", "gone"),
        ResourceType.BROKER: (CLUSTER_NAME,),
        ResourceType.TRANSACTIONAL_ID: (*IDS, "*"),
    }
    for _ in range(dice.choice((1, 3, 6, 10))):
        kind = dice.choice([*kinds])
        prefixed = kind != ResourceType.BROKER and dice.random() < 0.2
        operations = [each for each in AclOperation if each.name not in ("UNKNOWN", "ANY")]
        found.append(
            AclBinding(
                kind,
                dice.choice(kinds[kind]).replace("*", "o" if prefixed else "*"),
                ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
                dice.choice((USER, "User:*")),
                dice.choice((HOST, "*")),
                dice.choice(operations),
                AclPermissionType.DENY if dice.random() < 0.2 else AclPermissionType.ALLOW,
            )
        )
    return [*{repr(each): each for each in found}.values()]


async def ask_twice(wire: Wire, question: Question) -> Values:
    """An answer; again where the coordinator was being made."""
    for _ in range(100):
        answer = await wire.ask_table(question.message, question.version, question.values)
        if not any(f"'error_code': {code}" in repr(answer) for code in (14, 15, 16)):
            return answer
        await asyncio.sleep(0.1)
    return answer


@pytest.fixture
async def wires(broker: Secured, node: tuple[VirtualCluster, AclMirror]) -> AsyncIterator[tuple[Wire, Wire]]:
    virtual, _ = node
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(broker.wire("SASL_PLAINTEXT"))
        await direct.login(PasswordCredentials("PLAIN", "alice", PASSWORD))
        reader, writer = await asyncio.open_connection(HOST, virtual.nodes[0].port)
        stack.callback(writer.close)
        yield direct, Wire(reader, writer)


@pytest.mark.timeout(300)
async def test_a_node_lets_members_of_share_groups_read_and_acknowledge_what_a_broker_does(
    broker: Secured, node: tuple[VirtualCluster, AclMirror], wires: tuple[Wire, Wire]
) -> None:
    if parse_version(broker.kafka.config.version) < _WITH_NEW_GROUPS:
        async with broker.wire("PLAINTEXT") as wire:  # they are not switched on: a node offers none either
            offered = await wire.ask_table(cluster.API_VERSIONS, 3, {})
        assert shares.SHARE_FETCH.key not in {each["api_key"] for each in offered["api_keys"]}
        return
    virtual, mirror = node
    topics = sharing.Topics(broker, await ids_of(broker))
    direct, through = (sharing.Side(wire, topics) for wire in wires)
    dice = random.Random(932)
    codes: dict[str, set[tuple[int, int, int]]] = {}
    wrong: list[tuple[object, ...]] = []
    for number in range(ROUNDS):
        rules = random_rules(dice) if number > 1 else EVERYTHING[: number * 4]
        rules += EVERYTHING[1:2] if number % 2 else []  # without a right on the group topics are not looked at
        await set_rules(broker, virtual, mirror, [*{repr(each): each for each in rules}.values()])
        there, here = await direct.ask(), await through.ask()
        wrong += [(name, each, here[name], rules) for name, each in there.items() if here[name] != each]
        for name, each in there.items():
            seen = codes.setdefault(name.partition(": ")[2], set())
            seen |= {(each.code, *part[:2]) for part in each.parts.values()} or {(each.code, 0, 0)}
    assert not wrong, wrong[:3]
    assert all({code for code, *_ in seen} & {30} for seen in codes.values()), "refused because of the group"
    for name in ("read", "read on", "acknowledged", "closed"):
        assert {0, 29} <= {code for _, code, _ in codes[name]}, (name, codes)
    assert {acknowledged for *_, acknowledged in codes["read and acknowledged"]} == {0, 3, 29}


@pytest.mark.timeout(300)
async def test_a_node_answers_each_user_as_a_broker_does(
    broker: Secured, node: tuple[VirtualCluster, AclMirror], wires: tuple[Wire, Wire]
) -> None:
    virtual, mirror = node
    direct, through = wires
    asked = [each for each in (*QUESTIONS, *await questions_by_id(broker)) if is_served(each, broker)]
    dice = random.Random(19)
    refused: dict[int, int] = {}
    allowed: dict[int, int] = {}
    wrong: list[tuple[object, ...]] = []
    hot_codes: dict[str, set[int]] = {name: set() for name in HOT}
    for number in range(ROUNDS):
        rules = random_rules(dice) if number > 1 else EVERYTHING[: number * 4]
        await set_rules(broker, virtual, mirror, rules)
        for question in asked:
            there = told(await ask_twice(direct, question))
            here = told(await ask_twice(through, question))
            if here != there:
                wrong.append((question.name, there, here, rules))
            denied = any(f"error_code': {code}" in repr(there) for code in (29, 30, 31, 53))
            (refused if denied else allowed)[question.message.key] = 1
        for name, (frame, read) in HOT.items():
            there = read(await direct.send(frame))
            here = read(await through.send(frame))
            if name == "produce in a transaction":  # what is allowed fails in other ways
                there, here = [
                    {topic: code for topic, code in each.items() if code in _OF_REFUSALS} for each in (there, here)
                ]
            if here != there:
                wrong.append((name, there, here, rules))
            hot_codes[name].update(there.values())
    assert not wrong, wrong[:3]
    assert set(fetched(await through.send(fetching(replica_id=2))).values()) == {29}, "a follower's Fetch is a broker's"
    assert all(hot_codes[name] & _OF_REFUSALS for name in HOT), hot_codes
    always_filtered = {groups.LIST_GROUPS.key, transactions.LIST_TRANSACTIONS.key, cluster.DESCRIBE_CLUSTER.key}
    assert {question.message.key for question in asked} == allowed.keys()
    assert {question.message.key for question in asked} == refused.keys() | always_filtered


async def test_whose_transaction_it_is_not_learns_nothing_of_the_topics_in_it(
    broker: Secured, node: tuple[VirtualCluster, AclMirror], wires: tuple[Wire, Wire]
) -> None:
    await set_rules(broker, *node, [])
    known, unknown = by_id.id_of(f"{HOST}:{broker.ports['PLAINTEXT']}", "open"), UUID(int=4711)
    records = bytes(batch_of(transactional=True))
    asked = by_id.produce(13, {(each, 0): records for each in (known, unknown)}, "id-mine")
    for wire in wires:
        frame = await wire.send(kio.request_frame(asked, 1, "me"))
        answer = kio.answer_of(kio.entity(0, 13, "response"), frame)
        assert by_id.produced(answer) == {(known, 0): 53, (unknown, 0): 53}
