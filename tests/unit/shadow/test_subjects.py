"""Whose a subject is, and what is read under it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.shadow.subjects import Claim, Related, Standing, Subject, claim, topics

SOURCES = {"orders-audit": "orders", "orders-audit-eu": "payments", "copy": "orders"}


def read_under(text: str, *existing: str, shadows: dict[str, str] = SOURCES) -> str | Standing | None:
    """The subject that is read; None where the subject is no shadow's."""
    found = claim(Subject.parse(text), shadows)
    if found is None:
        return None
    readable = dict.fromkeys((*existing, *shadows, *shadows.values()), True)
    standing = found.standing({name: readable[name] for name in found.questions if name in readable})
    return str(found.read) if standing is Standing.READABLE else standing


def test_both_strategies_that_name_topics_lead_to_the_source() -> None:
    assert read_under("orders-audit-value") == "orders-value"
    assert read_under("orders-audit-key") == "orders-key"
    assert read_under("orders-audit-com.example.Order") == "orders-com.example.Order"
    assert read_under("orders-audit") == "orders"


def test_what_is_not_behind_a_dash_is_no_shadows() -> None:
    for name in (
        "orders-value",
        "orders",
        "orders-auditors-value",
        "orders-audi",
        "copyvalue",
        "",
        "-",
        "com.example.Order",
    ):
        assert read_under(name) is None


def test_the_longest_shadow_wins() -> None:
    assert read_under("orders-audit-eu-value") == "payments-value"


def test_an_ordinary_topic_with_a_longer_name_wins() -> None:
    assert read_under("orders-audit-values-value", "orders-audit-values") is Standing.ORDINARY
    assert read_under("orders-audit-value-value", "orders-audit-value") is Standing.ORDINARY
    assert read_under("orders-audit-value", "orders-audit-value") is Standing.ORDINARY
    assert read_under("orders-audit-value", "orders-audit-values") == "orders-value"
    assert read_under("orders-audit-value", "audit-value", "order", "orders-aud") == "orders-value"


def test_a_subject_of_another_topic_is_not_read_through_a_shadow() -> None:
    """`orders-us-value` belongs to the topic `orders-us`."""
    assert read_under("orders-audit-us-value") == "orders-us-value"
    assert read_under("orders-audit-us-value", "orders-us") is Standing.FOREIGN


def test_a_shadow_whose_source_is_another_one_is_closed() -> None:
    found = claim(Subject.parse("orders-audit-value"), SOURCES)
    assert found is not None
    assert found.standing({"orders-audit": False, "orders": True}) is Standing.CLOSED
    assert found.standing({"orders": True}) is Standing.CLOSED
    assert found.standing({"orders-audit": False, "orders-audit-value": True}) is Standing.ORDINARY


def test_a_context_stays() -> None:
    assert read_under(":.eu:orders-audit-value") == ":.eu:orders-value"
    assert read_under(":.orders-audit-value") is None
    assert Subject.parse(":.eu:a:b") == Subject(":.eu:", "a:b")
    assert Subject.parse(":eu:a") == Subject("", ":eu:a")
    assert Subject("", "a").is_in(":.:")
    assert Subject(":.eu:", "a").is_in(":*:")
    assert not Subject(":.eu:", "a").is_in("")


def test_an_answer_is_told_under_the_name_that_was_asked_for() -> None:
    found = claim(Subject.parse("orders-audit-value"), SOURCES)
    assert found is not None
    assert found.back("orders-value") == "orders-audit-value"
    assert found.back(":.eu:orders-value") == ":.eu:orders-audit-value"
    assert found.back("orders-key") == "orders-key"


def shown(text: str, *existing: str) -> list[str]:
    related = Related(SOURCES)
    readable = dict.fromkeys([*related.names, *(name for name in existing if related.may_hide(name))], True)
    return [str(each) for each in related.shown(Subject.parse(text), readable)]


def test_every_shadow_of_a_source_shows_its_subjects() -> None:
    assert shown("orders-value") == ["orders-value", "orders-audit-value", "copy-value"]
    assert shown("orders-eu") == ["orders-eu", "copy-eu"]  # orders-audit-eu is another shadow
    assert shown("other-value") == ["other-value"]


def test_a_subject_that_was_registered_under_a_shadows_name_is_not_shown() -> None:
    assert shown("orders-audit-value") == []
    assert shown("orders-audit-value", "orders-audit-value") == ["orders-audit-value"]
    assert shown("orders-value", "orders-audit-value") == ["orders-value", "copy-value"]
    assert shown("orders-us-value", "orders-us") == ["orders-us-value"]


def test_a_long_name_gives_no_topic_that_cannot_be() -> None:
    found = topics("a-" * 10_000)
    assert len(found) == 125
    assert max(map(len, found)) == 249
    assert topics("a b-c") == []
    assert topics("a-b c") == ["a"]


WORDS = st.lists(st.sampled_from(["a", "b", "eu"]), min_size=1, max_size=4).map("-".join)
WORLDS = st.tuples(st.dictionaries(WORDS, WORDS, max_size=5), st.sets(WORDS, max_size=6))


def standing_of(found: Claim, shadows: dict[str, str], existing: set[str]) -> Standing:
    known = existing | shadows.keys() | set(shadows.values())
    return found.standing({name: True for name in found.questions if name in known})


@given(WORLDS, WORDS, st.sampled_from(["value", "key", "a.B"]))
def test_whose_a_subject_is_the_longest_name_says(
    world: tuple[dict[str, str], set[str]], topic: str, suffix: str
) -> None:
    shadows, existing = world
    text = f"{topic}-{suffix}"
    fitting = [
        name
        for name in shadows.keys() | existing | set(shadows.values())
        if text == name or text.startswith(f"{name}-")
    ]
    longest = max(fitting, key=len, default="")
    found = claim(Subject.parse(text), shadows)
    if longest not in shadows:
        assert found is None or standing_of(found, shadows, existing) is Standing.ORDINARY
    else:
        assert found is not None
        assert found.shadow == longest
        assert str(found.read) == shadows[longest] + text[len(longest) :]


@given(WORLDS, WORDS)
def test_a_list_shows_what_can_be_read_and_nothing_else(world: tuple[dict[str, str], set[str]], topic: str) -> None:
    shadows, existing = world
    subject = Subject.parse(f"{topic}-value")
    related = Related(shadows)
    readable = dict.fromkeys([*related.names, *(name for name in existing if related.may_hide(name))], True)
    shown_as = {str(each) for each in related.shown(subject, readable)} - {str(subject)}
    candidates = {shadow + rest for shadow in shadows for rest in _ends(subject.name)}
    read = set()
    for text in candidates:
        found = claim(Subject.parse(text), shadows)
        if found and found.read == subject and standing_of(found, shadows, existing) is Standing.READABLE:
            read.add(text)
    assert shown_as == read - {str(subject)}


def _ends(name: str) -> list[str]:
    return [name[index:] for index in range(len(name) + 1)]
