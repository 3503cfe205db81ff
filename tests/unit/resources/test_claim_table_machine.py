"""The claim table against a naive one: any requests of a few sessions for a few resources, in any order."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.access.prospects import Prospect
from sidecar.changelog import Key, claim_key
from sidecar.protocol.primitives import at_once
from sidecar.resources.claim_table import Change, ClaimTable, Effects, assert_owners, assert_queues
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import ClaimVerdict, Request, Wish, WishAnswer
from sidecar.resources.waiting import LostTokens
from sidecar.v1 import control_pb2 as control
from tests.unit.resources.reference import EXCLUSIVE, FENCING, WAIT, Asked, Reference, Thing

QUEUE = 3
ALL = 1_000
THINGS = (
    Thing("", name="lock"),
    Thing("g", name="lock"),
    Thing("g", topic="t"),
    Thing("g", topic="t", partition=0),
    Thing("g", topic="t", partition=1),
    Thing("h", topic="t", partition=0),
)
MODES = {
    EXCLUSIVE: control.EXCLUSIVE,
    WAIT: control.WAIT_FOR_EXCLUSIVE,
    FENCING: control.EXCLUSIVE_WITH_FENCING,
}
ERRORS = {
    control.NONE: "none",
    control.TIMED_OUT: "wait",
    control.HELD: "held",
    control.LOWER_GENERATION: "lower",
    control.DEPOSED: "deposed",
    control.QUEUE_FULL: "full",
}
NEUTRAL = {"none", "wait"}


def resource_of(thing: Thing) -> control.Resource:
    return control.Resource(topic=thing.topic or "", partition=thing.partition, name=thing.name or "")


def key_of(thing: Thing) -> Key:
    return claim_key(thing.group, resource_of(thing))


def request_of(asked: Asked) -> Request:
    wishes = tuple(
        Wish(key_of(thing), thing.group, resource_of(thing), generation) for thing, generation in asked.wishes
    )
    return Request(asked.token, asked.session, asked.session, MODES[asked.mode], wishes)


wishes = st.lists(
    st.tuples(st.sampled_from(THINGS), st.sampled_from([None, None, None, 0, 1, 2, 3, 5])),
    min_size=1, max_size=3, unique_by=lambda wish: wish[0],
).map(tuple)  # fmt: skip


def new_table() -> ClaimTable:
    return ClaimTable(LostTokens(), ClaimLimits(QUEUE, claims=100, places=100))


class Tables(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = new_table()
        self.model = Reference(QUEUE)
        self.tokens = count(1)
        self.asked: dict[bytes, Asked] = {}
        self.ready: set[bytes] = set()
        """As the table told of them."""

    # What clients do ----------------------------------------------------------------------------------------------

    @rule(session=st.sampled_from("abcd"), mode=st.sampled_from([EXCLUSIVE, WAIT, WAIT, FENCING]), wishes=wishes)
    def ask(self, session: str, mode: str, wishes: tuple[tuple[Thing, int | None], ...]) -> None:
        self._ask(Asked(b"%d" % next(self.tokens), session, mode, wishes))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        self._ask(self.asked[data.draw(st.sampled_from(sorted(self.asked)))])

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def fetch_a_promotion(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.ready)))
        verdict = self._ask(self.asked[token])
        assert verdict.prospect is not Prospect.WAIT

    @precondition(lambda self: self.table.owners)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted({held.token for held in self.model.owners.values()})))
        keys = sorted(self.table.keys_of_token(token), key=str)
        some = data.draw(st.sets(st.sampled_from(keys), min_size=1))
        for thing in THINGS:
            if key_of(thing) in some:
                del self.model.owners[thing]
        self._note(self.table.apply(self.table.release(some)))

    @rule(session=st.sampled_from("abcd"))
    def end_of_a_session(self, session: str) -> None:
        self.model.owners = {thing: held for thing, held in self.model.owners.items() if held.session != session}
        self.model.line = [each for each in self.model.line if each.session != session]
        self._note(self.table.apply(self.table.release(self.table.keys_of_session(session, ALL))))
        self._note(self.table.leave(self.table.waiting.of_session(session, ALL)))

    @precondition(lambda self: self.table.waiting.by_token)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.table.waiting.by_token)))
        self.model.line = [each for each in self.model.line if each.token != token]
        self._note(self.table.leave([token]))

    @rule()
    def everything_is_read_from_the_records(self) -> None:
        """Another node coordinates: owners are known, places are not."""
        before, self.table = (
            self.table,
            ClaimTable(LostTokens(), ClaimLimits(QUEUE, claims=100, places=100)),
        )
        at_once(self.table.load(before.owners.items()))
        self.model.line.clear()
        self.ready.clear()

    # How ----------------------------------------------------------------------------------------------------------

    def _ask(self, asked: Asked) -> ClaimVerdict:
        self.asked[asked.token] = asked
        request = request_of(asked)
        expected = self.model.judge(asked)
        verdict = self.table.judge(request)
        assert [(ERRORS[each.error], self._told(each)) for each in verdict.answers] == expected
        answers = {answer for answer, _ in expected}
        if answers == {"none"}:
            assert verdict.prospect is Prospect.READY
            change = self.table.grant(request, verdict, 7, "here")
            self._sever(change, self.model.grant(asked, [generation for _, generation in expected]))
            self._note(self.table.apply(change))
        elif answers <= NEUTRAL:
            assert verdict.prospect is Prospect.WAIT
            if asked not in self.model.line:
                self.model.line.append(asked)
            self._note(self.table.wait(request, 7))
        else:
            assert verdict.prospect is Prospect.REFUSED
        return verdict

    def _told(self, each: WishAnswer) -> int:
        return each.generation if each.error == control.NONE else 0

    def _sever(self, change: Change, deposed: set[str]) -> None:
        lost = {*change.gone, *change.claims} & self.table.owners.keys()
        assert change.request is not None
        sessions = {self.table.owners[key].session for key in lost}
        assert sessions - {change.request.session} == deposed

    def _note(self, effects: Effects) -> None:
        self.ready |= {place.token for place in effects.ready}
        places = self.table.waiting.by_token
        self.ready = {token for token in self.ready if token in places and places[token].ready}

    # What always holds --------------------------------------------------------------------------------------------

    @invariant()
    def both_know_the_same(self) -> None:
        owners = {key: (claim.session, claim.token, claim.generation) for key, claim in self.table.owners.items()}
        assert owners == {key_of(thing): tuple(held) for thing, held in self.model.owners.items()}
        assert list(self.table.waiting.by_token) == [each.token for each in self.model.line]
        assert self.table.waiting.wishes == sum(len(each.wishes) for each in self.model.line)

    @invariant()
    def what_always_holds_does(self) -> None:
        assert_owners(self.table, self.table.owners)
        assert_queues(self.table)

    @invariant()
    def exactly_those_are_told_of_their_turn_whose_turn_it_is(self) -> None:
        may = {
            each.token for each in self.model.line if not any(answer == "wait" for answer, _ in self.model.judge(each))
        }
        assert may == self.ready

    @invariant()
    def nobody_waits_for_nobody(self) -> None:
        """No deadlock: whoever came first waits for an owner."""
        for each in self.model.line[:1]:
            over = [
                held.session
                for thing, _ in each.wishes
                for other, held in self.model.owners.items()
                if other.overlaps(thing)
            ]
            assert self.table.waiting.by_token[each.token].ready or set(over) - {each.session}

    def teardown(self) -> None:
        """Once everybody let go, all who wait have their turn, one after the other, and nothing is left of them."""
        for session in "abcd":
            self._note(self.table.apply(self.table.release(self.table.keys_of_session(session, ALL))))
        while self.table.waiting.by_token:
            place = next(place for place in self.table.waiting.by_token.values() if self.table.is_ready(place))
            self._note(self.table.leave([place.token]))
        left = (self.table.owners, self.table.owners._parts, self.table._of_session, self.table._of_token)
        waiting = self.table.waiting
        assert not any((*left, waiting._queues, waiting._queues._parts, waiting._of_session, waiting.wishes))


TestTables = Tables.TestCase
TestTables.settings = settings(stateful_step_count=50)
