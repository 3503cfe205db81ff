"""Group commit: which of the queued changes are written as the next batch. Pure, except for the futures of the work;
the coordinator appends the batch.

Work waits in the order of its arrival. Work items with no resource in common are decided on the same state of the claim
table and written as one batch, which is in the log as a whole or not at all. They are applied once it is in the log. So
decisions are based only on what is in the log, and nothing has to be undone.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from sidecar.changelog import Key, Record, StampedJournal
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import Offset
from sidecar.resources.claim_table import Change
from sidecar.resources.claims import ENDED_AT_ONCE, Claims, End, Intent
from sidecar.resources.limits import BATCH_BYTES, encoded_size
from sidecar.resources.waiting import ByResource

BATCH_RECORDS: Final = 1_000
"""The records of a batch, unless a single request needs more."""
WORK_AT_ONCE: Final = 500
"""The number of work items decided before other tasks run: thousands of sessions may end at once."""
_LOOKED_AT: Final = 2_000
"""The number of resources examined for one batch: a long queue must not block the event loop."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """An intent that waits to be stored. `done` gets the offset of the last record of its batch, None if it needs no
    record; or an error: its change is certainly not in the log, or this node no longer coordinates.
    """

    intent: Intent
    done: asyncio.Future[Offset | None] | None = None

    def over(self, last: Offset | None, error: KafkaError | None) -> None:
        """Report the end of the work."""
        if self.done is not None and not self.done.done():
            if error is None:
                self.done.set_result(last)
            else:
                self.done.set_exception(error)


@dataclass(slots=True)
class _Busy:
    """The resources, tokens and sessions of earlier work."""

    keys: ByResource[None] = field(default_factory=ByResource[None])
    tokens: set[bytes] = field(default_factory=set[bytes])
    sessions: set[str] = field(default_factory=set[str])
    ending: set[str] = field(default_factory=set[str])

    def add(self, intent: Intent, keys: Collection[Key]) -> None:
        for key in keys:
            self.keys[key] = None
        self.tokens.add(intent.token)
        (self.ending if isinstance(intent, End) else self.sessions).add(intent.session)

    def is_met_by(self, intent: Intent, keys: Collection[Key]) -> bool:
        if (intent.token and intent.token in self.tokens) or intent.session in self.ending:
            return True
        if isinstance(intent, End) and intent.session in self.sessions:
            return True
        return any(True for key in keys for _ in self.keys.overlapping(key))


@dataclass(slots=True)
class Batch:
    """`writes`: work with its changes, to be appended together; `done`: work that needs no record."""

    writes: list[tuple[Work, Change]] = field(default_factory=list[tuple[Work, Change]])
    done: list[Work] = field(default_factory=list[Work])

    @property
    def records(self) -> list[Record]:
        return [record for _, change in self.writes for record in change.records()]


@dataclass(eq=False)
class Commits:
    """The work of one coordinator epoch. `closed`: why nothing is written any more; `idle`: no work is under way."""

    journal: StampedJournal
    queue: deque[Work] = field(default_factory=deque[Work])
    closed: KafkaError | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.idle.set()

    def next_batch(self, claims: Claims, now_ms: int) -> Batch:
        """Take the work of the next batch from the queue. Whatever this raises, nothing was taken."""
        batch, busy, rest = Batch(), _Busy(), list[Work]()
        size = records = looked_at = taken = 0
        for work in islice(self.queue, WORK_AT_ONCE):
            if looked_at >= _LOOKED_AT:
                break
            taken += 1
            intent = work.intent
            keys = claims.touched(intent)
            looked_at += 1 + len(keys) + (ENDED_AT_ONCE if isinstance(intent, End) and intent.places else 0)
            if busy.is_met_by(intent, keys):
                busy.add(intent, keys)
                rest.append(work)
                continue
            change = claims.decide(intent, now_ms)
            if not change:
                batch.done.append(work)
                continue
            more = change.records()
            more_size = encoded_size(more)
            if batch.writes and (size + more_size > BATCH_BYTES or records + len(more) > BATCH_RECORDS):
                rest.append(work)
                break
            size, records = size + more_size, records + len(more)
            busy.add(intent, keys)
            batch.writes.append((work, change))
        for _ in range(taken):
            self.queue.popleft()
        self.queue.extendleft(reversed(rest))
        return batch
