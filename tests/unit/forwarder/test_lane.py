"""The order of one partition: mute at the first failure, retries alone and in order, a way out of every mute.

After Sarama's producer and what broke there: each mute has to be kept through the retry and released on every exit,
waking whoever waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from sidecar.forwarder.lane import MAX_IN_FLIGHT
from sidecar.forwarder.outcome import LONGEST_WAIT_MS, Outcome
from sidecar.forwarder.sequences import Append
from sidecar.protocol.batch import crc_matches
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.produce import ProduceResult
from tests.unit.forwarder.paper import STAMP, Bench, ManualLoop, manual_time

OK, NO_LEADER, NOT_LEADER, TIMED_OUT, TOO_LARGE, LOST, OUT_OF_ORDER, STALE = 0, 5, 6, 7, 10, 13, 45, 47
NOT_WRITTEN = [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS]
IN_DOUBT = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # also of a leader that lost its place while it waited for the followers
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]
APPENDED = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
FINAL = [
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.INVALID_RECORD,
]
FENCING = [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def named(code: ErrorCode) -> str:
    return code.name


@pytest.fixture
def loop() -> Iterator[ManualLoop]:
    with manual_time() as found:
        yield found


@pytest.fixture
def bench(loop: ManualLoop) -> Bench:
    return Bench(loop)


@pytest.fixture
def plain(loop: ManualLoop) -> Bench:
    return Bench(loop, plain=True)


# The window ---------------------------------------------------------------------------------------------------------


def test_five_batches_are_in_flight_at_most_and_each_answer_lets_the_next_go(bench: Bench) -> None:
    bench.append(*"abcdefg")
    assert bench.in_flight == list("abcde")
    bench.settle(OK, OK)
    assert bench.in_flight == list("cdefg")
    bench.settle(*[OK] * MAX_IN_FLIGHT)
    assert bench.errors() == dict.fromkeys("abcdefg", OK)
    bench.finished()


def test_every_batch_is_stamped_with_the_slots_producer_id_epoch_and_sequence(bench: Bench) -> None:
    bench.append("a", records=3)
    bench.append("b")
    stamps = [(header.producer_id, header.producer_epoch, header.base_sequence) for header in bench.shipper.history]
    assert stamps == [(STAMP.producer_id, STAMP.epoch, 0), (STAMP.producer_id, STAMP.epoch, 3)]
    for append in bench.shipper.shipped:
        assert crc_matches(append.batch, 0, append.size)


def test_an_answer_carries_kafkas_own_offset(bench: Bench) -> None:
    bench.append("a")
    bench.settle(OK)
    assert bench.outcomes["a"] == [Outcome(OK, 101)]


def test_a_duplicate_is_a_success(bench: Bench) -> None:
    bench.append("a", "b")
    bench.settle_as("a", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert bench.errors() == {"a": OK}
    assert not bench.lane.muted


# Mute and retry -----------------------------------------------------------------------------------------------------


def test_after_a_failure_nothing_new_is_sent_until_what_failed_is_there(bench: Bench) -> None:
    """Sarama's TestAsyncProducerRetryOrdering: m0, m1 fail; then m0 alone, then m1, then m2."""
    bench.append(*"ab")
    bench.settle(NOT_LEADER)
    bench.append("c")
    assert bench.in_flight == ["b"]
    bench.settle(NOT_LEADER)
    assert bench.in_flight == []
    bench.loop.advance(1.0)
    assert bench.in_flight == ["a"]
    bench.settle(OK)
    bench.loop.turn()
    assert bench.in_flight == ["b"]
    bench.settle(OK)
    assert bench.in_flight == ["c"]
    bench.settle(OK)
    assert bench.wire == [0, 1, 0, 1, 2]
    assert bench.answered == list("abc")
    bench.finished()


@pytest.mark.parametrize("code", NOT_WRITTEN + IN_DOUBT, ids=named)
def test_a_passing_failure_is_retried_in_order(bench: Bench, code: ErrorCode) -> None:
    bench.append(*"abc")
    bench.settle(code, *[OUT_OF_ORDER] * 2)
    for _ in "abc":
        bench.loop.advance(1.0)
        bench.settle(OK)
    assert bench.wire == [0, 1, 2, 0, 1, 2]
    assert bench.errors() == dict.fromkeys("abc", OK)
    assert not bench.lane.muted
    bench.finished()


@pytest.mark.parametrize("code", [NO_LEADER, NOT_LEADER, LOST])
def test_the_leader_is_looked_for_anew_where_it_may_have_moved(bench: Bench, code: int) -> None:
    """A broker that was stopped (SIGSTOP) only ever loses its connection: the partition's new leader is elsewhere."""
    bench.append("a")
    bench.settle(code)
    assert bench.shipper.lost == 1


def test_the_mute_is_kept_through_failing_retries(bench: Bench) -> None:
    bench.append(*"ab")
    bench.settle(LOST, LOST)
    for _ in range(4):
        bench.loop.advance(2.0)
        assert bench.in_flight == ["a"]
        assert bench.lane.muted
        bench.settle(LOST)
    bench.loop.advance(2.0)
    bench.settle(OK)
    bench.loop.turn()
    assert bench.in_flight == ["b"]
    bench.settle(OK)
    assert bench.wire == [0, 1, 0, 0, 0, 0, 0, 1]
    assert not bench.lane.muted
    bench.finished()


def test_retries_back_off_up_to_a_second_and_begin_anew_after_a_success(bench: Bench) -> None:
    def pause() -> float:
        before = bench.loop.now
        while not bench.in_flight:
            bench.loop.advance(0.001)
        return bench.loop.now - before

    bench.append("a", timeout=1_000.0)
    pauses: list[float] = []
    for _ in range(12):
        bench.settle(NOT_LEADER)
        pauses.append(pause())
    assert 0.009 <= pauses[0] <= 0.022
    assert all(later >= earlier * 0.9 for earlier, later in zip(pauses, pauses[2:], strict=False) if earlier < 0.5)
    assert all(0.49 <= found <= 1.002 for found in pauses[-4:])
    bench.settle(OK)
    bench.append("b")
    bench.settle(NOT_LEADER)
    assert pause() <= 0.022


def test_behind_a_successful_retry_the_next_goes_without_a_pause(bench: Bench) -> None:
    bench.append(*"abc")
    bench.settle(LOST, LOST, LOST)
    bench.loop.advance(1.0)
    bench.settle(OK)
    bench.loop.turn()
    bench.settle(OK)
    bench.loop.turn()
    bench.settle(OK)
    bench.finished()


def test_a_later_batch_that_got_through_is_not_sent_again(bench: Bench) -> None:
    """The answer of the first was lost, the second came back: both are in the log."""
    bench.append(*"ab")
    bench.settle(LOST, OK)
    bench.loop.advance(1.0)
    bench.settle(OK)
    assert bench.wire == [0, 1, 0]
    bench.finished()


@pytest.mark.parametrize("code", [code for code in IN_DOUBT if code not in APPENDED], ids=named)
def test_an_acknowledgement_waits_for_an_earlier_batch_that_failed(bench: Bench, code: ErrorCode) -> None:
    """In a topic created anew the broker takes any sequence for its producer's first: the second batch is there
    without the one in front of it.
    """
    bench.append(*"ab")
    bench.settle(code, OK)
    assert (bench.errors(), bench.space.next) == ({}, 0)
    bench.loop.advance(1.0)
    bench.settle(OK)
    bench.loop.turn()
    assert bench.answered == list("ab")
    assert [bench.outcomes[value][0].offset for value in "ab"] == [101, 102]
    bench.finished()


@pytest.mark.parametrize("code", APPENDED, ids=named)
def test_an_acknowledgement_counts_behind_a_batch_that_its_leader_has_appended(bench: Bench, code: ErrorCode) -> None:
    bench.append(*"ab")
    bench.settle(code, OK)
    assert bench.errors() == {"b": OK}


@pytest.mark.parametrize("is_late", [False, True])
def test_where_the_topic_is_another_one_no_acknowledgement_counts_behind_a_failure(bench: Bench, is_late: bool) -> None:
    bench.append(*"ab")
    bench.settle(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *[] if is_late else [OK])
    bench.lane.foreign_topic()
    bench.loop.turn()
    bench.settle(*[OK] if is_late else [])
    assert bench.errors() == {"a": NOT_LEADER, "b": NOT_LEADER}
    assert (bench.space.next, bench.space.certain) == (0, False)
    bench.finished()


def test_where_the_earlier_batch_is_given_up_an_acknowledgement_behind_it_is_a_doubt(bench: Bench) -> None:
    bench.append("a", timeout=0.5)
    bench.append("b")
    bench.settle(LOST, OK)
    bench.loop.advance(1.0)
    bench.settle(LOST)
    assert bench.errors() == {"a": TIMED_OUT, "b": TIMED_OUT}
    assert (bench.space.next, bench.space.certain) == (0, False)
    bench.finished()


def test_behind_a_mute_that_is_over_every_acknowledgement_counts(bench: Bench) -> None:
    bench.append("a", timeout=0.5)
    bench.settle(LOST)
    bench.loop.advance(1.0)
    bench.settle(LOST)
    bench.append(*"bc")
    bench.settle(OK, OK)
    assert bench.errors() == {"a": TIMED_OUT, "b": OK, "c": OK}
    bench.finished()


# Out of order -------------------------------------------------------------------------------------------------------


def test_out_of_order_alone_is_kafkas_own_verdict(bench: Bench) -> None:
    bench.append("a")
    bench.settle(OUT_OF_ORDER)
    assert bench.errors() == {"a": OUT_OF_ORDER}
    assert not bench.lane.muted
    bench.finished()


def test_out_of_order_behind_a_failure_is_a_consequence_and_goes_again(bench: Bench) -> None:
    bench.append(*"abc")
    bench.settle(NOT_LEADER, OUT_OF_ORDER, OUT_OF_ORDER)
    assert bench.errors() == {}
    for _ in "abc":
        bench.loop.advance(1.0)
        bench.settle(OK)
    assert bench.errors() == dict.fromkeys("abc", OK)


def test_no_client_is_told_of_a_consequence_when_its_time_is_over(bench: Bench) -> None:
    """The first got through after all; a 45 for the next would be the end of a librdkafka producer."""
    bench.append("a", timeout=30.0)
    bench.append("b", timeout=0.5)
    bench.settle(NOT_LEADER, OUT_OF_ORDER)
    bench.loop.advance(1.0)
    bench.settle(OK)
    assert bench.errors() == {"a": OK, "b": TIMED_OUT}


def test_out_of_order_before_the_answers_of_earlier_batches_is_a_consequence_too(bench: Bench) -> None:
    """The leader moved between two batches: the new one answers before the connection to the old one has failed."""
    bench.append(*"ab")
    bench.settle_as("b", OUT_OF_ORDER)
    assert bench.errors() == {}
    assert bench.lane.muted
    bench.settle_as("a", NOT_LEADER)
    for _ in "ab":
        bench.loop.advance(1.0)
        bench.settle(OK)
    assert bench.wire == [0, 1, 0, 1]
    bench.finished()


def test_no_client_is_told_of_a_lost_connection_but_that_the_outcome_is_unknown(bench: Bench) -> None:
    """Brokers never answer 13, and librdkafka takes it for final."""
    bench.append("a", timeout=0.0)
    bench.settle(LOST)
    assert bench.errors() == {"a": TIMED_OUT}


def test_out_of_order_on_a_retry_alone_is_final(bench: Bench) -> None:
    bench.append(*"ab")
    bench.settle(LOST, OUT_OF_ORDER)
    bench.loop.advance(1.0)
    bench.settle(OUT_OF_ORDER)
    assert bench.errors() == {"a": OUT_OF_ORDER}
    bench.loop.advance(1.0)
    bench.settle(OUT_OF_ORDER)
    assert bench.errors() == {"a": OUT_OF_ORDER, "b": OUT_OF_ORDER}
    bench.finished()


def test_an_idempotent_batch_refused_for_itself_leaves_the_gap_that_kafka_shows(bench: Bench) -> None:
    bench.append(*"abc")
    bench.settle(TOO_LARGE, OUT_OF_ORDER, OUT_OF_ORDER)
    assert bench.errors() == {"a": TOO_LARGE, "b": OUT_OF_ORDER, "c": OUT_OF_ORDER}
    assert bench.owner.lost_lanes == []
    bench.finished()


# Ways out of a mute -------------------------------------------------------------------------------------------------


def muted(bench: Bench, code: int = NOT_LEADER) -> None:
    bench.append(*"ab")
    bench.append("waiting", timeout=60.0)
    bench.settle(code, code, code)
    bench.append("queued", timeout=60.0)
    assert bench.lane.muted
    assert bench.in_flight == []


def test_a_mute_ends_by_success(bench: Bench) -> None:
    muted(bench)
    for _ in range(3):
        bench.loop.advance(1.0)
        bench.settle(OK)
    assert bench.in_flight == ["queued"]
    assert not bench.lane.muted


@pytest.mark.parametrize("code", FINAL, ids=named)
def test_a_mute_ends_by_a_final_error(bench: Bench, code: ErrorCode) -> None:
    muted(bench, NO_LEADER)
    for _ in range(3):
        bench.loop.advance(1.0)
        bench.settle(code)
    assert bench.in_flight == ["queued"]
    assert not bench.lane.muted
    assert bench.errors() == {"a": code, "b": code, "waiting": code}


@pytest.mark.parametrize("code", FINAL, ids=named)
def test_a_refusal_says_nothing_of_an_earlier_try_that_may_be_in_the_log(bench: Bench, code: ErrorCode) -> None:
    """Its answer was lost, and what the topic takes changed meanwhile: only a new epoch, behind a fence, can tell."""
    bench.append("a")
    bench.settle(LOST)
    bench.loop.advance(1.0)
    bench.settle(code)
    assert bench.errors() == {"a": TIMED_OUT}
    assert bench.owner.lost_lanes == [bench.lane]
    assert not bench.space.certain


def test_kafka_knows_a_batch_in_doubt_that_is_out_of_order(bench: Bench) -> None:
    """It compares sequences with those in the log: this one is not there."""
    bench.append("a")
    bench.settle(LOST)
    bench.loop.advance(1.0)
    bench.settle(OUT_OF_ORDER)
    assert bench.errors() == {"a": OUT_OF_ORDER}
    assert bench.owner.lost_lanes == []


def test_a_mute_ends_at_the_deadline_with_the_error_of_the_last_try(bench: Bench) -> None:
    bench.append(*"ab", timeout=3.0)
    bench.append("late", timeout=60.0)
    bench.settle(NOT_LEADER, NOT_LEADER, OUT_OF_ORDER)
    for _ in range(20):
        if "a" in bench.in_flight:
            bench.settle_as("a", NOT_LEADER)
        bench.loop.advance(0.5)
    assert bench.errors() == {"a": NOT_LEADER, "b": NOT_LEADER}
    assert bench.in_flight == ["late"]
    bench.settle(OUT_OF_ORDER)
    assert bench.errors()["late"] == OUT_OF_ORDER
    assert not bench.lane.muted
    bench.finished()


def test_what_waited_past_its_own_deadline_is_answered_without_being_sent(bench: Bench) -> None:
    bench.append("a", timeout=20.0)
    bench.settle(NOT_LEADER)
    bench.append("b", timeout=1.0)
    bench.append("c", timeout=60.0)
    bench.loop.advance(2.0)
    bench.settle(NOT_LEADER)
    assert bench.errors() == {"b": TIMED_OUT}
    bench.loop.advance(2.0)
    bench.settle(OK)
    assert bench.in_flight == ["c"]
    assert bench.wire == [0, 0, 0, 2]


def test_a_mute_ends_with_the_lane(bench: Bench) -> None:
    muted(bench)
    bench.lane.close(Outcome(NOT_LEADER))
    assert bench.errors() == dict.fromkeys(["a", "b", "waiting", "queued"], NOT_LEADER)
    bench.finished()


@pytest.mark.parametrize("code", FENCING, ids=named)
def test_a_mute_ends_with_a_fence(bench: Bench, code: ErrorCode) -> None:
    muted(bench)
    bench.loop.advance(1.0)
    bench.settle(code)
    assert bench.owner.fenced_lanes == [bench.lane]
    assert bench.errors() == dict.fromkeys(["a", "b", "waiting", "queued"], NOT_LEADER)
    bench.finished()


@pytest.mark.parametrize(("codes", "certain"), [([TOO_LARGE], True), ([LOST, TOO_LARGE], False), ([NO_LEADER], True)])
def test_the_space_hears_of_batches_given_up_in_doubt(bench: Bench, codes: list[int], certain: bool) -> None:
    bench.append("a", timeout=0.0 if len(codes) == 1 else 30.0)
    for code in codes:
        bench.loop.advance(1.0)
        bench.settle(code)
    assert "a" in bench.errors()
    assert bench.space.certain is certain


def test_a_fence_that_nobody_acts_on_is_passed_on_and_the_lane_stays_usable(loop: ManualLoop) -> None:
    bench = Bench(loop, owner_ends=False)
    bench.append(*"ab")
    bench.settle(STALE, STALE)
    assert bench.errors() == {"a": STALE, "b": STALE}
    bench.finished()


# The end of a lane --------------------------------------------------------------------------------------------------


def test_a_closed_lane_answers_what_waits_and_lets_what_is_in_flight_finish(bench: Bench) -> None:
    bench.append(*"abcdefg")
    bench.lane.close(Outcome(NOT_LEADER))
    assert bench.errors() == {"f": NOT_LEADER, "g": NOT_LEADER}
    bench.settle(OK, LOST, STALE, OUT_OF_ORDER, TOO_LARGE)
    assert bench.errors() == {"a": OK} | dict.fromkeys("bcdefg", NOT_LEADER)
    assert bench.owner.fenced_lanes == []
    bench.finished()


@dataclass
class Log:
    """What a lane says of one batch to the one who follows the log. Implements `Witness`."""

    in_order: bool = False
    landed_at: list[int] = field(default_factory=list[int])
    doubts: list[bool] = field(default_factory=list[bool])

    def landed(self, outcome: Outcome) -> None:
        self.landed_at.append(outcome.offset)

    def failed(self, *, in_doubt: bool) -> None:
        self.doubts.append(in_doubt)


def followed(bench: Bench, value: str, *, in_order: bool = False) -> Log:
    log = Log(in_order)
    bench.appends[value].witness = log
    return log


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize(
    ("code", "landed", "doubts"),
    [
        (OK, [5], []),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, [-1], []),
        (TOO_LARGE, [], [False]),
        (OUT_OF_ORDER, [], [False]),
        (STALE, [], [False]),
    ],
)
def test_a_leaders_last_word_on_a_batch_counts_after_the_end_of_its_lane_too(
    bench: Bench, code: int, landed: list[int], doubts: list[bool], is_over: bool
) -> None:
    bench.append("a")
    log = followed(bench, "a")
    if is_over:
        bench.lane.close(Outcome(NOT_LEADER))
    bench.settle_as("a", code)
    assert (log.landed_at, log.doubts) == (landed, doubts)
    bench.finished()


@pytest.mark.parametrize("code", IN_DOUBT, ids=named)
def test_a_batch_without_a_verdict_at_the_end_of_its_lane_is_in_doubt(bench: Bench, code: ErrorCode) -> None:
    bench.append("a", "b")
    in_flight, waits = followed(bench, "a"), followed(bench, "b")
    bench.settle_as("b", NO_LEADER)
    bench.lane.close(Outcome(TIMED_OUT))
    bench.settle_as("a", code)
    assert (in_flight.doubts, waits.doubts) == ([True], [False])
    assert not bench.space.certain
    assert bench.errors() == {"a": TIMED_OUT, "b": TIMED_OUT}


def test_an_acknowledgement_behind_a_batch_that_ended_with_the_lane_is_a_doubt(bench: Bench) -> None:
    bench.append(*"ab")
    log = followed(bench, "b")
    bench.lane.close(Outcome(NOT_LEADER))
    bench.settle(NO_LEADER, OK)
    assert (log.landed_at, log.doubts) == ([], [True])
    assert bench.errors() == {"a": NOT_LEADER, "b": NOT_LEADER}
    bench.finished()


@pytest.mark.parametrize("code", APPENDED, ids=named)
def test_an_acknowledgement_behind_a_batch_that_is_in_the_log_counts_after_the_end_of_the_lane(
    bench: Bench, code: ErrorCode
) -> None:
    bench.append(*"ab")
    bench.settle_as("a", code)
    bench.lane.close(Outcome(NOT_LEADER))
    bench.settle_as("b", OK)
    assert bench.errors() == {"a": NOT_LEADER, "b": OK}


def test_an_acknowledgement_in_front_of_a_batch_that_failed_counts_at_once(bench: Bench) -> None:
    bench.append(*"ab")
    bench.settle_as("b", LOST)
    bench.settle_as("a", OK)
    assert bench.errors() == {"a": OK}
    bench.loop.advance(1.0)
    bench.settle(OK)
    assert bench.errors() == {"a": OK, "b": OK}


def test_an_acknowledged_batch_is_followed_as_a_settled_one(bench: Bench) -> None:
    bench.append(*"abcdefg")
    first = followed(bench, "a")
    bench.lane.acknowledged(bench.appends["a"], Outcome(OK, 40))
    assert (first.landed_at, bench.outcomes["a"]) == ([40], [])
    assert len(bench.in_flight) == 6  # one more went
    assert bench.space.next == 1
    bench.shipper.shipped.remove(bench.appends["a"])
    bench.settle(*[OK] * 6)
    assert bench.shipper.held == 0


def test_a_failed_batch_goes_again_when_the_last_one_in_flight_is_acknowledged(bench: Bench) -> None:
    """And the pauses begin anew, as the leader answers."""
    bench.append("a", timeout=1_000.0)
    for _ in range(8):
        bench.settle(NOT_LEADER)
        bench.loop.advance(2.0)
    bench.settle(OK)
    bench.append(*"bc")
    bench.settle_as("c", NOT_LEADER)
    assert (bench.lane.muted, bench.lane.failures) == (True, 1)
    bench.lane.acknowledged(bench.appends["b"])
    bench.shipper.shipped.remove(bench.appends["b"])
    assert bench.lane.failures == 0
    bench.loop.advance(0.022)
    assert bench.in_flight == ["c"]
    bench.settle(OK)
    assert bench.errors() == {"a": OK, "c": OK}


def test_a_plain_batch_that_is_acknowledged_belongs_to_no_space(plain: Bench) -> None:
    plain.append("a")
    plain.lane.acknowledged(plain.appends["a"])
    assert plain.shipper.held == 0
    assert plain.space.next == 0


def test_a_lane_flows_while_a_batch_would_go_at_once(bench: Bench) -> None:
    for value in "abcde":
        assert bench.lane.flows
        bench.append(value)
    assert not bench.lane.flows, "five are in flight"
    bench.settle(OK)
    assert bench.lane.flows
    bench.append(*"fg")
    bench.settle(OK)
    assert not bench.lane.flows, "the waiting one went"
    bench.settle(*[OK] * 5)
    bench.append("h")
    bench.settle(NOT_LEADER)
    assert not bench.lane.flows, "it is muted"
    bench.loop.advance(1.0)
    bench.settle(OK)
    assert bench.lane.flows
    bench.lane.close(Outcome(NOT_LEADER))
    assert not bench.lane.flows


@pytest.mark.parametrize(
    ("message", "of_records", "text"),
    [
        (None, (), None),
        ("no", (), "no"),
        (None, ((0, None), (3, "too old"), (4, "later")), "too old"),
        (None, ((0, None),), None),
        ("no", ((3, "too old"),), "no"),
        ("", ((3, "too old"),), ""),
    ],
)
def test_an_outcome_carries_kafkas_message_or_the_first_of_a_record(
    message: str | None, of_records: tuple[tuple[int, str | None], ...], text: str | None
) -> None:
    result = ProduceResult(b"orders", 0, ErrorCode.INVALID_RECORD, 1, 2, 3, message, of_records)
    assert Outcome.of(result) == Outcome(ErrorCode.INVALID_RECORD, 1, 2, 3, text)


@pytest.mark.parametrize(
    ("asked", "sent"),
    [(-1, 0), (0, 0), (1, 1), (LONGEST_WAIT_MS, LONGEST_WAIT_MS), (LONGEST_WAIT_MS + 1, LONGEST_WAIT_MS)],
)
def test_a_leader_waits_for_its_followers_as_long_as_the_client_asks_within_bounds(asked: int, sent: int) -> None:
    append = Append(memoryview(b""), 1, 0.0, asked, lambda _: None)
    assert append.upstream_timeout_ms == sent


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_no_batch_may_follow_one_in_order_that_was_given_up(plain: Bench, waits: bool, in_order: bool) -> None:
    """It waits behind a mute, or was refused for itself."""
    if waits:
        plain.append("first")
        plain.settle(NO_LEADER)
        plain.append("a", timeout=0.01)
    else:
        plain.append("a")
    followed(plain, "a", in_order=in_order)
    if waits:
        plain.loop.advance(1.0)
        plain.settle(OK)
        plain.loop.turn()
    else:
        plain.settle(TOO_LARGE)
    assert plain.errors()["a"] == (TIMED_OUT if waits else TOO_LARGE)
    assert len(plain.owner.lost_lanes) == in_order


@pytest.mark.parametrize("is_over", [False, True])
def test_another_topic_of_the_name_ends_the_lane_in_the_next_turn(bench: Bench, is_over: bool) -> None:
    bench.append("a")
    bench.lane.foreign_topic()
    assert bench.owner.fenced_lanes == []
    if is_over:
        bench.lane.close(Outcome(TIMED_OUT))
    bench.loop.turn()
    assert len(bench.owner.fenced_lanes) == (not is_over)
    bench.lane.foreign_topic()
    assert bench.loop.timers == 0


def test_a_lane_is_used_once_a_batch_was_sent(bench: Bench) -> None:
    assert not bench.lane.used
    assert bench.lane.flows
    bench.append("a")
    bench.settle(TOO_LARGE)
    assert bench.lane.used
    assert bench.lane.idle


def test_a_closed_lane_leaves_no_timer(bench: Bench) -> None:
    muted(bench, NO_LEADER)
    assert bench.loop.timers == 1
    bench.lane.close(Outcome(TIMED_OUT))
    assert bench.loop.timers == 0


def test_a_closed_lane_refuses_at_once(bench: Bench) -> None:
    bench.lane.close(Outcome(NOT_LEADER))
    bench.append("a")
    assert bench.errors() == {"a": NOT_LEADER}
    bench.finished()


def test_closing_twice_keeps_the_first_answer(bench: Bench) -> None:
    bench.append(*"abcdef")
    bench.lane.close(Outcome(NOT_LEADER))
    bench.lane.close(Outcome(TIMED_OUT))
    bench.settle(*[LOST] * 5)
    assert set(bench.errors().values()) == {NOT_LEADER}
    bench.finished()


def test_a_retry_that_was_about_to_go_is_not_sent_by_a_closed_lane(bench: Bench) -> None:
    bench.append("a")
    bench.settle(NOT_LEADER)
    bench.lane.close(Outcome(NOT_LEADER))
    bench.loop.advance(5.0)
    assert bench.wire == [0]
    bench.finished()


# Clients that send on while they are answered -----------------------------------------------------------------------


def test_a_batch_that_arrives_while_another_is_answered_keeps_its_place(bench: Bench) -> None:
    bench.append(*"abcdef")
    first = bench.appends["a"]
    answered = first.done

    def answer_and_send(outcome: Outcome) -> None:
        answered(outcome)
        bench.append("g")

    first.done = answer_and_send
    bench.settle(OK)
    assert bench.in_flight == list("bcdef")
    bench.settle(OK)
    assert bench.in_flight == list("cdefg")


# Plain sessions: the node numbers -----------------------------------------------------------------------------------


def test_plain_batches_are_numbered_in_the_order_in_which_they_came(plain: Bench) -> None:
    plain.append("a", records=2)
    plain.append("b", records=3)
    plain.append("c")
    assert plain.wire == [0, 2, 5]


def test_a_plain_batch_refused_for_itself_gives_its_number_back(plain: Bench) -> None:
    plain.append(*"abcd")
    plain.settle(OK, TOO_LARGE, OUT_OF_ORDER, OUT_OF_ORDER)
    plain.append("e")
    assert plain.errors() == {"a": OK, "b": TOO_LARGE}
    for _ in "cde":
        plain.loop.advance(1.0)
        plain.settle(OK)
    assert plain.wire == [0, 1, 2, 3, 1, 2, 3]
    assert plain.errors() == {"a": OK, "b": TOO_LARGE, "c": OK, "d": OK, "e": OK}
    assert plain.owner.lost_lanes == []
    plain.finished()


def test_a_batch_in_front_of_the_gap_keeps_its_number_through_the_retry(plain: Bench) -> None:
    plain.append(*"abc")
    plain.settle(LOST, TOO_LARGE, OUT_OF_ORDER)
    for _ in "ac":
        plain.loop.advance(1.0)
        plain.settle(OK)
    assert plain.wire == [0, 1, 2, 0, 1]
    plain.finished()


def test_of_two_gaps_the_earlier_counts(plain: Bench) -> None:
    plain.append(*"abcd")
    plain.settle(OK, TOO_LARGE, TOO_LARGE, OUT_OF_ORDER)
    plain.loop.advance(1.0)
    plain.settle(OK)
    assert plain.wire == [0, 1, 2, 3, 1]
    plain.finished()


def test_a_plain_batch_given_up_and_surely_not_written_gives_its_number_back(plain: Bench) -> None:
    plain.append("a", timeout=1.0)
    plain.append("b", timeout=60.0)
    plain.settle(NO_LEADER, OUT_OF_ORDER)
    while "a" not in plain.errors():
        plain.loop.advance(0.5)
        if plain.in_flight == ["a"]:
            plain.settle(NO_LEADER)
    plain.loop.advance(1.0)
    plain.settle(OK)
    assert plain.errors() == {"a": NO_LEADER, "b": OK}
    assert plain.wire[-1] == 0
    assert plain.owner.lost_lanes == []
    plain.finished()


@pytest.mark.parametrize("code", IN_DOUBT, ids=named)
def test_the_numbering_is_lost_with_a_plain_batch_that_is_given_up_in_doubt(plain: Bench, code: ErrorCode) -> None:
    plain.append("a", timeout=0.0)
    plain.append("b")
    plain.settle(code, OUT_OF_ORDER)
    assert plain.owner.lost_lanes == [plain.lane]
    assert plain.errors() == {"a": TIMED_OUT if code == LOST else code, "b": TIMED_OUT}
    plain.finished()


def test_the_numbering_is_lost_where_a_batch_behind_the_gap_may_still_get_into_the_log(plain: Bench) -> None:
    """Its number would be another batch's then: Kafka would take that one for a repeat, and it would be lost."""
    plain.append(*"abc")
    plain.settle(TOO_LARGE, LOST, OUT_OF_ORDER)
    assert plain.owner.lost_lanes == [plain.lane]
    assert plain.wire == [0, 1, 2]
    plain.finished()


def test_doubt_is_not_forgotten_by_a_later_answer_that_is_certain(plain: Bench) -> None:
    plain.append("a", timeout=1.0)
    plain.settle(LOST)
    while "a" not in plain.errors():
        plain.loop.advance(0.5)
        if plain.in_flight:
            plain.settle(NO_LEADER)
    assert plain.owner.lost_lanes == [plain.lane]


def test_a_final_error_after_a_doubt_loses_the_numbering(plain: Bench) -> None:
    plain.append("a")
    plain.settle(LOST)
    plain.loop.advance(1.0)
    plain.settle(TOO_LARGE)
    assert plain.owner.lost_lanes == [plain.lane]


def test_out_of_order_on_a_plain_batch_alone_loses_the_numbering(plain: Bench) -> None:
    """Its client has no sequences and would not know what to make of the code."""
    plain.append("a")
    plain.settle(OUT_OF_ORDER)
    assert plain.owner.lost_lanes == [plain.lane]
    assert plain.errors() == {"a": TIMED_OUT}


def test_a_plain_batch_that_was_never_sent_has_no_number_to_lose(plain: Bench) -> None:
    plain.append(*"abcde")
    plain.append("waits", timeout=1.0)
    plain.append("last", timeout=60.0)
    plain.settle(*[NOT_LEADER] * 5)
    plain.loop.advance(1.5)
    while not plain.lane.idle:
        if plain.in_flight:
            plain.settle(OK)
        plain.loop.advance(1.0)
    assert plain.errors() == dict.fromkeys("abcde", OK) | {"waits": TIMED_OUT, "last": OK}
    assert sorted(set(plain.wire)) == [0, 1, 2, 3, 4, 5]
    plain.finished()
