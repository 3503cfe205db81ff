"""Writer slots: producer ids and epochs that nodes alone use, and the fence that makes Kafka refuse a lost one.

Knows no owners: `exclusive` decides which session takes a slot, and when; `forwarder` and `changelog` write under it.
"""

from sidecar.fencing.expiry import (
    DEFAULT_KEEP_ALIVE,
    KeepAlive,
    keep_alive,
    read_broker_keep_alive,
    read_keep_alives,
)
from sidecar.fencing.record_writer import RecordWriter
from sidecar.fencing.retire import retire_formers, retire_producer
from sidecar.fencing.slot import (
    PREFIX,
    ROTATE_AT,
    EpochsUsedUpError,
    FencingLimits,
    Partitions,
    WriterSlot,
    transactional_id,
)
from sidecar.fencing.topic import FencedTopic, fence_slot, fence_topic, open_slots
from sidecar.fencing.witness import FencingRefusedError, Witness

__all__ = [
    "DEFAULT_KEEP_ALIVE",
    "PREFIX",
    "ROTATE_AT",
    "EpochsUsedUpError",
    "FencedTopic",
    "FencingLimits",
    "FencingRefusedError",
    "KeepAlive",
    "Partitions",
    "RecordWriter",
    "Witness",
    "WriterSlot",
    "fence_slot",
    "fence_topic",
    "keep_alive",
    "open_slots",
    "read_broker_keep_alive",
    "read_keep_alives",
    "retire_formers",
    "retire_producer",
    "transactional_id",
]
