"""What settings say of clients' work, as it reaches the process, and what metrics show of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.network.aside import Allowance
from sidecar.network.slices import in_slices
from sidecar.node.limits import bound_work, count_logins
from sidecar.protocol.limits import BOUNDS
from sidecar.settings import load
from sidecar.telemetry.hooks import NodeMetrics

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


@pytest.fixture
def metrics() -> Iterator[NodeMetrics]:
    """Of a node whose bounds are the process's until the test ends."""
    try:
        yield NodeMetrics({}, "1")
    finally:
        BOUNDS.move()


def test_settings_of_a_node_become_the_bounds_of_its_process(metrics: NodeMetrics) -> None:
    bound_work(load(), metrics)
    assert (BOUNDS.elements, BOUNDS.turn, BOUNDS.opened_a_second) == (110_000, 256, 128 * 1024 * 1024)
    wanted = replace(load(), max_request_elements=2_000, turn_elements=32, decompression_byte_rate=2**20)
    bound_work(wanted, metrics)
    assert (BOUNDS.elements, BOUNDS.turn, BOUNDS.opened_a_second) == (2_000, 32, 2**20)


async def test_what_is_opened_and_what_waits_for_that_is_counted(metrics: NodeMetrics) -> None:
    bound_work(replace(load(), decompression_byte_rate=2**30), metrics)
    before = {name: read() for name, read in metrics.counts.items()}
    allowance = Allowance()
    async with allowance:
        allowance.spend(2**30 + 2**20)  # a thousandth of a second too much
    async with allowance:
        pass
    assert metrics.counts["decompressed_bytes"]() - before["decompressed_bytes"] == 2**30 + 2**20
    assert 0 < metrics.counts["decompression_wait_seconds"]() - before["decompression_wait_seconds"] <= 0.001


async def test_slices_are_counted(metrics: NodeMetrics) -> None:
    def work() -> Generator[None, None, int]:
        for _ in range(3):
            yield
        return 7

    bound_work(load(), metrics)
    before = metrics.counts["slices"]()
    assert await asyncio.wait_for(in_slices(work()), 5) == 7
    assert metrics.counts["slices"]() - before == 3


def test_logins_of_all_listeners_are_counted(metrics: NodeMetrics) -> None:
    def listener(under_way: int, waiting: int) -> Any:
        return SimpleNamespace(
            logins=SimpleNamespace(authenticator=SimpleNamespace(under_way=under_way, waiting=waiting))
        )

    count_logins([listener(3, 20), SimpleNamespace(logins=None), listener(1, 0)], metrics)  # pyright: ignore[reportArgumentType]
    assert (metrics.gauges["logins_under_way"](), metrics.gauges["logins_waiting"]()) == (4, 20)
