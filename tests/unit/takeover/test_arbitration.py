"""Which session may take a topic, and what is asked of Redis for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from metadata import MetadataUnavailable
from metadata.errors import Reason
from metadata.ownership import AccessMode, ClaimAnswer, ClaimRequest, ClaimStatus, Generation, Ownership
from sidecar.changelog import MASTER_SLOT, Entry, Key, Kind, Record, SlotName, View, partition_slot
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.session import Session
from sidecar.takeover.arbitration import Arbitration, ExhaustedError, HeldError
from sidecar.takeover.requests import NothingDoneError, Purpose, Request
from sidecar.takeover.slots import SlotScope, owner_record
from sidecar.v1 import state_pb2 as state
from tests.unit.exclusive.paper_cluster import TOPIC

BUSY, MOVED, POLICY_VIOLATION = 5, 6, 44
AWAY = MetadataUnavailable(Reason.AWAY, "away")
WRITER = Stamp(ProducerId(900), ProducerEpoch(1))


class Store:
    """Answers as it was told, and keeps what it was asked."""

    lease_ms = 1_000

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def _answer(self, *asked: Any, **named: Any) -> Any:
        self.asked.append((*asked, named) if named else asked[0] if len(asked) == 1 else asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    serve = claim = publish = abandon = queue = keep_queue = hand_over = _answer


def known(view: View, offset: int, slot: SlotName = MASTER_SLOT, **fields: Any) -> Entry[state.Ownership]:
    """An owner's record."""
    record = Record(Key(Kind.OWNERSHIP, TOPIC, slot), state.Ownership(**fields))
    view.apply(Offset(offset), 0, WRITER, record.encode())
    found = view.ownership(TOPIC, slot)
    assert found is not None
    return found


def served(view: View, node: int, offset: int = 0) -> Any:
    """The record that opened the slot's epoch, by a node."""
    record = Record(Key(Kind.SERVING, TOPIC, MASTER_SLOT), state.Serving(node=node, producer_id=900))
    view.apply(Offset(offset), 0, WRITER, record.encode())
    return view.serving(TOPIC)


def services(view: View, store: Store, node: int = 1) -> Any:
    return SimpleNamespace(
        node_id=node, boot="boot", store=store, changelog=SimpleNamespace(view=view), upstream=None, cluster="paper"
    )


def granted(generation: int) -> ClaimAnswer:
    return ClaimAnswer(ClaimStatus.GRANTED, Generation(generation))


CLAIM = Request(Purpose.CLAIM, Session("pid:8"), "app", AccessMode.EXCLUSIVE)


# Claims -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        (ClaimAnswer(ClaimStatus.HELD), HeldError, POLICY_VIOLATION),
        (ClaimAnswer(ClaimStatus.LOWER_GENERATION), HeldError, POLICY_VIOLATION),
        (ClaimAnswer(ClaimStatus.ELSEWHERE), NothingDoneError, MOVED),
        (ClaimAnswer(ClaimStatus.EXHAUSTED), ExhaustedError, POLICY_VIOLATION),
        (ClaimAnswer(ClaimStatus.BUSY), NothingDoneError, BUSY),
        (ClaimAnswer(ClaimStatus.OVER), NothingDoneError, BUSY),
    ],
)
async def test_what_redis_does_not_grant(answer: ClaimAnswer, error: type[KafkaError], code: int) -> None:
    arbitration = Arbitration(services(View(), Store(answer)), SlotScope(TOPIC), CLAIM)
    with pytest.raises(error) as refused:
        await arbitration.claim(None, None, keeps=False)
    assert refused.value.code == code


async def test_the_owner_that_redis_knows_is_part_of_the_refusal() -> None:
    owner = Ownership(TOPIC, Generation(4), 9, "pid:1")
    arbitration = Arbitration(
        services(View(), Store(ClaimAnswer(ClaimStatus.HELD, current=owner))), SlotScope(TOPIC), CLAIM
    )
    with pytest.raises(HeldError) as held:
        await arbitration.claim(None, None, keeps=False)
    assert held.value.owner == owner


@pytest.mark.parametrize(
    ("scope", "purpose", "generation"),
    [
        (SlotScope(TOPIC, SlotName("3")), Purpose.WRITE_BESIDE, 0),
        (SlotScope(TOPIC), Purpose.ADOPT, 5),
        (SlotScope(TOPIC), Purpose.SHARE, 5),
        (SlotScope(TOPIC), Purpose.SPLIT, 5),
        (SlotScope("new"), Purpose.ADOPT, 0),
    ],
)
async def test_where_nobody_becomes_the_owner_redis_is_not_asked(
    scope: SlotScope, purpose: Purpose, generation: int
) -> None:
    view, store = View(), Store()
    known(view, 7, generation=5, session="pid:1")
    found = await Arbitration(services(view, store), scope, Request(purpose)).claim(None, None, keeps=False)
    assert found == (None, generation)
    assert store.asked == []


async def ask(
    view: View, scope: SlotScope, request: Request, entry: Any = None, *, keeps: bool = False
) -> ClaimRequest:
    """The claim that is made."""
    store = Store(granted(9))
    token, generation = await Arbitration(services(view, store), scope, request).claim(entry, None, keeps=keeps)
    (asked,) = store.asked
    assert (token, generation) == (asked.token, 9)
    assert (asked.node_id, asked.boot, asked.session, asked.topic) == (1, "boot", request.session, TOPIC)
    return asked


async def test_a_claim_brings_the_changelogs_newest_record() -> None:
    view = View()
    assert (await ask(view, SlotScope(TOPIC), CLAIM)).known is None
    entry = known(view, 7, generation=5, session="pid:1", name="old")
    asked = await ask(view, SlotScope(TOPIC), CLAIM, entry)
    assert asked.known is not None
    assert (asked.known.generation, asked.known.position, asked.known.session) == (5, 7, "pid:1")
    assert (asked.mode, asked.asked, asked.returns_to) == (AccessMode.EXCLUSIVE, None, None)


async def test_the_owner_of_a_deleted_topic_of_the_name_leaves_its_generation_alone() -> None:
    view = View()
    known(view, 7, generation=5, session="pid:1")
    asked = await ask(view, SlotScope(TOPIC), CLAIM, None)
    assert asked.known is not None
    assert (asked.known.generation, asked.known.position, asked.known.session) == (5, 7, None)


async def test_a_partitions_owner_from_before_the_topic_had_one_for_all_owns_nothing() -> None:
    view = View()
    served(view, 1)
    entry = known(view, 7, partition_slot(0), generation=2, session="pid:1")
    known(view, 8, generation=5, session="pid:2")
    asked = await ask(view, SlotScope.of_partition(TOPIC, 0), CLAIM, entry)
    assert asked.known is not None
    assert (asked.known.generation, asked.known.position, asked.known.session) == (5, 7, None)


@pytest.mark.parametrize(("keeps", "generation"), [(False, 5), (True, 2)])
async def test_generations_do_not_fall_when_the_scope_was_changed(keeps: bool, generation: int) -> None:
    view = View()
    served(view, 1)
    known(view, 6, generation=5, session="pid:2")
    entry = known(view, 7, partition_slot(0), generation=2, session="pid:8")
    asked = await ask(view, SlotScope.of_partition(TOPIC, 0), CLAIM, entry, keeps=keeps)
    assert asked.known is not None
    assert (asked.known.generation, asked.known.session) == (generation, "pid:8")


async def test_a_partition_that_never_had_an_owner_begins_behind_the_wholes_generation() -> None:
    view = View()
    known(view, 6, generation=5, session="pid:2")
    asked = await ask(view, SlotScope.of_partition(TOPIC, 0), CLAIM)
    assert asked.known is not None
    assert (asked.known.resource, asked.known.generation, asked.known.session) == (f"{TOPIC}/p0", 5, None)


@pytest.mark.parametrize(("keeps", "released_ms", "returns_to"), [(True, 1, 5), (True, 0, None), (False, 1, None)])
async def test_a_session_that_let_go_asks_for_its_generation_again(
    keeps: bool, released_ms: int, returns_to: int | None
) -> None:
    view = View()
    entry = known(view, 7, generation=5, session="pid:8", released_ms=released_ms)
    assert (await ask(view, SlotScope(TOPIC), CLAIM, entry, keeps=keeps)).returns_to == returns_to


async def test_who_deposes_claims_as_one_that_fences() -> None:
    request = Request(Purpose.CLAIM, Session("pid:8"), mode=AccessMode.EXCLUSIVE, deposes=True, asked=3)
    asked = await ask(View(), SlotScope(TOPIC), request)
    assert (asked.mode, asked.asked) == (AccessMode.EXCLUSIVE_WITH_FENCING, 3)


@pytest.mark.parametrize(
    ("keeps", "node", "is_opened", "goes_on"),
    [(True, 1, True, True), (True, 2, True, False), (False, 1, True, False), (True, 1, False, False)],
)
async def test_without_redis_the_node_that_served_last_goes_on_with_the_same_owner(
    keeps: bool, node: int, is_opened: bool, goes_on: bool
) -> None:
    view = View()
    entry, opened = known(view, 7, generation=5, session="pid:8"), served(view, node, 8) if is_opened else None
    arbitration = Arbitration(services(view, Store(AWAY)), SlotScope(TOPIC), CLAIM)
    if goes_on:
        assert await arbitration.claim(entry, opened, keeps=keeps) == (None, 5)
    else:
        with pytest.raises(MetadataUnavailable):
            await arbitration.claim(entry, opened, keeps=keeps)


@pytest.mark.parametrize("is_sent", [True, False])
async def test_only_a_claim_that_may_have_arrived_is_made_again(is_sent: bool) -> None:
    store = Store(MetadataUnavailable(Reason.AWAY, "lost", maybe_applied=is_sent), granted(3))
    arbitration = Arbitration(services(View(), store), SlotScope(TOPIC), CLAIM)
    if is_sent:
        token, generation = await arbitration.claim(None, None, keeps=False)
        assert generation == 3
        assert [asked.token for asked in store.asked] == [token, token]
    else:
        with pytest.raises(MetadataUnavailable):
            await arbitration.claim(None, None, keeps=False)
        assert len(store.asked) == 1


async def test_a_withdrawal_needs_a_claim_and_no_answer() -> None:
    store = Store(True, AWAY)
    arbitration = Arbitration(services(View(), store), SlotScope(TOPIC), CLAIM)
    await arbitration.abandon(None)
    assert store.asked == []
    await arbitration.abandon(b"1")
    await arbitration.abandon(b"2")
    assert store.asked == [(TOPIC, b"1"), (TOPIC, b"2")]


async def test_an_outcome_is_told_to_redis_with_its_claim_or_with_the_next_heartbeat() -> None:
    store = Store(True, AWAY)
    arbitration = Arbitration(services(View(), store, node=3), SlotScope(TOPIC), CLAIM)
    owner = state.Ownership(session="pid:8", name="app", generation=4)
    taken: Any = SimpleNamespace(ownership=owner, position=12, stamp=WRITER)
    await arbitration.publish(taken, b"token")
    await arbitration.publish(taken, None)
    published = owner_record(TOPIC, owner, 12, WRITER, 3)
    assert store.asked == [(published, b"token"), (published, None)]
    assert (published.session, published.generation, published.node_id) == ("pid:8", 4, 3)
