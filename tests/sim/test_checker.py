"""Each rule of the checker finds the history that breaks it, and nothing in one that is fine."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.sim import checker
from tests.sim.checker import Claimed, Evidence, OwnershipRecord, check
from tests.sim.ledger import Granted, Ledger, Read, Resumed, Sent, Told
from tests.sim.policies import Policy, Timeline
from tests.sim.sources import Life
from tests.sim.wire import Record

SLOT = 900


def sent(value: str, order: int, session: str = "a.1", **more: Any) -> Sent:
    return Sent(session, "t", 0, order, value.encode(), **more)


def record(offset: int, value: str, producer_id: int = SLOT, at: float = 0.0) -> Record:
    return Record(offset, value.encode(), (), producer_id, 0, offset, offset, at=at)


def ownership(generation: int, session: str, start: int, topic: str = "t", **more: Any) -> OwnershipRecord:
    return OwnershipRecord(topic, "0", generation, session, ((0, start),), **more)


COUNTED = Policy("exclusive", ids=True)
PLAIN = Policy("exclusive")
OPEN = Policy("shared")
NONE = Policy()


def applied(first: Policy, *later: tuple[float, Policy]) -> Timeline:
    """All nodes applied these to the topic, each from its moment on."""
    return Timeline({"t": [(0.0, frozenset({first})), *((since, frozenset({policy})) for since, policy in later)]})


def good() -> Evidence:
    """Two sessions, one after the other; a reader; ids; a refusal."""
    ledger = Ledger(
        sent=[
            sent("a0", 0, delivered=True, offset=1, name="a", sequence_id=0),
            sent("a1", 1, delivered=True, offset=2, name="a", sequence_id=1),
            sent("b0", 0, "b.1", delivered=True, offset=4, name="b", sequence_id=0),
            sent("b1", 1, "b.1", delivered=False, code=44),
            sent("a2", 2, "a.2", delivered=True, offset=-1, name="a", sequence_id=1),
        ],
        read=[Read("t", 0, 1, b"a0", 1.0), Read("t", 0, 2, b"a1", 1.0), Read("s", 0, 1, b"a0", 1.0)],
        told=[Told("t", 1, "a", 1.0), Told("t", 1, "a", 2.0), Told("t", 2, "b", 3.0)],
    )
    return Evidence(
        ledger,
        {("t", 0): [record(1, "a0"), record(2, "a1"), record(4, "b0")]},
        [ownership(1, "pid:1", 1), ownership(2, "pid:2", 4)],
        {SLOT},
        {"a.1": {"pid:1"}, "b.1": {"pid:2"}, "a.2": {"pid:3"}},
        applied(COUNTED),
        shadows={"s": "t"},
    )


def test_nothing_is_wrong_with_a_good_history() -> None:
    assert check(good()) == []


def only(rule: Any, evidence: Evidence) -> list[str]:
    found = list(rule(evidence))
    assert set(found) <= set(check(evidence))
    return found


def test_a_lost_acknowledgement() -> None:
    bad = good()
    del bad.logs["t", 0][1]
    assert any("acknowledged and lost: b'a1'" in each for each in only(checker.lost, bad))


def test_what_kafka_itself_lost_is_not_the_nodes_but_nothing_else_of_that_topic() -> None:
    bad = good()
    del bad.logs["t", 0][:2]
    bad.gone["t", 0] = {b"a0"}
    assert [each.split(": ")[1][:5] for each in only(checker.lost, bad)] == ["b'a1'", "b'a2'"]


def test_a_duplicate_of_what_kafka_lost_is_not_the_nodes() -> None:
    fine = good()
    del fine.logs["t", 0][1]
    fine.gone["t", 0] = {b"a1"}
    assert not list(checker.lost(fine))


@pytest.mark.parametrize(("sent_at", "wrong"), [(1.0, 0), (3.0, 1)])
def test_a_record_of_a_deleted_topic_is_no_reason_once_the_new_one_is_served(sent_at: float, wrong: int) -> None:
    bad = good()
    del bad.logs["t", 0][1]
    bad.gone["t", 0], bad.renewed["t"] = {b"a1"}, 2.0
    bad.ledger.sent[4].sent_at = sent_at
    assert len(only(checker.lost, bad)) == wrong


@pytest.mark.parametrize(
    ("value", "at", "told_at", "wrong"), [("a3", 3.5, 4.0, 0), ("a3", 5.0, 4.0, 1), ("b3", 3.5, 4.0, 1)]
)
def test_what_a_deleted_topic_had_is_a_duplicate_once_the_new_one_has_a_higher_id_of_that_name(
    value: str, at: float, told_at: float, wrong: int
) -> None:
    found = good()
    del found.logs["t", 0][1]
    found.gone["t", 0], found.renewed["t"] = {b"a1"}, 2.0
    found.ledger.sent[4] = replace(found.ledger.sent[4], sent_at=3.0, told_at=told_at)
    found.ledger.sent.append(sent(value, 3, f"{value[0]}.2", delivered=True, offset=5, name=value[0], sequence_id=2))
    found.logs["t", 0].append(record(5, value, at=at))
    assert len(only(checker.lost, found)) == wrong


@pytest.mark.parametrize(("sent_at", "wrong"), [(1.0, 0), (3.0, 1)])
def test_what_failed_below_an_id_of_a_deleted_topic_is_no_duplicate_in_the_new_one(sent_at: float, wrong: int) -> None:
    found = good()
    del found.logs["t", 0][:2]
    found.gone["t", 0], found.renewed["t"] = {b"a1"}, 2.0
    found.ledger.sent[0] = replace(found.ledger.sent[0], delivered=False, code=5, offset=-1)
    found.ledger.sent[4] = replace(found.ledger.sent[4], sequence_id=0, sent_at=sent_at, told_at=4.0)
    assert len(only(checker.lost, found)) == wrong


def test_a_session_that_was_told_what_is_not_so_answers_for_itself_alone() -> None:
    bad = good()
    bad.policies = applied(NONE)
    bad.troubled.add(("a.1", "t"))
    del bad.logs["t", 0][0]
    bad.logs["t", 0] += [record(5, "a1"), record(6, "b0")]
    assert [each.split(": ")[1][:5] for each in (*checker.lost(bad), *checker.doubled(bad))] == ["b'a2'", "b'b0'"]


def test_a_duplicate_that_was_acknowledged_without_its_original() -> None:
    bad = good()
    bad.ledger.sent[4].sequence_id = 7
    assert len(only(checker.lost, bad)) == 1


def test_a_record_that_stands_twice() -> None:
    bad = good()
    bad.logs["t", 0].append(record(5, "b0"))
    assert len(only(checker.doubled, bad)) == 1


@pytest.mark.parametrize(
    ("facts", "wrong"), [({}, 1), ({"is_anew": True}, 0), ({"doubtful": False, "is_anew": True}, 1)]
)
def test_what_a_client_sends_anew_in_doubt_is_its_own_duplicate(facts: dict[str, bool], wrong: int) -> None:
    found = good()
    found.policies = applied(PLAIN)
    found.ledger.sent[2] = replace(found.ledger.sent[2], **{"doubtful": True, **facts})
    found.logs["t", 0].append(record(5, "b0"))
    assert len(list(checker.doubled(found))) == wrong


def test_a_plain_producers_own_repetition_is_its_own() -> None:
    fine = good()
    fine.policies = applied(PLAIN)
    fine.ledger.sent[2] = replace(fine.ledger.sent[2], idempotent=False, doubtful=True)
    fine.logs["t", 0].append(record(5, "b0"))
    assert not list(checker.doubled(fine))


def test_records_in_another_order() -> None:
    bad = good()
    bad.logs["t", 0][:2] = [record(1, "a1"), record(2, "a0")]
    assert len(only(checker.reordered, bad)) == 1


def test_a_record_that_nobody_sent() -> None:
    bad = good()
    bad.logs["t", 0].append(record(5, "ghost"))
    assert len(only(checker.phantom, bad)) == 1


@pytest.mark.parametrize("code", [44, 90, 87])
def test_a_refused_record_in_the_log(code: int) -> None:
    bad = good()
    bad.ledger.sent[3].code = code
    bad.logs["t", 0].append(record(5, "b1"))
    assert len(only(checker.refused, bad)) == 1


def test_a_refusal_behind_an_attempt_in_doubt_promises_nothing() -> None:
    fine = good()
    fine.ledger.sent[3].doubtful = True
    fine.logs["t", 0].append(record(5, "b1"))
    assert not list(checker.refused(fine))


def test_a_sentence_shows_the_begin_of_a_large_record() -> None:
    bad = Evidence()
    bad.logs["t", 0] = [Record(0, b"a" * 90_000, (), -1, -1, -1, 0)]
    (found,) = only(checker.phantom, bad)
    assert len(found) < 120


def test_a_record_that_was_answered_as_not_written() -> None:
    bad = good()
    bad.ledger.sent[3].code = 45
    bad.logs["t", 0].append(record(5, "b1"))
    assert len(only(checker.not_written, bad)) == 1


def test_a_wrong_offset() -> None:
    bad = good()
    bad.ledger.sent[0].offset = 2
    assert len(only(checker.wrong_offset, bad)) == 1


def test_an_id_that_stands_twice() -> None:
    bad = good()
    bad.logs["t", 0].append(record(5, "a2"))
    assert len(only(checker.twice_counted, bad)) == 1


def test_a_deposed_owner_behind_its_fence() -> None:
    bad = good()
    bad.ledger.sent.append(sent("a3", 2, delivered=True, offset=5))
    bad.logs["t", 0].append(record(5, "a3"))
    assert len(only(checker.behind_the_fence, bad)) == 2


def test_two_plain_sessions_in_one_generation() -> None:
    bad = good()
    bad.ownerships[1] = ownership(2, "conn:1", 4)
    bad.ledger.sent.append(sent("c0", 0, "c.1", delivered=True, offset=5))
    bad.logs["t", 0].append(record(5, "c0"))
    assert len(only(checker.behind_the_fence, bad)) == 1


@pytest.mark.parametrize(("opened", "wrong"), [(5, 2), (25, 0), (15, 2)])
def test_a_shared_topics_owner_has_let_go_and_another_session_wrote_before_that(opened: int, wrong: int) -> None:
    """Epochs that were opened before it, under it, and when it had let go."""
    bad = good()
    bad.policies = applied(OPEN)
    bad.ownerships = [ownership(1, "pid:1", 1, at=10), ownership(1, "pid:1", 1, released=True, at=20)]
    bad.opened = {(SLOT, 0): 9, (SLOT + 1, 0): opened}
    bad.writers.add(SLOT + 1)
    bad.logs["t", 0][2] = record(4, "b0", producer_id=SLOT + 1)
    assert len(only(checker.behind_the_fence, bad)) == wrong


@pytest.mark.parametrize(("opened", "wrong"), [(15, 2), (25, 0)])
def test_a_shared_topics_owner_was_deposed_by_an_operator(opened: int, wrong: int) -> None:
    """Nobody's generation ends the owner's; epochs that were opened in front of it, and behind it."""
    bad = good()
    bad.policies = applied(OPEN)
    bad.ownerships = [ownership(1, "pid:1", 1, at=10), ownership(2, "", 2, released=True, at=20)]
    bad.opened = {(SLOT, 0): 9, (SLOT + 1, 0): opened}
    bad.writers.add(SLOT + 1)
    bad.logs["t", 0][2] = record(4, "b0", producer_id=SLOT + 1)
    assert len(only(checker.behind_the_fence, bad)) == wrong


def test_a_node_takes_a_liars_word_or_does_too_much_at_once() -> None:
    bad = good()
    bad.believed, bad.held = ["old records were taken"], ["node-1 did 10 units of work"]
    bad.overruled = ["limit of shadow/mirror is 1"]
    assert only(checker.overruled, bad) == bad.overruled
    assert only(checker.too_credulous, bad) == bad.believed
    assert only(checker.held_up, bad) == bad.held


@pytest.mark.parametrize(("since", "wrong"), [(5, 1), (6, 0)])
def test_an_id_of_before_the_policy_comes_again(since: int, wrong: int) -> None:
    bad = good()
    bad.policies, bad.since = applied(PLAIN), {("t", 0): since}
    bad.ledger.sent.append(sent("a3", 3, "a.3", delivered=True, offset=5, name="a", sequence_id=0))
    bad.logs["t", 0].append(record(5, "a3"))
    assert len(only(checker.comes_again, bad)) == wrong


def test_a_batch_in_a_clients_own_name_in_a_governed_topic() -> None:
    bad = good()
    bad.logs["t", 0][2] = record(4, "b0", producer_id=2)
    assert len(only(checker.strange_writers, bad)) == 1


@pytest.mark.parametrize("generation", [0, 1])
def test_a_generation_that_falls_or_comes_again(generation: int) -> None:
    bad = good()
    bad.ownerships[1] = ownership(generation, "pid:2", 4)
    assert len(only(checker.generations, bad)) == 1


def test_two_clients_are_told_of_one_generation() -> None:
    bad = good()
    bad.ledger.told.append(Told("t", 1, "b", 2.0))
    assert len(only(checker.generations, bad)) == 1


@pytest.mark.parametrize("topic", ["t", "s"])
def test_something_else_was_read_than_is_there(topic: str) -> None:
    bad = good()
    bad.ledger.read.append(Read(topic, 0, 4, b"other", 1.0))
    assert len(only(checker.read_otherwise, bad)) == 1


@pytest.mark.parametrize("topic", ["t", "s"])
def test_a_reader_that_passed_over_a_record(topic: str) -> None:
    bad = good()
    bad.ledger.read = [Read(topic, 0, 1, b"a0", 1.0), Read(topic, 0, 4, b"b0", 1.0)]
    assert len(only(checker.skipped, bad)) == 1


def test_what_another_reader_got_is_no_excuse_for_one_that_passed_over_it() -> None:
    bad = good()
    bad.ledger.read += [Read("t", 0, 1, b"a0", 1.0, "b"), Read("t", 0, 4, b"b0", 1.0, "b")]
    assert ["a1" in each and "by b" in each for each in only(checker.skipped, bad)] == [True]


@pytest.mark.parametrize(("begin", "wrong"), [(2, 1), (4, 0)])
def test_a_member_of_a_group_reads_from_where_the_group_stands(begin: int, wrong: int) -> None:
    bad = good()
    bad.ledger.read = [Read("t", 0, 4, b"b0", 1.0, "member.1", begin)]
    assert len(list(checker.skipped(bad))) == wrong


def test_a_group_goes_on_where_it_never_committed() -> None:
    bad = good()
    bad.ledger.committed = {("g", "t", 0, 3), ("g", "t", 1, 2), ("other", "t", 0, 2)}
    bad.ledger.resumed = [Resumed("g", "t", 0, 3, 1.0), Resumed("g", "t", 0, 2, 2.0)]
    assert ["at 2," in each for each in only(checker.resumed_elsewhere, bad)] == [True]
    bad.ledger.moved = {"t"}
    assert not list(checker.resumed_elsewhere(bad))


@pytest.mark.parametrize("session", ["pid:1", "pid:2"])
def test_a_claim_whose_generation_falls(session: str) -> None:
    bad = good()
    bad.claims += [Claimed("string", 2, "pid:1"), Claimed("string", 1, session)]
    assert len(only(checker.claims_fall, bad)) == 1
    bad.zeroed.add("string")
    assert not list(checker.claims_fall(bad))


def test_a_generation_of_a_claim_with_two_sessions() -> None:
    bad = good()
    bad.claims += [Claimed("string", 2, "pid:1"), Claimed("string", 2, "pid:2")]
    assert len(only(checker.claims_fall, bad)) == 1


def test_a_claim_that_was_let_go_begins_anew() -> None:
    fine = good()
    fine.claims += [Claimed("string", 2, "pid:1"), Claimed("string"), Claimed("string", 1, "pid:2")]
    assert not list(checker.claims_fall(fine))


@pytest.mark.parametrize("other", [Granted("string", 2, "pid:2"), Granted("string", 3, "pid:1")])
def test_a_claim_that_was_granted_and_is_not_in_the_log(other: Granted) -> None:
    bad = good()
    bad.claims.append(Claimed("string", 2, "pid:1"))
    bad.ledger.granted += [Granted("string", 2, "pid:1"), other]
    assert len(only(checker.granted_otherwise, bad)) == 1


@pytest.mark.parametrize(("first", "then"), [((7,), (7,)), ((7,), (3,)), ((7, 8), ())])
def test_a_fencing_token_that_falls_or_changes(first: tuple[int, ...], then: tuple[int, ...]) -> None:
    bad = good()
    bad.claims += [Claimed("string", 1, "pid:1", b"1"), Claimed("string"), Claimed("string", 1, "pid:2", b"2")]
    bad.ledger.granted += [Granted("string", 1, "pid:1", b"1", token) for token in first]
    bad.ledger.granted += [Granted("string", 1, "pid:2", b"2", token) for token in then]
    assert len(only(checker.tokens_fall, bad)) == 1


def test_fencing_tokens_that_rise() -> None:
    fine = good()
    fine.claims += [Claimed("string", 1, "pid:1", b"1"), Claimed("string"), Claimed("string", 1, "pid:2", b"2")]
    fine.ledger.granted += [Granted("string", 1, f"pid:{n}", b"%d" % n, 6 + n) for n in (1, 2)]
    fine.ledger.granted.append(Granted("string", 1, "pid:2", b"2"))  # not known at that moment
    assert not list(checker.tokens_fall(fine))


def test_a_request_that_comes_again_on_another_connection_has_another_fencing_token() -> None:
    """As in seed 5189: its node died, and the next coordinator knows that the claim ended with the connection."""
    fine = good()
    fine.claims += [Claimed("string", 1, f"conn:{n}", b"1") for n in (1, 2)]
    fine.ledger.granted += [Granted("string", 1, f"conn:{n}", b"1", 6 + n) for n in (1, 2)]
    assert not list(checker.tokens_fall(fine))


def test_what_does_not_hold_within_the_nodes() -> None:
    bad = good()
    bad.inside.append("two nodes stamp alike")
    assert len(only(checker.inside, bad)) == 1


def test_a_duplicate_of_what_its_application_was_told_has_failed_is_its_own() -> None:
    fine = good()
    fine.ledger.sent[4].sequence_id = 7
    assert len(list(checker.lost(fine))) == 1
    fine.ledger.sent.append(sent("a9", 9, delivered=False, code=5, name="a", sequence_id=7))
    assert len(list(checker.lost(fine))) == 1  # nothing above it is in the log
    fine.ledger.sent[0].sequence_id, fine.ledger.sent[0].name = 8, fine.ledger.sent[4].name
    assert not list(checker.lost(fine))


def test_what_hangs_and_what_raises() -> None:
    bad = good()
    bad.stuck.append("a newcomer")
    bad.crashes.append("ValueError")
    assert len(check(bad)) == 2


def test_more_of_the_same_is_counted_only() -> None:
    bad = good()
    bad.logs["t", 0] += [record(offset, f"ghost {offset}") for offset in range(5, 25)]
    assert check(bad)[-1] == "… and 15 more of phantom"


@pytest.mark.parametrize(("since", "until", "wrong"), [(0.0, 9.0, 0), (0.0, 4.0, 0), (0.0, 2.0, 1), (7.0, 9.0, 1)])
def test_an_id_comes_twice_only_where_ids_did_not_count_all_the_time(since: float, until: float, wrong: int) -> None:
    """They did not from `since` to `until`; the first record was sent at 3, the second one written at 6."""
    bad = good()
    bad.policies = applied(COUNTED, (since + 0.1, PLAIN), (until + 0.1, COUNTED))
    bad.ledger.sent[1].sent_at = 3.0
    bad.ledger.sent[4].sent_at = 5.0
    bad.logs["t", 0].append(record(5, "a2", at=6.0))
    assert len(only(checker.twice_counted, bad)) == wrong


@pytest.mark.parametrize(("limit", "wrong"), [(0, 1), (1, 0), (2, 1)])
def test_ids_of_more_names_than_a_node_has_room_for_may_come_twice(limit: int, wrong: int) -> None:
    bad = good()
    bad.names_limit = limit
    bad.logs["t", 0].append(record(5, "a2"))
    assert len(only(checker.twice_counted, bad)) == wrong


@pytest.mark.parametrize(("change", "wrong"), [(1.0, 1), (4.5, 0), (7.0, 1)])
def test_what_was_in_doubt_as_the_policy_ended_may_stand_twice(change: float, wrong: int) -> None:
    bad = good()
    bad.policies = applied(PLAIN, (change, NONE))
    bad.ledger.sent[2].doubtful, bad.ledger.sent[2].sent_at = True, 4.0
    bad.logs["t", 0].append(record(5, "b0", at=5.0))
    assert len(only(checker.doubled, bad)) == wrong


@pytest.mark.parametrize(("change", "wrong"), [(1.0, 1), (4.5, 0), (7.0, 1)])
def test_a_refusal_says_nothing_where_the_policy_changed_meanwhile(change: float, wrong: int) -> None:
    bad = good()
    bad.policies = applied(PLAIN, (change, NONE))
    bad.ledger.sent[3] = replace(bad.ledger.sent[3], code=45, sent_at=4.0, told_at=5.0)
    bad.logs["t", 0].append(record(5, "b1", at=5.0))
    assert len(only(checker.not_written, bad)) == wrong


@pytest.mark.parametrize(("change", "begun", "wrong"), [(9.0, 2.0, 2), (4.5, 2.0, 0), (3.0, 2.0, 0), (3.0, 3.5, 2)])
def test_a_generation_of_before_the_policy_says_nothing_of_later_records(
    change: float, begun: float, wrong: int
) -> None:
    """The policy changes, a generation begins; a stranger to it sends at 4 what is written at 5."""
    bad = good()
    bad.policies = applied(OPEN, (change, PLAIN))
    bad.ownerships = [ownership(1, "pid:1", 1, when=1.0), ownership(2, "pid:2", 4, when=begun)]
    bad.ledger.sent.append(sent("a3", 2, delivered=True, offset=5, sent_at=4.0))
    bad.logs["t", 0].append(record(5, "a3", at=5.0))
    assert len(only(checker.behind_the_fence, bad)) == wrong


def test_a_generation_of_a_topic_that_was_deleted_fences_nothing() -> None:
    fine = good()
    fine.ownerships = [replace(each, former=True) for each in reversed(fine.ownerships)]
    fine.ledger.sent.append(sent("a3", 2, delivered=True, offset=5))
    fine.logs["t", 0].append(record(5, "a3"))
    assert not list(checker.behind_the_fence(fine))
    fine.ownerships = [replace(each, former=False) for each in reversed(fine.ownerships)]
    assert list(checker.behind_the_fence(fine))


@pytest.mark.parametrize(("change", "wrong"), [(3.0, 1), (4.5, 0), (9.0, 0)])
def test_a_clients_own_name_stands_where_its_record_was_sent_without_a_policy(change: float, wrong: int) -> None:
    bad = good()
    bad.policies = applied(NONE, (change, PLAIN))
    bad.ledger.sent[2].sent_at = 4.0
    bad.logs["t", 0] = [record(4, "b0", producer_id=2, at=5.0)]
    assert len(only(checker.strange_writers, bad)) == wrong


def test_what_a_reader_got_of_a_former_log_is_excused_alone() -> None:
    bad = good()
    bad.gone["t", 0], bad.gone_to["t", 0] = {b"old"}, 1
    bad.torn["t", 0] = {b"old"}
    bad.ledger.read = [Read("t", 0, 1, b"old", 1.0), Read("t", 0, 4, b"b0", 2.0), Read("t", 0, 4, b"older", 3.0)]
    assert ["older" in each for each in only(checker.read_otherwise, bad)] == [True]
    assert ["a1" in each for each in only(checker.skipped, bad)] == [True]  # a0 stands where the old one stood


@pytest.mark.parametrize(
    ("topic", "value", "wrong"),
    [("t", b"a0", 0), ("t", b"old", 0), ("t", b"older", 1), ("s", b"old", 0), ("s", b"a0", 1), ("s", b"later", 1)],
)
def test_a_shadow_is_read_from_the_topic_that_it_was_created_for(topic: str, value: bytes, wrong: int) -> None:
    """`s` shows the first of three topics named `t`; the second one had `older`, at another offset, and `later`."""
    bad = good()
    bad.lives = [Life("t", b"1", 0.0, 1.0), Life("t", b"2", 1.0, 2.0), Life("t", b"3", 2.0)]
    bad.former = {(b"1", 0): {1: {b"old"}}, (b"2", 0): {1: {b"later"}, 5: {b"older"}}}
    bad.sources.note("s", "t", 0.5, b"1")
    bad.ledger.read = [Read(topic, 0, 1, value, 3.0)]
    assert len(only(checker.read_otherwise, bad)) == wrong


def test_a_shadow_stays_one_of_its_topic() -> None:
    bad = good()
    bad.sources.note("s", "t", 0.5, b"1")
    bad.sources.note("s", "t", 0.6, b"2")
    assert len(only(checker.moved_shadows, bad)) == 1


def test_what_was_cleaned_away_before_a_reader_read_on_may_be_missing() -> None:
    bad = good()
    bad.ledger.read = [Read("t", 0, 1, b"a0", 1.0), Read("t", 0, 4, b"b0", 2.0)]
    for removed, wrong in ((math.inf, 1), (3.0, 1), (2.0, 0)):
        bad.removed["t", 0] = {2: removed}
        assert len(only(checker.skipped, bad)) == wrong


def test_an_acknowledgement_of_a_record_that_is_gone_says_nothing_of_its_offset() -> None:
    bad = good()
    bad.ledger.sent[0].offset = bad.ledger.sent[1].offset = 3
    bad.gone["t", 0] = {b"a0"}
    assert ["a1" in each for each in only(checker.wrong_offset, bad)] == [True]


@pytest.mark.parametrize(("fenced", "wrong"), [(0, 1), (4, 1), (5, 0)])
def test_what_was_in_doubt_as_its_topic_was_created_anew_may_stand_in_front_of_the_fence(
    fenced: int, wrong: int
) -> None:
    """In front of where the node had seen that there is another topic, and nowhere else."""
    bad = good()
    bad.unfenced["t", 0] = fenced
    bad.ledger.sent[2].doubtful, bad.ledger.sent[2].order = True, 1
    bad.ledger.sent[3] = sent("b", 0, "b.1", delivered=True, offset=5)
    bad.logs["t", 0] += [record(5, "b"), record(6, "b0")]
    assert len(only(checker.doubled, bad)) == wrong
    assert len(only(checker.reordered, bad)) == wrong
