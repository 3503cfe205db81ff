"""What is written down by `commits`: a request that is granted, one that lets go, a session that ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.resources.book import Book, Change, Effects
from sidecar.resources.commits import BATCH_BYTES, encoded_size, records_of
from sidecar.resources.requests import Asker, Decision, Request, Verdict
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Collection

    from sidecar.changelog import Key
    from sidecar.protocol.errors import KafkaError
    from sidecar.protocol.ids import Offset

_NOTHING: Final = Change()
_RECORD_BYTES: Final = 5_120
"""More than a record has besides its resource: names of those who were deposed, the owner's, and the like."""
_TIMES: Final = 3
"""A resource is in the key, in the value, and its group besides."""


class Room(Protocol):
    """The coordinator as its work sees it."""

    book: Book

    def now(self) -> float: ...
    def wall_ms(self) -> int: ...
    def judge(self, request: Request) -> Verdict: ...
    def may_hold(self, asker: Asker, session: str) -> bool: ...
    def granted(self, asker: Asker, change: Change) -> None: ...
    def let_go(self, change: Change) -> None: ...
    def left(self, effects: Effects) -> None: ...
    def is_over(self, session: str) -> bool: ...
    def ended(self, session: str, *, written: bool) -> None: ...


def may_be_too_large(request: Request) -> bool:
    """Whether it is worth a look at what a request takes in the log."""
    return sum(_RECORD_BYTES + _TIMES * len(wish.key.topic) for wish in request.wishes) > BATCH_BYTES


def too_large(request: Request, change: Change) -> Verdict | None:
    """The refusal of a grant that does not fit into one batch; None where it does."""
    size = encoded_size(records_of(change))
    if size <= BATCH_BYTES:
        return None
    message = f"the claims of this request take {size} bytes, {BATCH_BYTES} are the limit: claim fewer at once"
    answers = [
        control.Ownership(resource=wish.resource, error=control.INVALID_REQUEST, message=message)
        for wish in request.wishes
    ]
    return Verdict(Decision.REFUSE, tuple(answers))


class Taking:
    """A request that shall be granted now. `done` gets the verdict, and the offset it stands at where it is new."""

    ends_session = False
    claims = True

    def __init__(self, room: Room, asker: Asker, request: Request) -> None:
        self.token = request.token
        self.session = request.session
        self.done: asyncio.Future[tuple[Verdict, Offset | None]] = asyncio.get_running_loop().create_future()
        self._room = room
        self._asker = asker
        self._request = request
        self._verdict = Verdict(Decision.BUSY)

    def touched(self) -> Collection[Key]:
        return [wish.key for wish in self._request.wishes]

    def decide(self) -> Change:
        room, request = self._room, self._request
        self._verdict = Verdict(Decision.BUSY)
        if not room.may_hold(self._asker, request.session):
            return _NOTHING  # nobody hears the answer
        self._verdict = room.judge(request)
        if self._verdict.decision is not Decision.GRANT:
            return _NOTHING
        change = room.book.grant(request, self._verdict, room.wall_ms(), self._asker.address)
        refusal = too_large(request, change)
        if refusal is not None:
            self._verdict = refusal
            return _NOTHING
        return change

    def written(self, change: Change, last: Offset | None) -> None:
        if change:
            self._room.granted(self._asker, change)
        if not self.done.done():
            self.done.set_result((self._verdict, last))

    def failed(self, error: KafkaError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Releasing:
    """A token lets go of some of its claims, or all and its places. `done` ends when it is written down."""

    ends_session = False
    claims = False
    session = ""

    def __init__(self, room: Room, token: bytes, keys: Collection[Key] | None) -> None:
        self.token = token
        self.done: asyncio.Future[Offset | None] = asyncio.get_running_loop().create_future()
        self._room = room
        self._keys = None if keys is None else frozenset(keys)

    def touched(self) -> Collection[Key]:
        owned = self._room.book.keys_of_token(self.token)
        return owned if self._keys is None else owned & self._keys

    def decide(self) -> Change:
        self._room.left(self._room.book.leave([self.token], self._room.now()))
        return self._room.book.release(self.touched())

    def written(self, change: Change, last: Offset | None) -> None:
        if change:
            self._room.let_go(change)
        if not self.done.done():
            self.done.set_result(last)

    def failed(self, error: KafkaError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Ending:
    """A session is over: it lets go of all it has, unless it came back meanwhile."""

    ends_session = True
    claims = False
    token = b""

    def __init__(self, room: Room, session: str) -> None:
        self.session = session
        self._room = room

    def touched(self) -> Collection[Key]:
        return self._room.book.keys_of_session(self.session)

    def decide(self) -> Change:
        room = self._room
        if not room.is_over(self.session):
            return _NOTHING
        room.left(room.book.leave([place.token for place in room.book.places_of(self.session)], room.now()))
        return room.book.release(room.book.keys_of_session(self.session))

    def written(self, change: Change, last: Offset | None) -> None:
        if change:
            self._room.let_go(change)
        self._room.ended(self.session, written=True)

    def failed(self, error: KafkaError) -> None:
        self._room.ended(self.session, written=False)
