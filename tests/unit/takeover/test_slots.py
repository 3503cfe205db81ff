"""What a takeover reads in the ownership topic, and what it makes of its own node's memory of a session."""

from __future__ import annotations

from uuid import UUID

import pytest

from sidecar.changelog import MASTER_SLOT, Clock, Key, Kind, Position, Record, View, pack_positions, shared_slot
from sidecar.protocol.caller import TopicLayout
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.session import Caller, Session
from sidecar.takeover.requests import Memory, Purpose, Request
from sidecar.takeover.slots import OutdatedMasterError, SlotRecords, SlotScope
from sidecar.v1 import state_pb2 as state

TOPIC_ID, ANEW = UUID(int=1), UUID(int=2)
SLOT = shared_slot(1)
MINE, LATER = (Stamp(ProducerId(900), ProducerEpoch(epoch)) for epoch in (4, 5))
MEMORY = {0: Position(0, Client(1_000))}


@pytest.fixture
def view() -> View:
    return View()


def opens(view: View, offset: int, writer: Stamp, session: str = Session("pid:7")) -> None:
    value = state.Slot(
        topic_id=TOPIC_ID.bytes, session=session, producer_id=writer.producer_id, producer_epoch=writer.epoch,
        base=pack_positions({0: Position(0, Client(5))}),
    )  # fmt: skip
    view.apply(Offset(offset), 1, writer, Record(Key(Kind.SLOT, "orders", SLOT), value).encode())


def remembered(view: View, topic_id: UUID = TOPIC_ID) -> dict[int, Position]:
    request = Request(Purpose.WRITE_BESIDE, Session("pid:7"), "a", memory=Memory(TOPIC_ID, MINE, MEMORY))
    records = SlotRecords(view, Clock(), SlotScope("orders", SLOT), request, MINE)
    opened = next((entry for entry in view.opened("orders").values() if entry.value.topic_id == topic_id.bytes), None)
    return dict(records.memory(topic_id, opened))


def test_a_slot_is_not_written_down_under_another_nodes_master_record(view: View) -> None:
    """A node that froze in the midst may have read that record by the time it goes on."""
    records = SlotRecords(
        view, Clock(), SlotScope("orders", SLOT), Request(Purpose.WRITE_BESIDE, Session("pid:7"), "a"), MINE
    )
    for offset, writer in ((3, MINE), (4, LATER)):
        value = state.Serving(producer_id=writer.producer_id, producer_epoch=writer.epoch)
        view.note_writer(writer)
        view.apply(Offset(offset), 1, writer, Record(Key(Kind.SERVING, "orders", MASTER_SLOT), value).encode())
        if writer == MINE:
            assert records.under() == 3
    with pytest.raises(KafkaError) as refused:
        records.under()
    assert refused.value.code == 6


def test_no_slot_is_opened_beside_a_master_slot_of_a_topic_that_was_deleted(view: View) -> None:
    """Nothing of an older epoch of the master slot is fenced in the topic that was created anew."""
    value = state.Serving(topic_id=TOPIC_ID.bytes, producer_id=MINE.producer_id, producer_epoch=MINE.epoch)
    view.apply(Offset(3), 1, MINE, Record(Key(Kind.SERVING, "orders", MASTER_SLOT), value).encode())
    records = SlotRecords(
        view, Clock(), SlotScope("orders", SLOT), Request(Purpose.WRITE_BESIDE, Session("pid:7"), "a"), MINE
    )
    records.check_topic(TOPIC_ID)
    with pytest.raises(OutdatedMasterError):
        records.check_topic(ANEW)
    SlotRecords(
        view, Clock(), SlotScope("orders"), Request(Purpose.WRITE_BESIDE, Session("pid:7"), "a"), None
    ).check_topic(ANEW)


def test_only_the_newest_epochs_moves_of_a_base_count(view: View) -> None:
    opens(view, 1, LATER)
    for partition, writer in enumerate((MINE, LATER)):
        moved = state.SequenceBase(producer_id=writer.producer_id, producer_epoch=writer.epoch, from_sequence=3, base=2)
        view.apply(Offset(2), 1, writer, Record(Key(Kind.SEQUENCE_BASE, "orders", SLOT, partition), moved).encode())
    records = SlotRecords(view, Clock(), SlotScope("orders", SLOT), Request(Purpose.CLAIM, Session("pid:7"), "a"), None)
    assert records.shifts(SLOT, view.opened("orders")[SLOT]) == {1: moved}


def writer_of(view: View, caller: Caller | None) -> tuple[str, Caller | None]:
    request = Request(Purpose.CLAIM, Session("pid:7"), "the boss", caller=caller)
    owner = state.Ownership(session="pid:7", name="the boss")
    found = SlotRecords(view, Clock(), SlotScope("orders"), request, None).writer(owner, TOPIC_ID)
    assert found.session == Session("pid:7")
    return found.name, found.caller


def test_an_epochs_writer_is_called_as_its_client_calls_itself_whatever_the_owner_is_called(view: View) -> None:
    billing = Caller("User:app", "billing")
    assert writer_of(view, None) == ("the boss", None)
    assert writer_of(view, billing) == ("billing", billing)
    said = state.Serving(topic_id=TOPIC_ID.bytes, session="pid:7", client_id="billing", principal="User:app")
    view.apply(Offset(1), 1, MINE, Record(Key(Kind.SERVING, "orders", MASTER_SLOT), said).encode())
    assert writer_of(view, None) == ("billing", billing)
    opens(view, 2, LATER, Session("pid:8"))
    assert writer_of(view, None) == ("billing", billing), "the newest record is of another session"


def test_a_partition_that_is_not_there_is_not_taken_over(view: View) -> None:
    scope = SlotScope.of_partition("orders", 3)
    records = SlotRecords(view, Clock(), scope, Request(Purpose.CLAIM, Session("pid:7"), "a"), MINE)
    assert records.partitions(TopicLayout(TOPIC_ID, dict.fromkeys(range(4), 0))) == (3,)
    with pytest.raises(KafkaError) as refused:
        records.partitions(TopicLayout(TOPIC_ID, dict.fromkeys(range(3), 0)))
    assert refused.value.code == 3


def test_memory_counts_while_nobody_served_the_session_since(view: View) -> None:
    opens(view, 1, MINE)
    assert remembered(view) == MEMORY


def test_memory_counts_for_a_topic_that_was_created_anew(view: View) -> None:
    opens(view, 1, LATER)
    assert remembered(view, ANEW) == MEMORY


def test_memory_from_before_another_node_served_the_session_counts_for_nothing(view: View) -> None:
    """It lags ever farther: half a round behind the session it passed for the newest place, and records were lost."""
    opens(view, 1, MINE)
    opens(view, 2, LATER)
    assert remembered(view) == {}


def test_memory_of_a_session_that_everybody_else_forgot_counts_for_nothing(view: View) -> None:
    opens(view, 1, LATER, Session("pid:8"))
    assert remembered(view) == {}
