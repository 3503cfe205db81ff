"""Free strings and reader claims: what follows from each event. Pure: no I/O, no clock; the coordinator carries it out.

State: the claim table (owners, and requests that wait), the sessions with their connections and graces, the tokens that
lost claims, and the sessions that are ending. A method is an event:

| event | what follows |
|---|---|
| `waits`: a request takes a place in each of its queues | *news* for requests whose turn has come |
| `left`: requests are withdrawn, or nobody asks for them any more | *news*, as above |
| `decide`: the turn of a `Claim`, `Release` or `End` to be stored has come | its `Change`, to be appended; *news* |
| `stored`: its change is in the log | *news*; deposed sessions' connections are *severed*; an `End` |
| `ended`: it is stored, or failed | for an `End`: the next part of the session, or another try when time passes |
| `closed`: a client's connection closed | an `End` for each session that has neither connection nor grace |
| `time_passed` | an `End` for each session whose grace is over, and for each whose release failed |
| `opened`: this node coordinates | sessions without a connection have a grace |
| `lost_right`: it does no more | the table is empty; the coordinator reports to every token of the former one |
| `record_read`: a record of the changelog shows another owner | the token has lost the claim |

*News* (`News`: the request of a token is judged again) and connections to close (`Sever`) are put into the queue
`events`, in their order. All else is returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeAlias

from sidecar.access.prospects import Prospect
from sidecar.changelog import Key
from sidecar.resources.claim_table import Change, ClaimTable, Effects
from sidecar.resources.limits import ClaimLimits, may_be_too_large, too_large
from sidecar.resources.requests import BUSY, ClaimVerdict, Request
from sidecar.resources.sessions import Sessions
from sidecar.resources.waiting import LostTokens
from sidecar.v1 import state_pb2 as state

_LONGEST_ADDRESS: Final = "?" * 256
_NOTHING: Final = Change()
ENDED_AT_ONCE: Final = 500
"""About how many claims, and places, of a session that has ended are released at a time."""


class News(NamedTuple):
    """The turn of a token's request has come, it lost these claims or its places, or this node coordinates no more."""

    token: bytes
    lost: Collection[Key]


class Sever(NamedTuple):
    """A connection whose session lost claims is to be closed."""

    connection: int


@dataclass(slots=True, eq=False)
class Claim:
    """A request of a connection, to be granted. `address`: the client's, for people; `verdict`: the decision when its
    turn has come.
    """

    request: Request
    connection: int
    address: str
    verdict: ClaimVerdict = BUSY

    @property
    def token(self) -> bytes:
        return self.request.token

    @property
    def session(self) -> str:
        return self.request.session


@dataclass(frozen=True, slots=True)
class Release:
    """The token's claims to `keys` are to be released; None: all its claims and places."""

    token: bytes
    keys: Collection[Key] | None = None
    session: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class End:
    """A part of an ended session's claims, whole requests, is to be released, and of its `places`."""

    session: str
    places: Collection[bytes] = ()
    token: ClassVar[bytes] = b""


Intent: TypeAlias = Claim | Release | End


class Stored(NamedTuple):
    """What follows from a change that is in the log. `lost`: claims that their tokens lost, with their keys; `deposed`:
    a claim of each session that was deposed.
    """

    lost: list[tuple[Key, state.Claim]]
    deposed: Mapping[str, state.Claim]
    ends: list[End]


class Claims:
    """The claims as the coordinator knows them. `over`: sessions that ended but still own something or wait, and
    whether their release is being stored. Times are monotonic seconds, `now_ms` is Unix time.
    """

    def __init__(self, limits: ClaimLimits, disconnect_grace: float) -> None:
        self.limits = limits
        self.sessions = Sessions(disconnect_grace)
        self.lost = LostTokens()
        self.over: dict[str, bool] = {}
        self.events: asyncio.Queue[News | Sever] = asyncio.Queue()
        self.table = self.new_table()

    def new_table(self) -> ClaimTable:
        return ClaimTable(self.lost, self.limits)

    # Requests -----------------------------------------------------------------------------------------------------

    def look(self, request: Request, now_ms: int) -> ClaimVerdict:
        """Return the verdict on a request, by the claims that are in the log. Changes nothing."""
        verdict = self.table.judge(request)
        if verdict.prospect is Prospect.READY and may_be_too_large(request, self.table.owners):
            return too_large(request, self.table.grant(request, verdict, now_ms, _LONGEST_ADDRESS).records()) or verdict
        return verdict

    def waits(self, request: Request, now_ms: int) -> ClaimVerdict:
        """Enter a request into all of its queues unless it is refused. A READY request is entered too: it waits for
        resources of another room, and later requests must not overtake it.
        """
        verdict = self.look(request, now_ms)
        if verdict.prospect is not Prospect.REFUSED and self.table.has_room_for(request):
            self._report(self.table.wait(request, now_ms))
        return verdict

    def left(self, tokens: Iterable[bytes]) -> None:
        """Remove requests from their queues; ignores those that are in none."""
        self._report(self.table.leave(tokens))

    # Changes of owners --------------------------------------------------------------------------------------------

    def touched(self, intent: Intent) -> Collection[Key]:
        """Return the resources that a change concerns."""
        match intent:
            case Claim():
                return [wish.key for wish in intent.request.wishes]
            case Release(token, keys):
                owned = self.table.keys_of_token(token)
                return owned if keys is None else owned.intersection(keys)
            case End(session):
                return self.table.keys_of_session(session, ENDED_AT_ONCE)

    def decide(self, intent: Intent, now_ms: int) -> Change:
        """Return the change to append, empty if there is none."""
        match intent:
            case Claim():
                return self._grant(intent, now_ms)
            case Release(token):
                self.left([token])
            case End(session, places):
                if self.sessions.is_present(session):
                    return _NOTHING  # it has reconnected
                self.left(places)
        return self.table.release(self.touched(intent))

    def _grant(self, claim: Claim, now_ms: int) -> Change:
        request = claim.request
        if not self.sessions.is_present(request.session):
            return _NOTHING  # the client is disconnected and cannot get the answer
        claim.verdict = self.table.judge(request)
        if claim.verdict.prospect is not Prospect.READY:
            return _NOTHING
        change = self.table.grant(request, claim.verdict, now_ms, claim.address)
        claim.verdict = too_large(request, change.records()) or claim.verdict
        return change if claim.verdict.prospect is Prospect.READY else _NOTHING

    def stored(self, intent: Intent, change: Change) -> Stored:
        """Apply a change that is in the log."""
        effects = self.table.apply(change)
        self._report(effects)
        if not isinstance(intent, Claim):
            return Stored(effects.lost, {}, [])
        session = intent.session
        deposed = {claim.session: claim for _, claim in effects.lost if claim.session != session}
        for connection in (one for loser in deposed for one in self.sessions.connections(loser)):
            if connection != intent.connection:
                self.events.put_nowait(Sever(connection))
        return Stored(effects.lost, deposed, [] if self.sessions.is_present(session) else self._end([session]))

    def ended(self, end: End, *, failed: bool) -> list[End]:
        """A part of a session was released, or that failed: the next part, if there is one."""
        session = end.session
        if failed:
            if session in self.over:
                self.over[session] = False
            return []
        if self.sessions.is_present(session) or not self.table.has_anything(session):
            self.over.pop(session, None)
            return []
        return [self._part(session)]

    # Sessions -----------------------------------------------------------------------------------------------------

    def closed(self, connection: int, now: float) -> list[End]:
        """A client's connection has closed: the sessions that end with it."""
        return self._end(self.sessions.closed(connection, now))

    def time_passed(self, now: float) -> list[End]:
        """The sessions whose grace is over, and those whose release failed."""
        ended = self._end(self.sessions.overdue(now))
        return ended + [self._part(session) for session, under_way in self.over.items() if not under_way]

    def _end(self, sessions: Iterable[str]) -> list[End]:
        return [self._part(session) for session in sessions if self.table.has_anything(session)]

    def _part(self, session: str) -> End:
        self.over[session] = True
        return End(session, self.table.waiting.of_session(session, ENDED_AT_ONCE))

    # The right to coordinate, and the changelog -------------------------------------------------------------------

    def opened(self, table: ClaimTable, until: float) -> None:
        """The node coordinates, and has loaded the owners. Their sessions may come back until this time."""
        self.table = table
        self.sessions.wait_for(table.sessions(), until)

    def lost_right(self) -> ClaimTable:
        """The node coordinates no more. Returns the table of the former epoch: all of its tokens have news."""
        former, self.table = self.table, self.new_table()
        self.sessions.forget()
        self.over.clear()
        return former

    def record_read(self, key: Key, before: state.Claim, after: state.Claim | None) -> None:
        """The changelog has another record of a claim, or a tombstone."""
        if after is None or after.token != before.token:
            self.lost.add(before.token, [key])

    def _report(self, effects: Effects) -> None:
        """Put what follows for requests into `events`."""
        news: dict[bytes, list[Key]] = {}
        for key, claim in effects.lost:
            news.setdefault(claim.token, []).append(key)
        for token, keys in news.items():
            self.lost.add(token, keys)
        for waiting in effects.evicted:
            self.lost.add(waiting.token, [wish.key for wish in waiting.request.wishes])
        for waiting in (*effects.evicted, *effects.ready):
            news.setdefault(waiting.token, [])
        for item in news.items():
            self.events.put_nowait(News(*item))
