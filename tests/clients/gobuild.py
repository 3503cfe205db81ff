"""Builds `own/`, the client of the own APIs in Go: messages from control.proto by protoc, then the program.

Everything is made in a directory of its own, nothing beside the sources. Modules come through Go's own client, which
checks them against `own/go.sum` and keeps them, and what it compiled, in its caches.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).with_name("own")
PROTO: Final = Path(__file__).parents[2] / "proto"
MESSAGES: Final = "sidecar/v1/control.proto"
MODULE: Final = "sidecar.example/own"
GENERATOR: Final = "google.golang.org/protobuf/cmd/protoc-gen-go"
_TIMEOUT_S: Final = 300.0
QUIET: Final = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


def refusal(sources: Path = SOURCES) -> str | None:
    """Why what `sources/go.mod` describes cannot be built on this machine, None where it can."""
    if shutil.which("go") is None:
        return "no `go` on PATH"
    told = subprocess.run(["go", "env", "GOVERSION"], env=_environment(), capture_output=True, text=True, check=False)
    have, need = _version(told.stdout), _version(_needed(sources))
    if have < need:
        return f"Go {'.'.join(map(str, need))} or newer is needed, `go env GOVERSION` says {told.stdout.strip()!r}"
    return None


def build(directory: Path) -> Path:
    """The program `ownctl`, made in `directory`, which does not exist yet.

    Raises:
        RuntimeError: a step failed, what it wrote is in the message.
    """
    shutil.copytree(SOURCES, directory)
    _run(directory, "go", "build", "-o", "protoc-gen-go", GENERATOR)
    generated = f"--go_opt=module={MODULE}", f"--go_opt=M{MESSAGES}={MODULE}/controlpb"
    plugin = f"--plugin=protoc-gen-go={directory / 'protoc-gen-go'}"
    protoc = (sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}", plugin)
    _run(directory, *protoc, f"--go_out={directory}", *generated, MESSAGES)
    _run(directory, "go", "vet", "./...")
    _run(directory, "go", "build", "-o", "ownctl.program", "./ownctl")
    return directory / "ownctl.program"


def _run(directory: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=directory, env=_environment(), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _environment() -> dict[str, str]:
    return {**os.environ, **QUIET}


def _needed(sources: Path) -> str:
    found = re.search(r"^go (\S+)$", (sources / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
