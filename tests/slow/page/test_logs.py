"""What the page shows of a topic's log: how fast it grows, who reads, and its last records to who may see them."""

from __future__ import annotations

import re

from confluent_kafka import Producer
from playwright.sync_api import expect

from tests.kafka.shadow.groups import commit, write
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import TOKEN, Visit, enter_token
from tests.slow.page.test_access import faults
from tests.slow.page.test_safety import MARKUP
from tests.slow.page.test_sections import cell, fact
from tests.topics import create_topic

LOOK = "Read the last records"


def test_a_log_is_shown_with_its_ends_its_size_and_its_growth(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.name("growing")
    create_topic(cluster.kafka, 2, topic)
    write(cluster.kafka, topic, 30)
    page = visit(f"{cluster.url}#/topics/{topic}")
    expect(fact(page, "Offsets kept")).to_have_text("30")
    expect(fact(page, "Size on the leaders")).to_have_text(re.compile(r"[0-9.]+ K?B"))
    expect(cell(page, "0", "First offset")).to_have_text("0")
    expect(cell(page, "0", "Last offset")).to_have_text("29")
    expect(cell(page, "1", "Last offset")).to_have_text("empty")
    expect(fact(page, "Grows by")).to_have_text("0 records/s")
    write(cluster.kafka, topic, 5_000)
    expect(fact(page, "Grows by")).not_to_have_text("0 records/s")
    line = page.get_by_role("img", name="Records per second since this page is open, at most")
    expect(line).to_be_visible()
    expect(cell(page, "0", "Last offset")).to_have_text("5,029")
    assert len((line.locator("polyline").get_attribute("points") or "").split()) > 1


def test_the_groups_of_an_ordinary_topic_stand_with_their_lag(visit: Visit, cluster: Cluster) -> None:
    topic, group = cluster.name("read"), cluster.name("plain-group")
    create_topic(cluster.kafka, 1, topic)
    write(cluster.kafka, topic, 20)
    commit(cluster.kafka, group, topic, {0: 12})
    page = visit(f"{cluster.url}#/topics/{topic}")
    expect(cell(page, group, "Lag")).to_have_text("8")
    expect(cell(page, group, "State")).to_have_text("empty")
    cell(page, group, "Partitions").get_by_text("1 committed").click()
    expect(cell(page, group, "Partitions").get_by_role("listitem")).to_have_text(["0 12 of 20"])


def test_the_last_records_are_read_when_somebody_asks_and_are_text_alone(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("looked-at"), 1, access_mode="exclusive", deduplication=True)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "client.id": "writer", "log_level": 0})
    for number, value in enumerate((MARKUP.encode(), b"\x00\xff" * 3_000, "grüße".encode())):
        headers: dict[str, str | bytes | None] = {"sidecar-sequence-id": str(number), "trace": b"\x01", "note": MARKUP}
        producer.produce(topic, value, MARKUP if number == 0 else None, partition=0, headers=headers)
    assert producer.flush(60) == 0
    asked: list[str] = []
    page = visit(f"{cluster.page_of(topic)}#/topics/{topic}", token=TOKEN)
    page.on("request", lambda request: asked.append(request.url))
    expect(fact(page, "Offsets kept")).to_be_visible()
    assert not any("/records" in url for url in asked)
    page.get_by_role("button", name=LOOK).click()
    records = page.get_by_role("table", name="Last records")
    values = records.locator("td[data-label=Value]")
    expect(values).to_have_count(3)
    expect(values.nth(0)).to_have_text("grüße")
    expect(values.nth(1)).to_contain_text("hex 00 ff 00 ff")
    expect(values.nth(1)).to_contain_text("the beginning of 6.0 KB")
    expect(values.nth(2)).to_have_text(MARKUP)
    expect(records.locator("td[data-label=Key]").nth(2)).to_have_text(MARKUP)
    expect(records.locator("td[data-label=Key]").nth(0)).to_have_text("null")
    expect(records.locator("td[data-label=Headers]").nth(0)).to_contain_text(f"note {MARKUP}")
    expect(records.locator("td[data-label='Sequence id']")).to_have_text(["2", "1", "0"])
    expect(records.locator("td[data-label=Producer]").nth(0)).to_contain_text("generation 1")
    assert page.locator("main img, main script").count() == 0
    assert "Kafka sidecar" in page.title()
    assert faults(page) == []
    page.emulate_media(color_scheme="dark")
    assert faults(page, "color-contrast") == []
    page.set_viewport_size({"width": 400, "height": 900})
    assert faults(page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth") == 400
    page.get_by_label("Partition", exact=True).fill("7")
    page.get_by_role("button", name=LOOK).click()
    expect(page.locator("main").get_by_role("alert").filter(has_text="and no 7")).to_be_visible()
    expect(values).to_have_count(0)
    page.goto(f"{cluster.page_of(topic)}#/topics/{cluster.name('orders')}")
    expect(page.locator("main")).not_to_contain_text("and no 7")


def test_records_are_for_who_holds_the_token(visit: Visit, cluster: Cluster) -> None:
    page = visit(f"{cluster.url}#/topics/{cluster.name('clicks')}")
    page.get_by_role("button", name=LOOK).click()
    refusal = page.locator("main").get_by_role("alert").filter(has_text="The node needs its admin token")
    expect(refusal).to_be_visible()
    assert "record 399" not in page.content()
    enter_token(page, TOKEN)
    page.get_by_role("button", name=LOOK).click()
    expect(page.get_by_role("table", name="Last records")).to_contain_text("record 399")
    expect(refusal).to_have_count(0)
