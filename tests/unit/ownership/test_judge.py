"""What becomes of a batch: the modes of PIP-68 and PIP-161, the wiki's generations, grace, ghosts, the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ownership import AccessMode
from sidecar.ownership import step as ownership
from sidecar.ownership.state import Awaited, Claimant, Held, Leaving, Owned, Place, State, is_held
from sidecar.ownership.step import GHOST_LIMIT_S, Act, Facts, Verdict
from sidecar.protocol.session import Session

NOW = 1_000.0
SHARED, EXCLUSIVE, WAIT, FENCING = AccessMode
BUSY_TRY_LATER, POLICY_VIOLATION, PRODUCER_FENCED = 7, 44, 90
FORWARD, RETURN, CLAIM, SHARE = Act.FORWARD, Act.RETURN, Act.CLAIM, Act.SHARE
QUEUE, LATER, REFUSE = Act.WAIT, Act.LATER, Act.REFUSE

OWNER = Owned(Session("pid:1"), "billing", EXCLUSIVE, 5, frozenset({10}))
PLAIN_OWNER = replace(OWNER, session=Session("conn:1"), name="billing")


@dataclass(frozen=True)
class Situation:
    """What a claimant is judged by."""

    mode: AccessMode
    generation: int
    holder: Held | None = None
    deposed: frozenset[str] | set[Session] | dict[str, int] = frozenset()
    tainted: frozenset[int] | set[int] = frozenset()
    waiting: tuple[Session, ...] = ()
    ghosts: Mapping[int, float] = field(default_factory=dict[int, float])
    shared: Mapping[str, str] = field(default_factory=dict[str, str])
    shared_awaited: bool = False
    queue_limit: int = 1_000


def judge(where: Situation, claimant: Claimant, now: float) -> Verdict:
    places = {session: Place(None, now, now) for session in where.waiting}
    state = State(
        where.holder, listed=frozenset(where.deposed), floor=where.generation, places=places, waiting=where.waiting,
        tainted=frozenset(where.tainted), ghosts=where.ghosts,
    )  # fmt: skip
    facts = Facts(
        mode=where.mode, shared=where.shared, shared_awaited=where.shared_awaited, queue_limit=where.queue_limit
    )
    return ownership.judge(state, facts, claimant, now)


def situation(**facts: Any) -> Situation:
    return Situation(**{"mode": EXCLUSIVE, "generation": 5, "holder": OWNER, **facts})


def newcomer(mode: AccessMode | None = None, generation: int | None = None, **facts: Any) -> Claimant:
    return Claimant(**{"session": Session("pid:2"), "name": "rival", "is_named": True, "connection": 20, "mode": mode,
                       "generation": generation, **facts})  # fmt: skip


def awaited(holder: Owned, seconds: float) -> Awaited:
    return Awaited(holder.session, holder.name, holder.mode, holder.generation, until=NOW + seconds)


# The table ----------------------------------------------------------------------------------------------------------

NEXT = "mode=wait_for_exclusive waits for it, mode=exclusive_with_fencing takes it over"
FREE: dict[str, Any] = {"holder": None}
HELD: dict[str, Any] = {}
GRACE: dict[str, Any] = {"holder": awaited(OWNER, 1.0)}
GRACE_OVER: dict[str, Any] = {"holder": awaited(OWNER, -1.0)}
FREE_QUEUE: dict[str, Any] = {"holder": None, "waiting": (Session("pid:8"), Session("pid:9"))}
HELD_QUEUE: dict[str, Any] = {"waiting": (Session("pid:8"), Session("pid:9"))}


@pytest.mark.parametrize(
    ("where", "mode", "generation", "act", "code"),
    [
        (FREE, EXCLUSIVE, None, CLAIM, 0),
        (FREE, WAIT, None, CLAIM, 0),
        (FREE, FENCING, None, CLAIM, 0),
        (FREE, SHARED, None, REFUSE, POLICY_VIOLATION),
        (FREE, None, None, CLAIM, 0),
        (FREE, None, 0, CLAIM, 0),
        (FREE, None, 4, REFUSE, POLICY_VIOLATION),
        (FREE, None, 5, CLAIM, 0),
        (HELD, EXCLUSIVE, None, REFUSE, POLICY_VIOLATION),
        (HELD, WAIT, None, QUEUE, BUSY_TRY_LATER),
        (HELD, FENCING, None, CLAIM, 0),
        (HELD, SHARED, None, REFUSE, POLICY_VIOLATION),
        (HELD, None, None, REFUSE, POLICY_VIOLATION),
        (HELD, EXCLUSIVE, 4, REFUSE, POLICY_VIOLATION),
        (HELD, EXCLUSIVE, 5, CLAIM, 0),
        (HELD, EXCLUSIVE, 6, CLAIM, 0),
        (HELD, WAIT, 5, CLAIM, 0),
        (HELD, WAIT, 4, REFUSE, POLICY_VIOLATION),
        (HELD, FENCING, 4, REFUSE, POLICY_VIOLATION),
        (HELD, SHARED, 9, REFUSE, POLICY_VIOLATION),
        (HELD, None, 0, CLAIM, 0),
        (GRACE, EXCLUSIVE, None, LATER, BUSY_TRY_LATER),
        (GRACE, WAIT, None, QUEUE, BUSY_TRY_LATER),
        (GRACE, FENCING, None, CLAIM, 0),
        (GRACE, EXCLUSIVE, 5, CLAIM, 0),
        (GRACE, EXCLUSIVE, 4, REFUSE, POLICY_VIOLATION),
        (GRACE_OVER, EXCLUSIVE, None, CLAIM, 0),
        (GRACE_OVER, WAIT, None, CLAIM, 0),
        (GRACE_OVER, FENCING, None, CLAIM, 0),
        (FREE_QUEUE, EXCLUSIVE, None, REFUSE, POLICY_VIOLATION),
        (FREE_QUEUE, WAIT, None, QUEUE, BUSY_TRY_LATER),
        (FREE_QUEUE, FENCING, None, CLAIM, 0),
        (FREE_QUEUE, EXCLUSIVE, 5, CLAIM, 0),
        (HELD_QUEUE, EXCLUSIVE, None, REFUSE, POLICY_VIOLATION),
        (HELD_QUEUE, WAIT, None, QUEUE, BUSY_TRY_LATER),
        (HELD_QUEUE, FENCING, None, CLAIM, 0),
    ],
)
def test_a_newcomer(
    where: dict[str, Any], mode: AccessMode | None, generation: int | None, act: Act, code: int
) -> None:
    verdict = judge(situation(**where), newcomer(mode, generation), NOW)
    assert (verdict.act, verdict.code) == (act, code)
    holder = situation(**where).holder
    assert verdict.deposes is (act is CLAIM and holder is not None and (mode is FENCING or generation is not None))
    assert verdict.evicts_queue is (act is CLAIM and mode is FENCING)


@pytest.mark.parametrize("policy", [EXCLUSIVE, WAIT, FENCING])
def test_a_client_that_asks_for_nothing_gets_the_mode_of_the_policy(policy: AccessMode) -> None:
    asked = judge(situation(mode=policy), newcomer(policy), NOW)
    assert judge(situation(mode=policy), newcomer(), NOW) == asked


def test_a_shared_policy_lets_a_client_ask_for_any_mode() -> None:
    assert judge(situation(mode=SHARED, holder=None), newcomer(EXCLUSIVE), NOW).act is CLAIM
    assert judge(situation(mode=SHARED), newcomer(WAIT), NOW).act is QUEUE


# Who owns it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [None, 0, 1, 5, 99])
@pytest.mark.parametrize("mode", [None, EXCLUSIVE, WAIT, FENCING])
def test_the_holder_is_forwarded_whatever_it_asks_and_from_whichever_connection(
    mode: AccessMode | None, generation: int | None
) -> None:
    owner = newcomer(mode, generation, session=OWNER.session, connection=77)
    assert judge(situation(waiting=(Session("pid:8"),)), owner, NOW).act is FORWARD


@pytest.mark.parametrize("seconds", [1.0, -1.0])
def test_a_holder_that_is_awaited_returns_also_after_its_time_as_long_as_nobody_came_first(seconds: float) -> None:
    where = situation(holder=awaited(OWNER, seconds), waiting=(Session("pid:8"),))
    assert judge(where, newcomer(session=OWNER.session), NOW).act is RETURN


def test_a_new_producer_id_on_a_connection_of_the_owner_succeeds_it() -> None:
    verdict = judge(situation(), newcomer(connection=10), NOW)
    assert (verdict.act, verdict.deposes) == (CLAIM, True)


def test_a_request_that_names_its_session_is_a_rival_on_a_connection_of_the_owner_too() -> None:
    other = newcomer(EXCLUSIVE, connection=10, names_session=True)
    assert judge(situation(), other, NOW).act is REFUSE
    assert judge(situation(), replace(other, names_session=False), NOW).deposes


def test_a_producer_id_that_named_the_owners_succeeds_it_from_any_connection() -> None:
    verdict = judge(situation(waiting=(Session("pid:8"),)), newcomer(succeeds=OWNER.session), NOW)
    assert (verdict.act, verdict.deposes, verdict.evicts_queue) == (CLAIM, True, False)


# Deposed ------------------------------------------------------------------------------------------------------------


def test_a_deposed_session_is_told_who_fenced_it() -> None:
    verdict = judge(situation(deposed={"pid:2": 0}), newcomer(FENCING, 0), NOW)
    assert (verdict.act, verdict.code) == (REFUSE, PRODUCER_FENCED)
    assert "billing owns it now" in verdict.message
    assert "generation 5" in verdict.message


def test_whatever_comes_over_the_connection_of_a_deposed_session_is_deposed_too() -> None:
    assert judge(situation(holder=None, tainted={20}), newcomer(FENCING), NOW).code == PRODUCER_FENCED


def test_the_holder_is_not_taken_for_the_deposed_session_that_shared_its_connection() -> None:
    """A client went on under a new producer id and still had batches of the old one under way."""
    owner = newcomer(session=OWNER.session, connection=10)
    assert judge(situation(tainted={10}), owner, NOW).act is FORWARD
    assert judge(situation(tainted={10}, holder=awaited(OWNER, 1.0)), owner, NOW).act is RETURN


# Ghosts -------------------------------------------------------------------------------------------------------------


def ghost(seconds: float, **facts: Any) -> tuple[Situation, Claimant]:
    again = newcomer(**{"session": Session("conn:2"), "name": "billing", **facts})
    return situation(holder=PLAIN_OWNER, ghosts={20: NOW - seconds}), again


@pytest.mark.parametrize(("seconds", "act"), [(0.0, LATER), (GHOST_LIMIT_S - 0.1, LATER), (GHOST_LIMIT_S, REFUSE)])
def test_a_plain_client_waits_for_its_own_ghost_until_tcp_must_have_found_it(seconds: float, act: Act) -> None:
    assert judge(*ghost(seconds), NOW).act is act


def test_a_first_try_begins_the_wait() -> None:
    assert judge(situation(holder=PLAIN_OWNER), newcomer(name="billing"), NOW).act is LATER


def test_a_library_s_default_name_is_nobodys_own() -> None:
    assert judge(*ghost(0.0, is_named=False), NOW).act is REFUSE


def test_an_idempotent_owner_leaves_no_ghost_as_it_is_known_by_its_producer_id() -> None:
    assert judge(situation(), newcomer(name=OWNER.name), NOW).act is REFUSE


def test_a_waiter_that_meets_its_own_ghost_takes_its_place_at_once() -> None:
    assert judge(*ghost(0.0, mode=WAIT), NOW).act is QUEUE


# The queue ----------------------------------------------------------------------------------------------------------


def test_first_come_first_served() -> None:
    where = situation(holder=None, waiting=(Session("pid:2"), Session("pid:3")))
    assert judge(where, newcomer(WAIT), NOW).act is CLAIM
    assert judge(where, newcomer(WAIT, session=Session("pid:3")), NOW).act is QUEUE
    assert judge(where, newcomer(EXCLUSIVE), NOW).act is CLAIM


def test_a_full_queue_refuses_newcomers_and_keeps_those_who_wait() -> None:
    where = situation(waiting=(Session("pid:3"), Session("pid:4")), queue_limit=2)
    refused = judge(where, newcomer(WAIT), NOW)
    assert (refused.act, refused.code) == (REFUSE, POLICY_VIOLATION)
    assert "queue of 2 is full" in refused.message
    assert judge(where, newcomer(WAIT, session=Session("pid:4")), NOW).act is QUEUE


# Messages -----------------------------------------------------------------------------------------------------------


def test_a_rival_is_told_the_owner_and_the_generation_in_pulsars_words() -> None:
    message = judge(situation(), newcomer(EXCLUSIVE), NOW).message
    assert message == f"Topic has an existing exclusive producer: billing (generation 5). {NEXT}"


def test_an_owner_without_a_name_is_told_by_its_session() -> None:
    message = judge(situation(holder=replace(OWNER, name="")), newcomer(EXCLUSIVE), NOW).message
    assert message == f"Topic has an existing exclusive producer: pid:1 (generation 5). {NEXT}"


def test_who_comes_behind_a_queue_is_told_how_many_wait() -> None:
    message = judge(
        situation(holder=None, waiting=(Session("pid:8"), Session("pid:9"))), newcomer(EXCLUSIVE), NOW
    ).message
    assert message == f"Topic has waiting exclusive producers: 2 (generation 5). {NEXT}"


def test_a_lower_generation_is_told_what_it_asked_for() -> None:
    assert "generation 3 was asked for" in judge(situation(), newcomer(generation=3), NOW).message


# Whatever happens ---------------------------------------------------------------------------------------------------

sessions = st.sampled_from([Session("pid:1"), Session("pid:2"), Session("pid:3"), Session("conn:1"), Session("conn:2")])
names = st.sampled_from(["", "billing", "rival"])
connections = st.integers(1, 4)
modes = st.sampled_from(AccessMode)
generations = st.integers(0, 8)
facts: dict[str, Any] = {"session": sessions, "name": names, "mode": modes, "generation": generations}
holders = st.builds(Owned, connections=st.frozensets(connections), **facts) | st.one_of(
    [st.builds(kind, until=st.floats(NOW - 10, NOW + 10), **facts) for kind in (Awaited, Leaving)]
)
claimants = st.builds(
    Claimant,
    session=sessions,
    name=names,
    is_named=st.booleans(),
    connection=connections,
    mode=st.none() | modes,
    generation=st.none() | generations,
    succeeds=st.none() | sessions,
)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    holder = draw(st.none() | holders)
    generation = draw(generations) if holder is None else holder.generation
    deposed = draw(st.sets(sessions)) - ({holder.session} if holder is not None else set())
    return Situation(
        mode=draw(modes),
        generation=generation,
        holder=holder,
        deposed=deposed,
        tainted=draw(st.sets(connections)),
        waiting=tuple(draw(st.lists(sessions, unique=True, max_size=4))),
        ghosts=draw(st.dictionaries(connections, st.floats(NOW - 40, NOW))),
        queue_limit=draw(st.integers(1, 4)),
    )


@given(situations(), claimants)
def test_a_deposed_session_never_gets_in(where: Situation, claimant: Claimant) -> None:
    verdict = judge(replace(where, deposed={claimant.session}), claimant, NOW)
    assert (verdict.act, verdict.code) == (REFUSE, PRODUCER_FENCED)


@given(situations(), st.lists(claimants, max_size=8))
def test_at_most_one_session_is_forwarded_without_a_claim_and_it_is_the_holder(
    where: Situation, everybody: list[Claimant]
) -> None:
    forwarded = {found.session for found in everybody if judge(where, found, NOW).act in (FORWARD, RETURN)}
    assert forwarded <= ({where.holder.session} if where.holder is not None else set())


@given(situations(), claimants)
def test_only_a_claim_deposes_or_evicts_and_only_who_is_answered_has_a_code(
    where: Situation, claimant: Claimant
) -> None:
    verdict = judge(where, claimant, NOW)
    if verdict.act is not CLAIM:
        assert not verdict.deposes
        assert not verdict.evicts_queue
    expected = {
        REFUSE: {POLICY_VIOLATION, PRODUCER_FENCED},
        QUEUE: {BUSY_TRY_LATER},
        LATER: {BUSY_TRY_LATER},
    }.get(verdict.act, {0})
    assert verdict.code in expected
    assert bool(verdict.message) is bool(verdict.code)
    if verdict.deposes:
        assert where.holder is not None


@given(situations(), claimants)
def test_a_live_holder_gives_way_to_nobody_but_a_fencer_a_generation_or_its_own_client(
    where: Situation, claimant: Claimant
) -> None:
    holder = where.holder
    if holder is None or holder.session == claimant.session:
        return
    if not is_held(holder, NOW):
        return
    verdict = judge(where, claimant, NOW)
    if verdict.act is CLAIM:
        mode = claimant.mode or where.mode
        own = claimant.connection in holder.connections or claimant.succeeds == holder.session
        assert own or claimant.generation is not None or mode is FENCING
        assert verdict.deposes


@given(situations(), claimants, generations)
def test_a_generation_below_the_current_one_never_claims_and_0_or_above_always_does(
    where: Situation, claimant: Claimant, generation: int
) -> None:
    asks = replace(claimant, generation=generation, succeeds=None, mode=EXCLUSIVE)
    holder = where.holder
    if holder is not None and (asks.session == holder.session or asks.connection in holder.connections):
        return
    verdict = judge(replace(where, deposed=frozenset(), tainted=frozenset()), asks, NOW)
    if generation == 0 or generation >= where.generation:
        assert verdict.act is CLAIM
    else:
        assert (verdict.act, verdict.code) == (REFUSE, POLICY_VIOLATION)


@given(situations(), claimants, claimants)
def test_a_refused_rival_moves_nothing(where: Situation, rival: Claimant, other: Claimant) -> None:
    before = judge(where, other, NOW)
    if judge(where, rival, NOW).act is REFUSE:
        assert judge(where, other, NOW) == before


@given(situations(), claimants)
def test_nobody_overtakes_the_queue_of_a_free_topic_but_a_fencer_or_a_generation(
    where: Situation, claimant: Claimant
) -> None:
    free = replace(where, holder=None, tainted=(), deposed=())
    asked = claimant.mode or free.mode
    if claimant.generation is not None or asked is FENCING or not free.waiting:
        return
    assert (judge(free, claimant, NOW).act is CLAIM) <= (free.waiting[0] == claimant.session)


def test_a_lower_generation_on_a_free_topic_is_told_that_nobody_owns_it() -> None:
    refused = judge(replace(situation(), holder=None), newcomer(generation=3), NOW)
    assert (refused.act, refused.code) == (REFUSE, POLICY_VIOLATION)
    assert refused.message.startswith("Topic has no exclusive producer now (generation ")


# Where sessions may write beside each other --------------------------------------------------------------------------

OTHERS: dict[str, Any] = {"holder": None, "shared": {"pid:7": "one", "pid:8": "two"}}
COMING_BACK: dict[str, Any] = {"holder": None, "shared_awaited": True}
SHARED_QUEUE: dict[str, Any] = {**OTHERS, "waiting": (Session("pid:9"),)}


@pytest.mark.parametrize(
    ("where", "mode", "generation", "act", "code"),
    [
        (FREE, SHARED, None, SHARE, 0),
        (FREE, None, None, SHARE, 0),
        (FREE, EXCLUSIVE, None, CLAIM, 0),
        (FREE, None, 5, CLAIM, 0),
        (HELD, None, None, REFUSE, POLICY_VIOLATION),
        (HELD, SHARED, None, REFUSE, POLICY_VIOLATION),
        (GRACE, SHARED, None, LATER, BUSY_TRY_LATER),
        (GRACE_OVER, SHARED, None, SHARE, 0),
        (GRACE_OVER, EXCLUSIVE, None, CLAIM, 0),
        (FREE_QUEUE, SHARED, None, REFUSE, POLICY_VIOLATION),
        (OTHERS, None, None, SHARE, 0),
        (OTHERS, EXCLUSIVE, None, REFUSE, POLICY_VIOLATION),
        (OTHERS, WAIT, None, QUEUE, BUSY_TRY_LATER),
        (OTHERS, FENCING, None, CLAIM, 0),
        (OTHERS, EXCLUSIVE, 5, CLAIM, 0),
        (OTHERS, EXCLUSIVE, 4, REFUSE, POLICY_VIOLATION),
        (COMING_BACK, SHARED, None, SHARE, 0),
        (COMING_BACK, EXCLUSIVE, None, LATER, BUSY_TRY_LATER),
        (COMING_BACK, WAIT, None, QUEUE, BUSY_TRY_LATER),
        (COMING_BACK, FENCING, None, CLAIM, 0),
        (SHARED_QUEUE, SHARED, None, REFUSE, POLICY_VIOLATION),
        (SHARED_QUEUE, EXCLUSIVE, None, REFUSE, POLICY_VIOLATION),
    ],
)
def test_a_newcomer_of_each_mode_under_the_policy_shared(
    where: dict[str, Any], mode: AccessMode | None, generation: int | None, act: Act, code: int
) -> None:
    verdict = judge(situation(**where, mode=SHARED), newcomer(mode, generation), NOW)
    assert (verdict.act, verdict.code) == (act, code), verdict


def test_a_shared_session_goes_on_while_somebody_waits_and_may_ask_for_the_topic_itself_where_it_is_the_only_one() -> (
    None
):
    assert judge(situation(**SHARED_QUEUE, mode=SHARED), newcomer(session=Session("pid:7")), NOW).act is SHARE
    alone: dict[str, Any] = {"holder": None, "shared": {"pid:7": "one"}, "mode": SHARED}
    assert judge(situation(**alone), newcomer(EXCLUSIVE, session=Session("pid:7")), NOW).act is CLAIM
    refused = judge(situation(**OTHERS, mode=SHARED), newcomer(EXCLUSIVE, session=Session("pid:7")), NOW)
    assert refused.message == f"Topic has existing shared producers: 1, one of them two (generation 5). {NEXT}"
