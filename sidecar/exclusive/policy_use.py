"""Whether a policy that a client made is still used, and when it is over. Pure; `client_policies` ends it."""

from typing import Final, NamedTuple

from sidecar.ownership.state import Held, is_held

_LONGEST_PAUSE_S: Final = 60.0
"""The longest time between two tries to end one, in seconds."""


class Use(NamedTuple):
    """What sessions that asked for a mode use a topic for. `asks`: a connected session that writes beside others asked
    for a mode. `awaited_until`: others may come back from another node until then (monotonic seconds).
    """

    holder: Held | None = None
    is_waited_for: bool = False
    asks: bool = False
    awaited_until: float = 0.0

    def is_on(self, now: float) -> bool:
        """Whether the topic stays governed for one of them."""
        return is_held(self.holder, now) or self.is_waited_for or self.asks or self.awaited_until > now


class Idle(NamedTuple):
    """Since when nobody has used a policy (monotonic seconds), and how often its end has failed since."""

    since: float
    failures: int = 0

    def is_over(self, now: float, grace: float) -> bool:
        """Whether the policy ends now: it was idle for the grace, or longer if its end fails again and again."""
        return now - self.since >= min(grace * 2**self.failures, max(grace, _LONGEST_PAUSE_S))
