"""How long commands take, from their start as a process to its end, one after the other."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.arena import Arena

_SIDECAR: Final = str(Path(sys.executable).with_name("sidecar"))
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "`python -c pass`, for comparison": (sys.executable, "-c", "pass"),
    "import of the command line": (sys.executable, "-c", "import sidecar.cli.root"),
    "`sidecar --version`": (_SIDECAR, "--version"),
    "`sidecar --help`": (_SIDECAR, "--help"),
    "`sidecar healthcheck`": (_SIDECAR, "healthcheck"),
}
HEALTHCHECK: Final = "`sidecar healthcheck`"
IMPORT: Final = "import of the command line"


def measure(arena: Arena, times: int) -> dict[str, list[float]]:
    """Milliseconds of each command, which take turns. Raises CalledProcessError where one fails."""
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(times + 1):
        for name, command in COMMANDS.items():
            began = time.perf_counter()
            subprocess.run(command, env=arena.environment(), stdout=subprocess.DEVNULL, check=True)
            if turn:  # the first one reads files that the kernel has not in memory
                found[name].append((time.perf_counter() - began) * 1000)
    return found
