"""The programs of `examples/clients` as commands that can be run, each built where its language wants that.

What is made lies in a directory of the session; npm and Go keep what they have brought in their own caches.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from sidecar.local.jars import Jars
from sidecar.local.java import Java

from . import gobuild, javabuild
from .further import OLD_JAVA
from .locks import locked

if TYPE_CHECKING:
    from types import TracebackType

SOURCES: Final = Path(__file__).parents[2] / "examples" / "clients"
PATIENCE: Final = 60.0
"""Seconds a test waits for a line at most: far more than any takes."""
_BUILD_S: Final = 300.0


class CannotBuildError(Exception):
    """A tool is missing on this machine; the message names it."""


class Recipes:
    """Commands by the name of a client, each made when it is asked for first."""

    def __init__(self, directory: Path, java: Java, jars: Jars) -> None:
        self._directory = directory
        self._java = java
        self._jars = jars
        self._made: dict[str, list[str]] = {}
        self._makers: dict[str, Callable[[], list[str]]] = {
            "java": lambda: self._java_command("Recipe", self._jars),
            **{f"java-{version}": lambda version=version: self._old_java_command(version) for version in OLD_JAVA},
            "java-leader": lambda: self._java_command("Leader", self._jars),
            "confluent-kafka": lambda: [sys.executable, str(SOURCES / "confluent.py")],
            "aiokafka": lambda: [sys.executable, str(SOURCES / "aio.py")],
            "kafka-python": lambda: [sys.executable, str(SOURCES / "kafka_python.py")],
            "kafkajs": self._node_command,
            "sarama": lambda: self._go_command("sarama"),
            "franz-go": lambda: self._go_command("franz-go"),
            "go-leader": lambda: self._go_command("leader"),
        }

    def command(self, client: str) -> list[str]:
        """How the client's program is started. Raises CannotBuildError, RuntimeError with what a tool wrote."""
        if client not in self._made:
            self._made[client] = self._makers[client]()
        return self._made[client]

    def _old_java_command(self, version: str) -> list[str]:
        return self._java_command("Recipe", locked(f"kafka-clients-{version}"))

    def _java_command(self, program: str, jars: Jars) -> list[str]:
        sources = sorted((SOURCES / "java").glob("*.java"))
        jar = javabuild.compiled(self._java, jars, sources, "client-recipe")
        path = os.pathsep.join([str(jar), jars.class_path])
        return [str(self._java.path), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", path, program]

    def _node_command(self) -> list[str]:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            raise CannotBuildError("no `node` or no `npm` on PATH")
        home = self._directory / "kafkajs"
        shutil.copytree(SOURCES / "kafkajs", home, ignore=shutil.ignore_patterns("node_modules"))
        run_tool(home, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
        return [node, str(home / "recipe.js")]

    def _go_command(self, name: str) -> list[str]:
        home = self._directory / "go"
        if not home.exists():
            if reason := gobuild.refusal(SOURCES / "go"):
                raise CannotBuildError(reason)
            shutil.copytree(SOURCES / "go", home)
            run_tool(home, "go", "vet", "./...")
        run_tool(home, "go", "build", "-o", f"{name}.program", f"./{name}")
        return [str(home / f"{name}.program")]


def run_tool(directory: Path, *command: str) -> None:
    """Run a program that builds something. Raises RuntimeError with what it wrote."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **gobuild.QUIET},
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


class Program:
    """A recipe that runs: it reads lines and prints lines. What it writes to standard error is in `log`."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._lines = queue.SimpleQueue[str | None]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put(None)

    def say(self, line: str) -> None:
        """Have it read a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def heard(self) -> str:
        """The next line that it prints."""
        line = self._lines.get(timeout=PATIENCE)
        assert line is not None, f"ended with {self.process.wait(PATIENCE)}:\n{self._log.read_text()[-3000:]}"
        return line

    def quiet(self) -> bool:
        """Whether it has printed nothing that was not heard yet."""
        return self._lines.empty()

    def close(self) -> int:
        """End it, as its user would; the exit code."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()


class Writer(Program):
    """A recipe's producer: it sends the sequence ids that it is given and tells what became of each."""

    def __init__(self, command: list[str], bootstrap: str, client_id: str, topic: str, log: Path) -> None:
        super().__init__([*command, "write", bootstrap, client_id, topic], log)

    def ask(self, number: int) -> None:
        """Have it send a record with this sequence id."""
        self.say(str(number))

    def told(self) -> str:
        """What became of the next record: `ok`, `error …`."""
        return self.heard().partition(" ")[2]

    def send(self, number: int) -> str:
        """Send one and wait for what it becomes."""
        self.ask(number)
        return self.told()


def read(command: list[str], bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    """The first `count` values that a recipe's consumer reads."""
    done = subprocess.run(
        [*command, "read", bootstrap, topic, group, str(count)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()
