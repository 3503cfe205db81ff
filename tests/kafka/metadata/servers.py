"""Looking behind the scripts, and a server of a test's own to be paused, killed and emptied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import redis

if TYPE_CHECKING:
    from sidecar.local import Valkey


class RedisSide:
    """A Redis by URL, seen with a plain client."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "localhost", parts.port or 6379

    def client(self) -> Any:
        """A client to be closed."""
        return redis.Redis.from_url(self.url, socket_timeout=10)

    def keys(self, cluster: str) -> list[bytes]:
        with self.client() as client:
            return sorted(client.scan_iter(match=f"sidecar:{{{cluster}}}:*", count=1000))

    def empty(self, cluster: str) -> None:
        """Forget one cluster, as an emptied server would."""
        with self.client() as client:
            if keys := self.keys(cluster):
                client.delete(*keys)

    def calls(self, *commands: str) -> int:
        """How often the server carried out these commands since it started."""
        with self.client() as client:
            stats = client.info("commandstats")
        return sum(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in commands)


class OwnServer(RedisSide):
    """The same of a server that belongs to one test; keeps nothing over a restart unless told to."""

    def __init__(self, valkey: Valkey) -> None:
        super().__init__(valkey.url)
        self.pause, self.resume, self.kill, self.restart = valkey.pause, valkey.resume, valkey.kill, valkey.restart
