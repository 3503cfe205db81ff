"""`python -m tests.slow.page.pictures`: the pictures of docs/operate/page.md, from a cluster started for them."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from sidecar.local import Kafka, KafkaConfig, Valkey
from tests.nodes import NodeProcess
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import PATIENCE_MS, SWITCHES, chromium

IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
LIMIT = 200_000
"""Bytes of one picture."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What is opened, how, and what is waited for before it is taken."""

    name: str
    address: str
    until: str
    width: int = 1280
    height: int = 860
    scheme: str = "light"
    press: str = ""


PICTURES = (
    Picture("page-topics-light", "#/topics", "main tbody tr", height=640),
    Picture("page-topic-dark", "#/topics/shipments", "[data-act='fence']", scheme="dark"),
    Picture("page-shadow-light", "#/shadows/clicks-search", "main .bar", height=620),
    Picture("page-fence-light", "#/topics/payments", "[data-act='fence']", press="[data-act='fence']"),
    Picture("page-policy-light", "#/topics/inventory", "[data-act='policy']", press="[data-act='policy']"),
    Picture("page-topics-narrow", "#/topics", "main tbody tr", width=360, height=1150),
)


def main() -> None:
    """Write them all."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sidecar-pictures-") as directory, ExitStack() as running:
        cluster = _cluster(Path(directory), running)
        playwright = running.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium(), args=SWITCHES)
        running.callback(browser.close)
        for picture in PICTURES:
            _take(browser, cluster.page_of("payments"), picture)


def _cluster(directory: Path, running: ExitStack) -> Cluster:
    kafka = running.enter_context(Kafka(directory / "kafka", KafkaConfig(leave_archive=True)))
    valkey = running.enter_context(Valkey(directory / "valkey"))
    nodes = [NodeProcess(directory, kafka.bootstrap, valkey.url, cluster="production", node_id=each) for each in (1, 2)]
    for node in nodes:
        node.start()
        running.callback(node.stop)
    cluster = Cluster(kafka.bootstrap, nodes)
    running.enter_context(cluster.producers)
    cluster.populate()
    return cluster


def _take(browser: Browser, url: str, picture: Picture) -> None:
    scheme = "dark" if picture.scheme == "dark" else "light"
    with browser.new_context(
        viewport={"width": picture.width, "height": picture.height}, color_scheme=scheme, reduced_motion="reduce"
    ) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url + picture.address)
        _settle(page, picture.until)
        if picture.press:
            page.locator(picture.press).first.click()
            expect(page.get_by_role("dialog")).to_be_visible()
        path = IMAGES / f"{picture.name}.png"
        path.write_bytes(page.screenshot())
    if path.stat().st_size > LIMIT:
        raise SystemExit(f"{path.name} has {path.stat().st_size} bytes, more than {LIMIT}")
    sys.stdout.write(f"{path.name}  {path.stat().st_size // 1000} KB\n")


def _settle(page: Page, until: str) -> None:
    page.locator(until).first.wait_for()
    expect(page.locator("#feed-state")).to_have_text("live")
    page.locator("#feed li").first.wait_for(state="attached")  # folded where it is narrow
    expect(page.locator("#health dt").first).to_be_visible()


if __name__ == "__main__":
    main()
