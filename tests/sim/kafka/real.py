"""`Talk` with real brokers over sockets."""

from __future__ import annotations

import socket
import time
import uuid
from struct import Struct
from typing import Any, Final

from tests.sim.kafka.tables import MESSAGES
from tests.sim.kafka.talk import Talk, without_tags

_SIZE: Final = Struct(">i")


class _Begun:
    """A request under way on its own connection."""

    __slots__ = ("key", "socket", "version")

    def __init__(self, connection: socket.socket, key: int) -> None:
        self.socket = connection
        self.key = key
        self.version = 0


class Real(Talk):
    """One connection to each broker, one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        pairs = [each.rsplit(":", 1) for each in bootstrap.split(",")]
        self._seeds = [(host, int(port)) for host, port in pairs]
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._correlation = 0
        self._begun: list[socket.socket] = []

    def close(self) -> None:
        """End the connections."""
        while self._begun:
            self._begun.pop().close()
        while self._sockets:
            self._sockets.popitem()[1].close()

    def _exchange_with_any(self, addresses: list[tuple[str, int]], frame: bytes) -> bytes:
        for address in addresses:
            try:
                return self._exchange(address, frame)
            except OSError:
                found = self._sockets.pop(address, None)
                if found is not None:
                    found.close()
                if address == addresses[-1]:
                    raise
        raise AssertionError("no addresses")

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
        answer = self._exchange_with_any(self._seeds if broker is None else [self._address(broker)], frame)
        return without_tags(MESSAGES[key].decode_answer(answer, 0, len(answer), version))

    def begin(self, broker: int | None, key: int, version: int, fields: dict[str, Any]) -> _Begun:
        """See `Talk`. The connection is closed with `close`, or once the answer is there."""
        self._correlation += 1
        frame = MESSAGES[key].encode_request(version, self._correlation, b"conformance", fields)
        begun = _Begun(socket.create_connection(self._seeds[0] if broker is None else self._address(broker), 10), key)
        begun.version = version
        self._begun.append(begun.socket)
        begun.socket.sendall(frame)
        return begun

    def outcome(self, pending: _Begun, seconds: float = 10.0) -> dict[str, Any] | str | None:
        """See `Talk`."""
        pending.socket.settimeout(seconds)
        try:
            size = self._read(pending.socket, 4)
            pending.socket.settimeout(10)
            answer = size + self._read(pending.socket, _SIZE.unpack(size)[0])
        except TimeoutError:
            return None
        except ConnectionResetError:
            answer = b""
        self._begun.remove(pending.socket)
        pending.socket.close()
        message = MESSAGES[pending.key]
        return without_tags(message.decode_answer(answer, 0, len(answer), pending.version)) if answer else "closed"

    def exchange(self, broker: int | None, frame: bytes) -> bytes | None:
        """See `Talk`."""
        with socket.create_connection(self._seeds[0] if broker is None else self._address(broker), 10) as connection:
            connection.sendall(frame)
            try:
                size = self._read(connection, 4)
                return size + self._read(connection, _SIZE.unpack(size)[0])
            except ConnectionResetError:
                return None

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


def warm(talk: Real) -> None:
    """Wait until the coordinator of transactions has made its topic. Raises AssertionError where it never does."""
    for _ in range(100):
        if talk.ask(None, 10, 1, {"key": "warm", "key_type": 1})["error_code"] == 0:
            return
        time.sleep(0.1)
    raise AssertionError("no coordinator of transactions within 10 s")
