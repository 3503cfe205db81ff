"""What a takeover reads in the ownership topic, and what it makes of its own node's memory of a session."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from metadata.ownership import AccessMode, Generation, Ownership
from sidecar.changelog import (
    MASTER_SLOT,
    Clock,
    Entry,
    Key,
    Kind,
    Position,
    Record,
    SlotName,
    View,
    pack_positions,
    partition_slot,
    shared_slot,
)
from sidecar.dedup.names import FORGOTTEN, producer_name
from sidecar.protocol.caller import TopicLayout
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, StampedSequence
from sidecar.protocol.session import Caller, Session
from sidecar.takeover.requests import Memory, Purpose, Request
from sidecar.takeover.slots import (
    GenerationError,
    OutdatedMasterError,
    SlotRecords,
    SlotScope,
    check_generation,
    generation_floor,
    generation_of,
    owner_record,
    read_owner,
    stamp_of,
    writer_names,
)
from sidecar.v1 import control_pb2 as control
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


# Scopes ---------------------------------------------------------------------------------------------------------------


def test_a_slot_covers_its_partition_and_the_master_slot_and_shared_ones_cover_all() -> None:
    whole, shared, one = SlotScope("orders"), SlotScope("orders", SLOT), SlotScope.of_partition("orders", 3)
    assert [each.of([5, 3, 0]) for each in (whole, shared, one)] == [[0, 3, 5], [0, 3, 5], [3]]
    assert [each.resource for each in (whole, one)] == ["orders", "orders/p3"]
    assert [each.is_shared for each in (whole, shared, one)] == [False, True, False]
    assert [each.key.kind for each in (whole, shared, one)] == [Kind.SERVING, Kind.SLOT, Kind.SERVING]
    other = partition_slot(4)
    assert [one.overlaps(slot) for slot in (one.slot, other, MASTER_SLOT, SLOT)] == [True, False, True, True]
    assert all(each.overlaps(other) for each in (whole, shared))


# Generations ----------------------------------------------------------------------------------------------------------


def owns(view: View, offset: int, slot: SlotName = MASTER_SLOT, **fields: Any) -> Entry[state.Ownership]:
    value = state.Ownership(**{"session": "pid:7", "topic_id": TOPIC_ID.bytes, **fields})
    view.apply(Offset(offset), 1, MINE, Record(Key(Kind.OWNERSHIP, "orders", slot), value).encode())
    entry = view.ownership("orders", slot)
    assert entry is not None
    return entry


def serves(view: View, offset: int, slot: SlotName = MASTER_SLOT, writer: Stamp = MINE, **fields: Any) -> None:
    value = state.Serving(
        **{"topic_id": TOPIC_ID.bytes, "producer_id": writer.producer_id, "producer_epoch": writer.epoch, **fields}
    )
    view.note_writer(writer)
    view.apply(Offset(offset), 1, writer, Record(Key(Kind.SERVING, "orders", slot), value).encode())


def test_generations_of_partitions_and_of_the_whole_never_fall_below_each_other(view: View) -> None:
    whole, one, other = SlotScope("orders"), SlotScope.of_partition("orders", 0), SlotScope.of_partition("orders", 1)
    assert generation_of(view, whole) == 0
    owns(view, 1, generation=4)
    assert [generation_of(view, each) for each in (whole, one, other)] == [4, 4, 4]
    serves(view, 2, one.slot)
    owns(view, 3, one.slot, generation=7)
    assert [generation_floor(view, each) for each in (whole, one, other)] == [7, 7, 4]
    check_generation(view, one, None)
    check_generation(view, one, frozenset({7, 9}))
    with pytest.raises(GenerationError) as refused:
        check_generation(view, other, frozenset({7}))
    assert refused.value.current == 4


def test_of_a_deleted_topic_the_generation_of_the_master_slot_counts_alone(view: View) -> None:
    owns(view, 1, partition_slot(0), generation=7)
    assert generation_floor(view, SlotScope("orders")) == 0
    assert generation_of(view, SlotScope.of_partition("orders", 0)) == 7


# Owners ---------------------------------------------------------------------------------------------------------------


def test_redis_is_told_the_owner_of_a_record_or_that_there_is_none() -> None:
    value = state.Ownership(session="pid:7", name="billing", generation=4, since_ms=9, mode=control.EXCLUSIVE)
    owner = owner_record("orders", value, 12, MINE, 3)
    assert owner == Ownership(
        "orders", Generation(4), 12, "pid:7", "billing", AccessMode.EXCLUSIVE, since_ms=9, node_id=3, producer_id=900,
        producer_epoch=4,
    )  # fmt: skip
    unstamped = owner_record("orders", value, 12, None, 3)
    assert (unstamped.producer_id, unstamped.producer_epoch) == (-1, -1)
    assert owner_record("orders", state.Ownership(generation=4), 12, MINE, 3).session is None
    value.released_ms = 5
    assert owner_record("orders", value, 12, MINE, 3).session is None


def test_an_owner_that_was_released_or_is_of_before_the_whole_had_one_is_read_as_none(view: View) -> None:
    one = SlotScope.of_partition("orders", 0)
    unknown = read_owner(view, one, 3)
    assert (unknown.record, unknown.position, unknown.floor, unknown.recorded) == (None, -1, 0, None)
    serves(view, 1, one.slot)
    entry = owns(view, 2, one.slot, generation=7)
    found = read_owner(view, one, 3)
    assert (found.record, found.position, found.floor) == (entry.value, 2, 7)
    assert found.recorded is not None
    assert (found.recorded.session, found.recorded.position, found.recorded.node_id) == ("pid:7", 2, 3)
    owns(view, 3, generation=8)
    assert read_owner(view, one, 3).recorded is None
    assert read_owner(view, SlotScope("orders"), 3).recorded is not None
    owns(view, 4, one.slot, generation=9)
    assert read_owner(view, one, 3).recorded is not None
    owns(view, 5, one.slot, generation=9, released_ms=1)
    assert read_owner(view, one, 3).recorded is None


def keeps(view: View, entry: Entry[state.Ownership] | None, scope: SlotScope | None = None, **facts: Any) -> bool:
    request = Request(**{"purpose": Purpose.CLAIM, "session": Session("pid:7"), "name": "a", **facts})
    return SlotRecords(view, Clock(), scope or SlotScope("orders"), request, None).keeps(entry)


def test_who_keeps_the_generation(view: View) -> None:
    entry = owns(view, 1, generation=4)
    assert keeps(view, entry)
    assert not keeps(view, None)
    assert not keeps(view, entry, session=Session("pid:8"))
    assert [keeps(view, entry, asked=asked) for asked in (3, 4, 5)] == [True, True, False]
    assert keeps(view, entry, purpose=Purpose.ADOPT, session=Session(""))
    assert keeps(view, entry, generations=frozenset({4}))
    with pytest.raises(GenerationError):
        keeps(view, entry, generations=frozenset({3}))
    with pytest.raises(GenerationError):
        keeps(view, None, generations=frozenset({3}))


def test_the_owner_of_a_partition_does_not_go_on_once_the_whole_had_another(view: View) -> None:
    """Its generation would be below that of the whole topic."""
    one = SlotScope.of_partition("orders", 0)
    entry = owns(view, 1, one.slot, generation=4)
    assert keeps(view, entry, one)
    owns(view, 2, generation=5)
    assert not keeps(view, entry, one)
    assert keeps(view, owns(view, 3, one.slot, generation=6), one)


def test_a_deposed_session_is_refused_before_anything_is_fenced(view: View) -> None:
    entry = owns(view, 1, session="pid:8", generation=4, deposed=[state.Deposed(session="pid:7")])
    with pytest.raises(KafkaError) as refused:
        keeps(view, entry)
    assert refused.value.code == 90
    assert keeps(view, entry, purpose=Purpose.SPLIT)


# The records of a topic -----------------------------------------------------------------------------------------------


def records_of(view: View, scope: SlotScope, session: str = "pid:7") -> SlotRecords:
    request = Request(Purpose.CLAIM, Session(session), "a")
    return SlotRecords(view, Clock(), scope, request, None)


def test_a_takeover_of_the_whole_fences_all_slots_and_one_of_a_slot_none(view: View) -> None:
    serves(view, 1)
    serves(view, 2, partition_slot(0))
    opens(view, 3, MINE)
    entry = owns(view, 4)
    whole = records_of(view, SlotScope("orders")).known(TOPIC_ID)
    assert (whole.ownership, set(whole.others)) == (entry, {partition_slot(0), SLOT})
    assert whole.opened is not None
    assert whole.opened.offset == 1
    part = records_of(view, SlotScope.of_partition("orders", 0)).known(TOPIC_ID)
    assert (part.ownership, part.others) == (None, {})
    assert part.opened is not None
    assert part.opened.offset == 2
    beside = records_of(view, SlotScope("orders", SLOT)).known(TOPIC_ID)
    assert (beside.ownership, beside.others) == (None, {})
    anew = records_of(view, SlotScope("orders")).known(ANEW)
    assert (anew.ownership, anew.opened, anew.others) == (None, None, {})


def test_the_other_slots_of_a_session_are_followed_and_those_of_others_are_not(view: View) -> None:
    opens(view, 1, MINE)
    serves(view, 2, session="pid:7")
    serves(view, 3, partition_slot(0), session="pid:8")
    assert set(records_of(view, SlotScope("orders")).followed(TOPIC_ID)) == {SLOT}
    assert set(records_of(view, SlotScope("orders", SLOT)).followed(TOPIC_ID)) == {MASTER_SLOT}
    assert records_of(view, SlotScope("orders"), "").followed(TOPIC_ID) == {}
    said = records_of(view, SlotScope.of_partition("orders", 0)).mentions(TOPIC_ID, {SLOT: {0: StampedSequence(4)}})
    assert [(each.at, each.next) for each in said] == [((1, 1), {0: Position(0, Client(10))}), ((2, 2), {})]


def test_brokers_that_know_fewer_partitions_than_were_written_are_asked_again(view: View) -> None:
    serves(view, 1, base=pack_positions({2: Position(0, Client(5))}))
    records = records_of(view, SlotScope("orders"))
    assert records.partitions(TopicLayout(TOPIC_ID, dict.fromkeys(range(3), 0))) == (0, 1, 2)
    with pytest.raises(KafkaError, match="partition 2 of orders") as refused:
        records.partitions(TopicLayout(TOPIC_ID, dict.fromkeys(range(2), 0)))
    assert refused.value.code == 5
    assert records.partitions(TopicLayout(ANEW, dict.fromkeys(range(2), 0))) == (0, 1)
    one = records_of(view, SlotScope.of_partition("orders", 1))
    assert one.partitions(TopicLayout(TOPIC_ID, dict.fromkeys(range(2), 0))) == (1,)


def test_another_node_has_the_master_slot_once_its_record_or_its_marker_is_read(view: View) -> None:
    serves(view, 1)
    records = SlotRecords(view, Clock(), SlotScope("orders", SLOT), Request(Purpose.WRITE_BESIDE), MINE)
    records.check_master()
    assert records.under() == 1
    view.note_writer(LATER)
    with pytest.raises(KafkaError) as refused:
        records.check_master()
    assert refused.value.code == 6
    alone = records_of(view, SlotScope("orders"))
    alone.check_master()
    assert alone.under() == 0


def test_the_names_of_all_writers_of_a_topic_are_read_from_its_slots(view: View) -> None:
    formers = [
        state.FormerWriter(producer_id=900, last_epoch=1, name="a"),
        state.FormerWriter(producer_id=900, last_epoch=2, forgotten=True),
    ]
    serves(view, 1, name="b", former=formers)
    names = writer_names(view, "orders")
    assert [names.of(900, epoch) for epoch in range(5)] == [
        producer_name("a"), producer_name("a"), FORGOTTEN, producer_name("b"), producer_name("b"),
    ]  # fmt: skip


def test_without_a_record_no_writer_is_known(view: View) -> None:
    assert stamp_of(None) == Stamp(ProducerId(-1), ProducerEpoch(-1))
    serves(view, 1)
    assert stamp_of(view.opened("orders")[MASTER_SLOT]) == MINE
