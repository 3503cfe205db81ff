"""The pages of the documentation, taken apart: links, headings, code spans, code blocks. Pure but for reading files."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ELSEWHERE = ("http://", "https://", "mailto:")
_FENCE = re.compile(
    r"^(?:<!-- (?P<comment>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block; `comment` is what an HTML comment on the line before says of it."""

    language: str
    text: str
    comment: str


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return [Block(found["language"], found["text"], found["comment"] or "") for found in _FENCE.finditer(self.text)]

    @cached_property
    def prose(self) -> str:
        """The text without code blocks."""
        return _FENCE.sub("", self.text)

    @property
    def links(self) -> list[str]:
        """Targets of links, those to other sites left out."""
        found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", self.prose))
        return [target for target in found if not target.startswith(ELSEWHERE)]

    @property
    def spans(self) -> list[str]:
        """What stands between backticks."""
        return re.findall(r"`([^`\n]+)`", self.prose)

    @cached_property
    def anchors(self) -> set[str]:
        """What GitHub makes of the headings."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def tracked() -> frozenset[str]:
    """Every file that is in the repository, or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def pages() -> list[Page]:
    """README, everything below docs/ and examples/, and the runbook of the alerts."""
    rooms = ("docs/", "deploy/", "examples/", "README")
    names = sorted(name for name in tracked() if name.endswith(".md") and name.startswith(rooms))
    return [Page(ROOT / name) for name in names]


@cache
def page(name: str) -> Page:
    return Page(ROOT / name)
