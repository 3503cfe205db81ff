"""Handlers of REST by themselves."""

import asyncio
import json

import pytest
from aiohttp.test_utils import make_mocked_request

from sidecar.admin import rest
from sidecar.admin.access import Rules
from sidecar.admin.passing_on import BEHIND, Passing
from sidecar.admin.rest import Rest
from sidecar.node.port import Topic, UnavailableError
from tests.unit.admin.paper_node import PaperNode

PASSING = Passing(lambda: Rules(None, None), None)


async def test_while_a_long_page_is_written_down_the_event_loop_goes_on():
    node = PaperNode(*(Topic(f"topic-{number:03}", 1) for number in range(300)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    answer = await Rest(node, PASSING).list_topics(make_mocked_request("GET", "/v1/topics"))
    running.cancel()
    assert turns >= 300 // 64
    assert len(json.loads(answer.text or "")["items"]) == 300


@pytest.mark.parametrize("hangs", [False, True])
async def test_while_the_ownership_topic_cannot_be_read_people_are_told_what_is_known_here(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = PaperNode(Topic("orders", 1, generation=7))
    monkeypatch.setattr(rest, "KNOWN_S", 0.01)

    async def behind() -> None:
        if hangs:
            await asyncio.Event().wait()
        raise UnavailableError("this node cannot read the ownership topic to its end now")

    one = make_mocked_request("GET", "/v1/topics/orders", match_info={"topic": "orders"})
    answer = await Rest(node, PASSING).get_topic(one)
    assert (answer.status, BEHIND in answer.headers) == (200, False)
    monkeypatch.setattr(node, "catch_up", behind)
    answer = await Rest(node, PASSING).get_topic(one)
    assert (answer.status, json.loads(answer.text or "")["generation"], answer.headers.get(BEHIND)) == (200, 7, "1")
    answer = await Rest(node, PASSING).list_topics(make_mocked_request("GET", "/v1/topics"))
    (found,) = json.loads(answer.text or "")["items"]
    assert (found["topic"], answer.headers.get(BEHIND)) == ("orders", "1")
