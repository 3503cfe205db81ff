"""Who may read and commit, by the records of the changelog alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import Change, Key, Kind, Record, View, claim_key
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.resources.readers import HandOver, Holder, Reader, ReaderClaims
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

COORDINATOR = Stamp(ProducerId(7), ProducerEpoch(1))


A, B = Reader("conn:1", "a"), Reader("conn:2", "b")
STRANGER = Reader("conn:3", "stranger")


def reading(topic: str = "orders", partition: int | None = None) -> control.Resource:
    return control.Resource(topic=topic, partition=partition)


def claim(who: Reader, resource: control.Resource, group: str = "g", *deposed: str) -> Record:
    record = state.Claim(
        group=group, resource=resource, session=who.session, name=who.name, generation=1, deposed=deposed
    )
    return Record(claim_key(group, resource), record)


def gone(resource: control.Resource, group: str = "g") -> Record:
    return Record(claim_key(group, resource), None)


@dataclass
class Log:
    """A changelog that is read as it is written."""

    view: View = field(default_factory=View)
    listeners: list[Callable[[Change], None]] = field(default_factory=list)
    end: int = 0

    def append(self, record: Record) -> None:
        writer = COORDINATOR if record.key.kind.stamped else None
        change = self.view.apply(Offset(self.end), 0, writer, record.encode())
        self.end += 1
        for listener in self.listeners if change else ():
            assert change is not None
            listener(change)


class Cluster:
    """Claims that follow a log; topics under the policy `exclusive_reader` are `exclusive`."""

    def __init__(self, *exclusive: str, log: Log | None = None) -> None:
        self.exclusive = {topic.encode() for topic in exclusive}
        self.log = log or Log()
        self.claims = ReaderClaims(lambda name: name in self.exclusive)
        self.handed_over: list[HandOver] = []
        self.narrowed: list[bytes] = []
        self.log.listeners.append(self._changed)
        self.claims.load(self.log.view.claims())

    def _changed(self, change: Change) -> None:
        passed, narrowed = self.claims.changed(change)
        self.handed_over += passed
        self.narrowed += narrowed

    def append(self, *records: Record) -> None:
        for record in records:
            self.log.append(record)

    def may_commit(self, reader: Reader, partition: int = 0, group: str = "g", topic: bytes = b"orders") -> bool:
        return self.claims.may_commit(group, topic, partition, reader)

    def may_fetch(self, reader: Reader, partition: int = 0, topic: bytes = b"orders") -> bool:
        return self.claims.may_fetch(topic, partition, reader)


# Whose a connection is ------------------------------------------------------------------------------------------------


def test_the_claims_own_connection_is_its_reader_whatever_its_name() -> None:
    assert Holder("conn:1", "a").is_reader(Reader("conn:1", "other"))


def test_a_connection_that_asked_for_the_claims_producer_id_is_its_reader() -> None:
    assert Holder("pid:0", "").is_reader(Reader("conn:9", bound_sessions={"pid:0"}))
    assert not Holder("pid:0", "").is_reader(Reader("conn:9", bound_sessions={"pid:1"}))


def test_a_connection_that_bears_the_claims_name_is_its_reader() -> None:
    assert Holder("conn:1", "a").is_reader(Reader("conn:2", "a"))
    assert not Holder("conn:1", "a").is_reader(Reader("conn:2", "b"))


def test_connections_without_a_name_are_nobodys_although_the_claim_has_none_either() -> None:
    assert not Holder("conn:1", "").is_reader(Reader("conn:2", ""))


def test_a_name_under_which_somebody_lost_the_claim_tells_nobody_apart() -> None:
    holder = Holder("conn:2", "a", frozenset({"a"}))
    assert holder.is_reader(Reader("conn:2", "a"))
    assert not holder.is_reader(Reader("conn:1", "a"))


def test_a_name_is_the_holders_only_under_the_principal_that_claimed_it() -> None:
    """A reader's name is no secret: answers to Own and DescribeOwners have it."""
    holder = Holder("conn:1", "a", principal="User:alice")
    assert holder.is_reader(Reader("conn:2", "a", principal="User:alice"))
    assert not holder.is_reader(Reader("conn:3", "a", principal="User:mallory"))
    assert holder.is_reader(Reader("conn:1", "a", principal="User:mallory")), "the session is the claim's own"
    assert Holder("conn:1", "a").is_reader(Reader("conn:2", "a", principal="User:alice")), "an older node's record"


def test_who_has_the_old_holders_name_under_another_principal_is_not_severed() -> None:
    old, new = Holder("conn:1", "a", principal="User:alice"), Holder("conn:2", "a", principal="User:mallory")
    passed = HandOver(old, new)
    assert passed.severs(Reader("conn:3", "a", principal="User:alice"))
    assert not passed.severs(Reader("conn:4", "a", principal="User:mallory"))
    assert not passed.severs(Reader("conn:5", "a", principal="User:bob"))


def test_names_of_others_who_lost_it_do_not_matter() -> None:
    assert Holder("conn:2", "b", frozenset({"a"})).is_reader(Reader("conn:5", "b"))


# Who may what ---------------------------------------------------------------------------------------------------------


def test_without_a_claim_everybody_may_and_nothing_is_looked_at() -> None:
    cluster = Cluster("orders")
    assert (cluster.claims.any, cluster.claims.guards) == (False, False)
    assert cluster.may_commit(STRANGER)
    assert cluster.may_fetch(STRANGER)


def test_the_cursor_of_a_claimed_partition_is_its_holders() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading(partition=0)))
    assert cluster.claims.any
    assert cluster.may_commit(A)
    assert not cluster.may_commit(B)
    assert cluster.may_commit(B, partition=1)
    assert cluster.may_commit(B, group="another")
    assert cluster.may_commit(B, topic=b"payments")


def test_a_claim_on_a_topic_covers_its_partitions() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading()))
    assert [cluster.may_commit(B, partition) for partition in (0, 1, 1_000)] == [False] * 3
    assert [cluster.may_fetch(B, partition) for partition in (0, 1, 1_000)] == [False] * 3
    assert cluster.may_commit(A, 1_000)


def test_a_partition_claimed_by_itself_is_not_the_topics_claimants() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading()), claim(B, reading(partition=0)))
    assert [cluster.may_commit(A, 0), cluster.may_commit(B, 0)] == [False, True]
    assert [cluster.may_commit(A, 1), cluster.may_commit(B, 1)] == [True, False]
    assert [cluster.may_fetch(A, 0), cluster.may_fetch(B, 0)] == [False, True]


def test_reading_goes_by_claims_only_under_the_policy() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading()))
    assert cluster.may_fetch(B)
    assert not cluster.claims.guards


def test_holders_in_any_group_may_read() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading(), "g"), claim(B, reading(), "h"))
    assert [cluster.may_fetch(reader) for reader in (A, B, STRANGER)] == [True, True, False]
    assert [cluster.may_commit(B, group="g"), cluster.may_commit(B, group="h")] == [False, True]


def test_what_nobody_claimed_of_a_topic_everybody_may_read() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading(partition=0)))
    assert not cluster.may_fetch(B, 0)
    assert cluster.may_fetch(B, 1)


def test_a_group_is_deleted_by_whoever_holds_all_that_is_claimed_in_it() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading(partition=0)), claim(B, reading(), "h"))
    assert [cluster.claims.may_delete("g", reader) for reader in (A, B)] == [True, False]
    cluster.append(claim(B, reading("payments")))
    assert [cluster.claims.may_delete("g", reader) for reader in (A, B)] == [False, False]
    assert cluster.claims.may_delete("another", STRANGER)


def test_one_partition_that_is_refused_shows_among_many() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading(partition=1)))
    asked = [(b"payments", 1), (b"orders", 0), (b"orders", 1)]
    assert cluster.claims.refuses(asked, B)
    assert not cluster.claims.refuses(asked[:2], B)
    assert not cluster.claims.refuses(asked, A)


def test_free_strings_concern_no_reader() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, control.Resource(name="orders")), claim(A, control.Resource(name="orders"), ""))
    assert (cluster.claims.any, cluster.claims.guards) == (False, False)
    assert cluster.may_commit(B)


def test_a_claim_that_is_gone_leaves_the_partition_to_everybody() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading()), gone(reading()))
    assert cluster.may_commit(B)
    assert cluster.may_fetch(B)
    assert (cluster.claims.any, cluster.claims.guards) == (False, False)


def test_a_node_that_starts_later_knows_the_claims() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading()))
    later = Cluster("orders", log=cluster.log)
    assert not later.may_commit(B)
    assert not later.may_fetch(B)
    later.append(gone(reading()))
    assert later.may_fetch(B)


def test_a_policy_that_comes_later_holds_for_claims_that_stand() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading()))
    cluster.exclusive.add(b"orders")
    cluster.append(Record(Key(Kind.POLICY, "orders"), state.Policy(exclusive_reader=True, version=1)))
    assert not cluster.may_fetch(B)
    cluster.exclusive.clear()
    cluster.append(Record(Key(Kind.POLICY, "orders"), None))
    assert cluster.may_fetch(B)
    assert not cluster.claims.guards


def test_a_shadow_that_is_made_later_has_its_sources_policy() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading("audit")))
    cluster.exclusive.add(b"audit")
    cluster.append(Record(Key(Kind.SHADOW, "audit"), state.Shadow(source="orders")))
    assert not cluster.may_fetch(B, topic=b"audit")


# Who is to be severed -------------------------------------------------------------------------------------------------


def test_a_claim_that_has_another_holder_is_told_of_once() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading()))
    assert cluster.handed_over == []
    cluster.append(claim(B, reading()), claim(B, reading()))
    assert [(each.old.session, each.new.session) for each in cluster.handed_over] == [("conn:1", "conn:2")]


def test_a_claim_that_was_let_go_of_severs_nobody() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading()), gone(reading()), claim(B, reading()))
    assert cluster.handed_over == []


def test_a_topic_claimed_over_the_head_of_a_partitions_holder_is_handed_over() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading(partition=0)), claim(A, reading(partition=0), "h"), claim(A, reading("payments")))
    cluster.append(claim(B, reading(), "g", "a"), gone(reading(partition=0)))
    (passed,) = cluster.handed_over
    assert (passed.old.session, passed.new.session) == ("conn:1", "conn:2")
    assert passed.severs(Reader("conn:7", "a"))
    cluster.append(claim(A, reading(partition=1), "g", "b"), claim(A, reading(partition=2), "g"), gone(reading()))
    assert [each.new.session for each in cluster.handed_over[1:]] == ["conn:1"] * 2


def test_a_partition_let_go_of_beside_a_claim_on_its_topic_severs_nobody() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading()), claim(A, reading(partition=0)), gone(reading(partition=0)))
    cluster.append(claim(A, reading(partition=0)), claim(B, reading(partition=1), "h"), gone(reading()))
    assert cluster.handed_over == []


def test_a_partition_let_go_of_beside_another_ones_severs_nobody() -> None:
    cluster = Cluster()
    cluster.append(claim(A, reading(partition=0)), claim(B, reading(partition=1)), gone(reading(partition=0)))
    assert cluster.handed_over == []


def test_the_old_holders_connections_are_severed_by_session_and_by_name() -> None:
    passed = HandOver(Holder("conn:1", "a"), Holder("conn:2", "b"))
    assert passed.severs(A)
    assert passed.severs(Reader("conn:7", "a"))
    assert not passed.severs(B)
    assert not passed.severs(Reader("conn:8", "b"))
    assert not passed.severs(STRANGER)
    assert not passed.severs(Reader("conn:9", ""))


def test_of_two_readers_of_one_name_the_old_session_alone_is_severed() -> None:
    passed = HandOver(Holder("conn:1", "a"), Holder("conn:2", "a", frozenset({"a"})))
    assert passed.severs(Reader("conn:1", "a"))
    assert not passed.severs(Reader("conn:2", "a"))
    assert not passed.severs(Reader("conn:3", "a"))


def test_connections_that_asked_for_the_old_producer_id_are_severed() -> None:
    passed = HandOver(Holder("pid:1", ""), Holder("pid:2", ""))
    assert passed.severs(Reader("conn:9", bound_sessions={"pid:1"}))
    assert not passed.severs(Reader("conn:9", bound_sessions={"pid:1", "pid:2"}))
    assert not passed.severs(Reader("conn:9"))


def test_a_session_that_goes_on_under_another_name_stays() -> None:
    passed = HandOver(Holder("conn:1", "a"), Holder("conn:1", "b"))
    assert not passed.severs(Reader("conn:1", "a"))


def test_a_free_string_that_changes_hands_severs_the_session_and_no_name() -> None:
    cluster, leader, owner = Cluster(), control.Resource(name="leader"), Reader("pid:1", "a")
    cluster.append(claim(owner, leader), claim(B, leader))
    (passed,) = cluster.handed_over
    assert passed.severs(Reader("conn:9", bound_sessions={"pid:1"}))
    assert not passed.severs(Reader("conn:7", "a"))


def test_who_owned_a_free_string_by_a_connection_alone_is_told_by_its_node_before_it_is_severed() -> None:
    cluster, leader = Cluster(), control.Resource(name="leader")
    cluster.append(claim(A, leader), claim(B, leader))
    assert cluster.handed_over == []


def test_whoever_may_have_lost_the_right_to_read_is_told_of() -> None:
    cluster = Cluster("orders")
    cluster.append(claim(A, reading("payments")))
    assert cluster.narrowed == []
    cluster.append(claim(A, reading(), "g"), claim(B, reading(), "h"))
    assert cluster.narrowed == [b"orders"] * 2
    cluster.append(gone(reading(), "g"))  # B's claim stands: A reads no more
    assert cluster.narrowed == [b"orders"] * 3
    cluster.append(gone(reading(), "h"))
    assert cluster.narrowed == [b"orders"] * 3
    cluster.exclusive.add(b"payments")
    cluster.append(Record(Key(Kind.POLICY, "payments"), state.Policy(exclusive_reader=True, version=1)))
    assert cluster.narrowed == [b"orders"] * 3 + [b"payments"]


# Against the definition -----------------------------------------------------------------------------------------------

_READERS = [A, B, STRANGER, Reader("conn:5", "a", {"pid:0"}), Reader("conn:6", "")]
_RESOURCES = [reading(topic, partition) for topic in ("orders", "audit") for partition in (None, 0, 1)]
_STEPS = st.tuples(
    st.sampled_from(["g", "h"]),
    st.sampled_from(_RESOURCES),
    st.sampled_from([None, *_READERS[:2], Reader("pid:0", "a")]),
    st.sets(st.sampled_from(["a", "b"])),
)


def by_definition(view: View, group: str | None, topic: str, partition: int, reader: Reader) -> bool:
    """The rule in its own words: of each group the nearest claim; one of them has to be the reader's, if there are."""
    nearest: dict[str, state.Claim] = {}
    for entry in sorted(view.claims(), key=lambda found: found.value.resource.HasField("partition")):
        resource = entry.value.resource
        covers = not resource.HasField("partition") or resource.partition == partition
        if resource.topic == topic and covers and group in (None, entry.value.group):
            nearest[entry.value.group] = entry.value

    def holds(found: state.Claim) -> bool:
        session = found.session == reader.session or found.session in reader.bound_sessions
        return session or ("" != found.name == reader.name and found.name not in found.deposed)

    return not nearest or any(holds(found) for found in nearest.values())


@given(st.lists(_STEPS, max_size=12), st.sets(st.sampled_from(["orders", "audit"])))
def test_every_verdict_is_that_of_the_definition(
    steps: list[tuple[str, control.Resource, Reader | None, set[str]]], exclusive: set[str]
) -> None:
    cluster = Cluster(*exclusive)
    for group, resource, holder, deposed in steps:
        cluster.append(gone(resource, group) if holder is None else claim(holder, resource, group, *sorted(deposed)))
    view = cluster.log.view
    assert cluster.claims.any == any(view.entries(Kind.CLAIM))
    assert cluster.claims.guards == any(found.value.resource.topic in exclusive for found in view.claims())
    for topic in ("orders", "audit"):
        for partition in (0, 1, 2):
            for reader in _READERS:
                readable = topic not in exclusive or by_definition(view, None, topic, partition, reader)
                assert cluster.may_fetch(reader, partition, topic.encode()) == readable
                for group in ("g", "h"):
                    writable = by_definition(view, group, topic, partition, reader)
                    assert cluster.may_commit(reader, partition, group, topic.encode()) == writable
