"""Class paths of tests: lists in `locks/`, each line a coordinate on Maven Central and the SHA-256 of its jar."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sidecar.local import jars
from sidecar.local.jars import Jars
from sidecar.local.progress import silent

LOCKS: Final = Path(__file__).with_name("locks")
KAFKA_CLIENTS: Final = "org.apache.kafka:kafka-clients:"


def locked(name: str) -> Jars:
    """The jars of `locks/NAME.txt`, downloaded first where they are missing. Raises ResolveError where they differ."""
    return _downloaded(name, _hashes(name))


def kafka_clients(version: str) -> Jars:
    """This version of `locks/kafka-clients.txt`, which has many, and what all of them need. Raises as `locked`."""
    others = {f"{KAFKA_CLIENTS}{each}" for each in java_versions() if each != version}
    hashes = {coordinate: sha256 for coordinate, sha256 in _hashes("kafka-clients").items() if coordinate not in others}
    return _downloaded(f"kafka-clients-{version}", hashes)


def java_versions() -> list[str]:
    """The versions in `locks/kafka-clients.txt`: the newest patch of each minor version, the oldest first."""
    found = (each.removeprefix(KAFKA_CLIENTS) for each in _hashes("kafka-clients") if each.startswith(KAFKA_CLIENTS))
    return list(found)


def _hashes(name: str) -> dict[str, str]:
    lines = (LOCKS / f"{name}.txt").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def _downloaded(name: str, hashes: dict[str, str]) -> Jars:
    context = jars._context()
    artifacts = [context.create_dependency(coordinate).artifact for coordinate in hashes]
    return Jars(name, tuple(jars._download(artifacts, hashes, silent)))
