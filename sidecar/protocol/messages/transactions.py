"""Transaction APIs, and what partitions and coordinators tell of producers (KIP-664)."""

from __future__ import annotations

from typing import Final

from sidecar.protocol.schema import (
    BOOLEAN,
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
_STAMP: Final = (Field("producer_id", INT64), Field("producer_epoch", INT16))
_OUTCOME: Final = record(_THROTTLE, Field("error_code", INT16))

INIT_PRODUCER_ID: Final = Message(
    22,
    2,
    record(
        Field("transactional_id", NULLABLE_TEXT),
        Field("transaction_timeout_ms", INT32),
        Field("producer_id", INT64, since=3),
        Field("producer_epoch", INT16, since=3),
    ),
    record(_THROTTLE, Field("error_code", INT16), *_STAMP),
)

ADD_PARTITIONS_TO_TXN: Final = Message(
    24,
    3,
    record(
        Field("transactional_id", TEXT),
        *_STAMP,
        Field("topics", Array(record(Field("name", TEXT), Field("partitions", Array(INT32))))),
    ),
    record(
        _THROTTLE,
        Field(
            "results_by_topic",
            Array(
                record(
                    Field("name", TEXT),
                    Field(
                        "results_by_partition",
                        Array(record(Field("partition_index", INT32), Field("partition_error_code", INT16))),
                    ),
                )
            ),
        ),
    ),
)

ADD_OFFSETS_TO_TXN: Final = Message(
    25, 3, record(Field("transactional_id", TEXT), *_STAMP, Field("group_id", TEXT)), _OUTCOME
)

END_TXN: Final = Message(26, 3, record(Field("transactional_id", TEXT), *_STAMP, Field("committed", BOOLEAN)), _OUTCOME)

DESCRIBE_PRODUCERS: Final = Message(
    61,
    0,
    record(Field("topics", Array(record(Field("name", TEXT), Field("partition_indexes", Array(INT32)))))),
    record(
        _THROTTLE,
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
                                Field("error_code", INT16),
                                Field("error_message", NULLABLE_TEXT),
                                Field(
                                    "active_producers",
                                    Array(
                                        record(
                                            Field("producer_id", INT64),
                                            Field("producer_epoch", INT32),
                                            Field("last_sequence", INT32),
                                            Field("last_timestamp", INT64),
                                            Field("coordinator_epoch", INT32),
                                            Field("current_txn_start_offset", INT64),
                                        )
                                    ),
                                ),
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)

DESCRIBE_TRANSACTIONS: Final = Message(
    65,
    0,
    record(Field("transactional_ids", Array(TEXT))),
    record(
        _THROTTLE,
        Field(
            "transaction_states",
            Array(
                record(
                    Field("error_code", INT16),
                    Field("transactional_id", TEXT),
                    Field("transaction_state", TEXT),
                    Field("transaction_timeout_ms", INT32),
                    Field("transaction_start_time_ms", INT64),
                    *_STAMP,
                    Field("topics", Array(record(Field("topic", TEXT), Field("partitions", Array(INT32))))),
                )
            ),
        ),
    ),
)

LIST_TRANSACTIONS: Final = Message(
    66,
    0,
    record(
        Field("state_filters", Array(TEXT)),
        Field("producer_id_filters", Array(INT64)),
        Field("duration_filter", INT64, since=1),
    ),
    record(
        _THROTTLE,
        Field("error_code", INT16),
        Field("unknown_state_filters", Array(TEXT)),
        Field(
            "transaction_states",
            Array(
                record(Field("transactional_id", TEXT), Field("producer_id", INT64), Field("transaction_state", TEXT))
            ),
        ),
    ),
)
