"""The login of one client connection."""

import asyncio
import time
from typing import Any

from sidecar.security.logins import Offer


class ClientLogin:
    """The login of one connection. `expires_at`: Unix time in seconds at which its session ends, None for never."""

    __slots__ = ("asking", "began", "done", "expires_at", "mechanism", "offer", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.done = False
        self.mechanism = ""
        self.offer: Offer | None = None
        self.expires_at: float | None = None
        self.began = 0.0
        self.asking: asyncio.Task[Any] | None = None
        """Asks for an exchange, and waits for its turn."""

    @property
    def stands(self) -> bool:
        """Whether it is done, not being renewed, and its session goes on."""
        return self.done and self.offer is None and (self.expires_at is None or time.time() < self.expires_at)

    def end(self) -> None:
        """The connection is gone."""
        self.timer.cancel()
        if self.asking is not None:
            self.asking.cancel()
        self.end_exchange()

    def end_exchange(self) -> None:
        """No message of the exchange under way is expected any more."""
        if self.offer is not None:
            self.offer.close()
            self.offer = None
