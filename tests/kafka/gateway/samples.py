"""One harmless request for every API outside the hot path: what tests send to Kafka and through a node alike."""

from __future__ import annotations

from typing import Any
from uuid import UUID

_ONE_PARTITION = [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "here"}]
_NO_MEMBER = {"generation_id": 5, "member_id": "nobody-1", "protocol_type": "consumer"}
_NO_PRODUCER = {"producer_id": 987_654_321, "producer_epoch": 3}


NO_TOPIC = UUID(int=4711)


def samples(topic: str, group: str, topic_id: UUID = NO_TOPIC) -> dict[int, dict[str, Any]]:
    """Contents by API key, about an existing topic with one partition at least and a group without members. `topic_id`
    is the topic's; without it requests by id are about none.
    """
    txn = f"txn-{group}"
    return {
        8: {
            "group_id": group,
            "generation_id": -1,
            "generation_id_or_member_epoch": -1,
            "topics": [
                {"name": topic, "topic_id": topic_id, "partitions": _ONE_PARTITION},
                {"name": "no-such-topic", "topic_id": NO_TOPIC, "partitions": ()},
            ],
        },
        9: {
            "group_id": group,
            "topics": [{"name": topic, "partition_indexes": [0, 77]}],
            "groups": [
                {"group_id": group, "topics": [{"name": topic, "topic_id": topic_id, "partition_indexes": [0, 77]}]},
                {"group_id": f"{group}-unknown", "topics": None},
                {
                    "group_id": f"{group}-none",
                    "topics": [{"name": "x", "topic_id": NO_TOPIC, "partition_indexes": [3]}],
                },
            ],
        },
        11: {"group_id": group, "session_timeout": 1, "rebalance_timeout": 1, "protocol_type": "consumer"},
        12: {"group_id": group, **_NO_MEMBER},
        13: {"group_id": group, "member_id": "nobody-1", "members": [{"member_id": "nobody-1"}]},
        14: {"group_id": group, **_NO_MEMBER},
        15: {"groups": [group, f"{group}-unknown"], "include_authorized_operations": True},
        16: {"states_filter": ["Empty"]},
        19: {
            "topics": [
                {
                    "name": f"{topic}-new",
                    "num_partitions": 2,
                    "replication_factor": 1,
                    "configs": [{"name": "retention.ms", "value": "1000"}],
                },
                {"name": topic, "num_partitions": 1, "replication_factor": 1},
                {"name": f"{topic}-wide", "num_partitions": 1, "replication_factor": 99},
            ],
            "validate_only": True,
        },
        20: {
            "topic_names": [f"{topic}-unknown"],
            "topics": [{"name": f"{topic}-unknown"}, {"name": None, "topic_id": NO_TOPIC}],
        },
        24: {"transactional_id": txn, **_NO_PRODUCER, "topics": [{"name": topic, "partitions": [0]}]},
        25: {"transactional_id": txn, **_NO_PRODUCER, "group_id": group},
        26: {"transactional_id": txn, **_NO_PRODUCER},
        28: {
            "transactional_id": txn,
            "group_id": f"{group}-in-a-transaction",
            **_NO_PRODUCER,
            "topics": [{"name": topic, "topic_id": topic_id, "partitions": _ONE_PARTITION}],
        },
        29: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
        30: {"creations": [_ACL]},
        31: {"filters": [_ACL_FILTER]},
        32: {
            "resources": [
                {"resource_type": 2, "resource_name": topic},
                {"resource_type": 2, "resource_name": f"{topic}-unknown"},
            ],
            "include_synonyms": True,
            "include_documentation": True,
        },
        33: {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": topic,
                    "configs": [{"name": "retention.ms", "value": "2000"}, {"name": "segment.ms", "value": None}],
                },
                {"resource_type": 2, "resource_name": topic + "-unknown"},
            ],
            "validate_only": True,
        },
        35: {"topics": [{"topic": topic, "partitions": [0]}]},
        37: {
            "topics": [{"name": topic, "count": 9}, {"name": f"{topic}-unknown", "count": 2}],
            "validate_only": True,
        },
        42: {"groups_names": [f"{group}-unknown"]},
        43: {"topic_partitions": [{"topic": topic, "partitions": [0]}]},
        44: {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": topic,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "no number"}],
                }
            ],
            "validate_only": True,
        },
        45: {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "replicas": (1,)}]}]},
        46: {"topics": None},
        47: {"group_id": f"{group}-unknown", "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]},
        48: {"components": [{"entity_type": "client-id", "match_type": 2}]},
        49: {
            "entries": [
                {
                    "entity": [{"entity_type": "client-id", "entity_name": "loud"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        50: {"users": [{"name": "nobody"}]},
        51: {"deletions": [{"name": "nobody", "mechanism": 1}]},
        61: {"topics": [{"name": topic, "partition_indexes": [0, 77]}]},
        65: {"transactional_ids": [f"{txn}-unknown"]},
        66: {"state_filters": ["Ongoing", "Confused"], "duration_filter": -1},
        68: {
            "group_id": group,
            "member_id": "nobody-1",
            "member_epoch": 3,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": [topic],
            "topic_partitions": [],
        },
        69: {"group_ids": [group, f"{group}-unknown"], "include_authorized_operations": True},
        71: {"client_instance_id": NO_TOPIC},
        72: {"client_instance_id": NO_TOPIC, "subscription_id": 1, "terminating": False, "metrics": b""},
        74: {"resource_types": [16, 32]},
        75: {"topics": [{"name": topic}, {"name": f"{topic}-unknown"}]},
        76: {"group_id": group, "member_id": "nobody-1", "member_epoch": 3, "subscribed_topic_names": [topic]},
        77: {"group_ids": [group, f"{group}-unknown"], "include_authorized_operations": True},
        **{key: {"group_id": group, "member_id": "nobody-1", "share_session_epoch": 5} for key in (78, 79)},
        88: {
            "group_id": group,
            "member_id": "nobody-1",
            "member_epoch": 3,
            "rebalance_timeout": 1000,
            "topology": {"epoch": 1, "subtopologies": [{"subtopology_id": "0", "source_topics": [topic]}]},
        },
        89: {"group_ids": [group, f"{group}-unknown"], "include_authorized_operations": True},
        93: {
            "group_id": group,
            "member_id": "nobody-1",
            "topology_epoch": 1,
            "topology_description": {
                "subtopologies": [
                    {
                        "subtopology_id": "0",
                        "nodes": [{"name": "source", "node_type": 1, "source_topics": [topic], "sink_topic": None}],
                    }
                ]
            },
        },
        90: {
            "groups": [
                {"group_id": f"{group}-share", "topics": [{"topic_name": topic, "partitions": [0]}]},
                {"group_id": f"{group}-unknown", "topics": None},
            ]
        },
        91: {
            "group_id": f"{group}-share",
            "topics": [
                {"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": 0}]},
                {"topic_name": "no-such-topic", "partitions": [{"partition_index": 0, "start_offset": 0}]},
            ],
        },
        92: {"group_id": f"{group}-unknown", "topics": [{"topic_name": topic}]},
    }


_ACL = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ACL_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "orders",
    "pattern_type_filter": 3,
    "operation": 1,
    "permission_type": 1,
}
