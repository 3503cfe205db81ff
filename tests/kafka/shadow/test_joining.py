"""A shadow made while a node starts: nobody waits for that one to know it, so it looks before it serves anybody."""

from __future__ import annotations

import asyncio
from typing import Any

from sidecar.node.node import Node
from tests.conftest import Unique
from tests.kafka.operation.two_nodes import HeldTailer, running
from tests.services import Services
from tests.topics import create_topic


async def test_a_node_that_joins_serves_nobody_before_it_knows_what_was_made_meanwhile(
    services: Services, unique: Unique
) -> None:
    """It would serve the shadow's own empty topic: its readers wait there, for as long as it takes."""
    cluster, shadow = unique("two"), unique("audit")
    source = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 1)
    async with running(services, cluster, 1) as first:

        def prepare(node: Node) -> None:
            heartbeat = node.store.heartbeat

            async def after_a_shadow_was_made(*args: Any) -> Any:
                assert node.rooms is not None
                node.store.heartbeat = heartbeat  # type: ignore[method-assign]
                held = HeldTailer(node.rooms.changelog.tailer)
                status, told = await first.call("POST", f"/v1/topics/{source}/shadows", {"name": shadow})
                assert status == 201, told
                going_on.append(asyncio.ensure_future(held.once_asked()))
                return await heartbeat(*args)

            node.store.heartbeat = after_a_shadow_was_made  # type: ignore[method-assign]

        going_on: list[asyncio.Future[None]] = []
        async with running(services, cluster, 2, prepared=prepare) as second:
            assert second.node.resolver.is_shadow(shadow.encode())
            for each in going_on:
                each.cancel()
