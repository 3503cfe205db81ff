"""Chooses the sequence id of each record, and tracks a producer's highest ids. Pure.

Ids count up by themselves until the application passes one; from then on it has to pass all (PIP-6). Ids rise in each
partition: a new record with an id at or below one that this producer sent would be dropped as a duplicate. Ids from
before this producer started are not checked: an application that resumes may send all of its records again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sidecar.client.errors import SequenceError
from sidecar.protocol.errors import ErrorCode

NO_ID: Final = -1
HIGHEST: Final = 2**63 - 1


class Numbering:
    """The sequence ids of one producer in these partitions. `last`: the highest ids in the log by partition, None for a
    topic without deduplication, whose records have no ids. `initial`: the first id that is assigned.
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
        """The ids of records without an outcome, by partition, in rising order."""
        self._done: dict[int, int] = {}
        """The highest id that this producer wrote to the log, by partition."""
        if initial is not None:
            self._check(initial)
        self._next = self.last_id + 1 if initial is None else initial

    @property
    def counts(self) -> bool:
        """Whether records have ids at all."""
        return self._counts

    @property
    def last_ids(self) -> dict[int, int]:
        """The highest id in the log, by partition; a partition without one is absent."""
        return dict(self._last)

    @property
    def last_id(self) -> int:
        """The lowest of `last_ids` over the producer's partitions, `NO_ID` if one has none."""
        return min((self._last.get(index, NO_ID) for index in self.partitions), default=NO_ID)

    def last_of(self, partition: int) -> int:
        """The highest id in the log of a partition, `NO_ID` where there is none."""
        return self._last.get(partition, NO_ID)

    def choose(self, given: int | None) -> int | None:
        """Return the id of the next record, None if records have no ids. Changes nothing. Raises `SequenceError`."""
        if given is not None:
            self._check(given)
            return given
        if self._given:
            raise _error("sequence ids were given before: once given, always given")
        if self._counts and self._next > HIGHEST:
            raise _error("there is no sequence id left")
        return self._next if self._counts else None

    def take(self, partition: int, number: int | None, *, given: bool) -> None:
        """Note that a record with the id `number`, which `choose` returned, is sent now. If it raises `SequenceError`
        nothing has changed.
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
        """Note that the log has this id."""
        self._forget(partition, number)
        self._last[partition] = max(number, self.last_of(partition))
        self._done[partition] = max(number, self._done.get(partition, NO_ID))

    def failed(self, partition: int, number: int) -> None:
        """Note that a record is not in the log, or may not be. Its id may be used again if no higher one was sent."""
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
