"""SASLprep: the examples of RFC 4013, 3, and what holds for all texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.security.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_the_examples_of_the_rfc(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\u0007", "not allowed"),
        ("\u0627\u0031", "from right to left"),
        ("\u0627a\u0627", "both directions"),
        ("\u0221", "not assigned"),
    ],
)
def test_what_the_rfc_forbids_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        saslprep(text)


@given(st.text())
def test_what_is_prepared_stays_as_it_is(text: str) -> None:
    try:
        prepared = saslprep(text)
    except ValueError:
        return
    assert saslprep(prepared) == prepared


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_printable_ascii_is_prepared_already(text: str) -> None:
    assert saslprep(text) == text
