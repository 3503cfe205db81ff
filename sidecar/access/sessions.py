"""What a session's name says of it. `conn:ID` is a *plain* session: it ends with its connection and never comes back,
so that nothing has to be remembered of it. `pid:N` is a producer id, which outlives its connections.
"""

from __future__ import annotations

from typing import Final

_CONNECTION: Final = "conn:"


def is_plain(session: str) -> bool:
    """Whether it ends with its connection."""
    return session.startswith(_CONNECTION)
