"""`make docs` makes a site of every page: each link and anchor leads somewhere, and nothing needs a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import mkdocs.exceptions
import pytest
import yaml

from docs import publish
from tests.unit.docs.pages import page, pages

TARGET = re.compile(r'<(?:a|img|link|script)\b[^>]*?\b(?:href|src)="([^"]*)"')
ANCHOR = re.compile(r'\bid="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    publish.publish(directory)
    return directory


def named(nav: object) -> Iterator[str]:
    """Paths in `nav`."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for entry in nav:
            yield from named(entry)
    elif isinstance(nav, dict):
        yield from named(list(nav.values()))


def test_every_page_stands_in_the_navigation_once() -> None:
    listed = list(named(yaml.safe_load(publish.CONFIG.read_text(encoding="utf-8"))["nav"]))
    assert sorted(listed) == publish.page_names()
    assert {found.name for found in pages()} <= set(listed)


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    """As a browser sees them, after the site's own anchors are made; those of the theme too."""
    files = {path.resolve() for path in site.rglob("*") if path.is_file()}
    anchors = {path: set(ANCHOR.findall(path.read_text("utf-8"))) for path in files if path.suffix == ".html"}
    lost: list[str] = []
    count = 0
    for path in sorted(anchors):
        for link in TARGET.findall(path.read_text("utf-8")):
            if re.match(r"[a-z]+:|//", link) or path.name == "404.html":
                continue
            count += 1
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if target not in files or (anchor and target in anchors and unquote(anchor) not in anchors[target]):
                lost.append(f"{path.relative_to(site.resolve())}: {link}")
    assert count > 1000
    assert lost == []


def test_every_code_block_is_shown_as_one(site: Path) -> None:
    """The site's Markdown takes no fence within a list, where GitHub's does."""
    assert [path.name for path in site.rglob("*.html") if "```" in path.read_text("utf-8")] == []


def test_a_browser_fetches_nothing_from_elsewhere(site: Path) -> None:
    assert publish.fetched_from_elsewhere(site) == []


def test_what_a_browser_would_fetch_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script src="https://cdn.example/x.js"></script><a href="https://kafka.apache.org">fine</a>'
        '<link rel="stylesheet" href="//fonts.example/f"><link rel="canonical" href="https://fine.example/">'
    )
    (tmp_path / "b.css").write_text("@import 'https://fonts.example/f.css'; a { background: url(data:fine) }")
    assert publish.fetched_from_elsewhere(tmp_path) == [
        "a.html: https://cdn.example/x.js",
        "a.html: //fonts.example/f",
        "b.css: https://fonts.example/f.css",
    ]


def test_a_page_that_the_navigation_leaves_out_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        publish.CONFIG.read_text(encoding="utf-8").replace("  - Licences: docs/reference/licences.md\n", "")
    )
    monkeypatch.setattr(publish, "CONFIG", config)
    with pytest.raises(mkdocs.exceptions.Abort):
        publish.publish(tmp_path / "site")


def test_a_heading_has_the_anchor_that_it_has_on_github() -> None:
    heading = "librdkafka, confluent-kafka: `client.id`, what else?"
    assert publish.github_anchor(heading.replace("`", "")) == "librdkafka-confluent-kafka-clientid-what-else"
    assert publish.github_anchor("Restart and upgrade") in page("docs/operate/operations.md").anchors
