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


def refuse(refusals: Refusals, number: int, sequence: int, *, partition: int = 0, connection: int = 1) -> None:
    refusals.add(claimant(Session(f"pid:{number}"), connection), partition, header(sequence, producer_id=number))


def test_each_partition_and_span_counts_once_in_what_a_node_remembers() -> None:
    ledger = RefusedLedger()
    refusals, other, third = Refusals(ledger), Refusals(ledger), SlotScope.of_partition("orders", 3)
    sizes: list[int] = []
    for sequence, partition in [(0, 0), (1, 0), (5, 0), (0, 3)]:
        refuse(refusals, 7, sequence, partition=partition)
        sizes.append(ledger.total)
    assert sizes == [2, 2, 3, 5], "what follows a span makes it longer"
    refuse(other, 7, 0)
    assert ledger.total == 7
    refusals.forgive(Session("pid:7"), third)
    assert ledger.total == 5
    ledger.connection_closed(1)
    assert ledger.total == 5
    refuse(refusals, 7, 9, connection=2)
    assert ledger.total == 6
    refusals.forget(Session("pid:7"))
    refusals.forget(Session("pid:7"))
    assert ledger.total == 2
    other.forgive(Session("pid:7"), SlotScope("orders"))
    assert ledger.total == 0


def test_a_session_that_comes_back_on_another_connection_is_among_the_connected_again() -> None:
    ledger = RefusedLedger(most=100, gone=4)
    refusals, topic = Refusals(ledger), SlotScope("orders")
    for number in (1, 2, 3):
        refuse(refusals, number, 0, connection=number)
    ledger.connection_closed(1)
    refuse(refusals, 1, 5, connection=9)
    ledger.connection_closed(1)
    ledger.connection_closed(2)
    ledger.connection_closed(3)
    assert [number for number in (1, 2, 3) if refusals.has(Session(f"pid:{number}"), topic)] == [1, 2, 3]
    ledger.connection_closed(9)
    assert [number for number in (1, 2, 3) if refusals.has(Session(f"pid:{number}"), topic)] == [1]
    refusals.note(Session("pid:1"), 0, 0, Client(9), 1)
    refuse(refusals, 4, 0, connection=4)
    ledger.connection_closed(4)
    assert refusals.has(Session("pid:1"), topic), "it writes by some connection: not among those that are gone"


def test_what_is_forgiven_keeps_the_connection_of_its_session() -> None:
    ledger = RefusedLedger(most=100, gone=2)
    refusals = Refusals(ledger)
    refuse(refusals, 1, 0)
    refuse(refusals, 1, 0, partition=3)
    refusals.forgive(Session("pid:1"), SlotScope.of_partition("orders", 3))
    refuse(refusals, 2, 0, connection=2)
    ledger.connection_closed(1)
    ledger.connection_closed(2)
    assert not refusals.has(Session("pid:1"), SlotScope("orders"))
    assert refusals.has(Session("pid:2"), SlotScope("orders"))
