"""A crowd in a process of its own, which takes its order as JSON and is told and tells line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_ROOT: Final = Path(__file__).resolve().parents[1]


@contextmanager
def running(module: str, order: DataclassInstance) -> Iterator[subprocess.Popen[str]]:
    """`python -m module ORDER`, killed afterwards."""
    command = (sys.executable, "-m", module, json.dumps(asdict(order)))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Write one line to it."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str], beginning: str = "") -> str:
    """Its next line. Raises RuntimeError where it ended before, or says something else."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line or not line.startswith(beginning):
        raise RuntimeError("the crowd ended too early: see what it said above")
    return line
