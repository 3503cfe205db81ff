"""The three internal topics in which nodes remember: typed records, stamped appends, a view that follows them.

Redis forgets, Kafka does not: who owns a topic, under which epoch and from which sequences on is decided here, by the
first record that a writer's epoch appends to the ownership topic. This room knows records, not the rules of owning.
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
