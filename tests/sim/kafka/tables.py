"""The messages that a simulated broker reads and writes, as the product's own tables (`sidecar.protocol.schema`).

Where the product has a table it is taken; what it reads by hand, or never serves, stands here, from Kafka's message
definitions. `SERVED` are the versions that ApiVersions lists: at most those of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sidecar.protocol.kinds import INT8, INT16, INT32, INT64, NULLABLE_TEXT, TEXT, UUID_BYTES, Form
from sidecar.protocol.messages import admin, cluster, groups, logs, transactions
from sidecar.protocol.primitives import Reader, Writer
from sidecar.protocol.schema import NEVER, Array, Field, Message, record


@dataclass(frozen=True, slots=True)
class _NullableBytes:
    absent: bytes | None = None

    def read(self, reader: Reader, form: Form) -> bytes | None:
        return reader.compact_nullable_bytes() if form.flexible else reader.nullable_bytes()

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        if form.flexible:
            writer.compact_nullable_bytes(value)
        else:
            writer.nullable_bytes(value)


_RECORDS: Final = _NullableBytes()
_THROTTLE: Final = Field("throttle_time_ms", INT32)


def _topics(name: str, *partition: Field, inner: str = "partitions", topic: str = "name", by_id: int = NEVER) -> Field:
    """`by_id`: the version that has ids in the place of names."""
    called = (Field(topic, TEXT, until=by_id - 1), Field("topic_id", UUID_BYTES, since=by_id))
    return Field(name, Array(record(*called, Field(inner, Array(record(*partition))))))


PRODUCE: Final = Message(
    0,
    9,
    record(
        Field("transactional_id", NULLABLE_TEXT, since=3),
        Field("acks", INT16),
        Field("timeout_ms", INT32),
        _topics("topic_data", Field("index", INT32), Field("records", _RECORDS), inner="partition_data", by_id=13),
    ),
    record(
        _topics(
            "responses",
            Field("index", INT32),
            Field("error_code", INT16),
            Field("base_offset", INT64),
            Field("log_append_time_ms", INT64, since=2),
            Field("log_start_offset", INT64, since=5),
            Field(
                "record_errors",
                Array(record(Field("batch_index", INT32), Field("batch_index_error_message", NULLABLE_TEXT))),
                since=8,
            ),
            Field("error_message", NULLABLE_TEXT, since=8),
            inner="partition_responses",
            by_id=13,
        ),
        Field("throttle_time_ms", INT32, since=1),
    ),
)

FETCH: Final = Message(
    1,
    12,
    record(
        Field("replica_id", INT32, until=14),
        Field("max_wait_ms", INT32),
        Field("min_bytes", INT32),
        Field("max_bytes", INT32, since=3),
        Field("isolation_level", INT8, since=4),
        Field("session_id", INT32, since=7),
        Field("session_epoch", INT32, since=7),
        _topics(
            "topics",
            Field("partition", INT32),
            Field("current_leader_epoch", INT32, since=9),
            Field("fetch_offset", INT64),
            Field("last_fetched_epoch", INT32, since=12),
            Field("log_start_offset", INT64, since=5),
            Field("partition_max_bytes", INT32),
            topic="topic",
            by_id=13,
        ),
        Field(
            "forgotten_topics_data",
            Array(
                record(
                    Field("topic", TEXT, until=12),
                    Field("topic_id", UUID_BYTES, since=13),
                    Field("partitions", Array(INT32)),
                )
            ),
            since=7,
        ),
        Field("rack_id", TEXT, since=11),
    ),
    record(
        Field("throttle_time_ms", INT32, since=1),
        Field("error_code", INT16, since=7),
        Field("session_id", INT32, since=7),
        _topics(
            "responses",
            Field("partition_index", INT32),
            Field("error_code", INT16),
            Field("high_watermark", INT64),
            Field("last_stable_offset", INT64, since=4),
            Field("log_start_offset", INT64, since=5),
            Field(
                "aborted_transactions",
                Array(record(Field("producer_id", INT64), Field("first_offset", INT64)), nullable_since=4),
                since=4,
            ),
            Field("preferred_read_replica", INT32, since=11),
            Field("records", _RECORDS),
            topic="topic",
            by_id=13,
        ),
    ),
)

MESSAGES: Final[dict[int, Message]] = {
    message.key: message
    for message in (
        PRODUCE, FETCH, logs.LIST_OFFSETS, cluster.METADATA, groups.OFFSET_COMMIT, groups.OFFSET_FETCH,
        cluster.FIND_COORDINATOR, cluster.API_VERSIONS, groups.JOIN_GROUP, groups.HEARTBEAT, groups.LEAVE_GROUP,
        groups.SYNC_GROUP, groups.DESCRIBE_GROUPS, groups.LIST_GROUPS,
        admin.CREATE_TOPICS, admin.DELETE_TOPICS, logs.DELETE_RECORDS, transactions.INIT_PRODUCER_ID,
        logs.OFFSET_FOR_LEADER_EPOCH, transactions.ADD_PARTITIONS_TO_TXN, transactions.ADD_OFFSETS_TO_TXN,
        transactions.END_TXN, transactions.WRITE_TXN_MARKERS, groups.TXN_OFFSET_COMMIT, admin.DESCRIBE_CONFIGS,
        admin.CREATE_PARTITIONS, admin.INCREMENTAL_ALTER_CONFIGS, transactions.DESCRIBE_PRODUCERS,
        transactions.DESCRIBE_TRANSACTIONS, transactions.LIST_TRANSACTIONS, cluster.DESCRIBE_TOPIC_PARTITIONS,
    )
}  # fmt: skip

SERVED: Final[dict[int, tuple[int, int]]] = {
    0: (3, 13),
    1: (4, 18),
    2: (1, 7),
    3: (0, 12),
    8: (2, 10),
    9: (1, 10),
    10: (0, 3),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 4),
    23: (2, 4),
    24: (0, 3),
    25: (0, 3),
    26: (0, 4),
    27: (1, 1),
    28: (0, 3),
    32: (1, 4),
    37: (0, 3),
    44: (0, 1),
    61: (0, 0),
    65: (0, 0),
    66: (0, 1),
    75: (0, 0),
}
"""First and last version by API key."""

_SERVED_BEFORE_4_3: Final = SERVED | {8: (2, 9), 9: (1, 9)}  # KIP-848
_SERVED_BEFORE_4_1: Final = _SERVED_BEFORE_4_3 | {0: (3, 12), 1: (4, 17)}  # KIP-516, KIP-1166
_SERVED_BEFORE_4: Final = _SERVED_BEFORE_4_1 | {0: (3, 11), 15: (0, 5)}  # KIP-890, KIP-1043


def served(release: tuple[int, int]) -> dict[int, tuple[int, int]]:
    """`SERVED`, as far as this release of Kafka has it."""
    if release >= (4, 1):
        return SERVED if release >= (4, 3) else _SERVED_BEFORE_4_3
    return _SERVED_BEFORE_4_1 if release >= (4, 0) else _SERVED_BEFORE_4


_NAMES: Final = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 18: "ApiVersions", 19: "CreateTopics",
    20: "DeleteTopics", 21: "DeleteRecords", 22: "InitProducerId", 23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn", 26: "EndTxn", 27: "WriteTxnMarkers", 28: "TxnOffsetCommit", 32: "DescribeConfigs",
    37: "CreatePartitions", 44: "IncrementalAlterConfigs", 61: "DescribeProducers", 65: "DescribeTransactions",
    75: "DescribeTopicPartitions",
}  # fmt: skip


def name_of(key: int) -> str:
    return _NAMES.get(key, f"api {key}")
