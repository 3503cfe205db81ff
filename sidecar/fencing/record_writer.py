"""The fenced writer of a record that an administrator changes: of a policy or a shadow. Opening its next epoch shuts
out all earlier writers, and returns once every change of theirs has been read.

Kafka refuses a stale epoch as long as the ownership partition remembers a newer one (`producer.id.expiration.ms`), and
nothing keeps these fences alive. So an epoch may be written under only for a short time, which a suspended machine's
sleep counts for: a node that was away for a day sends nothing of what it decided before.
"""

from typing import Final

from sidecar.changelog import Changelog, SlotName, StampedJournal
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.fencing.topic import fence_slot
from sidecar.protocol.caller import Upstream

_SEEN_S: Final = 5.0
_FRESH_S: Final = 15.0
"""How long an epoch may be written under: far less than any time for which brokers are set to remember a producer."""


class RecordWriter:
    """Opens the writers of records of one kind. `slot` stands beside the slots of a topic of the same name."""

    def __init__(self, upstream: Upstream, cluster: str, changelog: Changelog, slot: SlotName) -> None:
        self._upstream = upstream
        self._cluster = cluster
        self._changelog = changelog
        self._slot = slot

    async def open(self, name: str) -> StampedJournal:
        """The next epoch of a record's writer: every record of an earlier one that is in the log has been read, and no
        other gets there. Errors as `WriterSlot.fence`, and TimeoutError; what is appended later than after 15 s raises
        `FencedError`.
        """
        changelog = self._changelog
        until = changelog.clock.elapsed() + _FRESH_S
        slot = WriterSlot(self._upstream, transactional_id(self._cluster, name, self._slot))
        await slot.open()
        await fence_slot(self._upstream, slot, changelog.fenced(), {})
        await changelog.tailer.seen(slot.stamp, timeout=_SEEN_S)
        return changelog.journal(slot.stamp, until=until)
