"""The three internal topics in which nodes remember: typed records, stamped appends, a view that follows them.

Redis forgets, Kafka does not: who owns a topic, under which epoch and from which sequences on is decided here, by the
first record that a writer's epoch appends to the ownership topic. This room knows records, not the rules of owning.
"""

from sidecar.changelog.changelog import Appender, Changelog, Journal, StampedJournal
from sidecar.changelog.clock import Clock
from sidecar.changelog.errors import (
    FAILURES,
    AppendRefusedError,
    AppendUncertainError,
    ChangelogError,
    ChangelogLostError,
    MisconfiguredError,
)
from sidecar.changelog.history import follow_events
from sidecar.changelog.keys import (
    MASTER_SLOT,
    REDIS_KEY,
    Key,
    Kind,
    SlotName,
    claim_key,
    claimed,
    partition_of,
    partition_slot,
    shared_slot,
    whole_of,
)
from sidecar.changelog.records import (
    Position,
    RawRecord,
    pack_offsets,
    pack_positions,
    read_batches,
    unpack_offsets,
    unpack_positions,
)
from sidecar.changelog.tailer import Tailer
from sidecar.changelog.topics import Finding, InternalTopics, TopicNames, open_topics
from sidecar.changelog.view import Change, Entry, Ignored, Opened, Record, View, retired_ids

__all__ = [
    "FAILURES",
    "MASTER_SLOT",
    "REDIS_KEY",
    "AppendRefusedError",
    "AppendUncertainError",
    "Appender",
    "Change",
    "Changelog",
    "ChangelogError",
    "ChangelogLostError",
    "Clock",
    "Entry",
    "Finding",
    "Ignored",
    "InternalTopics",
    "Journal",
    "Key",
    "Kind",
    "MisconfiguredError",
    "Opened",
    "Position",
    "RawRecord",
    "Record",
    "SlotName",
    "StampedJournal",
    "Tailer",
    "TopicNames",
    "View",
    "claim_key",
    "claimed",
    "follow_events",
    "open_topics",
    "pack_offsets",
    "pack_positions",
    "partition_of",
    "partition_slot",
    "read_batches",
    "retired_ids",
    "shared_slot",
    "unpack_offsets",
    "unpack_positions",
    "whole_of",
]
