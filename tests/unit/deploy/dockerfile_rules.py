"""What hadolint does not know about the Dockerfile: what this project promises of its image.

Each rule takes the parsed file and yields one sentence for each fault.
"""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.unit.deploy.files import DOCKERIGNORE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PORTS = {"19092", "18080"}  # defaults of SIDECAR_LISTEN and SIDECAR_ADMIN_LISTEN


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


def _last(file: tuple[Instruction, ...], name: str) -> str | None:
    """The arguments of the instruction `name` that holds in the image that is made."""
    final = max(instruction.stage for instruction in file)
    values = [each.arguments for each in file if each.name == name and each.stage == final]
    return values[-1] if values else None


def base_image(file: tuple[Instruction, ...]) -> Iterator[str]:
    """Python is the only image that is pulled, in a version that can be replaced."""
    defaults = dict(each.arguments.split("=", 1) for each in file if each.name == "ARG" and each.stage == -1)
    stages = {each.arguments.split(" AS ")[1] for each in file if each.name == "FROM" and " AS " in each.arguments}
    for each in file:
        if each.name == "FROM" and each.arguments.split(" ")[0] not in {"${PYTHON_IMAGE}", *stages}:
            yield f"FROM {each.arguments} pulls another image"
        source = re.search(r"--(?:mount=\S*)?from=([^\s,]+)", each.arguments)
        if source and source[1] not in stages:
            yield f"{each.name} takes files from the image {source[1]}"
    if not re.fullmatch(r"python:3\.1[1-9]-slim-\w+", defaults.get("PYTHON_IMAGE", "")):
        yield f"PYTHON_IMAGE is {defaults.get('PYTHON_IMAGE')}"


def pinned(file: tuple[Instruction, ...]) -> Iterator[str]:
    """Every installation checks hashes; the wheel just built is the exception, its requirements are already there."""
    for each in file:
        for command in re.split(r"&&|;", each.arguments if each.name == "RUN" else ""):
            installs = re.search(r"\b(pip install|uv build)\b", command)
            if installs and "--require-hashes" not in command and not re.search(r"--no-deps /dist/\*\.whl", command):
                yield f"{command.strip()} checks no hashes"
    installed = {name for each in file for name in re.findall(r"-r requirements/([\w.]+)", each.arguments)}
    if installed != {"uv.txt", "runtime.txt", "pipeline.txt"}:
        yield f"installs {sorted(installed)}"


def start(file: tuple[Instruction, ...]) -> Iterator[str]:
    """`docker run IMAGE` serves, `docker run IMAGE doctor` does what it says, and Docker can ask for its health."""
    if json.loads(_last(file, "ENTRYPOINT") or "null") != ["sidecar"]:
        yield f"ENTRYPOINT is {_last(file, 'ENTRYPOINT')}"
    if json.loads(_last(file, "CMD") or "null") != ["serve"]:
        yield f"CMD is {_last(file, 'CMD')}"
    if not (_last(file, "HEALTHCHECK") or "").endswith('CMD ["sidecar", "healthcheck"]'):
        yield f"HEALTHCHECK is {_last(file, 'HEALTHCHECK')}"
    if set((_last(file, "EXPOSE") or "").split()) != PORTS:
        yield f"EXPOSE is {_last(file, 'EXPOSE')}"


def unprivileged(file: tuple[Instruction, ...]) -> Iterator[str]:
    """The process runs as a user by number, so that an orchestrator can see that it is not root, and owns no code."""
    if not re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", _last(file, "USER") or ""):
        yield f"USER is {_last(file, 'USER')}"
    yield from (f"COPY {each.arguments} changes the owner" for each in file if "--chown" in each.arguments)


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


def context(file: tuple[Instruction, ...]) -> Iterator[str]:
    """Everything that is copied exists and is let in."""
    for source in sources(file):
        if not (ROOT / source).exists():
            yield f"{source} is not there"
        if not admitted(source, ignore_patterns()):
            yield f".dockerignore keeps {source} out"


RULES: tuple[Callable[[tuple[Instruction, ...]], Iterator[str]], ...] = (
    base_image,
    pinned,
    start,
    unprivileged,
    context,
)
