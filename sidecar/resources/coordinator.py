"""The coordinator of free strings and reader claims, as one node is it or sees it: the room's interface.

The rules are in `book`, the right to write in `term`, the order of what is written in `commits`; this module brings
connections, sessions, time and the changelog together. All of it runs in one event loop. It answers nobody: whoever
handles a request asks `ready`, then `look`, then `take` or `wait`, and asks again when `told` or `changed` says so.

Safety is Kafka's: a claim counts once its record is in the ownership topic under the newest epoch of the slot of
`__claims`. A coordinator that was replaced without knowing cannot append any more; when it finds out, it severs the
connections whose claims ended with its term. Redis is asked who coordinates, and once more in front of each batch that
claims: while it is away nothing new is claimed, and what is owned stays.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from metadata import MetadataUnavailable
from metadata.nodes import ServeStatus
from sidecar.changelog import ChangelogError, Kind, serving_key
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.book import Book, Change, Effects, shown
from sidecar.resources.commits import Commits
from sidecar.resources.memory import LostTokens
from sidecar.resources.requests import Decision, Verdict, resource_of
from sidecar.resources.sessions import Sessions, ends_with_connection
from sidecar.resources.term import CLAIMS, keep_alive, keep_alive_interval, open_term
from sidecar.resources.work import Ending, Releasing, Taking, may_be_too_large, too_large
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable

    from sidecar.changelog import Change as LogChange
    from sidecar.changelog import Entry, Key
    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.network.tasks import Tasks
    from sidecar.protocol.ids import Offset
    from sidecar.resources.requests import Asker, Request
    from sidecar.resources.term import Surroundings, Term

CLAIMS_LIMIT: Final = 100_000
PLACES_LIMIT: Final = 100_000
_NAME: Final = CLAIMS.encode()
_SERVING: Final = serving_key(CLAIMS)
_SEEN_S: Final = 10.0
_TICK_S: Final = 0.5
_LAPSED_AT_ONCE: Final = 100
_AGAIN_S: Final = 5.0
_DRAIN_S: Final = 5.0
_KEPT_ALIVE_SHARE: Final = 0.8
_LONGEST_ADDRESS: Final = "?" * 256
_NOT_NOW: Final = (FencedError, KafkaError, ChangelogError, UpstreamError, TimeoutError)


class Hooks(Protocol):
    """What the room tells: for metrics and logs."""

    def claims_answered(self, outcome: str, resources: int) -> None:
        """`outcome`: granted, released, lost, ended, or the name of an error in lower case."""
        ...

    def claims_granted(self, resource: str, resources: int, generation: int, session: str, deposed: str | None) -> None:
        """A request was granted: its first resource, how many, and who was deposed for it."""
        ...

    def claims_let_go(self, resource: str, resources: int, session: str) -> None: ...
    def coordinator_changed(self, coordinates: bool, claims: int, reason: str) -> None: ...
    def claims_failed(self, error: BaseException) -> None: ...


class Coordinator:
    """Who owns free strings and reader claims. Times in seconds.

    `changed` hears of every resource whose owner or queue changed on the coordinator; `told` of every token that has
    something to fetch: its turn has come, it lost a claim or its places, or this node coordinates no more.
    """

    def __init__(
        self,
        around: Surroundings,
        nodes: NodeDirectory,
        tasks: Tasks,
        hooks: Hooks,
        *,
        reconnect_grace: float,
        disconnect_grace: float,
        queue_limit: int,
        claims_limit: int = CLAIMS_LIMIT,
        places_limit: int = PLACES_LIMIT,
    ) -> None:
        """`queue_limit`: places per resource; `claims_limit`, `places_limit`: of all resources together."""
        self.changed: list[Callable[[Key], None]] = []
        self.told: list[Callable[[bytes], None]] = []
        self._around = around
        self._nodes = nodes
        self._tasks = tasks
        self._hooks = hooks
        self._reconnect_grace = reconnect_grace
        self._limits = {"queue_limit": queue_limit, "claims_limit": claims_limit, "places_limit": places_limit}
        self._sessions = Sessions(disconnect_grace)
        self._lost = LostTokens()
        self._over: dict[str, bool] = {}
        """Sessions that ended and have something still; whether that is being written down."""
        self._serving = False
        self._draining = False
        self._term: Term | None = None
        self._commits: Commits | None = None
        self._opening: asyncio.Task[KafkaError | None] | None = None
        self._fenced_at = self._fence_due = 0.0
        self._woken = asyncio.Event()
        self.book = self._new_book()
        self._unsubscribe = around.changelog.tailer.subscribe(self._logged)

    # Who coordinates ----------------------------------------------------------------------------------------------

    @property
    def coordinates(self) -> bool:
        """Whether this node does."""
        return self._term is not None

    @property
    def node(self) -> int | None:
        """The node that coordinates, or would be the first to; None while none lives."""
        if self._term is not None:
            return self._around.node_id
        placement = self._nodes.placement
        serving = self._nodes.serving.get(_NAME)
        found = serving if serving in placement.nodes else placement.of_topic(_NAME)
        return None if self._draining and found == self._around.node_id else found

    async def ready(self) -> None:
        """Return once this node coordinates; become it where nobody does and this node is the first in line.

        Raises `KafkaError` 6 where another node does or should (`node` says which), 5 where nobody can now.
        """
        while self._term is None:
            if self._draining:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node shuts down")
            if self._opening is None:
                self._opening = self._tasks.start(self._try_to_open())
            refusal = await asyncio.shield(self._opening)
            if refusal is not None:
                raise KafkaError(refusal.code, refusal.message)

    async def _try_to_open(self) -> KafkaError | None:
        """For all who ask at the same moment: why this node does not coordinate; None where it does."""
        try:
            await self._open()
        except KafkaError as error:
            return error
        finally:
            self._opening = None
        return None

    async def _open(self) -> None:
        me = self._around.node_id
        if self.node != me:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.node} coordinates claims")
        await self._take_lease()
        self._serving = True
        began = self.now()
        try:
            term = await open_term(self._around)
        except _NOT_NOW as error:
            self._serving = False
            self._hooks.claims_failed(error)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the claims are being taken over; try again") from None
        if not self._serving or self._draining or self._is_outdated(term):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "another node took the claims over; try again")
        self._begin(term, began)

    async def _take_lease(self) -> None:
        """Ask for the right to coordinate. Raises `KafkaError` 5, 6."""
        around = self._around
        serving = around.changelog.view.serving(CLAIMS)
        last_node = serving.value.node if serving is not None else None
        try:
            answer = await around.store.serve(CLAIMS, around.node_id, around.boot, last_node=last_node)
        except MetadataUnavailable:
            message = "nothing can be claimed while Redis is away; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None
        if answer.status is ServeStatus.HELD and answer.holder is not None:
            self._nodes.serving[_NAME] = answer.holder.node_id
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {answer.holder.node_id} coordinates claims")
        if answer.status is not ServeStatus.GRANTED:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "who coordinates claims is not settled yet; try again")
        self._nodes.serving[_NAME] = around.node_id

    def _begin(self, term: Term, began: float) -> None:
        self._term, self._fenced_at, self._fence_due = term, began, 0.0
        self.book = self._new_book()
        self.book.load(term.claims.items())
        self._commits = Commits(term.journal, self._tasks, self._confirm, self._broken)
        self._sessions.wait_for(self.book.sessions(), self.now() + self._reconnect_grace)
        self._hooks.coordinator_changed(True, len(term.claims), "")
        self._woken.set()

    async def _confirm(self) -> None:
        """The right to coordinate still holds. Raises `KafkaError`; another node having it ends the term."""
        try:
            await self._take_lease()
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._step_down(error.message or "")
            raise

    def _broken(self, error: BaseException) -> None:
        self._hooks.claims_failed(error)
        self._step_down(str(error))

    def _is_outdated(self, term: Term) -> bool:
        """Another node has opened a term behind this one."""
        serving = self._around.changelog.view.serving(CLAIMS)
        return serving is not None and serving.writer != term.stamp

    def _step_down(self, reason: str) -> None:
        """The term is over. What connections own by themselves ended with it: they shall not believe otherwise."""
        term, commits, book = self._term, self._commits, self.book
        self._serving = False
        if term is None or commits is None:
            return
        self._term, self._commits, self.book = None, None, self._new_book()
        if self._nodes.serving.get(_NAME) == self._around.node_id:
            del self._nodes.serving[_NAME]
        self._sessions.forget()
        self._over.clear()
        self._hooks.coordinator_changed(False, len(book.owners), reason)
        commits.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node coordinates claims now"))
        tokens = {claim.token for claim in book.owners.values()} | book.places.keys()
        self._tell(dict.fromkeys([*book.owners, *book.queued()]), tokens)
        for session in book.sessions():
            if ends_with_connection(session):
                for asker in self._sessions.askers(session):
                    asker.sever()

    def _new_book(self) -> Book:
        return Book(self._around.node_id, **self._limits)

    # Claiming -----------------------------------------------------------------------------------------------------

    def look(self, request: Request) -> Verdict:
        """What would become of a request now, as far as it is written down. Changes nothing."""
        if self._term is None:
            return Verdict(Decision.BUSY)
        verdict = self.judge(request)
        if verdict.decision is Decision.GRANT and may_be_too_large(request):
            return too_large(request, self.book.grant(request, verdict, self.wall_ms(), _LONGEST_ADDRESS)) or verdict
        return verdict

    async def take(self, asker: Asker, request: Request) -> Verdict:
        """Judge again, and if it is GRANT write it down: with the ownerships, once this node's view has them.

        What was deposed by it is severed. Any other verdict changed nothing. Raises `KafkaError` 6 where this node
        coordinates no more, 5 where nothing can be claimed now.
        """
        commits = self._commits
        if commits is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not coordinate claims")
        self._sessions.bind(asker, request.session)
        work = Taking(self, asker, request)
        with self.attending(request.token):
            commits.submit(work)
            try:
                verdict, last = await work.done
            except KafkaError:
                self._hooks.claims_answered("unavailable", len(request.wishes))
                raise
        self._count(verdict)
        await self._seen(last)
        return verdict

    def wait(self, asker: Asker, request: Request) -> Verdict:
        """Take a place in every queue of a request, or keep those it has, where its verdict is WAIT; return the
        verdict. The places are kept for 5 s, and as long as somebody is `attending`.

        Raises `KafkaError` 6 where this node coordinates no more.
        """
        verdict = self.look(request)
        if verdict.decision is Decision.BUSY:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not coordinate claims")
        if verdict.decision is Decision.WAIT:
            self._sessions.bind(asker, request.session)
            if request.token not in self.book.places:
                self._count(verdict)
            _, effects = self.book.wait(request, self.now(), self.wall_ms())
            self.left(effects)
        return verdict

    def waiting(self, token: bytes) -> Request | None:
        """The request that waits under a token."""
        place = self.book.places.get(token)
        return None if place is None else place.request

    def is_ready(self, token: bytes) -> bool:
        """Whether the turn of a waiting request has come: `take` it within 5 s, or while somebody is `attending`."""
        place = self.book.places.get(token)
        return place is not None and place.ready

    @contextmanager
    def attending(self, token: bytes) -> Generator[None]:
        """A call waits for news of a token: its places do not lapse meanwhile, and for 5 s afterwards."""
        place = self.book.places.get(token)
        if place is None:
            yield
            return
        place.attended += 1
        try:
            yield
        finally:
            place.attended -= 1
            self.book.keep(place, self.now())

    def leave(self, token: bytes) -> None:
        """Give up the places of a request; harmless without any."""
        self.left(self.book.leave([token], self.now()))

    async def release(self, token: bytes, keys: Collection[Key] | None = None) -> None:
        """Let go of the token's claims to these, or of all its claims and places; harmless again.

        Returns once that is written down. Raises `KafkaError` 6 where this node coordinates no more, 5 where it cannot
        be written now.
        """
        commits = self._commits
        if commits is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not coordinate claims")
        work = Releasing(self, token, keys)
        commits.submit(work)
        await self._seen(await work.done)

    def held_by(self, token: bytes) -> tuple[control.Ownership, ...]:
        """What a request was granted and has still, on the coordinator; of earlier terms, too."""
        owners = self.book.owners
        return tuple(shown(owners[key], self._around.node_id) for key in self.book.keys_of_token(token))

    def lost_by(self, token: bytes) -> Collection[Key]:
        """What a request was granted, or waited for, and lost, as far as this node has seen it."""
        return self._lost.of(token)

    def bind(self, asker: Asker, session: str) -> None:
        """A connection shows that a session lives (Own, Watch). Raises `KafkaError` 42 beyond 1,000 sessions."""
        self._sessions.bind(asker, session)

    def connection_closed(self, connection: int) -> None:
        """A client's connection is gone."""
        self._end(self._sessions.closed(connection, self.now()))
        self._woken.set()  # one that is waited for may be over before the next tick

    def _end(self, sessions: Iterable[str]) -> None:
        """These are over: what they have is let go of, tried again until that is written down."""
        for session in sessions:
            if self.book.keys_of_session(session) or self.book.places_of(session):
                self._over[session] = False
                self._let_end(session)

    def _end_again(self) -> None:
        """Those that could not be ended when they were over."""
        for session, under_way in list(self._over.items()):
            if not under_way:
                self._let_end(session)

    def _let_end(self, session: str) -> None:
        if self._commits is not None:
            self._over[session] = True
            self._commits.submit(Ending(self, session))

    async def _seen(self, last: Offset | None) -> None:
        """What was answered is in force on this node."""
        if last is not None:
            with suppress(TimeoutError, ChangelogError):
                await self._around.changelog.tailer.reached(last, timeout=_SEEN_S)

    def _count(self, verdict: Verdict) -> None:
        if verdict.decision is Decision.GRANT:
            return  # counted when it was written down
        errors = {each.error for each in verdict.ownerships if each.error} - {control.TIMED_OUT}
        outcome = control.Error.Name(min(errors)).lower() if errors else "waiting"
        if verdict.decision is not Decision.BUSY:
            self._hooks.claims_answered(outcome, len(verdict.ownerships))

    # What its work needs (`sidecar.resources.work.Room`) ----------------------------------------------------------

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def judge(self, request: Request) -> Verdict:
        """As the book does; what a token lost it never claims anew."""
        gone = self._lost.of(request.token)
        if gone and any(wish.key in gone for wish in request.wishes):
            return self._deposed(request, gone)
        return self.book.judge(request)

    def _deposed(self, request: Request, gone: Collection[Key]) -> Verdict:
        owned = self.book.keys_of_token(request.token)
        answers: list[control.Ownership] = []
        for wish in request.wishes:
            answer = self.book.ownership(wish.key, wish.resource)
            if wish.key in gone or wish.key not in owned:
                answer.error = control.DEPOSED
                answer.message = "this claim was lost or released: ask with a new token to claim again"
            answers.append(answer)
        return Verdict(Decision.REFUSE, tuple(answers))

    def may_hold(self, asker: Asker, session: str) -> bool:
        return asker.is_alive() if ends_with_connection(session) else self._sessions.is_present(session)

    def is_over(self, session: str) -> bool:
        return not self._sessions.is_present(session)

    def granted(self, asker: Asker, change: Change) -> None:
        """A grant is written down: it is in force, and whoever lost by it is cut off."""
        request = change.request
        assert request is not None
        effects = self.book.apply(change, self.now())
        deposed = {claim.session: claim for _, claim in effects.lost if claim.session != request.session}
        first = next(iter(change.claims.values()))
        loser = next(iter(deposed.values()), None)
        self._hooks.claims_answered("granted", len(change.claims))
        if deposed:
            self._hooks.claims_answered("lost", sum(claim.session in deposed for _, claim in effects.lost))
        self._hooks.claims_granted(
            _text(first), len(change.claims), first.generation, request.session, loser.session if loser else None
        )
        self._after(effects)
        for session in deposed:
            for other in self._sessions.askers(session):
                if other.connection_id != asker.connection_id:
                    other.sever()
        if not self.may_hold(asker, request.session):
            self._end([request.session])

    def ended(self, session: str, *, written: bool) -> None:
        if written:
            self._over.pop(session, None)
        elif session in self._over:
            self._over[session] = False

    def let_go(self, change: Change) -> None:
        """A release is written down."""
        effects = self.book.apply(change, self.now())
        self._hooks.claims_answered("released", len(effects.lost))
        if effects.lost:
            _, claim = effects.lost[0]
            self._hooks.claims_let_go(_text(claim), len(effects.lost), claim.session)
        self._after(effects)

    def left(self, effects: Effects) -> None:
        """Places were taken or given up."""
        self._after(effects)

    def _after(self, effects: Effects) -> None:
        for key, claim in effects.lost:
            self._lost.add(claim.token, [key])
        for place in effects.evicted:
            self._lost.add(place.token, [wish.key for wish in place.request.wishes])
        tokens = [claim.token for _, claim in effects.lost]
        tokens += [place.token for place in (*effects.evicted, *effects.ready)]
        self._tell(effects.changed, dict.fromkeys(tokens))

    def _tell(self, keys: Iterable[Key], tokens: Iterable[bytes]) -> None:
        for listener in tuple(self.changed):
            for key in keys:
                listener(key)
        for told in tuple(self.told):
            for token in tokens:
                told(token)

    # Looking ------------------------------------------------------------------------------------------------------

    def describe(self, keys: Collection[Key]) -> tuple[tuple[control.Ownership, ...], tuple[control.Waiting, ...]]:
        """Owners of these resources, and who waits for them in order.

        Any node knows the owners; only the coordinator who waits.
        """
        ownerships = self.owners(keys)
        waiting = tuple(
            control.Waiting(
                resource=resource, name=place.request.name, session=place.request.session, since_ms=place.since_ms
            )
            for key, resource in ((key, resource_of(key)) for key in keys)
            for place in self.book.queue(key)
        )
        return ownerships, waiting

    def claimed(self, group: str) -> list[Key]:
        """Every resource of a group (none: free strings) that somebody owns or, on the coordinator, waits for."""
        if self._term is not None:
            owners: Iterable[tuple[Key, state.Claim]] = self.book.owners.items()
        else:
            owners = ((each.key, each.value) for each in self._around.changelog.view.claims())
        found = dict.fromkeys(key for key, claim in owners if claim.group == group)
        found.update(dict.fromkeys(key for key in self.book.queued() if self._group(key) == group))
        return list(found)

    def owners(self, keys: Collection[Key]) -> tuple[control.Ownership, ...]:
        """Who owns these resources, in their order."""
        node = self.node
        serving = -1 if node is None else node
        return tuple(self._shown(key, serving) for key in keys)

    def _shown(self, key: Key, serving: int) -> control.Ownership:
        claim = self._owner(key)
        if claim is None:
            return control.Ownership(resource=resource_of(key), serving_node=serving)
        return shown(claim, serving)

    def _owner(self, key: Key) -> state.Claim | None:
        """By the book on the coordinator, elsewhere by the changelog."""
        if self._term is not None:
            return self.book.owners.get(key)
        entry = self._around.changelog.view.claim(key)
        return None if entry is None else entry.value

    def _group(self, key: Key) -> str:
        place = next(iter(self.book.queue(key)))
        return next(wish.group for wish in place.request.wishes if wish.key == key)

    @property
    def held(self) -> int:
        """How many resources are owned, on the coordinator."""
        return len(self.book.owners)

    @property
    def waiting_wishes(self) -> int:
        """How many places in queues are taken, on the coordinator."""
        return self.book.waiting_wishes

    # The changelog and the leases ---------------------------------------------------------------------------------

    def _logged(self, change: LogChange) -> None:
        if change.key.kind is Kind.CLAIM:
            before: Entry[state.Claim] | None = change.before
            after: Entry[state.Claim] | None = change.after
            if before is not None and (after is None or after.value.token != before.value.token):
                self._lost.add(before.value.token, [change.key])
        elif change.key == _SERVING and self._term is not None and self._is_outdated(self._term):
            self._step_down("another node took the claims over")

    def served_topics(self) -> list[str]:
        """What a heartbeat asserts."""
        return [CLAIMS] if self._serving else []

    def heard(self, lost: set[str]) -> None:
        """A heartbeat's answer: what another live node serves."""
        if CLAIMS in lost:
            self._step_down("another node has the right to coordinate claims")

    # Time ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: end sessions that did not come back, let promotions that nobody fetched pass on, take over
        what nobody coordinates any more, keep the fence alive.
        """
        while True:
            self._woken.clear()
            if self._term is not None:
                await self._pass_time(self.now())
            if self._term is not None:
                await self._keep_fence(self._term)
            elif self._is_orphaned():
                with suppress(KafkaError):  # told by its hooks; tried again with the next tick
                    await self.ready()
            ends = self._sessions.next_end()
            pause = _TICK_S if ends is None else min(_TICK_S, max(0.0, ends - self.now()))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), max(0.001, pause))

    async def _pass_time(self, now: float) -> None:
        self._end(self._sessions.overdue(now))
        self._end_again()
        lapsed = self.book.lapsed(now)
        for first in range(0, len(lapsed), _LAPSED_AT_ONCE):
            if first:
                await asyncio.sleep(0)  # others have a turn
            places = self.book.places
            still = [token for token in lapsed[first : first + _LAPSED_AT_ONCE] if token in places]
            self.left(self.book.leave([token for token in still if places[token].has_lapsed(now)], now))

    def _is_orphaned(self) -> bool:
        """Somebody coordinated once, nobody does now, and this node is the first in line."""
        if self._draining or self._around.changelog.view.serving(CLAIMS) is None:
            return False
        return self.node == self._around.node_id

    async def _keep_fence(self, term: Term) -> None:
        now = self.now()
        if now < self._fence_due:
            return
        try:
            interval = await keep_alive_interval(self._around)
            self._fence_due = self._fenced_at + interval * _KEPT_ALIVE_SHARE
            if now < self._fence_due:
                return
            await keep_alive(self._around, term)
        except FencedError as error:
            if self._term is term:
                self._step_down(str(error))
        except _NOT_NOW as error:
            self._fence_due = now + _AGAIN_S
            self._hooks.claims_failed(error)
        else:
            self._fenced_at = now
            self._fence_due = now + interval * _KEPT_ALIVE_SHARE

    async def drain(self) -> None:
        """Take nothing new, finish what is under way, let another node coordinate."""
        self._draining = True
        if self._commits is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._commits.settled(), _DRAIN_S)
        was_serving = self._serving
        self._step_down("the node shuts down")
        self._unsubscribe()
        self._unsubscribe = _nothing
        if was_serving:
            with suppress(MetadataUnavailable):  # then the lease runs out
                await self._around.store.hand_over(CLAIMS, self._around.node_id, self._around.boot)


def _nothing() -> None:
    """It was done already."""


def _text(claim: state.Claim) -> str:
    """A resource, for people."""
    resource = claim.resource
    name = resource.name or resource.topic
    part = f"/{resource.partition}" if resource.HasField("partition") else ""
    return f"{claim.group}:{name}{part}" if claim.group else f"{name}{part}"
