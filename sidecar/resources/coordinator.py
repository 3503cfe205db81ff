"""The coordinator of free strings and reader claims, as one node is it or sees it: the room's interface. Behind it what
is written down: a request that is granted, one that lets go, a session that ended.

The rules are in `claim_table`, the right to write in `lease` and `epoch`, the order of what is written in `commits`.
This module brings connections and sessions to them. All of it runs in one event loop. It sends no answers: the
handler of a request asks `ready`, then `look`, then `take` or `wait`, and asks again when a listener of
`ClaimsState` is called.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.access.prospects import Prospect
from sidecar.access.sessions import is_plain
from sidecar.changelog import ChangelogError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.claim_table import Change
from sidecar.resources.commits import Commits, Work, may_be_too_large, too_large
from sidecar.resources.lease import CoordinatorLease
from sidecar.resources.requests import Verdict
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sidecar.changelog import Key
    from sidecar.protocol.ids import Offset
    from sidecar.resources.requests import Asker, Request
    from sidecar.resources.state import ClaimsState

_SEEN_S: Final = 10.0
_LONGEST_ADDRESS: Final = "?" * 256
_NOTHING: Final = Change()


class Coordinator:
    """Grants and takes back. `state`: what this node knows, and whom it notifies. `lease`: whether it coordinates."""

    def __init__(self, state: ClaimsState) -> None:
        self.state = state
        self.lease = CoordinatorLease(state, self)

    @property
    def coordinates(self) -> bool:
        """Whether this node does."""
        return self.state.coordinates

    async def ready(self) -> None:
        """See `CoordinatorLease.ready`."""
        await self.lease.ready()

    # Claiming -----------------------------------------------------------------------------------------------------

    def look(self, request: Request) -> Verdict:
        """What would become of a request now, as far as it is written down. Changes nothing."""
        if self.state.epoch is None:
            return Verdict(Prospect.BUSY)
        verdict = self.state.table.judge(request)
        if verdict.prospect is Prospect.READY and may_be_too_large(request):
            change = self.state.table.grant(request, verdict, self.state.wall_ms(), _LONGEST_ADDRESS)
            return too_large(request, change) or verdict
        return verdict

    async def take(self, asker: Asker, request: Request) -> Verdict:
        """Judge again, and if it is READY write it down: with the ownerships, once this node's view has them.

        What was deposed by it is severed. Any other verdict changed nothing. Raises `KafkaError` 6 where this node
        coordinates no more, 5 where nothing can be claimed now.
        """
        commits = self._writing()
        self.state.sessions.bind(asker, request.session)
        work = Taking(self, asker, request)
        commits.submit(work)
        try:
            last = await work.done
        except KafkaError:
            self.state.events.claims_answered("unavailable", len(request.wishes))
            raise
        self._count(work.verdict)
        await self._seen(last)
        return work.verdict

    def wait(self, asker: Asker, request: Request) -> Verdict:
        """Take a place in every queue of a request, or keep those it has, where it is not refused; return the verdict.
        One that could have all waits for something of another room: a later one does not overtake it. The places
        are kept until `leave`, or the end of the session.

        Raises `KafkaError` 6 where this node coordinates no more.
        """
        self._writing()
        verdict = self.look(request)
        if verdict.prospect is Prospect.WAIT or (
            verdict.prospect is Prospect.READY and self.state.table.has_room_for(request)
        ):
            self.state.sessions.bind(asker, request.session)
            if request.token not in self.state.table.waiting.by_token:
                self._count(verdict)
            self.state.happened(self.state.table.wait(request, self.state.wall_ms()))
        return verdict

    def is_waiting(self, token: bytes) -> bool:
        """Whether a request has places."""
        return token in self.state.table.waiting.by_token

    def leave(self, tokens: Iterable[bytes]) -> None:
        """Give up the places of requests; harmless without any."""
        self.state.happened(self.state.table.leave(tokens))

    async def release(self, token: bytes, keys: Collection[Key] | None = None) -> None:
        """Let go of the token's claims to these, or of all its claims and places; harmless again.

        Returns once that is written down. Raises `KafkaError` 6 where this node coordinates no more, 5 where it cannot
        be written now.
        """
        work = Releasing(self, token, keys)
        self._writing().submit(work)
        await self._seen(await work.done)

    def lost_by(self, token: bytes) -> Collection[Key]:
        """What a request was granted, or waited for, and lost, as far as this node has seen it."""
        return self.state.lost.of(token)

    def bind(self, asker: Asker, session: str) -> None:
        """A connection shows that a session lives (Own, Watch). Raises `KafkaError` 42 beyond 1,000 sessions."""
        self.state.sessions.bind(asker, session)

    def connection_closed(self, connection: int) -> None:
        """A client's connection is gone."""
        self.end(self.state.sessions.closed(connection, self.state.now()))
        self.lease.wake()  # one that is waited for may be over before the next tick

    def end(self, sessions: Iterable[str]) -> None:
        """These are over: what they have is let go of, tried again until that is written down."""
        for session in sessions:
            if self.state.table.keys_of_session(session) or self.state.table.waiting.of_session(session):
                self.state.over[session] = False
                self._let_end(session)

    def end_again(self) -> None:
        """Those that could not be ended when they were over."""
        for session, under_way in list(self.state.over.items()):
            if not under_way:
                self._let_end(session)

    def _let_end(self, session: str) -> None:
        if self.state.commits is not None:
            self.state.over[session] = True
            self.state.commits.submit(Ending(self, session))

    def _writing(self) -> Commits:
        if self.state.commits is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not coordinate claims")
        return self.state.commits

    async def _seen(self, last: Offset | None) -> None:
        """What was answered is in force on this node."""
        if last is not None:
            with suppress(TimeoutError, ChangelogError):  # it is written down, so it is answered all the same
                await self.state.services.changelog.tailer.reached(last, timeout=_SEEN_S)

    def _count(self, verdict: Verdict) -> None:
        if verdict.prospect is Prospect.READY:
            return  # counted when it was written down
        errors = {each.error for each in verdict.ownerships if each.error} - {control.TIMED_OUT}
        outcome = control.Error.Name(min(errors)).lower() if errors else "waiting"
        if verdict.prospect is not Prospect.BUSY:
            self.state.events.claims_answered(outcome, len(verdict.ownerships))

    # What its work needs ----------------------------------------------------------------------------------------

    def may_hold(self, asker: Asker, session: str) -> bool:
        return asker.is_alive() if is_plain(session) else self.state.sessions.is_present(session)

    def is_over(self, session: str) -> bool:
        return not self.state.sessions.is_present(session)

    def granted(self, asker: Asker, change: Change) -> None:
        """A grant is written down: it is in force, and those that lost by it are cut off."""
        request = change.request
        assert request is not None
        effects = self.state.table.apply(change)
        deposed = {claim.session: claim for _, claim in effects.lost if claim.session != request.session}
        first = next(iter(change.claims.values()))
        loser = next(iter(deposed.values()), None)
        self.state.events.claims_answered("granted", len(change.claims))
        if deposed:
            self.state.events.claims_answered("lost", sum(claim.session in deposed for _, claim in effects.lost))
        self.state.events.claims_granted(
            _text(first), len(change.claims), first.generation, request.session, loser.session if loser else None
        )
        self.state.happened(effects)
        for session in deposed:
            for other in self.state.sessions.askers(session):
                if other.connection_id != asker.connection_id:
                    other.sever()
        if not self.may_hold(asker, request.session):
            self.end([request.session])

    def ended(self, session: str, *, written: bool) -> None:
        if written:
            self.state.over.pop(session, None)
        elif session in self.state.over:
            self.state.over[session] = False

    def let_go(self, change: Change) -> None:
        """A release is written down."""
        effects = self.state.table.apply(change)
        self.state.events.claims_answered("released", len(effects.lost))
        if effects.lost:
            _, claim = effects.lost[0]
            self.state.events.claims_let_go(_text(claim), len(effects.lost), claim.session)
        self.state.happened(effects)


class Taking(Work):
    """A request that shall be granted now."""

    claims = True

    def __init__(self, room: Coordinator, asker: Asker, request: Request) -> None:
        super().__init__()
        self.token = request.token
        self.session = request.session
        self.verdict = Verdict(Prospect.BUSY)
        self._room = room
        self._asker = asker
        self._request = request

    def touched(self) -> Collection[Key]:
        return [wish.key for wish in self._request.wishes]

    def decide(self) -> Change:
        room, request = self._room, self._request
        self.verdict = Verdict(Prospect.BUSY)
        if not room.may_hold(self._asker, request.session):
            return _NOTHING  # nobody hears the answer
        self.verdict = room.state.table.judge(request)
        if self.verdict.prospect is not Prospect.READY:
            return _NOTHING
        change = room.state.table.grant(request, self.verdict, room.state.wall_ms(), self._asker.address)
        refusal = too_large(request, change)
        if refusal is not None:
            self.verdict = refusal
            return _NOTHING
        return change

    def apply(self, change: Change) -> None:
        self._room.granted(self._asker, change)


class Releasing(Work):
    """A token lets go of some of its claims, or all and its places."""

    def __init__(self, room: Coordinator, token: bytes, keys: Collection[Key] | None) -> None:
        super().__init__()
        self.token = token
        self._room = room
        self._keys = None if keys is None else frozenset(keys)

    def touched(self) -> Collection[Key]:
        owned = self._room.state.table.keys_of_token(self.token)
        return owned if self._keys is None else owned & self._keys

    def decide(self) -> Change:
        self._room.leave([self.token])
        return self._room.state.table.release(self.touched())

    def apply(self, change: Change) -> None:
        self._room.let_go(change)


class Ending(Work):
    """A session is over: it lets go of all it has, unless it came back meanwhile."""

    ends_session = True

    def __init__(self, room: Coordinator, session: str) -> None:
        super().__init__()
        self.session = session
        self._room = room

    def touched(self) -> Collection[Key]:
        return self._room.state.table.keys_of_session(self.session)

    def decide(self) -> Change:
        if not self._room.is_over(self.session):
            return _NOTHING
        self._room.leave(self._room.state.table.waiting.of_session(self.session))
        return self._room.state.table.release(self.touched())

    def apply(self, change: Change) -> None:
        self._room.let_go(change)

    def written(self, change: Change, last: Offset | None) -> None:
        super().written(change, last)
        self._room.ended(self.session, written=True)

    def failed(self, error: KafkaError) -> None:
        self._room.ended(self.session, written=False)


def _text(claim: state.Claim) -> str:
    """A resource, for people."""
    resource = claim.resource
    name = resource.name or resource.topic
    part = f"/{resource.partition}" if resource.HasField("partition") else ""
    return f"{claim.group}:{name}{part}" if claim.group else f"{name}{part}"
