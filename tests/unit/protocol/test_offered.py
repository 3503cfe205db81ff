"""Whatever a broker offers its clients has its row: served up to a version, or left out with a reason."""

from __future__ import annotations

import re

import pytest

from sidecar.gateway.apis.table import APIS, NEWEST, NOT_SERVED
from tests.offered import OFFERED, unnamed

_FROM_REPORTERS = {71, 72}


@pytest.mark.parametrize("version", OFFERED)
def test_all_that_a_broker_offers_is_named(version: str) -> None:
    assert unnamed(OFFERED[version]) == []


def test_an_api_and_a_version_that_a_later_kafka_adds_are_found() -> None:
    assert unnamed({3: 14, 32_000: 0, 18: 4}) == [(3, 14), (32_000, 0)]


def test_the_newest_versions_are_those_of_kafka_4_4() -> None:
    assert OFFERED["4.4.0"] | dict.fromkeys(_FROM_REPORTERS, 0) == NEWEST


def test_what_is_in_one_table_is_in_the_other() -> None:
    assert NEWEST.keys() == APIS.keys() | NOT_SERVED.keys()


@pytest.mark.parametrize("key", sorted(APIS), ids=[APIS[key].name for key in sorted(APIS)])
def test_a_row_says_why_no_newer_version_is_served(key: int) -> None:
    api = APIS[key]
    assert api.last <= NEWEST[key]
    if api.last < NEWEST[key]:
        assert re.search(rf"\b{api.last + 1}\b", api.reason), "say from which version on, and why"
        assert "newest known" not in api.reason.split(";")[0]
