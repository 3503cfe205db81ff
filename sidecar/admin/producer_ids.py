"""Producer ids in answers: only for requests that may see them (`access.sees_producer_ids`). A session is known by its
producer id, and where clients do not authenticate, a client that knows it and the client.id may write as that session.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

from sidecar.admin.fields import TEXT

HIDDEN: Final = "pid:***"
ARE_SHOWN: Final[ContextVar[bool]] = ContextVar("producer_ids_shown", default=True)
"""Whether the request that is answered may see them; the server sets it for each request."""
_SESSION: Final = re.compile(r"\bpid:[0-9]+")


def as_seen(text: str) -> str:
    """A session, or a text that may name one, as the request's sender may see it."""
    return text if ARE_SHOWN.get() else _SESSION.sub(HIDDEN, text)


SESSION: Final = TEXT.said(f"pid:N, by a producer id, {HIDDEN} where the request may not see it; or conn:ID.").written(
    as_seen
)
DETAIL: Final = TEXT.written(as_seen)
"""A text for people that may name a session."""
