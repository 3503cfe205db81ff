"""Group APIs: what answers with an error look like, and the two that name several groups at once."""

from __future__ import annotations

from typing import Final

from sidecar.protocol.schema import (
    BOOLEAN,
    BYTES,
    INT16,
    INT32,
    INT64,
    NULLABLE_TEXT,
    TEXT,
    Array,
    Field,
    Message,
    record,
)

_THROTTLE: Final = Field("throttle_time_ms", INT32)

_COMMITTED: Final = record(
    _THROTTLE,
    Field(
        "topics",
        Array(
            record(
                Field("name", TEXT),
                Field("partitions", Array(record(Field("partition_index", INT32), Field("error_code", INT16)))),
            )
        ),
    ),
)
"""Outcome per partition: the answer of TxnOffsetCommit, and of OffsetCommit from version 3."""

OFFSET_COMMIT: Final = Message(
    8,
    8,
    record(
        Field("group_id", TEXT),
        Field("generation_id_or_member_epoch", INT32),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=7),
        Field("retention_time_ms", INT64, since=2, until=4),
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field(
                        "partitions",
                        Array(
                            record(
                                Field("partition_index", INT32),
                                Field("committed_offset", INT64),
                                Field("committed_leader_epoch", INT32, since=6),
                                Field("committed_metadata", NULLABLE_TEXT),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
    record(Field("throttle_time_ms", INT32, since=3), *_COMMITTED.fields[1:]),
)

OFFSET_FETCH: Final = Message(
    9,
    6,
    record(
        Field("group_id", TEXT),
        Field(
            "topics",
            Array(record(Field("name", TEXT), Field("partition_indexes", Array(INT32))), nullable_since=2),
        ),
        Field("require_stable", BOOLEAN, since=7),
    ),
    record(
        Field("throttle_time_ms", INT32, since=3),
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field(
                        "partitions",
                        Array(
                            record(
                                Field("partition_index", INT32),
                                Field("committed_offset", INT64),
                                Field("committed_leader_epoch", INT32, since=5),
                                Field("metadata", NULLABLE_TEXT),
                                Field("error_code", INT16),
                            )
                        ),
                    ),
                )
            ),
        ),
        Field("error_code", INT16, since=2),
    ),
)

JOIN_GROUP: Final = Message(
    11,
    6,
    record(
        Field("group_id", TEXT),
        Field("session_timeout_ms", INT32),
        Field("rebalance_timeout_ms", INT32, since=1),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=5),
        Field("protocol_type", TEXT),
        Field("protocols", Array(record(Field("name", TEXT), Field("metadata", BYTES)))),
        Field("reason", NULLABLE_TEXT, since=8),
    ),
    record(
        Field("throttle_time_ms", INT32, since=2),
        Field("error_code", INT16),
        Field("generation_id", INT32),
        Field("protocol_type", NULLABLE_TEXT, since=7),
        Field("protocol_name", TEXT, until=6),
        Field("protocol_name", NULLABLE_TEXT, since=7),
        Field("leader", TEXT),
        Field("skip_assignment", BOOLEAN, since=9),
        Field("member_id", TEXT),
        Field(
            "members",
            Array(
                record(
                    Field("member_id", TEXT),
                    Field("group_instance_id", NULLABLE_TEXT, since=5),
                    Field("metadata", BYTES),
                )
            ),
        ),
    ),
)

HEARTBEAT: Final = Message(
    12,
    4,
    record(
        Field("group_id", TEXT),
        Field("generation_id", INT32),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=3),
    ),
    record(Field("throttle_time_ms", INT32, since=1), Field("error_code", INT16)),
)

LEAVE_GROUP: Final = Message(
    13,
    4,
    record(
        Field("group_id", TEXT),
        Field("member_id", TEXT, until=2),
        Field(
            "members",
            Array(
                record(
                    Field("member_id", TEXT),
                    Field("group_instance_id", NULLABLE_TEXT),
                    Field("reason", NULLABLE_TEXT, since=5),
                )
            ),
            since=3,
        ),
    ),
    record(
        Field("throttle_time_ms", INT32, since=1),
        Field("error_code", INT16),
        Field(
            "members",
            Array(
                record(Field("member_id", TEXT), Field("group_instance_id", NULLABLE_TEXT), Field("error_code", INT16))
            ),
            since=3,
        ),
    ),
)

SYNC_GROUP: Final = Message(
    14,
    4,
    record(
        Field("group_id", TEXT),
        Field("generation_id", INT32),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=3),
        Field("protocol_type", NULLABLE_TEXT, since=5),
        Field("protocol_name", NULLABLE_TEXT, since=5),
        Field("assignments", Array(record(Field("member_id", TEXT), Field("assignment", BYTES)))),
    ),
    record(
        Field("throttle_time_ms", INT32, since=1),
        Field("error_code", INT16),
        Field("protocol_type", NULLABLE_TEXT, since=5),
        Field("protocol_name", NULLABLE_TEXT, since=5),
        Field("assignment", BYTES),
    ),
)

DESCRIBE_GROUPS: Final = Message(
    15,
    5,
    record(Field("groups", Array(TEXT)), Field("include_authorized_operations", BOOLEAN, since=3)),
    record(
        Field("throttle_time_ms", INT32, since=1),
        Field(
            "groups",
            Array(
                record(
                    Field("error_code", INT16),
                    Field("error_message", NULLABLE_TEXT, since=6),
                    Field("group_id", TEXT),
                    Field("group_state", TEXT),
                    Field("protocol_type", TEXT),
                    Field("protocol_data", TEXT),
                    Field(
                        "members",
                        Array(
                            record(
                                Field("member_id", TEXT),
                                Field("group_instance_id", NULLABLE_TEXT, since=4),
                                Field("client_id", TEXT),
                                Field("client_host", TEXT),
                                Field("member_metadata", BYTES),
                                Field("member_assignment", BYTES),
                            )
                        ),
                    ),
                    Field("authorized_operations", INT32, since=3),
                )
            ),
        ),
    ),
)

DELETE_GROUPS: Final = Message(
    42,
    2,
    record(Field("groups_names", Array(TEXT))),
    record(_THROTTLE, Field("results", Array(record(Field("group_id", TEXT), Field("error_code", INT16))))),
)

OFFSET_DELETE: Final = Message(
    47,
    32_767,
    record(
        Field("group_id", TEXT),
        Field(
            "topics",
            Array(record(Field("name", TEXT), Field("partitions", Array(record(Field("partition_index", INT32)))))),
        ),
    ),
    record(
        Field("error_code", INT16),
        _THROTTLE,
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field("partitions", Array(record(Field("partition_index", INT32), Field("error_code", INT16)))),
                )
            ),
        ),
    ),
)

TXN_OFFSET_COMMIT: Final = Message(
    28,
    3,
    record(
        Field("transactional_id", TEXT),
        Field("group_id", TEXT),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("generation_id", INT32, since=3),
        Field("member_id", TEXT, since=3),
        Field("group_instance_id", NULLABLE_TEXT, since=3),
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field(
                        "partitions",
                        Array(
                            record(
                                Field("partition_index", INT32),
                                Field("committed_offset", INT64),
                                Field("committed_leader_epoch", INT32, since=2),
                                Field("committed_metadata", NULLABLE_TEXT),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
    _COMMITTED,
)

LIST_GROUPS: Final = Message(
    16,
    3,
    record(Field("states_filter", Array(TEXT), since=4), Field("types_filter", Array(TEXT), since=5)),
    record(
        Field("throttle_time_ms", INT32, since=1),
        Field("error_code", INT16),
        Field(
            "groups",
            Array(
                record(
                    Field("group_id", TEXT),
                    Field("protocol_type", TEXT),
                    Field("group_state", TEXT, since=4),
                    Field("group_type", TEXT, since=5),
                )
            ),
        ),
    ),
)
