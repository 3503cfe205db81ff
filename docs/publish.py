"""`python -m docs.publish` from the root of the repository: the pages that mkdocs.yml names, as a site in `site/`.

A page keeps the place that it has in the repository, and so do files that pages link to, so that one link is right on
both. Never writes a page: docs/generate does that. A link that leads nowhere, a page that nav leaves out, or an address
of another machine that a browser would fetch from ends the build.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT: Final = Path(__file__).resolve().parents[1]
SITE: Final = ROOT / "site"
CONFIG: Final = ROOT / "mkdocs.yml"
ROOMS: Final = ("docs/", "deploy/", "examples/")
"""Every page below these, and those in the root, belong to the site."""
_LINK: Final = re.compile(r"\]\(([^)#\s]+)")
_IMPORTED: Final = re.compile(r"(?:url\(|@import )\s*['\"]?((?:https?:)?//[^'\")\s]+)")
_CODE: Final = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def github_anchor(heading: str, separator: str = "-") -> str:
    """What GitHub makes of a heading, so that an anchor is right here and there."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def tracked() -> list[str]:
    """Every file that is in the repository, or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def page_names() -> list[str]:
    """The pages of the site, as paths from the root."""
    return [name for name in tracked() if name.endswith(".md") and (name.startswith(ROOMS) or "/" not in name)]


def linked(name: str, text: str) -> set[str]:
    """Files of the repository that a page links to."""
    targets = (link for link in _LINK.findall(_CODE.sub("", text)) if "://" not in link and ":" not in link)
    paths = ((ROOT / name).parent.joinpath(target).resolve() for target in targets)
    return {str(path.relative_to(ROOT)) for path in paths if path.is_relative_to(ROOT) and path.is_file()}


def stage(directory: Path) -> None:
    """Pages, what they link to and the style sheet, copied into `directory`."""
    names = set(page_names())
    for name in page_names():
        names |= linked(name, (ROOT / name).read_text(encoding="utf-8"))
    for name in sorted(names | {"docs/site.css"}):
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)


class _Fetched(HTMLParser):
    """Addresses that a browser fetches by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in {"canonical", "alternate"}:
            return
        wanted = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "object": "data"}
        self.addresses += [address for address in [values.get(wanted.get(tag, ""))] if address]


def fetched_from_elsewhere(site: Path) -> list[str]:
    """`FILE: ADDRESS` of what a browser would have to fetch from another machine."""
    found: list[str] = []
    for path in sorted(site.rglob("*.html")):
        parser = _Fetched()
        parser.feed(path.read_text(encoding="utf-8"))
        foreign = [address for address in parser.addresses if re.match(r"(?:[a-z]+:)?//", address)]
        found += [f"{path.relative_to(site)}: {address}" for address in foreign]
    for path in sorted(site.rglob("*.css")):
        imported = _IMPORTED.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)}: {address}" for address in imported]
    return found


def publish(site: Path = SITE) -> None:
    """Build the site.

    Raises mkdocs.exceptions.Abort where a page or link is not as it should be, RuntimeError where the site would need
    a network.
    """
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        config = load_config(str(CONFIG), docs_dir=folder, site_dir=str(site))
        config.mdx_configs["toc"] = {"slugify": github_anchor, **config.mdx_configs.get("toc", {})}
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    if foreign := fetched_from_elsewhere(site):
        raise RuntimeError(f"the site would need a network: {', '.join(foreign)}")


def main() -> None:
    """Build it where it belongs, and say so."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    publish()
    search = f"its search needs `python3 -m http.server -d {SITE.name}`"
    sys.stdout.write(f"the site is in {SITE.name}/: open {SITE.name}/index.html; {search}\n")


if __name__ == "__main__":
    main()
