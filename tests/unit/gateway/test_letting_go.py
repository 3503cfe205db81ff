"""A Release of which a part fails: the rest is given back, and neither is forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sidecar.access.prospects import Look, Prospect
from sidecar.gateway.own.asked import WHOLE, Target
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.tickets import Ticket
from sidecar.protocol.session import Caller
from sidecar.v1 import control_pb2 as control

GIVEN, KEPT = Target("", "given", WHOLE, ""), Target("", "kept", WHOLE, "")


async def test_what_was_given_back_is_not_owned_though_the_rest_is_kept() -> None:
    held = {GIVEN, KEPT}

    async def release(target: Target) -> Look:
        if target == KEPT and KEPT in away:
            return Look(Prospect.REFUSED, control.UNAVAILABLE, "Kafka is away")
        held.discard(target)
        ownerships.target_changed(target)
        return Look(Prospect.READY)

    def standing(_ticket: Ticket, target: Target) -> control.Ownership:
        return control.Ownership(error=control.NONE if target in held else control.DEPOSED, generation=1)

    away = {KEPT}
    rooms: Any = SimpleNamespace(
        topics=SimpleNamespace(release=release, head_of_queue=lambda *_: None),
        standing=standing,
        coordinator=None,
    )
    tasks: Any = None
    asked: Any = SimpleNamespace(token=bytes(16), session="pid:1", targets=(GIVEN, KEPT), caller=Caller("", ""))
    client: Any = SimpleNamespace(connection_id=1, is_alive=lambda: True)
    claims: Any = {GIVEN: GIVEN, KEPT: KEPT}
    ownerships, ticket = Ownerships(rooms, tasks), Ticket(asked, claims, None, {})
    ownerships.tickets.add(ticket, client)
    ownerships.tickets.owning(ticket, {GIVEN: 1, KEPT: 1})
    assert (await ownerships.let_go(ticket, [GIVEN, KEPT])).error == control.UNAVAILABLE
    assert (set(ticket.owned), ticket.lost, ticket.news, ticket.released) == ({KEPT}, {}, {}, {GIVEN})
    away.clear()
    assert (await ownerships.let_go(ticket, [KEPT])).prospect is Prospect.READY
    assert (ticket.owned, ticket.lost, ticket.news) == ({}, {}, {})
