"""What follows from each event, whatever was known: the table of `ownership.step`, the queue, and the refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from types import NoneType
from typing import NamedTuple, TypeAlias, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ownership import AccessMode, Generation
from metadata.ownership import Ownership as RedisOwnership
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership import step as machine
from sidecar.ownership.state import Absent, Awaited, Claimant, Held, Leaving, Owned, Place, State, Work, is_held
from sidecar.ownership.step import (
    BUSY,
    Act,
    BatchOffered,
    Began,
    Begin,
    ClaimEnded,
    ConnectionClosed,
    ConnectionOpened,
    Effect,
    Ended,
    EpochLost,
    Event,
    Facts,
    FoundInRedis,
    Freed,
    Idle,
    Loss,
    PlaceKept,
    PlaceLeft,
    Recorded,
    RecordRead,
    ServedElsewhere,
    SetTimer,
    Settle,
    Settled,
    StopWriting,
    Tainted,
    TakenOver,
    TimePassed,
    TimerFired,
    TookLong,
    Verdict,
    WaitedBefore,
    step,
)  # fmt: skip
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as records

NOW, GRACE = 100.0, 3.0
REFUSED, FENCED = 44, 90
LATER = NOW + GRACE
FACTS = Facts(reconnect_grace=GRACE, disconnect_grace=GRACE)
AT_ONCE = replace(FACTS, disconnect_grace=0.0)
OWNER = Owned(Session("pid:1"), "billing", AccessMode.EXCLUSIVE, 3)
HERE = replace(OWNER, connections=frozenset({1}), writers=frozenset({1}))
PLAIN = replace(HERE, session=Session("conn:1"))
LEAVING = Leaving(OWNER.session, OWNER.name, OWNER.mode, OWNER.generation, until=LATER)
AWAITED = Awaited(OWNER.session, OWNER.name, OWNER.mode, OWNER.generation, until=LATER)
RIVAL = replace(OWNER, session=Session("pid:2"), connections=frozenset({7}))
IN_REDIS = RedisOwnership("orders", Generation(3), 9, "pid:1", "billing", AccessMode.EXCLUSIVE)
RECORD = records.Ownership(session="pid:1", name="billing", generation=3)


def after(state: State | Held | None, *events: Event, facts: Facts = FACTS, now: float = NOW) -> State:
    if not isinstance(state, State):
        state = State(state)
    for event in events:
        state, _ = step(state, event, facts, now)
    return state


def claimant(session: str, connection: int = 1, mode: AccessMode | None = None) -> Claimant:
    return Claimant(Session(session), session, is_named=True, connection=connection, mode=mode)


# Every event in every state -------------------------------------------------------------------------------------------

AWAITED_NOW = Awaited(OWNER.session, OWNER.name, OWNER.mode, OWNER.generation, until=LATER, recorded=IN_REDIS)
EXPIRED = replace(AWAITED, until=NOW)
ALONE = replace(OWNER, connections=frozenset())
STATES: dict[str, State] = {
    "None": State(), "Owned": State(HERE), "Leaving": State(LEAVING), "Awaited": State(AWAITED),
    "its grace over": State(EXPIRED), "beside others": State(HERE, is_beside=True),
}  # fmt: skip
"""The columns of `TABLE`, idle."""
BUSY_WITH = {name: Work.RESUME if state.is_beside else Work.CLAIM for name, state in STATES.items()}
SAME = object()
NEVER = object()
"""This event cannot occur then: the machine raises."""
Follows: TypeAlias = tuple[object, tuple[object, ...]]
NOTHING: Follows = (SAME, ())
NEW = replace(OWNER, connections=frozenset({5}))
MORE = replace(HERE, connections=frozenset({1, 5}))
FAILED = Outcome(7)
TIMER: Follows = (SAME, (SetTimer(LATER),))
LOOKS: Follows = (Work.LOOK, (StopWriting(Loss.FENCED), Begin(Work.LOOK)))
RESUMES: Follows = (Work.RESUME, (StopWriting(Loss.DOUBT), Begin(Work.RESUME)))
CLAIMED, COMES_AGAIN = (Work.CLAIM, (Act.CLAIM,)), (SAME, (Act.LATER,))
IDLE: Follows = (SAME, (Idle(),))


def stops(loss: Loss) -> Follows:
    return SAME, (StopWriting(loss),)


def but_beside(usual: object, beside: object) -> tuple[object, ...]:
    return (*(usual,) * 5, beside)


TABLE: list[tuple[Event, object, object, object]] = [
    # the event; the holder behind it; the work and what follows, idle; the same, busy. One value stands for all states.
    (RecordRead(RECORD, 9, 3, IN_REDIS), but_beside(AWAITED_NOW, NEVER), NOTHING, NOTHING),
    (RecordRead(RECORD, 9, 3, None), but_beside(None, NEVER), NOTHING, NOTHING),
    (RecordRead(None, -1, 0, None), but_beside(None, NEVER), NOTHING, NOTHING),
    (Recorded(RECORD, 9), SAME, NOTHING, NOTHING),
    (ServedElsewhere(), (None, AWAITED, AWAITED, AWAITED, AWAITED, NEVER), NOTHING, NOTHING),
    (FoundInRedis(IN_REDIS), (AWAITED_NOW, SAME, SAME, SAME, AWAITED_NOW, SAME), NOTHING, NOTHING),
    (ConnectionOpened(5), (None, MORE, NEW, NEW, NEW, MORE), NOTHING, NOTHING),
    (ConnectionClosed(1), (None, LEAVING, SAME, SAME, SAME, replace(ALONE, writers=frozenset())),
     (NOTHING, TIMER, TIMER, NOTHING, NOTHING, NOTHING), NOTHING),
    (ConnectionClosed(99), SAME, (NOTHING, NOTHING, TIMER, NOTHING, NOTHING, NOTHING), NOTHING),
    (TakenOver(RIVAL), but_beside(RIVAL, NEVER), NOTHING, NOTHING),
    (TakenOver(None), but_beside(None, NEVER), NOTHING, NOTHING),
    (Freed(), but_beside(None, NEVER), NOTHING, NOTHING),
    (WaitedBefore([Session("pid:8")]), but_beside(SAME, NEVER), NOTHING, NOTHING),
    (PlaceKept(claimant("pid:8"), 1.0, NOW), but_beside(SAME, NEVER), NOTHING, NOTHING),
    (PlaceLeft(Session("pid:8")), SAME, NOTHING, NOTHING),
    (ClaimEnded(Session("pid:8")), SAME, NOTHING, NOTHING),
    (Tainted(frozenset({1})), but_beside(SAME, NEVER), NOTHING, NOTHING),
    (TimePassed(), SAME, NOTHING, NOTHING),
    (BatchOffered(claimant("pid:8", 8)), SAME,
     (CLAIMED, (SAME, (Act.REFUSE,)), COMES_AGAIN, COMES_AGAIN, CLAIMED, (Work.OPEN, (Act.OPEN,))),
     (SAME, (Act.HOLD,))),
    (Began(Work.RESUME), SAME, (Work.RESUME, ()), NEVER),
    (TookLong(), SAME, NOTHING, (SAME, (Settle(BUSY),))),
    (Ended(), SAME, NEVER, (None, (Settle(None),))),
    (Ended(FAILED), SAME, NEVER, (None, (Settle(FAILED),))),
    (Settled(), SAME, (IDLE, IDLE, (SAME, (SetTimer(LATER), Idle())), IDLE, IDLE, IDLE), NOTHING),
    (TimerFired(), SAME, (NOTHING, NOTHING, TIMER, NOTHING, NOTHING, NOTHING), NOTHING),
    (EpochLost(Loss.FENCED), SAME, but_beside(LOOKS, stops(Loss.FENCED)), stops(Loss.FENCED)),
    (EpochLost(Loss.DOUBT), SAME, RESUMES, stops(Loss.DOUBT)),
    (EpochLost(Loss.IDS), SAME, stops(Loss.IDS), NOTHING),
    (EpochLost(Loss.POLICY), SAME, stops(Loss.POLICY), stops(Loss.POLICY)),
]  # fmt: skip


class Pair(NamedTuple):
    event: Event
    before: State
    holder: object
    follows: object


def pairs() -> Iterator[Pair]:
    for event, *columns in TABLE:
        holders, idle, busy = (_spread(column) for column in columns)
        for number, (name, state) in enumerate(STATES.items()):
            yield Pair(event, state, holders[number], idle[number])
            yield Pair(event, replace(state, work=BUSY_WITH[name]), holders[number], busy[number])


def _spread(column: object) -> tuple[object, ...]:
    return column if isinstance(column, tuple) and len(column) == len(STATES) else (column,) * len(STATES)


PAIRS = [*pairs()]


def kind_of(event: Event, state: State) -> tuple[object, ...]:
    loss = event.loss if isinstance(event, EpochLost) else None
    return type(event), loss, type(state.holder), state.is_beside, state.work is not None


def test_the_table_has_every_event_in_every_state_idle_and_busy() -> None:
    """Computed from the types of events and holders: a new one of either has no row before it is written here."""
    losses = [(event, loss) for event in get_args(Event) for loss in (Loss if event is EpochLost else (None,))]
    holders = [*((holder, False) for holder in (NoneType, *get_args(Held))), (Owned, True)]
    every = {(*event, *holder, busy) for event, holder, busy in product(losses, holders, (False, True))}
    assert every == {kind_of(pair.event, pair.before) for pair in PAIRS}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(map(_word, kind_of(pair.event, pair.before))))
def test_what_an_event_makes_of_a_state(pair: Pair) -> None:
    event, before, holder, follows = pair
    if NEVER in (holder, follows):
        with pytest.raises(AssertionError):
            step(before, event, FACTS, NOW)
        return
    state, effects = step(before, event, FACTS, NOW)
    assert state.holder == (before.holder if holder is SAME else holder)
    work, expected = cast("Follows", follows)
    assert state.work is (before.work if work is SAME else work)
    assert tuple(effect.act if isinstance(effect, Verdict) else effect for effect in effects) == expected
    assert state.is_slow is (isinstance(event, TookLong) and before.work is not None)


def _word(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


WORKS: list[tuple[Event, State, Work | None, tuple[Effect, ...]]] = [
    (Ended(FAILED), State(HERE, work=Work.CLAIM, is_slow=True), None, (Settle(FAILED),)),
    (Settled(), State(ALONE), Work.RELEASE, (Begin(Work.RELEASE),)),
    (Settled(), State(ALONE, work=Work.CLAIM), Work.CLAIM, ()),
    (TimerFired(), State(replace(LEAVING, until=NOW)), Work.RELEASE, (Begin(Work.RELEASE),)),
    (TimerFired(), State(replace(LEAVING, until=NOW), work=Work.CLAIM), Work.CLAIM, ()),
    (TimerFired(), State(ALONE, is_beside=True), None, ()),
    (EpochLost(Loss.IDS), State(HERE, work=Work.RELEASE), Work.RELEASE, ()),
    (EpochLost(Loss.IDS), State(HERE, work=Work.EXAMINE), Work.EXAMINE, (StopWriting(Loss.IDS),)),
    (EpochLost(Loss.IDS), State(HERE, work=Work.REQUEST), Work.REQUEST, (StopWriting(Loss.IDS),)),
]
"""What follows also depends on the time, on the kind of work, or on whether the owner has a connection."""


@pytest.mark.parametrize(("event", "before", "work", "effects"), WORKS)
def test_what_follows_from_an_event(
    event: Event, before: State, work: Work | None, effects: tuple[Effect, ...]
) -> None:
    state, follows = step(before, event, FACTS, NOW)
    assert (state.work, follows, state.is_slow) == (work, effects, False)
    assert state.holder == before.holder


def test_the_page_of_the_machine_has_each_event_that_moves_the_holder() -> None:
    moves = {type(pair.event).__name__ for pair in PAIRS if pair.holder not in (SAME, NEVER)}
    page = str(machine.__doc__).split("one at a time")[0]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert {line.split("`")[1] for line in rows} == moves


def test_the_page_of_the_machine_has_each_event_that_moves_a_work() -> None:
    said = [line.split("|")[1] for line in str(machine.__doc__).split("one at a time")[1].splitlines() if "| `" in line]
    events = {type(pair.event).__name__ for pair in PAIRS if pair.follows not in (NOTHING, NEVER)}
    assert set(re.findall(r"`(\w+)`", "".join(said))) == events


def test_an_owner_without_a_connection_or_a_grace_is_released_at_once() -> None:
    state, follows = step(State(HERE), ConnectionClosed(1), AT_ONCE, NOW)
    assert (state.work, follows) == (Work.RELEASE, (Begin(Work.RELEASE),))


@pytest.mark.parametrize("work", Work)
def test_a_batch_waits_for_the_work_under_way_until_that_is_slow(work: Work) -> None:
    """Whoever offers it, and whatever is known: nothing else changes."""
    for who in (claimant("pid:1", 1), claimant("pid:2", 20, AccessMode.EXCLUSIVE_WITH_FENCING)):
        busy = State(HERE, work=work, is_beside=work is Work.OPEN)
        assert step(busy, BatchOffered(who), replace(FACTS, writes=True), NOW) == (busy, (Verdict(Act.HOLD),))
        slow, _ = step(busy, TookLong(), FACTS, NOW)
        assert step(slow, BatchOffered(who), replace(FACTS, writes=True), NOW) == (slow, (Verdict(Act.BUSY),))
    ended, _ = step(slow, Ended(), FACTS, NOW)
    assert ended == replace(busy, work=None)


def test_an_owner_that_goes_on_keeps_its_connections_and_has_to_prove_its_writers_anew() -> None:
    owner = replace(OWNER, connections=frozenset({2}))
    assert after(HERE, TakenOver(owner)).holder == replace(OWNER, connections=frozenset({1, 2}))


def test_an_owner_whose_connections_closed_during_its_takeover_leaves() -> None:
    assert after(None, TakenOver(OWNER)).holder == LEAVING
    at_once = after(None, TakenOver(OWNER), facts=AT_ONCE)
    assert (at_once.holder, at_once.seconds_left(NOW)) == (OWNER, 0)


def test_the_last_connection_ends_an_ownership_after_the_grace() -> None:
    one = after(replace(HERE, connections=frozenset({1, 2})), ConnectionClosed(1))
    assert one.holder == replace(OWNER, connections=frozenset({2}))
    assert one.seconds_left(NOW) is None
    gone = after(one, ConnectionClosed(2))
    assert (gone.holder, gone.seconds_left(NOW)) == (LEAVING, GRACE)
    assert after(gone, ConnectionOpened(3)).holder == replace(OWNER, connections=frozenset({3}))
    assert after(one, ConnectionClosed(2), facts=AT_ONCE).seconds_left(NOW) == 0


def test_a_connection_writes_only_after_a_batch_of_its_own_was_admitted() -> None:
    facts = replace(FACTS, writes=True)
    joined = after(HERE, ConnectionOpened(2))
    assert isinstance(joined.holder, Owned)
    assert joined.holder.writers == {1}
    wrote, (verdict,) = step(joined, BatchOffered(claimant("pid:1", 2)), facts, NOW)
    assert verdict == Verdict(Act.FORWARD)
    assert isinstance(wrote.holder, Owned)
    assert wrote.holder.writers == {1, 2}
    again, _ = step(wrote, BatchOffered(claimant("pid:1", 2)), facts, NOW)
    assert again is wrote, "the usual case makes no new state"
    claimed, (verdict,) = step(joined, BatchOffered(claimant("pid:1", 3), is_claim=True), facts, NOW)
    assert verdict == Verdict(Act.GRANT)
    assert isinstance(claimed.holder, Owned)
    assert (claimed.holder.connections, claimed.holder.writers) == ({1, 2, 3}, {1})


def test_a_plain_owner_is_not_awaited_from_another_node() -> None:
    assert after(PLAIN, ServedElsewhere()).holder == PLAIN
    there = replace(IN_REDIS, session="conn:1")
    assert after(None, RecordRead(RECORD, 9, 3, there)).current(NOW) is None


def test_an_owner_that_is_awaited_from_another_node_is_still_released_in_redis_if_it_does_not_come() -> None:
    assert after(AWAITED_NOW, ServedElsewhere(), now=NOW + 1).holder == replace(AWAITED_NOW, until=LATER + 1)


def test_an_awaited_owner_holds_the_topic_until_its_time_is_over() -> None:
    assert is_held(AWAITED, NOW)
    assert not is_held(AWAITED, LATER)
    assert not is_held(LEAVING, LATER)
    assert is_held(HERE, LATER)
    assert not is_held(None, NOW)
    assert State(AWAITED).seconds_left(NOW) is None, "another node lets it go, or a newcomer takes it"


def test_a_record_that_was_older_counts_again_when_the_changelog_has_lost_the_newer_one() -> None:
    read = RecordRead(records.Ownership(session="pid:1", generation=4), 9, 0, IN_REDIS)
    lost = RecordRead(records.Ownership(session="pid:1", generation=3), 5, 0, IN_REDIS)
    assert after(None, read, RecordRead(None, -1, 0, None), lost).generation == 3


def test_the_generation_is_the_records_or_the_highest_of_any_overlapping_slot() -> None:
    assert State().generation == 0
    read = after(None, RecordRead(RECORD, 9, 5, None))
    assert (read.generation, read.position, read.record) == (5, 9, RECORD)
    newer = records.Ownership(generation=6, deposed=[records.Deposed(session="pid:7")])
    assert after(read, Recorded(newer, 10)).generation == 6
    assert after(read, Recorded(newer, 10)).listed == {"pid:7"}


def test_of_a_deleted_record_only_the_generation_stays() -> None:
    """The changelog keeps it under the master slot when it forgets a topic."""
    newer = records.Ownership(generation=6, deposed=[records.Deposed(session="pid:7")])
    forgotten = after(None, RecordRead(newer, 9, 6, None), RecordRead(None, -1, 6, None))
    assert (forgotten.generation, forgotten.record, forgotten.listed) == (6, None, frozenset())


# A batch ------------------------------------------------------------------------------------------------------------


BEGINS = {Act.CLAIM: Work.CLAIM, Act.RENEW: Work.RESUME, Act.BEGIN_SHARING: Work.SHARE}


@pytest.mark.parametrize(
    ("held", "facts", "session", "act"),
    [
        (HERE, {"writes": True}, "pid:1", Act.FORWARD),
        (HERE, {"writes": True, "needs_record": True}, "pid:1", Act.RENEW),
        (HERE, {}, "pid:1", Act.CLAIM),
        (AWAITED, {}, "pid:1", Act.CLAIM),
        (None, {}, "pid:2", Act.CLAIM),
        (None, {"is_dropped": True}, "pid:2", Act.MOVED),
        (HERE, {"is_dropped": True, "writes": True}, "pid:1", Act.FORWARD),
        (HERE, {}, "pid:2", Act.REFUSE),
        (HERE, {"is_serving": False, "is_elsewhere": True}, "pid:2", Act.MOVED),
        (HERE, {"is_serving": True, "is_elsewhere": True}, "pid:2", Act.REFUSE),
        (HERE, {"is_serving": False, "is_elsewhere": True, "was_deposed": True}, "pid:2", Act.REFUSE),
        (None, {"mode": AccessMode.SHARED}, "pid:2", Act.BEGIN_SHARING),
        (None, {"mode": AccessMode.SHARED, "may_share": True}, "pid:2", Act.SHARE),
        (None, {"mode": AccessMode.SHARED, "may_share": True, "by_partition": True}, "pid:2", Act.REFUSE),
        (None, {"mode": AccessMode.SHARED, "shared": {"pid:9": "other"}}, "pid:2", Act.BEGIN_SHARING),
    ],
)
def test_what_is_done_with_a_batch(held: Held | None, facts: Mapping[str, object], session: str, act: Act) -> None:
    state, (verdict,) = step(State(held), BatchOffered(claimant(session, 20)), replace(FACTS, **facts), NOW)  # type: ignore[arg-type]
    assert isinstance(verdict, Verdict)
    assert verdict.act is act
    assert act is not Act.REFUSE or verdict.code == (FENCED if facts.get("was_deposed") else REFUSED)
    assert state.work is BEGINS.get(act)


@pytest.mark.parametrize(
    ("facts", "act"),
    [
        ({"writes": True}, Act.FORWARD),
        ({}, Act.OPEN),
        ({"writes": True, "needs_record": True}, Act.OPEN),
        ({"writes": True, "is_dropped": True}, Act.BUSY),
    ],
)
def test_what_is_done_with_a_batch_of_a_shared_slots_session(facts: Mapping[str, object], act: Act) -> None:
    before = State(HERE, is_beside=True)
    state, (verdict,) = step(before, BatchOffered(claimant("pid:1", 1)), replace(FACTS, **facts), NOW)  # type: ignore[arg-type]
    assert (verdict, state) == (Verdict(act), replace(before, work=Work.OPEN if act is Act.OPEN else None))


def test_a_refused_batch_leaves_what_its_verdict_says_and_nothing_else() -> None:
    waits = after(HERE, BatchOffered(claimant("pid:2", 20, AccessMode.WAIT_FOR_EXCLUSIVE)))
    assert waits == replace(State(HERE), places=waits.places, waiting=(Session("pid:2"),))
    ghost = Claimant(Session("conn:2"), "billing", is_named=True, connection=20)
    assert after(PLAIN, BatchOffered(ghost)) == replace(State(PLAIN), ghosts={20: NOW})
    assert after(after(PLAIN, BatchOffered(ghost)), BatchOffered(ghost), now=NOW + 1).ghosts == {20: NOW}
    facts = replace(FACTS, was_deposed=True, wall_ms=7)
    deposed = after(HERE, BatchOffered(claimant("pid:2", 20)), facts=facts)
    assert deposed == replace(State(HERE), tainted=frozenset({20}), struck={"pid:2": 7})
    assert after(HERE, BatchOffered(claimant("pid:2", 20))) == State(HERE)
    assert after(AWAITED, BatchOffered(claimant("pid:2", 20))) == State(AWAITED), "it is waited for, no ghost"


def test_a_takeover_that_deposes_taints_the_connections_of_whom_it_deposed() -> None:
    both = replace(HERE, connections=frozenset({1, 7}))
    assert after(both, TakenOver(RIVAL, deposes=True)).tainted == {1}
    assert after(both, TakenOver(RIVAL)).tainted == frozenset()
    assert after(both, TakenOver(None, deposes=True)).tainted == {1, 7}
    assert after(both, TakenOver(OWNER, deposes=True)).tainted == frozenset()


def test_a_release_that_is_due_comes_before_a_newcomer_but_not_before_the_owner() -> None:
    newcomer, owner = BatchOffered(claimant("pid:2", 20)), BatchOffered(claimant("pid:1", 2))
    for left, owners in (ALONE, Act.FORWARD), (replace(LEAVING, until=NOW), Act.CLAIM):
        released, verdicts = step(State(left), newcomer, FACTS, NOW)
        assert (released, verdicts) == (State(left, work=Work.RELEASE), (Verdict(Act.RELEASE),))
        _, (verdict,) = step(State(left), owner, replace(FACTS, writes=True), NOW)
        assert isinstance(verdict, Verdict)
        assert verdict.act is owners
    _, (verdict,) = step(State(LEAVING), newcomer, FACTS, NOW)
    assert isinstance(verdict, Verdict)
    assert verdict.act is Act.LATER


# The queue ----------------------------------------------------------------------------------------------------------


def wait(state: State, session: str, now: float, connection: int = 1) -> State:
    asks = claimant(session, connection, AccessMode.WAIT_FOR_EXCLUSIVE)
    return after(state, BatchOffered(asks), now=now)


def queue(state: State, now: float) -> tuple[str, ...]:
    return after(state, TimePassed(), now=now).waiting


FULL = replace(OWNER, session=Session("pid:900"), connections=frozenset({900}))


def test_the_queue_is_first_come_first_served_and_a_place_is_kept_while_its_session_tries() -> None:
    state = State(FULL)
    for now, session in enumerate(["a", "b", "a", "c", "b"]):
        state = wait(state, session, float(now))
    assert queue(state, 4.0) == ("a", "b", "c")
    assert [(its.session, since) for its, since in state.claimants()] == [("a", 0.0), ("b", 1.0), ("c", 3.0)]


def test_a_session_that_has_not_tried_for_five_seconds_is_gone() -> None:
    state = wait(wait(State(FULL), "a", 0.0), "b", 3.0)
    assert queue(state, 4.9) == ("a", "b")
    assert queue(state, 5.3) == ("b",)
    state = wait(state, "a", 5.4)
    assert queue(state, 5.4) == ("b", "a")


def test_a_batch_does_not_shorten_a_place_that_a_claim_by_request_keeps() -> None:
    state = wait(after(State(FULL), PlaceKept(claimant("a"), 60.0, 0.0), now=0.0), "a", 1.0)
    assert queue(state, 59.0) == ("a",)


def test_a_queue_is_looked_through_four_times_a_second_at_most() -> None:
    state = after(wait(State(FULL), "a", 0.0), TimePassed(), now=4.9)
    assert after(state, TimePassed(), now=5.1) is state
    assert queue(state, 5.2) == ()


def test_a_plain_session_leaves_with_its_connection_and_an_idempotent_one_keeps_its_place() -> None:
    state = wait(wait(wait(State(FULL), "conn:1", 0.0, 1), "pid:1", 0.0, 1), "conn:2", 0.0, 2)
    state = after(state, ConnectionClosed(1), now=1.0)
    assert queue(state, 1.0) == ("pid:1", "conn:2")
    state = wait(state, "conn:2", 3.5, 2)
    assert queue(state, 1.0 + GRACE) == ("pid:1", "conn:2")
    assert queue(state, 1.3 + GRACE) == ("conn:2",)


def test_a_session_that_came_back_on_another_connection_does_not_go_with_the_old_one() -> None:
    state = wait(wait(State(FULL), "pid:1", 0.0, 1), "pid:1", 4.0, 2)
    assert queue(after(state, ConnectionClosed(1), now=4.5), 8.9) == ("pid:1",)


def test_sessions_that_waited_at_another_node_keep_their_places_if_they_come_soon() -> None:
    state = wait(State(FULL), "c", 0.0)
    state = after(state, WaitedBefore([Session(name) for name in ("a", "conn:1", "b", "c")]), now=1.0)
    assert queue(state, 1.0) == ("a", "b", "c")
    assert [its.session for its, _ in state.claimants()] == ["c"]
    state = wait(wait(state, "c", 3.5), "b", 3.5)
    assert queue(state, 1.0 + GRACE) == ("a", "b", "c")
    assert queue(state, 1.3 + GRACE) == ("b", "c")


def test_a_claim_takes_its_session_and_those_it_evicted_out_of_the_queue() -> None:
    state = wait(wait(wait(State(FULL), "a", 0.0), "b", 0.0), "c", 0.0)
    assert after(state, ClaimEnded(Session("b"), [Session("a")])).waiting == ("c",)


def test_a_session_that_lost_its_place_and_comes_again_stands_before_all_that_came_later() -> None:
    state = State(FULL)
    for at, name in enumerate(["pid:1", "pid:2", "pid:3"]):
        state = after(state, PlaceKept(claimant(name), 60.0, 10.0 + at), now=10.0 + at)
    state = after(state, PlaceLeft(Session("pid:2")))
    assert state.waiting == ("pid:1", "pid:3")
    state = after(state, PlaceKept(claimant("pid:2"), 60.0, 11.0), now=14.0)
    assert state.waiting == ("pid:1", "pid:2", "pid:3")
    assert after(state, PlaceKept(claimant("pid:4"), 60.0, 15.0), now=15.0).waiting[-1] == "pid:4"


class Walked(dict[Session, Place]):
    """Counts how often all of it is looked through."""

    walks = 0

    def __iter__(self) -> Iterator[Session]:
        self.walks += 1
        return super().__iter__()

    def items(self):  # type: ignore[no-untyped-def, override]
        self.walks += 1
        return super().items()


MANY = [Session(f"s{number}") for number in range(100)]


@pytest.mark.parametrize("event", [TimePassed(), ClaimEnded(Session("x"), MANY)])
def test_a_queue_that_ends_is_walked_through_a_few_times_however_many_wait(event: Event) -> None:
    """Once for each that goes, a thousand hold the loop up for tens of milliseconds, twenty thousand for seconds."""
    walked = Walked({session: Place(None, 0.0, 5.0) for session in MANY})
    state = after(State(FULL, places=walked, waiting=tuple(walked)), event)
    assert state.waiting == ()
    assert walked.walks <= 3


def test_the_last_to_come_takes_a_place_without_a_walk_through_the_queue() -> None:
    walked = Walked({session: Place(None, 0.0, 90.0) for session in MANY})
    state = wait(State(FULL, places=walked, waiting=tuple(MANY), pruned_at=1.0), "last", 1.0)
    assert state.waiting == (*MANY, "last")
    assert walked.walks == 0


# The refused --------------------------------------------------------------------------------------------------------


def strike(state: State, session: str, connection: int, wall_ms: int) -> State:
    facts = replace(FACTS, was_deposed=True, wall_ms=wall_ms)
    return after(state, BatchOffered(claimant(session, connection)), facts=facts)


def listing(*sessions: str) -> Recorded:
    return Recorded(records.Ownership(deposed=[records.Deposed(session=session) for session in sessions]), 1)


def test_a_deposed_session_that_tries_again_is_remembered_until_the_changelog_lists_it() -> None:
    state = strike(strike(strike(State(), "pid:1", 5, 1_000), "pid:2", 5, 2_000), "conn:3", 6, 3_000)
    assert state.tainted == {5, 6}
    assert state.struck == {"pid:1": 1_000, "pid:2": 2_000}
    assert after(state, listing("pid:1"), ClaimEnded(Session("pid:9"))).struck == {"pid:2": 2_000}


def test_a_refused_session_that_tries_again_costs_no_copy_of_what_is_known_of_the_others() -> None:
    ghost = BatchOffered(Claimant(Session("conn:9"), "billing", is_named=True, connection=9))
    state = after(strike(State(PLAIN), "pid:1", 5, 1_000), ghost)
    assert strike(state, "pid:1", 5, 2_000).tainted is state.tainted
    assert after(state, ghost, now=NOW + 1).ghosts is state.ghosts


def test_tries_of_a_listed_session_are_displaced_by_nobody_and_others_are_bounded() -> None:
    state = strike(after(State(), listing("pid:1")), "pid:1", 1, 5_000)
    for number in range(10, 2_010):
        state = strike(state, f"pid:{number}", number, number)
    assert (state.tries["pid:1"], len(state.tries)) == (5_000, 1_001)
    assert "pid:2009" in state.tries
    assert "pid:1" not in after(state, ClaimEnded(Session("pid:9"))).tries


@pytest.mark.parametrize("newer", [RecordRead(RECORD, 12, 0, IN_REDIS), Recorded(RECORD, 12)])
def test_a_try_of_a_listed_session_is_kept_for_the_next_record_though_one_does_not_list_it_any_more(
    newer: Event,
) -> None:
    """Another node writes it without knowing of the try, or the list is full."""
    state = strike(after(State(), listing("pid:7")), "pid:7", 5, 1_000)
    assert after(state, newer).tries == {"pid:7": 1_000}


def test_nothing_is_left_of_a_connection_that_is_gone() -> None:
    state = State(PLAIN)
    for connection in range(100, 200):
        ghost = Claimant(Session(f"conn:{connection}"), "billing", is_named=True, connection=connection)
        state = after(state, BatchOffered(ghost))
        state = wait(state, f"conn:w{connection}", NOW, connection + 1000)
        state = strike(state, f"conn:s{connection}", connection + 2000, 0)
        for closed in (connection, connection + 1000, connection + 2000):
            state = after(state, ConnectionClosed(closed))
    assert state == replace(State(PLAIN), places={}, pruned_at=state.pruned_at)


# Anything -----------------------------------------------------------------------------------------------------------

sessions = st.sampled_from([Session("pid:1"), Session("pid:2"), Session("conn:1")])
connections = st.integers(1, 3)
claimants = st.builds(
    Claimant, sessions, st.just("name"), st.booleans(), connections, st.none() | st.sampled_from(AccessMode),
    st.none() | st.integers(0, 4), names_session=st.booleans(),
)  # fmt: skip
owners = st.builds(
    Owned, sessions, st.just("name"), st.just(AccessMode.EXCLUSIVE), st.just(1), st.frozensets(connections)
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(BatchOffered, claimants, st.booleans()),
    st.builds(ConnectionOpened, connections),
    st.builds(ConnectionClosed, connections),
    st.builds(TakenOver, st.none() | owners, st.booleans()),
    st.builds(PlaceKept, claimants, st.floats(0, 9), st.floats(90, 110)),
    st.builds(WaitedBefore, st.lists(sessions, unique=True)),
    st.builds(ClaimEnded, sessions, st.lists(sessions), st.frozensets(connections)),
    st.builds(PlaceLeft, sessions),
    st.builds(EpochLost, st.sampled_from(Loss)),
    st.sampled_from([Ended(), Ended(FAILED), Settled(), TookLong(), TimerFired(), Began(Work.REQUEST)]),
    st.sampled_from([ServedElsewhere(), Freed(), TimePassed(), RecordRead(RECORD, 9, 3, IN_REDIS)]),
)
facts = st.builds(
    Facts, st.just(GRACE), st.sampled_from([0.0, GRACE]), st.sampled_from(AccessMode), st.booleans(), st.booleans(),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(), queue_limit=st.integers(1, 3),
)  # fmt: skip


@given(st.lists(st.tuples(events, facts, st.floats(0, 4)), max_size=12))
def test_whatever_happens(happened: list[tuple[Event, Facts, float]]) -> None:
    state, now = State(), NOW
    for event, known, passed in happened:
        now += passed
        before = state
        if (isinstance(event, Ended) and state.work is None) or (isinstance(event, Began) and state.work is not None):
            continue
        state, effects = step(state, event, known, now)
        begun = [effect.work for effect in effects if isinstance(effect, Begin)]
        if before.work is not None and not isinstance(event, Ended):
            assert (state.work, begun) == (before.work, []), "one work at a time"
        elif begun:
            assert begun == [state.work]
        verdict = effects[0] if isinstance(event, BatchOffered) else None
        assert (len(effects) == 1) if verdict is not None else not any(isinstance(each, Verdict) for each in effects)
        assert state.waiting == tuple(state.places)
        holder = state.holder
        if isinstance(holder, Absent):
            assert not holder.connections, "an owner with a connection is not absent"
        if holder is not None:
            assert holder.writers <= holder.connections
        if not isinstance(event, TakenOver | Freed | RecordRead | FoundInRedis):
            was = before.holder
            assert (holder and holder.session) == (was and was.session), "only these make another one the owner"
        if isinstance(verdict, Verdict) and verdict.act is Act.REFUSE:
            assert (state.holder, state.waiting) == (before.holder, queue(before, now)), "a refused one changes nothing"
