"""One append after the other, each with all that is ready by then: what is decided together is written in one batch.

Work waits in the order in which it came. Requests that touch nothing in common are decided on the same state of the
claim table and written as one batch, which is in the log as a whole or not at all. They are applied once it is. So
decisions see only what is in the log, and nothing has to be taken back.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
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
"""Half of what the ownership topic takes."""
BATCH_RECORDS: Final = 5_000
WORK_AT_ONCE: Final = 500
"""As much is decided before others have a turn: thousands of sessions may end at one moment."""
_LOOKED_AT: Final = 10_000
"""Resources that are looked at for one batch: what waits for others' turns must not hold up the loop."""
_RECORD_OVERHEAD: Final = 64
_RECORD_BYTES: Final = 5_120
"""More than a record has besides its resource: names of deposed sessions, the owner's, and the like."""
_TIMES: Final = 3
"""A resource is in the key, in the value, and its group besides."""


@dataclass(slots=True, eq=False)
class Work:
    """Something that changes owners. `touched` returns the resources it is about, `decide` what it changes now, nothing
    where it is done without. `session` and `token`: whose; "" and b"" for any. `ends_session`: it ends all that the
    session has. `claims`: it may claim, so that the arbiter has to be asked.

    Once its change is written down `apply` is called with that, then `over` with the offset of the last record of its
    batch, None where nothing was to be written. Where it came to nothing `over` gets the reason: surely not in the log,
    or this node coordinates no more.
    """

    touched: Callable[[], Collection[Key]]
    decide: Callable[[], Change]
    apply: Callable[[Change], None]
    over: Callable[[Offset | None, KafkaError | None], None]
    token: bytes = b""
    session: str = ""
    ends_session: bool = False
    claims: bool = False

    def written(self, change: Change, last: Offset | None) -> None:
        """Its change is in the log."""
        if change:
            self.apply(change)
        self.over(last, None)


@dataclass(slots=True)
class _Busy:
    """What work in front touches."""

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
    """About how many bytes these take in a batch."""
    size = 0
    for record in records:
        key, value = record.encode()
        size += _RECORD_OVERHEAD + len(key) + len(value or b"")
    return size


@dataclass(eq=False)
class Commits:
    """The appends of one coordinator epoch. `_confirm` is awaited in front of each batch that claims; what it raises
    fails the claims in it. `_broken` is called once it is not known any more what is in the log.
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
        """Decide and write it when its turn comes; it gets the outcome."""
        if self._closed is not None:
            work.over(None, self._closed)
            return
        self._queue.append(work)
        if self._idle.is_set():
            self._idle.clear()
            self._tasks.start(self._run())

    def close(self, error: KafkaError) -> None:
        """Nothing more is written; whatever waits fails with this."""
        self._closed = error
        while self._queue:
            self._queue.popleft().over(None, error)

    async def settled(self) -> None:
        """Returns when nothing is under way."""
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
        """The work that can go together, with what it changes; what needs no record is done."""
        batch: list[tuple[Work, Change]] = []
        busy, rest = _Busy(), deque[Work]()
        size = records = looked_at = 0
        for _ in range(min(len(self._queue), WORK_AT_ONCE)):
            if looked_at >= _LOOKED_AT:
                break
            work = self._queue.popleft()
            keys = work.touched()
            looked_at += 1 + len(keys)
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
        except (AppendRefusedError, RetryTimeoutError) as error:  # surely not in the log
            self._fail(batch, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"it could not be stored: {error}"))
        except Exception as error:  # noqa: BLE001  whatever it was, what is in the log is unknown
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
        """Without the claims where nobody may claim now."""
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
    """What a change is in the log. The owner comes first: a reader that sees that a partition's claim is gone finds
    what took its place, and severs by that.
    """
    return [*[Record(*item) for item in change.claims.items()], *[Record(key, None) for key in change.gone]]


def may_be_too_large(request: Request) -> bool:
    """Whether it is worth a look at what a request takes in the log."""
    return sum(_RECORD_BYTES + _TIMES * len(wish.key.topic) for wish in request.wishes) > BATCH_BYTES


def too_large(request: Request, change: Change) -> ClaimVerdict | None:
    """The refusal of a grant that does not fit into one batch; None where it does."""
    size = encoded_size(records_of(change))
    if size <= BATCH_BYTES:
        return None
    message = f"the claims of this request take {size} bytes, {BATCH_BYTES} are the limit: claim fewer at once"
    return refuse_all(request, control.INVALID_REQUEST, message)
