"""The section of the matrix on logins: clients over SASL_SSL, each with each mechanism (`test_secured`).

A run of these tests alone writes their section of the page anew, and leaves the rest as it stands there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar, Final

from confluent_kafka import libversion

from sidecar.local.kafka_config import default_version

from .further import KAFKA
from .recipes import SOURCES
from .secured_recipes import MECHANISMS, PASSWORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

ALL: Final = (*PASSWORDS, "OAUTHBEARER")
CELLS: Final = [(client, mechanism) for client, mechanisms in MECHANISMS.items() for mechanism in mechanisms]


def note_phase(passed: dict[tuple[str, str], bool], cell: tuple[str, str], report: pytest.TestReport) -> None:
    """One phase of a cell's test is over: it passed if it was called, and no phase failed or was skipped."""
    if not report.passed:
        passed[cell] = False
    elif report.when == "call":
        passed.setdefault(cell, True)


@dataclass
class Logins:
    """Which tests of a session passed, by client and mechanism."""

    heading: ClassVar[str] = "## Over SASL_SSL"

    passed: dict[tuple[str, str], bool] = field(default_factory=dict)

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        parameters: Mapping[str, str] = getattr(getattr(item, "callspec", None), "params", {})
        cell = parameters.get("client", ""), parameters.get("mechanism", "")
        if cell in CELLS:
            note_phase(self.passed, cell, report)

    def complete(self) -> bool:
        """Every client logged in with every mechanism that it has."""
        return all(self.passed.get(cell) for cell in CELLS)

    def section(self) -> Iterator[str]:
        """Its lines in the page."""
        yield self.heading
        yield ""
        kafka = f"Apache Kafka {default_version()}"
        yield f"Through one node, which relays logins, in front of {kafka} with ACLs. `ok` means:"
        yield "over TLS the client logged in, owned an exclusive topic, wrote and read, and a rival was refused."
        yield "`make test-clients ARGS='-k test_secured'` writes this section alone."
        yield ""
        yield "| | " + " | ".join(ALL) + " |"
        yield "|---|" + "---|" * len(ALL)
        marks = {None: "–", True: "ok", False: "FAIL"}
        for client in MECHANISMS:
            cells = [marks[self.passed.get((client, each))] for each in ALL]
            yield f"| {_title(client)} | " + " | ".join(cells) + " |"


def _title(client: str) -> str:
    """The client with its version."""
    if client == "java":
        return f"Java kafka-clients {KAFKA}"
    if client == "confluent-kafka":
        return f"confluent-kafka {version(client)}, librdkafka {libversion()[0]}"
    if client == "kafkajs":
        locked = json.loads((SOURCES / "kafkajs" / "package-lock.json").read_text())
        return f"kafkajs {locked['packages']['node_modules/kafkajs']['version']}"
    if client in ("sarama", "franz-go"):
        (found,) = re.findall(rf"/{client} v(\S+)$", (SOURCES / "go" / "go.mod").read_text(), re.MULTILINE)
        return f"{client} {found}"
    return f"{client} {version(client)}"
