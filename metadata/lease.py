"""A lease as its holder sees it: no I/O; its clock never goes back and never stops.

The server counts the time to live from the moment it runs the renewal, which is later than the moment the renewal was
sent. So the holder counts from the sending, less a margin for clocks that run at different speeds: the holder's
lease always ends first. A lease is only for liveness; Kafka decides what may be appended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

from .clock import elapsed

if TYPE_CHECKING:
    from collections.abc import Callable

Sent = NewType("Sent", float)
"""When a renewal was sent, in seconds of the lease's own clock."""


@dataclass(slots=True)
class _State:
    deadline: float = -math.inf
    ended_at: float = -math.inf


class Lease:
    """Held from a granted renewal until `ttl_ms - margin_ms` after that renewal was *sent*.

    `margin_ms` defaults to a tenth of `ttl_ms`; 0 <= margin_ms < ttl_ms. `clock` gives seconds and must never go back.
    """

    __slots__ = ("_clock", "_span", "_state")

    def __init__(self, ttl_ms: int, margin_ms: int | None = None, clock: Callable[[], float] = elapsed) -> None:
        margin = ttl_ms // 10 if margin_ms is None else margin_ms
        if ttl_ms <= 0 or not 0 <= margin < ttl_ms:
            raise ValueError(f"a lease of {ttl_ms} ms with a margin of {margin} ms never holds")
        self._span = (ttl_ms - margin) / 1000
        self._clock = clock
        self._state = _State()

    def sending(self) -> Sent:
        """Call right before a renewal is sent; hand the result to `granted`."""
        return Sent(self._clock())

    def granted(self, sent: Sent) -> None:
        """The renewal sent then was granted. Answers may come in any order; those sent before `end` are void."""
        if sent > self._state.ended_at:
            self._state.deadline = max(self._state.deadline, sent + self._span)

    def end(self) -> None:
        """End the lease: it was given up or lost. Later answers to renewals that were sent before are ignored."""
        self._state = _State(ended_at=self._clock())

    @property
    def held(self) -> bool:
        """Whether the lease is valid."""
        return self._clock() < self._state.deadline

    @property
    def remaining_ms(self) -> float:
        """Milliseconds until the lease ends without another renewal; 0 if it is not held."""
        return max(0.0, (self._state.deadline - self._clock()) * 1000)
