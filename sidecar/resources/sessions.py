"""The connections of each session, and the grace of sessions without one. Pure; times are monotonic seconds.

A session `conn:ID` is its connection and ends with it. A session `pid:N` has the connections that named it in Own or
Watch. Without any it has a grace in which to reconnect; so has a session that was known to another node.
"""

from collections.abc import Collection, Iterable
from typing import Final

from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Session

SESSIONS_LIMIT: Final = 1_000
"""The number of sessions for which one connection may speak."""


class Sessions:
    """The sessions that connections of this node speak for. `disconnect_grace` in seconds."""

    def __init__(self, disconnect_grace: float) -> None:
        self.disconnect_grace = disconnect_grace
        self._connections: dict[str, dict[int, None]] = {}
        self._of: dict[int, set[str]] = {}
        self._until: dict[str, float] = {}

    def bind(self, connection: int, session: str) -> None:
        """Note that an open connection speaks for a session. Raises `KafkaError` 42 INVALID_REQUEST above the limit."""
        sessions = self._of.setdefault(connection, set())
        if session not in sessions:
            if len(sessions) >= SESSIONS_LIMIT:
                message = f"this connection has carried {SESSIONS_LIMIT} sessions: use another connection for more"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            sessions.add(session)
            self._connections.setdefault(session, {})[connection] = None
        self._until.pop(session, None)

    def connections(self, session: str) -> Collection[int]:
        return tuple(self._connections.get(session, ()))

    def is_present(self, session: str) -> bool:
        """Return whether a connection speaks for the session, or its grace is not over."""
        return session in self._connections or session in self._until

    def wait_for(self, sessions: Iterable[str], until: float) -> None:
        """Give those of these sessions that have no connection a grace until this time."""
        for session in sessions:
            if session not in self._connections:
                self._until[session] = until

    def closed(self, connection: int, now: float) -> list[str]:
        """Remove a closed connection, and return the sessions that end with it now."""
        ended: list[str] = []
        for session in self._of.pop(connection, ()):
            carried = self._connections[session]
            del carried[connection]
            if carried:
                continue
            del self._connections[session]
            if Session(session).is_plain or self.disconnect_grace <= 0:
                ended.append(session)
            else:
                self._until[session] = now + self.disconnect_grace
        return ended

    def overdue(self, now: float) -> list[str]:
        """Remove and return the sessions whose grace is over."""
        found = [session for session, until in self._until.items() if until <= now]
        for session in found:
            del self._until[session]
        return found

    def next_end(self) -> float | None:
        """Return when the next session's grace ends; None if there is none."""
        return min(self._until.values(), default=None)

    def forget(self) -> None:
        """End the grace of all sessions without ending them."""
        self._until.clear()
