"""The coordinator of free strings and reader claims: the room's interface on every node. It writes grants, releases and
the ends of sessions to the log.

The rules are in `claim_table`, the right to write in `lease` and `epoch`, the order of what is written in `commits`.
This module connects them with connections and sessions. All of it runs in one event loop. It sends no answers: the
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
_ENDED_AT_ONCE: Final = 500
"""About how many claims, and places, of a session that has ended are released at a time."""


class Coordinator:
    """Grants and releases claims. `state`: what this node knows of them, and its listeners. `lease`: the right to
    coordinate.
    """

    def __init__(self, state: ClaimsState) -> None:
        self.state = state
        self.lease = CoordinatorLease(state, self._pass_time)

    @property
    def coordinates(self) -> bool:
        """Whether this node coordinates."""
        return self.state.coordinates

    async def ready(self) -> None:
        """See `CoordinatorLease.ready`."""
        await self.lease.ready()

    # Claiming -----------------------------------------------------------------------------------------------------

    def look(self, request: Request) -> ClaimVerdict:
        """Return the verdict on a request, by the claims that are in the log. Changes nothing."""
        if self.state.epoch is None:
            return ClaimVerdict(Prospect.BUSY)
        verdict = self.state.table.judge(request)
        if verdict.prospect is Prospect.READY and may_be_too_large(request, self.state.table.owners):
            change = self.state.table.grant(request, verdict, self.state.wall_ms(), _LONGEST_ADDRESS)
            return too_large(request, change) or verdict
        return verdict

    async def take(self, asker: Asker, request: Request) -> ClaimVerdict:
        """Judge a request again, and if it is READY, write its claims. Returns once this node's view has them, or 10 s
        after they are in the log.

        Closes the connections of deposed sessions. Any other verdict changes nothing. Raises `KafkaError` 6
        NOT_LEADER_OR_FOLLOWER if this node no longer coordinates, 5 LEADER_NOT_AVAILABLE if nothing can be claimed now.
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
        """Return the verdict on a request whose turn has come, and its change."""
        if not self._may_hold(asker, request.session):
            return ClaimVerdict(Prospect.BUSY), _NOTHING  # the client is disconnected and cannot get the answer
        verdict = self.state.table.judge(request)
        if verdict.prospect is not Prospect.READY:
            return verdict, _NOTHING
        change = self.state.table.grant(request, verdict, self.state.wall_ms(), asker.address)
        refusal = too_large(request, change)
        return (verdict, change) if refusal is None else (refusal, _NOTHING)

    def wait(self, asker: Asker, request: Request) -> ClaimVerdict:
        """Enter a request into all of its queues unless it is refused, and return the verdict.
        A READY request is entered too: it waits for resources of another room, and later requests must not overtake it.
        It stays in the queues until `leave`, or the end of the session.

        Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if this node no longer coordinates.
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
        """Return whether a request is in the queues."""
        return token in self.state.table.waiting.by_token

    def leave(self, tokens: Iterable[bytes]) -> None:
        """Remove requests from their queues; ignores those that are in none."""
        self.state.happened(self.state.table.leave(tokens))

    async def release(self, token: bytes, keys: Collection[Key] | None = None) -> None:
        """Release the token's claims to `keys`, or all its claims and queue places; may be repeated.

        Returns once the release is in the log. Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if this node no longer
        coordinates, 5 LEADER_NOT_AVAILABLE if it cannot be written now.
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
        """Return the keys that a token was granted, or waited for, and lost, as far as this node has read the log."""
        return self.state.lost.of(token)

    def bind(self, asker: Asker, session: str) -> None:
        """Note that a connection speaks for a session (Own, Watch). Raises `KafkaError` 42 INVALID_REQUEST beyond 1,000
        sessions.
        """
        self.state.sessions.bind(asker, session)

    def connection_closed(self, connection: int) -> None:
        """Note that a client's connection has closed; end the sessions that end with it."""
        self.end(self.state.sessions.closed(connection, self.state.now()))
        self.lease.wake()  # a session's grace may end before the next tick

    def end(self, sessions: Iterable[str]) -> None:
        """End sessions: release their claims and queue places, and retry until the release is in the log."""
        for session in sessions:
            if self.state.table.has_anything(session):
                self.state.over[session] = False
                self._let_end(session)

    def _pass_time(self) -> None:
        """End the sessions whose grace is over, and retry those whose release failed."""
        self.end(self.state.sessions.overdue(self.state.now()))
        for session, under_way in list(self.state.over.items()):
            if not under_way:
                self._let_end(session)

    def _let_end(self, session: str) -> None:
        """Release a part of a session's claims, whole requests, and of its places; then the next part."""
        if self.state.commits is None:
            return
        self.state.over[session] = True
        touched = partial(self.state.table.keys_of_session, session, _ENDED_AT_ONCE)
        places = self.state.table.waiting.of_session(session, _ENDED_AT_ONCE)

        def decide() -> Change:
            if self.state.sessions.is_present(session):
                return _NOTHING  # it has reconnected
            self.leave(places)
            return self.state.table.release(touched())

        def over(_: Offset | None, error: KafkaError | None) -> None:
            if error is not None:
                if session in self.state.over:
                    self.state.over[session] = False
            elif self.state.sessions.is_present(session) or not self.state.table.has_anything(session):
                self.state.over.pop(session, None)
            else:
                self._let_end(session)

        weight = _ENDED_AT_ONCE if places else 0
        work = Work(touched, decide, self._let_go, over, session=session, ends_session=True, weight=weight)
        self.state.commits.submit(work)

    def _writing(self) -> Commits:
        if self.state.commits is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not coordinate claims")
        return self.state.commits

    @staticmethod
    def _awaited() -> asyncio.Future[Offset | None]:
        return asyncio.get_running_loop().create_future()

    async def _seen(self, last: Offset | None) -> None:
        """Wait until this node's view has the record at `last`, for at most 10 s."""
        if last is not None:
            with suppress(TimeoutError, ChangelogError):  # it is in the log, so the answer is sent anyway
                await self.state.services.changelog.tailer.reached(last, timeout=_SEEN_S)

    def _count(self, verdict: ClaimVerdict) -> None:
        if verdict.prospect is Prospect.READY:
            return  # counted once it is in the log
        errors = {each.error for each in verdict.ownerships if each.error} - {control.TIMED_OUT}
        outcome = control.Error.Name(min(errors)).lower() if errors else "waiting"
        if verdict.prospect is not Prospect.BUSY:
            self.state.events.claims_answered(outcome, len(verdict.ownerships))

    def _may_hold(self, asker: Asker, session: str) -> bool:
        return asker.is_alive() if Session(session).is_plain else self.state.sessions.is_present(session)

    def _granted(self, asker: Asker, change: Change) -> None:
        """Apply a grant that is in the log, and close the connections of the sessions that it deposed."""
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
        """Apply a release that is in the log."""
        effects = self.state.table.apply(change)
        self.state.events.claims_answered("released", len(effects.lost))
        if effects.lost:
            _, claim = effects.lost[0]
            self.state.events.claims_let_go(_text(claim), len(effects.lost), claim.session)
        self.state.happened(effects)


def _settle(done: asyncio.Future[Offset | None], last: Offset | None, error: KafkaError | None) -> None:
    """Set the result of a future that waits for the end of work, unless it is cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(last)
    else:
        done.set_exception(error)


def _text(claim: state.Claim) -> str:
    """Return a text for the claim's resource, for people."""
    resource = claim.resource
    name = resource.name or resource.topic
    part = f"/{resource.partition}" if resource.HasField("partition") else ""
    return f"{claim.group}:{name}{part}" if claim.group else f"{name}{part}"
