"""The rules one by one: the wiki's table, all or nothing, whose turn it is, and what is bounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from sidecar.access.prospects import Prospect
from sidecar.changelog import claim_key
from sidecar.protocol.primitives import at_once
from sidecar.resources.claim_table import DEPOSED_NAMES, ClaimTable, Effects
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import ClaimVerdict, Request, Wish
from sidecar.resources.waiting import LostTokens
from sidecar.v1 import control_pb2 as control

TOKENS = count(1)
Names = str | tuple[str, int | None]


def name(text: str) -> control.Resource:
    return control.Resource(name=text)


def wish(what: str | int, generation: int | None = None) -> Wish:
    """A free string; a partition of the topic `t` for readers in `g`; -1: all of the topic."""
    if isinstance(what, str):
        resource, group = name(what), ""
    else:
        resource, group = control.Resource(topic="t", partition=None if what < 0 else what), "g"
    return Wish(claim_key(group, resource), group, resource, generation)


def request(session: str, *wishes: Wish, mode: control.AccessMode = control.EXCLUSIVE, named: str = "") -> Request:
    return Request(b"%d" % next(TOKENS), session, named or session, mode, wishes)


def new_table(queue: int = 10, of_principal: int = 0, claims: int = 1000, places: int = 1000) -> ClaimTable:
    return ClaimTable(LostTokens(), ClaimLimits(queue, of_principal, claims, places))


def ask(table: ClaimTable, asked: Request) -> tuple[ClaimVerdict, Effects]:
    """Judge it, and do what follows."""
    verdict = table.judge(asked)
    if verdict.prospect is Prospect.READY:
        return verdict, table.apply(table.grant(asked, verdict, 7, "here"))
    if verdict.prospect is Prospect.WAIT:
        return verdict, table.wait(asked, 7)
    return verdict, Effects()


def generation(table: ClaimTable, session: str, asked: int | None, what: str | int = "x") -> int | str:
    """The generation that was granted, or the name of the error."""
    (answer,) = ask(table, request(session, wish(what, asked)))[0].answers
    return control.Error.Name(answer.error) if answer.error else answer.generation


def test_a_free_resource_has_generation_1_whatever_is_asked() -> None:
    for asked in (None, 0, 1, 7):
        assert generation(new_table(), "a", asked) == 1


def test_generations_are_the_wikis() -> None:
    table = new_table()
    assert generation(table, "a", None) == 1
    assert generation(table, "b", 1) == 2  # equal
    assert generation(table, "c", 1) == "LOWER_GENERATION"
    assert generation(table, "c", 9) == 9  # higher
    assert generation(table, "d", 9) == 10
    assert generation(table, "e", 0) == 1  # always wins, and resets
    assert generation(table, "e", None) == 1  # the owner again
    assert generation(table, "e", 5) == 5
    assert generation(table, "e", 4) == "LOWER_GENERATION"
    (held,) = table.owners.values()
    assert (held.session, held.generation, list(held.deposed)) == ("e", 5, ["a", "b", "c", "d"])


def test_what_is_let_go_of_begins_at_1_again() -> None:
    table = new_table()
    assert [generation(table, session, 5) for session in "abc"] == [1, 5, 6]
    table.apply(table.release(table.keys_of_session("c", 10)))
    assert generation(table, "d", None) == 1


def test_fencing_deposes_the_holder_and_whoever_waits() -> None:
    table = new_table()
    ask(table, request("a", wish("x")))
    waiting = request("b", wish("x"), wish("y"), mode=control.WAIT_FOR_EXCLUSIVE)
    ask(table, waiting)
    verdict, effects = ask(table, request("c", wish("x"), mode=control.EXCLUSIVE_WITH_FENCING))
    assert verdict.answers[0].generation == 2
    assert [claim.session for _, claim in effects.lost] == ["a"]
    assert [place.request for place in effects.evicted] == [waiting]
    assert not table.waiting.by_token
    assert not list(table.waiting.queue(wish("y").key))


def test_a_refusal_says_who_owns_it() -> None:
    table = new_table()
    ask(table, request("conn:1", wish("x"), named="billing"))
    (answer,) = ask(table, request("conn:2", wish("x")))[0].answers
    assert answer == (control.HELD, "billing owns it (generation 1)", 0)


def test_a_request_that_names_no_mode_is_exclusive() -> None:
    table = new_table()
    unset = control.ACCESS_MODE_UNSPECIFIED
    assert ask(table, request("a", wish("x"), mode=unset))[0].prospect is Prospect.READY
    (held,) = ask(table, request("b", wish("x"), mode=unset))[0].answers
    assert held.error == control.HELD


def test_nothing_is_granted_unless_everything_can_be() -> None:
    table = new_table()
    ask(table, request("a", wish("x")))
    mixed = request("b", wish("free"), wish("x"), mode=control.EXCLUSIVE)
    assert [each.error for each in ask(table, mixed)[0].answers] == [control.NONE, control.HELD]
    lower = request("b", wish("free"), wish("x", 3), wish("y"), mode=control.EXCLUSIVE)
    assert ask(table, lower)[0].prospect is Prospect.READY
    refused = request("c", wish("x", 1), wish("new"), mode=control.WAIT_FOR_EXCLUSIVE)
    assert ask(table, refused)[0].prospect is Prospect.REFUSED
    assert not table.waiting.by_token


def test_nobody_overtakes_on_what_an_earlier_one_waits_for() -> None:
    table = new_table()
    ask(table, request("a", wish("x")))
    both = request("b", wish("x"), wish("y"), mode=control.WAIT_FOR_EXCLUSIVE)
    ask(table, both)
    later = request("c", wish("y"), mode=control.WAIT_FOR_EXCLUSIVE)
    assert ask(table, later)[0].prospect is Prospect.WAIT
    assert generation(table, "d", None, "y") == "HELD"
    effects = table.apply(table.release(table.keys_of_session("a", 10)))
    assert [place.request for place in effects.ready] == [both]
    assert ask(table, later)[0].prospect is Prospect.WAIT
    _, effects = ask(table, both)
    assert not effects.ready
    effects = table.apply(table.release([wish("y").key]))
    assert [place.request for place in effects.ready] == [later]


def test_a_topic_overlaps_with_its_partitions_in_one_group() -> None:
    table = new_table()
    ask(table, request("a", wish(0)))
    ask(table, request("b", wish(1)))
    assert generation(table, "c", None, -1) == "HELD"
    whole = request("c", wish(-1), mode=control.EXCLUSIVE_WITH_FENCING)
    _, effects = ask(table, whole)
    assert {claim.session for _, claim in effects.lost} == {"a", "b"}
    assert set(table.owners) == {wish(-1).key}
    assert generation(table, "a", None, 1) == "HELD"
    assert generation(table, "c", None, 1) == 2  # it has it by the whole topic
    assert generation(table, "a", 9, 1) == 9
    assert set(table.owners) == {wish(1).key}


def test_who_waits_for_a_part_of_a_topic_or_for_all_of_it_has_its_turn_when_the_other_is_free() -> None:
    for owned, waited in ((-1, 3), (3, -1)):
        table = new_table()
        ask(table, request("a", wish(owned)))
        waiting, later = (request(session, wish(waited), mode=control.WAIT_FOR_EXCLUSIVE) for session in "bc")
        for asked in (waiting, later):
            assert ask(table, asked)[1].ready == []
        effects = table.apply(table.release([wish(owned).key]))
        assert [ready.token for ready in effects.ready] == [waiting.token]
        of_owned = request("d", wish(owned), mode=control.WAIT_FOR_EXCLUSIVE)
        assert ask(table, of_owned)[0].prospect is Prospect.WAIT, "it overlaps with what others wait for"


def test_a_refusal_names_the_owner_with_the_highest_generation() -> None:
    table = new_table()
    for session, asked, what in (("a", 2, 1), ("b", 9, 2), ("c", 5, 3)):
        assert generation(table, session, asked, what) == 1
        ask(table, request(session, wish(what, asked)))
    (answer,) = table.judge(request("d", wish(-1))).answers
    assert (answer.error, answer.message) == (control.HELD, "b owns it (generation 9)")


def test_limits_are_reached_exactly() -> None:
    limits = ClaimLimits(1, of_principal=5, claims=10, places=10)
    assert [bool(limits.claims_fault(8, more, "", 0, more)) for more in (2, 3)] == [False, True]
    assert not limits.claims_fault(10, 0, "", 0, 0)
    assert [bool(limits.claims_fault(0, 1, "User:a", 4, gained)) for gained in (1, 2)] == [False, True]
    assert not limits.claims_fault(0, 1, "User:a", 9, 0), "it gains nothing"
    assert [bool(limits.places_fault(8, more, "", 0)) for more in (2, 3)] == [False, True]
    assert [bool(limits.places_fault(0, 1, "User:a", taken)) for taken in (4, 5)] == [False, True]


def test_the_same_token_never_claims_twice() -> None:
    table = new_table()
    first = request("a", wish("x"), wish("y"), mode=control.EXCLUSIVE_WITH_FENCING)
    ask(table, first)
    again = ask(table, first)[0]
    assert [each.generation for each in again.answers] == [1, 1]
    assert not table.grant(first, again, 8, "")
    assert generation(table, "b", 1) == 2
    assert [each.error for each in ask(table, first)[0].answers] == [control.DEPOSED, control.NONE]


def test_queues_claims_and_places_are_bounded() -> None:
    table = new_table(queue=1, claims=2, places=2)
    ask(table, request("a", wish("x")))
    ask(table, request("b", wish("x"), mode=control.WAIT_FOR_EXCLUSIVE))
    for session, *wishes in (("c", wish("x")), ("d", wish("x"), wish("y")), ("e", wish("z"), wish("y"), wish("w"))):
        asked = request(session, *wishes, mode=control.WAIT_FOR_EXCLUSIVE)
        verdict = ask(table, asked)[0]
        assert verdict.prospect is Prospect.REFUSED
        assert control.QUEUE_FULL in [each.error for each in verdict.answers]
    assert generation(table, "f", None, "y") == 1
    ask(table, request("a", wish("x")))
    full = ask(table, request("g", wish("q"), wish("y"), mode=control.WAIT_FOR_EXCLUSIVE))[0]
    assert "2 places" in full.answers[0].message


def test_the_newest_names_of_those_deposed_are_kept() -> None:
    table = new_table()
    for number in range(DEPOSED_NAMES + 5):
        ask(table, request(f"s{number}", wish("x"), mode=control.EXCLUSIVE_WITH_FENCING))
    (held,) = table.owners.values()
    assert list(held.deposed) == [f"s{number}" for number in range(4, DEPOSED_NAMES + 4)]


def of(principal: str, asked: Request) -> Request:
    return replace(asked, principal=principal)


def error(table: ClaimTable, asked: Request) -> str:
    verdict, _ = ask(table, asked)
    return control.Error.Name(verdict.answers[0].error)


def test_a_principal_has_a_limit_of_its_own_and_leaves_the_rest_to_others() -> None:
    table = new_table(of_principal=2)
    assert error(table, of("User:a", request("one", wish("x"), wish("y")))) == "NONE"
    assert error(table, of("User:a", request("two", wish("z")))) == "QUEUE_FULL"
    assert error(table, of("User:b", request("three", wish("z")))) == "NONE"
    fencer = of("User:a", request("two", wish("z"), mode=control.EXCLUSIVE_WITH_FENCING))
    assert error(table, fencer) == "QUEUE_FULL"
    assert error(table, of("User:a", request("one", wish("x")))) == "NONE"  # its own already
    table.apply(table.release(table.keys_of_session("one", 10)))
    assert error(table, fencer) == "NONE"


def test_a_principal_has_as_many_places_in_queues() -> None:
    table = new_table(of_principal=2)
    ask(table, of("User:b", request("owner", wish("x"), wish("y"))))
    first = of("User:a", request("one", wish("x"), wish("y"), mode=control.WAIT_FOR_EXCLUSIVE))
    second = of("User:a", request("two", wish("x"), mode=control.WAIT_FOR_EXCLUSIVE))
    assert [error(table, asked) for asked in (first, second, first)] == ["TIMED_OUT", "QUEUE_FULL", "TIMED_OUT"]
    table.leave([first.token])
    assert error(table, second) == "TIMED_OUT"


def test_clients_without_a_login_are_everybody_and_have_no_such_limit() -> None:
    table = new_table(of_principal=1)
    assert error(table, request("one", wish("x"), wish("y"))) == "NONE"
    assert error(table, of("User:ANONYMOUS", request("two", wish("z"), wish("w")))) == "NONE"


def test_a_loaded_table_counts_what_a_principal_owns() -> None:
    table, former = new_table(of_principal=2), new_table()
    ask(former, of("User:a", request("pid:1", wish("x"), wish("y"))))
    at_once(table.load(former.owners.items()))
    assert error(table, of("User:a", request("pid:2", wish("z")))) == "QUEUE_FULL"


def test_a_part_of_what_a_session_owns_is_made_of_whole_requests() -> None:
    table = new_table()
    for number in range(10):
        ask(table, request("a", wish(f"{number}x"), wish(f"{number}y"), wish(f"{number}z")))
    sizes: list[int] = []
    while some := table.keys_of_session("a", 5):
        sizes.append(len(some))
        tokens = {table.owners[key].token for key in some}
        assert all(table.keys_of_token(token) <= set(some) for token in tokens)
        table.apply(table.release(some))
    assert sizes == [6] * 5
