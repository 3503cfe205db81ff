"""Parses the bootstrap addresses given to a client: `host:port,…`. Pure."""

from collections.abc import Iterable
from typing import Final

_PORT: Final = 9092


def addresses(bootstrap: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return the addresses in `host:port,…`, or in several texts, as pairs. Default port: 9092. Raises ValueError."""
    named = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    found = tuple(_address(each.strip()) for each in named if each.strip())
    if not found:
        raise ValueError("bootstrap names no address: give it as host:port")
    return found


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), _PORT
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no host:port")
    return host.strip("[]"), int(port)
