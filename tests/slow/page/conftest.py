"""A populated cluster with an admin token, and a Chromium that looks at it and tells what the page may not do.

Tests of the page are no coroutines: Playwright's loop runs in their thread for as long as a module lasts.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.nodes import NodeProcess
from tests.services import Services
from tests.slow.page.cluster import Cluster

TOKEN = "page-secret"
PATIENCE_MS = 20_000
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_TELL_VIOLATIONS = """
document.addEventListener('securitypolicyviolation', (event) =>
    console.error(`violation of ${event.violatedDirective} by ${event.blockedURI} ${event.sample}`))
"""

Visit = Callable[..., Page]


def chromium() -> str:
    """The browser of this machine. Without one the test is skipped, and fails where CI is set."""
    found = next((path for path in map(shutil.which, _PROGRAMS) if path), None)
    if found is None:
        reason = f"no Chromium on PATH ({', '.join(_PROGRAMS)}; Debian: package chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=SWITCHES)
        yield running
        running.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """`visit(url, width=360, token=TOKEN)`: a page in a context of its own, in which nothing may have gone wrong:
    nothing against the policy, no request to anywhere else. `fault`: what has to go wrong, and may;
    `script` runs first.
    """
    problems: list[str] = []
    expected: list[str] = []
    with ExitStack() as open_contexts:

        def go(
            url: str,
            *,
            width: int = 1280,
            height: int = 900,
            token: str = "",
            fault: str = "",
            script: str = "",
            **options: Any,
        ) -> Page:
            expected.extend([fault] if fault else [])
            viewport: Any = {"width": width, "height": height}
            context = browser.new_context(viewport=viewport, reduced_motion="reduce", **options)
            open_contexts.callback(context.close)
            context.add_init_script(_TELL_VIOLATIONS + script)
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            origin = "/".join(url.split("/")[:3])

            def asked(request: Request) -> None:
                if not request.url.startswith(f"{origin}/"):
                    problems.append(f"asked for {request.url}")

            def told(message: ConsoleMessage) -> None:
                refused = message.text.startswith("Failed to load resource")  # an answer that is no 2xx, or none
                if message.type in ("error", "warning") and not refused:
                    problems.append(f"{message.type}: {message.text}")

            page.on("request", asked)
            page.on("console", told)
            page.on("pageerror", lambda error: problems.append(f"uncaught: {error}"))
            page.goto(url)
            if token:
                enter_token(page, token)
            return page

        yield go
    for fault in expected:
        assert any(fault in problem for problem in problems), problems
    assert [problem for problem in problems if not any(fault in problem for fault in expected)] == []


def enter_token(page: Page, token: str) -> None:
    page.get_by_label("Admin token").fill(token)
    page.get_by_role("button", name="Use").click()
    expect(page.get_by_role("button", name="Forget", exact=True)).to_be_visible()


def two_nodes(directory: Path, services: Services, running: ExitStack, **settings: str) -> list[NodeProcess]:
    """Two nodes of a new cluster, until `running` ends."""
    cluster = f"page-{uuid.uuid4().hex[:8]}"
    nodes = [
        NodeProcess(directory, services.kafka_bootstrap, services.redis_url, cluster=cluster, node_id=each, **settings)
        for each in (1, 2)
    ]
    for node in nodes:
        node.start()
        running.callback(node.check_log)
        running.callback(node.stop)
    return nodes


@pytest.fixture(scope="session")
def cluster(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with a token, something of everything on them. Tests leave what they find, and add what they change."""
    with ExitStack() as running:
        nodes = two_nodes(tmp_path_factory.mktemp("page"), services, running, ADMIN_TOKEN=TOKEN)
        found = Cluster(services.kafka_bootstrap, nodes, TOKEN, f"-{uuid.uuid4().hex[:6]}")
        running.enter_context(found.producers)
        found.populate()
        yield found
