"""Decides on Own requests: checks one as a whole, then grants it as a whole, or gives it places in every queue.

A set is checked in one turn of the loop. If any resource is refused, nothing is done. If any has to wait, the request
takes a place in every queue at once, so that no circular wait arises. If all can be granted, topics are taken over and
the other claims are stored. If something changes between check and grant, all is released and checked again.

Kafka wiki Single Reader/Writer, PIP-68; docs/reference/own-apis.md.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from sidecar.access.prospects import Look, Prospect
from sidecar.exclusive.owning import TopicClaim
from sidecar.gateway.own.answers import Rooms, not_allowed, not_now
from sidecar.gateway.own.asked import Target
from sidecar.gateway.own.tickets import Stand, Ticket, Tickets
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.requests import ClaimVerdict, Request
from sidecar.v1 import control_pb2 as control

_BUSY_S: Final = 10.0
"""How long a request waits for topics that are being taken over before its answer says so, in seconds."""
_TAKEOVERS: Final = 32
"""The limit of concurrent takeovers for all requests of this node."""
_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1
_CHANGING: Final = "its owner is changing; try again"


class Granting:
    """Decides on the requests in `tickets`."""

    def __init__(self, rooms: Rooms, tickets: Tickets) -> None:
        self._rooms = rooms
        self._tickets = tickets
        self._takeovers = asyncio.Semaphore(_TAKEOVERS)

    async def attempt(self, ticket: Ticket) -> control.OwnResponse | None:
        """Decide on a request. Returns the answer, or None if it has to wait."""
        now = asyncio.get_running_loop().time
        until, pause = now() + _BUSY_S, _FIRST_PAUSE_S
        while True:
            elsewhere = await self._not_coordinating(ticket)
            if not ticket.is_alive:
                return self._without_client(ticket)
            if elsewhere is not None:
                self.leave(ticket)
                return self._rooms.not_coordinating(ticket.asked, elsewhere)
            refused = not_allowed(ticket.asked, ticket.client.rights, self._rooms.topics.mode)
            if refused is not None:  # rights were lost since it arrived
                self.leave(ticket)
                return refused
            looks = self._look(ticket)
            prospects = {look.prospect for look in looks.values()}
            if Prospect.REFUSED in prospects:
                self.leave(ticket)
                return self._rooms.not_granted(ticket.asked, looks)
            if Prospect.WAIT in prospects or (Prospect.BUSY in prospects and ticket.stand is Stand.WAITING):
                return self._wait(ticket)
            if Prospect.BUSY not in prospects:
                looks = await self._take(ticket)
                if not looks:
                    return self._rooms.owned(ticket)
                if any(look.prospect is Prospect.REFUSED for look in looks.values()):
                    self.leave(ticket)
                    return self._rooms.not_granted(ticket.asked, looks)
            if now() > until:
                self.leave(ticket)
                return self._rooms.refused(ticket.asked, control.UNAVAILABLE, _CHANGING)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _without_client(self, ticket: Ticket) -> control.OwnResponse | None:
        """The request has no connection, so nothing is granted. A place is kept while its session may reconnect."""
        if ticket.stand is Stand.WAITING:
            return None
        self._tickets.forget(ticket)
        return self._rooms.refused(ticket.asked, control.UNAVAILABLE, "the connection was closed")

    async def _not_coordinating(self, ticket: Ticket) -> KafkaError | None:
        """Why this node cannot decide on free strings and reader claims; None if it can. If its coordinator epoch has
        ended, the node that fenced it may have died: then this node takes the slot again.
        """
        if ticket.request is not None and not self._rooms.coordinator.coordinates:
            try:
                await self._rooms.coordinator.ready()
            except KafkaError as error:
                return error
        return None

    def _look(self, ticket: Ticket) -> dict[Target, Look]:
        looks = {target: self._rooms.topics.look(claim) for target, claim in ticket.claims.items()}
        if ticket.request is not None:
            looks |= _by_target(ticket.asked.read, self._rooms.coordinator.look(ticket.request))
        return looks

    def _wait(self, ticket: Ticket) -> control.OwnResponse | None:
        """Take a place in every queue, or keep the present ones. Returns an answer if that is not possible."""
        if not ticket.came or self._has_lapsed(ticket):
            ticket.came = asyncio.get_running_loop().time()
            for claim in ticket.claims.values():
                self._rooms.topics.leave(claim)
        for claim in ticket.claims.values():
            if self._rooms.topics.generation(claim) is None:
                self._rooms.topics.keep_place(claim, ticket.came)
        if ticket.stand is not Stand.WAITING:
            self._tickets.waits(ticket)
            ticket.notify()
        if ticket.request is not None:
            try:
                self._rooms.coordinator.wait(ticket.client, ticket.request)
                ticket.is_placed = self._rooms.coordinator.is_waiting(ticket.asked.token)
            except KafkaError as error:
                self.leave(ticket)
                return self._rooms.not_coordinating(ticket.asked, error)
        return None

    def _has_lapsed(self, ticket: Ticket) -> bool:
        """Whether the coordinator ended its places with the session. Those for topics then end too (circular waits)."""
        return ticket.is_placed and not self._rooms.coordinator.is_waiting(ticket.asked.token)

    def leave(self, ticket: Ticket) -> None:
        """Give up every place."""
        if ticket.stand is not Stand.WAITING:
            return
        ticket.stand = Stand.TRYING
        self._tickets.waits_no_more(ticket)
        for target, claim in ticket.claims.items():
            self._rooms.topics.leave(claim)
            other = self._tickets.waiting_as(target, claim.claimant.session)
            if other is not None:  # a session has one place per queue
                self._rooms.topics.keep_place(other.claims[target], other.came)
        if ticket.request is not None:
            self._rooms.coordinator.leave([ticket.asked.token])

    async def _take(self, ticket: Ticket) -> dict[Target, Look]:
        """Grant all targets. If one fails, nothing is granted; returns the reasons by target."""
        rooms = self._rooms
        gained = {target: claim for target, claim in ticket.claims.items() if rooms.topics.generation(claim) is None}
        looks = dict(
            zip(ticket.claims, await asyncio.gather(*map(self._take_over, ticket.claims.values())), strict=True)
        )
        owned = {target: rooms.topics.generation(claim) for target, claim in ticket.claims.items()}
        failed = {target: look for target, look in looks.items() if look.prospect is not Prospect.READY}
        failed |= {
            target: Look(Prospect.BUSY) for target, found in owned.items() if found is None and target not in failed
        }
        if not failed and ticket.request is not None:
            failed, granted = await self._write_down(ticket, ticket.request)
            owned |= granted
        if failed:
            taken = [claim for target, claim in gained.items() if looks[target].prospect is Prospect.READY]
            await asyncio.gather(*[rooms.topics.release(claim) for claim in taken])
            return failed
        self._tickets.waits_no_more(ticket)
        self._tickets.owning(ticket, {target: found for target, found in owned.items() if found is not None})
        return {}

    async def _write_down(self, ticket: Ticket, request: Request) -> tuple[dict[Target, Look], dict[Target, int]]:
        """Store the claims at the coordinator. Returns the reasons of failures, or the generations, by target."""
        targets = ticket.asked.read
        try:
            verdict = await self._rooms.coordinator.take(ticket.client, request)
        except KafkaError as error:
            ended = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # epoch ended: the present coordinator decides
            return dict.fromkeys(targets, Look(Prospect.BUSY) if ended else not_now(error)), {}
        if verdict.prospect is not Prospect.READY:
            return _by_target(targets, verdict), {}
        return {}, {target: ownership.generation for target, ownership in zip(targets, verdict.ownerships, strict=True)}

    async def _take_over(self, claim: TopicClaim) -> Look:
        async with self._takeovers:
            return await self._rooms.topics.take(claim)


def _by_target(targets: Sequence[Target], verdict: ClaimVerdict) -> dict[Target, Look]:
    """The coordinator's verdict by target."""
    if verdict.prospect is not Prospect.REFUSED:
        return dict.fromkeys(targets, Look(verdict.prospect))
    return {
        target: Look(Prospect.REFUSED, ownership.error, ownership.message) if ownership.error else Look(Prospect.READY)
        for target, ownership in zip(targets, verdict.ownerships, strict=True)
    }
