"""Which sequence id a record bears, and where a producer stands: pure.

Ids count up by themselves until one is given; from then on each has to be (PIP-6). Per partition they rise: an id at
or below one that is in the log, or on its way there, would be swallowed as a duplicate though nobody ever wrote it.
What was there before this producer began does not count: an application that resumes may send everything again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sidecar.client.errors import SequenceError
from sidecar.protocol.errors import ErrorCode

NO_ID: Final = -1
HIGHEST: Final = 2**63 - 1


class Numbering:
    """The sequence ids of one producer of these partitions. `last` are the highest in the log by partition, None for a
    topic without deduplication: its records bear none. `initial` is the id of the first record that is given none.
    """

    def __init__(
        self, topic: str, last: Mapping[int, int] | None, partitions: Sequence[int], initial: int | None = None
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self._counts = last is not None
        self._last = dict(last or {})
        self._given = False
        self._sent: dict[int, list[int]] = {}
        """On their way, by partition; they rise."""
        self._done: dict[int, int] = {}
        """The highest that arrived, of those sent here."""
        if initial is not None:
            self._check(initial)
        self._next = self.last_id + 1 if initial is None else initial

    @property
    def counts(self) -> bool:
        """Whether records bear ids at all."""
        return self._counts

    @property
    def last_ids(self) -> dict[int, int]:
        """The highest id in the log, by partition; a partition without one is absent."""
        return dict(self._last)

    @property
    def last_id(self) -> int:
        """The least of them over the producer's partitions, `NO_ID` where any has none."""
        return min((self._last.get(index, NO_ID) for index in self.partitions), default=NO_ID)

    def last_of(self, partition: int) -> int:
        """The highest id in the log of a partition, `NO_ID` where there is none."""
        return self._last.get(partition, NO_ID)

    def choose(self, given: int | None) -> int | None:
        """The id of the next record, None where it bears none. Takes nothing yet. Raises `SequenceError`."""
        if given is not None:
            self._check(given)
            return given
        if self._given:
            raise _error("sequence ids were given before: once given, always given")
        if self._counts and self._next > HIGHEST:
            raise _error("there is no sequence id left")
        return self._next if self._counts else None

    def take(self, partition: int, number: int | None, *, given: bool) -> None:
        """A record with the id `number` that `choose` named goes out now. Raises `SequenceError`, then nothing is
        taken.
        """
        if number is None:
            return
        highest = self._highest(partition)
        if number <= highest:
            raise _error(f"{number} is not above {highest}, which this producer sent to partition {partition} before")
        self._sent.setdefault(partition, []).append(number)
        if given:
            self._given = True
        else:
            self._next = number + 1

    def arrived(self, partition: int, number: int) -> None:
        """The log has this id."""
        self._forget(partition, number)
        self._last[partition] = max(number, self.last_of(partition))
        self._done[partition] = max(number, self._done.get(partition, NO_ID))

    def failed(self, partition: int, number: int) -> None:
        """A record is not in the log, or nobody knows: its id may be given again unless a higher one went out."""
        self._forget(partition, number)

    def _forget(self, partition: int, number: int) -> None:
        sent = self._sent.get(partition, [])
        if number in sent:
            sent.remove(number)

    def _highest(self, partition: int) -> int:
        sent = self._sent.get(partition)
        return max(self._done.get(partition, NO_ID), sent[-1] if sent else NO_ID)

    def _check(self, number: int) -> None:
        if not self._counts:
            raise _error(f"topic {self.topic} has no deduplication; `sidecar topic set {self.topic} --dedup` begins it")
        if type(number) is not int or not 0 <= number <= HIGHEST:
            raise _error(f"{number!r:.100} is none: sequence ids are whole numbers from 0 to 2^63-1")


def _error(message: str) -> SequenceError:
    return SequenceError(ErrorCode.INVALID_RECORD, message)
