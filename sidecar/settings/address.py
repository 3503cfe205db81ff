"""An address as settings have it: host and port. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple


class Address(NamedTuple):
    """A host, by name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def wildcard(self) -> bool:
        """True for 0.0.0.0 and ::, at which nobody can be reached."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def loopback(self) -> bool:
        """True where only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def parse(cls, text: str) -> Address:
        """From `host:port` or `[IPv6]:port`. Raises ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError("an IPv6 address stands in brackets, as in [::1]:19092")
        if not colon or not host or any(c.isspace() or c in "/@," for c in host):
            raise ValueError("is not of the form host:port")
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            raise ValueError(f"has no port from 0 to 65535 behind the last colon but {port!r}")
        return cls(host, int(port))
