"""Data of a request beyond its content: its sender, fields for the audit log, and whether its answer contains producer
ids.

Only senders with the right to see producer ids get them (`access.sees_producer_ids`). A session is identified by its
producer id. If clients do not authenticate, a client that knows this id and the client.id may write as that session.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Self

from sidecar.admin.fields import TEXT


@dataclass(frozen=True, slots=True)
class Behalf:
    """The person or program behind a request: who it is (`access.Judged`), its address, the subject of its certificate
    ("": none).
    """

    who: str
    peer: str
    certificate: str = ""


@dataclass(slots=True)
class JudgedRequest:
    """A judged request: for whom it is, and what handlers add for the audit log."""

    behalf: Behalf
    via: str = ""
    """The address of the node that passed the request on."""
    noted: dict[str, Any] = field(default_factory=dict[str, Any])
    sees_ids: bool = True
    """Whether the answer contains producer ids."""
    stands: Callable[[], bool] = lambda: True
    """Whether the sender still has the right to it, for answers that take long."""

    def note(self, **fields: Any) -> None:
        """Add fields for the audit log; never a secret."""
        self.noted.update(fields)

    def begin(self) -> Self:
        """Make this the request of the running task."""
        _NOW.set(self)
        return self


_NOW: Final[ContextVar[JudgedRequest]] = ContextVar("judged request")


def judged_now() -> JudgedRequest:
    """The request of the running task."""
    found = _NOW.get(None)
    return JudgedRequest(Behalf("", "")) if found is None else found


HIDDEN: Final = "pid:***"
_SESSION: Final = re.compile(r"\bpid:[0-9]+")


def as_seen(text: str) -> str:
    """A session, or a text that may name one, as the request's sender may see it."""
    return text if judged_now().sees_ids else _SESSION.sub(HIDDEN, text)


SESSION: Final = TEXT.said(f"pid:N, by a producer id, {HIDDEN} where the request may not see it; or conn:ID.").written(
    as_seen
)
DETAIL: Final = TEXT.written(as_seen)
"""The kind of a text that may name a session."""
