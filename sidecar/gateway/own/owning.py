"""The Own requests of a node, from the first call to the loss of the claims: carries out what `sets` decides.

A waiting request has no task: a change of a resource wakes the first in its queue, and it is decided again.
"""

import asyncio
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from sidecar.access.prospects import Look, Prospect
from sidecar.changelog import Key, claim_key
from sidecar.exclusive.bindings import NOT_YOURS
from sidecar.exclusive.owning import TopicClaim
from sidecar.gateway.client import Client
from sidecar.gateway.own.answers import GrantingRooms, not_allowed, not_now
from sidecar.gateway.own.asked import Asked
from sidecar.gateway.own.bodies import AT_ONCE, BadRequestError
from sidecar.gateway.own.sets import TICKETS, TICKETS_OF_ONE, ClaimSet, Sets, Stand, decide, rouse
from sidecar.network.slices import Turns, in_slices
from sidecar.network.tasks import Tasks
from sidecar.ownership.state import Claimant
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.claims import News, Sever
from sidecar.resources.limits import is_somebody
from sidecar.resources.requests import READY, Request
from sidecar.v1 import control_pb2 as control

_FEW: Final = 10
"""The most resources of a request whose steps wait for no turn."""
_BUSY_S: Final = 10.0
"""How long a request waits for topics that are being taken over before its answer says so, in seconds."""
_TAKEOVERS: Final = 32
"""The limit of concurrent takeovers for all requests of this node."""
_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1
_SWEEP_S: Final = 0.5
_SWEEPS_PER_LOOK: Final = 2
"""Sweeps per check of all queues: the end of a grace is no event, so queues are checked regularly."""


class Ownerships:
    """The Own requests of all clients of a node. `clients`: by connection."""

    def __init__(self, rooms: GrantingRooms, clients: Mapping[int, Client], tasks: Tasks) -> None:
        self.sets = Sets()
        self.turns = Turns(_FEW)
        self._rooms = rooms
        self._clients = clients
        self._tasks = tasks
        self._takeovers = asyncio.Semaphore(_TAKEOVERS)
        self._parked: dict[int, set[asyncio.Future[None]]] = {}
        """The calls of each connection that wait."""

    # Calls ------------------------------------------------------------------------------------------------------------

    async def own(self, client: Client, asked: Asked) -> control.OwnResponse:
        """Grant, refuse, or wait for `wait_s`. Raises `BadRequestError` if the token belongs to another request."""
        claims = self.sets.get(asked.token)
        if claims is not None and claims.asked.fingerprint != asked.fingerprint:
            raise BadRequestError("this token stands for another request: 16 new random bytes for each")
        if claims is not None and claims.asked.session != asked.session:
            await self._abandon(claims)  # its connection is dead, which was not noticed yet
            claims = None
        if claims is not None and claims.stand is Stand.OVER and claims.has_moved:
            self.sets.forget(claims)
            claims = None
        if claims is not None:
            self.connect(claims, client)
        else:
            claims = await self._admit(client, asked)
            if isinstance(claims, control.OwnResponse):
                return claims
        return await self._outcome(claims, client, asked.wait_s)

    async def _outcome(self, claims: ClaimSet, client: Client, wait_s: float) -> control.OwnResponse:
        until = _now() + wait_s
        with self._attended(claims, by_own=True):
            while client.is_alive():
                if claims.stand is Stand.OWNING:
                    await self.turns.begin(len(claims.asked.wishes))
                    if claims.stand is not Stand.OWNING:
                        continue
                    if claims.request is not None and not self._rooms.coordinator.is_fresh:
                        try:
                            await self._rooms.coordinator.confirm()
                        except KafkaError as error:  # another node may coordinate now, and know of a loss
                            return self._rooms.not_coordinating(claims.asked, error)
                    self._check_all(claims)  # a release in progress checks its resources at its end
                    claims.heard()
                    return self._rooms.owned(claims)
                if claims.stand is Stand.OVER:
                    claims.heard()
                    if claims.answer is None:
                        return self._rooms.owned(claims)
                    self.sets.forget(claims)  # refused: the token may be used again
                    return claims.answer
                left = until - _now() if claims.stand is Stand.WAITING else None
                if left is not None and left <= 0:
                    break
                await self._park(client, claims, left)
        return self._rooms.waiting(claims)

    async def watch(self, client: Client, claims: ClaimSet, wait_s: float) -> list[control.Ownership]:
        """Return what has changed since the last report, after `wait_s` at the latest."""
        self.connect(claims, client)
        until = _now() + wait_s
        with self._attended(claims):
            while not claims.news and claims.stand is not Stand.OVER and client.is_alive() and _now() < until:
                await self._park(client, claims, until - _now())
        return claims.heard()

    @contextmanager
    def _attended(self, claims: ClaimSet, *, by_own: bool = False) -> Iterator[None]:
        """During a call for a request: its place or promotion is kept."""
        claims.calls += 1
        claims.own_calls += by_own
        self.sets.called(claims)
        try:
            yield
        finally:
            claims.calls -= 1
            claims.own_calls -= by_own
            self.sets.left_alone(claims, _now())

    async def _park(self, client: Client, claims: ClaimSet, seconds: float | None) -> None:
        """Wait until a request changes, its client disconnects, or `seconds` have passed."""
        listener = claims.listen()
        parked = self._parked.setdefault(client.connection_id, set())
        parked.add(listener)
        alarm = None if seconds is None else asyncio.get_running_loop().call_later(seconds, rouse, listener)
        client.connection.park()
        try:
            await listener  # nothing around it: thousands wait here
        finally:
            if alarm is not None:
                alarm.cancel()
            claims.listeners.discard(listener)
            parked.discard(listener)
            if not parked:
                self._parked.pop(client.connection_id, None)

    # Connections ------------------------------------------------------------------------------------------------------

    def connect(self, claims: ClaimSet, client: Client) -> None:
        """Bind a request to one more connection of its session."""
        if not client.is_alive() or claims.asked.session.is_plain:
            return  # if it has closed, that was reported already: nothing would unbind it
        if claims.request is not None:
            self._bind(client, claims.asked)
        self.sets.connect(claims, client)
        self._speak_by(claims, client)

    def _speak_by(self, claims: ClaimSet, client: Client) -> None:
        """Bind the claims and places of a request to an open connection, which may be the only one left."""
        if claims.stand is Stand.OWNING:
            for claim in claims.topics.values():
                self._rooms.topics.join(claim, client.connection_id)
            return
        for key, claim in claims.topics.items():
            claims.topics[key] = claim.by(client.connection_id, client.is_alive)
        self._wake(claims)  # takes its places again if they belonged to another connection

    def _bind(self, client: Client, asked: Asked) -> None:
        try:
            self._rooms.coordinator.bind(client.connection_id, asked.session)
        except KafkaError as error:
            raise BadRequestError(error.message) from None
        if not asked.session.is_plain:
            client.bound_sessions.add(asked.session)  # as many as the coordinator takes

    def connection_closed(self, client: Client) -> None:
        """End the calls of a closed connection, and the claims and places that were bound to it."""
        for listener in self._parked.pop(client.connection_id, ()):
            rouse(listener)
        if bound := self.sets.closed(client.connection_id):
            self._tasks.start(in_slices(self._without(bound)))

    def _without(self, bound: Sequence[ClaimSet]) -> Generator[None, None, None]:
        """End the claims and places of requests whose connection has closed, in slices."""
        resources = 0
        for claims in bound:
            if claims.asked.session.is_plain:
                self._leave(claims)
                self.sets.forget(claims)
            else:
                if claims.is_alive and claims.stand is not Stand.OWNING:
                    self._speak_by(claims, claims.client)
                self.sets.left_alone(claims, _now())
            resources += len(claims.asked.wishes)
            if resources >= AT_ONCE:
                resources = 0
                yield

    # Deciding ---------------------------------------------------------------------------------------------------------

    async def _admit(self, client: Client, asked: Asked) -> ClaimSet | control.OwnResponse:
        """Store a request that can be decided here, or return why it cannot."""
        rooms, principal = self._rooms, asked.caller.principal
        if len(self.sets) >= TICKETS:
            return rooms.refused(asked, control.UNAVAILABLE, f"{TICKETS} requests own or wait on this node already")
        if is_somebody(principal) and self.sets.of_principal[principal] >= TICKETS_OF_ONE:
            message = f"{TICKETS_OF_ONE} requests of this principal own or wait on this node already"
            return rooms.refused(asked, control.QUEUE_FULL, message)
        faults = await rooms.faults(asked)
        if faults:
            return rooms.not_granted(asked, faults)
        request = asked.request
        if request is not None:
            try:
                await rooms.coordinator.ready()
            except KafkaError as error:
                return rooms.not_coordinating(asked, error)
            if rooms.is_anothers(asked):  # the claims may just have been read
                rooms.governed.env.bindings.claim_refused(asked.session, client.connection_id)
                return control.OwnResponse(error=control.NOT_AUTHORIZED, message=NOT_YOURS)
        if not client.is_alive():
            return rooms.refused(asked, control.UNAVAILABLE, "the connection was closed")
        claims = self.sets.get(asked.token)
        if claims is not None:  # the same request arrived on another connection in the meantime
            self.connect(claims, client)
            return claims
        claims = ClaimSet(asked, self._topics(client, asked), request)
        if request is not None:
            self._bind(client, asked)
        self.sets.add(claims, client)
        self._wake(claims)
        return claims

    def _topics(self, client: Client, asked: Asked) -> dict[Key, TopicClaim]:
        """The claims to write. A request is identified by its token, so a repetition does not have to wait for the end
        of the client's former connection (ghost).
        """
        claims: dict[Key, TopicClaim] = {}
        for wish in asked.wishes.values():
            if wish.is_written:
                topic, number = wish.resource.topic, client.connection_id
                mode = self._rooms.topics.mode(topic, asked.mode)
                follows = self._rooms.governed.producers.followed_by(asked.session)
                claimant = Claimant(
                    asked.session, asked.name, False, number, mode, wish.generation, follows,
                    names_session=not asked.session.is_plain, caller=asked.caller,
                )  # fmt: skip
                claims[wish.key] = TopicClaim(topic, wish.index, claimant, client.address, client.is_alive)
        return claims

    def _wake(self, claims: ClaimSet) -> None:
        claims.is_due = True
        if not claims.is_driven and claims.is_undecided:
            claims.is_driven = True
            self._tasks.start(self._drive(claims))

    async def _drive(self, claims: ClaimSet) -> None:
        """Decide on a request, again if its resources change in the meantime."""
        try:
            while claims.is_due and claims.is_undecided:
                claims.is_due = False
                await self.turns.begin(len(claims.asked.wishes))
                answer = await self._attempt(claims)
                if answer is not None:
                    self._give_up_places(claims)
                    self._settle(claims, answer)
                elif claims.stand is Stand.WAITING:
                    self.sets.left_alone(claims, _now(), again=False)
        except Exception:
            self._leave(claims)
            self._settle(claims, self._rooms.refused(claims.asked, control.UNAVAILABLE, "the node failed"))
            raise
        finally:
            claims.is_driven = False
            claims.notify()  # for a call that is about to take it back

    async def _attempt(self, claims: ClaimSet) -> control.OwnResponse | None:
        """Decide on a request. Returns the answer, or None if it has to wait."""
        rooms, asked = self._rooms, claims.asked
        until, pause = _now() + _BUSY_S, _FIRST_PAUSE_S
        while True:
            refusal = await self._refusal(claims)
            if not claims.is_alive:  # nothing is granted; a place is kept while the session may reconnect
                if claims.stand is Stand.WAITING:
                    return None
                self.sets.forget(claims)
            if refusal is not None:
                return refusal
            looks = {key: rooms.topics.look(claim) for key, claim in claims.topics.items()}
            if claims.request is not None:
                looks |= rooms.coordinator.look(claims.request).looks(claims.request)
            prospect = decide(claims.stand, looks)
            if prospect is Prospect.READY:
                looks = await self._take(claims)
                if not looks:
                    return rooms.owned(claims)
                prospect = decide(Stand.TRYING, looks)
                if prospect is not Prospect.REFUSED:
                    prospect = Prospect.BUSY
            if prospect is Prospect.REFUSED:
                return rooms.not_granted(asked, looks)
            if prospect is Prospect.WAIT:
                return self._wait(claims)
            if _now() > until:
                return rooms.refused(asked, control.UNAVAILABLE, "its owner is changing; try again")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _refusal(self, claims: ClaimSet) -> control.OwnResponse | None:
        """The error of a request that cannot be granted, even if all its resources are free."""
        rooms, asked, elsewhere = self._rooms, claims.asked, None
        if claims.request is not None and not rooms.coordinator.coordinates:
            try:  # its epoch has ended, and the node that fenced it may have died: then this node takes the slot again
                await rooms.coordinator.ready()
            except KafkaError as error:
                elsewhere = error
        if not claims.is_alive:
            return rooms.refused(asked, control.UNAVAILABLE, "the connection was closed")
        if elsewhere is not None:
            return rooms.not_coordinating(asked, elsewhere)
        return not_allowed(asked, claims.client.rights, rooms.topics.mode)  # rights may be lost since it arrived

    async def _take(self, claims: ClaimSet) -> dict[Key, Look]:
        """Grant everything. If one fails, also as nobody expects, nothing is granted; returns the reasons."""
        topics, wanted = self._rooms.topics, claims.topics
        gained = [key for key, claim in wanted.items() if topics.generation(claim) is None]
        takeovers = await asyncio.gather(*map(self._take_over, wanted.values()), return_exceptions=True)
        looks = {key: look for key, look in zip(wanted, takeovers, strict=True) if isinstance(look, Look)}
        taken = [wanted[key] for key in gained if key in looks and looks[key].prospect is Prospect.READY]
        try:
            for error in takeovers:
                if isinstance(error, BaseException):
                    raise error
            failed = await self._complete(claims, looks)
        except Exception:
            await self._release(taken)
            raise
        if failed:
            await self._release(taken)
        return failed

    async def _release(self, taken: Sequence[TopicClaim]) -> None:
        await asyncio.gather(*[self._rooms.topics.release(claim) for claim in taken])

    async def _complete(self, claims: ClaimSet, looks: Mapping[Key, Look]) -> dict[Key, Look]:
        """Store the other claims of a request whose topics are taken; returns the reasons of failures."""
        topics, wanted = self._rooms.topics, claims.topics
        owned = {key: topics.generation(claim) for key, claim in wanted.items()}
        failed = {key: look for key, look in looks.items() if look.prospect is not Prospect.READY}
        failed = {key: Look(Prospect.BUSY) for key, generation in owned.items() if generation is None} | failed
        if not failed and claims.request is not None:
            failed, granted = await self._write_down(claims, claims.request)
            owned |= granted
        if not failed:
            self.sets.owning(claims, {key: generation for key, generation in owned.items() if generation is not None})
        return failed

    async def _take_over(self, claim: TopicClaim) -> Look:
        async with self._takeovers:
            return await self._rooms.topics.take(claim)

    async def _write_down(self, claims: ClaimSet, request: Request) -> tuple[dict[Key, Look], dict[Key, int]]:
        """Store the claims at the coordinator. Returns the reasons of failures, or the generations."""
        client, keys = claims.client, [wish.key for wish in request.wishes]
        try:
            verdict = await self._rooms.coordinator.take(request, client.connection_id, client.address)
        except KafkaError as error:
            ended = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # epoch ended: the present coordinator decides
            return dict.fromkeys(keys, Look(Prospect.BUSY) if ended else not_now(error)), {}
        if verdict.prospect is not Prospect.READY:
            return verdict.looks(request), {}
        return {}, {key: answer.generation for key, answer in zip(keys, verdict.answers, strict=True)}

    def _settle(self, claims: ClaimSet, answer: control.OwnResponse) -> None:
        """Apply a decision. A granted set is bound to all its connections, and to no other request of its session. A
        loss while the claims were stored is not reported yet.
        """
        self.sets.settle(claims, answer)
        if claims.stand is Stand.OWNING:
            for key, claim in claims.topics.items():
                for client in claims.clients.values():
                    if client.is_alive():
                        self._rooms.topics.join(claim, client.connection_id)
                for other in self.sets.owners(key):
                    if other is not claims and other.asked.session == claims.asked.session:
                        self.sets.loses(other, key, self._rooms.superseded(claims.asked.wishes[key]))
            self._check_all(claims)
        self.sets.left_alone(claims, _now())
        claims.notify()

    # Places -----------------------------------------------------------------------------------------------------------

    def _wait(self, claims: ClaimSet) -> control.OwnResponse | None:
        """Take a place in every queue, or keep the present ones. Returns an answer if that is not possible. If the
        coordinator ended its places with the session, those for topics end too (circular waits).
        """
        topics, coordinator = self._rooms.topics, self._rooms.coordinator
        has_lapsed = claims.is_placed and not coordinator.is_waiting(claims.token)
        if not claims.came or has_lapsed:
            claims.came = _now()
            for claim in claims.topics.values():
                topics.leave(claim)
        for claim in claims.topics.values():
            if topics.generation(claim) is None:
                topics.keep_place(claim, claims.came)
        if claims.stand is not Stand.WAITING:
            self.sets.waits(claims)
            claims.notify()
        if claims.request is not None:
            try:
                coordinator.wait(claims.request)
            except KafkaError as error:
                return self._rooms.not_coordinating(claims.asked, error)
            claims.is_placed = coordinator.is_waiting(claims.token)
        return None

    def _give_up_places(self, claims: ClaimSet) -> None:
        if claims.stand is not Stand.WAITING:
            return
        claims.stand = Stand.TRYING
        self.sets.waits_no_more(claims)
        for key, claim in claims.topics.items():
            self._rooms.topics.leave(claim)
            other = self.sets.waiting(key, claim.claimant.session)
            if other is not None:  # a session has one place per queue
                self._rooms.topics.keep_place(other.topics[key], other.came)
        if claims.request is not None:
            self._rooms.coordinator.leave([claims.token])

    def _leave(self, claims: ClaimSet) -> None:
        """Give up every place, and wake the next in the queues."""
        if claims.stand is Stand.WAITING:
            self._give_up_places(claims)
            for key in claims.topics:
                self._changed(key)

    # Giving back ------------------------------------------------------------------------------------------------------

    async def withdraw(self, claims: ClaimSet) -> None:
        """End a waiting request; one that is being decided, or promoted, is decided first."""
        while claims.is_driven or claims.stand is Stand.TRYING:
            await asyncio.wait([claims.listen()])
        if claims.stand is Stand.WAITING:
            self._leave(claims)
            answer = self._rooms.refused(claims.asked, control.DEPOSED, "its place was given up by Release")
            self._settle(claims, answer)

    async def let_go(self, claims: ClaimSet, keys: Collection[Key]) -> Look:
        """Release claims of a request. Returns the reason if that fails for some, which it then still owns."""
        rooms = self._rooms
        claims.released.update(keys)
        written = [key for key in keys if key in claims.topics]
        others = [key for key in keys if key not in claims.topics]
        looks = await asyncio.gather(*[rooms.topics.release(claims.topics[key]) for key in written])
        kept = {key: look for key, look in zip(written, looks, strict=True) if look.prospect is Prospect.REFUSED}
        failed = next(iter(kept.values()), None)
        if failed is None and others:
            try:
                await rooms.coordinator.release(claims.token, others)
            except KafkaError as error:
                failed = not_now(error)
        if failed is not None:
            kept |= dict.fromkeys(others, failed)
        claims.released.difference_update(kept)
        for key in keys:
            if key not in kept:
                self.sets.disowned(claims, key)
            elif key in claims.owned:
                self._check(claims, key)  # it may have changed in the meantime
        return failed or READY

    async def _abandon(self, claims: ClaimSet) -> None:
        """End a request completely, because its connection counts as dead."""
        self._leave(claims)
        await self.let_go(claims, list(claims.owned))
        self.sets.forget(claims)
        claims.client.sever()

    async def _give_up(self, claims: ClaimSet) -> None:
        """Give up the place or promotion of a request without calls, so that others can have it."""
        if claims.calls:
            return  # a call has just arrived
        if not claims.is_driven:
            self._leave(claims)
            look = await self.let_go(claims, list(claims.owned))
            if look.prospect is Prospect.READY:
                self.sets.forget(claims)
                return
        self.sets.left_alone(claims, _now())  # and again; it may be promoted just now: that is kept for the same time

    # Changes ----------------------------------------------------------------------------------------------------------

    def topic_changed(self, topic: str, partition: int | None) -> None:
        """The owner of a topic or partition may have changed."""
        self._changed(claim_key("", control.Resource(topic=topic, partition=partition)))

    async def hear(self) -> None:
        """Carry out what the coordinator reports, in slices: one claim may depose thousands. Runs until cancelled."""
        heard = 0
        while True:
            match await self._rooms.coordinator.events.get():
                case News(token, lost):
                    self._token_changed(token, lost)
                    heard += len(lost)
                case Sever(connection):
                    client = self._clients.get(connection)
                    if client is not None:
                        client.sever()
            heard += 1
            if heard >= AT_ONCE:
                heard = 0
                await asyncio.sleep(0)

    def _token_changed(self, token: bytes, lost: Collection[Key]) -> None:
        claims = self.sets.get(token)
        if claims is None:
            return
        for key in lost:
            if key in claims.owned:
                self._check(claims, key)
        self._wake(claims)

    def _changed(self, key: Key) -> None:
        """Report the loss of a topic to its former owners, and wake the first in its queue."""
        for claims in self.sets.owners(key):
            self._check(claims, key)
        self._wake_first(key)

    def _wake_first(self, key: Key) -> None:
        """Wake the request that has waited longest, and the head of the topic's queue if that is another one."""
        first = self.sets.waiting(key)
        if first is None:
            return
        self._wake(first)
        claim = first.topics[key]
        head = self._rooms.topics.head_of_queue(claim.topic, claim.partition)
        other = None if head in (None, first.asked.session) else self.sets.waiting(key, head)
        if other is not None:
            self._wake(other)

    def _check_all(self, claims: ClaimSet) -> None:
        for key in list(claims.owned):
            self._check(claims, key)

    def _check(self, claims: ClaimSet, key: Key) -> None:
        """Check that a request still owns a resource, and report a loss."""
        generation = claims.owned[key]
        if key in claims.released or self._rooms.coordinator.is_held(key, claims.token, generation):
            return
        ownership = self._rooms.standing(claims, key)
        if ownership.error != control.NONE:
            self.sets.loses(claims, key, ownership)
        elif ownership.generation != generation:
            claims.owned[key], claims.news[key] = ownership.generation, ownership
            claims.notify()

    async def run(self) -> None:
        """Give up requests without calls, and check queues for which no event may come. Runs until cancelled."""
        turns = 0
        while True:
            await asyncio.sleep(_SWEEP_S)
            for number, claims in enumerate(self.sets.lapsed(_now()), start=1):
                self._tasks.start(self._give_up(claims))
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            turns += 1
            if turns % _SWEEPS_PER_LOOK == 0:
                for key in self.sets.waited_for():
                    self._wake_first(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
