"""Sequences that got a final error: what is remembered of them, for how long, and how much."""

from __future__ import annotations

from sidecar.exclusive.refusals import Refusals, RefusedLedger
from sidecar.ownership.state import Claimant
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.session import Session
from sidecar.takeover.slots import SlotScope


def claimant(session: str, connection: int = 1, name: str = "") -> Claimant:
    return Claimant(Session(session), name or session, is_named=True, connection=connection)


def header(sequence: int, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return BatchHeader(0, 70, 2, 0, 0, 0, 0, producer_id, epoch, Client(sequence), 1)


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
