"""The coordinator of free strings and reader claims, as one node is it or sees it: the room's interface. Behind it what
is written down: a request that is granted, one that lets go, a session that ended.

The rules are in `claim_table`, the right to write in `lease` and `epoch`, the order of what is written in `commits`.
This module brings connections and sessions to them. All of it runs in one event loop. It sends no answers: the
handler of a request asks `ready`, then `look`, then `take` or `wait`, and asks again when a listener of
`ClaimsState` is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from sidecar.access.prospects import Prospect
from sidecar.changelog import ChangelogError, Key
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset
from sidecar.protocol.session import Session
from sidecar.resources.claim_table import Change
from sidecar.resources.commits import Commits, Work, may_be_too_large, too_large
from sidecar.resources.lease import CoordinatorLease
from sidecar.resources.requests import Asker, ClaimVerdict, Request
from sidecar.resources.state import ClaimsState
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

_SEEN_S: Final = 10.0
_LONGEST_ADDRESS: Final = "?" * 256
_NOTHING: Final = Change()


class Coordinator:
    """Grants and takes back. `state`: what this node knows, and whom it notifies. `lease`: whether it coordinates."""

    def __init__(self, state: ClaimsState) -> None:
        self.state = state
        self.lease = CoordinatorLease(state, self._pass_time)

    @property
    def coordinates(self) -> bool:
        """Whether this node does."""
        return self.state.coordinates

    async def ready(self) -> None:
        """See `CoordinatorLease.ready`."""
        await self.lease.ready()

    # Claiming -----------------------------------------------------------------------------------------------------

    def look(self, request: Request) -> ClaimVerdict:
        """What would become of a request now, as far as it is written down. Changes nothing."""
        if self.state.epoch is None:
            return ClaimVerdict(Prospect.BUSY)
        verdict = self.state.table.judge(request)
        if verdict.prospect is Prospect.READY and may_be_too_large(request):
            change = self.state.table.grant(request, verdict, self.state.wall_ms(), _LONGEST_ADDRESS)
            return too_large(request, change) or verdict
        return verdict

    async def take(self, asker: Asker, request: Request) -> ClaimVerdict:
        """Judge again, and if it is READY write it down: with the ownerships, once this node's view has them.

        What was deposed by it is severed. Any other verdict changed nothing. Raises `KafkaError` 6
        NOT_LEADER_OR_FOLLOWER where this node coordinates no more, 5 LEADER_NOT_AVAILABLE where nothing can be claimed
        now.
        """
        commits, done = self._writing(), self._awaited()
        self.state.sessions.bind(asker, request.session)
        verdict = ClaimVerdict(Prospect.BUSY)

        def touched() -> Collection[Key]:
            return [wish.key for wish in request.wishes]

        def decide() -> Change:
            nonlocal verdict
            verdict, change = self._decide(asker, request)
            return change

        granted, over = partial(self._granted, asker), partial(_settle, done)
        commits.submit(Work(touched, decide, granted, over, request.token, request.session, claims=True))
        try:
            last = await done
        except KafkaError:
            self.state.events.claims_answered("unavailable", len(request.wishes))
            raise
        self._count(verdict)
        await self._seen(last)
        return verdict

    def _decide(self, asker: Asker, request: Request) -> tuple[ClaimVerdict, Change]:
        """What becomes of a request whose turn it is."""
        if not self._may_hold(asker, request.session):
            return ClaimVerdict(Prospect.BUSY), _NOTHING  # nobody hears the answer
        verdict = self.state.table.judge(request)
        if verdict.prospect is not Prospect.READY:
            return verdict, _NOTHING
        change = self.state.table.grant(request, verdict, self.state.wall_ms(), asker.address)
        refusal = too_large(request, change)
        return (verdict, change) if refusal is None else (refusal, _NOTHING)

    def wait(self, asker: Asker, request: Request) -> ClaimVerdict:
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
        commits, done = self._writing(), self._awaited()

        def touched() -> Collection[Key]:
            owned = self.state.table.keys_of_token(token)
            return owned if keys is None else owned.intersection(keys)

        def decide() -> Change:
            self.leave([token])
            return self.state.table.release(touched())

        commits.submit(Work(touched, decide, self._let_go, partial(_settle, done), token))
        await self._seen(await done)

    def lost_by(self, token: bytes) -> Collection[Key]:
        """What a request was granted, or waited for, and lost, as far as this node has seen it."""
        return self.state.lost.of(token)

    def bind(self, asker: Asker, session: str) -> None:
        """A connection shows that a session lives (Own, Watch). Raises `KafkaError` 42 INVALID_REQUEST beyond 1,000
        sessions.
        """
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

    def _pass_time(self) -> None:
        """End the sessions that did not come back, and those that could not be ended when they were over."""
        self.end(self.state.sessions.overdue(self.state.now()))
        for session, under_way in list(self.state.over.items()):
            if not under_way:
                self._let_end(session)

    def _let_end(self, session: str) -> None:
        if self.state.commits is None:
            return
        self.state.over[session] = True
        touched = partial(self.state.table.keys_of_session, session)

        def decide() -> Change:
            if self.state.sessions.is_present(session):
                return _NOTHING  # it came back meanwhile
            self.leave(self.state.table.waiting.of_session(session))
            return self.state.table.release(touched())

        def over(_: Offset | None, error: KafkaError | None) -> None:
            if error is None:
                self.state.over.pop(session, None)
            elif session in self.state.over:
                self.state.over[session] = False

        self.state.commits.submit(Work(touched, decide, self._let_go, over, session=session, ends_session=True))

    def _writing(self) -> Commits:
        if self.state.commits is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not coordinate claims")
        return self.state.commits

    @staticmethod
    def _awaited() -> asyncio.Future[Offset | None]:
        return asyncio.get_running_loop().create_future()

    async def _seen(self, last: Offset | None) -> None:
        """What was answered is in force on this node."""
        if last is not None:
            with suppress(TimeoutError, ChangelogError):  # it is written down, so it is answered all the same
                await self.state.services.changelog.tailer.reached(last, timeout=_SEEN_S)

    def _count(self, verdict: ClaimVerdict) -> None:
        if verdict.prospect is Prospect.READY:
            return  # counted when it was written down
        errors = {each.error for each in verdict.ownerships if each.error} - {control.TIMED_OUT}
        outcome = control.Error.Name(min(errors)).lower() if errors else "waiting"
        if verdict.prospect is not Prospect.BUSY:
            self.state.events.claims_answered(outcome, len(verdict.ownerships))

    def _may_hold(self, asker: Asker, session: str) -> bool:
        return asker.is_alive() if Session(session).is_plain else self.state.sessions.is_present(session)

    def _granted(self, asker: Asker, change: Change) -> None:
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
        if not self._may_hold(asker, request.session):
            self.end([request.session])

    def _let_go(self, change: Change) -> None:
        """A release is written down."""
        effects = self.state.table.apply(change)
        self.state.events.claims_answered("released", len(effects.lost))
        if effects.lost:
            _, claim = effects.lost[0]
            self.state.events.claims_let_go(_text(claim), len(effects.lost), claim.session)
        self.state.happened(effects)


def _settle(done: asyncio.Future[Offset | None], last: Offset | None, error: KafkaError | None) -> None:
    """For one that waits for the end of work, unless it is gone."""
    if done.done():
        return
    if error is None:
        done.set_result(last)
    else:
        done.set_exception(error)


def _text(claim: state.Claim) -> str:
    """A resource, for people."""
    resource = claim.resource
    name = resource.name or resource.topic
    part = f"/{resource.partition}" if resource.HasField("partition") else ""
    return f"{claim.group}:{name}{part}" if claim.group else f"{name}{part}"
