"""What a node remembers of Own requests: nothing that is forgotten stays anywhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sidecar.gateway.own import tickets as module
from sidecar.gateway.own.asked import Target
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.tickets import Stand, Ticket, Tickets
from sidecar.protocol.session import Caller

TARGETS = [Target("", "", -1, name) for name in "abc"]


def connection(number: int) -> Any:
    return SimpleNamespace(connection_id=number, is_alive=lambda: True)


def request(token: bytes, targets: list[Target]) -> Any:
    return SimpleNamespace(token=token, targets=tuple(targets), caller=Caller(f"User:{token[-1] % 2}", ""))


class Remembered(RuleBasedStateMachine):
    """Requests come, wait, own, lose and go in any order, the forgotten ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets = Tickets()
        self.all: list[Ticket] = []
        self.known: set[bytes] = set()

    def _pick(self, number: int) -> Ticket | None:
        return self.all[number % len(self.all)] if self.all else None

    @rule(wanted=st.lists(st.sampled_from(TARGETS), min_size=1, unique=True), client=st.integers(1, 3))
    def comes(self, wanted: list[Target], client: int) -> None:
        token = len(self.all).to_bytes(16, "big")
        ticket = Ticket(request(token, wanted), {}, None, {})
        self.tickets.add(ticket, connection(client))
        self.all.append(ticket)
        self.known.add(token)

    @rule(number=st.integers(0, 50))
    def waits(self, number: int) -> None:
        ticket = self._pick(number)
        if ticket is not None and ticket.stand is Stand.TRYING:
            self.tickets.waits(ticket)

    @rule(number=st.integers(0, 50))
    def owns(self, number: int) -> None:
        ticket = self._pick(number)
        if ticket is not None and ticket.stand in (Stand.TRYING, Stand.WAITING):
            self.tickets.waits_no_more(ticket)
            self.tickets.owning(ticket, dict.fromkeys(ticket.asked.targets, 1))

    @rule(number=st.integers(0, 50), lost=st.sampled_from(TARGETS))
    def loses(self, number: int, lost: Target) -> None:
        ticket = self._pick(number)
        if ticket is not None and lost in ticket.owned:
            self.tickets.disowned(ticket, lost)

    @rule(number=st.integers(0, 50))
    def is_forgotten(self, number: int) -> None:
        ticket = self._pick(number)
        if ticket is not None:
            self.tickets.forget(ticket)
            self.known.discard(ticket.asked.token)

    @rule(client=st.integers(1, 3))
    def a_connection_ends(self, client: int) -> None:
        for ticket in self.tickets.of_connection(client):
            self.tickets.forget(ticket)
            self.known.discard(ticket.asked.token)

    @invariant()
    def only_the_known_are_found(self) -> None:
        for target in TARGETS:
            owners = [ticket.asked.token for ticket in self.tickets.owners(target)]
            assert set(owners) == {
                ticket.asked.token for ticket in self.all if ticket.asked.token in self.known and target in ticket.owned
            }
            first = self.tickets.first_waiting(target)
            waiting = [
                ticket
                for ticket in self.all
                if ticket.asked.token in self.known and ticket.stand is Stand.WAITING and target in ticket.asked.targets
            ]
            assert (first in waiting) if waiting else first is None
        assert {ticket.asked.token for ticket in self.all if self.tickets.get(ticket.asked.token)} == self.known
        assert self.tickets.of_principal.total() == len(self.tickets)


Remembered.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRemembered = Remembered.TestCase


def test_tokens_of_what_is_over_are_remembered_up_to_a_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LOST_KEPT", 3)
    tickets = Tickets()
    made = [Ticket(request(number.to_bytes(16, "big"), TARGETS[:1]), {}, None, {}) for number in range(5)]
    for ticket in made:
        tickets.add(ticket, connection(1))
        tickets.owning(ticket, {TARGETS[0]: 1})
        tickets.disowned(ticket, TARGETS[0])
    assert [tickets.get(ticket.asked.token) is ticket for ticket in made] == [False, False, True, True, True]
    assert len(tickets) == 0


def test_a_request_is_bound_to_its_newest_connections_only() -> None:
    """One principal may have 50,000 requests and thousands of connections: their product had no bound."""
    tickets = Tickets()
    ticket = Ticket(request(bytes(16), TARGETS[:1]), {}, None, {})
    tickets.add(ticket, connection(0))
    for number in range(1, 1_000):
        tickets.connect(ticket, connection(number))
    assert list(ticket.clients) == list(range(992, 1_000))
    assert sum(map(len, tickets._of_connection.values())) == module.CONNECTIONS_KEPT
    assert tickets.of_connection(0) == []
    tickets.connect(ticket, connection(0))
    assert ticket.client.connection_id == 0
    assert tickets.of_connection(0) == [ticket]


def test_a_connection_whose_end_was_told_already_speaks_for_no_request() -> None:
    """Its last request is begun behind its end: what hung on it would never be let go of."""
    rooms: Any = SimpleNamespace(coordinator=None)
    tasks: Any = None
    asked: Any = SimpleNamespace(session="pid:1", token=bytes(16), targets=())
    dead: Any = SimpleNamespace(connection_id=1, is_alive=lambda: False)
    ticket = Ticket(asked, {}, None, {})
    Ownerships(rooms, tasks).connect(ticket, dead)
    assert not ticket.clients


def test_a_request_counts_for_its_principal_until_it_is_over_and_is_forgotten_without_effect() -> None:
    tickets = Tickets()
    over, owns = (Ticket(request(bytes([number]) * 16, TARGETS[:1]), {}, None, {}) for number in (2, 4))
    for ticket in (over, owns):
        tickets.add(ticket, connection(1))
    tickets.over(over)
    tickets.forget(over)
    assert (tickets.of_principal, len(tickets)) == ({"User:0": 1}, 1)
