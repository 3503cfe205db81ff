"""The room as the others see it: the internal topics of one cluster of nodes, appended to and followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sidecar.changelog.append import Appender, Journal, StampedJournal
from sidecar.changelog.clock import Clock
from sidecar.changelog.records import RawRecord
from sidecar.changelog.tailer import Tailer
from sidecar.changelog.topics import InternalTopics, open_topics
from sidecar.changelog.view import Record
from sidecar.protocol.caller import Upstream
from sidecar.protocol.ids import Offset, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state


class Changelog:
    """Ownership topic and events of one cluster of nodes. Make one with `open`; `close` stops the reading."""

    def __init__(self, topics: InternalTopics, appender: Appender, tailer: Tailer) -> None:
        self.topics = topics
        self.tailer = tailer
        self.view = tailer.view
        """The newest records, as far as `position`."""
        self.clock = tailer.clock
        """What time it is at the brokers: for every age that more than one node judges."""
        self.partition = topics.ownership
        """The ownership partition: every fence covers it."""
        self.events = TopicPartition(topics.names.events, 0)
        """Where the history is; `follow_events` reads it."""
        self.appender = appender
        self.journal = partial(StampedJournal, appender, topics.ownership, tailer)
        """Makes the journal of one writer, whose stamp it is given."""

    @classmethod
    async def open(
        cls,
        upstream: Upstream,
        cluster: str,
        *,
        on_error: Callable[[Exception], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> Changelog:
        """Check or create the internal topics (`open_topics`) and begin to follow the ownership topic."""
        topics = await open_topics(upstream, cluster)
        tailer = Tailer(upstream, topics.ownership, topics.ids[topics.names.ownership], on_error=on_error, clock=clock)
        tailer.start()
        return cls(topics, Appender(upstream, topics.ids), tailer)

    async def close(self) -> None:
        """Stop following."""
        await self.tailer.close()

    @property
    def position(self) -> Offset:
        """The next offset of the ownership topic to be read."""
        return self.tailer.position

    async def append(self, records: Sequence[Record]) -> Offset:
        """Append one batch of records without a stamp to the ownership topic and return its base offset; all of it or
        nothing is in the log. Others go by a `journal`.

        Raises ValueError for a kind that needs a stamp, `AppendRefusedError`, `AppendUncertainError`,
        `ChangelogLostError`, `RetryTimeoutError` (`Appender.append`).
        """
        for record in records:
            if record.key.kind.stamped:
                raise ValueError(f"{record.key} speaks for a topic: it needs its slot's stamp")
        raw = [record.encode() for record in records]
        return await self.appender.append(self.partition, raw, known_end=self.position)

    def fenced(self, snapshots_of: str | None = None) -> dict[str, list[int]]:
        """What a fence covers besides the partitions of a topic: the ownership partition, and where the snapshots of
        this topic are, where it has sequence ids.
        """
        found = {self.partition.topic: [self.partition.partition]}
        if snapshots_of is not None:
            kept = self.snapshots_of(snapshots_of)
            found[kept.topic] = [kept.partition]
        return found

    def snapshots_of(self, topic: str) -> TopicPartition:
        """Where the snapshots of a topic's sequence ids are: its fences cover it."""
        return self.topics.snapshots_of(topic)

    def snapshot_journal(self, writer: Stamp, topic: str) -> Journal:
        """Appends of one writer to the snapshots of its topic."""
        return Journal(self.appender, self.snapshots_of(topic), writer)

    async def add_event(self, event: state.Event) -> Offset:
        """Append one line of history, at least once; errors as `append`."""
        raw = RawRecord(event.topic.encode(), event.SerializeToString(deterministic=True))
        return await self.appender.append(self.events, [raw])
