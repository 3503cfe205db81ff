from __future__ import annotations

import pytest

from sidecar.shadow.catalog import ENTRIES, EVERYBODY, PRINCIPAL_BYTES, checked, nobody_reads


def test_a_list_keeps_its_order_and_each_principal_once():
    assert checked(["User:b", "User:a", "User:b", "User:*"]) == ("User:b", "User:a", "User:*")
    assert checked([]) == ()


@pytest.mark.parametrize(
    "principal", ["", "billing", "User:", "user:a", "Group:a", "User:a\n", "User:\x00", "User:\ud800"]
)
def test_what_is_no_principal_is_refused_by_name(principal: str):
    with pytest.raises(ValueError, match="is no principal"):
        checked(["User:a", principal])


def test_the_bounds_are_taken_and_no_more():
    longest = "User:" + "é" * ((PRINCIPAL_BYTES - 5) // 2)
    assert checked([longest]) == (longest,)
    with pytest.raises(ValueError, match="too long"):
        checked([longest + "é"])
    full = [f"User:{number}" for number in range(ENTRIES)]
    assert len(checked(full)) == ENTRIES
    with pytest.raises(ValueError, match="1001 entries"):
        checked([*full, "User:a"])


def test_clients_without_names_are_anonymous_as_in_kafka():
    assert nobody_reads(EVERYBODY, authenticated=False) is None
    assert nobody_reads(["User:a", "User:ANONYMOUS"], authenticated=False) is None
    assert "User:ANONYMOUS" in (nobody_reads(["User:a"], authenticated=False) or "")
    assert nobody_reads(["User:a"], authenticated=True) is None
    assert all(nobody_reads([], authenticated=each) for each in (True, False))
