"""The three internal topics in which nodes store their state: typed records, stamped appends, a view of them.

Redis may lose data, Kafka does not. The first record of a writer's epoch in the ownership topic decides who owns a
topic, under which epoch and from which sequences on. This room knows records, not the rules of ownership.
"""

# ruff: noqa: F401  the rooms above import all of these from here

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
from sidecar.changelog.topics import InternalTopics, TopicNames, open_topics
from sidecar.changelog.view import Change, Entry, Ignored, Opened, Record, View, retired_ids
