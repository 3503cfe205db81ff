"""What time it is at the brokers, as far as their own records show.

Several nodes judge ages: how long ago a session left, how old a record is, what a partition may have forgotten. These
must not depend on a node's wall clock, which may be hours wrong, or jump. Records of the ownership topic get their
time from its leader. Such a time is a lower bound of the leader's clock when the record is read; where the reader had
seen the end of the log before, the record was written since, which is an upper bound. Between records the
time goes on by a monotonic clock that also counts a suspended machine's sleep.

Knows no topics and asks no broker; the tailer passes in what it reads.
"""

import math
import time
from collections.abc import Callable

from metadata.clock import elapsed as counting_suspension


class Clock:
    """The brokers' time. Before the first record it is the wall clock's: nothing better is known."""

    __slots__ = ("_ahead_s", "elapsed", "is_confirmed")

    def __init__(
        self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = counting_suspension
    ) -> None:
        """`wall`: Unix seconds, asked once. `elapsed`: seconds since any moment; never set, never standing still."""
        self.elapsed = elapsed
        self.is_confirmed = False
        """Whether a record has bounded the time from both sides: the wall clock plays no part any more."""
        self._ahead_s = wall() - elapsed()

    def now_ms(self) -> int:
        """Unix milliseconds at the brokers."""
        return int((self.elapsed() + self._ahead_s) * 1000)

    def heard(self, stamped_ms: int, since: float = -math.inf) -> None:
        """A broker stamped a record with this time, and not before `since` by `elapsed`, as far as that is known.

        Where brokers disagree the newest record counts: one whose clock was wrong spoils nothing for ever.
        """
        if stamped_ms <= 0:
            return
        now = self.elapsed()
        least = stamped_ms / 1000 - now
        self._ahead_s = min(max(self._ahead_s, least), least + now - since)
        self.is_confirmed = self.is_confirmed or since > -math.inf
