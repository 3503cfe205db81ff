"""The messages that a simulated broker reads and writes, as the product's own tables (`sidecar.protocol.schema`).

Where the product has a table it is taken; what it reads by hand, or never serves, stands here, from Kafka's message
definitions. `SERVED` are the versions that ApiVersions lists: at most those of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sidecar.protocol.kinds import INT8, INT16, INT32, INT64, NULLABLE_TEXT, TEXT, UUID_BYTES, Form
from sidecar.protocol.messages import admin, cluster, groups, logs, security, transactions
from sidecar.protocol.primitives import Reader, Writer
from sidecar.protocol.schema import Array, Field, Message, Record


@dataclass(frozen=True, slots=True)
class _NullableBytes:
    absent: bytes | None = None

    def read(self, reader: Reader, form: Form) -> bytes | None:
        return reader.nullable_bytes(form.flexible)

    def write(self, writer: Writer, value: Any, form: Form) -> None:
        writer.nullable_bytes(value, form.flexible)


_RECORDS: Final = _NullableBytes()


def _topics(partitions: Record, inner: str = "partitions", topic: str = "name") -> Array:
    """Versions from 13 on have ids in the place of names."""
    called: dict[str, Any] = {topic: Field(TEXT, until=12), "topic_id": Field(UUID_BYTES, since=13)}
    return Array(Record(**called, **{inner: Array(partitions)}))


_PRODUCED: Final = Record(
    index=INT32,
    error_code=INT16,
    base_offset=INT64,
    log_append_time_ms=Field(INT64, since=2),
    log_start_offset=Field(INT64, since=5),
    record_errors=Field(Array(Record(batch_index=INT32, batch_index_error_message=NULLABLE_TEXT)), since=8),
    error_message=Field(NULLABLE_TEXT, since=8),
)
PRODUCE: Final = Message(
    0,
    9,
    Record(
        transactional_id=Field(NULLABLE_TEXT, since=3),
        acks=INT16,
        timeout_ms=INT32,
        topic_data=_topics(Record(index=INT32, records=_RECORDS), "partition_data"),
    ),
    Record(
        responses=_topics(_PRODUCED, "partition_responses"),
        throttle_time_ms=Field(INT32, since=1),
    ),
)

_FETCH: Final = Record(
    partition=INT32,
    current_leader_epoch=Field(INT32, since=9),
    fetch_offset=INT64,
    last_fetched_epoch=Field(INT32, since=12),
    log_start_offset=Field(INT64, since=5),
    partition_max_bytes=INT32,
)
_FETCHED: Final = Record(
    partition_index=INT32,
    error_code=INT16,
    high_watermark=INT64,
    last_stable_offset=Field(INT64, since=4),
    log_start_offset=Field(INT64, since=5),
    aborted_transactions=Field(Array(Record(producer_id=INT64, first_offset=INT64), nullable_since=4), since=4),
    preferred_read_replica=Field(INT32, since=11),
    records=_RECORDS,
)
_FORGOTTEN: Final = Record(topic=Field(TEXT, until=12), topic_id=Field(UUID_BYTES, since=13), partitions=Array(INT32))
FETCH: Final = Message(
    1,
    12,
    Record(
        replica_id=Field(INT32, until=14),
        max_wait_ms=INT32,
        min_bytes=INT32,
        max_bytes=Field(INT32, since=3),
        isolation_level=Field(INT8, since=4),
        session_id=Field(INT32, since=7),
        session_epoch=Field(INT32, since=7),
        topics=_topics(_FETCH, topic="topic"),
        forgotten_topics_data=Field(Array(_FORGOTTEN), since=7),
        rack_id=Field(TEXT, since=11),
    ),
    Record(
        throttle_time_ms=Field(INT32, since=1),
        error_code=Field(INT16, since=7),
        session_id=Field(INT32, since=7),
        responses=_topics(_FETCHED, topic="topic"),
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
        security.DESCRIBE_CLIENT_QUOTAS, admin.ELECT_LEADERS, admin.ALTER_PARTITION_REASSIGNMENTS,
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
    48: (0, 1),
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
    37: "CreatePartitions", 44: "IncrementalAlterConfigs",
    48: "DescribeClientQuotas", 61: "DescribeProducers", 65: "DescribeTransactions",
    75: "DescribeTopicPartitions",
}  # fmt: skip


def name_of(key: int) -> str:
    return _NAMES.get(key, f"api {key}")
