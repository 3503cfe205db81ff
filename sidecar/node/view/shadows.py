"""Shadow topics, their cursors and their numbers as the HTTP side sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

from sidecar.changelog import FAILURES
from sidecar.node import port
from sidecar.node.parts import Parts, rooms_of
from sidecar.node.port import ConflictError, InvalidError, NotFoundError, UnavailableError
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError, no_topic
from sidecar.protocol.metadata import MetadataRequest, TopicState
from sidecar.shadow.catalog import (
    EVERYBODY,
    BadShadowError,
    HasShadowsError,
    NameTakenError,
    Shadow,
    ShadowCatalog,
    UnmadeError,
    nobody_reads,
)
from sidecar.shadow.cursor_room import CursorRoom, Numbers
from sidecar.shadow.cursors import ClosedError, Cursor, InUseError, OutOfLogError, Target

_AWAY = (UpstreamError, KafkaError, TimeoutError)
_REFUSED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_DELETION_DISABLED,
    }
)


class ShadowView:
    """Shadow topics of one node, and their cursors. All methods may raise `UnavailableError`."""

    def __init__(self, node: Parts) -> None:
        self._node = node

    def _catalog(self) -> ShadowCatalog:
        return rooms_of(self._node).shadows

    async def known(self, source: str | None = None) -> Sequence[port.Shadow]:
        """Return all shadows, or those of a topic, by name. Raises NotFoundError if there is no such topic."""
        catalog = self._catalog()
        if source is None:
            return [self._shown(found) for found in catalog.all()]
        found = catalog.of(source)
        if not found and not await self._ask([source]):
            raise NotFoundError(no_topic(source))
        return [self._shown(each) for each in found]

    async def page(self, source: str | None, after: str, most: int) -> tuple[Sequence[port.Shadow], bool]:
        """Return at most `most` shadows by name, after the name `after` ("": from the first), of a topic or (None) of
        all; and whether there are more. Raises NotFoundError if there is no such topic.
        """
        found, more = self._catalog().page(source, after, most)
        if not found and source is not None:
            await self.known(source)  # raises where there is no such topic
        return [self._shown(each) for each in found], more

    async def sources(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the shadows among these names, each with its source. Quick: no round trip."""
        view = rooms_of(self._node).changelog.view
        entries = {name: view.shadow(name) for name in names}
        return {name: entry.value.source for name, entry in entries.items() if entry is not None}

    async def readable(self, names: Sequence[str]) -> Mapping[str, bool]:
        """Return which of these names are topics or shadows; False for a shadow that is closed or not created yet."""
        sources = {name: self._node.resolver.source(name.encode()) for name in await self.sources(names)}
        asked = {name for name in names if name not in sources}
        asked.update(source.topic.decode() for source in sources.values() if source is not None)
        ids = {topic.name: topic.topic_id for topic in await self._ask(asked)}
        found = {name: True for name in names if name in ids}
        for name, source in sources.items():
            found[name] = source is not None and ids.get(source.topic.decode()) == source.topic_id
        return found

    async def create(
        self, source: str, name: str, allow: Sequence[str] | None, auto_reset_backlog_entries: int = 0
    ) -> port.Shadow:
        """Create a shadow, which every node then serves. `allow` None: every principal may read it.

        Raises NotFoundError if there is no such source, ConflictError if the name is in use, InvalidError for an
        illegal name or principal.
        """
        catalog = self._catalog()
        with _changing(name, missing=no_topic(source)):
            allowed = EVERYBODY if allow is None else allow
            return self._shown(await catalog.create(source, name, allowed, auto_reset_backlog_entries))

    async def delete(self, source: str, name: str) -> None:
        """Delete a shadow with its cursors; its source stays. Raises NotFoundError if there is none."""
        catalog, missing = self._catalog(), f"{source} has no shadow {name}"
        if all(found.name != name for found in catalog.of(source)):
            raise NotFoundError(missing)
        with _changing(name, missing):
            await catalog.delete(name)

    async def delete_topic(self, topic: str, *, force: bool) -> None:
        """Delete a topic that is no shadow; with `force` its shadows and their cursors first.

        Raises NotFoundError if there is neither the topic nor a shadow of it; ConflictError if it has shadows and
        `force` is False, if it is a shadow itself, or if Kafka refuses.
        """
        try:
            await self._catalog().delete_source(topic, force=force)
        except (BadShadowError, HasShadowsError) as error:
            raise ConflictError(str(error)) from None
        except LookupError:
            raise NotFoundError(f"there is no topic {topic}") from None
        except KafkaError as error:
            if error.code in _REFUSED:
                raise ConflictError(f"Kafka refuses to delete a topic: {error}") from None
            raise UnavailableError.unsettled(error, f"sidecar topic show {topic}") from None
        except FAILURES as error:
            raise UnavailableError.unsettled(error, f"sidecar topic show {topic}") from None

    async def change(
        self, name: str, allow: Sequence[str] | None, auto_reset_backlog_entries: int | None
    ) -> port.Shadow:
        """Change what is not None in a shadow; every node knows when this returns.

        Raises NotFoundError, ConflictError while it is being created, InvalidError for an illegal principal.
        """
        with _changing(name, missing=f"there is no shadow {name}"):
            return self._shown(await self._catalog().change(name, allow, auto_reset_backlog_entries))

    def _shown(self, found: Shadow) -> port.Shadow:
        warning = nobody_reads(found.allow, authenticated=self._node.settings.clients_authenticate)
        return port.Shadow(**asdict(found), warning=warning)

    async def _ask(self, topics: Iterable[str]) -> list[TopicState]:
        """Return those of these topics that exist."""
        names = tuple(sorted(topics))
        if not names:
            return []
        try:
            state = await self._node.upstream.metadata(MetadataRequest(names, allow_auto_topic_creation=False))
        except (UpstreamError, KafkaError) as error:
            raise UnavailableError(f"Kafka does not answer: {error}") from None
        return [topic for topic in state.topics if topic.partitions]

    # Cursors ------------------------------------------------------------------------------------------------------

    def _room_of(self, name: str) -> CursorRoom:
        room = rooms_of(self._node).cursors
        if not self._node.resolver.is_shadow(name.encode()):
            raise NotFoundError(f"there is no shadow {name}")
        return room

    async def cursors(self, name: str) -> Sequence[Cursor]:
        """Return all cursors of a shadow by group; at most a few seconds old.

        Raises NotFoundError if there is no such shadow, ConflictError if its source is gone.
        """
        room = self._room_of(name)
        try:
            return await room.cursors.of(name)
        except ClosedError as error:
            raise ConflictError(str(error)) from None
        except _AWAY as error:
            why = str(error) or "Kafka does not answer in time"
            raise UnavailableError(f"the cursors of {name} cannot be read now: {why}") from None

    async def reset_cursor(self, name: str, group: str, to: Target, partitions: Collection[int] | None) -> Cursor:
        """Move a group's cursor, in all partitions (None) or some; create it if there is none.

        Raises what `cursors` raises, ConflictError while the group has members, InvalidError for offsets or partitions
        outside the log.
        """
        room = self._room_of(name)
        try:
            return await room.cursors.move(name, group, to, partitions)
        except (ClosedError, InUseError) as error:
            raise ConflictError(str(error)) from None
        except OutOfLogError as error:
            raise InvalidError(str(error)) from None
        except _AWAY as error:
            raise UnavailableError.unsettled(error, f"sidecar cursor list {name}") from None

    async def stats(self, name: str) -> Numbers:
        """Return the numbers of a shadow, empty ones if it does not exist. Takes a few seconds at most. Readers, bytes
        and resets are this node's since its start; groups and lags are the cluster's.
        """
        return await rooms_of(self._node).cursors.statistics.of(name)

    async def stats_of(self, names: Sequence[str]) -> dict[str, Numbers]:
        """Return the numbers of several shadows, collected concurrently."""
        return dict(zip(names, await asyncio.gather(*map(self.stats, names)), strict=True))


@contextmanager
def _changing(name: str, missing: str) -> Iterator[None]:
    """Translate the errors of a shadow's change into those of the HTTP side. `missing`: the NotFoundError's message."""
    try:
        yield
    except BadShadowError as error:
        raise InvalidError(str(error)) from None
    except (NameTakenError, UnmadeError) as error:
        raise ConflictError(str(error)) from None
    except LookupError:
        raise NotFoundError(missing) from None
    except FAILURES as error:
        raise UnavailableError.unsettled(error, f"sidecar shadow show {name}") from None
