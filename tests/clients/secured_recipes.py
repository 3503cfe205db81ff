"""The programs of `examples/clients` with settings for SASL_SSL, which `secured/` has, put into a copy of them.

Nothing else of a program is changed: an edit is a text that stands there, and what takes its place.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from sidecar.local.jars import Jars
from sidecar.local.java import Java

from . import gobuild, javabuild
from .recipes import SOURCES, CannotBuildError, run_tool

SECURED: Final = Path(__file__).with_name("secured")
PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = {
    "java": (*PASSWORDS, "OAUTHBEARER"),
    "confluent-kafka": (*PASSWORDS, "OAUTHBEARER"),
    "aiokafka": (*PASSWORDS, "OAUTHBEARER"),
    "kafka-python": (*PASSWORDS, "OAUTHBEARER"),
    "kafkajs": (*PASSWORDS, "OAUTHBEARER"),
    "sarama": (*PASSWORDS, "OAUTHBEARER"),  # SCRAM by `sarama.go.txt`: the library has none of its own
    "franz-go": (*PASSWORDS, "OAUTHBEARER"),
}
"""Of each client, those that a node offers: all of them."""
_PYTHON: Final = {
    "confluent-kafka": ("confluent.py", "secure_confluent", '"bootstrap.servers": bootstrap,'),
    "aiokafka": ("aio.py", "secure_aio", "bootstrap_servers=bootstrap,"),
    "kafka-python": ("kafka_python.py", "secure_kafka_python", "bootstrap_servers=bootstrap,"),
}


_GO: Final = {
    "sarama": {"config := sarama.NewConfig()\n": "config := sarama.NewConfig()\n\tsecure(config)\n"},
    "franz-go": {
        "kgo.SeedBrokers(bootstrap),": "kgo.SeedBrokers(bootstrap),"
        "\n\t\tkgo.DialTLSConfig(trusted()),\n\t\tkgo.SASL(mechanism()),"
    },
}


class SecuredRecipes:
    """Commands by the name of a client; each is made in `directory` when it is asked for first."""

    def __init__(self, directory: Path, java: Java, jars: Jars) -> None:
        self._directory = directory
        self._java = java
        self._jars = jars
        self._made: dict[str, list[str]] = {}

    def command(self, client: str) -> list[str]:
        """How the client's program is started. Raises CannotBuildError, RuntimeError with what a tool wrote."""
        if client not in self._made:
            make = {"java": self._of_java, "kafkajs": self._of_node, "sarama": self._of_go, "franz-go": self._of_go}
            self._made[client] = make.get(client, self._of_python)(client)
        return self._made[client]

    def _of_python(self, client: str) -> list[str]:
        name, module, at = _PYTHON[client]
        home = self._home(client)
        shutil.copy(SECURED / f"{module}.py", home)
        _edit(
            SOURCES / name,
            home / "recipe.py",
            {at: f"{at} **secure(),", "import sys\n": f"import sys\nfrom {module} import secure\n"},
        )
        return [sys.executable, str(home / "recipe.py")]

    def _of_java(self, client: str) -> list[str]:
        home = self._home(client)
        shutil.copy(SECURED / "Secure.java", home)
        edits = {
            "Map.of(\n": "Secure.with(Map.of(\n",
            '"2147483647"),': '"2147483647")),',
            '"enable.auto.commit", "false"),': '"enable.auto.commit", "false")),',
        }
        _edit(SOURCES / "java" / "Recipe.java", home / "Recipe.java", edits)
        jar = javabuild.compiled(self._java, self._jars, sorted(home.glob("*.java")), "client-secured")
        path = os.pathsep.join([str(jar), self._jars.class_path])
        return [str(self._java.path), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", path, "Recipe"]

    def _of_node(self, client: str) -> list[str]:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            raise CannotBuildError("no `node` or no `npm` on PATH")
        home = self._home(client)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / "kafkajs" / name, home)
        shutil.copy(SECURED / "secure.js", home)
        edits = {
            "brokers: [bootstrap],": "brokers: [bootstrap], ...secure(),",
            "import { createInterface }": "import { secure } from './secure.js'\nimport { createInterface }",
        }
        _edit(SOURCES / "kafkajs" / "recipe.js", home / "recipe.js", edits)
        run_tool(home, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
        return [node, str(home / "recipe.js")]

    def _of_go(self, client: str) -> list[str]:
        if reason := gobuild.refusal(SOURCES / "go"):
            raise CannotBuildError(reason)
        home = self._home(client)
        for name in ("go.mod", "go.sum"):
            shutil.copy(SOURCES / "go" / name, home)
        (home / client).mkdir()
        shutil.copy(SECURED / f"{client.replace('-', '_')}.go.txt", home / client / "secure.go")
        _edit(SOURCES / "go" / client / "main.go", home / client / "main.go", _GO[client])
        run_tool(home, "go", "build", "-o", f"{client}.program", f"./{client}")
        return [str(home / f"{client}.program")]

    def _home(self, client: str) -> Path:
        home = self._directory / client
        home.mkdir(parents=True)
        return home


def _edit(source: Path, made: Path, edits: dict[str, str]) -> None:
    text = source.read_text()
    for before, after in edits.items():
        assert before in text, f"{source.name} has no {before!r} any more"
        text = text.replace(before, after)
    made.write_text(text)
