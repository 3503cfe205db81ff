"""When a fence is renewed, and how old records may be, without a clock or a broker."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata import MetadataUnavailable
from metadata.errors import Reason
from sidecar.changelog import Clock
from sidecar.dedup.content import Content
from sidecar.dedup.reply import Reply
from sidecar.exclusive.keeper import Keeper
from sidecar.fencing.expiry import KeepAlive, keep_alive
from sidecar.forwarder.outcome import Outcome
from sidecar.protocol.batch import HEADER_BYTES
from sidecar.protocol.caller import TopicLayout
from sidecar.takeover.slots import SlotScope
from sidecar.writing.upkeep import Cause, Renewal, Upkeep, Watched, renew_fence
from tests.kafka.exclusive.producers import batch_of

HOUR = 3600.0
BUSY, INVALID_TIMESTAMP, INVALID_RECORD = 5, 32, 87
GZIP = 1


def terms(interval: float = 6 * HOUR, *, stamped: bool = False) -> KeepAlive:
    return KeepAlive(interval, "producer.id.expiration.ms of the brokers", oldest=3 * interval - 60, stamped=stamped)


NOW_S = 1_800_000_000.0
CLOCK = Clock(lambda: NOW_S, lambda: 0.0)


def new(assumed: KeepAlive | None = None) -> Upkeep:
    return Upkeep(assumed, CLOCK)


def ago(seconds: float) -> int:
    return int((NOW_S - seconds) * 1000)


def test_what_was_never_fenced_is_due_at_once() -> None:
    assert new().is_due(0.0)


@given(interval=st.floats(0.01, 1e6), began=st.floats(0, 1e9))
def test_a_fence_is_renewed_well_before_its_time_and_not_all_the_time(interval: float, began: float) -> None:
    upkeep = new()
    upkeep.read(terms(interval))
    upkeep.kept(began)
    assert not upkeep.is_due(began + interval / 2)
    assert upkeep.is_due(began + interval * 1.01)


@given(expiration=st.integers(4_000, 10**12), retention=st.integers(1, 10**12), stamped=st.booleans())
def test_leaders_are_trusted_no_longer_than_they_remember_the_oldest_records(
    expiration: int, retention: int, stamped: bool
) -> None:
    """Twice as long was believed: what a session had written with old times passed for never written."""
    found = keep_alive(
        {"producer.id.expiration.ms": expiration}, {"retention.ms": retention}, name="t", stamped=stamped
    )
    upkeep = new()
    assert upkeep.trusted_ms == 0
    upkeep.read(found)
    assert round(upkeep.trusted_ms + found.oldest * 1000, 3) <= expiration


def test_after_a_failure_it_is_tried_again_soon_and_not_at_once() -> None:
    upkeep = new()
    upkeep.read(terms(HOUR))
    upkeep.failed(100.0)
    assert not upkeep.is_due(104.0)
    assert upkeep.is_due(106.0)


def test_a_fence_that_began_earlier_takes_nothing_back() -> None:
    upkeep = new()
    upkeep.read(terms(100))
    upkeep.kept(1_000.0)
    upkeep.kept(900.0)
    assert not upkeep.is_due(1_010.0)


def test_a_fence_that_faded_while_the_machine_was_suspended_is_due_when_it_wakes_up() -> None:
    seconds = 1_000.0
    upkeep = Upkeep(None, Clock(lambda: NOW_S, lambda: seconds))
    upkeep.read(terms())
    upkeep.kept(upkeep.now())
    assert not upkeep.is_due(upkeep.now())
    seconds += 7 * HOUR
    assert upkeep.is_due(upkeep.now())


# Old records --------------------------------------------------------------------------------------------------------


def test_before_the_settings_are_known_old_records_are_told_to_come_again() -> None:
    upkeep = new()
    assert upkeep.takes(ago(1))
    assert not upkeep.takes(ago(60))
    refused = upkeep.refusal("orders", ago(60))
    assert refused is not None
    assert refused.error == BUSY


def test_what_the_brokers_demand_is_enough_to_take_records_that_no_topic_would_refuse() -> None:
    upkeep = new(terms())
    assert upkeep.takes(ago(17 * HOUR))
    refused = upkeep.refusal("orders", ago(20 * HOUR))
    assert refused is not None
    assert refused.error == BUSY, "the topic may have brokers stamp records"
    upkeep.read(terms(60))
    upkeep.assume(terms())
    assert not upkeep.takes(ago(HOUR)), "what was read is not assumed away"


@pytest.mark.parametrize(("age", "old"), [(0, False), (17 * HOUR, False), (18 * HOUR, True), (-HOUR, False)])
def test_by_default_the_limit_is_a_little_under_eighteen_hours(age: float, old: bool) -> None:
    upkeep = new()
    upkeep.read(terms())
    assert upkeep.takes(ago(age)) != old


def test_a_refusal_says_how_old_they_may_be_by_which_setting_and_what_helps() -> None:
    upkeep = new()
    upkeep.read(terms())
    refused = upkeep.refusal("orders", ago(20 * HOUR))
    assert refused is not None
    assert refused.error == INVALID_TIMESTAMP
    for part in (
        "is 72000 s old",
        "64740 s",
        "producer.id.expiration.ms of the brokers",
        "sidecar topic set orders --log-append-time",
    ):
        assert part in (refused.message or "")


def test_where_brokers_stamp_records_any_age_passes_behind_the_first_fence_since() -> None:
    upkeep = new()
    upkeep.read(terms())
    upkeep.kept(0.0)
    upkeep.read(terms(stamped=True))
    assert upkeep.refusal("orders", ago(99 * HOUR)) is not None
    assert upkeep.is_due(1.0), "the fence that the change needs"
    upkeep.kept(1.0)
    assert upkeep.refusal("orders", ago(99 * HOUR)) is None
    assert not upkeep.is_due(2.0)


@pytest.mark.parametrize("how", ["the settings", "an answer"])
def test_where_they_stop_to_the_rule_holds_again_and_the_fence_is_renewed(how: str) -> None:
    upkeep = new()
    upkeep.read(terms(stamped=True))
    upkeep.kept(0.0)
    told: list[Outcome] = []
    if how == "the settings":
        upkeep.read(terms())
    else:
        Watched(Reply(told.append), upkeep).answer(Outcome(0, 7, log_append_time=1_700_000_000_000))
        assert upkeep.refusal("orders", ago(99 * HOUR)) is None
        Watched(Reply(told.append), upkeep).answer(Outcome(0, 8))
        assert [outcome.offset for outcome in told] == [7, 8]
    assert upkeep.is_due(1.0)
    assert upkeep.refusal("orders", ago(99 * HOUR)) is not None


async def test_a_fence_that_cannot_be_renewed_as_redis_is_away_is_tried_again() -> None:
    """For a topic whose partitions have owners the right to serve is asked of Redis."""
    told: list[tuple[str, BaseException]] = []
    failed = cast(Any, lambda name, error: told.append((name, error)))
    keeper = Keeper(cast(Any, None), cast(Any, None), cast(Any, None), failed)
    away = MetadataUnavailable(Reason.AWAY, "away")

    async def keep_alive() -> None:
        raise away

    topic = SimpleNamespace(name="orders", upkeep=new(), keep_alive=keep_alive)
    await keeper._renew(cast(Any, topic))
    assert told == [("orders", away)]
    assert not topic.upkeep.is_due(topic.upkeep.now())


def test_records_that_cannot_be_read_are_refused_for_good() -> None:
    """Clients send a batch again after 2 CORRUPT_MESSAGE, without end."""
    upkeep = new()
    upkeep.read(terms())
    batch = batch_of([bytes(100)], 7, 0, 0, codec=GZIP, timestamp_ms=ago(365 * 24 * HOUR))
    batch[HEADER_BYTES:] = bytes(len(batch) - HEADER_BYTES)
    answer = upkeep.examine("orders", memoryview(batch), at_once=True)
    assert answer is not None
    assert answer.error == INVALID_RECORD


def test_an_old_batch_takes_its_turn_among_those_that_come_again() -> None:
    class TurnedAway(Reply):
        def out_of_turn(self, content: Content) -> Outcome | None:
            return Outcome(BUSY)

    watched = Watched(TurnedAway(lambda _: None), new())
    assert watched.out_of_turn(cast("Content", None)) == Outcome(BUSY)


# What leaders remember ------------------------------------------------------------------------------------------------


def fenced(known: KeepAlive, at: float = 1_000.0, now: float = 1_000.0) -> Upkeep:
    """A topic whose fence began `at`, seen at `now`."""
    upkeep = new()
    upkeep.read(known)
    upkeep.kept(at)
    upkeep.now = lambda: now
    return upkeep


@pytest.mark.parametrize(("interval", "late"), [(100.0, 60.0), (30.0, 30.0)])
def test_a_leader_that_remembers_an_older_time_than_any_header_had_ends_all_belief_in_headers(
    interval: float, late: float
) -> None:
    """A batch whose header lied would make the leader forget the fence while it is believed to stand."""
    explained = terms(interval).oldest + late + 7.0
    upkeep = fenced(terms(interval), now=1_007.0)
    assert not upkeep.remembered(ago(explained) + 1)
    assert not upkeep.distrusts
    assert upkeep.takes(ago(1))
    assert not upkeep.is_due(1_007.0)
    assert upkeep.remembered(ago(explained) - 1)
    assert upkeep.distrusts
    assert upkeep.is_due(1_007.0)
    assert not upkeep.takes(ago(0)), "each batch is examined"
    upkeep.kept(1_007.0)
    assert not upkeep.is_due(1_007.0)
    upkeep.read(terms(interval))
    assert not upkeep.takes(ago(0)), "from now on"


def test_leaders_are_asked_what_they_remember_only_where_that_may_matter() -> None:
    upkeep = new()
    upkeep.wrote()
    assert not upkeep.wants_look, "the settings are not known"
    upkeep.read(terms())
    assert upkeep.wants_look
    upkeep.asked()
    assert not upkeep.wants_look
    assert not upkeep.takes(ago(99 * HOUR))
    assert not upkeep.wants_look, "it was not written"
    assert upkeep.takes(ago(1))
    assert upkeep.wants_look
    upkeep.read(KeepAlive(HOUR, "x"))
    assert not upkeep.wants_look, "records may have any age"
    upkeep.read(terms(stamped=True))
    upkeep.kept(1.0)
    assert not upkeep.wants_look, "brokers set the times"


def examined(upkeep: Upkeep, age_s: float, *, claimed_s: float | None = None) -> int | None:
    claimed_ms = None if claimed_s is None else ago(claimed_s)
    batch = batch_of([bytes(100)], 7, 0, 0, codec=GZIP, timestamp_ms=ago(age_s), claimed_ms=claimed_ms)
    sizes: list[int] = []
    answer = upkeep.examine("orders", memoryview(batch), at_once=True, opened=sizes.append)
    assert len(sizes) == (0 if upkeep.stamped else 1)
    return None if answer is None else answer.error


def test_the_records_count_and_not_what_the_header_says() -> None:
    upkeep = new()
    upkeep.read(terms())
    limit = terms().oldest
    assert examined(upkeep, limit) is None
    assert examined(upkeep, limit + 1) == INVALID_TIMESTAMP
    assert examined(upkeep, limit + 1, claimed_s=0) == INVALID_TIMESTAMP
    assert examined(upkeep, 0, claimed_s=limit + 1) is None
    upkeep.read(terms(stamped=True))
    upkeep.kept(1.0)
    assert examined(upkeep, limit + 1) is None


# When a fence is due --------------------------------------------------------------------------------------------------


def test_a_topic_whose_own_settings_are_short_is_not_fenced_more_often_than_every_five_minutes() -> None:
    assert not fenced(terms(300.0)).is_due(1_299.9)
    assert fenced(terms(300.0)).is_due(1_300.0)
    assert fenced(terms(299.0)).is_due(1_299.0), "the brokers require it"


def test_the_next_try_comes_after_five_seconds_or_a_quarter_of_a_short_time() -> None:
    long, short = fenced(terms(HOUR), -math.inf), fenced(terms(4.0), -math.inf)
    for upkeep, pause in ((long, 5.0), (short, 1.0)):
        upkeep.failed(2_000.0)
        assert not upkeep.is_due(2_000.0 + pause - 0.1)
        assert upkeep.is_due(2_000.0 + pause)


def test_the_most_urgent_cause_counts_and_each_has_its_pause() -> None:
    upkeep = fenced(terms())
    assert upkeep.cause is None
    upkeep.lapsed(Cause.REPLICAS)
    upkeep.lapsed(Cause.LOG_START)
    assert upkeep.cause is Cause.REPLICAS
    upkeep.lapsed(Cause.LOST)
    upkeep.lapsed(Cause.REPLICAS)
    assert upkeep.cause is Cause.LOST
    upkeep.kept(1_001.0)
    assert upkeep.cause is None
    for cause, pause in ((Cause.LOST, 1.0), (Cause.REPLICAS, 30.0), (Cause.LOG_START, 300.0)):
        after = fenced(terms())
        after.lapsed(cause)
        assert after.is_due(1_000.0)
        after.kept(1_000.0 + 1)
        after.now = lambda: 1_001.0
        after.lapsed(cause)
        assert not after.is_due(1_001.0 + pause - 0.1)
        assert after.is_due(1_001.0 + pause)


def test_a_takeover_delays_no_renewal_for_a_log_that_lost_its_marker_and_a_regular_renewal_does() -> None:
    """Its settings may delete each marker at once."""
    for at, is_due in ((1_001.0, True), (1_000.0 + 6 * HOUR, False)):
        upkeep = fenced(terms())
        upkeep.kept(at)
        upkeep.now = lambda at=at: at + 1
        upkeep.lapsed(Cause.LOG_START)
        assert upkeep.is_due(at + 1) is is_due
        assert upkeep.is_due(at + 300)


# A keep-alive ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic_id", "partitions"), [(2, (0, 1)), (1, (0, 1, 2))])
async def test_a_topic_that_was_created_anew_or_has_grown_is_not_kept_alive(
    topic_id: int, partitions: tuple[int, ...]
) -> None:
    async def layout(_: str) -> TopicLayout:
        return TopicLayout(UUID(int=topic_id), dict.fromkeys(partitions, 0))

    services = SimpleNamespace(upstream=SimpleNamespace(whole_layout=layout))
    taken = SimpleNamespace(scope=SlotScope("orders"), topic_id=UUID(int=1), partitions=(0, 1))
    found = await renew_fence(cast(Any, services), cast(Any, taken), None)
    assert (found.outcome, found.fenced_from) == (Renewal.CHANGED, {})
