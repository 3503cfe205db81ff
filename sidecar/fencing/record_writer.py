"""The fenced writer of a record that an administrator changes: a policy or a shadow. Opening its next epoch fences all
earlier writers, and returns once every change that they wrote has been read.

Kafka refuses a stale epoch as long as the ownership partition remembers a newer one (`producer.id.expiration.ms`), and
nothing keeps these fences alive. So a node writes under an epoch only for a short time. Time in which the machine is
suspended counts: a node that was suspended for a day sends no change that it decided on before.
"""

from typing import Final

from sidecar.changelog import Changelog, SlotName, StampedJournal
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.fencing.topic import fence_slot
from sidecar.protocol.caller import Upstream

_SEEN_S: Final = 5.0
_FRESH_S: Final = 15.0
"""How long a node may write under an epoch, in seconds: far less than brokers are set to remember a producer."""


class RecordWriter:
    """Opens the writers of records of one kind. `slot` distinguishes their transactional ids from a topic's slots."""

    def __init__(self, upstream: Upstream, cluster: str, changelog: Changelog, slot: SlotName) -> None:
        self._upstream = upstream
        self._cluster = cluster
        self._changelog = changelog
        self._slot = slot

    async def open(self, name: str) -> StampedJournal:
        """Opens the next epoch of a record's writer. On return every record of earlier epochs has been read, and Kafka
        refuses further ones. Errors as `WriterSlot.fence`, and TimeoutError. An append more than 15 s after the call
        raises `FencedError`.
        """
        changelog = self._changelog
        until = changelog.clock.elapsed() + _FRESH_S
        slot = WriterSlot(self._upstream, transactional_id(self._cluster, name, self._slot))
        await slot.open()
        await fence_slot(self._upstream, slot, changelog.fenced(), {})
        await changelog.tailer.seen(slot.stamp, timeout=_SEEN_S)
        return changelog.journal(slot.stamp, until=until)
