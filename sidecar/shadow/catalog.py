"""Creates, changes and deletes the shadows of a cluster of nodes (PIP-180).

A shadow is a record in the ownership topic and an empty topic of Kafka. The record comes first and every live node
knows it before the topic is there, so that no node accepts a write to it. On deletion the topic is deleted first,
and then the record. A node that dies in between leaves one without the other; the node that is responsible for the name
finishes (`keeper`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter
from typing import Final
from uuid import UUID

from sidecar.changelog import Change, Changelog, Kind
from sidecar.cluster.resolver import ANONYMOUS, ANYBODY, NameResolver, Source, is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.caller import UnknownTopicError
from sidecar.protocol.calls.admin import CreateTopics, DeleteTopic, NewTopic
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name
from sidecar.protocol.metadata import MetadataRequest
from sidecar.shadow.records import OvertakenError, ShadowRecords
from sidecar.v1 import state_pb2 as state

_POLL_S: Final = 0.05
_CALL_MS: Final = 15_000
_TRIES: Final = 10
_ALLOW_SHOWN: Final = 1_000
"""Characters of an allow list in an event."""
_REFUSED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""With these errors no topic was created, and a retry would fail too."""
BACKLOG_LIMIT: Final = 2**63 - 1
EVERYBODY: Final = (ANYBODY,)
ENTRIES: Final = 1_000
"""The maximum number of principals in one allow list."""
PRINCIPAL_BYTES: Final = 255
"""The maximum length of a principal in UTF-8, so that a full list fits into one record of the ownership topic."""
_TYPE: Final = "User:"


class NameTakenError(Exception):
    """A topic or a shadow of this name exists already."""


class BadShadowError(ValueError):
    """The shadow cannot exist; the message gives the reason."""


class HasShadowsError(Exception):
    """The topic has shadows: the message names them."""


class UnmadeError(Exception):
    """The creation of the shadow is not finished: it cannot be changed now."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A shadow as recorded in the changelog. `is_made` False: its topic does not exist yet.
    `auto_reset_backlog_entries`: 0 for never. `closed`: why it cannot be read, empty if it can.
    """

    name: str
    source: str
    allow: tuple[str, ...]
    created_ms: int
    is_made: bool
    auto_reset_backlog_entries: int = 0
    closed: str = ""


@dataclass(eq=False)
class ShadowCatalog:
    """The shadows; passes every change to the resolver."""

    _upstream: KafkaUpstream
    _changelog: Changelog
    _resolver: NameResolver
    _records: ShadowRecords
    _of: dict[str, list[Shadow]] = field(default_factory=dict[str, list[Shadow]])
    _unsubscribe: Callable[[], None] = lambda: None
    changed: Callable[[Sequence[Shadow]], None] = lambda shadows: None
    """Called with all shadows whenever one of them changes."""

    def start(self) -> None:
        """Load the shadows from the changelog, which has been read to its end."""
        self._unsubscribe = self._changelog.tailer.subscribe(self._apply, Kind.SHADOW)
        self._apply()

    def close(self) -> None:
        """Stop following the changelog."""
        self._unsubscribe()

    def _apply(self, _: Change | None = None) -> None:
        self._resolver.set_shadows({entry.key.topic.encode(): _source(entry.value) for entry in self._records.all()})
        every, self._of = self.all(), {}
        for shadow in every:
            self._of.setdefault(shadow.source, []).append(shadow)
        self.changed(every)

    # What is there --------------------------------------------------------------------------------------------------

    def of(self, source: str) -> Sequence[Shadow]:
        """Return the shadows of a topic, sorted by name. Indexed, because lists of topics call this for every topic."""
        return self._of.get(source, ())

    def all(self) -> list[Shadow]:
        """Every shadow, by name."""
        found = [_shadow(entry.key.topic, entry.value) for entry in self._records.all()]
        return sorted(found, key=lambda shadow: shadow.name)

    def page(self, source: str | None, after: str, most: int) -> tuple[list[Shadow], bool]:
        """`most` shadows by name, after the name `after`, of a topic or (None) of all; and whether there are more."""
        wanted = (
            (entry.key.topic, entry.value)
            for entry in self._records.all()
            if entry.key.topic > after and source in (None, entry.value.source)
        )
        found = nsmallest(most + 1, wanted, key=itemgetter(0))
        return [_shadow(name, value) for name, value in found[:most]], len(found) > most

    @property
    def closed(self) -> int:
        """How many shadows cannot be read."""
        return sum(bool(entry.value.closed) for entry in self._records.all())

    # Changes --------------------------------------------------------------------------------------------------------

    async def create(
        self, source: str, name: str, allow: Sequence[str] = EVERYBODY, auto_reset_backlog_entries: int = 0
    ) -> Shadow:
        """Create a shadow; when this returns, every node serves it.

        A cursor that is more than `auto_reset_backlog_entries` records behind is reset to the end; 0: never. Raises
        `BadShadowError`, LookupError if the source does not exist, `NameTakenError`, and `changelog.FAILURES`.
        """
        self._check(source, name)
        principals = checked(allow)
        async with self._records.changing:
            self._check(source, name)  # meanwhile the source may have become a shadow
            try:
                layout = await self._upstream.whole_layout(source)
            except UnknownTopicError:
                raise LookupError(source) from None
            if self._records.get(name) is not None or await self._exists(name):
                raise NameTakenError(self._taken(name))
            record = state.Shadow(
                source=source,
                source_topic_id=layout.topic_id.bytes,
                created_ms=self._changelog.clock.now_ms(),
                allow=principals,
                auto_reset_backlog_entries=auto_reset_backlog_entries,
            )
            try:
                await self._records.add(name, record)
            except OvertakenError:
                raise NameTakenError(self._taken(name)) from None
            try:
                await self._make(name, len(layout.leaders))
            except (NameTakenError, BadShadowError, KafkaError):
                await self._records.forget(name, record)
                raise
            return await self._finish(name, record)

    def _check(self, source: str, name: str) -> None:
        if not is_legal(name.encode()) or name in (".", ".."):
            raise BadShadowError(f"{name!r} is no name for a topic: 1 to 249 of a-z A-Z 0-9 . _ -")
        if name.startswith("__"):
            raise BadShadowError(f"{name} would be an internal topic's name: choose one that does not begin with __")
        if source.startswith("__"):
            raise BadShadowError(f"{source} is an internal topic and cannot have shadows")
        if name == source:
            raise NameTakenError(f"there is a topic {name} already: choose another name for its shadow")
        if self._resolver.is_shadow(source.encode()):
            raise BadShadowError(f"{source} is a shadow: create one of its source instead")

    def _taken(self, name: str) -> str:
        source = self._resolver.source(name.encode())
        if source is None:
            return f"there is a topic {name} already"
        return f"{name} is a shadow of {source.topic.decode()} already: see `sidecar shadow show {name}`"

    async def _exists(self, name: str) -> bool:
        found = await self._upstream.metadata(MetadataRequest((name,), allow_auto_topic_creation=False))
        return any(topic.partitions for topic in found.topics if topic.name == name)

    async def _make(self, name: str, partitions: int) -> None:
        wanted = CreateTopics((NewTopic(name, partitions),), _CALL_MS)
        created = await self._upstream.call(self._upstream.controller(), wanted)
        outcome = created[name]
        if outcome.error == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise NameTakenError(f"there is a topic {name} already")
        if outcome.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
            # The name is legal, so it collides with one that has . in the place of _
            raise NameTakenError(f"there is a topic of nearly the name {name} already: {outcome.message}")
        if outcome.error in _REFUSED:
            raise BadShadowError(f"Kafka refuses a topic {name}: {error_name(outcome.error)}: {outcome.message}")
        if outcome.error:
            raise KafkaError(outcome.error, f"topic {name}: {outcome.message or 'Kafka refuses to create it'}")

    async def _finish(self, name: str, record: state.Shadow) -> Shadow:
        """Record the id of the shadow's own topic, once Kafka answers."""
        async with asyncio.timeout(_CALL_MS / 1000):
            while True:
                try:
                    record.topic_id = (await self._upstream.whole_layout(name)).topic_id.bytes
                except (UnknownTopicError, KafkaError):
                    await asyncio.sleep(_POLL_S)
                else:
                    break
        topic_id = record.topic_id

        def finish(found: state.Shadow) -> None:
            if found.created_ms != record.created_ms or found.topic_id not in (b"", topic_id):
                raise LookupError(name)
            found.topic_id = topic_id

        try:
            made = await self._records.change(name, finish)
        except LookupError:  # it took too long, and the keeper deleted the record (`keeper`)
            raise TimeoutError(f"the shadow {name} was given up: delete the topic {name}, and try again") from None
        await self._records.add_event(name, f"of {made.source}", _as_details(made))
        return _shadow(name, made)

    async def change(
        self, name: str, allow: Sequence[str] | None = None, auto_reset_backlog_entries: int | None = None
    ) -> Shadow:
        """Change the settings that are not None; when this returns, every live node knows.

        Raises `BadShadowError`, LookupError if there is no such shadow, `UnmadeError`, and `changelog.FAILURES`.
        """
        principals = None if allow is None else checked(allow)
        limit = auto_reset_backlog_entries
        if limit is not None and not 0 <= limit <= BACKLOG_LIMIT:
            raise BadShadowError(f"auto_reset_backlog_entries has to be 0 (never) to {BACKLOG_LIMIT}, not {limit}")

        def edit(record: state.Shadow) -> None:
            if not record.topic_id:
                raise UnmadeError(f"{name} is being created: try again in a moment")
            if principals is not None:
                record.allow[:] = principals
            if limit is not None:
                record.auto_reset_backlog_entries = limit

        async with self._records.changing:
            record = await self._records.change(name, edit)
            readers = ", ".join(record.allow) or "nobody"
            reset = record.auto_reset_backlog_entries
            limits = f"; cursors more than {reset} records behind are reset" if reset else ""
            await self._records.add_event(name, f"readers: {readers[:_ALLOW_SHOWN]}{limits}", _as_details(record))
        return _shadow(name, record)

    async def delete(self, name: str) -> None:
        """Delete a shadow with its cursors. Raises LookupError if there is none, and `changelog.FAILURES`."""
        async with self._records.changing:
            entry = self._records.get(name)
            if entry is None:
                raise LookupError(name)
            if entry.value.topic_id:
                await self._delete_topic(name, UUID(bytes=entry.value.topic_id))
            await self._records.forget(name, entry.value)
            await self._records.add_event(name, "deleted", state.EventDetails(deleted=True))

    async def _delete_topic(self, name: str, topic_id: UUID) -> bool:
        """Returns False if there is no such topic. A topic of the same name with another id is not deleted."""
        error = await self._upstream.call(self._upstream.controller(), DeleteTopic(topic_id, _CALL_MS))
        self._upstream.view.forget([name.encode()])
        if error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise KafkaError(error, f"topic {name}")
        return error == ErrorCode.NONE

    async def delete_source(self, source: str, *, force: bool) -> None:
        """Delete a topic; with `force` its shadows first. After an interruption, call it again.

        Raises `BadShadowError` if the topic is itself a shadow, `HasShadowsError`, LookupError if there is neither a
        topic nor a shadow, and `changelog.FAILURES`.
        """
        if self._resolver.is_shadow(source.encode()):
            raise BadShadowError(f"{source} is a shadow: delete it by `sidecar shadow delete {source}`")
        await self._changelog.tailer.read_to_end(_CALL_MS / 1000)
        had_shadows = False
        for _ in range(_TRIES):
            names = [shadow.name for shadow in self.of(source)]
            if not names:
                break
            if not force:
                raise HasShadowsError(f"{source} has shadows, delete those first or force it: {', '.join(names)}")
            had_shadows = True
            for name in names:
                with suppress(LookupError):
                    await self.delete(name)
        else:
            raise TimeoutError(f"{source} keeps getting new shadows; try again")
        try:
            layout = await self._upstream.whole_layout(source)
            is_deleted = await self._delete_topic(source, layout.topic_id)
        except UnknownTopicError:
            is_deleted = False
        if not is_deleted and not had_shadows:
            raise LookupError(source)


def _source(record: state.Shadow) -> Source | None:
    if not record.topic_id:
        return None
    return Source(
        record.source.encode(), UUID(bytes=record.source_topic_id), frozenset(record.allow), bool(record.closed)
    )


def _shadow(name: str, record: state.Shadow) -> Shadow:
    return Shadow(
        name,
        record.source,
        tuple(record.allow),
        record.created_ms,
        bool(record.topic_id),
        record.auto_reset_backlog_entries,
        record.closed,
    )


def _as_details(record: state.Shadow) -> state.EventDetails:
    """Return a shadow for an event. A long allow list is left out: it may have hundreds of kilobytes."""
    found = state.EventDetails(shadow=record)
    if sum(map(len, record.allow)) > _ALLOW_SHOWN:
        found.long_allow = True
        del found.shadow.allow[:]
    return found


def checked(allow: Sequence[str]) -> tuple[str, ...]:
    """Check a list of principals in Kafka's form (KIP-11), and remove duplicates. An empty list means nobody. Raises
    `BadShadowError`.
    """
    if len(allow) > ENTRIES:
        raise BadShadowError(
            f"allow has {len(allow)} entries, {ENTRIES} are the most: allow a principal that stands for more"
        )
    for principal in allow:
        if not principal.startswith(_TYPE) or principal == _TYPE:
            raise BadShadowError(f"{principal[:100]!r} is no principal: User:NAME, or {ANYBODY}")
        if not principal.isprintable():
            raise BadShadowError(f"{principal[:100]!r} is no principal: a name holds printable characters")
        if len(principal.encode()) > PRINCIPAL_BYTES:
            raise BadShadowError(f"{principal[:40]!r}… is too long: {PRINCIPAL_BYTES} bytes of UTF-8 are the most")
    return tuple(dict.fromkeys(allow))


def nobody_reads(allow: Sequence[str], *, authenticated: bool) -> str | None:
    """Return why no client that can connect may read; None if some may. `authenticated`: whether a listener
    authenticates its clients.
    """
    if not allow:
        return f"nobody can read it: its list is empty: allow {ANYBODY}, or some"
    if authenticated or ANYBODY in allow or ANONYMOUS in allow:
        return None
    return f"nobody can read it: no listener of this node asks clients who they are: allow {ANONYMOUS} or {ANYBODY}"
