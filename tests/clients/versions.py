"""The section of the matrix on versions: one round with every minor version of Java's client and of librdkafka.

A run of these tests alone (`test_versions`) writes their section of the page anew, and leaves the rest as it stands.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from .applications import Application
from .further import KAFKA
from .locks import java_versions, kafka_clients
from .over_tls import note_phase

if TYPE_CHECKING:
    from tests.nodes import NodeProcess

JAVA: Final = tuple(java_versions())
LIBRDKAFKA: Final = {
    "1.8.2": "3.9",
    "1.9.2": "3.10",
    **dict.fromkeys(("2.0.2", "2.1.1", "2.2.0", "2.3.0", "2.4.0", "2.5.3", "2.6.2", "2.8.2", "2.10.1", "2.11.1"), ""),
    **dict.fromkeys(("2.12.2", "2.13.2", "2.14.0", "2.15.0", "2.16.1"), ""),
}
"""Versions of confluent-kafka, the newest patch of each minor version with a librdkafka of its own; and the Python for
which its newest wheels are: empty for the one that runs the tests.
"""
CELLS: Final = [*(("java", version) for version in JAVA), *(("librdkafka", version) for version in LIBRDKAFKA)]
_ROUNDS: Final = Path(__file__).parent / "applications" / "rounds.py"
_TIMEOUT_S: Final = 150.0


def java_round(version: str) -> Callable[..., list[str]]:
    """Runs `Round.java` with this version of kafka-clients: a name, then addresses."""
    return Application("Round", kafka_clients(version), against=kafka_clients(JAVA[0])).run


def librdkafka_round(version: str, directory: Path) -> Callable[..., list[str]]:
    """Runs `rounds.py` with this version of confluent-kafka, in an environment of its own, made in `directory`."""
    wanted = LIBRDKAFKA[version]
    python = shutil.which(f"python{wanted}") if wanted else sys.executable
    if python is None:
        pytest.skip(f"no `python{wanted}` on PATH")
    uv, place = str(Path(sys.executable).with_name("uv")), directory / "environment"
    _run(uv, "venv", "--quiet", "--no-python-downloads", "--python", python, str(place))
    only = ("--only-binary", ":all:", f"confluent-kafka=={version}")
    _run(uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), *only)
    return lambda *arguments: _run(str(place / "bin" / "python"), str(_ROUNDS), *arguments)


def _run(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def shown(nodes: Sequence[NodeProcess]) -> str:
    """The line that a round prints of the cluster: clients are to see all nodes, and nothing else."""
    return "nodes " + ",".join(sorted(node.bootstrap for node in nodes))


@dataclass
class Versions:
    """Which tests of a session passed, by library and version."""

    heading: ClassVar[str] = "## Every minor version"

    passed: dict[tuple[str, str], bool] = field(default_factory=dict)

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        parameters: Mapping[str, str] = getattr(getattr(item, "callspec", None), "params", {})
        cell = parameters.get("library", ""), parameters.get("version", "")
        if cell in CELLS:
            note_phase(self.passed, cell, report)

    def complete(self) -> bool:
        """Every version did its round."""
        return all(self.passed.get(cell) for cell in CELLS)

    def section(self) -> Iterator[str]:
        """Its lines in the page."""
        yield self.heading
        yield ""
        yield f"Against Apache Kafka {KAFKA} directly, and through two nodes in front of it, with the same result. `ok`"
        yield "means: the client made a topic, wrote to it, also in transactions, read it in a group, where each member"
        yield "continued at the commit of the last one, saw all nodes and nothing else, and deleted the topic."
        yield "librdkafka 1.3 to 1.7 do not work with Apache Kafka 4 itself."
        yield "`make test-clients ARGS='-k test_versions'` writes this section alone."
        yield ""
        yield "| client | versions | |"
        yield "|---|---|---|"
        for library, title in (("java", "Java kafka-clients"), ("librdkafka", "confluent-kafka (librdkafka)")):
            for passed, mark in ((True, "ok"), (False, "FAIL")):
                found = [each for of, each in CELLS if of == library and bool(self.passed.get((of, each))) is passed]
                if found:
                    yield f"| {title} | {', '.join(found)} | {mark} |"
