"""Runs `ownctl`, the client of the own APIs in Go, and reads the lines it prints."""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from google.protobuf import json_format

if TYPE_CHECKING:
    from types import TracebackType

    from google.protobuf.message import Message

PATIENCE: Final = 30.0
"""Seconds a test waits for a line at most: far more than any takes."""


class OwnCtl:
    """One process. Its standard input stays open until `finish`, as an owner holds on for so long."""

    def __init__(self, program: Path, bootstrap: str, command: str, request: Message, *flags: str) -> None:
        text = json_format.MessageToJson(request, preserving_proto_field_name=True)
        arguments = [str(program), "-bootstrap", bootstrap, *flags, command, text]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines = queue.SimpleQueue[dict[str, Any] | None]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def next(self) -> dict[str, Any]:
        """The next line. Raises AssertionError where the process ended instead, `queue.Empty` where none comes."""
        line = self._lines.get(timeout=PATIENCE)
        assert line is not None, f"ended with {self._process.wait(PATIENCE)} and without another line"
        return line

    def expect(self, event: str) -> dict[str, Any]:
        """The next line, which has to tell of this event."""
        line = self.next()
        assert line["event"] == event, line
        return line

    def until(self, event: str) -> dict[str, Any]:
        """The next line that tells of this event; those in front of it are passed over."""
        while (line := self.next())["event"] != event:
            pass
        return line

    def ended(self) -> int:
        """The exit code, once it has ended by itself and printed nothing more."""
        assert self._lines.get(timeout=PATIENCE) is None
        return self._process.wait(PATIENCE)

    def finish(self) -> int:
        """End its standard input, so that it releases what it has; the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.expect("released")
        return self.ended()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()


def token_of(granted: dict[str, Any]) -> bytes:
    """The token that a line `granted` names."""
    return bytes.fromhex(granted["token"])


def as_base64(token: bytes) -> str:
    """As protobuf's JSON has bytes."""
    return base64.b64encode(token).decode()
