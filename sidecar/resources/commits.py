"""Group commit: one append after the other, each with all work that is ready by then, as one batch.

Work waits in the order of its arrival. Work items with no resource in common are decided on the same state of the claim
table and written as one batch, which is in the log as a whole or not at all. They are applied once it is in the log. So
decisions are based only on what is in the log, and nothing has to be undone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from sidecar.changelog import AppendRefusedError, Key, Record, StampedJournal, whole_of
from sidecar.network.backoff import RetryTimeoutError
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset
from sidecar.resources.claim_table import Change
from sidecar.resources.requests import ClaimVerdict, Request, refuse_all
from sidecar.v1 import control_pb2 as control

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Half of the ownership topic's limit for a batch."""
BATCH_RECORDS: Final = 1_000
"""The records of a batch, unless a single request needs more."""
CHANGE_RECORDS: Final = 5_000
"""The records that a request may need: its claims, at most 1,000, and the claims of others that end with them."""
WORK_AT_ONCE: Final = 500
"""The number of work items decided before other tasks run: thousands of sessions may end at once."""
_LOOKED_AT: Final = 2_000
"""The number of resources examined for one batch: a long queue must not block the event loop."""
_RECORD_OVERHEAD: Final = 64
_RECORD_BYTES: Final = 5_120
"""An upper bound of a record's size without its resource: names of deposed sessions, the owner's name, and so on."""
_FREE_RECORD_BYTES: Final = 1_024
"""The same, if nobody was deposed: the owner's name and the client's address, of 255 bytes each, and what is fixed."""
_TIMES: Final = 3
"""How often a record repeats a resource, at most: in the key, in the value, and the group."""


@dataclass(slots=True, eq=False)
class Work:
    """A work item that may change owners. `touched` returns its resources; `decide` returns its change now, empty if it
    needs none. `session` and `token`: to whom it belongs, "" and b"" for none. `ends_session`: it belongs to the end of
    the session. `claims`: it may claim, so the right to coordinate must be confirmed first. `weight`: about how many
    resources it looks at besides those of `touched`.

    Once its change is in the log, `apply` is called with the change, then `over` with the offset of the last record of
    the batch, or None if there was nothing to write. On failure `over` gets the error: the change is certainly not in
    the log, or this node no longer coordinates.
    """

    touched: Callable[[], Collection[Key]]
    decide: Callable[[], Change]
    apply: Callable[[Change], None]
    over: Callable[[Offset | None, KafkaError | None], None]
    token: bytes = b""
    session: str = ""
    ends_session: bool = False
    claims: bool = False
    weight: int = 0

    def written(self, change: Change, last: Offset | None) -> None:
        """Apply the change, which is in the log, and report the end of the work."""
        if change:
            self.apply(change)
        self.over(last, None)


@dataclass(slots=True)
class _Busy:
    """The resources, tokens and sessions of earlier work."""

    keys: set[Key] = field(default_factory=set[Key])
    topics: set[Key] = field(default_factory=set[Key])
    tokens: set[bytes] = field(default_factory=set[bytes])
    sessions: set[str] = field(default_factory=set[str])
    ending: set[str] = field(default_factory=set[str])

    def add(self, work: Work, keys: Collection[Key]) -> None:
        self.keys.update(keys)
        self.topics.update(whole for key in keys if (whole := whole_of(key)) is not None)
        self.tokens.add(work.token)
        (self.ending if work.ends_session else self.sessions).add(work.session)

    def is_met_by(self, work: Work, keys: Collection[Key]) -> bool:
        if (work.token and work.token in self.tokens) or work.session in self.ending:
            return True
        if work.ends_session and work.session in self.sessions:
            return True
        return any(key in self.keys or key in self.topics or whole_of(key) in self.keys for key in keys)


def encoded_size(records: Sequence[Record]) -> int:
    """Return the approximate size of these records in a batch, in bytes."""
    values = (record.value for record in records)
    keys = sum(_RECORD_OVERHEAD + len(record.key.topic) for record in records)  # keys of claims are ASCII
    return keys + sum(value.ByteSize() for value in values if value is not None)


@dataclass(eq=False)
class Commits:
    """The appends of one coordinator epoch. `_confirm` is awaited before each batch with claims; if it raises, the
    claims in the batch fail. `_broken` is called if the outcome of an append is unknown.
    """

    _journal: StampedJournal
    _tasks: Tasks
    _confirm: Callable[[], Awaitable[None]]
    _broken: Callable[[BaseException], None]
    _queue: deque[Work] = field(default_factory=deque[Work])
    _closed: KafkaError | None = None
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    def submit(self, work: Work) -> None:
        """Queue work, to be decided and written when its turn comes; `work.over` gets the outcome."""
        if self._closed is not None:
            work.over(None, self._closed)
            return
        self._queue.append(work)
        if self._idle.is_set():
            self._idle.clear()
            self._tasks.start(self._run())

    def close(self, error: KafkaError) -> None:
        """Write nothing more; all queued work fails with this error."""
        self._closed = error
        while self._queue:
            self._queue.popleft().over(None, error)

    async def settled(self) -> None:
        """Return once no work is under way."""
        await self._idle.wait()

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = self._gather()
                if batch:
                    await self._write(batch)
                elif self._queue:
                    await asyncio.sleep(0)
        finally:
            self._idle.set()

    def _gather(self) -> list[tuple[Work, Change]]:
        """Return the work for the next batch with its changes; finish work that needs no record."""
        batch: list[tuple[Work, Change]] = []
        busy, rest = _Busy(), deque[Work]()
        size = records = looked_at = 0
        for _ in range(min(len(self._queue), WORK_AT_ONCE)):
            if looked_at >= _LOOKED_AT:
                break
            work = self._queue.popleft()
            keys = work.touched()
            looked_at += 1 + len(keys) + work.weight
            if busy.is_met_by(work, keys):
                busy.add(work, keys)
                rest.append(work)
                continue
            change = work.decide()
            if not change:
                work.written(change, None)
                continue
            more = records_of(change)
            more_size = encoded_size(more)
            if batch and (size + more_size > BATCH_BYTES or records + len(more) > BATCH_RECORDS):
                rest.append(work)
                break
            size, records = size + more_size, records + len(more)
            busy.add(work, keys)
            batch.append((work, change))
        rest.extend(self._queue)
        self._queue = rest
        return batch

    async def _write(self, batch: list[tuple[Work, Change]]) -> None:
        batch = await self._confirmed(batch)
        records = [record for _, change in batch for record in records_of(change)]
        if self._closed is not None or not records:
            self._fail(batch, self._closed or _NOT_NOW)
            return
        try:
            first = await self._journal.append(records)
        except (AppendRefusedError, RetryTimeoutError) as error:  # certainly not in the log
            self._fail(batch, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"it could not be stored: {error}"))
        except Exception as error:  # noqa: BLE001  whatever the error, the outcome of the append is unknown
            self._broken(error)
            self._fail(batch, self._closed or _NOT_NOW)
        except BaseException:
            self._fail(batch, _NOT_NOW)
            raise
        else:
            for work, change in batch:
                if self._closed is not None:
                    work.over(None, self._closed)
                else:
                    work.written(change, type(first)(first + len(records) - 1))

    async def _confirmed(self, batch: list[tuple[Work, Change]]) -> list[tuple[Work, Change]]:
        """Return the batch, without its claims if the right to coordinate cannot be confirmed."""
        if not any(work.claims for work, _ in batch):
            return batch
        try:
            await self._confirm()
        except KafkaError as error:
            self._fail([each for each in batch if each[0].claims], error)
            return [each for each in batch if not each[0].claims]
        return batch

    def _fail(self, batch: list[tuple[Work, Change]], error: KafkaError) -> None:
        for work, _ in batch:
            work.over(None, error)


_NOT_NOW: Final = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "nothing can be claimed now; try again")


def records_of(change: Change) -> list[Record]:
    """Return the records of a change. New owners come before tombstones: a reader of the tombstone of a partition's
    claim then already knows the new owner, and can close the connections of the old one.
    """
    return [*[Record(*item) for item in change.claims.items()], *[Record(key, None) for key in change.gone]]


def may_be_too_large(request: Request, owned: Container[Key]) -> bool:
    """Return whether a request may be too large for a batch, by a cheap upper bound. `owned`: the resources with
    owners; only their records can name clients that were deposed.
    """
    keys = [wish.key for wish in request.wishes]
    principal = len(request.principal.encode())
    size = sum(
        (_RECORD_BYTES if key in owned else _FREE_RECORD_BYTES) + principal + _TIMES * len(key.topic) for key in keys
    )
    return size > BATCH_BYTES


def too_large(request: Request, change: Change) -> ClaimVerdict | None:
    """Return the refusal of a grant that does not fit into one batch; None if it fits."""
    records = records_of(change)
    size = encoded_size(records)
    if len(records) > CHANGE_RECORDS:
        message = f"this request changes {len(records)} claims, {CHANGE_RECORDS} is the limit: claim fewer at once"
    elif size > BATCH_BYTES:
        message = f"the claims of this request take {size} bytes, {BATCH_BYTES} are the limit: claim fewer at once"
    else:
        return None
    return refuse_all(request, control.INVALID_REQUEST, message)
