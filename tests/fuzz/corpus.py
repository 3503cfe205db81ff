"""Inputs in files of text, one in base64 on a line; what follows a # is for people."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_HERE: Final = Path(__file__).parent


def path_of(kind: str, target: str) -> Path:
    """`kind`: corpus or finds."""
    return _HERE / kind / f"{target}.txt"


def read(path: Path) -> list[bytes]:
    """The inputs of a file; none where it is not there."""
    if not path.exists():
        return []
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [base64.b64decode(line, validate=True) for line in lines if line]


def write(path: Path, inputs: Iterable[bytes]) -> int:
    """Write inputs, short ones first; how many."""
    found = sorted(set(inputs), key=lambda data: (len(data), data))
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(base64.b64encode(data).decode() + "\n" for data in found))
    return len(found)


def inputs_of(target: str) -> list[bytes]:
    """All that are kept of a target."""
    return read(path_of("corpus", target)) + read(path_of("finds", target))
