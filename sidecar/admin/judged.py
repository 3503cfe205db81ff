"""What is known of a request besides what it says: who sent it, what the audit log shall hold of it, and
whether its answer names producer ids.

Only requests that may see them get those (`access.sees_producer_ids`). A session is known by its producer id, and where
clients do not authenticate, a client that knows it and the client.id may write as that session.
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
    """For whom: who he is (`access.Judged`), his address, the subject of his certificate ("": none)."""

    who: str
    peer: str
    certificate: str = ""


@dataclass(slots=True)
class JudgedRequest:
    """For whom a request is, and what handlers add for the audit log."""

    behalf: Behalf
    via: str = ""
    """The address of the node that passed it on."""
    noted: dict[str, Any] = field(default_factory=dict[str, Any])
    sees_ids: bool = True
    """Whether its answer names producer ids."""
    stands: Callable[[], bool] = lambda: True
    """Whether its sender still has the right to it, for answers that take long."""

    def note(self, **fields: Any) -> None:
        """Facts for the audit log; never a secret."""
        self.noted.update(fields)

    def begin(self) -> Self:
        """From now on this is the request that the running task answers."""
        _NOW.set(self)
        return self


_NOW: Final[ContextVar[JudgedRequest]] = ContextVar("judged request")


def judged_now() -> JudgedRequest:
    """The request that the running task answers."""
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
"""A text for people that may name a session."""
