"""Tries end at the deadline and say why; a broker that failed is left alone."""

from __future__ import annotations

import random

import pytest

from sidecar.network.backoff import ReconnectBackoff, Retry, RetryTimeoutError


async def test_the_deadline_is_for_all_tries_together_and_names_the_last_reason() -> None:
    retry = Retry("a fence", 0.05, first=0.001, ceiling=0.004)
    tries = 0

    async def try_for_ever() -> None:
        nonlocal tries
        while True:
            tries += 1
            await retry.pause(f"reason {tries}")

    with pytest.raises(RetryTimeoutError, match=r"a fence: not done within 0\.05 s, last: reason ") as ended:
        await try_for_ever()
    assert tries > 5
    assert str(ended.value).endswith(f"reason {tries}")
    assert retry.remaining < 0.004


async def test_pauses_grow_to_the_ceiling_and_are_short_again_after_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note(delay: float) -> None:
        pauses.append(delay)

    monkeypatch.setattr("sidecar.network.backoff.asyncio.sleep", note)
    retry = Retry("a fence", 1_000.0, first=0.01, ceiling=0.1, rng=random.Random(1))
    for _ in range(8):
        await retry.pause("")
    retry.progressed()
    await retry.pause("")
    longest = [0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1, 0.1, 0.01]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, longest, strict=True))


def test_a_broker_is_left_alone_longer_with_each_failure_never_for_long_and_never_in_step() -> None:
    waits: list[list[float]] = []
    for seed in range(20):
        backoff = ReconnectBackoff(random.Random(seed))
        row: list[float] = []
        for _ in range(12):
            backoff.failed(100.0)
            row.append(backoff.not_before - 100.0)
        waits.append(row)
    for failures in range(12):
        ceiling = min(2.0, 0.05 * 2**failures)
        found = [row[failures] for row in waits]
        assert all(ceiling / 2 <= wait <= ceiling for wait in found)
        assert len(set(found)) > 15
