"""One connection that speaks frames, its messages made and read by kio: shows exactly what is answered."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Self

from tests.unit.protocol import kio_entities as kio

if TYPE_CHECKING:
    from types import TracebackType

    from sidecar.protocol.schema import Message, Values

_TIMEOUT = 30.0


class Wire:
    """A client's socket. Requests may be sent without waiting for answers; those come in order."""

    def __init__(self, bootstrap: str, client_id: str = "wire") -> None:
        host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), _TIMEOUT)
        self._correlation = 0
        self._waiting: list[tuple[int, Any]] = []

    def send(self, request: Any) -> None:
        """Send a request of kio's."""
        self._correlation += 1
        answer = kio.entity(int(type(request).__api_key__), int(type(request).__version__), "response")
        self._waiting.append((self._correlation, answer))
        self.socket.sendall(kio.request_frame(request, self._correlation, self.client_id))

    def receive(self) -> Any:
        """The next answer. Raises ConnectionError where the node closed the connection."""
        correlation, cls = self._waiting.pop(0)
        frame = self.receive_frame()
        assert int.from_bytes(frame[4:8], "big") == correlation
        return kio.answer_of(cls, frame)

    def ask(self, request: Any) -> Any:
        self.send(request)
        return self.receive()

    def ask_values(self, message: Message, request: Any) -> Values:
        """As `ask`, the answer read by the node's own table: kio cannot read what has a time of -1."""
        self.send(request)
        self._waiting.pop()
        frame = self.receive_frame()
        return message.decode_answer(frame, 0, len(frame), int(type(request).__version__))

    def ask_bytes(self, request: Any) -> bytes:
        """As `ask`, the answer's frame as it came."""
        self.send(request)
        self._waiting.pop()
        return self.receive_frame()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        head = self._exactly(4)
        return head + self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            chunk = self.socket.recv(size - len(found))
            if not chunk:
                raise ConnectionError("the node closed the connection")
            found += chunk
        return found

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
