"""Which records take away what is known of a topic, and which one stays."""

from __future__ import annotations

from sidecar.changelog import MASTER_SLOT, Key, Kind, Record, View, partition_slot, shared_slot
from sidecar.exclusive.forgetting import is_ripe, left_of
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.takeover.slots import SlotScope, generation_of
from sidecar.takeover.succession import REMEMBERED_MS
from sidecar.v1 import state_pb2 as state

WRITER = Stamp(ProducerId(7), ProducerEpoch(4))
NOW_MS = 10 * REMEMBERED_MS
P1 = partition_slot(1)


class Log:
    """A view that records are appended to."""

    def __init__(self, *records: Record) -> None:
        self.view = View()
        self.end = 0
        self.append(*records)

    def append(self, *records: Record) -> None:
        self.view.note_writer(WRITER)
        for record in records:
            self.view.apply(Offset(self.end), NOW_MS, WRITER, record.encode())
            self.end += 1


def everything() -> Log:
    lost = state.Deposed(session="pid:1", last_try_ms=NOW_MS - REMEMBERED_MS)
    return Log(
        Record(Key(Kind.SERVING, "t", MASTER_SLOT), state.Serving(generation=3)),
        Record(
            Key(Kind.OWNERSHIP, "t", MASTER_SLOT),
            state.Ownership(topic_id=b"id", generation=3, session="pid:2", deposed=[lost]),
        ),
        Record(Key(Kind.SERVING, "t", P1), state.Serving(generation=5)),
        Record(Key(Kind.OWNERSHIP, "t", P1), state.Ownership(topic_id=b"id", generation=5, session="pid:3")),
        Record(Key(Kind.SLOT, "t", shared_slot(2)), state.Slot(session="pid:4")),
        Record(Key(Kind.TAIL, "t", MASTER_SLOT, 0), state.Tail(offset=9)),
        Record(Key(Kind.SEQUENCE_BASE, "t", MASTER_SLOT, 0), state.SequenceBase(base=1)),
        Record(Key(Kind.SERVING, "another", MASTER_SLOT), state.Serving(generation=1)),
    )


def test_what_stays_of_a_topic_is_its_highest_generation() -> None:
    log = everything()
    left = left_of(log.view, "t", NOW_MS)
    log.append(*left.records, *left.final)
    (entry,) = log.view.of_topic("t")
    assert entry.key == Key(Kind.OWNERSHIP, "t", MASTER_SLOT)
    assert entry.value == state.Ownership(topic_id=b"id", generation=5, released_ms=NOW_MS)
    assert (dict(log.view.opened("t")), len(log.view.opened("another"))) == ({}, 1)
    for scope in (SlotScope("t"), SlotScope("t", P1), SlotScope("t", partition_slot(7))):
        assert generation_of(log.view, scope) == 5
    assert not is_ripe(log.view, "t", NOW_MS), "there is nothing more to forget"


def test_a_topic_that_nobody_owned_leaves_nothing() -> None:
    log = Log(Record(Key(Kind.SERVING, "t", MASTER_SLOT), state.Serving()))
    left = left_of(log.view, "t", NOW_MS)
    log.append(*left.records, *left.final)
    assert len(log.view) == 0


def test_a_policy_of_the_topics_name_is_nothing_to_forget() -> None:
    policy = Record(Key(Kind.POLICY, "t"), state.Policy())
    assert not is_ripe(Log(policy).view, "t", NOW_MS)
    owned = Log(
        policy, Record(Key(Kind.OWNERSHIP, "t", MASTER_SLOT), state.Ownership(generation=3, released_ms=NOW_MS))
    )
    assert not is_ripe(owned.view, "t", NOW_MS)


def test_where_only_hints_are_left_no_batch_is_empty() -> None:
    log = Log(Record(Key(Kind.TAIL, "t", MASTER_SLOT, 0), state.Tail(offset=9)))
    assert is_ripe(log.view, "t", NOW_MS)
    assert left_of(log.view, "t", NOW_MS).batches() == [[Record(Key(Kind.TAIL, "t", MASTER_SLOT, 0), None)]]
    assert left_of(everything().view, "another", NOW_MS).batches() == [
        [Record(Key(Kind.SERVING, "another", MASTER_SLOT), None)]
    ]


def test_the_record_by_which_nodes_notice_comes_first_in_the_last_batch() -> None:
    log = Log(
        Record(Key(Kind.OWNERSHIP, "t", MASTER_SLOT), state.Ownership(generation=3)),
        Record(Key(Kind.SLOT, "t", shared_slot(2)), state.Slot(session="pid:4")),
        Record(Key(Kind.SERVING, "t", P1), state.Serving(generation=5)),
        Record(Key(Kind.SERVING, "t", MASTER_SLOT), state.Serving(generation=3)),
    )
    final = left_of(log.view, "t", NOW_MS).final
    assert (final[0].key, final[0].value, final[-1].key) == (
        Key(Kind.SERVING, "t", MASTER_SLOT),
        None,
        Key(Kind.OWNERSHIP, "t", MASTER_SLOT),
    )
    assert {record.key.kind for record in final} == {Kind.SERVING, Kind.OWNERSHIP, Kind.SLOT}


def test_whoever_lost_the_topic_within_a_day_is_remembered() -> None:
    log = everything()
    assert is_ripe(log.view, "t", NOW_MS)
    lost = state.Deposed(session="pid:1", last_try_ms=NOW_MS - REMEMBERED_MS + 1)
    log.append(Record(Key(Kind.OWNERSHIP, "t", P1), state.Ownership(generation=5, deposed=[lost])))
    assert not is_ripe(log.view, "t", NOW_MS)
