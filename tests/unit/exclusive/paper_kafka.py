"""A partition of Kafka on one page, as far as producers notice it: the log, and what is checked before an append.

KIP-98 as brokers 3.9 to 4.3 do it (tests/kafka/fencing and exclusive show each rule on a real one): an unknown
producer id may begin anywhere; a lower epoch is refused (47), a higher one begins at 0, within one each batch follows
the last (45); the last five are recognised, by their first and last sequence, and answered with their offset; a marker
of a higher epoch, or of the same, ends nothing but lower epochs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MODULUS = 2**31
OUT_OF_ORDER, STALE = 45, 47


@dataclass(frozen=True)
class Batch:
    """What lies in the log: a batch of records, or a marker (no records)."""

    producer_id: int
    epoch: int
    first: int
    values: tuple[int, ...]
    offset: int

    @property
    def last(self) -> int:
        return (self.first + len(self.values) - 1) % MODULUS


@dataclass
class Producer:
    """What a partition remembers of one producer id."""

    epoch: int
    recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=5))


class Partition:
    """One log and its producers. All appends are by the leader and replicated at once."""

    def __init__(self) -> None:
        self.log: list[Batch] = []
        self.end = 0
        self._producers: dict[int, Producer] = {}

    def append(self, producer_id: int, epoch: int, first: int, values: tuple[int, ...]) -> tuple[int, int]:
        """(error, offset)."""
        known = self._producers.get(producer_id)
        batch = Batch(producer_id, epoch, first, values, self.end)
        if known is not None:
            if epoch < known.epoch:
                return STALE, -1
            if epoch == known.epoch:
                for recent in known.recent:
                    if (recent.first, recent.last) == (batch.first, batch.last):
                        return 0, recent.offset
            expected = (known.recent[-1].last + 1) % MODULUS if known.recent and epoch == known.epoch else 0
            if first != expected:
                return OUT_OF_ORDER, -1
        if known is None or epoch > known.epoch:
            known = self._producers[producer_id] = Producer(epoch)
        known.recent.append(batch)
        self.log.append(batch)
        self.end += len(values)
        return 0, batch.offset

    def mark(self, producer_id: int, epoch: int) -> None:
        """The empty aborted transaction of a fence."""
        known = self._producers.get(producer_id)
        if known is None or epoch > known.epoch:
            self._producers[producer_id] = Producer(epoch)
        assert self._producers[producer_id].epoch == epoch, "the coordinator never hands out a lower epoch"
        self.log.append(Batch(producer_id, epoch, -1, (), self.end))
        self.end += 1

    def wrote(self, producer_id: int, epoch: int, last: int) -> None:
        """Long ago: a batch of one record of somebody else's that ended at this sequence."""
        self._producers[producer_id] = Producer(epoch)
        self._producers[producer_id].recent.append(Batch(producer_id, epoch, last, (-1,), self.end))
        self.log.append(self._producers[producer_id].recent[0])
        self.end += 1

    def remembered(self) -> dict[int, tuple[int, int]]:
        """The epoch and the last sequence of each producer id, -1 where only a marker has this epoch."""
        return {
            producer_id: (known.epoch, known.recent[-1].last if known.recent else -1)
            for producer_id, known in self._producers.items()
        }

    @property
    def values(self) -> list[int]:
        """Every record, in the order of the log."""
        return [value for batch in self.log for value in batch.values]

    def at(self, offset: int) -> tuple[int, ...]:
        """The values of the batch at an offset."""
        return next(batch.values for batch in self.log if batch.offset == offset and batch.values)

    def last_stamped(self, producer_id: int, epoch: int) -> int | None:
        """The last sequence under a stamp, None where nothing is."""
        stamp = producer_id, epoch
        stamped = [found.last for found in self.log if found.values and (found.producer_id, found.epoch) == stamp]
        return stamped[-1] if stamped else None
