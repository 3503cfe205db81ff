"""What clients were refused lately, for people to see: some client libraries hide the message, or try again for ever.

Kept by client.id, address, topic and code: one entry however often it happens. Clients decide how many there are, so
the one that was seen longest ago makes room.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.exclusive.identity import shown_name
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, STALE_ROUTE, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST: Final = 1_000
"""Entries that are kept."""
_LONGEST: Final = 500
"""Characters of a reason."""
_AGAIN: Final = STALE_ROUTE | NOT_APPENDED | APPEND_IN_DOUBT
"""No refusals: the client is to try again, and is expected to get through."""


_SAID: Final[dict[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Kafka's ACLs, the shadow's allow list or another reader's claim forbid it",
}
"""For answers that have no field for a reason, as those to Fetch."""


@dataclass(slots=True)
class Refusal:
    """What a node refused a client, as often as it did: its client.id and address, the topic ("" where it is of none),
    Kafka's error code, the newest reason. `first_ms`, `last_ms`: Unix milliseconds.
    """

    client_id: str
    host: str
    topic: str
    code: int
    reason: str
    count: int
    first_ms: int
    last_ms: int


class Refusals:
    """Those of one node. Costs nothing while nobody is refused."""

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, str, bytes, int], Refusal] = {}

    def note(self, client_id: bytes, host: str, topic: bytes, code: int, reason: str | None) -> None:
        """A client was refused something of a topic; `reason` None: what its code says."""
        if code in _AGAIN:
            return
        now, raw = int(time.time() * 1000), client_id[:_LONGEST]
        key = raw, host, topic[:_LONGEST], code
        found = self._kept.pop(key, None)
        if found is None:
            if len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            shown = shown_name(raw.decode(errors="replace"))
            found = Refusal(shown, host, topic[:_LONGEST].decode(errors="replace"), code, "", 0, now, now)
        found.count, found.last_ms, found.reason = found.count + 1, now, (reason or _SAID.get(code, ""))[:_LONGEST]
        self._kept[key] = found

    def newest(self) -> Iterator[Refusal]:
        """All that are kept, the one that happened last first."""
        return reversed(self._kept.values())
