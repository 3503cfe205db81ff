"""The program of a node's process, started by `sidecar.cli.launch`: `node_process.py DESCRIPTOR WORKERS PARENT`.

Imports nothing of the command line, so that a node is as small as possible. It reads settings from DESCRIPTOR. If
WORKERS is more than one, it becomes their supervisor. PARENT is the process to end with, 0: none.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sidecar.settings.loaded import LoadedSettings

_PR_SET_PDEATHSIG = 1
_CERTIFICATES = "SSL_CERT_FILE"


def main() -> int:
    """Run the node, which ends the process itself, or the supervisor of several nodes; returns its exit code."""
    descriptor, workers, parent = map(int, sys.argv[1:])
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:  # run from sources that are not installed
        sys.path.append(root)
    if parent:
        _end_with(parent)
    _leave_out()
    from sidecar.settings.loaded import LoadedSettings  # noqa: PLC0415 - sys.path has to be right first

    with os.fdopen(descriptor, encoding="utf-8") as pipe:
        loaded = LoadedSettings.from_json(pipe.read())
    if workers > 1:
        from sidecar.cli.workers import supervise  # noqa: PLC0415

        return supervise(loaded, workers)
    return run(loaded)


def run(loaded: LoadedSettings) -> NoReturn:
    """Serve as one node until the process ends."""
    _import_aiohttp()
    from sidecar.admin.server import AdminServer  # noqa: PLC0415
    from sidecar.node import process  # noqa: PLC0415

    process.run(loaded, AdminServer)


def _leave_out() -> None:
    """Prevent imports that a node does not need. If installed, structlog imports rich (3.4 MB), for tracebacks that
    show local variables, so secrets too, and greenlet (1.2 MB). prometheus_client imports snappy (1.5 MB), for pushes
    that nobody here makes.
    """
    for unwanted in ("rich", "greenlet", "snappy"):
        sys.modules[unwanted] = None  # pyright: ignore[reportArgumentType] - how Python spells "not installed"


def _import_aiohttp() -> None:
    """Import aiohttp without the system's certificates, which it would read during the import (1.9 MB, 40 ms). Of the
    servers that a node calls only a schema registry may need them, and `sidecar.admin.schema_upstream` reads them for
    that.
    """
    before = os.environ.get(_CERTIFICATES)
    os.environ[_CERTIFICATES] = os.devnull
    try:
        import aiohttp  # noqa: F401, PLC0415
    finally:
        del os.environ[_CERTIFICATES]
        if before is not None:
            os.environ[_CERTIFICATES] = before


def _end_with(parent: int) -> None:
    """Have the kernel send SIGTERM when the parent ends, however it ends; only Linux supports this."""
    import ctypes  # noqa: PLC0415 - a megabyte that only workers need

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the call above
        sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
