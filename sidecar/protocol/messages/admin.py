"""Topics, configurations and log directories."""

from __future__ import annotations

from typing import Final

from sidecar.protocol.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_TEXT,
    TEXT,
    UUID_BYTES,
    Array,
    Field,
    Message,
    record,
)

_THROTTLE: Final = Field("throttle_time_ms", INT32)

CREATE_TOPICS: Final = Message(
    19,
    5,
    record(
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field("num_partitions", INT32),
                    Field("replication_factor", INT16),
                    Field(
                        "assignments",
                        Array(record(Field("partition_index", INT32), Field("broker_ids", Array(INT32)))),
                    ),
                    Field("configs", Array(record(Field("name", TEXT), Field("value", NULLABLE_TEXT)))),
                )
            ),
        ),
        Field("timeout_ms", INT32),
        Field("validate_only", BOOLEAN),
    ),
    record(
        _THROTTLE,
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field("topic_id", UUID_BYTES, since=7),
                    Field("error_code", INT16),
                    Field("error_message", NULLABLE_TEXT),
                    Field("num_partitions", INT32, since=5),
                    Field("replication_factor", INT16, since=5),
                    Field(
                        "configs",
                        Array(
                            record(
                                Field("name", TEXT),
                                Field("value", NULLABLE_TEXT),
                                Field("read_only", BOOLEAN),
                                Field("config_source", INT8),
                                Field("is_sensitive", BOOLEAN),
                            ),
                            nullable_since=5,
                        ),
                        since=5,
                    ),
                )
            ),
        ),
    ),
)

DELETE_TOPICS: Final = Message(
    20,
    4,
    record(Field("topic_names", Array(TEXT)), Field("timeout_ms", INT32)),
    record(
        _THROTTLE,
        Field(
            "responses",
            Array(
                record(
                    Field("name", TEXT),
                    Field("error_code", INT16),
                    Field("error_message", NULLABLE_TEXT, since=5),
                )
            ),
        ),
    ),
)

CREATE_PARTITIONS: Final = Message(
    37,
    2,
    record(
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field("count", INT32),
                    Field("assignments", Array(record(Field("broker_ids", Array(INT32))), nullable_since=0)),
                )
            ),
        ),
        Field("timeout_ms", INT32),
        Field("validate_only", BOOLEAN),
    ),
    record(
        _THROTTLE,
        Field(
            "results",
            Array(record(Field("name", TEXT), Field("error_code", INT16), Field("error_message", NULLABLE_TEXT))),
        ),
    ),
)

DESCRIBE_CONFIGS: Final = Message(
    32,
    4,
    record(
        Field(
            "resources",
            Array(
                record(
                    Field("resource_type", INT8),
                    Field("resource_name", TEXT),
                    Field("configuration_keys", Array(TEXT, nullable_since=0)),
                )
            ),
        ),
        Field("include_synonyms", BOOLEAN, since=1),
        Field("include_documentation", BOOLEAN, since=3),
    ),
    record(
        _THROTTLE,
        Field(
            "results",
            Array(
                record(
                    Field("error_code", INT16),
                    Field("error_message", NULLABLE_TEXT),
                    Field("resource_type", INT8),
                    Field("resource_name", TEXT),
                    Field(
                        "configs",
                        Array(
                            record(
                                Field("name", TEXT),
                                Field("value", NULLABLE_TEXT),
                                Field("read_only", BOOLEAN),
                                Field("is_default", BOOLEAN, until=0),
                                Field("config_source", INT8, since=1),
                                Field("is_sensitive", BOOLEAN),
                                Field(
                                    "synonyms",
                                    Array(
                                        record(
                                            Field("name", TEXT), Field("value", NULLABLE_TEXT), Field("source", INT8)
                                        )
                                    ),
                                    since=1,
                                ),
                                Field("config_type", INT8, since=3),
                                Field("documentation", NULLABLE_TEXT, since=3),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)

_ALTERED: Final = record(
    _THROTTLE,
    Field(
        "responses",
        Array(
            record(
                Field("error_code", INT16),
                Field("error_message", NULLABLE_TEXT),
                Field("resource_type", INT8),
                Field("resource_name", TEXT),
            )
        ),
    ),
)

ALTER_CONFIGS: Final = Message(
    33,
    2,
    record(
        Field(
            "resources",
            Array(
                record(
                    Field("resource_type", INT8),
                    Field("resource_name", TEXT),
                    Field("configs", Array(record(Field("name", TEXT), Field("value", NULLABLE_TEXT)))),
                )
            ),
        ),
        Field("validate_only", BOOLEAN),
    ),
    _ALTERED,
)

INCREMENTAL_ALTER_CONFIGS: Final = Message(
    44,
    1,
    record(
        Field(
            "resources",
            Array(
                record(
                    Field("resource_type", INT8),
                    Field("resource_name", TEXT),
                    Field(
                        "configs",
                        Array(
                            record(Field("name", TEXT), Field("config_operation", INT8), Field("value", NULLABLE_TEXT))
                        ),
                    ),
                )
            ),
        ),
        Field("validate_only", BOOLEAN),
    ),
    _ALTERED,
)

DESCRIBE_LOG_DIRS: Final = Message(
    35,
    2,
    record(
        Field(
            "topics",
            Array(record(Field("topic", TEXT), Field("partitions", Array(INT32))), nullable_since=0),
        )
    ),
    record(
        _THROTTLE,
        Field("error_code", INT16, since=3),
        Field(
            "results",
            Array(
                record(
                    Field("error_code", INT16),
                    Field("log_dir", TEXT),
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
                                            Field("partition_size", INT64),
                                            Field("offset_lag", INT64),
                                            Field("is_future_key", BOOLEAN),
                                        )
                                    ),
                                ),
                            )
                        ),
                    ),
                    Field("total_bytes", INT64, since=4),
                    Field("usable_bytes", INT64, since=4),
                )
            ),
        ),
    ),
)

LIST_PARTITION_REASSIGNMENTS: Final = Message(
    46,
    0,
    record(
        Field("timeout_ms", INT32),
        Field(
            "topics",
            Array(record(Field("name", TEXT), Field("partition_indexes", Array(INT32))), nullable_since=0),
        ),
    ),
    record(
        _THROTTLE,
        Field("error_code", INT16),
        Field("error_message", NULLABLE_TEXT),
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
                                Field("replicas", Array(INT32)),
                                Field("adding_replicas", Array(INT32)),
                                Field("removing_replicas", Array(INT32)),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)

ELECT_LEADERS: Final = Message(
    43,
    2,
    record(
        Field("election_type", INT8, since=1),
        Field(
            "topic_partitions",
            Array(record(Field("topic", TEXT), Field("partitions", Array(INT32))), nullable_since=0),
        ),
        Field("timeout_ms", INT32),
    ),
    record(
        _THROTTLE,
        Field("error_code", INT16, since=1),
        Field(
            "replica_election_results",
            Array(
                record(
                    Field("topic", TEXT),
                    Field(
                        "partition_result",
                        Array(
                            record(
                                Field("partition_id", INT32),
                                Field("error_code", INT16),
                                Field("error_message", NULLABLE_TEXT),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS: Final = Message(
    45,
    0,
    record(
        Field("timeout_ms", INT32),
        Field(
            "topics",
            Array(
                record(
                    Field("name", TEXT),
                    Field(
                        "partitions",
                        Array(
                            record(Field("partition_index", INT32), Field("replicas", Array(INT32, nullable_since=0)))
                        ),
                    ),
                )
            ),
        ),
    ),
    record(
        _THROTTLE,
        Field("error_code", INT16),
        Field("error_message", NULLABLE_TEXT),
        Field(
            "responses",
            Array(
                record(
                    Field("name", TEXT),
                    Field(
                        "partitions",
                        Array(
                            record(
                                Field("partition_index", INT32),
                                Field("error_code", INT16),
                                Field("error_message", NULLABLE_TEXT),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)
