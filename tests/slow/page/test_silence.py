"""The page while the node is away, slow or full, and while nobody looks."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from tests.conftest import StartNode
from tests.kafka.exclusive.test_events import opened
from tests.rest import Rest
from tests.services import Services
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import Visit, two_nodes
from tests.slow.page.test_sections import row
from tests.wait import wait_for

HIDE = """value => {
    Object.defineProperty(document, 'hidden', {value, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""
"""A headless tab is always in front: this says otherwise."""


def asked(page: Page) -> list[str]:
    """Every request from now on."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url))
    return found


def test_a_node_that_is_gone_is_told_with_the_age_of_what_is_shown_and_comes_back_by_itself(
    visit: Visit, node_process: StartNode
) -> None:
    node = node_process()
    page = visit(f"{node.admin_url}/")
    expect(page.locator("#feed-state")).to_have_text("live")
    expect(page.locator("#banner")).to_be_hidden()
    node.kill()
    expect(page.locator("#banner")).to_be_visible()
    expect(page.get_by_text("The node does not answer. The page tries again.")).to_be_visible()
    expect(page.locator("#banner-age")).to_have_text(re.compile(r"What you see is \d+ s old\."))
    expect(page.locator("#feed-state")).to_have_text("not live")
    node.start()
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#feed-state")).to_have_text("live")


def test_a_node_that_is_stopped_in_its_tracks_is_silent_too(visit: Visit, node_process: StartNode) -> None:
    node = node_process()
    page = visit(f"{node.admin_url}/")
    expect(page.locator("#feed-state")).to_have_text("live")
    node.pause()
    try:
        expect(page.locator("#banner")).to_be_visible(timeout=40_000)
        page.get_by_role("button", name="Try now").click()
    finally:
        node.resume()
    expect(page.locator("#banner")).to_be_hidden(timeout=40_000)


def test_what_a_node_lost_of_its_surroundings_is_told(visit: Visit, tmp_path: Path, services: Services) -> None:
    """A node on its way down of its Redis: here one that has never reached it."""
    with ExitStack() as running:
        node = two_nodes(tmp_path, services, running)[0]
        page = visit(f"{node.admin_url}/")
        refusal = {"name": "redis", "ok": False, "required": True, "detail": "connection refused"}

        def tell(route, request: Request) -> None:
            answer = route.fetch()
            told = answer.json()
            told.update(ready=False, checks=[*[each for each in told["checks"] if each["name"] != "redis"], refusal])
            route.fulfill(response=answer, json=told)

        page.route("**/v1/status", tell)
        strip = page.locator("#health")
        expect(strip.get_by_text("not ready")).to_be_visible()
        expect(strip.get_by_text("connection refused")).to_be_visible()
        expect(strip.get_by_text("failing")).to_be_visible()
        page.unroute("**/v1/status")
        expect(strip.get_by_text("serving")).to_be_visible()


def test_a_full_node_is_told_and_the_rest_goes_on(visit: Visit, node_process: StartNode, services: Services) -> None:
    node = node_process()
    alone = Cluster(services.kafka_bootstrap, [node])
    with ExitStack() as taken, alone.producers:
        for _ in range(8):
            taken.callback(opened(Rest(node.admin_url)).close)
        page = visit(f"{node.admin_url}/")
        expect(page.locator("#feed-state")).to_have_text("not live")
        expect(page.locator("#feed-why")).to_contain_text("8 streams of events are open already; close one first")
        expect(page.locator("#feed-why")).to_contain_text("tried again less often")
        topic = alone.govern(f"full-{node.cluster}", access_mode="exclusive")
        expect(row(page, topic)).to_be_visible()
        taken.close()
        wait_for(lambda: opened(Rest(node.admin_url)).close() is None, "a place", 20)
        page.evaluate(HIDE, True)
        page.evaluate(HIDE, False)  # who comes back does not wait for the next try
        expect(page.locator("#feed-state")).to_have_text("live")
        expect(page.locator("#feed li").filter(has_text=topic).first).to_contain_text("policy")


def test_a_page_that_nobody_looks_at_asks_nothing_and_goes_on_where_it_was(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    expect(page.locator("#feed-state")).to_have_text("live")
    expect(page.locator("#feed li").first).to_be_visible()
    page.evaluate(HIDE, True)
    page.wait_for_load_state("networkidle")
    requests = asked(page)
    topic = cluster.govern(cluster.name("meanwhile"), access_mode="exclusive")
    cluster.produce(topic, "while-away")
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 9000))")  # twice as long as any section waits
    assert requests == []
    page.evaluate(HIDE, False)
    newest = page.locator("#feed li").filter(has_text=topic)
    expect(newest.filter(has_text="claimed")).to_have_count(1)
    expect(newest.filter(has_text="policy")).to_have_count(1)
    expect(row(page, topic)).to_be_visible()
    assert any("events?from=" in url for url in requests)


@pytest.mark.parametrize("view", ["topics", "shadows", "clients"])
def test_one_request_at_a_time_is_under_way_for_each_resource(visit: Visit, cluster: Cluster, view: str) -> None:
    page = visit(cluster.url)
    under_way: set[Request] = set()
    most: dict[str, int] = {}

    def begins(request: Request) -> None:
        under_way.add(request)
        name = request.url.partition("?")[0]
        most[name] = max(most.get(name, 0), sum(each.url.partition("?")[0] == name for each in under_way))

    def ends(request: Request) -> None:
        under_way.discard(request)  # one that began before anybody counted is not there

    page.goto(f"{cluster.url}#/{view}")
    expect(page.locator("#feed-state")).to_have_text("live")
    page.on("request", begins)
    page.on("requestfinished", ends)
    page.on("requestfailed", ends)
    for number in range(12):  # whoever types quickly asks for more than can be answered at once
        page.evaluate("() => window.dispatchEvent(new HashChangeEvent('hashchange'))")
        if view == "topics":
            page.get_by_label("Filter by name").press_sequentially(str(number % 10), delay=0)

    def is_quiet() -> bool:
        """Whether something was asked, and all is answered but the stream of events, which never ends."""
        page.evaluate("() => new Promise(requestAnimationFrame)")  # what happened meanwhile is heard of
        return bool(most) and all("/v1/events" in request.url for request in under_way)

    wait_for(is_quiet, "the answers")
    assert {name: count for name, count in most.items() if count > 1} == {}


def test_errors_of_a_section_are_told_and_asked_about_less_often(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    expect(page.locator("main tbody tr").first).to_be_visible()
    broken = '{"error_code": 503, "message": "Kafka does not answer: refused"}'
    page.route("**/v1/topics?*", lambda route: route.fulfill(status=503, content_type="application/json", body=broken))
    expect(page.locator("main").get_by_role("alert")).to_have_text("Kafka does not answer: refused")
    assert page.locator("main tbody tr").count() > 0  # what was known stays
    page.unroute("**/v1/topics?*")
    expect(page.locator("main .problem")).to_be_empty()


def test_a_page_whose_scripts_do_not_load_says_so(visit: Visit, node_process: StartNode) -> None:
    page = visit(f"{node_process().admin_url}/")
    told = page.get_by_text("The scripts of this page did not load.")
    expect(page.locator("#feed-state")).to_have_text("live")
    expect(told).to_have_count(0)
    page.route("**/page/format.js", lambda route: route.abort())
    page.reload()
    expect(told).to_be_hidden()
    expect(told).to_be_visible()
