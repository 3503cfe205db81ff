"""For every screen and everybody: widths, keyboard, names for screen readers, contrast."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import TOKEN, Visit

VIEWS = {
    "topics": "#/topics",
    "topic": "#/topics/{shipments}",
    "ids": "#/topics/{inventory}",
    "shadows": "#/shadows",
    "shadow": "#/shadows/{clicks-search}",
    "refusals": "#/refusals",
    "clients": "#/clients",
    "settings": "#/settings",
    "help": "page/help.html",
}
RULES: dict[str, Any] = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def address(cluster: Cluster, view: str) -> str:
    names = {name: cluster.name(name) for name in ("shipments", "inventory", "clicks-search")}
    return cluster.url + VIEWS[view].format(**names)


def settle(page: Page, view: str) -> None:
    """Wait until the view has what it shows."""
    if view != "help":
        expect(page.locator("main .content")).to_have_attribute("aria-busy", "false")
        expect(page.locator("#feed-state")).to_have_text("live")
        expect(page.locator("#health dt").first).to_be_visible()


def faults(page: Page, *rules: str) -> list[str]:
    options = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else RULES
    found = Axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {node['html'][:150]} {node['failureSummary']}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_scrolls_sideways(visit: Visit, cluster: Cluster, view: str) -> None:
    page = visit(address(cluster, view), width=1920)
    settle(page, view)
    outside = """width => [...document.querySelectorAll('main *, header *, .health *, footer *')]
        .filter(each => each.getClientRects().length && each.getBoundingClientRect().right > width + 0.5)
        .map(each => each.outerHTML.slice(0, 120))"""
    for width in (1920, 768, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.scrollingElement.scrollWidth") == width
        assert page.evaluate(outside, width) == []


@pytest.mark.parametrize("view", VIEWS)
def test_no_rule_of_accessibility_is_broken(visit: Visit, cluster: Cluster, view: str) -> None:
    page = visit(address(cluster, view), color_scheme="light")
    settle(page, view)
    assert faults(page) == []
    page.emulate_media(color_scheme="dark")
    assert faults(page, "color-contrast") == []


def test_the_narrow_page_and_the_dialog_break_no_rule_either(visit: Visit, cluster: Cluster) -> None:
    page = visit(address(cluster, "topic"), width=360)
    settle(page, "topic")
    assert faults(page) == []
    page.get_by_role("button", name="Create shadow…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert faults(page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth") == 360


def test_the_first_stop_leads_past_the_head(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    settle(page, "topics")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    assert skip.evaluate("link => link.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url == cluster.url


def test_an_owner_is_fenced_by_keyboard_alone(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("by-keyboard"), access_mode="exclusive")
    cluster.produce(topic, "owner")
    page = visit(cluster.url)
    settle(page, "topics")
    tab_to(page, "#token")
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#result")).to_contain_text("The token is kept in this tab")
    tab_to(page, "#topic-filter")
    page.keyboard.type(topic)
    expect(page.locator("main tbody tr")).to_have_count(1)
    tab_to(page, f'main a[href="#/topics/{topic}"]')
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=topic)).to_be_focused()
    expect(page.get_by_role("button", name="Fence…")).to_be_visible()
    tab_to(page, '[data-act="fence"]')
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Fence…")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page, "#dialog-act")
    page.keyboard.press("Space")
    expect(page.locator("#result")).to_contain_text("was fenced")
    expect(dialog).to_be_hidden()
    assert cluster.topic(topic)["owner"] is None


def test_focus_stays_inside_the_dialog(visit: Visit, cluster: Cluster) -> None:
    page = visit(address(cluster, "topic"))
    page.get_by_role("button", name="Create shadow…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    outside = (
        "document.activeElement !== document.body && !document.querySelector('dialog').contains(document.activeElement)"
    )
    for _ in range(12):
        page.keyboard.press("Tab")
        assert not page.evaluate(outside)


def test_every_stop_of_the_keyboard_can_be_seen(visit: Visit, cluster: Cluster) -> None:
    page = visit(address(cluster, "topic"))
    settle(page, "topic")
    seen: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stop = page.evaluate(
            """() => { const at = document.activeElement; const how = getComputedStyle(at);
            return at === document.body ? null : [at.outerHTML.slice(0, 100), how.outlineStyle, how.outlineWidth]; }"""
        )
        if stop is None:
            break
        seen.append(stop[0])
        assert (stop[1], stop[2]) == ("solid", "2px"), stop
    assert len(seen) > 10


def test_a_refresh_leaves_focus_and_what_is_open_where_they_are(visit: Visit, cluster: Cluster) -> None:
    page = visit(address(cluster, "shadow"))
    settle(page, "shadow")
    page.locator("main summary").first.focus()
    page.keyboard.press("Enter")
    with page.expect_response(lambda answer: "/cursors" in answer.url):
        pass
    with page.expect_response(lambda answer: "/cursors" in answer.url):
        pass
    expect(page.locator("main summary").first).to_be_focused()
    expect(page.locator("main details").first).to_have_attribute("open", "")


def test_what_happens_is_read_out_and_what_has_happened_is_not(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url)
    live = page.evaluate("document.getElementById('feed-log').getAttribute('aria-live')")
    assert live == "off" or page.locator("#feed li").count() > 0
    expect(page.locator("#feed-log")).to_have_attribute("aria-live", "polite")
    for place, role in (
        ("#result", "status"),
        ("#feed-state", "status"),
        ("#banner-text", "alert"),
        ("#feed-log", "log"),
    ):
        expect(page.locator(place)).to_have_attribute("role", role)


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(60):
        if page.evaluate("selector => document.activeElement?.matches(selector) ?? false", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no way to {selector} by Tab")
