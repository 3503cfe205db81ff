"""The records of shadows in the ownership topic: written, changed, reported.

Each name has its own writer, as a policy has (`fencing/record_writer.py`). A change opens the next epoch, reads the
record, and writes under that epoch. If two nodes change one record at the same time, the slower one is refused and
repeats its change on the new record. A dead node's write cannot arrive later. Records of earlier versions have no
stamp; they are valid in log order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from sidecar.changelog import Changelog, Entry, Key, Kind, Record, SlotName
from sidecar.cluster.nodes import NodeDirectory
from sidecar.fencing.record_writer import RecordWriter
from sidecar.network.backoff import Retry
from sidecar.protocol.caller import FencedError
from sidecar.protocol.ids import Offset, Stamp
from sidecar.v1 import state_pb2 as state

_SEEN_S: Final = 5.0
_CHANGE_S: Final = 30.0
"""The time limit of one change with all its retries, if other nodes change the same shadow."""
SHADOW_SLOT: Final = SlotName("shadow")
"""The slot of the writer of a shadow's record."""


class Members(Protocol):
    """What is needed from the other nodes (`cluster.nodes.Membership`)."""

    async def seen_by_all(self, offset: int) -> None:
        """Wait until every live node has read the changelog up to `offset`, or its lease has expired."""


class OvertakenError(Exception):
    """Another node has created the shadow first."""


class ShadowRecords:
    """The records of shadows. One task of this node writes at a time: hold the lock `changing` around every change."""

    def __init__(self, changelog: Changelog, writer: RecordWriter, nodes: NodeDirectory, members: Members) -> None:
        self.changing = asyncio.Lock()
        self._changelog = changelog
        self._writer = writer
        self._nodes = nodes
        self._members = members

    def get(self, name: str) -> Entry[state.Shadow] | None:
        """Return the record of a shadow, from the part of the changelog that was read."""
        return self._changelog.view.shadow(name)

    def now_ms(self) -> int:
        """Return Unix milliseconds by the brokers' clock, the unit of `created_ms` in records."""
        return self._changelog.clock.now_ms()

    def all(self) -> list[Entry[state.Shadow]]:
        """Every record, in no order."""
        return list(self._changelog.view.shadows())

    async def add(self, name: str, record: state.Shadow) -> None:
        """Write the first record of a name; when this returns, every live node knows it.

        Raises `OvertakenError` if a shadow of this name exists, TimeoutError if other nodes keep writing, and the
        errors of `RecordWriter.open` and `Journal.append`.
        """

        def first(now: state.Shadow | None) -> state.Shadow:
            if now is not None:
                raise OvertakenError(name)
            return record

        await self._replace(name, first)

    async def forget(self, name: str, record: state.Shadow) -> None:
        """Delete the record of a shadow, unless a new shadow of its name was created; when this returns, every live
        node knows.

        Errors as `add`.
        """
        await self._replace(name, lambda now: None if now is not None and _is_same(now, record) else now)

    async def change(self, name: str, edit: Callable[[state.Shadow], None]) -> state.Shadow:
        """Change the newest record of a shadow; when this returns, every live node knows it.

        `edit` is called with a copy, several times if other nodes write too. Raises LookupError if there is no such
        shadow, and the errors of `add`.
        """

        def edited(now: state.Shadow | None) -> state.Shadow:
            if now is None:
                raise LookupError(name)
            found = state.Shadow()  # the view's records are shared
            found.CopyFrom(now)
            edit(found)
            return found

        await self._changelog.tailer.read_to_end(_SEEN_S)
        entry = self.get(name)
        if entry is not None and (known := edited(entry.value)) == entry.value:
            await self._members.seen_by_all(entry.offset)
            return known
        found = await self._replace(name, edited)
        assert found is not None
        return found

    async def _replace(
        self, name: str, decide: Callable[[state.Shadow | None], state.Shadow | None]
    ) -> state.Shadow | None:
        """Fence other writers, pass the newest record (None: there is none) to `decide`, and write its result. Repeated
        if another node began a change meanwhile. When this returns, every live node knows.
        """
        retry = Retry(f"change of the shadow {name}", _CHANGE_S)
        mine: set[Stamp] = set()
        while True:
            try:
                journal = await self._writer.open(name)
                entry = self.get(name)
                if entry is not None and entry.writer in mine:  # an earlier try was written before another node's fence
                    after, offset = entry.value, entry.offset
                else:
                    before = None if entry is None else entry.value
                    after, offset = decide(before), Offset(self._changelog.position - 1)
                    if after != before:
                        mine.add(journal.writer)
                        offset = await journal.append([Record(Key(Kind.SHADOW, name), after)])
                break
            except FencedError as error:
                await retry.pause(error)
        await self._changelog.tailer.reached(offset, timeout=_SEEN_S)
        await self._members.seen_by_all(offset)
        return after

    async def add_event(
        self, name: str, detail: str, details: state.EventDetails, identity: bytes | None = None
    ) -> None:
        """Add an event. `identity`: 16 bytes, the same if the same thing is reported again."""
        event = state.Event(
            id=identity or secrets.token_bytes(16), kind=state.Event.SHADOW, at_ms=self.now_ms(),
            topic=name, node=self._nodes.me.id, detail=detail, details=details,
        )  # fmt: skip
        await self._changelog.add_event(event)


def _is_same(record: state.Shadow, other: state.Shadow) -> bool:
    """Whether two records belong to one shadow, even if it was changed."""
    return (record.topic_id, record.created_ms) == (other.topic_id, other.created_ms)
