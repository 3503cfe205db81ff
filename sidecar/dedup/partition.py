"""The sequence ids of one partition on the node that serves it: its marks, the offset that its newest snapshot covers,
and the gates that wait for the marks. Also the interface of what the ids of every topic need from their node.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from metadata import MetadataStore
from sidecar.changelog import Changelog
from sidecar.cluster.logs import LogReader
from sidecar.dedup.cleaning import SNAPSHOT_LEAST_S, SNAPSHOT_S, Pace
from sidecar.dedup.content import Headers
from sidecar.dedup.marks import NAMES_LIMIT, Marks, UnderWay
from sidecar.dedup.names import NameHolders
from sidecar.dedup.snapshots import Saved
from sidecar.forwarder.outcome import Outcome
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import ErrorCode
from sidecar.telemetry.ownership_reports import OwnershipReports


class IdsServices(NamedTuple):
    """What the ids of every topic need from this node."""

    logs: LogReader
    changelog: Changelog
    store: MetadataStore
    tasks: Tasks
    hooks: OwnershipReports
    headers: Headers
    names_limit: int = NAMES_LIMIT

    def now(self) -> int:
        """Return Unix seconds by the brokers' clock, which all nodes share."""
        return self.changelog.clock.now_ms() // 1000


@dataclass(eq=False)
class PartitionIds:
    """The ids of one partition. `want_fence` requests a fence of the whole topic: only that settles a batch in doubt of
    a session that has ended. `problem` is the answer to batches while the ids cannot be known.
    """

    topic: str
    partition: int
    services: IdsServices
    names: NameHolders
    want_fence: Callable[[], None]

    def __post_init__(self) -> None:
        self.marks = Marks(self.services.names_limit)
        self.is_ready = False
        self.is_known = False
        """Whether this node has read the partition since it began to serve the topic."""
        self.problem: Outcome | None = None
        self.turn = -1
        """The last turn of the topic in which the partition was read after a fence of all slots."""
        self.batches = 0
        """The number of batches written since the last snapshot."""
        self.saved_up_to = -1
        """The offset up to which the newest snapshot covers the log; -1: there is no snapshot."""
        self.log_start = -1
        """The first offset of the log, as far as leaders said with their answers."""
        self.last_number = 0
        """The highest number that a snapshot ever had."""
        self.saved_at = self._went_on_at = time.monotonic()
        self.has_forgotten = False
        """Whether names were forgotten that the newest snapshot contains."""
        self._attempts = 0  # attempts to write a snapshot since the last one was written
        self.inherited = 0
        """The end offset of the log when this node took the topic over."""
        self.ends: dict[int, int] = {}
        """By producer id, the offset after its last batch, if the newest snapshot does not cover that."""
        self.fenced: set[int] = set()
        """Producer ids of fenced slots whose batches in flight are being read from the log."""
        self._waiting: set[Callable[[], None]] = set()

    def wait(self, pump: Callable[[], None]) -> bool:
        """Register a gate that has to wait: `pump` is called when something changes here. Returns False, for
        convenience.
        """
        self._waiting.add(pump)
        return False

    def refusal(self, names: Collection[bytes], session: str) -> Outcome | None:
        """Return why a session may not write under these names; None if it may, and then there is room for them."""
        rival = self.names.rival(names, session)
        if rival is not None:
            name = rival.name.decode(errors="replace")
            message = (
                f"producer name {name} is in use by another live session ({rival.session}): only one at a time may"
                " write sequence ids under a name: end that one, or take another name"
            )
            return Outcome(ErrorCode.POLICY_VIOLATION, message=message)
        evicted = self.marks.evicted
        has_room = self.marks.make_room(names, self.names.is_live)
        if self.marks.evicted > evicted:
            self.has_forgotten = True
            self.services.hooks.names_forgotten(self.topic, self.marks.evicted - evicted)
        if not has_room:
            message = (
                f"this partition knows {len(self.marks)} producer names, all of them in use: end a producer, or raise"
                " SIDECAR_PRODUCER_NAMES_LIMIT"
            )
            return Outcome(ErrorCode.POLICY_VIOLATION, message=message)
        return None

    def landed(self, batch: UnderWay, offset: int, records: int, log_start: int = -1) -> None:
        """As `Marks.landed`. `log_start`: the first offset of the log; -1: the leader did not say."""
        self.marks.landed(batch, offset, records, self.services.now())
        self.log_start = max(self.log_start, log_start)
        self.batches += 1
        if offset >= 0:
            self.ends[batch.producer_id] = offset + records
        if self._waiting:
            self.wake()

    def failed(self, batch: UnderWay, *, in_doubt: bool) -> None:
        """As `Marks.failed`."""
        self.marks.failed(batch, in_doubt=in_doubt)
        self.wake()

    def dropped(self, records: int) -> None:
        """Report that duplicates were acknowledged."""
        self.services.hooks.duplicates_dropped(self.topic, records)

    def undecided(self) -> None:
        """Report that a batch was refused with a retriable error."""
        self.services.hooks.ids_unknown(self.topic)

    def wake(self) -> None:
        """Call the gates that wait."""
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            loop = asyncio.get_running_loop()
            for pump in waiting:
                loop.call_soon(pump)

    def is_covered(self, producer_id: int) -> bool:
        """Whether the newest snapshot covers everything that was written under a producer id."""
        end = max(self.inherited, self.ends.get(producer_id, 0))
        return self.is_ready and self.marks.is_quiet(producer_id) and self.saved_up_to >= end

    def is_due(self, pace: Pace, *, is_urged: bool) -> bool:
        """Whether a snapshot is due. `is_urged`: a snapshot of every changed partition is wanted now."""
        age = time.monotonic() - self.saved_at
        if not self.is_ready or age < SNAPSHOT_LEAST_S:
            return False
        if self.marks.covered <= self.saved_up_to:
            return self.has_forgotten and age >= SNAPSHOT_S
        is_purged = self.log_start > max(0, self.saved_up_to)  # the next node could not read on from the last snapshot
        return is_purged or is_urged or self.batches >= pace.batches or age >= pace.seconds

    def may_go_on(self, pace: Pace) -> bool:
        """Whether the end of the log has to be requested again, once in `pace.seconds`."""
        return self.is_ready and time.monotonic() - self._went_on_at > pace.seconds

    def goes_on(self, pace: Pace) -> bool:
        """As `may_go_on`; notes that it is requested now."""
        if not self.may_go_on(pace):
            return False
        self._went_on_at = time.monotonic()
        return True

    def to_save(self, without: frozenset[bytes]) -> Saved:
        """Return the next snapshot, without some names, and count an attempt to write it."""
        # A new number for each attempt, so that chunks of two attempts are never combined. In steps of two, so that all
        # attempts use the same copy and the other copy stays whole.
        number = self.last_number + 1 + 2 * self._attempts
        self._attempts += 1
        self.batches, self.saved_at = 0, time.monotonic()
        marks = self.marks.copy(without)
        return Saved(marks.covered, number, marks)

    def was_saved(self, saved: Saved) -> None:
        """Record that a snapshot is in the log."""
        self.saved_up_to, self.last_number = saved.covered, saved.number
        self._attempts, self.has_forgotten = 0, False
        self.ends = {producer_id: end for producer_id, end in self.ends.items() if end > saved.covered}
