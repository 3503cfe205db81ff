"""A PostgreSQL and standalone workers of Kafka Connect with Debezium's connector, as tests run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sidecar.local.java import Java, Tuning
from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests.wait import wait_for

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "clients" / "debezium"
PATIENCE: Final = 60.0
_DATABASE: Final = "inventory"


def postgres_programs() -> Path | None:
    """Where `initdb` and `postgres` are, None where they are not. Debian keeps them out of PATH."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "postgres").exists() and (place / "initdb").exists()), None)


class Postgres:
    """A server with logical decoding on a free port, under the user that PostgreSQL wants: anybody but root."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self.port = free_ports(1)[0]
        self._log = directory / "postgres.log"

    @contextmanager
    def running(self) -> Iterator[Postgres]:
        """Started, with an empty database `inventory`. Its directory is none of pytest's, where only root gets in."""
        with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
            if self._as:
                shutil.chown(folder, "postgres", "postgres")
            with self._running(folder):
                yield self

    @contextmanager
    def _running(self, data: str) -> Iterator[None]:
        self._run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
        options = ("-c", "wal_level=logical", "-c", "fsync=off", "-c", f"listen_addresses={HOST}")
        command = (str(self._programs / "postgres"), "-D", data, "-p", str(self.port), "-k", "", *options)
        child = Child.start(Command("postgres", (*self._as, *command), self._log, {}, Path("/")))
        try:
            wait_for(self._answers, "PostgreSQL to answer", PATIENCE)
            self.sql(f"CREATE DATABASE {_DATABASE}", database="postgres")
            yield
        finally:
            child.kill()

    def _answers(self) -> bool:
        done = subprocess.run(
            [self._programs / "pg_isready", "-h", HOST, "-p", str(self.port)], capture_output=True, check=False
        )
        return done.returncode == 0

    def sql(self, *statements: str, database: str = _DATABASE) -> str:
        """Each statement in a transaction of its own; what they returned."""
        words = [word for statement in statements for word in ("-c", statement)]
        return self._run(
            "psql", "-h", HOST, "-p", str(self.port), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-tA", database, *words
        )

    def _run(self, program: str, *arguments: str) -> str:
        command = [*self._as, str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class Worker:
    """`connect-standalone` with the two files of the example, a few settings replaced."""

    def __init__(self, name: str, directory: Path, java: Java, path: str, settings: Mapping[str, str]) -> None:
        home = directory / name
        (home / "plugins").mkdir(parents=True)
        port = free_ports(1)[0]
        changed = {**settings, "listeners": f"http://{HOST}:{port}", "plugin.path": str(home / "plugins")}
        files = [self._written(home, EXAMPLE / file, changed) for file in ("worker.properties", "connector.properties")]
        command = (str(java.path), *java.flags(256, Tuning.QUICK), "-cp", path)
        program = "org.apache.kafka.connect.cli.ConnectStandalone"
        self._log = home / "connect.log"
        self.child = Child.start(Command(name, (*command, program, *map(str, files)), self._log, {}, home))

    @staticmethod
    def _written(home: Path, source: Path, settings: Mapping[str, str]) -> Path:
        lines = [line for line in source.read_text().splitlines() if line and not line.startswith("#")]
        said = dict(line.split("=", 1) for line in lines)
        if source.name == "worker.properties":
            said |= {name: settings[name] for name in ("bootstrap.servers", "listeners", "plugin.path")}
        else:
            said |= {name: value for name, value in settings.items() if name in said}
        target = home / source.name
        target.write_text("".join(f"{name}={value}\n" for name, value in said.items()))
        return target

    @property
    def log(self) -> str:
        """All it wrote."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def said(self, pattern: str) -> bool:
        """Whether its log has it. Raises AssertionError where it has ended."""
        assert self.child.alive, self.log[-4000:]
        return re.search(pattern, self.log) is not None
