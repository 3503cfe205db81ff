"""The recent refusals of a node, for display: some client libraries hide the message, or retry for ever.

There is one entry per client.id, address, topic and code, with a count. Clients determine the number of entries, so
when the table is full, the address with the most entries loses its oldest one.

An event is written once for each client.id, topic, code and reason: at most `BURST` at a time, then one per `REST_S`
seconds, so that clients with ever new names do not fill the events topic. Addresses take turns, so that a client
that invents names does not prevent the events of other addresses.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import Final

from sidecar.dedup.names import shown_name
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, STALE_ROUTE, ErrorCode, error_name

Write = Callable[[str, str, str, str, int], Awaitable[None]]
"""Takes topic, client.id, address, error and reason, Unix ms: `OwnershipEvents.client_refused`."""

MOST: Final = 1_000
"""The limit of entries."""
BURST: Final = 20
REST_S: Final = 10.0
"""Seconds after which one more event may be written."""
_EVERY_S: Final = 5.0
_NEW: Final = 100
"""The limit of refusals whose event waits to be written; others are considered again when they recur."""
_LONGEST: Final = 500
"""The limit of characters in a reason."""
_AGAIN: Final = STALE_ROUTE | NOT_APPENDED | APPEND_IN_DOUBT
"""Errors that do not count as refusals: the client retries, and is expected to succeed."""


_SAID: Final[dict[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Kafka's ACLs, the shadow's allow list or another reader's claim forbid it",
}
"""Reasons for answers that have no field for one, such as those to Fetch."""

_Kind = tuple[bytes, bytes, int, str]
"""Client.id, topic, code, reason."""


@dataclass(slots=True)
class Refusal:
    """A refusal with its count: the client's client.id and address, the topic ("" if none), Kafka's error code, the
    newest reason. `first_ms`, `last_ms`: Unix milliseconds.
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
    """The refusals of one node. Costs nothing while there are none."""

    def __init__(self) -> None:
        self.write: Write | None = None
        self._kept: dict[tuple[bytes, str, bytes, int], Refusal] = {}
        self._hosts: Counter[str] = Counter()
        self._new: dict[_Kind, Refusal] = {}
        self._reported: dict[_Kind, None] = {}
        self._credit = float(BURST)

    def note(self, client_id: bytes, host: str, topic: bytes, code: int, reason: str | None) -> None:
        """Store a refusal. `reason` None: the default reason of its code, if it has one."""
        if code in _AGAIN:
            return
        now, raw = int(time.time() * 1000), client_id[:_LONGEST]
        key = raw, host, topic[:_LONGEST], code
        found = self._kept.pop(key, None)
        if found is None:
            if len(self._kept) >= MOST:
                self._drop_one()
            self._hosts[host] += 1
            shown = shown_name(raw.decode(errors="replace"))
            found = Refusal(shown, host, topic[:_LONGEST].decode(errors="replace"), code, "", 0, now, now)
        found.count, found.last_ms, found.reason = found.count + 1, now, (reason or _SAID.get(code, ""))[:_LONGEST]
        self._kept[key] = found
        kind = raw, key[2], code, found.reason
        if kind not in self._reported and kind not in self._new and self._has_room(host):
            self._new[kind] = replace(found)

    def newest(self) -> Iterator[Refusal]:
        """All stored refusals, the latest first."""
        return reversed(self._kept.values())

    def take_new(self, passed_s: float) -> list[Refusal]:
        """Removes and returns the refusals whose event may be written now, `passed_s` seconds after the last call."""
        self._credit = min(BURST, self._credit + passed_s / REST_S)
        kinds = [kind for _, kind in islice(self._in_turn(), int(self._credit))]
        self._credit -= len(kinds)
        for kind in kinds:
            if len(self._reported) >= MOST:
                del self._reported[next(iter(self._reported))]
            self._reported[kind] = None
        return [self._new.pop(kind) for kind in kinds]

    def _drop_one(self) -> None:
        """Drop the oldest entry of the address with most entries: invented names do not displace other addresses."""
        most, _ = self._hosts.most_common(1)[0]
        del self._kept[next(key for key in self._kept if key[1] == most)]
        self._hosts[most] -= 1
        if not self._hosts[most]:
            del self._hosts[most]

    def _in_turn(self) -> Iterator[tuple[int, _Kind]]:
        """The refusals whose event waits, addresses in turn; each with the number of earlier ones of its address."""
        counts: Counter[str] = Counter()
        turns: list[tuple[int, _Kind]] = []
        for kind, each in self._new.items():
            turns.append((counts[each.host], kind))
            counts[each.host] += 1
        return iter(sorted(turns, key=itemgetter(0)))

    def _has_room(self, host: str) -> bool:
        """Whether one more event of this address may wait. In a full queue the last in turn is dropped for it, if its
        address has more events waiting.
        """
        if len(self._new) < _NEW:
            return True
        *_, (before, last) = self._in_turn()
        if before <= sum(each.host == host for each in self._new.values()):
            return False
        del self._new[last]
        return True

    async def run(self) -> None:
        """Write the events; runs until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            if self.write is None:
                continue
            for each in self.take_new(_EVERY_S):
                what = f"{each.code} {error_name(each.code)}" + (f": {each.reason}" if each.reason else "")
                await self.write(each.topic, each.client_id, each.host, what, each.last_ms)
