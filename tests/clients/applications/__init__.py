"""Programs in Java that use one client as its users do, each compiled alone against that client's jars."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from sidecar.local.jars import Jars
from sidecar.local.java import Tuning, find_java

from .. import javabuild

PATIENCE_S: Final = 100.0
_LOGGING: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.logFile=System.err")


class Application:
    """`NAME.java` of this directory, or another source, the jars it runs with, and options of Java. It is compiled
    `against` other jars where they are given.
    """

    def __init__(
        self,
        name: str,
        jars: Jars,
        source: Path | None = None,
        options: tuple[str, ...] = (),
        against: Jars | None = None,
    ) -> None:
        self._name = name
        self._java = find_java()
        self._options = options
        self._path = os.pathsep.join([str(self._compiled(against or jars, source)), jars.class_path])

    def _compiled(self, jars: Jars, source: Path | None) -> Path:
        sources = [source or Path(__file__).with_name(f"{self._name}.java")]
        return javabuild.compiled(self._java, jars, sources, f"application-{self._name.lower()}")

    def command(self, *arguments: str) -> list[str]:
        """For callers that end it before its end."""
        java = [str(self._java.path), *self._java.flags(256, Tuning.QUICK), *_LOGGING, *self._options]
        return [*java, "-cp", self._path, self._name, *arguments]

    def run(self, *arguments: str) -> list[str]:
        """The lines that it prints until it ends. Fails where it does, with what it wrote."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.splitlines()
