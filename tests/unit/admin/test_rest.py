"""Handlers of REST by themselves."""

import asyncio
import json

from aiohttp.test_utils import make_mocked_request

from sidecar.admin.rest import Rest
from sidecar.node.port import Topic
from tests.unit.admin.paper_node import PaperNode


async def test_while_a_long_page_is_written_down_the_event_loop_goes_on():
    node = PaperNode(*(Topic(f"topic-{number:03}", 1) for number in range(300)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    answer = await Rest(node).topics(make_mocked_request("GET", "/v1/topics"))
    running.cancel()
    assert turns >= 300 // 64
    assert len(json.loads(answer.text or "")["items"]) == 300
