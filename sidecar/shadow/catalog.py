"""The shadows of a cluster of nodes: made, kept in step with their sources, deleted.

A shadow is a record in the ownership topic and an empty topic of Kafka. The record comes first and every live node
knows it before the topic is there, so that none takes a write for it; the topic goes first, and the record when it is
gone. Whoever dies in between leaves one without the other: the node that is first in line for the name finishes.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from sidecar.changelog import ChangelogError, Kind, Record, RetryTimeoutError, shadow_key
from sidecar.cluster.resolver import Source, is_legal
from sidecar.protocol.caller import UnknownTopicError, UpstreamError
from sidecar.protocol.calls import CreatePartitions, CreateTopics, DeleteTopics, NewTopic
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.metadata import MetadataRequest
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.changelog import Change, Changelog
    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.cluster.resolver import NameResolver
    from sidecar.cluster.upstream import KafkaUpstream

_SEEN_S: Final = 5.0
_POLL_S: Final = 0.05
_CALL_MS: Final = 15_000
_ROUND_S: Final = 2.0
_LEFT_S: Final = 30.0
"""A record without its topic is somebody's work that takes no longer."""
_DEFAULT: Final = -1
_ANYBODY: Final = "User:*"
EVERYBODY: Final = (_ANYBODY,)

FAILURES: Final = (UpstreamError, KafkaError, ChangelogError, RetryTimeoutError, TimeoutError)


class NameTakenError(Exception):
    """There is a topic, or a shadow of another one, of this name."""


class BadShadowError(ValueError):
    """There can be no such shadow: the message says why."""


class Members(Protocol):
    """What the catalog needs of the nodes around (`cluster.membership`)."""

    async def seen_by_all(self, offset: int) -> None:
        """Returns once every live node has read the changelog up to there, or has let its lease run out."""
        ...


class Hooks(Protocol):
    """What the node wants to know; implementations are cheap and never raise."""

    def operation_failed(self, topic: str, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class Shadow:
    """A shadow as the changelog has it. `is_made` False: its topic is not there yet."""

    name: str
    source: str
    allow: tuple[str, ...]
    created_ms: int
    is_made: bool
    auto_reset_backlog_entries: int = 0


class ShadowCatalog:
    """The shadows; tells the resolver of every change."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        changelog: Changelog,
        resolver: NameResolver,
        nodes: NodeDirectory,
        members: Members,
        hooks: Hooks,
    ) -> None:
        self._upstream = upstream
        self._changelog = changelog
        self._resolver = resolver
        self._nodes = nodes
        self._members = members
        self._hooks = hooks
        self._changing = asyncio.Lock()
        self._unsubscribe: Callable[[], None] = lambda: None
        self.changed: Callable[[Sequence[Shadow]], None] = lambda shadows: None
        """Told of all shadows whenever one of them changes."""

    def start(self) -> None:
        """Take over what the changelog says; it has been read to its end."""
        self._unsubscribe = self._changelog.tailer.subscribe(self._changed)
        self._apply()

    def close(self) -> None:
        """Follow the changelog no more."""
        self._unsubscribe()

    def _changed(self, change: Change) -> None:
        if change.key.kind is Kind.SHADOW:
            self._apply()

    def _apply(self) -> None:
        self._resolver.set_shadows(
            {entry.key.topic.encode(): _source(entry.value) for entry in self._changelog.view.shadows()}
        )
        self.changed(self.all())

    # What is there --------------------------------------------------------------------------------------------------

    def of(self, source: str) -> list[Shadow]:
        """The shadows of a topic, by name."""
        return [found for found in self.all() if found.source == source]

    def all(self) -> list[Shadow]:
        """Every shadow, by name."""
        found = [_shadow(entry.key.topic, entry.value) for entry in self._changelog.view.shadows()]
        return sorted(found, key=lambda shadow: shadow.name)

    # Changes --------------------------------------------------------------------------------------------------------

    async def create(
        self, source: str, name: str, allow: Sequence[str] = EVERYBODY, auto_reset_backlog_entries: int = 0
    ) -> Shadow:
        """Make a shadow; it is served by every node when this returns.

        Cursors that more than `auto_reset_backlog_entries` records lie behind are reset to the end; 0: never. Raises
        `BadShadowError`, LookupError without such a source, `NameTakenError`, and `FAILURES`.
        """
        self._check(source, name, allow)
        async with self._changing:
            try:
                layout = await self._upstream.layout(source, refresh=True)
            except UnknownTopicError:
                raise LookupError(source) from None
            if self._changelog.view.shadow(name) is not None or await self._exists(name):
                raise NameTakenError(f"there is a topic {name} already")
            record = state.Shadow(
                source=source,
                source_topic_id=layout.topic_id.bytes,
                created_ms=int(time.time() * 1000),
                allow=allow,
                auto_reset_backlog_entries=auto_reset_backlog_entries,
            )
            await self._write(name, record)
            try:
                await self._make(name, len(layout.leaders))
            except KafkaError:
                await self._write(name, None)
                raise
            return await self._finish(name, record)

    def _check(self, source: str, name: str, allow: Sequence[str]) -> None:
        if not is_legal(name.encode()) or name in (".", ".."):
            raise BadShadowError(f"{name!r} is no name for a topic: 1 to 249 of a-z A-Z 0-9 . _ -")
        if name.startswith("__") or source.startswith("__"):
            raise BadShadowError("internal topics have no shadows, and are none")
        if name == source:
            raise BadShadowError(f"{name} cannot be a shadow of itself")
        if self._resolver.is_shadow(source.encode()):
            raise BadShadowError(f"{source} is a shadow: make one of its source")
        for principal in allow:
            if not principal.startswith("User:") or principal == "User:":
                raise BadShadowError(f"{principal!r} is no principal: User:NAME, or {_ANYBODY}")
        if _ANYBODY not in allow:
            raise BadShadowError(f"clients have no names in this version: allow {_ANYBODY}, or nobody could read it")

    async def _exists(self, name: str) -> bool:
        found = await self._upstream.metadata(MetadataRequest((name,), allow_auto_topic_creation=False))
        return any(topic.partitions for topic in found.topics if topic.name == name)

    async def _make(self, name: str, partitions: int) -> None:
        created = await self._upstream.call(None, CreateTopics((NewTopic(name, partitions, _DEFAULT),), _CALL_MS))
        outcome = created[name]
        if outcome.error == ErrorCode.TOPIC_ALREADY_EXISTS:
            await self._write(name, None)
            raise NameTakenError(f"there is a topic {name} already")
        if outcome.error:
            raise KafkaError(outcome.error, f"topic {name}: {outcome.message or 'Kafka refuses to create it'}")

    async def _finish(self, name: str, record: state.Shadow) -> Shadow:
        """Write down which topic bears the name, once Kafka tells."""
        async with asyncio.timeout(_CALL_MS / 1000):
            while True:
                try:
                    record.topic_id = (await self._upstream.layout(name, refresh=True)).topic_id.bytes
                except (UnknownTopicError, KafkaError):
                    await asyncio.sleep(_POLL_S)
                else:
                    break
        await self._write(name, record)
        await self.tell(name, f"of {record.source}")
        return _shadow(name, record)

    async def delete(self, name: str) -> None:
        """Delete a shadow with its cursors. Raises LookupError without one, and `FAILURES`."""
        async with self._changing:
            entry = self._changelog.view.shadow(name)
            if entry is None:
                raise LookupError(name)
            if entry.value.topic_id:
                await self._remove(name, entry.value)
            await self._write(name, None)
            await self.tell(name, "deleted")

    async def _remove(self, name: str, record: state.Shadow) -> None:
        """Delete the empty topic, unless it is another one by now."""
        try:
            layout = await self._upstream.layout(name, refresh=True)
        except UnknownTopicError:
            return
        if layout.topic_id != UUID(bytes=record.topic_id):
            return
        error = (await self._upstream.call(None, DeleteTopics((name,), _CALL_MS)))[name]
        if error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise KafkaError(error, f"topic {name}")

    async def _write(self, name: str, record: state.Shadow | None) -> None:
        offset = await self._changelog.append([Record(shadow_key(name), record)])
        await self._changelog.tailer.reached(offset, timeout=_SEEN_S)
        await self._members.seen_by_all(offset)

    async def tell(self, name: str, detail: str) -> None:
        """Add an event about a shadow to the history. Raises `FAILURES`."""
        event = state.Event(
            id=secrets.token_bytes(16), kind=state.Event.SHADOW, at_ms=int(time.time() * 1000), topic=name,
            node=self._nodes.me.id, detail=detail,
        )  # fmt: skip
        await self._changelog.add_event(event)

    # In step --------------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Give shadows the partitions that their sources have got, finish what was left half-way. Until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_S)
            for entry in list(self._changelog.view.shadows()):
                name = entry.key.topic
                if self._nodes.placement.of_topic(name.encode()) != self._nodes.me.id:
                    continue
                try:
                    async with self._changing:
                        await self._look_after(name)
                except FAILURES as error:
                    self._hooks.operation_failed(name, error)

    async def _look_after(self, name: str) -> None:
        entry = self._changelog.view.shadow(name)
        if entry is None:
            return
        record = entry.value
        if not record.topic_id:
            if time.time() * 1000 - record.created_ms > _LEFT_S * 1000:
                await self._write(name, None)  # a topic that was made for it is an empty one like any other
            return
        try:
            own = await self._upstream.layout(name, refresh=True)
        except UnknownTopicError:
            await self._write(name, None)  # deleted half-way, or behind the sidecar's back
            return
        try:
            source = await self._upstream.layout(record.source, refresh=True)
        except UnknownTopicError:
            return
        wanted = len(source.leaders)
        if source.topic_id == UUID(bytes=record.source_topic_id) and wanted > len(own.leaders):
            outcome = await self._upstream.call(None, CreatePartitions(name, wanted, _CALL_MS))
            if outcome.error:
                raise KafkaError(outcome.error, f"partitions of {name}: {outcome.message or 'refused'}")


def _source(record: state.Shadow) -> Source | None:
    return Source(record.source.encode(), UUID(bytes=record.source_topic_id)) if record.topic_id else None


def _shadow(name: str, record: state.Shadow) -> Shadow:
    return Shadow(
        name,
        record.source,
        tuple(record.allow),
        record.created_ms,
        bool(record.topic_id),
        record.auto_reset_backlog_entries,
    )
