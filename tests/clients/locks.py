"""Class paths of tests: lists in `locks/`, each line a coordinate on Maven Central and the SHA-256 of its jar."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sidecar.local import jars
from sidecar.local.jars import Jars
from sidecar.local.progress import silent

LOCKS: Final = Path(__file__).with_name("locks")


def locked(name: str) -> Jars:
    """The jars of `locks/NAME.txt`, downloaded first where they are missing. Raises ResolveError where they differ."""
    lines = (LOCKS / f"{name}.txt").read_text().splitlines()
    hashes = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    context = jars._context()
    artifacts = [context.create_dependency(coordinate).artifact for coordinate in hashes]
    return Jars(name, tuple(jars._download(artifacts, hashes, silent)))
