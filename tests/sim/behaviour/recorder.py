"""Writes down what is to be seen from outside of the nodes in one history, as lines of JSON.

The first line is the history's own text and what the checker found wrong. Each other line is one entry, in the order of
virtual time, which is microseconds since the history began:

    [time, "asked",  client, connection, node, request]       a client's request, as a node gets it; null: the node
                                                              reads the end of the connection
    [time, "answer", client, connection, node, answer]        what the client gets; null: the connection ended
    [time, "answer", "operator", 0, node, [action, outcome]]  what an operator of a node hears
    [time, "record", topic, partition, offset, batch]         a batch that a leader appended, whoever wrote it
    [time, "script", node, name, [keys and arguments], [reply, [what it wrote, …]]]    a script or command of Redis

Bytes are text in Latin-1; of what is long there are the beginning, the size and a digest. Frames are whole, without
their length, however they were cut in pieces. What is no behaviour
is not in it: numbers of connections over all hosts, whether a script was sent by its text or by its name, which of
Kafka's own topics took a commit. Ids that nodes make up need no care: in a steady world (`chance`) they follow from the
host and the moment.
"""

from __future__ import annotations

import json
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

from metadata import scripts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.sim.history import History
    from tests.sim.kafka.batches import Batch
    from tests.sim.kafka.replica import Replica
    from tests.sim.net import Link, SocketEnd
    from tests.sim.world import World

CUT: Final = "\u2026"
"""Between the beginning of something long and what is said of the rest; no character of Latin-1."""
_LONG: Final = 2048
_CLIENT: Final = "client-"
_NODE: Final = "node-"
_NO_BEHAVIOUR: Final = frozenset({b"PING", b"INFO"})
_KAFKAS_OWN: Final = ("__consumer_offsets", "__transaction_state")
_SCRIPTS: Final = {script.sha: script for script in vars(scripts).values() if isinstance(script, scripts.Script)}


class Recorder:
    """From when it is made on; of a world that is about to play a history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: list[tuple[float, Any, Any]] = []
        """When, who (the end of a connection, a topic and partition, a node) and what, as it came."""
        world.network.observer = self._arrived
        world.cluster.appended = self._appended
        world.redis.observer = self._executed
        world.heard = self._heard

    def _arrived(self, end: SocketEnd, data: bytes | None) -> None:
        if end.link.client.startswith(_CLIENT):
            self._seen.append((self._world.loop.now, end, data))

    def _appended(self, replica: Replica, batch: Batch) -> None:
        if replica.topic.name not in _KAFKAS_OWN:
            self._seen.append((self._world.loop.now, replica, batch))

    def _executed(self, host: str, command: list[bytes], reply: bytes, written: list[tuple[Any, ...]]) -> None:
        if command[0] not in _NO_BEHAVIOUR:
            self._seen.append((self._world.loop.now, host, (command, reply, written)))

    def _heard(self, node: str, action: str, outcome: str) -> None:
        self._seen.append((self._world.loop.now, node, (action, outcome)))

    def written(self, history: History, wrong: Sequence[str]) -> bytes:
        """The lines."""
        head = {"history": str(history).splitlines(), "wrong": list(wrong)}
        lines = [_dumped(head)]
        entries, zero = _Entries(), self._world.loop.zero
        for at, who, what in self._seen:
            moment = round((at - zero) * 1e6)
            if isinstance(who, str):
                entry = entries.operator(who, *what) if len(what) == 2 else entries.script(who, *what)
                if entry is not None:
                    lines.append(_dumped([moment, *entry]))
            elif hasattr(who, "link"):
                lines += [_dumped([moment, *entry]) for entry in entries.frames(who, what)]
            else:
                lines.append(_dumped([moment, "record", who.topic.name, who.index, what.base, _shortened(what.data)]))
        return "\n".join(lines).encode()


class _Entries:
    """Makes entries of what was seen: frames of pieces, and names of connections."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Link, bool], bytes] = {}
        self._numbers: dict[Link, int] = {}
        self._counts: dict[str, int] = {}

    def frames(self, end: SocketEnd, data: bytes | None) -> list[list[Any]]:
        """Those that are whole with this piece."""
        link, is_client = end.link, end.name == end.link.client
        if not link.server.startswith(_NODE):
            return []
        if link not in self._numbers:
            self._numbers[link] = self._counts[link.client] = self._counts.get(link.client, 0) + 1
        head = ["answer" if is_client else "asked", link.client, self._numbers[link], link.server]
        if data is None:
            return [[*head, None]]
        buffer, found = self._buffers.get((link, is_client), b"") + data, []
        while len(buffer) >= 4 and len(buffer) >= (size := 4 + int.from_bytes(buffer[:4], "big")):
            found.append([*head, _shortened(buffer[4:size])])
            buffer = buffer[size:]
        self._buffers[link, is_client] = buffer
        return found

    @staticmethod
    def operator(node: str, action: str, outcome: str) -> list[Any]:
        return ["answer", "operator", 0, node, [action, outcome]]

    @staticmethod
    def script(node: str, command: list[bytes], reply: bytes, written: list[tuple[Any, ...]]) -> list[Any] | None:
        """None: Redis does not know the script, and its text follows."""
        if reply.startswith(b"-NOSCRIPT"):
            return None
        name, arguments = command[0], command[1:]
        if name in (b"EVALSHA", b"EVAL"):
            script = _SCRIPTS.get(arguments[0])
            if name == b"EVAL":
                script = next((known for known in _SCRIPTS.values() if known.text == arguments[0]), None)
            name, arguments = b"unknown" if script is None else script.name.encode(), arguments[1:]
        texts = [argument.decode("latin-1") for argument in arguments]
        writes = [[_text(part) for part in write] for write in written]
        return ["script", node, name.decode(), texts, [reply.decode("latin-1"), writes]]


def _shortened(data: bytes) -> str:
    if len(data) <= _LONG:
        return data.decode("latin-1")
    return data[:_LONG].decode("latin-1") + f"{CUT}{len(data)} bytes, SHA-1 {sha1(data).hexdigest()}"


def _text(part: Any) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else f"{part:.17g}"


def _dumped(what: Any) -> str:
    return json.dumps(what, ensure_ascii=False, separators=(",", ":"))
