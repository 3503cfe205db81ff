"""Keeps shadows in step with their sources: adds partitions, closes shadows without a source, finishes interrupted
work.

Each node checks the shadows that it is responsible for (by rendezvous hashing), all with one request. The action is
decided from a shadow's record and Kafka's metadata of the two topics (`judged`). The record of a closed shadow contains
the reason, so that every node knows it without a request to Kafka.

Kafka's brokers learn of topics one after the other: one that lags does not know a topic that was just created. So no
shadow is closed or forgotten because of a single answer. The topic id distinguishes a topic from another one of its
name (KIP-516).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from sidecar.changelog import FAILURES, Entry
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.calls.admin import CreatePartitions
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset
from sidecar.protocol.metadata import MetadataRequest, TopicState
from sidecar.shadow.records import ShadowRecords
from sidecar.v1 import state_pb2 as state

HALF_MADE_MS: Final = 30_000
"""How long (ms) a creation may take before a record without its topic is deleted."""


class ShadowVerdict(NamedTuple):
    """What to do with a shadow. `forget`: why its record is deleted, empty if it is not. `closed`: why it cannot be
    read, empty if it can. `partitions`: the new number of partitions of its topic, 0 for no change.
    """

    forget: str = ""
    closed: str = ""
    partitions: int = 0


def judged(name: str, record: state.Shadow, topics: Mapping[str, TopicState], now_ms: int) -> ShadowVerdict | None:
    """Decide from a Metadata response about both topics; None if it does not suffice. `now_ms`: Unix ms."""
    if not record.topic_id:
        left = now_ms - record.created_ms > HALF_MADE_MS
        return ShadowVerdict(forget="its creation was never finished", closed=record.closed) if left else None
    own, source = topics.get(name), topics.get(record.source)
    if _is_other(own, record.topic_id):
        return ShadowVerdict(forget="its own topic was deleted in Kafka directly", closed=record.closed)
    if _is_gone(source):
        return ShadowVerdict(closed=f"its source {record.source} was deleted: delete the shadow too")
    if _is_other(source, record.source_topic_id):
        return ShadowVerdict(
            closed=f"its source {record.source} was created again: delete the shadow and create it again"
        )
    if own is None or source is None or not own.partitions or not source.partitions:
        return None
    wanted = len(source.partitions)
    return ShadowVerdict(partitions=wanted if wanted > len(own.partitions) else 0)


def _is_gone(topic: TopicState | None) -> bool:
    return topic is not None and topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_other(topic: TopicState | None, topic_id: bytes) -> bool:
    """Whether the topic does not exist, or has another topic id."""
    return _is_gone(topic) or (topic is not None and bool(topic.partitions) and topic.topic_id != UUID(bytes=topic_id))


_ROUND_S: Final = 2.0
_CALL_MS: Final = 15_000


class ShadowHooks(Protocol):
    """Events that are reported to the node; implementations are cheap and never raise."""

    def shadow_closed(self, shadow: str, reason: str) -> None: ...
    def shadow_opened(self, shadow: str) -> None: ...
    def shadow_forgotten(self, shadow: str, reason: str) -> None: ...
    def shadow_failed(self, shadow: str, error: BaseException) -> None: ...


class ShadowKeeper:
    """Checks the shadows that this node is responsible for."""

    def __init__(
        self, upstream: KafkaUpstream, records: ShadowRecords, nodes: NodeDirectory, hooks: ShadowHooks
    ) -> None:
        self._upstream = upstream
        self._records = records
        self._nodes = nodes
        self._hooks = hooks
        self._before: dict[str, tuple[Offset, ShadowVerdict]] = {}
        """The verdicts of the last check, each with the offset of the record that it is about."""

    async def run(self) -> None:
        """Check all shadows every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_S)
            await self.look()

    async def look(self) -> None:
        """Check every shadow of this node once. Never raises."""
        placement, me = self._nodes.placement, self._nodes.me.id
        mine = [entry for entry in self._records.all() if placement.of_topic(entry.key.topic.encode()) == me]
        try:
            topics = await self._ask(mine)
        except FAILURES as error:
            self._hooks.shadow_failed("", error)
            return
        before, self._before = self._before, {}
        for entry in mine:
            try:
                async with self._records.changing:
                    await self._look_after(entry, topics, before.get(entry.key.topic))
            except FAILURES as error:
                self._hooks.shadow_failed(entry.key.topic, error)

    async def _ask(self, entries: list[Entry[state.Shadow]]) -> Mapping[str, TopicState]:
        names = sorted({name for entry in entries for name in (entry.key.topic, entry.value.source)})
        if not names:
            return {}
        found = await self._upstream.metadata(MetadataRequest(tuple(names), allow_auto_topic_creation=False))
        return {topic.name: topic for topic in found.topics}

    async def _look_after(
        self, entry: Entry[state.Shadow], topics: Mapping[str, TopicState], before: tuple[Offset, ShadowVerdict] | None
    ) -> None:
        name = entry.key.topic
        if self._records.get(name) is not entry:
            return  # the metadata was requested for the previous record
        verdict = judged(name, entry.value, topics, self._records.now_ms())
        if verdict is None:
            return
        self._before[name] = found = entry.offset, verdict
        if verdict.partitions:
            await self._grow(name, verdict.partitions)
        if found != before:
            return  # one answer may be a lagging broker's
        if verdict.forget:
            await self._forget(entry, verdict.forget)
        elif verdict.closed != entry.value.closed:
            await self._mark(entry, verdict.closed)

    async def _forget(self, entry: Entry[state.Shadow], reason: str) -> None:
        name = entry.key.topic
        await self._records.add_event(name, f"forgotten: {reason}", state.EventDetails(deleted=True, reason=reason))
        await self._records.forget(name, entry.value)
        self._hooks.shadow_forgotten(name, reason)

    async def _mark(self, entry: Entry[state.Shadow], reason: str) -> None:
        """Report a closing or reopening, then write it to the record. After a crash in between it is reported again,
        with the same event id.
        """
        name, topic_id = entry.key.topic, entry.value.topic_id
        what = f"{name}/{entry.offset}/{reason}".encode()
        await self._records.add_event(
            name,
            f"closed: {reason}" if reason else "open again",
            state.EventDetails(closed=reason),
            hashlib.blake2b(what, digest_size=16).digest(),
        )

        def edit(record: state.Shadow) -> None:
            if record.topic_id == topic_id:
                record.closed = reason

        try:
            await self._records.change(name, edit)
        except LookupError:
            return
        if reason:
            self._hooks.shadow_closed(name, reason)
        else:
            self._hooks.shadow_opened(name)

    async def _grow(self, name: str, partitions: int) -> None:
        outcome = await self._upstream.call(self._upstream.controller(), CreatePartitions(name, partitions, _CALL_MS))
        if outcome.error:
            raise KafkaError(outcome.error, f"partitions of {name}: {outcome.message or 'refused'}")
