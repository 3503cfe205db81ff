"""The simulated Redis answers as `fakeredis` does, command by command and script by script."""

from __future__ import annotations

import random
from typing import Any

import fakeredis
import pytest
from redis.exceptions import ResponseError

from metadata import scripts
from metadata.scripts import Script
from tests.sim.loop import SimLoop
from tests.sim.redis import SimRedis, decode, encode

ALL = [each for each in vars(scripts).values() if isinstance(each, Script)]


class Both:
    """The simulated one and the other, asked the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_760_000_000.0
        monkeypatch.setattr("time.time", lambda: self.now)
        self.ours = SimRedis(SimLoop(), lambda: self.now)
        self.theirs = fakeredis.FakeRedis(protocol=2, lua_modules=set())

    def ask(self, *command: Any) -> Any:
        words = [each if isinstance(each, bytes) else str(each).encode() for each in command]
        ours = self.ours.execute(words)
        try:
            theirs = self.theirs.execute_command(*words)
        except ResponseError:
            assert ours.startswith(b"-")
            return None
        assert ours == _encoded(words[0], theirs), command
        return theirs


def _encoded(name: bytes, reply: Any) -> bytes:
    if name == b"HGETALL" and isinstance(reply, dict):
        reply = [each for pair in reply.items() for each in pair]
    if name == b"SET":
        return b"+OK\r\n" if reply else b"$-1\r\n"
    if name == b"ZSCORE" and isinstance(reply, float):
        reply = b"%.17g" % reply
    return encode(reply)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    return Both(monkeypatch)


def test_commands(both: Both) -> None:
    for command in (
        "GET a", "SET a 1 NX", "SET a 2 NX", "GET a", "EXISTS a b", "DEL a b", "HSET h x 1 y 2", "HSET h x 3 z 4",
        "HGET h x", "HGET h q", "HEXISTS h x", "HGETALL h", "HKEYS h", "HMGET h x q y", "HDEL h x q", "HDEL h y z",
        "EXISTS h", "ZADD s 5 a 7 b 6 c", "ZADD s 8 a", "ZSCORE s a", "ZSCORE s q", "ZRANGEBYSCORE s -inf 7",
        "ZRANGEBYSCORE s (7 +inf", "ZREM s a", "ZREM s b c", "EXISTS s", "SET k v PX 100", "GET k", "GET h",
    ):  # fmt: skip
        both.ask(*command.split())
    both.now += 0.2
    assert both.ask("GET", "k") is None
    both.ask("HSET", "h", "x", "1")
    both.ask("GET", "h")


@pytest.mark.parametrize("seed", range(3))
def test_scripts(both: Both, seed: int) -> None:
    rng = random.Random(seed)
    prefix = "sidecar:{c}:"
    tokens = [rng.randbytes(16).hex() for _ in range(4)]

    def keys(*names: str) -> list[str]:
        return [prefix + name for name in names]

    def run(script: Script, names: list[str], *args: Any) -> Any:
        return both.ask("EVAL", script.text, len(names), *names, *args)

    for _ in range(150):
        both.now += rng.choice((0.001, 0.1, 0.7))
        node = rng.choice((1, 2))
        boot, token, topic = f"ab{node}", rng.choice(tokens), rng.choice("tu")
        record = f"{rng.randint(1, 4)} {rng.randint(0, 5)} {rng.choice(('pid:1', 'pid:2', '-'))} {{}}"
        nodes = keys("nodes", "served", "leases", "served:version")
        match rng.randrange(8):
            case 0 | 1:
                names = [*nodes, *keys("owners", "policies:version", "pulse", f"gone:{boot}")]
                run(scripts.HEARTBEAT, names, node, boot, "{}", 600, token, "", 1, topic, topic, record)
            case 2:
                run(scripts.SERVE, [*nodes, *keys("pulse")], topic, node, boot, 600, token, rng.choice(("", "1", "2")))
            case 3:
                names = keys("owners", "tickets", "claims", f"used:{token}", "nodes", "served", "leases")
                mode = rng.choice(("exclusive", "exclusive_with_fencing"))
                run(scripts.CLAIM, names, topic, token, boot, "pid:1", "{}", mode, "", record, 300, topic, "")
            case 4:
                run(scripts.LEAVE, [*nodes, *keys("claims", f"gone:{boot}", "pulse")], node, boot, token)
            case 5:
                run(scripts.HAND_OVER, nodes, topic, node, boot, rng.choice(("", 1, 2)), 600, token)
            case 6:
                run(scripts.POLICIES, keys("policies", "policies:version"))
            case _:
                both.ask("HGETALL", prefix + rng.choice(("nodes", "served", "owners", "claims")))


def test_all_scripts_are_compiled() -> None:
    server = SimRedis(SimLoop(), lambda: 0.0)
    for script in ALL:
        assert not server.execute([b"EVALSHA", script.sha, b"0"]).startswith(b"-ERR unknown")


def test_a_script_is_known_by_its_name_once_it_ran_and_until_a_restart() -> None:
    server = SimRedis(SimLoop(), lambda: 1.0)
    assert server.execute([b"EVALSHA", scripts.POLICIES.sha, b"0"]).startswith(b"-NOSCRIPT")
    names = [b"2", b"policies", b"version"]
    first = server.execute([b"EVAL", scripts.POLICIES.text, *names])
    assert server.execute([b"EVALSHA", scripts.POLICIES.sha, *names]) == first
    server.empty()
    assert server.execute([b"EVALSHA", scripts.POLICIES.sha, b"0"]).startswith(b"-NOSCRIPT")


def test_it_is_rolled_back_to_what_was_kept() -> None:
    server = SimRedis(SimLoop(), lambda: 1.0)
    server.execute([b"HSET", b"h", b"a", b"1"])
    server.keep()
    server.execute([b"HSET", b"h", b"a", b"2"])
    server.roll_back()
    assert server.execute([b"HGET", b"h", b"a"]) == b"$1\r\n1\r\n"
    assert server.effects["redis rolled back"] == 1


def test_commands_arrive_in_any_pieces() -> None:
    whole = b"*2\r\n$3\r\nGET\r\n$2\r\nab\r\n"
    for size in range(len(whole)):
        assert decode(whole[:size]) == (None, 0)
    assert decode(whole + b"*1") == ([b"GET", b"ab"], len(whole))
