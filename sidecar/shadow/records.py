"""The records of shadows in the ownership topic: written, changed, reported.

Each name has its own writer, as a policy has (`fencing/record_writer.py`). A change opens the next epoch, looks at the
record as it is then, and writes under that epoch: of two nodes that change one record at a time the slower one is
refused, and makes its change again on top of the other one's. Nothing of a dead node comes later. Records that nodes of
earlier versions wrote have no stamp; they count in the order of the log.
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
"""For one change with all its tries, where other nodes change the same shadow."""
SHADOW_SLOT: Final = SlotName("shadow")
"""Of the writer of a shadow's record."""


class Members(Protocol):
    """What is needed of the nodes around (`cluster.nodes.Membership`)."""

    async def seen_by_all(self, offset: int) -> None:
        """Returns once every live node has read the changelog up to there, or has let its lease run out."""


class OvertakenError(Exception):
    """Another node was faster."""


class ShadowRecords:
    """The records, written by one task of this node at a time: hold `changing` around whatever changes one."""

    def __init__(self, changelog: Changelog, writer: RecordWriter, nodes: NodeDirectory, members: Members) -> None:
        self.changing = asyncio.Lock()
        self._changelog = changelog
        self._writer = writer
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

    async def add(self, name: str, record: state.Shadow) -> None:
        """Write the first record of a name; every live node knows when this returns.

        Raises `OvertakenError` where somebody else has made a shadow of this name, TimeoutError where others write all
        the time, and as `RecordWriter.open` and `Journal.append`.
        """

        def first(now: state.Shadow | None) -> state.Shadow:
            if now is not None:
                raise OvertakenError(name)
            return record

        await self._replace(name, first)

    async def forget(self, name: str, record: state.Shadow) -> None:
        """Forget a shadow, unless another one of its name was made meanwhile; every live node knows when this returns.

        Errors as `add`.
        """
        await self._replace(name, lambda now: None if now is not None and _is_same(now, record) else now)

    async def change(self, name: str, edit: Callable[[state.Shadow], None]) -> state.Shadow:
        """Change a record as it is at the end of the log; every live node knows when this returns.

        `edit` is called with a copy, more than once where others write too. Raises LookupError without such a shadow,
        and as `add`.
        """

        def edited(now: state.Shadow | None) -> state.Shadow:
            if now is None:
                raise LookupError(name)
            found = state.Shadow()  # what the view holds is shared
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
        """Write what is decided on a record as it is when no other writer can change it any more; None: there is none.
        Again where another node began a change meanwhile. Every live node knows when this returns.
        """
        retry = Retry(f"change of the shadow {name}", _CHANGE_S)
        mine: set[Stamp] = set()
        while True:
            try:
                journal = await self._writer.open(name)
                entry = self.get(name)
                if entry is not None and entry.writer in mine:  # an earlier try got there in front of a rival's fence
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
        """Add an event. `identity`: 16 bytes, the same wherever the same thing is reported again."""
        event = state.Event(
            id=identity or secrets.token_bytes(16), kind=state.Event.SHADOW, at_ms=self.now_ms(),
            topic=name, node=self._nodes.me.id, detail=detail, details=details,
        )  # fmt: skip
        await self._changelog.add_event(event)


def _is_same(record: state.Shadow, other: state.Shadow) -> bool:
    """Whether two records are of one shadow, however it was changed."""
    return (record.topic_id, record.created_ms) == (other.topic_id, other.created_ms)
