"""The brokers' time, estimated from the timestamps of their records.

Several nodes compare ages: how long ago a session left, how old a record is, what a partition may have forgotten. These
must not depend on a node's wall clock, which may be hours wrong, or jump. The leader of the ownership topic gives each
record its timestamp. This timestamp is a lower bound of the leader's clock at the time of reading. If the reader had
seen the end of the log before the record, the record was written after that: this gives an upper bound. Between records
a monotonic clock advances the time; it also counts the time in which the machine is suspended.

This module knows no topics and sends no requests; the tailer passes in the timestamps that it reads.
"""

import math
import time
from collections.abc import Callable

from metadata.clock import elapsed as counting_suspension


class Clock:
    """The brokers' time. Before the first record it is the time of the wall clock."""

    __slots__ = ("_ahead_s", "elapsed", "is_confirmed")

    def __init__(
        self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = counting_suspension
    ) -> None:
        """`wall`: Unix seconds, read once. `elapsed`: seconds since some moment; never adjusted, never paused."""
        self.elapsed = elapsed
        self.is_confirmed = False
        """Whether a record has given both a lower and an upper bound: the wall clock no longer matters."""
        self._ahead_s = wall() - elapsed()

    def now_ms(self) -> int:
        """Return the brokers' time in Unix milliseconds."""
        return int((self.elapsed() + self._ahead_s) * 1000)

    def heard(self, stamped_ms: int, since: float = -math.inf) -> None:
        """Adjust the time to a record's broker timestamp. `since`: a time of `elapsed` before which the record was not
        written; -inf if none is known.

        If brokers' clocks differ, the newest record decides, so the error of one wrong clock does not last.
        """
        if stamped_ms <= 0:
            return
        now = self.elapsed()
        least = stamped_ms / 1000 - now
        self._ahead_s = min(max(self._ahead_s, least), least + now - since)
        self.is_confirmed = self.is_confirmed or since > -math.inf
