"""What the code mentions where: how a generated page knows that something is declared and not used yet."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

_SIDECAR: Final = Path(__file__).resolve().parents[2] / "sidecar"


@cache
def _text(without: str) -> str:
    files = sorted(path for path in _SIDECAR.rglob("*.py") if without not in path.relative_to(_SIDECAR).parts[0])
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def mentioned(pattern: str, *, without: str) -> bool:
    """Whether a pattern is found anywhere in `sidecar/` but in the room, or the modules, whose name holds `without`."""
    return re.search(pattern, _text(without)) is not None
