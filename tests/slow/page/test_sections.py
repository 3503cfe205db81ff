"""Every section shows what the cluster really is, and follows it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import Visit
from tests.wait import wait_for

WAITS = 7
NO_LONG_TIMERS = """
const timer = window.setTimeout;
window.setTimeout = (run, ms, ...more) => ms < 1000 ? timer(run, ms, ...more) : 0;
"""


def row(page: Page, name: str) -> Locator:
    """The row of the main part that is named so."""
    return page.locator("main tbody tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def cell(page: Page, name: str, column: str) -> Locator:
    return row(page, name).locator(f"td[data-label='{column}']")


def fact(page: Page, name: str) -> Locator:
    """The value of a fact in the main part, or of a field of the strip at the top."""
    return page.locator("dl > div").filter(has=page.locator("dt", has_text=name)).locator("dd").first


def test_the_strip_tells_state_checks_nodes_and_version(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    status = cluster.call("GET", "/v1/status")[1]
    expect(fact(page, "State")).to_have_text("serving")
    for check in ("kafka", "redis", "changelog"):
        expect(fact(page, check)).to_have_text("ok")
    expect(fact(page, "Live nodes")).to_have_text("2 (1, 2)")
    expect(fact(page, "Version")).to_have_text(status["version"])
    expect(fact(page, "Governed")).to_have_text(str(status["governed_topics"]))
    expect(page.locator("#place")).to_contain_text(f"node 1 of cluster {status['cluster']}")


def test_the_topics_have_owner_generation_age_and_queue(visit: Visit, cluster: Cluster) -> None:
    payments, ledger = cluster.name("payments"), cluster.name("ledger")
    page = visit(cluster.page_of(payments))
    expect(cell(page, payments, "Owner")).to_contain_text("settlement-a pid:")
    expect(cell(page, payments, "Waiting")).to_have_text("2")
    expect(cell(page, payments, "Access")).to_have_text("wait for exclusive")
    page = visit(cluster.page_of(ledger))
    expect(cell(page, ledger, "Owner")).to_contain_text("ledger-2")
    expect(cell(page, ledger, "Generation")).to_have_text("2")
    since = cluster.topic(ledger)["owner"]["since"]
    expect(cell(page, ledger, "Since").locator("time")).to_have_attribute("datetime", since)
    expect(cell(page, cluster.name("shipments"), "Owner")).to_have_text("3 of 6 partitions owned")
    expect(cell(page, ledger, "Served by")).to_have_text(f"node {cluster.topic(ledger)['serving_node']}")


def test_only_governed_topics_are_listed_until_all_are_asked_for(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    clicks = cluster.name("clicks")
    page.get_by_label("Filter by name").fill(clicks)
    expect(page.get_by_text(f"No governed topic has “{clicks}” in its name.")).to_be_visible()
    page.get_by_label("governed only").uncheck()
    expect(cell(page, clicks, "Access")).to_have_text("not governed")
    page.get_by_label("Filter by name").fill(clicks.upper())
    expect(row(page, clicks)).to_have_count(1)
    expect(row(page, cluster.name("orders"))).to_have_count(0)


def test_a_topic_shows_its_queue_in_order(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.page_of(cluster.name('payments'))}#/topics/{cluster.name('payments')}")
    expect(page.get_by_role("heading", name=cluster.name("payments"))).to_be_visible()
    waiting = page.get_by_role("table", name="Waiting")
    expect(waiting.get_by_role("rowheader")).to_have_text(["settlement-b", "settlement-c"])
    expect(fact(page, "Owner")).to_contain_text("settlement-a")
    expect(fact(page, "Mode of the owner")).to_have_text("wait for exclusive")


@pytest.mark.parametrize("node", [0, 1])
def test_last_ids_are_shown_whichever_node_serves_the_topic(visit: Visit, cluster: Cluster, node: int) -> None:
    page = visit(f"{cluster.nodes[node].admin_url}/#/topics/{cluster.name('inventory')}")
    expect(cell(page, "warehouse", "In all partitions")).to_have_text("236")
    expect(cell(page, "warehouse", "By partition").get_by_role("listitem")).to_have_text(
        ["0 236", "1 237", "2 238", "3 239"]
    )


def test_a_producer_without_ids_in_one_partition_has_none_in_all(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("halved"), partitions=2, access_mode="shared", deduplication=True)
    cluster.write_ids(topic, "half", range(3))
    page = visit(f"{cluster.page_of(topic)}#/topics/{topic}")
    expect(cell(page, "half", "In all partitions")).to_have_text("–")
    expect(cell(page, "half", "By partition").get_by_role("listitem")).to_have_text(["0 2"])


def test_owners_stand_by_partition_where_each_has_its_own(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/topics/{cluster.name('shipments')}")
    owners = page.get_by_role("table", name="Owners by partition")
    expect(owners.get_by_role("rowheader")).to_have_text(["0", "1", "2"])
    expect(cell(page, "1", "Owner")).to_contain_text("carrier-us pid:")
    expect(cell(page, "1", "Generation")).to_have_text("1")


def test_the_shadows_of_a_topic_stand_with_it(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/topics/{cluster.name('clicks')}")
    search = cluster.name("clicks-search")
    expect(cell(page, search, "Lag")).to_have_text("370")
    page.locator("main").get_by_role("link", name=search).click()
    expect(page.get_by_role("heading", name=search)).to_be_focused()
    assert page.url.endswith(f"#/shadows/{search}")


def test_shadows_stand_with_source_state_and_lag_as_bars(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/shadows")
    page.get_by_label("Filter by name or source").fill(cluster.suffix)
    search, fraud = cluster.name("clicks-search"), cluster.name("clicks-fraud")
    expect(cell(page, search, "Lag")).to_have_text("370")
    expect(cell(page, fraud, "Lag")).to_have_text("150")
    expect(cell(page, search, "Source")).to_have_text(cluster.name("clicks"))
    expect(cell(page, search, "State")).to_have_text("open")
    widths = [cell(page, each, "Lag").locator(".fill").evaluate("bar => bar.clientWidth") for each in (search, fraud)]
    whole = cell(page, search, "Lag").locator(".bar").evaluate("bar => bar.clientWidth")
    assert widths == [whole, pytest.approx(whole * 150 / 370, abs=1)]


def test_a_shadow_shows_the_cursor_of_each_group(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/shadows/{cluster.name('clicks-search')}")
    indexer = cluster.name("indexer")
    expect(cell(page, indexer, "Lag")).to_have_text("10")
    expect(cell(page, cluster.name("reindex"), "Lag")).to_have_text("360")
    expect(fact(page, "Lag of all groups")).to_have_text("370")
    cell(page, indexer, "Partitions").get_by_text("1 committed").click()
    expect(cell(page, indexer, "Partitions").get_by_role("listitem")).to_have_text(["0 390 of 400"])


def test_the_clients_of_the_node_are_listed(visit: Visit, cluster: Cluster) -> None:
    cluster.produce(cluster.govern(cluster.name("seen"), access_mode="exclusive"), "seen-by-all")
    pages = [visit(f"{node.admin_url}/#/clients") for node in cluster.nodes]
    wait_for(lambda: sum(row(page, "seen-by-all").count() for page in pages) == 1, "the client on its node", 20)


def test_the_settings_are_listed_with_their_origin_and_without_secrets(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/settings")
    expect(cell(page, "SIDECAR_LEASE_MS", "Value")).to_have_text("3000")
    expect(cell(page, "SIDECAR_LEASE_MS", "Comes from")).to_have_text("default")
    expect(cell(page, "SIDECAR_NODE_ID", "Comes from")).to_have_text("environment")
    assert cluster.token not in page.content()


def test_what_a_node_does_not_have_is_said(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    missing = '{"error_code": 404, "message": "there is nothing at /v1/clients"}'
    page.route("**/v1/clients*", lambda route: route.fulfill(status=404, content_type="application/json", body=missing))
    page.get_by_role("link", name="Clients").click()
    expect(page.get_by_text("This node has an older version, which does not list clients.")).to_be_visible()


@pytest.mark.parametrize(
    ("view", "asked", "item"),
    [
        ("clients", "clients", {"name": "{}", "mode": None, "software_name": None, "address": "{}", "since": None}),
        ("shadows/{}", "shadows/*/cursors", {"group": "{}", "state": "Empty", "members": 0, "lag": 1}),
    ],
)
def test_who_is_on_a_page_that_has_emptied_is_led_to_the_first(
    visit: Visit, cluster: Cluster, view: str, asked: str, item: dict[str, object]
) -> None:
    second = ["other"]

    def tell(route: Route) -> None:
        is_first = "page_token" not in route.request.url
        items = [
            {**{key: name if value == "{}" else value for key, value in item.items()}, "partitions": {}}
            for name in (["first"] if is_first else second)
        ]
        route.fulfill(json={"items": items, "next_page_token": "1" if is_first and second else None})

    page = visit(cluster.url)
    page.route(f"**/v1/{asked}?*", tell)
    page.goto(f"{cluster.url}#/{view.format(cluster.name('clicks-search'))}")
    expect(row(page, "first")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(row(page, "other")).to_be_visible()
    second.clear()
    expect(row(page, "first")).to_be_visible()
    expect(page.get_by_role("button", name="Next")).to_be_hidden()


def test_many_shadows_are_leafed_through_and_a_filter_begins_anew(visit: Visit, cluster: Cluster) -> None:
    shadow = {"source": "x", "allow": [], "created": "2026-01-31T12:00:00Z", "state": "open", "reason": None}
    items = [{"name": f"s{number:02}", "warning": None, **shadow} for number in range(45)]
    page = visit(cluster.url)
    page.route("**/v1/shadows?*", lambda route: route.fulfill(json={"items": items, "next_page_token": None}))
    page.goto(f"{cluster.url}#/shadows")
    expect(page.get_by_text("Page 1 of 3", exact=True)).to_be_visible()
    for _ in range(2):
        page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    assert page.locator("main tbody th").all_text_contents() == ["s40", "s41", "s42", "s43", "s44"]
    page.get_by_label("Filter by name or source").fill("s1")
    expect(row(page, "s10")).to_be_visible()
    expect(page.locator("main tbody tr")).to_have_count(10)
    expect(page.get_by_role("button", name="Next")).to_be_hidden()


def test_a_takeover_appears_in_the_feed_and_in_the_table_without_a_reload(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("takeover"), access_mode="exclusive_with_fencing")
    cluster.produce(topic, "before")
    page = visit(cluster.url)
    expect(page.locator("#feed-state")).to_have_text("live")
    expect(cell(page, topic, "Owner")).to_contain_text("before")
    page.evaluate("window.unmoved = true")
    cluster.produce(topic, "after")
    newest = page.locator("#feed li").filter(has_text=topic).first
    expect(newest).to_contain_text("claimed")
    expect(newest).to_contain_text("after · generation 2 · deposed before")
    expect(cell(page, topic, "Owner")).to_contain_text("after")
    expect(cell(page, topic, "Generation")).to_have_text("2")
    assert page.evaluate("window.unmoved")


def test_what_happens_is_read_at_once(visit: Visit, cluster: Cluster) -> None:
    """No section of this page ever reads by itself again: whatever changes in it, an event has brought."""
    topic = cluster.govern(cluster.name("at-once"), access_mode="exclusive_with_fencing")
    cluster.produce(topic, "before")
    page = visit(cluster.url, script=NO_LONG_TIMERS)
    expect(page.locator("#feed-state")).to_have_text("live")
    expect(cell(page, topic, "Owner")).to_contain_text("before")
    cluster.produce(topic, "after")
    expect(cell(page, topic, "Owner")).to_contain_text("after")
    page.locator("main").get_by_role("link", name=topic).click()
    expect(fact(page, "Owner").first).to_contain_text("after")
    cluster.produce(topic, "last")
    expect(fact(page, "Owner").first).to_contain_text("last")


def test_who_waits_for_several_partitions_stands_once_for_each(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("queued"), 3, access_mode="wait_for_exclusive", scope="partition")
    for partition in range(2):
        cluster.produce(topic, f"owner-{partition}", partition=partition)
    waiter = cluster.produce(topic, "waiter", partition=2)
    page = visit(f"{cluster.page_of(topic)}#/topics/{topic}")
    waiting = page.get_by_role("table", name="Waiting")
    for _ in range(3):  # whoever waits says so again and again
        for partition in range(2):
            assert waiter.send(topic, b"1", sequence=0, partition=partition).error == WAITS
        with page.expect_response(lambda answer: answer.url.endswith(topic)):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(waiting.locator("td[data-label=Partition]")).to_have_text(["0", "1"])
    expect(waiting.get_by_role("rowheader")).to_have_text(["waiter", "waiter"])


def test_the_feed_begins_with_what_has_happened_before(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    ledger = page.locator("#feed li").filter(has_text=cluster.name("ledger"))
    expect(ledger.first).to_contain_text("deposed ledger-1")
    ids = page.locator("#feed li").evaluate_all("all => all.map(each => each.dataset.event)")
    assert len(ids) == len(set(ids)) <= 100
