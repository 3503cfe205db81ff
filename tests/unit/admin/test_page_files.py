"""The page's files: what they may hold, and how they are answered."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from sidecar.admin.page_files import FILES
from sidecar.admin.server import AdminServer
from sidecar.settings import Address, load
from sidecar.telemetry.hooks import NodeMetrics
from tests.unit.admin.paper_node import PaperNode

SCRIPTS = sorted(FILES.glob("*.js"))
MARKUP = sorted(FILES.glob("*.html"))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


@pytest.fixture
async def page() -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose root is a node's."""
    settings = replace(load(), admin_listen=Address("127.0.0.1", 0))
    server = AdminServer(PaperNode(), NodeMetrics({}, "0.1.0"), settings)
    await server.start()
    async with aiohttp.ClientSession(f"http://{server.address}") as session:
        yield session
    await server.stop()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/page/help.html", "text/html"),
        ("/page/main.js", "text/javascript"),
        ("/page/style.css", "text/css"),
        ("/page/icon.svg", "image/svg+xml"),
    ],
)
async def test_every_file_is_answered_with_its_kind_and_lets_nothing_else_in(
    page: aiohttp.ClientSession, path: str, kind: str
) -> None:
    async with page.get(path) as answer:
        assert (answer.status, answer.content_type, answer.charset) == (200, kind, "utf-8")
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert await answer.read() == (FILES / (path.rpartition("/")[2] or "index.html")).read_bytes()


async def test_what_a_browser_has_already_is_not_sent_again(page: aiohttp.ClientSession) -> None:
    async with page.get("/page/main.js") as answer:
        known = answer.headers["ETag"]
    async with page.get("/page/main.js", headers={"If-None-Match": known}) as answer:
        assert (answer.status, await answer.read(), answer.headers["ETag"]) == (304, b"", known)
        assert answer.headers["Content-Security-Policy"] == POLICY
    async with page.get("/page/main.js", headers={"If-None-Match": '"another"'}) as answer:
        assert answer.status == 200


async def test_head_is_answered_as_get_without_the_body(page: aiohttp.ClientSession) -> None:
    async with page.head("/") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
        assert answer.headers["Content-Security-Policy"] == POLICY


async def test_nothing_is_written_to_the_page(page: aiohttp.ClientSession) -> None:
    async with page.post("/", data={"a": "b"}) as answer:
        assert answer.status == 405


@pytest.mark.parametrize("path", MARKUP, ids=lambda path: path.name)
def test_no_script_or_style_stands_in_the_markup_and_nothing_comes_from_elsewhere(path) -> None:
    text = path.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", text)
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_out_of_text(path) -> None:
    text = path.read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|localStorage"
    assert not re.findall(forbidden, text)
    assert not re.findall(r"https?://", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_small_and_says_what_it_is_for(path) -> None:
    text = path.read_text()
    assert text.startswith("/**")
    assert len(text.splitlines()) < 250


def test_every_file_that_is_named_is_there() -> None:
    names = {name for path in SCRIPTS for name in re.findall(r"""from '\./([\w.]+)'""", path.read_text())}
    names |= {
        name for path in MARKUP for name in re.findall(r'(?:src|href)="(?:page/)?([\w-]+\.\w+)"', path.read_text())
    }
    names -= {"openapi.json"}  # not of the page
    assert sorted(name for name in names if not (FILES / name).is_file()) == []
    assert {path.name for path in FILES.iterdir()} - names == {"index.html"}
