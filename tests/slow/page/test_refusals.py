"""What a node refused its clients, for people whose client library hides the reason."""

from __future__ import annotations

from playwright.sync_api import Route, expect

from tests.kafka.exclusive.producers import RawProducer
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import Visit
from tests.slow.page.test_sections import cell, row

INVALID_REQUEST = 42
POLICY_VIOLATION = 44
REASON = (
    "Topic has an existing exclusive producer: billing (generation 3). mode=wait_for_exclusive waits for it,"
    " mode=exclusive_with_fencing takes it over"
)


def refused(cluster: Cluster, name: str) -> str:
    """A topic with an owner, and a rival that was refused twice by the node that serves it."""
    topic = cluster.govern(cluster.name(name), access_mode="exclusive")
    cluster.produce(topic, "holder")
    rival = cluster.connect(topic, f"rival-of-{name}")
    for _ in range(2):
        assert rival.send(topic, b"1", sequence=0).error == POLICY_VIOLATION
    return topic


def test_a_refusal_is_listed_with_its_reason_and_how_often_it_came(visit: Visit, cluster: Cluster) -> None:
    topic = refused(cluster, "disputed")
    page = visit(f"{cluster.page_of(topic)}#/refusals")
    client = page.locator("main tbody tr").filter(has_text="rival-of-disputed")
    expect(client.locator("td[data-label=Error]")).to_have_text("44 POLICY_VIOLATION")
    expect(client.locator("td[data-label=Reason]")).to_contain_text("holder")
    expect(client.locator("td[data-label=Times]")).to_have_text("2")
    client.get_by_role("link", name=topic).click()
    refusals = page.get_by_role("table", name="Refused lately by this node")
    expect(refusals.get_by_role("rowheader")).to_contain_text("rival-of-disputed 127.0.0.1")


def test_a_refusal_without_a_topic_is_in_the_feed_without_a_link(visit: Visit, cluster: Cluster) -> None:
    typo = cluster.name("billing") + ";mode=exclusiv"
    producer = cluster.producers.enter_context(RawProducer(cluster.nodes[0].bootstrap, typo))
    assert producer.ask_producer_id() == (INVALID_REQUEST, -1)
    page = visit(cluster.url)
    entry = page.locator("#feed li").filter(has_text=typo)
    expect(entry.locator(".tag")).to_have_class("tag bad")
    expect(entry.get_by_role("link")).to_have_count(0)


def test_refusals_are_narrowed_down_to_one_topic_and_the_address_says_so(visit: Visit, cluster: Cluster) -> None:
    topic = refused(cluster, "narrowed")
    page = visit(f"{cluster.page_of(topic)}#/refusals")
    field = page.get_by_label("Only of the topic with this name")
    field.fill("no-such-topic")
    expect(page.get_by_text("This node has refused no request for no-such-topic lately.")).to_be_visible()
    field.fill(topic)
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page).to_have_url(f"{cluster.page_of(topic)}#/refusals?topic={topic}")
    page.reload()
    expect(field).to_have_value(topic)
    expect(page.locator("main tbody tr")).to_have_count(1)


def test_many_refusals_are_leafed_through(visit: Visit, cluster: Cluster) -> None:
    def answer(route: Route) -> None:
        first = 100 if "page_token=100" in route.request.url else 0
        item = {"address": "::1", "topic": "payments", "error_code": 44, "error": "POLICY_VIOLATION", "reason": REASON}
        times = {"count": 1, "first": "2026-01-31T12:00:00Z", "last": "2026-01-31T12:00:00Z"}
        items = [{"client_id": f"c{number:03}", **item, **times} for number in range(first, first + 100)]
        route.fulfill(json={"items": items, "next_page_token": None if first else "100"})

    page = visit(cluster.url)
    page.route("**/v1/refusals?*", answer)
    page.get_by_role("link", name="Refusals").click()
    expect(page.locator("main tbody tr")).to_have_count(100)
    link = page.locator("main tbody tr").first.get_by_role("link", name="payments")
    assert link.evaluate("link => link.getClientRects().length") == 1, "a short name is broken into lines"
    page.get_by_role("button", name="Next").click()
    expect(row(page, "c100 ::1")).to_be_visible()
    expect(page.get_by_role("button", name="Next")).to_be_disabled()


def test_where_another_node_serves_the_topic_the_page_says_where_to_look(visit: Visit, cluster: Cluster) -> None:
    topic = refused(cluster, "elsewhere")
    serving = cluster.topic(topic)["serving_node"]
    page = visit(f"{cluster.nodes[2 - serving].admin_url}/#/topics/{topic}")
    expect(page.locator("main")).to_contain_text(f"Node {serving} serves the topic and has its own list.")
    expect(cell(page, topic, "Decides")).to_have_text("Access mode: exclusive")
