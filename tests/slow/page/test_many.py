"""A cluster with thousands of topics: one screen of them at a time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]
from playwright.sync_api import Response, expect

from tests.nodes import running_node
from tests.services import Services
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import Visit
from tests.slow.page.test_sections import row

pytestmark = pytest.mark.timeout(600)
TOPICS = 1_000
PAGE = 50


@pytest.fixture(scope="module")
def many(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node with a thousand governed topics, all by one prefix."""
    prefix = f"many-{uuid.uuid4().hex[:6]}-"
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    names = [f"{prefix}{number:04}" for number in range(TOPICS)]
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names], operation_timeout=60).values():
        made.result(250)
    with ExitStack() as running:
        node = running.enter_context(
            running_node(tmp_path_factory.mktemp("many"), services.kafka_bootstrap, services.redis_url)
        )
        found = Cluster(services.kafka_bootstrap, [node], suffix=prefix)
        assert found.call("PUT", f"/v1/topics/{prefix}*/policy", {"access_mode": "exclusive"})[0] == 200
        yield found
    for gone in admin.delete_topics(names, operation_timeout=60).values():
        gone.result(250)


def test_a_thousand_topics_are_leafed_through_and_found(visit: Visit, many: Cluster) -> None:
    page = visit(many.url)
    sizes: list[int] = []

    def came(answer: Response) -> None:
        if "/v1/topics?" in answer.url:
            sizes.append(len(answer.json()["items"]))

    page.on("response", came)
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(PAGE)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("Page 2", exact=True)).to_be_visible()
    expect(row(page, f"{many.suffix}0049")).to_be_visible()  # the prefix itself is the first of all
    expect(rows).to_have_count(PAGE)
    page.get_by_role("button", name="Previous").click()
    expect(row(page, f"{many.suffix}0000")).to_be_visible()
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_label("Filter by name").fill("-0731")
    expect(rows).to_have_count(1)
    expect(row(page, f"{many.suffix}0731")).to_be_visible()
    page.get_by_role("link", name=f"{many.suffix}0731").click()
    expect(page.get_by_role("heading", name=f"{many.suffix}0731")).to_be_focused()
    assert max(sizes) == PAGE


def test_the_last_page_is_the_rest(visit: Visit, many: Cluster) -> None:
    page = visit(many.url)
    page.get_by_label("Filter by name").fill(f"{many.suffix}09")
    expect(page.get_by_text("Page 1", exact=True)).to_be_visible()
    expect(row(page, f"{many.suffix}0900")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(row(page, f"{many.suffix}0999")).to_be_visible()
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    expect(page.locator("main tbody tr")).to_have_count(PAGE)
