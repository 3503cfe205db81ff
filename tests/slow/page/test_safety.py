"""Names that clients chose are text, whatever is in them; the page talks to its own node and to nobody else."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.kafka.shadow.groups import commit
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import Visit
from tests.slow.page.test_sections import cell, fact, row

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
IN_A_NAME = "<img src=x onerror=alert(1)>&amp'\""
"""A client.id ends its name at the first `;` and takes what has a `=` behind it for a setting: there is none."""


def test_names_with_markup_in_them_are_shown_as_they_are(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("named"), access_mode="exclusive")
    cluster.produce(topic, IN_A_NAME)
    page = visit(cluster.page_of(topic))
    expect(cell(page, topic, "Owner")).to_contain_text(IN_A_NAME)
    expect(page.locator("#feed li").filter(has_text=topic).first).to_contain_text(IN_A_NAME)
    page.locator("main").get_by_role("link", name=topic).click()
    expect(fact(page, "Owner").first).to_contain_text(IN_A_NAME)
    page.get_by_role("button", name="Fence…").click()
    expect(page.get_by_role("dialog")).to_contain_text(IN_A_NAME)
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("link", name="Clients").click()
    expect(row(page, IN_A_NAME)).to_be_visible()
    assert page.locator("main img, main script, #feed img, dialog img").count() == 0


def test_a_group_with_markup_in_its_name_is_text(visit: Visit, cluster: Cluster) -> None:
    shadow = cluster.name("clicks-fraud")
    group = f"{MARKUP}/{cluster.suffix}"
    commit(cluster.nodes[0].bootstrap, group, shadow, {1: 1})
    page = visit(f"{cluster.url}#/shadows/{shadow}")
    expect(row(page, group)).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    assert "Kafka sidecar" in page.title()


def test_an_address_with_markup_in_it_is_text(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/topics/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    expect(page.get_by_role("heading", name="<img src=x onerror=alert(1)>")).to_be_visible()
    expect(page.locator("main").get_by_role("alert")).to_contain_text("there is no topic <img")
    page.goto(f"{cluster.url}#/constructor")  # what every object of JavaScript has
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    page.goto(f"{cluster.url}#/topics/%")
    expect(page.get_by_role("heading", name="%", exact=True)).to_be_visible()


def test_the_browser_keeps_the_policy(visit: Visit, cluster: Cluster) -> None:
    """The policy works: what it forbids is refused, and the complaint is what `visit` would fail on."""
    page = visit(cluster.url, fault="inline script violates")
    refused = page.evaluate(
        """() => new Promise((resolve) => {
            document.addEventListener('securitypolicyviolation', (event) => {
                event.stopImmediatePropagation();
                resolve(event.effectiveDirective);
            }, {capture: true, once: true});
            document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}));
        })"""
    )
    assert (refused, page.evaluate("window.ran")) == ("script-src-elem", None)


def test_no_site_may_frame_the_page(visit: Visit, cluster: Cluster) -> None:
    """A frame within the node's own answer would do: `frame-ancestors 'none'` makes no difference between sites."""
    page = visit(f"{cluster.url}readyz", fault="frame-ancestors 'none'")
    page.evaluate(
        "url => document.body.append(Object.assign(document.createElement('iframe'), {src: url}))", cluster.url
    )
    page.wait_for_event("console", lambda message: "frame-ancestors" in message.text)
    assert page.frame_locator("iframe").locator("#health").count() == 0
