"""Answers of a registry under other names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.admin.schema_answers import BadAnswerError, Listing, items, renamed, subject_of, under
from sidecar.shadow.subjects import Claim, Subject

CLAIM = Claim(Subject("", "orders-audit-value"), "orders-audit", "orders")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_the_subject_is_told_as_it_was_asked_for_and_all_else_stays() -> None:
    found = {
        "subject": "orders-value",
        "id": 1,
        "schema": '{"subject": "orders-value"}',
        "references": [{"subject": "orders-value"}],
    }
    assert json.loads(renamed(json.dumps(found).encode(), CLAIM)) == {**found, "subject": "orders-audit-value"}


@pytest.mark.parametrize("body", [b'{ "compatibilityLevel" : "FULL" }', b"[1, 2]", b'{"subject": 7}', b"3", b'"x"'])
def test_what_carries_no_subject_stays_to_the_byte(body: bytes) -> None:
    assert renamed(body, CLAIM) == body


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_told(body: bytes) -> None:
    with pytest.raises(BadAnswerError):
        renamed(body, CLAIM)
    with pytest.raises(BadAnswerError):
        list(items(body))


@pytest.mark.parametrize("body", [b"{}", b"[1", b"[1 2]", b"[1,]", b"[,1]", b"[", b"1"])
def test_what_is_no_list_is_told(body: bytes) -> None:
    with pytest.raises(BadAnswerError):
        list(items(body))


@given(st.lists(JSON), st.sampled_from([None, 1, "\t"]))
def test_items_are_those_of_the_list(found: list[Any], indent: int | str | None) -> None:
    assert list(items(json.dumps(found, indent=indent).encode())) == found


@given(st.lists(JSON, unique_by=json.dumps), st.integers(0, 4), st.integers(0, 4))
def test_a_list_holds_each_item_once_and_a_page_of_them(found: list[Any], offset: int, most: int) -> None:
    listing = Listing(1 << 20, offset, most)
    for item in [*found, *found]:
        listing.add(item)
    assert json.loads(listing.body()) == found[offset : offset + most if most else None]


def test_a_list_has_a_bound() -> None:
    listing = Listing(20)
    listing.add("x" * 10)
    with pytest.raises(BadAnswerError, match="subjectPrefix"):
        listing.add("y" * 10)


def test_items_carry_subjects_in_two_ways() -> None:
    assert [subject_of(item) for item in ("a", {"subject": "b", "version": 1}, {"id": 1}, 7, {"subject": None})] == [
        *("a", "b"),
        *(None, None, None),
    ]
    assert under("a", "x") == "x"
    assert under({"subject": "b", "version": 1}, "x") == {"subject": "x", "version": 1}


def test_odd_text_is_written_so_that_it_can_be_read() -> None:
    body = renamed(b'{"subject": "orders-value", "schema": "\\ud800"}', CLAIM)
    assert json.loads(body)["schema"] == "\ud800"
