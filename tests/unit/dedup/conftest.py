"""The world of `served.py`, in virtual time, for the tests that ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.dedup import partition, topic
from tests.unit.dedup.served import World, WorldLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Any]:
    return {"jump": WorldLoop} if "world" in getattr(item, "fixturenames", ()) else {"real": asyncio.new_event_loop}


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time)
    for module in (partition, topic):
        monkeypatch.setattr(module, "time", clock)
    made = World()
    yield made
    await made.close()
