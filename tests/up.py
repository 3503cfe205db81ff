"""`sidecar up` as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

from sidecar.local.ports import HOST, free_ports
from tests.wait import wait_for

SIDECAR = (sys.executable, "-m", "sidecar")


class Up:
    """Its process, with ports of its own, its output in files of a directory."""

    def __init__(self, directory: Path, *more: str) -> None:
        self.listen, self.admin = free_ports(2)
        self.arguments = (
            *("up", "--kafka-port", "0", "--redis-port", "0", "--listen", f"{HOST}:{self.listen}"),
            *("--admin-listen", f"{HOST}:{self.admin}", *more),
        )
        self._out, self._err = directory / "up.out", directory / "up.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            # A session of its own with SIGINT as a terminal would deliver it.
            self.process = subprocess.Popen([*SIDECAR, *self.arguments], stdout=out, stderr=err, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def wait(self) -> None:
        """Until everything runs, or it has ended."""
        wait_for(
            lambda: "Ctrl-C stops everything" in self.err or self.process.poll() is not None, "everything to run", 120
        )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()
