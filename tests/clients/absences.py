"""Cells that a client cannot fill because it has no such feature, each with evidence that is looked at in every run.

An absence is a statement about the client library alone: `Evidence.verify` raises once the library has grown the
feature, and then a scenario has to be written. Nothing here may depend on a broker or a node.
"""

from __future__ import annotations

import importlib
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Evidence(Protocol):
    """Something about a client that shows that a feature is absent."""

    def verify(self, jars: Sequence[Path]) -> None:
        """Raise `AssertionError` if the client does have it. `jars` are the Java client's and tools'."""
        ...


@dataclass(frozen=True, slots=True)
class NoAttribute:
    """`owner` (`module:Class`) has no attribute with `word` in its name."""

    owner: str
    word: str

    def verify(self, jars: Sequence[Path]) -> None:
        module, _, name = self.owner.partition(":")
        having = [
            attribute for attribute in dir(getattr(importlib.import_module(module), name)) if self.word in attribute
        ]
        if having:
            raise AssertionError(f"{self.owner} now has {', '.join(having)}: write the scenario")


@dataclass(frozen=True, slots=True)
class NoMention:
    """No source file of the installed package `package` contains `word`, in whatever case."""

    package: str
    word: str

    def verify(self, jars: Sequence[Path]) -> None:
        folder = Path(next(iter(importlib.import_module(self.package).__path__)))
        sources = list(folder.rglob("*.py"))
        if not sources:
            raise AssertionError(f"{self.package} has no source to look at")
        having = [path.name for path in sources if self.word.lower() in path.read_text(encoding="utf-8").lower()]
        if having:
            raise AssertionError(f"{', '.join(having)} of {self.package} now mention {self.word}: write the scenario")


@dataclass(frozen=True, slots=True)
class NoJavaName:
    """No class under `package` (with slashes) in the jar `jar-VERSION.jar` declares or calls anything of the name
    `name`.
    """

    jar: str
    package: str
    name: str

    def verify(self, jars: Sequence[Path]) -> None:
        [path] = [path for path in jars if re.fullmatch(rf"{re.escape(self.jar)}-[0-9.]+\.jar", path.name)]
        # How a class file holds a name: CONSTANT_Utf8_info, JVM specification 4.4.7.
        constant = b"\x01" + len(self.name).to_bytes(2, "big") + self.name.encode()
        with zipfile.ZipFile(path) as archive:
            classes = [one for one in archive.namelist() if one.startswith(self.package) and one.endswith(".class")]
            having = [one for one in classes if constant in archive.read(one)]
        if not classes or having:
            raise AssertionError(
                f"{path.name}: {self.package} has {len(classes)} classes, with {self.name} in {having}"
            )


@dataclass(frozen=True, slots=True)
class Absence:
    """`reason` is shown in the matrix behind `n/a:`."""

    reason: str
    evidence: Evidence


LIBRDKAFKA = "confluent_kafka.admin:AdminClient"
AIOKAFKA = "aiokafka.admin:AIOKafkaAdminClient"
KAFKA_PYTHON = "kafka.admin:KafkaAdminClient"


def _none_called(owner: str, **words: str) -> dict[str, Absence]:
    """Features that an administration client has no method for, by the word such a method would have in its name."""
    title = owner.rpartition(":")[2]
    return {
        feature.replace("_", "-"): Absence(f"{title} has no method for it", NoAttribute(owner, word))
        for feature, word in words.items()
    }


def _no_tool_calls(name: str) -> NoJavaName:
    return NoJavaName("kafka-tools", "org/apache/kafka/tools/", name)


_BY_CLIENT: dict[str, dict[str, Absence]] = {
    "confluent-kafka": _none_called(
        LIBRDKAFKA,
        group_offsets_delete="delete_consumer_group_offsets",
        log_dirs="log_dirs",
        producers="describe_producers",
        quotas="quota",
        reassignments="reassign",
        transactions="transactions",
    ),
    "aiokafka": {
        "cooperative": Absence("it has no cooperative assignor", NoMention("aiokafka.coordinator", "cooperative")),
        "group-protocol-consumer": Absence(
            "it speaks the classic protocol only", NoMention("aiokafka", "ConsumerGroupHeartbeat")
        ),
        "topic-configs": Absence("it has AlterConfigs only", NoMention("aiokafka", "IncrementalAlterConfigs")),
        **_none_called(
            AIOKAFKA,
            acls="acl",
            elect_leaders="elect",
            group_offsets_alter="alter_consumer_group",
            group_offsets_delete="delete_consumer_group",
            groups_delete="delete_consumer_group",
            log_dirs="log_dirs",
            producers="describe_producers",
            quotas="quota",
            reassignments="reassign",
            scram="scram",
            transactions="transactions",
        ),
    },
    "kafka-python": {
        "group-protocol-consumer": Absence(
            "it speaks the classic protocol only", NoMention("kafka.coordinator", "ConsumerGroupHeartbeat")
        ),
        **_none_called(KAFKA_PYTHON, quotas="quota"),
    },
    "java-tools": {
        "pause-resume": Absence("no tool pauses a partition", _no_tool_calls("pause")),
        "topic-configs-legacy": Absence("kafka-configs alters incrementally only", _no_tool_calls("alterConfigs")),
    },
    "java-client": {
        "topic-configs-legacy": Absence(
            "Admin has no alterConfigs since 4.0",
            NoJavaName("kafka-clients", "org/apache/kafka/clients/admin/Admin.class", "alterConfigs"),
        ),
    },
}

ABSENCES: dict[tuple[str, str], Absence] = {
    (client, feature): absence for client, absences in _BY_CLIENT.items() for feature, absence in absences.items()
}
