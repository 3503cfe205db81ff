"""A node holds Kafka's client quotas for what it sends in its own name, by a virtual clock."""

from __future__ import annotations

import pytest

from tests.sim.metered import QUOTA, SECONDS, run

_FREE = 5 * QUOTA * SECONDS
"""A client without a quota gets more than this."""
_MOST = QUOTA * (SECONDS + 12)
"""What Kafka's rules let through: the quota, and once the 10 s of the windows before, to the nearest request."""


@pytest.mark.parametrize("part", ["governed", "unanswered"])
def test_clients_write_no_more_than_their_quota_to_governed_topics(part: str) -> None:
    got = run(part)
    assert QUOTA * SECONDS / 2 < got["slow"].size < _MOST
    assert got["free"].size > _FREE
    assert not got["slow"].errors
    if part == "governed":
        assert got["slow"].throttle_ms > 0
        assert got["free"].throttle_ms == 0


def test_a_quota_of_the_settings_holds_without_answers_too() -> None:
    assert QUOTA * SECONDS / 2 < run("ordinary")["slow"].size < _MOST


def test_a_client_writes_on_without_limit_if_the_setting_is_off() -> None:
    """What a node did before it knew of quotas."""
    got = run("governed-off")
    assert got["slow"].size > _FREE
    assert got["slow"].throttle_ms == 0


def test_readers_that_share_polls_wait_as_kafka_would_have_them() -> None:
    """Each by itself: the default quota is one for each client id. One that fell behind reads under its own name."""
    got, free = run("readers"), run("readers-off")
    for number in range(4):
        name = f"reader-{number}"
        assert got[name].throttle_ms > 0
        assert not got[name].errors
        assert free[name].throttle_ms == 0
        assert got[name].answers < free[name].answers / 2
    assert got["writer"].throttle_ms == 0


def test_a_quota_that_is_set_or_removed_holds_for_clients_that_are_connected() -> None:
    got = run("later")
    assert got["limited"].size < QUOTA * SECONDS * 1.5
    assert got["free again"].size > _FREE
    assert not got["slow"].errors


def test_a_node_that_may_not_see_quotas_reports_it_and_serves() -> None:
    got = run("unreadable")
    assert got["slow"].logged
    assert got["slow"].size > _FREE
    assert not got["slow"].errors
