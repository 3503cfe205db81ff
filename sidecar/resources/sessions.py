"""Which connections carry a session, and until when one without any is waited for. Pure; times are monotonic seconds.

`conn:ID` is its connection and ends with it. `pid:N` is what its connections said they speak for (Own, Watch); without
any it has a grace: for the next connection, or, of a session that another node knew, to show up here.
"""

from collections.abc import Collection, Iterable
from typing import Final

from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.session import Session
from sidecar.resources.requests import Asker

SESSIONS_LIMIT: Final = 1_000
"""As many sessions may one connection speak for."""


class Sessions:
    """The sessions that connections of this node speak for. `disconnect_grace` in seconds."""

    def __init__(self, disconnect_grace: float) -> None:
        self.disconnect_grace = disconnect_grace
        self._connections: dict[str, dict[int, Asker]] = {}
        self._of: dict[int, set[str]] = {}
        self._until: dict[str, float] = {}

    def bind(self, asker: Asker, session: str) -> None:
        """A connection speaks for a session. Raises `KafkaError` 42 INVALID_REQUEST where it does so for too many."""
        if not asker.is_alive():
            return  # its end would not be reported
        connection = asker.connection_id
        sessions = self._of.setdefault(connection, set())
        if session not in sessions:
            if len(sessions) >= SESSIONS_LIMIT:
                message = f"this connection has carried {SESSIONS_LIMIT} sessions: use another connection for more"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            sessions.add(session)
            self._connections.setdefault(session, {})[connection] = asker
        self._until.pop(session, None)

    def askers(self, session: str) -> Collection[Asker]:
        """The connections that speak for a session."""
        return tuple(self._connections.get(session, {}).values())

    def is_present(self, session: str) -> bool:
        """Whether a connection speaks for it, or it is still waited for."""
        return session in self._connections or session in self._until

    def wait_for(self, sessions: Iterable[str], until: float) -> None:
        """These have something to lose: give those without a connection this time."""
        for session in sessions:
            if session not in self._connections:
                self._until[session] = until

    def closed(self, connection: int, now: float) -> list[str]:
        """A connection is gone: the sessions that end with it, now."""
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
        """The sessions that were waited for long enough; nobody waits for them any more."""
        found = [session for session, until in self._until.items() if until <= now]
        for session in found:
            del self._until[session]
        return found

    def next_end(self) -> float | None:
        """When the next one will be."""
        return min(self._until.values(), default=None)

    def forget(self) -> None:
        """Nobody is waited for here."""
        self._until.clear()
