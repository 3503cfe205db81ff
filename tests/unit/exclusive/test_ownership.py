"""Whose a topic is, event by event."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ownership import AccessMode
from sidecar.exclusive.ownership import (
    Absent,
    Awaited,
    Holder,
    Leaving,
    Owned,
    State,
    connected,
    disconnected,
    is_held,
    moved_away,
    seconds_left,
    taken_over,
)
from sidecar.protocol.session import Session

NOW, LATER = 100.0, 105.0
OWNER = Owned(Session("pid:1"), "billing", AccessMode.EXCLUSIVE, 3)
HERE = replace(OWNER, connections=frozenset({1}), writers=frozenset({1}))
PLAIN = replace(HERE, session=Session("conn:1"))
LEAVING = Leaving(OWNER.session, OWNER.name, OWNER.mode, OWNER.generation, until=LATER)
AWAITED = Awaited(OWNER.session, OWNER.name, OWNER.mode, OWNER.generation, until=LATER)
EACH = pytest.mark.parametrize("state", [None, HERE, LEAVING, AWAITED], ids=lambda state: type(state).__name__)


@EACH
def test_a_takeover_tells_whose_it_is_whatever_was_known(state: State) -> None:
    rival = replace(OWNER, session=Session("pid:2"), connections=frozenset({7}))
    assert taken_over(state, rival, None) == rival
    assert taken_over(state, None, None) is None


def test_an_owner_that_goes_on_keeps_its_connections_and_has_to_prove_its_writers_anew() -> None:
    found = taken_over(HERE, replace(OWNER, connections=frozenset({2})), None)
    assert found == replace(OWNER, connections=frozenset({1, 2}))


def test_an_owner_whose_connections_closed_during_its_takeover_leaves() -> None:
    assert taken_over(None, OWNER, LATER) == LEAVING
    at_once = taken_over(None, OWNER, None)
    assert at_once == OWNER
    assert seconds_left(at_once, NOW) == 0


def test_the_last_connection_ends_an_ownership_after_the_grace() -> None:
    both = replace(HERE, connections=frozenset({1, 2}))
    one = disconnected(both, 1, LATER)
    assert one == replace(OWNER, connections=frozenset({2}))
    assert seconds_left(one, NOW) is None
    gone = disconnected(one, 2, LATER)
    assert gone == LEAVING
    assert seconds_left(gone, NOW) == LATER - NOW
    assert connected(gone, 3) == replace(OWNER, connections=frozenset({3}))


def test_a_connection_that_never_spoke_for_the_owner_ends_nothing() -> None:
    for state in (None, HERE, LEAVING, AWAITED):
        assert disconnected(state, 99, LATER) is state


def test_a_connection_writes_only_after_a_batch_of_its_own_was_admitted() -> None:
    joined = connected(HERE, 2)
    assert isinstance(joined, Owned)
    assert joined.writers == {1}
    wrote = connected(joined, 2, writes=True)
    assert isinstance(wrote, Owned)
    assert wrote.writers == {1, 2}
    assert connected(wrote, 2, writes=True) is wrote


def test_where_another_node_serves_the_topic_its_owner_may_come_from_there() -> None:
    assert moved_away(HERE, LATER) == AWAITED
    assert moved_away(LEAVING, LATER) == AWAITED
    assert moved_away(replace(AWAITED, until=NOW), LATER) == AWAITED
    assert moved_away(PLAIN, LATER) is PLAIN
    assert moved_away(None, LATER) is None


def test_an_awaited_owner_holds_the_topic_until_its_time_is_over() -> None:
    assert is_held(AWAITED, NOW)
    assert not is_held(AWAITED, LATER)
    assert not is_held(LEAVING, LATER)
    assert is_held(HERE, LATER)
    assert not is_held(None, NOW)
    assert seconds_left(AWAITED, NOW) is None, "another node lets it go, or a newcomer takes it"


sessions = st.sampled_from([Session("pid:1"), Session("pid:2"), Session("conn:1")])
connections = st.integers(1, 3)
moments = st.sampled_from([NOW, LATER])
owners = st.builds(
    Owned, sessions, st.just("name"), st.just(AccessMode.EXCLUSIVE), st.just(1), st.frozensets(connections)
)
waited = st.builds(Awaited, sessions, st.just("name"), st.just(AccessMode.EXCLUSIVE), st.just(1), until=moments)
events: st.SearchStrategy[partial[State]] = st.one_of(
    st.builds(partial, st.just(moved_away), until=moments),
    st.builds(partial, st.just(connected), connection=connections, writes=st.booleans()),
    st.builds(partial, st.just(disconnected), connection=connections, until=st.none() | moments),
    st.builds(partial, st.just(taken_over), owner=st.none() | owners, until=st.none() | moments),
)


@given(st.none() | waited, st.lists(events, max_size=12))
def test_whatever_happens(state: State, happened: list[partial[State]]) -> None:
    for event in happened:
        before, state = state, event(state)
        if isinstance(state, Absent):
            assert not state.connections, "an owner with a connection is not absent"
        if isinstance(state, Holder):
            assert state.writers <= state.connections
        if event.func in (connected, disconnected, moved_away):
            same = isinstance(before, Holder) and isinstance(state, Holder) and before.session == state.session
            assert same or before is state is None, "no connection and no move makes another one the owner"
