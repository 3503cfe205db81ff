"""The book's rules one by one: the wiki's table, all or nothing, whose turn it is, and what is bounded."""

from __future__ import annotations

from itertools import count

from sidecar.changelog import claim_key
from sidecar.resources.book import DEPOSED_NAMES, KEPT_S, Book, Effects
from sidecar.resources.requests import Decision, Request, Verdict, Wish
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


def new_book(**limits: int) -> Book:
    return Book(1, **{"queue_limit": 10, "claims_limit": 1000, "places_limit": 1000} | limits)


def ask(book: Book, asked: Request, now: float = 0.0) -> tuple[Verdict, Effects]:
    """Judge it, and do what follows."""
    verdict = book.judge(asked)
    if verdict.decision is Decision.GRANT:
        return verdict, book.apply(book.grant(asked, verdict, 7, "here"), now)
    if verdict.decision is Decision.WAIT:
        return verdict, book.wait(asked, now, 7)[1]
    return verdict, Effects()


def generation(book: Book, session: str, asked: int | None, what: str | int = "x") -> int | str:
    """The generation that was granted, or the name of the error."""
    (answer,) = ask(book, request(session, wish(what, asked)))[0].ownerships
    return control.Error.Name(answer.error) if answer.error else answer.generation


def test_a_free_resource_has_generation_1_whatever_is_asked() -> None:
    for asked in (None, 0, 1, 7):
        assert generation(new_book(), "a", asked) == 1


def test_generations_are_the_wikis() -> None:
    book = new_book()
    assert generation(book, "a", None) == 1
    assert generation(book, "b", 1) == 2  # equal
    assert generation(book, "c", 1) == "LOWER_GENERATION"
    assert generation(book, "c", 9) == 9  # higher
    assert generation(book, "d", 9) == 10
    assert generation(book, "e", 0) == 1  # always wins, and resets
    assert generation(book, "e", None) == 1  # the owner again
    assert generation(book, "e", 5) == 5
    assert generation(book, "e", 4) == "LOWER_GENERATION"
    (held,) = book.owners.values()
    assert (held.session, held.generation, list(held.deposed)) == ("e", 5, ["a", "b", "c", "d"])


def test_what_is_let_go_of_begins_at_1_again() -> None:
    book = new_book()
    assert [generation(book, session, 5) for session in "abc"] == [1, 5, 6]
    book.apply(book.release(book.keys_of_session("c")), 0.0)
    assert generation(book, "d", None) == 1


def test_fencing_deposes_the_holder_and_whoever_waits() -> None:
    book = new_book()
    ask(book, request("a", wish("x")))
    waiting = request("b", wish("x"), wish("y"), mode=control.WAIT_FOR_EXCLUSIVE)
    ask(book, waiting)
    verdict, effects = ask(book, request("c", wish("x"), mode=control.EXCLUSIVE_WITH_FENCING))
    assert verdict.ownerships[0].generation == 2
    assert [claim.session for _, claim in effects.lost] == ["a"]
    assert [place.request for place in effects.evicted] == [waiting]
    assert not book.places
    assert not list(book.queue(wish("y").key))


def test_a_refusal_says_who_owns_it() -> None:
    book = new_book()
    ask(book, request("conn:1", wish("x"), named="billing"))
    (answer,) = ask(book, request("conn:2", wish("x")))[0].ownerships
    assert (answer.error, answer.owner_name, answer.owner_session) == (control.HELD, "billing", "conn:1")
    assert (answer.generation, answer.since_ms, answer.serving_node) == (1, 7, 1)
    assert answer.message == "billing owns it (generation 1)"


def test_nothing_is_granted_unless_everything_can_be() -> None:
    book = new_book()
    ask(book, request("a", wish("x")))
    mixed = request("b", wish("free"), wish("x"), mode=control.EXCLUSIVE)
    assert [each.error for each in ask(book, mixed)[0].ownerships] == [control.NONE, control.HELD]
    lower = request("b", wish("free"), wish("x", 3), wish("y"), mode=control.EXCLUSIVE)
    assert ask(book, lower)[0].decision is Decision.GRANT
    refused = request("c", wish("x", 1), wish("new"), mode=control.WAIT_FOR_EXCLUSIVE)
    assert ask(book, refused)[0].decision is Decision.REFUSE
    assert not book.places


def test_nobody_overtakes_on_what_an_earlier_one_waits_for() -> None:
    book = new_book()
    ask(book, request("a", wish("x")))
    both = request("b", wish("x"), wish("y"), mode=control.WAIT_FOR_EXCLUSIVE)
    ask(book, both)
    later = request("c", wish("y"), mode=control.WAIT_FOR_EXCLUSIVE)
    assert ask(book, later)[0].decision is Decision.WAIT
    assert generation(book, "d", None, "y") == "HELD"
    effects = book.apply(book.release(book.keys_of_session("a")), 1.0)
    assert [place.request for place in effects.ready] == [both]
    assert ask(book, later)[0].decision is Decision.WAIT
    _, effects = ask(book, both)
    assert not effects.ready
    effects = book.apply(book.release([wish("y").key]), 2.0)
    assert [place.request for place in effects.ready] == [later]


def test_a_topic_overlaps_with_its_partitions_in_one_group() -> None:
    book = new_book()
    ask(book, request("a", wish(0)))
    ask(book, request("b", wish(1)))
    assert generation(book, "c", None, -1) == "HELD"
    whole = request("c", wish(-1), mode=control.EXCLUSIVE_WITH_FENCING)
    _, effects = ask(book, whole)
    assert {claim.session for _, claim in effects.lost} == {"a", "b"}
    assert set(book.owners) == {wish(-1).key}
    assert generation(book, "a", None, 1) == "HELD"
    assert generation(book, "c", None, 1) == 2  # it has it by the whole topic
    assert generation(book, "a", 9, 1) == 9
    assert set(book.owners) == {wish(1).key}


def test_the_same_token_never_claims_twice() -> None:
    book = new_book()
    first = request("a", wish("x"), wish("y"), mode=control.EXCLUSIVE_WITH_FENCING)
    ask(book, first)
    again = ask(book, first)[0]
    assert [each.generation for each in again.ownerships] == [1, 1]
    assert not book.grant(first, again, 8, "")
    assert generation(book, "b", 1) == 2
    assert [each.error for each in ask(book, first)[0].ownerships] == [control.DEPOSED, control.NONE]


def test_a_place_is_kept_for_5_s_after_it_was_asked_for_and_after_its_turn_came() -> None:
    book = new_book()
    ask(book, request("a", wish("x")))
    waiting = request("b", wish("x"), mode=control.WAIT_FOR_EXCLUSIVE)
    place, _ = book.wait(waiting, 100.0, 7)
    assert book.lapsed(100.0 + KEPT_S - 0.1) == []
    book.apply(book.release(book.keys_of_session("a")), 104.0)
    assert book.lapsed(104.0 + KEPT_S - 0.1) == []
    place.attended = 1
    assert book.lapsed(1000.0) == []
    place.attended = 0
    assert book.lapsed(104.0 + KEPT_S) == [waiting.token]


def test_queues_claims_and_places_are_bounded() -> None:
    book = new_book(queue_limit=1, claims_limit=2, places_limit=2)
    ask(book, request("a", wish("x")))
    ask(book, request("b", wish("x"), mode=control.WAIT_FOR_EXCLUSIVE))
    for session, *wishes in (("c", wish("x")), ("d", wish("x"), wish("y")), ("e", wish("z"), wish("y"), wish("w"))):
        asked = request(session, *wishes, mode=control.WAIT_FOR_EXCLUSIVE)
        verdict = ask(book, asked)[0]
        assert verdict.decision is Decision.REFUSE
        assert control.QUEUE_FULL in [each.error for each in verdict.ownerships]
    assert generation(book, "f", None, "y") == 1
    ask(book, request("a", wish("x")))
    full = ask(book, request("g", wish("q"), wish("y"), mode=control.WAIT_FOR_EXCLUSIVE))[0]
    assert "2 places" in full.ownerships[0].message


def test_the_newest_names_of_those_deposed_are_kept() -> None:
    book = new_book()
    for number in range(DEPOSED_NAMES + 5):
        ask(book, request(f"s{number}", wish("x"), mode=control.EXCLUSIVE_WITH_FENCING))
    (held,) = book.owners.values()
    assert list(held.deposed) == [f"s{number}" for number in range(4, DEPOSED_NAMES + 4)]


def test_what_cannot_be_asked_is_refused_with_a_reason() -> None:
    for asked, reason in (
        (request("a", wish("x"), mode=control.SHARED), "SHARED"),
        (request("a"), "claims nothing"),
        (request("a", wish("x"), wish("x")), "twice"),
    ):
        verdict = ask(new_book(), asked)[0]
        assert verdict.decision is Decision.REFUSE
        assert all(each.error == control.INVALID_REQUEST and reason in each.message for each in verdict.ownerships)
