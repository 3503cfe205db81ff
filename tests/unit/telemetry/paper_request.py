"""A request as metrics are told of it."""

from __future__ import annotations

from typing import NamedTuple


class PaperClient(NamedTuple):
    """Where it came from."""

    peer: str = "127.0.0.1:50000"


class PaperRequest(NamedTuple):
    """Implements `sidecar.telemetry.series.Traced`."""

    client_id: bytes = b"billing"
    correlation_id: int = 7
    connection: PaperClient = PaperClient()


REQUEST = PaperRequest()
