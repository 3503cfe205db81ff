"""The Dockerfile and .dockerignore, read as Docker reads them: what of a checkout a build gets, and what it runs."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

from tests.unit.deploy.files import DOCKERIGNORE


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `stage` counts from 0, arguments in front of the first FROM are in stage -1."""

    stage: int
    name: str
    arguments: str


def parse(text: str) -> tuple[Instruction, ...]:
    """Instructions in order, continuation lines joined and comments dropped."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found: list[Instruction] = []
    stage = -1
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if not line.strip():
            continue
        name, _, arguments = line.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, arguments.strip()))
    return tuple(found)


def sources(file: tuple[Instruction, ...]) -> list[str]:
    """What is copied from the build context."""
    copies = (each.arguments.split() for each in file if each.name == "COPY" and "--from" not in each.arguments)
    return [name for words in copies for name in words[:-1]]


def admitted(path: str, patterns: list[str]) -> bool:
    """Whether `.dockerignore` lets `path` into the build; the last pattern that fits decides, as Docker does it."""
    parts = Path(path).parts
    prefixes = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    inside = True
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        names = [bare.removeprefix("**/")] if bare.startswith("**/") else [bare]
        candidates = parts if bare.startswith("**/") else prefixes
        if any(fnmatch.fnmatchcase(candidate, name) for candidate in candidates for name in names):
            inside = pattern.startswith("!")
    return inside


def ignore_patterns() -> list[str]:
    lines = DOCKERIGNORE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
