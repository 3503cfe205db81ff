"""What the server says of itself, read from INFO, and whether it may be used. Sends nothing.

`noeviction` is required even where no memory limit is set: an evicted owner record is a lost one, and a limit can be
set at run time.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import MetadataMisconfigured, MetadataProtocolError


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Facts of one INFO.

    `name`: "valkey" or "redis"; `role`: "master" or "slave", as INFO says; memory in bytes, `max_memory` 0: no limit.
    """

    name: str
    version: str
    role: str
    eviction_policy: str
    used_memory: int
    max_memory: int
    aof_enabled: bool
    aof_last_write_ok: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know although it is safe: everything in Redis comes back from Kafka."""
        found: list[str] = []
        if self.role != "master":
            found.append("a replica: nothing can be claimed until it is promoted or the URL names the primary")
        if not self.aof_enabled:
            found.append("appendonly is off: after its restart claims wait until the nodes have filled it again")
        elif not self.aof_last_write_ok:
            found.append("the last write of the append-only file failed: is the disk full?")
        if self.max_memory and self.used_memory > self.max_memory * 9 // 10:
            found.append(f"{self.used_memory} of {self.max_memory} bytes of maxmemory used: when full, claims fail")
        return tuple(found)


def parse_info(text: bytes) -> ServerInfo:
    """Read an answer to INFO. Raises MetadataProtocolError where it is none."""
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    info = {name: value for name, colon, value in lines if colon}
    if "redis_version" not in info:
        raise MetadataProtocolError("the server's INFO names no version")
    return ServerInfo(
        # Valkey gives the Redis version that it is compatible with as redis_version, its own beside it.
        name=info.get("server_name", "redis"),
        version=info.get("valkey_version") or info["redis_version"],
        role=info.get("role", ""),
        eviction_policy=info.get("maxmemory_policy", ""),
        used_memory=int(info.get("used_memory", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        aof_enabled=info.get("aof_enabled") == "1",
        aof_last_write_ok=info.get("aof_last_write_status", "ok") == "ok",
    )


def require_safe_settings(info: ServerInfo, address: str) -> None:
    """Raises MetadataMisconfigured unless the server keeps what it is given."""
    if info.eviction_policy != "noeviction":
        found = info.eviction_policy or "unknown (INFO does not show it)"
        raise MetadataMisconfigured(
            f"Redis at {address} may evict keys: set maxmemory-policy to noeviction (it is {found}),"
            " in its configuration file and with CONFIG SET maxmemory-policy noeviction"
        )
