"""What a node remembers of Own requests: nothing that is forgotten stays anywhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sidecar.changelog import Key
from sidecar.gateway.own import sets as module
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.sets import ClaimSet, Sets, Stand
from sidecar.protocol.session import Caller
from sidecar.resources.requests import Wish
from tests.own import topic

TOPICS = [Wish.of("", topic(name)).key for name in "abc"]


def connection(number: int) -> Any:
    return SimpleNamespace(connection_id=number, is_alive=lambda: True)


def request(token: bytes, topics: list[Key]) -> ClaimSet:
    asked: Any = SimpleNamespace(token=token, wishes=dict.fromkeys(topics), caller=Caller(f"User:{token[-1] % 2}", ""))
    of_topics: dict[Key, Any] = dict.fromkeys(topics)
    return ClaimSet(asked, of_topics, None)


class Remembered(RuleBasedStateMachine):
    """Requests come, wait, own, lose and go in any order, the forgotten ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.sets = Sets()
        self.all: list[ClaimSet] = []
        self.known: set[bytes] = set()

    def _pick(self, number: int) -> ClaimSet | None:
        return self.all[number % len(self.all)] if self.all else None

    @rule(wanted=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True), client=st.integers(1, 3))
    def comes(self, wanted: list[Key], client: int) -> None:
        token = len(self.all).to_bytes(16, "big")
        claims = request(token, wanted)
        self.sets.add(claims, connection(client))
        self.all.append(claims)
        self.known.add(token)

    @rule(number=st.integers(0, 50))
    def waits(self, number: int) -> None:
        claims = self._pick(number)
        if claims is not None and claims.stand is Stand.TRYING:
            self.sets.waits(claims)

    @rule(number=st.integers(0, 50))
    def owns(self, number: int) -> None:
        claims = self._pick(number)
        if claims is not None and claims.stand in (Stand.TRYING, Stand.WAITING):
            self.sets.owning(claims, dict.fromkeys(claims.topics, 1))

    @rule(number=st.integers(0, 50), lost=st.sampled_from(TOPICS))
    def loses(self, number: int, lost: Key) -> None:
        claims = self._pick(number)
        if claims is not None and lost in claims.owned:
            self.sets.disowned(claims, lost)

    @rule(number=st.integers(0, 50))
    def is_forgotten(self, number: int) -> None:
        claims = self._pick(number)
        if claims is not None:
            self.sets.forget(claims)
            self.known.discard(claims.asked.token)

    @rule(client=st.integers(1, 3))
    def a_connection_ends(self, client: int) -> None:
        for claims in self.sets.closed(client):
            self.sets.forget(claims)
            self.known.discard(claims.asked.token)

    @invariant()
    def only_the_known_are_found(self) -> None:
        for key in TOPICS:
            owners = [claims.asked.token for claims in self.sets.owners(key)]
            assert set(owners) == {
                claims.asked.token for claims in self.all if claims.asked.token in self.known and key in claims.owned
            }
            first = self.sets.waiting(key)
            waiting = [
                claims
                for claims in self.all
                if claims.asked.token in self.known and claims.stand is Stand.WAITING and key in claims.topics
            ]
            assert (first in waiting) if waiting else first is None
        assert {claims.asked.token for claims in self.all if self.sets.get(claims.asked.token)} == self.known
        assert self.sets.of_principal.total() == len(self.sets)


Remembered.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRemembered = Remembered.TestCase


def test_tokens_of_what_is_over_are_remembered_up_to_a_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LOST_KEPT", 3)
    sets = Sets()
    made = [request(number.to_bytes(16, "big"), TOPICS[:1]) for number in range(5)]
    for claims in made:
        sets.add(claims, connection(1))
        sets.owning(claims, {TOPICS[0]: 1})
        sets.disowned(claims, TOPICS[0])
    assert [sets.get(claims.asked.token) is claims for claims in made] == [False, False, True, True, True]
    assert len(sets) == 0


def test_a_request_is_bound_to_its_newest_connections_only() -> None:
    """One principal may have 50,000 requests and thousands of connections: their product had no bound."""
    sets = Sets()
    claims = request(bytes(16), TOPICS[:1])
    sets.add(claims, connection(0))
    for number in range(1, 1_000):
        sets.connect(claims, connection(number))
    assert list(claims.clients) == list(range(992, 1_000))
    assert sum(map(len, sets._of_connection.values())) == module.CONNECTIONS_KEPT
    assert sets.closed(0) == []
    sets.connect(claims, connection(0))
    assert claims.client.connection_id == 0
    assert sets.closed(0) == [claims]


def test_a_connection_whose_end_was_told_already_speaks_for_no_request() -> None:
    """Its last request is begun behind its end: what hung on it would never be let go of."""
    rooms: Any = SimpleNamespace(coordinator=None)
    tasks: Any = None
    asked: Any = SimpleNamespace(session="pid:1", token=bytes(16), targets=())
    dead: Any = SimpleNamespace(connection_id=1, is_alive=lambda: False)
    claims = ClaimSet(asked, {}, None)
    Ownerships(rooms, {}, tasks).connect(claims, dead)
    assert not claims.clients


def test_a_request_counts_for_its_principal_until_it_is_over_and_is_forgotten_without_effect() -> None:
    sets = Sets()
    over, owns = (request(bytes([number]) * 16, TOPICS[:1]) for number in (2, 4))
    for claims in (over, owns):
        sets.add(claims, connection(1))
    sets.over(over)
    sets.forget(over)
    assert (sets.of_principal, len(sets)) == ({"User:0": 1}, 1)
