"""What is reported once a topic has changed hands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sidecar.changelog import SlotName
from sidecar.changelog.view import View
from sidecar.exclusive.ownership_events import OwnershipEvents
from sidecar.exclusive.slots import SlotScope


async def test_a_generation_that_the_view_does_not_have_yet_is_reported() -> None:
    reported: list[int] = []

    def owner_changed(_topic: str, generation: int, _owner: str | None, _mode: str | None) -> None:
        reported.append(generation)

    hooks = SimpleNamespace(owner_changed=owner_changed)
    services = SimpleNamespace(changelog=SimpleNamespace(view=View()))
    events = OwnershipEvents(cast(Any, services), cast(Any, None), cast(Any, hooks))
    owner = SimpleNamespace(generation=7, holder=None, current=None)
    events.report_again(
        cast(Any, SimpleNamespace(name="orders", scope=SlotScope("orders", SlotName("p/3")), owner=owner))
    )
    await asyncio.sleep(0)
    assert reported == [7]
