"""What operators are told of settings that delete fences early, and of readers that wait for a last record."""

from __future__ import annotations

import pytest

from sidecar.dedup.cleaning import Cleaning
from sidecar.exclusive.advice import read_by_offsets, unprotected, weak_fence
from sidecar.fencing.expiry import BROKER_DEFAULTS, keep_alive


def test_each_setting_below_the_floor_is_named_with_what_is_enough() -> None:
    terms = keep_alive(BROKER_DEFAULTS, {"delete.retention.ms": 100, "retention.ms": 86_400_000}, name="orders")
    said = weak_fence("orders", terms)
    assert said is not None
    for part in ("delete.retention.ms=100 of orders", "every 300 s", "1200000 ms"):
        assert part in said
    assert ", retention.ms" not in said


def test_usual_settings_are_no_reason_to_warn() -> None:
    assert weak_fence("orders", keep_alive(BROKER_DEFAULTS, {"retention.ms": 3_600_000}, name="orders")) is None


@pytest.mark.parametrize(
    "name",
    ["a.schema-history", "schemahistory.b", "dbhistory.c", "schema-changes.inventory", "history.inventory", "_schemas"],
)
def test_topics_that_are_read_up_to_the_last_record_are_found_by_their_names(name: str) -> None:
    said = read_by_offsets(["orders", name])
    assert said is not None
    assert said.startswith(f"{name}:")


@pytest.mark.parametrize("name", ["orders", "connect-offsets", "schemas.orders", "history", "order-history.eu"])
def test_others_are_not(name: str) -> None:
    assert read_by_offsets([name]) is None


def test_of_many_some_are_named() -> None:
    said = read_by_offsets([f"db{number}.schema-history" for number in range(9)])
    assert said is not None
    assert "and 4 more" in said


def test_topics_that_compaction_may_clean_too_soon_are_named_with_what_they_need() -> None:
    terms = {name: keep_alive(BROKER_DEFAULTS, {}, name=name) for name in ("ledger", "kept", "raised")}
    cleanings = {"ledger": Cleaning(lag_ms=1000), "kept": Cleaning(), "raised": Cleaning(lag_ms=86_400_000)}
    said = unprotected(cleanings, terms)
    assert said is not None
    assert said == (
        "compaction may take sequence ids of ledger (min.compaction.lag.ms 1000, needed 86400000) before a snapshot has"
        " them"
    )
    del cleanings["ledger"]
    assert unprotected(cleanings, terms) is None
