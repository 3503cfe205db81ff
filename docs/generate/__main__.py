"""`python -m docs.generate` from the root of the repository: write all generated pages and say which changed."""

from __future__ import annotations

import sys

from docs.generate import DOCS, PAGES


def main() -> None:
    """Write every page."""
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        before = path.read_text(encoding="utf-8") if path.exists() else None
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{'unchanged' if text == before else 'written'}  docs/{name}\n")


if __name__ == "__main__":
    main()
