"""What one replica remembers of producer ids (`ProducerStateManager`, `ProducerAppendInfo`, `ProducerStateEntry`).

The rules are those of Kafka 4.1.1 (`ProducerStateManager`, `ProducerAppendInfo`). A leader checks what
clients and coordinators send; a follower, or a replica that reads its log again, takes everything in unchecked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.sim.kafka import errors
from tests.sim.kafka.batches import LAST_SEQUENCE, Batch
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.log import Aborted, Log

NO_EPOCH: Final = -1
_WINDOW: Final = 5
"""`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`."""


class Written(NamedTuple):
    """A batch in the window of a producer."""

    first_seq: int
    last_seq: int
    base: int
    last: int
    max_ts: int


class Entry:
    """`ProducerStateEntry`: one producer id at one partition."""

    __slots__ = ("coordinator_epoch", "epoch", "last_ts", "pid", "txn_start", "window")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.epoch = NO_EPOCH
        self.window: tuple[Written, ...] = ()
        self.last_ts = -1
        self.coordinator_epoch = -1
        self.txn_start = -1

    @property
    def last_seq(self) -> int:
        return self.window[-1].last_seq if self.window else -1

    def raise_to(self, epoch: int) -> None:
        """`maybeUpdateProducerEpoch` (PSE 97): another epoch forgets the window, the same one keeps it."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.window = ()

    def copy(self, *, last_only: bool) -> Entry:
        made = Entry(self.pid)
        made.epoch, made.last_ts, made.coordinator_epoch = self.epoch, self.last_ts, self.coordinator_epoch
        made.txn_start, made.window = self.txn_start, self.window[-1:] if last_only else self.window
        return made


class Producers:
    """`ProducerStateManager` of one replica."""

    __slots__ = ("entries", "ongoing", "snapshots", "unreplicated", "verifying")

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.ongoing: dict[int, int] = {}
        """First offset of each open transaction -> producer id."""
        self.unreplicated: list[tuple[int, int]] = []
        """(first offset, marker's offset) of transactions that ended above the high watermark."""
        self.snapshots: list[tuple[int, dict[int, Entry]]] = []
        """As they were when a segment was closed; only the last batch of each (PSM.readSnapshot 618)."""

        self.verifying: dict[int, tuple[int, int]] = {}
        """Epoch and lowest sequence of producers whose transaction was asked about and that have not written in it."""

    # What a leader checks ------------------------------------------------------------------------------------------

    def duplicate(self, batch: Batch) -> Written | None:
        """`findDuplicateBatch` (PSE 134): same epoch, same first and last sequence, among the last five."""
        entry = self.entries.get(batch.pid)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        for written in entry.window:
            if written.first_seq == batch.first_seq and written.last_seq == batch.last_seq:
                return written
        return None

    def verified_from(self, batch: Batch) -> None:
        """The coordinator is asked about this batch (`VerificationStateEntry`)."""
        epoch, lowest = self.verifying.get(batch.pid, (batch.producer_epoch, batch.first_seq))
        if batch.producer_epoch > epoch or (batch.producer_epoch == epoch and batch.first_seq < lowest):
            epoch, lowest = batch.producer_epoch, batch.first_seq
        self.verifying[batch.pid] = epoch, lowest

    def check_data(self, batch: Batch) -> None:
        """Whether a client's batch may be appended: epoch, sequence, state of a transaction (PAI 89-196)."""
        entry = self.entries.get(batch.pid)
        lowest = self.verifying.get(batch.pid, (0, batch.first_seq))[1]
        if batch.first_seq > lowest and (entry is None or batch.producer_epoch >= entry.epoch):
            raise RefusedError(errors.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{batch.pid}: {batch.first_seq} above {lowest}")
        if entry is None:
            return  # PAI 125-131/144: an unknown producer id may begin with any sequence
        if batch.producer_epoch < entry.epoch:
            raise RefusedError(
                errors.INVALID_PRODUCER_EPOCH, f"{batch.pid}: epoch {batch.producer_epoch} < {entry.epoch}"
            )
        first = batch.first_seq
        if batch.producer_epoch != entry.epoch:
            if first != 0 and entry.epoch != NO_EPOCH:
                raise RefusedError(errors.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{batch.pid}: new epoch with sequence {first}")
        elif not (entry.epoch == NO_EPOCH or _in_sequence(entry.last_seq, first)):
            raise RefusedError(errors.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{batch.pid}: {first} behind {entry.last_seq}")
        if entry.txn_start >= 0 and not batch.transactional:
            raise RefusedError(errors.INVALID_TXN_STATE, f"{batch.pid}: expected transactional write")

    def check_marker(self, batch: Batch) -> None:
        """Whether a coordinator's marker may be appended (PAI.appendEndTxnMarker 211, legacy epoch check)."""
        entry = self.entries.get(batch.pid)
        if entry is None:
            return
        if batch.producer_epoch < entry.epoch:
            raise RefusedError(errors.INVALID_PRODUCER_EPOCH, f"marker {batch.producer_epoch} < {entry.epoch}")
        if batch.coordinator_epoch < entry.coordinator_epoch:
            raise RefusedError(
                errors.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator {batch.coordinator_epoch} < {entry.coordinator_epoch}",
            )

    # What every replica does with an appended batch ----------------------------------------------------------------

    def appended(self, batch: Batch) -> Aborted | None:
        """Take an appended batch in. Returns the transaction that a marker aborted, if there was data in it."""
        if batch.pid < 0:
            return None
        if batch.transactional:  # data or a marker
            self.verifying.pop(batch.pid, None)
        if batch.control:
            return self._marked(batch) if batch.marker >= 0 else None  # PAI 163: an emptied marker says nothing
        entry = self.entries.get(batch.pid)
        if entry is None:
            entry = self.entries[batch.pid] = Entry(batch.pid)
        entry.raise_to(batch.producer_epoch)
        written = Written(batch.first_seq, batch.last_seq, batch.base, batch.last, batch.max_ts)
        entry.window = (
            (*entry.window[1 - _WINDOW :], written) if len(entry.window) >= _WINDOW else (*entry.window, written)
        )
        entry.last_ts = batch.max_ts
        if batch.transactional and entry.txn_start < 0:
            entry.txn_start = batch.base
            self.ongoing[batch.base] = batch.pid
        return None

    def _marked(self, batch: Batch) -> Aborted | None:
        """A marker: also for a producer id that nobody knew, which makes the fence entry (PSM.update 384)."""
        entry = self.entries.get(batch.pid)
        if entry is None:
            entry = self.entries[batch.pid] = Entry(batch.pid)
        entry.raise_to(batch.producer_epoch)
        entry.coordinator_epoch = batch.coordinator_epoch
        entry.last_ts = batch.max_ts
        first, entry.txn_start = entry.txn_start, -1
        if first < 0:
            return None
        self.ongoing.pop(first, None)
        self.unreplicated.append((first, batch.base))
        return Aborted(batch.pid, first, batch.base) if batch.marker == 0 else None

    # Reading -------------------------------------------------------------------------------------------------------

    def stable(self, high_watermark: int) -> int:
        """The last stable offset (`UnifiedLog.fetchLastStableOffsetMetadata`)."""
        if not self.ongoing and not self.unreplicated:
            return high_watermark
        self.unreplicated = [entry for entry in self.unreplicated if entry[1] >= high_watermark]
        first = [*self.ongoing, *(entry[0] for entry in self.unreplicated)]
        return min(high_watermark, *first) if first else high_watermark

    # Forgetting ----------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers by the time of their newest record, never in an open transaction (PSM.isProducerExpired)."""
        gone = [
            pid
            for pid, entry in self.entries.items()
            if entry.txn_start < 0 and now_ms - entry.last_ts >= expiration_ms
        ]
        for pid in gone:
            del self.entries[pid]
        return len(gone)

    def snapshot(self, offset: int) -> None:
        """Taken when a segment is closed at `offset`, and at a clean shutdown."""
        self.snapshots = [entry for entry in self.snapshots if entry[0] < offset]
        self.snapshots.append((offset, {pid: entry.copy(last_only=True) for pid, entry in self.entries.items()}))

    def restore(self, log: Log, now_ms: int, expiration_ms: int, *, loads: bool) -> None:
        """As after a restart (`loads`) or a truncation (`UnifiedLog.rebuildProducerState`): the newest snapshot in
        front of the log's end and behind its start, less what has expired (PSM 303), and then the log from there on.
        So what only records in front of the log's start said is gone.
        """
        was_empty = not loads and not self.entries and not self.unreplicated
        if loads:
            self._drop_strays(log.rolls)
        self.snapshots = [entry for entry in self.snapshots if log.start < entry[0] <= log.end]
        self.entries = {}
        self.ongoing.clear()
        self.unreplicated.clear()
        begin = log.start
        if self.snapshots:
            begin, kept = self.snapshots[-1]
            for pid, entry in kept.items():
                if entry.txn_start >= 0 or now_ms - entry.last_ts < expiration_ms:
                    self.entries[pid] = entry.copy(last_only=False)
                    if entry.txn_start >= 0:
                        self.ongoing[entry.txn_start] = pid
        if not was_empty:
            self._replay(log, begin)
        self._snapshot_anew(log.end, begin)

    def _replay(self, log: Log, begin: int) -> None:
        """The last two segments get snapshots as they begin."""
        bases = [base for base in log.rolls[-2:] if base > begin]
        for batch in log.batches[log.index_of(begin) :]:
            while bases and batch.base >= bases[0]:
                self._snapshot_anew(bases.pop(0), begin)
            self.appended(batch)

    def _snapshot_anew(self, offset: int, begin: int) -> None:
        """None where nothing came since the last one (`takeSnapshot`)."""
        if offset > max(begin, *(entry[0] for entry in self.snapshots), -1):
            self.snapshot(offset)

    def _drop_strays(self, bases: list[int]) -> None:
        """Snapshots of no segment, but for the newest: of a clean shutdown (`removeStraySnapshots`)."""
        newest = self.snapshots[-1:]
        self.snapshots = [entry for entry in self.snapshots if entry[0] in bases]
        if newest and newest[0][0] > bases[-1]:
            self.snapshots += newest

    def segments_deleted(self, bases: list[int]) -> None:
        """With a segment goes the snapshot of its beginning (`deleteProducerSnapshots`)."""
        if bases:
            self.snapshots = [entry for entry in self.snapshots if entry[0] not in bases]

    def forget(self) -> None:
        """`truncateFullyAndStartAt`."""
        self.entries.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self.snapshots.clear()


def _in_sequence(last: int, following: int) -> bool:
    """PAI.inSequence 152: sequences wrap behind 2^31 - 1."""
    return following == last + 1 or (following == 0 and last == LAST_SEQUENCE)
