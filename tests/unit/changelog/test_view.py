"""Which records count: the newest of each key, unless its writer had been replaced when it was appended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import (
    MASTER_SLOT,
    Change,
    Ignored,
    Key,
    Kind,
    Record,
    View,
    partition_slot,
    retired_ids,
    shared_slot,
)
from sidecar.changelog.records import RawRecord
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.v1 import state_pb2 as state


def stamp(producer_id: int, epoch: int) -> Stamp:
    return Stamp(ProducerId(producer_id), ProducerEpoch(epoch))


class Log:
    """Appends to a view as a tailer would: one batch of one record at a time, at the next offset."""

    def __init__(self) -> None:
        self.view = View()
        self.end = 0

    def marker(self, writer: Stamp) -> None:
        self.view.note_writer(writer)
        self.end += 1

    def append(self, record: Record | RawRecord, writer: Stamp | None = None) -> Change | None:
        raw = record.encode() if isinstance(record, Record) else record
        if writer is not None:
            self.view.note_writer(writer)
        change = self.view.apply(Offset(self.end), 1_000 + self.end, writer, raw)
        self.end += 1
        return change


def owned_by(session: str, generation: int = 1) -> Record:
    return Record(Key(Kind.OWNERSHIP, "orders", MASTER_SLOT), state.Ownership(session=session, generation=generation))


@pytest.fixture
def log() -> Log:
    return Log()


def owner(log: Log) -> str | None:
    entry = log.view.ownership("orders")
    return entry.value.session if entry else None


def test_the_newest_record_of_a_key_counts_with_its_stamp_and_place(log: Log) -> None:
    log.append(owned_by("pid:1"), stamp(7, 0))
    change = log.append(owned_by("pid:2", 2), stamp(7, 1))
    entry = log.view.ownership("orders")
    assert entry is not None
    assert (entry.value.session, entry.writer, entry.offset, entry.at_ms) == ("pid:2", stamp(7, 1), 1, 1_001)
    assert change is not None
    assert change.before is not None
    assert change.before.value.session == "pid:1"
    assert change.after is entry


def test_a_record_below_a_marker_of_its_producer_id_counts_for_nothing(log: Log) -> None:
    log.append(owned_by("pid:1"), stamp(7, 1))
    log.marker(stamp(7, 2))
    assert log.append(owned_by("pid:9", 9), stamp(7, 1)) is None
    assert owner(log) == "pid:1"
    assert log.view.ignored[Ignored.STALE_EPOCH] == 1


def test_a_record_below_a_newer_record_of_its_producer_id_counts_for_nothing(log: Log) -> None:
    log.append(Record(Key(Kind.SERVING, "orders", MASTER_SLOT), state.Serving(node=2)), stamp(7, 2))
    assert log.append(owned_by("pid:9", 9), stamp(7, 1)) is None
    assert owner(log) is None


def test_a_stale_writer_cannot_take_a_record_away(log: Log) -> None:
    log.append(owned_by("pid:1"), stamp(7, 2))
    assert log.append(Record(Key(Kind.OWNERSHIP, "orders", MASTER_SLOT), None), stamp(7, 1)) is None
    assert owner(log) == "pid:1"


def test_epochs_of_other_producer_ids_are_their_own(log: Log) -> None:
    log.marker(stamp(8, 30_000))
    log.append(owned_by("pid:1"), stamp(7, 0))
    assert owner(log) == "pid:1"


def test_a_producer_id_that_its_slot_gave_up_counts_for_nothing(log: Log) -> None:
    log.append(owned_by("pid:1"), stamp(7, 31_000))
    log.append(Record(Key(Kind.SERVING, "orders", MASTER_SLOT), state.Serving(retired_producer_ids=[7])), stamp(8, 0))
    assert log.append(owned_by("pid:9", 9), stamp(7, 31_999)) is None
    assert log.view.ignored[Ignored.RETIRED] == 1
    assert owner(log) == "pid:1"


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.stamped], ids=lambda kind: kind.label)
def test_what_speaks_for_a_topic_needs_a_stamp(log: Log, kind: Kind) -> None:
    key = Key(kind, "orders", MASTER_SLOT if kind.parts > 1 else None, 3 if kind.parts == 3 else None)
    assert log.append(Record(key, kind.message())) is None
    assert log.view.ignored[Ignored.UNSTAMPED] == 1
    assert log.append(Record(key, kind.message()), stamp(7, 0)) is not None


def test_facts_and_an_administrators_words_need_none(log: Log) -> None:
    log.append(Record(Key(Kind.TAIL, "orders", MASTER_SLOT, 3), state.Tail(offset=12)))
    log.append(Record(Key(Kind.POLICY, "orders"), state.Policy(deduplication=True)))
    log.append(Record(Key(Kind.SHADOW, "audit"), state.Shadow(source="orders")))
    (policy,) = log.view.policies()
    tail, shadow = log.view.tail("orders", MASTER_SLOT, 3), log.view.shadow("audit")
    assert tail is not None
    assert tail.value.offset == 12
    assert policy is not None
    assert policy.value.HasField("deduplication")
    assert not policy.value.HasField("access_mode")
    assert shadow is not None
    assert [entry.value.source for entry in log.view.shadows()] == ["orders"]


def test_a_tombstone_takes_a_record_away_once(log: Log) -> None:
    log.append(Record(Key(Kind.POLICY, "orders"), state.Policy(version=1)))
    change = log.append(Record(Key(Kind.POLICY, "orders"), None))
    assert change is not None
    assert change.after is None
    assert log.append(Record(Key(Kind.POLICY, "orders"), None)) is None
    assert list(log.view.policies()) == []
    assert list(log.view.of_topic("orders")) == []


def test_a_slot_stays_open_when_another_record_of_it_goes(log: Log) -> None:
    slot, writer = shared_slot(1), stamp(7, 0)
    shift = Key(Kind.SEQUENCE_BASE, "orders", slot, 0)
    log.append(Record(Key(Kind.SLOT, "orders", slot), state.Slot(producer_id=7)), writer)
    log.append(Record(shift, state.SequenceBase(base=1)), writer)
    log.append(Record(shift, None), writer)
    assert list(log.view.opened("orders")) == [slot]
    log.append(Record(Key(Kind.SLOT, "orders", slot), None), writer)
    assert log.view.opened("orders") == {}


@pytest.mark.parametrize("late", [state.Policy(version=1), None], ids=["a policy", "a deletion"])
def test_what_an_earlier_change_of_a_policy_wrote_late_counts_for_nothing(log: Log, late: state.Policy | None) -> None:
    """Kafka refuses it as long as it remembers the epoch; the view does so always."""
    log.append(Record(Key(Kind.POLICY, "orders"), state.Policy(version=2)), stamp(7, 1))
    assert log.append(Record(Key(Kind.POLICY, "orders"), late), stamp(7, 0)) is None
    assert log.view.ignored == {Ignored.STALE_EPOCH: 1}
    assert [entry.value.version for entry in log.view.policies()] == [2]


def test_policies_of_nodes_of_before_count_among_stamped_ones(log: Log) -> None:
    for version, writer in ((1, None), (2, stamp(7, 0)), (3, None), (4, stamp(7, 1))):
        log.append(Record(Key(Kind.POLICY, "orders"), state.Policy(version=version)), writer)
        assert [entry.value.version for entry in log.view.policies()] == [version]


def test_keys_of_a_newer_node_and_damaged_values_are_stepped_over(log: Log) -> None:
    assert log.append(RawRecord(b"quota/orders", b"1")) is None
    assert log.append(RawRecord(b"policy/orders", b"\xff\xff")) is None
    assert log.view.ignored == {Ignored.FOREIGN: 1, Ignored.UNREADABLE: 1}


def test_everything_about_a_topic_is_found_together(log: Log) -> None:
    log.append(owned_by("pid:1"), stamp(7, 0))
    log.append(Record(Key(Kind.SLOT, "orders", shared_slot(2)), state.Slot(session="pid:3")), stamp(9, 0))
    log.append(Record(Key(Kind.OWNERSHIP, "orders", partition_slot(3)), state.Ownership()), stamp(10, 0))
    log.append(Record(Key(Kind.POLICY, "payments.*"), state.Policy()))
    log.append(Record(Key(Kind.POLICY, "orders"), state.Policy(version=4)))
    assert {str(entry.key) for entry in log.view.of_topic("orders")} == {
        "ownership/orders/0",
        "slot/orders/2",
        "ownership/orders/p3",
        "policy/orders",
    }
    assert log.view.slots("orders") == {"0", "2", "p3"}, "a policy has none"
    policy = log.view.policy("orders")
    assert policy is not None
    assert policy.value.version == 4
    assert log.view.policy("payments") is None
    assert len(log.view) == 5


def test_records_that_the_log_lost_are_forgotten_and_older_ones_come_back_by_reading_again(log: Log) -> None:
    first, second = owned_by("pid:1"), owned_by("pid:2", 2)
    log.append(first, stamp(7, 0))
    log.append(second, stamp(7, 0))
    (lost,) = log.view.truncate(Offset(1))
    assert lost.before is not None
    assert lost.before.value.session == "pid:2"
    assert owner(log) is None
    log.view.apply(Offset(0), 0, stamp(7, 0), first.encode())
    assert owner(log) == "pid:1"


def test_a_policy_that_a_lost_record_had_replaced_comes_back_by_reading_again(log: Log) -> None:
    """Each change of a policy has an epoch of its own. A node that starts now reads that policy too."""
    first, second, third = (Record(Key(Kind.POLICY, "orders"), state.Policy(version=version)) for version in (1, 2, 3))
    log.append(first, stamp(7, 0))
    log.append(second, stamp(7, 1))
    log.view.truncate(Offset(1))
    log.view.note_writer(stamp(7, 0))
    log.view.apply(Offset(0), 0, stamp(7, 0), first.encode())
    assert [entry.value.version for entry in log.view.policies()] == [1]
    log.append(third, stamp(7, 1))
    assert log.append(second, stamp(7, 0)) is None, "what comes late counts for nothing, as before"
    assert [entry.value.version for entry in log.view.policies()] == [3]


def test_a_lost_takeover_is_remembered_against_whom_it_fenced(log: Log) -> None:
    log.append(owned_by("pid:1"), stamp(7, 0))
    log.append(owned_by("pid:2", 2), stamp(7, 1))
    log.view.truncate(Offset(1))
    log.view.note_writer(stamp(7, 0))
    log.append(owned_by("pid:1", 3), stamp(7, 0))
    assert owner(log) is None


def test_reading_again_never_puts_an_older_record_over_a_newer_one(log: Log) -> None:
    log.append(owned_by("pid:1"), stamp(7, 0))
    log.append(owned_by("pid:2", 2), stamp(7, 0))
    log.view.apply(Offset(0), 0, stamp(7, 0), owned_by("pid:1").encode())
    assert owner(log) == "pid:2"


def test_a_value_of_another_kind_cannot_be_recorded() -> None:
    with pytest.raises(ValueError, match="Policy under the key ownership/orders/0"):
        Record(Key(Kind.OWNERSHIP, "orders", MASTER_SLOT), state.Policy()).encode()


steps = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), max_size=40)


@given(steps)
def test_along_the_log_the_epochs_of_counting_records_never_fall(found: list[tuple[int, int, bool]]) -> None:
    """Against a reader that simply remembers the highest epoch per producer id."""
    log = Log()
    highest: dict[int, int] = {}
    expected: str | None = None
    for index, (producer_id, epoch, is_marker) in enumerate(found):
        counts = epoch >= highest.get(producer_id, -1)
        highest[producer_id] = max(epoch, highest.get(producer_id, -1))
        if is_marker:
            log.marker(stamp(producer_id, epoch))
            continue
        change = log.append(owned_by(f"pid:{index}"), stamp(producer_id, epoch))
        assert (change is not None) == counts
        expected = f"pid:{index}" if counts else expected
    assert owner(log) == expected


def test_a_slots_former_producer_ids_are_kept_once_each() -> None:
    newest = state.Serving(producer_id=5, retired_producer_ids=[3])
    assert retired_ids(newest, stamp(5, 1)) == [3]
    assert retired_ids(newest, stamp(6, 0)) == [3, 5]
    assert retired_ids(None, stamp(6, 0)) == []
