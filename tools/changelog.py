"""What CHANGELOG.md says of a version, and whether it may be released.

python -m tools.changelog VERSION        # its section, as the notes of a release
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
_HEADING: Final = re.compile(r"^## \[([^\]]+)\] - (\S+)$", re.MULTILINE)


def problems(tag: str, version: str, changelog: str, dirty: str) -> list[str]:
    """What keeps `tag` from being the release of `version`; `dirty` is what git says of changed files."""
    found = _HEADING.search(changelog)
    wrong = []
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag) or tag != f"v{version}":
        wrong.append(f"the tag is {tag}, pyproject.toml has the version {version}")
    if found is None or found[1] != version:
        wrong.append(f"the first section of CHANGELOG.md is not [{version}]")
    elif not re.fullmatch(r"\d{4}-\d{2}-\d{2}", found[2]):
        wrong.append(f"CHANGELOG.md has {found[2]!r} in place of the date of {version}")
    if dirty.strip():
        wrong.append(f"the checkout is not the commit:\n{dirty.rstrip()}")
    return wrong


def section(version: str, changelog: str) -> str:
    """What stands under the heading of a version.

    Raises:
        KeyError: there is no such heading.

    """
    parts = _HEADING.split(changelog)
    sections = dict(zip(parts[1::3], parts[3::3], strict=True))
    return sections[version].strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(section(sys.argv[1], PATH.read_text(encoding="utf-8")))
