"""What is known of a request besides what it says: who sent it, and what the audit log shall hold of it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Self

from sidecar.admin.passing import Behalf


@dataclass(slots=True)
class JudgedRequest:
    """For whom a request is, and what handlers add for the audit log."""

    behalf: Behalf
    via: str = ""
    """The address of the node that passed it on."""
    noted: dict[str, Any] = field(default_factory=dict[str, Any])
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
