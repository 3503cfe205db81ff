"""What is read out of INFO."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metadata import MetadataMisconfigured, MetadataProtocolError
from metadata.server import parse_info, require_safe_settings

# Of a Redis 7.0.15 of Debian 12, which names no server.
REDIS = (
    b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\r\n# Memory\r\nused_memory:934216\r\n"
    b"maxmemory:0\r\nmaxmemory_policy:noeviction\r\n\r\n# Persistence\r\naof_enabled:1\r\n"
    b"aof_last_write_status:ok\r\n\r\n"
    b"# Replication\r\nrole:master\r\n"
)


def test_a_redis_that_names_no_server():
    info = parse_info(REDIS)
    assert (info.name, info.version, info.role) == ("redis", "7.0.15", "master")
    assert (info.used_memory, info.max_memory, info.aof_enabled) == (934_216, 0, True)
    assert info.warnings == ()
    require_safe_settings(info, "redis:6379")


def test_a_valkey_is_known_by_its_own_version():
    info = parse_info(REDIS.replace(b"7.0.15", b"7.2.4") + b"server_name:valkey\r\nvalkey_version:9.1.2\r\n")
    assert (info.name, info.version) == ("valkey", "9.1.2")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"role": "slave"}, "replica"),
        ({"aof_enabled": False}, "appendonly"),
        ({"aof_last_write_ok": False}, "disk full"),
        ({"max_memory": 1_000_000}, "maxmemory"),
    ],
)
def test_what_is_safe_but_worth_knowing_is_a_warning(change: dict[str, object], word: str):
    (warning,) = replace(parse_info(REDIS), **change).warnings  # pyright: ignore[reportArgumentType]
    assert word in warning


def test_an_eviction_policy_that_info_does_not_tell_is_not_trusted():
    info = parse_info(REDIS.replace(b"maxmemory_policy:noeviction\r\n", b""))
    with pytest.raises(MetadataMisconfigured, match=r"Redis at redis:6379 .* set maxmemory-policy to noeviction"):
        require_safe_settings(info, "redis:6379")


def test_what_is_no_info_is_a_defect():
    with pytest.raises(MetadataProtocolError):
        parse_info(b"HTTP/1.1 400 Bad Request\r\n")
