"""Lists are filtered and sorted, and the address says how; the feed follows what is on the screen."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from sidecar.client.sync import ExclusiveProducer
from tests.kafka.exclusive.producers import RawProducer
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import Visit
from tests.slow.page.test_access import faults, settle
from tests.slow.page.test_sections import cell, fact, row


def test_a_list_is_sorted_by_the_heading_of_a_column(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/topics?contains={cluster.suffix}")
    rows = page.locator("main tbody th")
    expect(rows.first).to_be_visible()
    names = rows.all_text_contents()
    assert names == sorted(names)
    heading = page.get_by_role("button", name="Topic", exact=True)
    header = page.locator("main thead th").first
    heading.click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    heading.focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(heading).to_be_focused()
    assert rows.all_text_contents() == sorted(names, reverse=True)
    expect(page).to_have_url(re.compile("sort=-Topic"))
    page.reload()
    expect(rows).to_have_text(sorted(names, reverse=True))
    heading.click()
    expect(header).not_to_have_attribute("aria-sort", re.compile("."))
    expect(page).to_have_url(re.compile(f"contains={cluster.suffix}$"))


def test_what_has_no_value_comes_last_and_numbers_go_by_their_size(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    items = [
        {
            "name": f"s{lag}",
            "source": "x",
            "allow": [],
            "created": "2026-01-31T12:00:00Z",
            "state": "open",
            "reason": None,
        }
        for lag in (9, 100, 20)
    ]
    missing = {**items[0], "name": "away"}
    page.route(
        "**/v1/shadows?*", lambda route: route.fulfill(json={"items": [missing, *items], "next_page_token": None})
    )
    page.route(
        re.compile("/v1/shadows/s[0-9]+$"),
        lambda route: route.fulfill(
            json={"stats": {"total_lag": int(route.request.url.rpartition("/s")[2]), "readers": 0, "bytes": 0}}
        ),
    )
    page.route("**/v1/shadows/away", lambda route: route.fulfill(status=409, json={"message": "closed"}))
    page.goto(f"{cluster.url}#/shadows?sort=-Lag")
    expect(page.locator("main tbody th")).to_have_text(["s100", "s20", "s9", "away"])
    page.goto(f"{cluster.url}#/shadows?sort=Lag")
    expect(page.locator("main tbody th")).to_have_text(["s9", "s20", "s100", "away"])


def test_filters_stand_in_the_address_and_the_way_back_leads_to_them(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/topics?contains={cluster.name('click')}&governed=false")
    expect(page.get_by_label("Filter by name")).to_have_value(cluster.name("click"))
    page.get_by_label("Filter by name").fill(cluster.name("clicks"))
    expect(page).to_have_url(re.compile(f"contains={cluster.name('clicks')}&governed=false"))
    kept = page.url
    page.locator("main").get_by_role("link", name=cluster.name("clicks"), exact=True).click()
    expect(page).to_have_title(re.compile(rf"^{cluster.name('clicks')} · Node 1 · .* · Kafka sidecar$"))
    page.get_by_role("link", name="← Topics").click()
    assert page.url == kept
    expect(page.get_by_label("Filter by name")).to_have_value(cluster.name("clicks"))
    expect(page.get_by_label("governed only")).not_to_be_checked()
    expect(page).to_have_title(re.compile("^Topics · Node 1"))
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(page.get_by_label("Filter by name")).to_have_value("")
    expect(page.get_by_label("governed only")).to_be_checked()


def test_a_shared_topic_does_not_say_that_nobody_owns_it(visit: Visit, cluster: Cluster) -> None:
    shared = cluster.name("audit.trail")
    page = visit(f"{cluster.url}#/topics?contains={shared}")
    expect(cell(page, shared, "Owner")).to_have_text("none: every client may write")
    page.locator("main").get_by_role("link", name=shared).click()
    expect(fact(page, "Owner").first).to_have_text("none: every client may write")


def test_beside_a_topic_the_feed_shows_its_own_events(visit: Visit, cluster: Cluster) -> None:
    ledger = cluster.name("ledger")
    page = visit(f"{cluster.url}#/topics/{ledger}")
    shown = page.locator("#feed li:not([hidden])")
    expect(shown.filter(has_text="deposed ledger-1")).to_have_count(1)
    expect(shown.filter(has_not_text=ledger)).to_have_count(0)
    expect(page.locator("#feed-only")).to_have_text(f"Only events of {ledger}.")
    page.get_by_role("button", name="Show all").click()
    expect(shown.filter(has_text=cluster.name("orders")).first).to_be_visible()
    page.get_by_role("button", name="Show its own").click()
    expect(shown.filter(has_not_text=ledger)).to_have_count(0)
    page.goto(f"{cluster.url}#/topics/{cluster.name('clicks')}")
    expect(page.locator("#feed-none")).to_have_text(f"The newest 100 events have none of {cluster.name('clicks')}.")
    page.get_by_role("link", name="Settings").click()
    expect(shown.filter(has_text=ledger).first).to_be_visible()
    expect(page.locator("#feed-of")).to_be_hidden()


def test_on_a_phone_the_feed_is_folded_until_somebody_asks_for_it(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url, width=400)
    settle(page, "topics")
    expect(page.locator("#feed-log")).to_be_hidden()
    fold = page.get_by_role("button", name="Show", exact=True)
    expect(fold).to_have_attribute("aria-expanded", "false")
    fold.click()
    expect(page.locator("#feed-log")).to_be_visible()
    expect(page.get_by_role("button", name="Hide")).to_have_attribute("aria-expanded", "true")
    page.get_by_label("Sort by").first.select_option("-Topic")
    expect(page).to_have_url(re.compile("sort=-Topic"))
    assert faults(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(page.locator("#feed-fold")).to_be_hidden()
    expect(page.locator("#feed-log")).to_be_visible()


def test_connections_stand_together_by_name_and_software(visit: Visit, cluster: Cluster) -> None:
    """Of the node that is asked; a client of the SDK and one of librdkafka among them."""
    topic = cluster.govern(cluster.name("together"), access_mode="shared")
    node = cluster.nodes[0]
    pair = [cluster.producers.enter_context(RawProducer(node.bootstrap, "twin")) for _ in range(2)]
    for each in pair:
        each.initialise()
    page = visit(f"{cluster.url}#/clients")
    expect(row(page, "twin")).to_have_count(2)
    for column, lines in (("Principal", 2), ("Listener", 1)):  # no line ends within ANONYMOUS or PLAINTEXT
        name = cell(page, "twin", column).first.locator(".name")
        assert name.evaluate("each => new Set([...each.getClientRects()].map(({top}) => top)).size") <= lines, column
    page.get_by_label("together by name, software and principal").check()
    expect(row(page, "twin")).to_have_count(1)
    expect(cell(page, "twin", "Address")).to_have_text("2 connections")
    expect(page).to_have_url(re.compile("together=true"))
    with ExclusiveProducer(cluster.bootstrap, topic=topic, name="of-the-sdk") as producer:
        producer.send(b"1")
        page = visit(f"{cluster.page_of(topic)}#/clients?together=true")
        expect(row(page, "of-the-sdk").first).to_be_visible()
    page = visit(f"{cluster.page_of(cluster.name('payments'))}#/clients?together=true")
    expect(cell(page, "settlement-b", "Software")).to_contain_text("rdkafka")


def test_what_is_grouped_is_no_more_than_a_page_and_the_view_says_so(visit: Visit, cluster: Cluster) -> None:
    client = {"client_id": "c", "name": "c", "mode": None, "software_name": "s", "software_version": "1"}
    flow = {"since": "2026-01-31T12:00:00Z", "requests": 1, "bytes_in": 2, "bytes_out": 3, "in_flight": 0}
    items = [{**client, **flow, "address": f"127.0.0.1:{port}"} for port in range(1_000)]
    page = visit(cluster.url)
    page.route("**/v1/clients?*", lambda route: route.fulfill(json={"items": items, "next_page_token": "7"}))
    with page.expect_request(lambda request: "/v1/clients?" in request.url) as asked:
        page.goto(f"{cluster.url}#/clients?together=true")
    assert "page_size=1000" in asked.value.url
    assert "together" not in asked.value.url
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(cell(page, "c", "Requests")).to_have_text("1,000")
    expect(page.locator("main")).to_contain_text("These are 1,000 connections; the others are on the next page.")
