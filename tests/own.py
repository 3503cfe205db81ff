"""A raw client of the sidecar's own APIs for tests: one socket, one request at a time or several on their way."""

from __future__ import annotations

import secrets
import struct
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from sidecar.v1 import control_pb2 as control
from tests.frames import Frames

if TYPE_CHECKING:
    import socket

AnswerT = TypeVar("AnswerT", bound=Message)

EXCLUSIVE = control.EXCLUSIVE
WAIT = control.WAIT_FOR_EXCLUSIVE
FENCING = control.EXCLUSIVE_WITH_FENCING


def string(name: str) -> control.Resource:
    """A free string."""
    return control.Resource(name=name)


def topic(name: str, partition: int | None = None) -> control.Resource:
    """A topic, or one of its partitions."""
    return control.Resource(topic=name, partition=partition)


def claims(*resources: control.Resource, generation: int | None = None) -> list[control.Claim]:
    """Claims to all of these, under one generation."""
    return [control.Claim(resource=resource, generation=generation) for resource in resources]


def new_token() -> bytes:
    """16 random bytes."""
    return secrets.token_bytes(16)


class OwnClient(Frames):
    """Asks the sidecar's own questions over one connection."""

    def __init__(self, bootstrap: str, client_id: str = "own", *, connected: socket.socket | None = None) -> None:
        """`connected`: a connection that something else has opened, and uses in turns with this."""
        super().__init__(bootstrap, connected=connected)
        self._client_id = client_id.encode()
        self._correlation = 0
        self._expected: deque[int] = deque()

    def own(
        self,
        *resources: control.Resource,
        mode: control.AccessMode = EXCLUSIVE,
        token: bytes = b"",
        wait_ms: int = 0,
        generation: int | None = None,
        group: str = "",
        name: str = "",
        producer_id: int = -1,
    ) -> control.OwnResponse:
        """Claim all of these."""
        self.begin_own(
            *resources,
            mode=mode,
            token=token,
            wait_ms=wait_ms,
            generation=generation,
            group=group,
            name=name,
            producer_id=producer_id,
        )
        return self.finish(control.OwnResponse)

    def begin_own(
        self,
        *resources: control.Resource,
        mode: control.AccessMode = EXCLUSIVE,
        token: bytes = b"",
        wait_ms: int = 0,
        generation: int | None = None,
        group: str = "",
        name: str = "",
        producer_id: int = -1,
    ) -> None:
        """Send the request; `finish` takes the answer."""
        asked = control.OwnRequest(
            group=group,
            claims=claims(*resources, generation=generation),
            mode=mode,
            producer_name=name,
            token=token or new_token(),
            wait_ms=wait_ms,
            producer_id=producer_id,
        )
        self.begin(1000, asked.SerializeToString())

    def release(self, token: bytes, *resources: control.Resource, group: str = "") -> control.ReleaseResponse:
        """Let go of these, or of all that the token owns."""
        asked = control.ReleaseRequest(group=group, resources=resources, token=token)
        return self.ask(1001, asked.SerializeToString(), control.ReleaseResponse)

    def watch(self, token: bytes, wait_ms: int = 0) -> control.WatchResponse:
        """What happened to the token's claims."""
        self.begin_watch(token, wait_ms)
        return self.finish(control.WatchResponse)

    def begin_watch(self, token: bytes, wait_ms: int) -> None:
        """Send the request; `finish` takes the answer."""
        self.begin(1004, control.WatchRequest(token=token, wait_ms=wait_ms).SerializeToString())

    def last_sequence(self, name: str, producer: str) -> control.LastSequenceResponse:
        """Where a producer of a topic resumes."""
        asked = control.LastSequenceRequest(topic=name, producer_name=producer)
        return self.ask(1003, asked.SerializeToString(), control.LastSequenceResponse)

    def owners(self, *resources: control.Resource, group: str = "") -> control.DescribeOwnersResponse:
        """Who owns these, or all."""
        asked = control.DescribeOwnersRequest(group=group, resources=resources)
        return self.ask(1002, asked.SerializeToString(), control.DescribeOwnersResponse)

    def owner(self, resource: control.Resource, group: str = "") -> control.Ownership:
        """Who owns one."""
        return self.owners(resource, group=group).ownerships[0]

    def ask(self, key: int, body: bytes, kind: type[AnswerT], *, version: int = 0) -> AnswerT:
        """Request and answer. Raises `ConnectionError` where the node hangs up."""
        self.begin(key, body, version=version)
        return self.finish(kind)

    def begin(self, key: int, body: bytes, *, version: int = 0) -> None:
        """Request header v1."""
        self._correlation += 1
        self._expected.append(self._correlation)
        head = struct.pack(">hhih", key, version, self._correlation, len(self._client_id)) + self._client_id
        self.send_bytes(struct.pack(">i", len(head) + len(body)) + head + body)

    def finish(self, kind: type[AnswerT]) -> AnswerT:
        """Response header v0; of the first request that has no answer yet."""
        frame = self.receive_frame()
        assert int.from_bytes(frame[4:8], "big") == self._expected.popleft()
        return kind.FromString(frame[8:])

    def is_severed(self) -> bool:
        """Wait for the node to close the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
