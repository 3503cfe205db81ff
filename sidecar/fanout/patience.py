"""How long a reader waits at the end of its log for a first byte. Pure.

An empty answer costs a node some 30 µs, and the next request comes at once. So the more readers wait, the longer each
of them does: all of them together are given some 200 empty answers a second, or more once the longest wait is reached.
Clients of Fetch v11 bear that: none ends a request before its request timeout, 30 s and more where it is not set (10 s
beyond its own wait in franz-go). A reader that sends another request on the connection is answered as early as it asked
for, and so is one that asks for a part of what it reads there. KafkaJS sends heartbeats only when a Fetch has ended
(its `runner.js`): the longest wait is below the least session timeout of a group, 6 s by default.
"""

from __future__ import annotations

from typing import Final

EACH_S: Final = 0.005
"""How much longer all wait for each one that does."""
_SPREAD: Final = 0.25
"""Which share of a wait, the last one, is when they come to ask again: thousands of them were answered at once."""
_GOLDEN: Final = 0.6180339887


def wait_s(asked_s: float, waiting: int, longest_s: float, number: int) -> float:
    """Seconds until the empty answer: `asked_s` is what the client asked for, and the least; `longest_s` the most that
    it is made to wait. Readers of different `number` come to ask again at different times.
    """
    crowded = min(longest_s, waiting * EACH_S)
    if crowded <= asked_s:
        return asked_s
    return asked_s + (crowded - asked_s) * (1 - _SPREAD * ((number * _GOLDEN) % 1.0))
