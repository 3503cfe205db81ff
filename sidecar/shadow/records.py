"""The records of shadows in the ownership topic: writes, compare-and-change, notifications.

The log has no compare-and-set: two nodes may write one record at a time. So each change is read back: if
another node wrote in between, the change is applied again to its record. A shadow that was deleted meanwhile stays
deleted.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.changelog import Change, Key, Kind, Record
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.changelog import Changelog, Entry
    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.protocol.ids import Offset

_SEEN_S: Final = 5.0
_TRIES: Final = 10


class Members(Protocol):
    """What is needed of the nodes around (`cluster.membership`)."""

    async def seen_by_all(self, offset: int) -> None:
        """Returns once every live node has read the changelog up to there, or has let its lease run out."""


class OvertakenError(Exception):
    """Another node was faster."""


class ShadowRecords:
    """The records, written by one task of this node at a time: hold `changing` around whatever changes one."""

    def __init__(self, changelog: Changelog, nodes: NodeDirectory, members: Members) -> None:
        self.changing = asyncio.Lock()
        self._changelog = changelog
        self._nodes = nodes
        self._members = members

    def get(self, name: str) -> Entry[state.Shadow] | None:
        """The record of a shadow, as far as it was read."""
        return self._changelog.view.shadow(name)

    def now_ms(self) -> int:
        """Unix milliseconds by the brokers' clock, in which records say when a shadow was made."""
        return self._changelog.clock.now_ms()

    def all(self) -> list[Entry[state.Shadow]]:
        """Every record, in no order."""
        return list(self._changelog.view.shadows())

    async def write(self, name: str, record: state.Shadow | None) -> None:
        """Replace a record, or forget it; every live node knows when this returns. Errors as `Changelog.append`."""
        await self._members.seen_by_all(await self._append(name, record))

    async def add(self, name: str, record: state.Shadow) -> None:
        """Write the first record of a name; every live node knows when this returns.

        Raises OvertakenError where somebody else has made a shadow of this name, be it in the same moment: who stands
        first in the log has it. Errors besides as `write`.
        """
        with self._listening(name) as heard:
            await self._changelog.tailer.read_to_end(_SEEN_S)
            heard.clear()
            if self.get(name) is not None:
                raise OvertakenError(name)
            offset = await self._append(name, record)
            first = _last_before(heard, offset)
            if first is not None and first.after is not None:
                if (now := self.get(name)) is not None and now.offset == offset:
                    await self._put_back(name, first.after.value, heard)
                raise OvertakenError(name)
        await self._members.seen_by_all(offset)

    async def forget(self, name: str, record: state.Shadow) -> None:
        """Forget a shadow, unless another one of its name was made meanwhile; every live node knows when this returns.

        Errors as `write`.
        """
        with self._listening(name) as heard:
            await self._changelog.tailer.read_to_end(_SEEN_S)
            entry = self.get(name)
            if entry is None or not _is_same(entry.value, record):
                return
            heard.clear()
            offset = await self._append(name, None)
            other = _taken_by(heard, offset)
            if other is not None and not _is_same(other, record) and self.get(name) is None:
                heard.clear()
                await self._put_back(name, other, heard)
        await self._members.seen_by_all(offset)

    async def _put_back(self, name: str, record: state.Shadow, heard: list[Change]) -> None:
        """Write again what this node has written over, unless it was changed or deleted meanwhile."""
        with suppress(LookupError):
            await self._write_over(name, record, lambda _: None, heard)

    @contextmanager
    def _listening(self, name: str) -> Iterator[list[Change]]:
        """A list that grows with what is written about a shadow."""
        heard: list[Change] = []
        stop = self._changelog.tailer.subscribe(heard.append, Key(Kind.SHADOW, name))
        try:
            yield heard
        finally:
            stop()

    async def change(self, name: str, edit: Callable[[state.Shadow], None]) -> state.Shadow:
        """Change a record as it is at the end of the log; every live node knows when this returns.

        `edit` is called with a copy, more than once where others write too. Raises LookupError without such a shadow,
        TimeoutError where others write all the time, and as `write`.
        """
        await self._changelog.tailer.read_to_end(_SEEN_S)
        with self._listening(name) as heard:
            entry = self.get(name)
            if entry is None:
                raise LookupError(name)
            record, offset = _edited(entry.value, edit), entry.offset
            if record != entry.value:
                record, offset = await self._write_over(name, record, edit, heard)
        await self._members.seen_by_all(offset)
        return record

    async def _write_over(
        self, name: str, record: state.Shadow, edit: Callable[[state.Shadow], None], heard: list[Change]
    ) -> tuple[state.Shadow, Offset]:
        """Write until nobody else's record lies between the one that was edited and its successor. `heard` grows with
        the log.
        """
        for _ in range(_TRIES):
            offset = await self._append(name, record)
            rival = _last_before(heard, offset)
            if rival is None:
                return record, offset
            if rival.after is None:
                await self.write(name, None)
                raise LookupError(name)
            merged = _edited(rival.after.value, edit)
            if merged == record:
                return record, offset
            record = merged
        raise TimeoutError(f"the shadow {name} keeps being changed by others; try again")

    async def _append(self, name: str, record: state.Shadow | None) -> Offset:
        offset = await self._changelog.append([Record(Key(Kind.SHADOW, name), record)])
        await self._changelog.tailer.reached(offset, timeout=_SEEN_S)
        return offset

    async def add_event(
        self, name: str, detail: str, details: state.EventDetails, identity: bytes | None = None
    ) -> None:
        """Add an event. `identity`: 16 bytes, the same wherever the same thing is reported again."""
        event = state.Event(
            id=identity or secrets.token_bytes(16), kind=state.Event.SHADOW, at_ms=self.now_ms(),
            topic=name, node=self._nodes.me.id, detail=detail, details=details,
        )  # fmt: skip
        await self._changelog.add_event(event)


def _edited(record: state.Shadow, edit: Callable[[state.Shadow], None]) -> state.Shadow:
    """A copy: what the view holds is shared."""
    found = state.Shadow()
    found.CopyFrom(record)
    edit(found)
    return found


def _last_before(heard: list[Change], offset: Offset) -> Change | None:
    """The last change in front of the one at an offset; takes both, and what is older, off the list."""
    mine = next((at for at, change in enumerate(heard) if change.after and change.after.offset == offset), len(heard))
    found = heard[mine - 1] if mine else None
    del heard[: mine + 1]
    return found


def _taken_by(heard: list[Change], offset: Offset) -> state.Shadow | None:
    """The record that a deletion at an offset took, if that was written while the deletion was under way."""
    taken = [at for at, change in enumerate(heard) if change.after is not None and change.after.offset < offset]
    if not taken:
        return None
    entry, behind = heard[taken[-1]].after, heard[taken[-1] + 1 :]
    deletions = sum(change.after is None for change in behind)
    return entry.value if entry is not None and deletions == 1 else None


def _is_same(record: state.Shadow, other: state.Shadow) -> bool:
    """Whether two records are of one shadow, however it was changed."""
    return (record.topic_id, record.created_ms) == (other.topic_id, other.created_ms)
