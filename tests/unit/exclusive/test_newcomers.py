"""Those who do not own a topic: what is remembered of them, for how long, and how much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.exclusive.claims import Claimant
from sidecar.exclusive.newcomers import Newcomers, Refusals, RefusedLedger
from sidecar.exclusive.slots import SlotScope
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.session import Session

GRACE = 3.0


def claimant(session: str, connection: int = 1, name: str = "") -> Claimant:
    return Claimant(Session(session), name or session, is_named=True, connection=connection)


def header(sequence: int, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return BatchHeader(0, 70, 2, 0, 0, 0, 0, producer_id, epoch, Client(sequence), 1)


def test_who_waits_is_first_come_first_served_and_keeps_its_place_while_it_tries() -> None:
    newcomers = Newcomers(GRACE)
    for now, session in enumerate(["a", "b", "a", "c", "b"]):
        newcomers.wait(claimant(session), float(now))
    assert newcomers.queue(4.0) == ("a", "b", "c")
    assert [(found.session, since) for found, since in newcomers.waiting(4.0)] == [("a", 0.0), ("b", 1.0), ("c", 3.0)]


def test_who_has_not_tried_for_five_seconds_is_gone() -> None:
    newcomers = Newcomers(GRACE)
    newcomers.wait(claimant("a"), 0.0)
    newcomers.wait(claimant("b"), 3.0)
    assert newcomers.queue(4.9) == ("a", "b")
    assert newcomers.queue(5.3) == ("b",)
    newcomers.wait(claimant("a"), 5.4)
    assert newcomers.queue(5.4) == ("b", "a")


def test_a_plain_waiter_dies_with_its_connection_and_an_idempotent_one_keeps_its_place() -> None:
    newcomers = Newcomers(GRACE)
    newcomers.wait(claimant(Session("conn:1"), 1), 0.0)
    newcomers.wait(claimant(Session("pid:1"), 1), 0.0)
    newcomers.wait(claimant(Session("conn:2"), 2), 0.0)
    newcomers.connection_closed(1, 1.0)
    assert newcomers.queue(1.0) == (Session("pid:1"), Session("conn:2"))
    newcomers.wait(claimant(Session("conn:2"), 2), 4.0)
    assert newcomers.queue(1.0 + GRACE) == (Session("pid:1"), Session("conn:2"))
    assert newcomers.queue(1.3 + GRACE) == (Session("conn:2"),)


def test_a_waiter_that_came_back_on_another_connection_does_not_go_with_the_old_one() -> None:
    newcomers = Newcomers(GRACE)
    newcomers.wait(claimant(Session("pid:1"), 1), 0.0)
    newcomers.wait(claimant(Session("pid:1"), 2), 4.0)
    newcomers.connection_closed(1, 4.5)
    assert newcomers.queue(8.9) == (Session("pid:1"),)


def test_those_who_waited_at_another_node_keep_their_places_if_they_come_soon() -> None:
    newcomers = Newcomers(GRACE)
    newcomers.wait(claimant("c"), 0.0)
    newcomers.expect([Session(each) for each in ("a", "conn:1", "b", "c")], 1.0)
    assert newcomers.queue(1.0) == ("a", "b", "c")
    assert [found.session for found, _ in newcomers.waiting(1.0)] == ["c"]
    newcomers.wait(claimant("c"), 3.5)
    newcomers.wait(claimant("b"), 3.5)
    assert newcomers.queue(1.0 + GRACE) == ("a", "b", "c")
    assert newcomers.queue(1.3 + GRACE) == ("b", "c")
    assert [found.session for found, _ in newcomers.waiting(1.3 + GRACE)] == ["b", "c"]


def test_a_claim_takes_its_session_and_those_it_evicted_out_of_the_queue() -> None:
    newcomers = Newcomers(GRACE)
    for session in ("a", "b", "c"):
        newcomers.wait(claimant(session), 0.0)
    newcomers.claimed(Session("b"), [Session("a")], ())
    assert newcomers.queue(0.0) == ("c",)


def test_what_was_refused_to_a_session_is_known_by_partition_until_it_is_written_down() -> None:
    refusals, whole, third = Refusals(), SlotScope("orders"), SlotScope.of_partition("orders", 3)
    for partition, sequence in [(0, 0), (0, 1), (3, 10)]:
        refusals.add(claimant(Session("pid:7")), partition, header(sequence))
    refusals.add(claimant(Session("conn:1")), 0, header(-1, -1, producer_id=-1))
    assert {index: found.spans for index, found in refusals.of(Session("pid:7"), whole).items()} == {
        0: [(0, 2)],
        3: [(10, 11)],
    }
    assert list(refusals.of(Session("pid:7"), third)) == [3]
    assert refusals.of(Session("conn:1"), whole) == {}
    refusals.forgive(Session("pid:7"), third)
    assert list(refusals.of(Session("pid:7"), whole)) == [0]
    refusals.forgive(Session("pid:7"), whole)
    assert refusals.of(Session("pid:7"), whole) == {}


def test_refusals_are_bounded_the_oldest_session_is_forgotten_first() -> None:
    refusals, topic = Refusals(RefusedLedger(20_000)), SlotScope("orders")
    for number in range(10_050):
        refusals.add(claimant(Session(f"pid:{number}")), 0, header(0))
    assert refusals.of(Session("pid:49"), topic) == {}
    assert 0 in refusals.of(Session("pid:50"), topic)


def test_sessions_that_have_no_connection_are_forgotten_before_those_that_have() -> None:
    ledger = RefusedLedger(most=6, gone=6)
    refusals, topic = Refusals(ledger), SlotScope("orders")
    for number in (1, 2, 3):  # two each: a partition and a span
        refusals.add(claimant(Session(f"pid:{number}"), connection=number), 0, header(0))
    ledger.connection_closed(2)
    refusals.add(claimant(Session("pid:4"), connection=4), 0, header(0))
    assert [number for number in (1, 2, 3, 4) if refusals.has(Session(f"pid:{number}"), topic)] == [1, 3, 4]
    refusals.add(claimant(Session("pid:5"), connection=5), 0, header(0))
    assert [number for number in (1, 3, 4, 5) if refusals.has(Session(f"pid:{number}"), topic)] == [3, 4, 5]


def test_who_strikes_back_is_remembered_until_the_changelog_lists_it() -> None:
    newcomers = Newcomers(GRACE)
    newcomers.fenced(claimant(Session("pid:1"), 5, "billing"), 1_000)
    newcomers.fenced(claimant(Session("pid:2"), 5), 2_000)
    newcomers.fenced(claimant(Session("conn:3"), 6), 3_000)
    assert newcomers.tainted == {5, 6}
    assert newcomers.struck == {"pid:1": 1_000, "pid:2": 2_000}
    newcomers.claimed(Session("pid:9"), [], {Session("pid:1")})
    assert list(newcomers.struck) == [Session("pid:2")]


def test_strikes_are_bounded() -> None:
    newcomers = Newcomers(GRACE)
    for number in range(1_100):
        newcomers.fenced(claimant(Session(f"pid:{number}")), number)
    assert len(newcomers.struck) == 1_000
    assert Session("pid:1099") in newcomers.struck


def test_tries_of_a_deposed_owner_are_displaced_by_nobody() -> None:
    newcomers = Newcomers(GRACE)
    newcomers.fenced(claimant(Session("pid:1"), name="billing"), 5_000, listed=True)
    for number in range(10, 2_010):
        newcomers.fenced(claimant(Session(f"pid:{number}")), number)
    tries = newcomers.tries()
    assert (tries[Session("pid:1")], len(tries)) == (5_000, 1_001)
    newcomers.claimed(Session("pid:9"), [], {Session("pid:1")})
    assert Session("pid:1") not in newcomers.tries()


def test_nothing_is_left_of_a_connection_that_is_gone() -> None:
    newcomers = Newcomers(GRACE)
    for connection in range(100):
        newcomers.ghosts[connection] = 0.0
        newcomers.fenced(claimant(Session(f"conn:{connection}"), connection), 0)
        newcomers.wait(claimant(Session(f"conn:w{connection}"), connection), 0.0)
        newcomers.connection_closed(connection, 0.0)
    assert (newcomers.ghosts, newcomers.tainted, newcomers.struck, newcomers.queue(0.0)) == ({}, set(), {}, ())


def test_who_lost_its_place_and_comes_again_stands_before_all_who_came_later() -> None:
    newcomers = Newcomers(GRACE)
    for at, session in enumerate([Session("pid:1"), Session("pid:2"), Session("pid:3")]):
        newcomers.wait(Claimant(session, "", False, at), 10.0 + at, came=10.0 + at)
    newcomers.leave(Session("pid:2"))
    assert newcomers.queue(13.0) == (Session("pid:1"), Session("pid:3"))
    newcomers.wait(Claimant(Session("pid:2"), "", False, 1), 14.0, came=11.0)
    assert newcomers.queue(14.0) == (Session("pid:1"), Session("pid:2"), Session("pid:3"))
    newcomers.wait(Claimant(Session("pid:4"), "", False, 1), 15.0)
    assert newcomers.queue(15.0) == (Session("pid:1"), Session("pid:2"), Session("pid:3"), Session("pid:4"))


class Walked(dict[Session, tuple[Claimant | None, float, float]]):
    """Counts how often all of it is looked through."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("ended", ["by time", "by a fence"])
def test_a_queue_that_ends_is_walked_once_however_many_wait(ended: str) -> None:
    """Once for each that goes, a thousand hold the loop up for tens of milliseconds, twenty thousand for seconds."""
    newcomers = Newcomers(GRACE)
    sessions = [Session(f"s{number}") for number in range(100)]
    for session in sessions:
        newcomers.wait(claimant(session), 0.0)
    assert newcomers.count(0.0) == len(sessions)
    newcomers._waiting = walked = Walked(newcomers._waiting)
    if ended == "by a fence":
        newcomers.claimed(Session("fencer"), sessions, ())
    assert newcomers.count(100.0) == 0
    assert newcomers.order == ()
    assert walked.walks == 1
