"""The Own requests of a node, from the first call to the loss of the claims.

A waiting request has no task: a change of a resource wakes the first in its queue, and `granting` decides. A place, or
a promotion that was not fetched yet, is kept while a call with its token is in progress and 5 s longer.
"""

import asyncio
from collections.abc import Collection, Generator, Sequence
from typing import Final

from sidecar.access.prospects import Look, Prospect
from sidecar.changelog import Key
from sidecar.exclusive.owning import TopicClaim
from sidecar.gateway.client import Client
from sidecar.gateway.own.answers import Rooms, not_now
from sidecar.gateway.own.asked import WHOLE, Asked, Target
from sidecar.gateway.own.bodies import AT_ONCE, BadRequestError
from sidecar.gateway.own.granting import Granting
from sidecar.gateway.own.tickets import TICKETS, TICKETS_OF_ONE, Attendance, Stand, Ticket, Tickets
from sidecar.network.slices import Turns, in_slices
from sidecar.network.tasks import Tasks
from sidecar.protocol.errors import KafkaError
from sidecar.resources.limits import is_somebody
from sidecar.resources.requests import Wish
from sidecar.v1 import control_pb2 as control

_FEW: Final = 10
"""The most targets of a request whose steps wait for no turn."""
_SWEEP_S: Final = 0.5
_SWEEPS_PER_LOOK: Final = 2
"""Sweeps per check of all queues: the end of a grace is no event, so queues are checked regularly."""


class Ownerships:
    """The Own requests of all clients of a node."""

    def __init__(self, rooms: Rooms, tasks: Tasks) -> None:
        self.tickets = Tickets()
        self._rooms = rooms
        self._tasks = tasks
        self._granting = Granting(rooms, self.tickets)
        self.attendance = Attendance()
        self.turns = Turns(_FEW)

    # A request --------------------------------------------------------------------------------------------------------

    async def own(self, client: Client, asked: Asked) -> control.OwnResponse:
        """Grant, refuse, or wait for `wait_s`. Raises `BadRequestError` if the token belongs to another request."""
        ticket = self.tickets.get(asked.token)
        if ticket is not None and ticket.asked.fingerprint != asked.fingerprint:
            raise BadRequestError("this token stands for another request: 16 new random bytes for each")
        if ticket is not None and ticket.asked.session != asked.session:
            await self._abandon(ticket)  # its connection is dead, which was not noticed yet
            ticket = None
        if ticket is not None and ticket.stand is Stand.OVER and ticket.has_moved:
            self.tickets.forget(ticket)
            ticket = None
        if ticket is None:
            made = await self._admit(client, asked)
            if isinstance(made, control.OwnResponse):
                return made
            ticket = made
        else:
            self.connect(ticket, client)
        return await self._outcome(ticket, client, asked.wait_s)

    def connect(self, ticket: Ticket, client: Client) -> None:
        """Bind a request to one more connection of its session."""
        if not client.is_alive():
            return  # its end was reported already: nothing would unbind it
        if ticket.asked.session.is_plain:
            return
        self.tickets.connect(ticket, client)
        self._speak_by(ticket, client)
        if ticket.request is not None:
            self._bind(client, ticket.asked)

    def _speak_by(self, ticket: Ticket, client: Client) -> None:
        """Bind the claims and places of a request to an open connection, which may be the only one left."""
        if ticket.stand is Stand.OWNING:
            for claim in ticket.claims.values():
                self._rooms.topics.join(claim, client.connection_id)
            return
        for target, claim in ticket.claims.items():
            ticket.claims[target] = claim.by(client.connection_id, client.is_alive)
        self._wake(ticket)  # takes its places again if they belonged to another connection

    def _bind(self, client: Client, asked: Asked) -> None:
        try:
            self._rooms.coordinator.bind(client, asked.session)
            if not asked.session.is_plain:
                client.bound_sessions.add(asked.session)  # as many as the coordinator takes
        except KafkaError as error:
            raise BadRequestError(error.message) from None

    async def _outcome(self, ticket: Ticket, client: Client, wait_s: float) -> control.OwnResponse:
        now = asyncio.get_running_loop().time
        until = now() + wait_s
        with self.attendance.attended(ticket, by_own=True):
            while client.is_alive():
                if ticket.stand is Stand.OWNING:
                    await self.turns.begin(len(ticket.asked.targets))
                    if ticket.stand is not Stand.OWNING:
                        continue
                    if ticket.request is not None and not self._rooms.coordinator.is_fresh:
                        refusal = await self._confirm(ticket)
                        if refusal is not None:
                            return refusal
                    self._check_all(ticket)  # a release in progress checks its targets at its end
                    ticket.heard()
                    return self._rooms.owned(ticket)
                if ticket.stand is Stand.OVER:
                    return self._over(ticket)
                left = None
                if ticket.stand is Stand.WAITING:
                    left = until - now()
                    if left <= 0:
                        return self._rooms.waiting(ticket)
                await self.attendance.park(client, ticket, left)
        return self._rooms.waiting(ticket)

    async def _confirm(self, ticket: Ticket) -> control.OwnResponse | None:
        """An answer if this node may no longer know what the request owns, because another node may coordinate now."""
        try:
            await self._rooms.coordinator.confirm()
        except KafkaError as error:
            return self._rooms.not_coordinating(ticket.asked, error)
        return None

    def _over(self, ticket: Ticket) -> control.OwnResponse:
        ticket.heard()
        if ticket.answer is None:
            return self._rooms.owned(ticket)
        self.tickets.forget(ticket)  # refused: the token may be used again
        return ticket.answer

    # Connections ------------------------------------------------------------------------------------------------------

    def connection_closed(self, client: Client) -> None:
        """End the claims and places that were bound to a closed connection."""
        self.attendance.gone(client)
        if tickets := self.tickets.of_connection(client.connection_id):
            self._tasks.start(in_slices(self._without(tickets)))

    def _without(self, tickets: Sequence[Ticket]) -> Generator[None, None, None]:
        """End the claims and places of requests whose connection has closed, in slices."""
        targets = 0
        for ticket in tickets:
            targets += len(ticket.asked.targets)
            if ticket.asked.session.is_plain:
                self._leave(ticket)
                self.tickets.forget(ticket)
                self.attendance.forget(ticket)
            else:
                if ticket.is_alive and ticket.stand is not Stand.OWNING:
                    self._speak_by(ticket, ticket.client)
                self.attendance.left_alone(ticket)
            if targets >= AT_ONCE:
                targets = 0
                yield

    # Deciding ---------------------------------------------------------------------------------------------------------

    async def _admit(self, client: Client, asked: Asked) -> Ticket | control.OwnResponse:
        """Store a request that can be decided here, or return why it cannot."""
        rooms = self._rooms
        if len(self.tickets) >= TICKETS:
            return rooms.refused(asked, control.UNAVAILABLE, f"{TICKETS} requests own or wait on this node already")
        principal = asked.caller.principal
        if is_somebody(principal) and self.tickets.of_principal[principal] >= TICKETS_OF_ONE:
            message = f"{TICKETS_OF_ONE} requests of this principal own or wait on this node already"
            return rooms.refused(asked, control.QUEUE_FULL, message)
        faults = await rooms.faults(asked)
        if faults:
            return rooms.not_granted(asked, faults)
        wishes = tuple(
            Wish(target.key, target.group, target.resource, generation)
            for target, generation in zip(asked.targets, asked.generations, strict=True)
            if not target.is_written
        )
        if wishes:
            try:
                await rooms.coordinator.ready()
            except KafkaError as error:
                return rooms.not_coordinating(asked, error)
        if not client.is_alive():
            return rooms.refused(asked, control.UNAVAILABLE, "the connection was closed")
        ticket = self.tickets.get(asked.token)
        if ticket is not None:  # the same request arrived on another connection in the meantime
            self.connect(ticket, client)
            return ticket
        ticket = Ticket(asked, {}, asked.request(wishes) if wishes else None, {})
        ticket.keys.update(zip(asked.read, (wish.key for wish in wishes), strict=True))
        for number, target in enumerate(asked.targets):
            if target.is_written:
                mode = rooms.topics.mode(target.topic, asked.mode)
                claimant = asked.claimant(
                    number, client.connection_id, mode, rooms.governed.producers.followed_by(asked.session)
                )
                ticket.claims[target] = TopicClaim(
                    target.topic, target.index, claimant, client.address, client.is_alive
                )
        if ticket.request is not None:
            self._bind(client, asked)
        self.tickets.add(ticket, client)
        self._wake(ticket)
        return ticket

    def _wake(self, ticket: Ticket) -> None:
        ticket.is_due = True
        if not ticket.is_driven and ticket.stand in (Stand.TRYING, Stand.WAITING):
            ticket.is_driven = True
            self._tasks.start(self._drive(ticket))

    async def _drive(self, ticket: Ticket) -> None:
        """Decide on a request, again if its targets change in the meantime."""
        try:
            while ticket.is_due and ticket.stand in (Stand.TRYING, Stand.WAITING):
                ticket.is_due = False
                await self.turns.begin(len(ticket.asked.targets))
                answer = await self._granting.attempt(ticket)
                if answer is not None:
                    self._settle(ticket, answer)
                elif ticket.stand is Stand.WAITING:
                    self.attendance.waits(ticket)
        except Exception:
            self._leave(ticket)
            self._settle(ticket, self._rooms.refused(ticket.asked, control.UNAVAILABLE, "the node failed"))
            raise
        finally:
            ticket.is_driven = False
            ticket.notify()  # for a call that is about to take it back

    def _settle(self, ticket: Ticket, answer: control.OwnResponse) -> None:
        """Apply a decision. If no Own waits for it, Watch or the next call reports it."""
        is_owning = ticket.stand is Stand.OWNING
        ticket.answer = None if is_owning else answer
        if ticket.own_calls == 0:
            ticket.is_promoted = is_owning
            found = zip(ticket.asked.targets, answer.ownerships, strict=True)
            ticket.news.update((target, each) for target, each in found if each.error or is_owning)
        if is_owning:
            self._begin_owning(ticket)
        else:
            self.tickets.over(ticket)
        self.attendance.left_alone(ticket)
        ticket.notify()

    def _begin_owning(self, ticket: Ticket) -> None:
        """Bind its claims to all its connections, and to no other request of its session. A loss while the claims were
        stored is not reported yet.
        """
        for target, claim in ticket.claims.items():
            for client in ticket.clients.values():
                if client.is_alive():
                    self._rooms.topics.join(claim, client.connection_id)
            for other in self.tickets.owners(target):
                if other is not ticket and other.asked.session == ticket.asked.session:
                    self._lose(other, target, self._rooms.superseded(target))
        self._check_all(ticket)

    def _leave(self, ticket: Ticket) -> None:
        """Give up every place, and wake the next in the queues."""
        if ticket.stand is Stand.WAITING:
            self._granting.leave(ticket)
            for target in ticket.asked.targets:
                self.target_changed(target)

    async def _abandon(self, ticket: Ticket) -> None:
        """End a request completely, because its connection counts as dead."""
        self._leave(ticket)
        await self.let_go(ticket, list(ticket.owned))
        self.tickets.forget(ticket)
        ticket.client.sever()

    async def let_go(self, ticket: Ticket, targets: Collection[Target]) -> Look:
        """Release targets of a request. Returns the reason if that fails for some, which it then still owns."""
        rooms = self._rooms
        ticket.released.update(targets)
        written = [target for target in targets if target.is_written]
        looks = await asyncio.gather(*[rooms.topics.release(ticket.claims[target]) for target in written])
        refused = {
            target: look for target, look in zip(written, looks, strict=True) if look.prospect is Prospect.REFUSED
        }
        failed, kept = next(iter(refused.values()), None), set(refused)
        others = [target for target in targets if not target.is_written]
        if failed is None and others:
            try:
                await rooms.coordinator.release(ticket.asked.token, [target.key for target in others])
            except KafkaError as error:
                failed = not_now(error)
        if failed is not None:
            kept.update(others)
        ticket.released.difference_update(kept)
        for target in targets:
            if target not in kept:
                self.tickets.disowned(ticket, target)
            elif target in ticket.owned:
                self._check(ticket, target)  # it may have changed in the meantime
        return failed or Look(Prospect.READY)

    async def withdraw(self, ticket: Ticket) -> None:
        """End a waiting request; one that is being decided, or promoted, is decided first."""
        while ticket.is_driven or ticket.stand is Stand.TRYING:
            await asyncio.wait([ticket.listen()])
        if ticket.stand is Stand.WAITING:
            self._leave(ticket)
            answer = self._rooms.refused(ticket.asked, control.DEPOSED, "its place was given up by Release")
            self._settle(ticket, answer)

    # What happens -----------------------------------------------------------------------------------------------------

    def topic_changed(self, topic: str, partition: int | None) -> None:
        """The owner of a topic or partition may have changed."""
        self.target_changed(Target("", topic, WHOLE if partition is None else partition, ""))

    def token_changed(self, token: bytes, lost: Collection[Key]) -> None:
        """The coordinator reports for a token that its turn has come, or that it lost these claims."""
        ticket = self.tickets.get(token)
        if ticket is None:
            return
        for key in lost:
            target = Target.of_key(key)
            if target in ticket.owned:
                self._check(ticket, target)
        self._wake(ticket)

    def target_changed(self, target: Target) -> None:
        """Report the loss of a target to its former owners, and wake the first in its queue."""
        for ticket in self.tickets.owners(target):
            self._check(ticket, target)
        self._wake_first(target)

    def _wake_first(self, target: Target) -> None:
        """Wake the request that has waited longest; for a topic also the head of its queue, if that is another one."""
        first = self.tickets.first_waiting(target)
        if first is None:
            return
        self._wake(first)
        if target.is_written:
            head = self._rooms.topics.head_of_queue(target.topic, target.index)
            other = None if head in (None, first.asked.session) else self.tickets.waiting_as(target, head)
            if other is not None:
                self._wake(other)

    def _check_all(self, ticket: Ticket) -> None:
        for target in list(ticket.owned):
            self._check(ticket, target)

    def _check(self, ticket: Ticket, target: Target) -> None:
        """Check that a request still owns a target, and report a loss."""
        if target in ticket.released:
            return
        key = ticket.keys.get(target)
        if key is not None and self._rooms.coordinator.is_held(key, ticket.asked.token, ticket.owned[target]):
            return
        ownership = self._rooms.standing(ticket, target)
        if ownership.error == control.NONE:
            if ownership.generation == ticket.owned[target]:
                return
            ticket.owned[target] = ownership.generation
            ticket.news[target] = ownership
            ticket.notify()
        else:
            self._lose(ticket, target, ownership)

    def _lose(self, ticket: Ticket, target: Target, ownership: control.Ownership) -> None:
        ticket.lost[target] = ticket.news[target] = ownership
        self.tickets.disowned(ticket, target)
        ticket.notify()

    async def _give_up(self, ticket: Ticket) -> None:
        """Give up the place or promotion of a request without calls, so that others can have it."""
        if ticket.calls:
            return  # a call has just arrived
        if ticket.is_driven:
            self.attendance.left_alone(ticket)  # it may be promoted just now: that is kept for the same time
            return
        self._leave(ticket)
        look = await self.let_go(ticket, list(ticket.owned))
        if look.prospect is Prospect.READY:
            self.tickets.forget(ticket)
        else:
            self.attendance.left_alone(ticket)  # and again

    async def run(self) -> None:
        """Give up requests without calls, and check queues for which no event may come. Runs until cancelled."""
        turns = 0
        while True:
            await asyncio.sleep(_SWEEP_S)
            for number, ticket in enumerate(self.attendance.lapsed(), start=1):
                self._tasks.start(self._give_up(ticket))
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            turns += 1
            if turns % _SWEEPS_PER_LOOK == 0:
                for target in self.tickets.waited_for():
                    if target.is_written:
                        self._wake_first(target)
