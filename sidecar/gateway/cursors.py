"""OffsetFetch (1-7) of shadows whose cursors are reset when they fall behind: the coordinator's answer, with the
end of the log in place of the committed offset (PIP-180; `sidecar.shadow.auto_reset`).

Of a request only the topic names are read, and nothing if the cluster has no such shadow. A request without topics asks
for all of them, so its answer is read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sidecar.gateway import asking
from sidecar.network.slices import in_slices
from sidecar.protocol import limits
from sidecar.protocol.messages.groups import OFFSET_FETCH
from sidecar.protocol.primitives import RequestReader

if TYPE_CHECKING:
    from sidecar.network.framing import Frame
    from sidecar.network.request import Request
    from sidecar.protocol.schema import Values
    from sidecar.shadow.auto_reset import AutoReset

_UNKNOWN_EPOCH: Final = -1
_FLEXIBLE_FROM: Final = 6
_PARTITION_BYTES: Final = 4


class FetchedCursors:
    """Changes answers to OffsetFetch."""

    def __init__(self, shadows: AutoReset) -> None:
        self._shadows = shadows

    def concerns(self, request: Request) -> bool:
        """Whether a request may ask for a cursor that might be reset. Raises `MalformedFrameError`."""
        backlogs = self._shadows.limits
        if not backlogs or request.key != OFFSET_FETCH.key:
            return False
        flexible = request.version >= _FLEXIBLE_FROM
        reader = RequestReader(request.frame.buffer, request.body, request.frame.end, limits.elements(request.key))
        reader.tags(flexible)
        reader.text(flexible)
        count = reader.nullable_array(flexible, element_bytes=3)
        found = count < 0
        for _ in range(count):
            found = found or reader.text(flexible) in backlogs
            if found:
                return True
            reader.skip(reader.array(flexible, element_bytes=_PARTITION_BYTES) * _PARTITION_BYTES)
            reader.tags(flexible)
        return found

    async def changed(self, group: str, answer: Frame, request: Request) -> bytes | None:
        """The answer with the cursors that are to be reset; None where it stays as it is. Raises `BadAnswerError`."""
        values = await asking.read(OFFSET_FETCH, answer, request.version)
        topics = [topic for topic in values["topics"] if topic["name"] in self._shadows.limits]
        changes = await asyncio.gather(*(self._change(group, topic) for topic in topics))
        if not any(changes):
            return None
        return await in_slices(OFFSET_FETCH.answer_steps(request.version, request.correlation_id, values))

    async def _change(self, group: str, topic: Values) -> bool:
        partitions: list[Any] = topic["partitions"]
        committed = {
            found["partition_index"]: found["committed_offset"]
            for found in partitions
            if not found["error_code"] and found["committed_offset"] >= 0
        }
        ends = await self._shadows.reset(group, topic["name"], committed)
        for found in partitions:
            if (end := ends.get(found["partition_index"])) is not None:
                # The note belongs to what was committed, and so does its epoch.
                found |= {"committed_offset": end, "committed_leader_epoch": _UNKNOWN_EPOCH, "metadata": ""}
        return bool(ends)
