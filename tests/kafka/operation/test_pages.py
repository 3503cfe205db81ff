"""Lists that may be long come in pages: real nodes, the SDK and the command line read all of them."""

from __future__ import annotations

import json
from typing import Any

from sidecar.client import AdminClient
from tests.conftest import Unique
from tests.http.paper_cli import run as command
from tests.kafka.dedup.ids import IdProducer
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic


def pages(rest: Rest, path: str, size: int) -> list[list[str]]:
    """The names in each page."""
    found: list[list[str]] = []
    token: str | None = ""
    while token is not None:
        status, page = rest.call("GET", f"{path}?page_size={size}" + (f"&page_token={token}" if token else ""))
        assert status == 200, page
        found.append([each["name"] for each in page["items"]])
        token = page["next_page_token"]
        assert len(found) < 100, "no end"
    return found


def told(node: NodeProcess, *arguments: str) -> Any:
    return [each["name"] for each in json.loads(command("--admin-url", node.admin_url, *arguments, "-o", "json").out)]


async def test_shadows_come_in_pages_by_name_and_whoever_lists_them_gets_all(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique
) -> None:
    topic, other = (create_topic(services.kafka_bootstrap, 1) for _ in range(2))
    names = sorted(unique(f"shadow-{number}") for number in range(5))
    async with AdminClient(node.admin_url) as admin:
        for name in reversed(names):
            await admin.create_shadow(topic, name)
        of_other = (await admin.create_shadow(other, unique("shadow-of-another"))).name
        assert pages(rest, f"/v1/topics/{topic}/shadows", 2) == [names[:2], names[2:4], names[4:]]
        every = [name for page in pages(rest, "/v1/shadows", 2) for name in page]
        assert every == sorted(every)
        assert {*names, of_other} <= set(every)
        assert [each.name for each in await admin.shadows(topic)] == names
        first = rest.call("GET", f"/v1/topics/{topic}/shadows?page_size=2")[1]["next_page_token"]
        await admin.delete_shadow(topic, names[1])
        left = rest.call("GET", f"/v1/topics/{topic}/shadows?page_size=2&page_token={first}")[1]["items"]
        assert [each["name"] for each in left] == names[2:4], "the token stays good when its shadow is gone"
    assert told(node, "shadow", "list", topic) == [names[0], *names[2:]]
    assert rest.call("GET", f"/v1/topics/{unique('nowhere')}/shadows?page_size=2")[0] == 404


async def test_producer_names_come_in_pages_each_once_and_whoever_lists_them_gets_all(
    services: Services, node: NodeProcess, rest: Rest
) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    assert rest.call("PUT", f"/v1/topics/{topic}/policy", {"deduplication": True})[0] == 200
    names = {f"zähler/{number} +%" for number in range(120)}
    with IdProducer(node.bootstrap, "app") as writer:
        for number, name in enumerate(sorted(names)):
            assert writer.write(topic, 7, name=name.encode(), partition=number % 2).error == 0
        path = f"/v1/topics/{topic}/dedup"
        found = pages(rest, path, 50)
        assert [len(page) for page in found] == [50, 50, 20]
        listed = [name for page in found for name in page]
        assert (set(listed), len(listed)) == (names, len(names))
        first = rest.call("GET", f"{path}?page_size=50")[1]
        assert [each["name"] for each in first["items"]] == found[0], "the order stays while nobody writes"
    async with AdminClient(node.admin_url) as admin:
        assert [each.name for each in await admin.producers(topic, limit=1_000)] == listed
        assert [each.name for each in await admin.producers(topic, limit=7)] == listed[:7]
    assert told(node, "dedup", "show", topic) == listed
