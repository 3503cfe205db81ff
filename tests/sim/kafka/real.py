"""`Talk` with real brokers over sockets, and the comparison of every scenario with the simulation.

`python -m tests.sim.kafka.real` starts one broker (`sidecar.local.Kafka`), runs the scenarios on both and prints what
differs; `python -m tests.sim.kafka.real HOST:PORT` takes a running one.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import time
import uuid
from pathlib import Path
from struct import Struct
from typing import Any, Final

from sidecar.local import Kafka, KafkaConfig
from tests.sim.kafka import ClusterSettings
from tests.sim.kafka.harness import Simulated
from tests.sim.kafka.scenarios import SCENARIOS
from tests.sim.kafka.tables import MESSAGES
from tests.sim.kafka.talk import Talk, without_tags

_SIZE: Final = Struct(">i")


class Real(Talk):
    """One connection to each broker, one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
        self._seed = host, int(port)
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._correlation = 0

    def _exchange(self, address: tuple[str, int], frame: bytes) -> bytes:
        found = self._sockets.get(address)
        if found is None:
            found = self._sockets[address] = socket.create_connection(address, 10)
            found.settimeout(10)
        found.sendall(frame)
        size = self._read(found, 4)
        return size + self._read(found, _SIZE.unpack(size)[0])

    def _read(self, source: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = source.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the broker has closed the connection")
            data += more
        return data

    def ask(self, broker: int | None, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        self._correlation += 1
        frame = MESSAGES[key].encode_request(version, self._correlation, b"conformance", fields)
        address = self._seed if broker is None else self._address(broker)
        try:
            answer = self._exchange(address, frame)
        except OSError:
            self._sockets.pop(address).close()
            raise
        return without_tags(MESSAGES[key].decode_answer(answer, 0, len(answer), version))

    def _address(self, broker: int) -> tuple[str, int]:
        if broker not in self._brokers:
            answer = self.ask(None, 3, 10, {"topics": [], "allow_auto_topic_creation": False})
            self._brokers = {each["node_id"]: (each["host"], each["port"]) for each in answer["brokers"]}
        return self._brokers[broker]

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def unique(self, name: str) -> str:
        return f"{name}-{uuid.uuid4().hex[:10]}"

    def topic(self, partitions: int = 1, **configs: str) -> str:
        name = self.unique("topic")
        settings = [{"name": each.replace("_", "."), "value": value} for each, value in configs.items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1,
            "assignments": [],
            "configs": settings,
        }
        answer = self.ask(None, 19, 4, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})
        assert answer["topics"][0]["error_code"] == 0, answer
        while True:
            found = self.ask(None, 3, 10, {"topics": [{"name": name}], "allow_auto_topic_creation": False})["topics"][0]
            known = not found["error_code"] and all(not each["error_code"] for each in found["partitions"])
            if known and all(self.latest(name, index)[0] == 0 for index in range(partitions)):  # its replicas lead
                return name
            time.sleep(0.05)


def compare(real: Talk) -> dict[str, tuple[object, object]]:
    """By scenario: what the simulation answers, and what the brokers answer, where they differ."""
    found: dict[str, tuple[object, object]] = {}
    for name, run in SCENARIOS.items():
        simulated: object = run(Simulated(1, ClusterSettings(brokers=(1,), replication=1)))
        try:
            answered: object = run(real)
        except (OSError, AssertionError) as error:
            answered = repr(error)
        if simulated != answered:
            found[name] = simulated, answered
    return found


def main(arguments: list[str]) -> int:
    with contextlib.ExitStack() as stack:
        if arguments:
            bootstrap = arguments[0]
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            bootstrap = stack.enter_context(Kafka(Path(directory) / "kafka", KafkaConfig())).bootstrap
        talk = Real(bootstrap)
        for _ in range(100):  # the coordinator of transactions has to make its topic
            if talk.ask(None, 10, 1, {"key": "warm", "key_type": 1})["error_code"] == 0:
                break
            time.sleep(0.1)
        found = compare(talk)
    for name, (simulated, answered) in found.items():
        sys.stdout.write(f"{name}\n  simulated {simulated}\n  answered  {answered}\n")
    sys.stdout.write(f"{len(SCENARIOS) - len(found)} of {len(SCENARIOS)} scenarios agree\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
