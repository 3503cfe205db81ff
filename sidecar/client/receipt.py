"""What becomes of a record: `Receipt`, and the record on its way there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record for `ExclusiveProducer.send_all`, with what `send` takes."""

    value: bytes | None
    key: bytes | None = None
    headers: Iterable[tuple[str, bytes | None]] = ()
    partition: int | None = None
    sequence_id: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """A record that is in the log.

    `offset` is -1 where it is not known: of a duplicate, and of a record whose first answer was lost on the way.
    `sequence_id` is -1 on a topic without deduplication. `duplicate`: the log had this id already, from an earlier
    producer or try, so nothing was written. `generation` is the one under which this producer owned the topic, or the
    partition where each has its own owner.
    """

    partition: int
    offset: int
    sequence_id: int
    duplicate: bool
    generation: int


@dataclass(eq=False, slots=True)
class Pending:
    """A record that has no outcome yet. `number` is its sequence id, `size` an upper bound in bytes. `left`: it is in a
    batch that is sent. `stop`: called with its partition where it fails.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    number: int | None
    timestamp_ms: int
    size: int
    outcome: asyncio.Future[Receipt]
    left: bool = False
    stop: Callable[[int], None] | None = None
