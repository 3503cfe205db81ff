"""A simulated Redis: the commands that the product sends, and its real Lua scripts, behind a RESP byte stream.

The scripts run in Lua itself, compiled once per process, since histories are many. The commands beside them are written
here, as `fakeredis` takes several times as long for a call: `test_redis.py` runs both side by side. Keys are bytes,
values bytes, hashes (dict) or sorted sets (dict of scores). Methods say what it forgets, when it is silent and how far
it is rolled back; nothing is random here.
"""

from __future__ import annotations

import copy
from collections import Counter
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, cast

import lupa.lua51 as lupa

from metadata import scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.loop import SimLoop
    from tests.sim.net import Channel, WireEnd

_RUNTIME: Final = cast(Any, lupa).LuaRuntime(encoding=None, unpack_returned_tuples=True)
_COMPILED: Final[dict[bytes, Any]] = {}
_TABLE: Final = _RUNTIME.table_from
_LIST: Final = 0.5
"""In front of the members of a list, which Lua gets as so many values: no number of Redis."""
_RUN: Final = _RUNTIME.execute(b"""
local function encode(reply)
  local kind = type(reply)
  if kind == 'string' then
    return '$' .. #reply .. '\\r\\n' .. reply .. '\\r\\n'
  elseif kind == 'number' then
    return string.format(':%d\\r\\n', reply)
  elseif kind ~= 'table' then
    return reply and ':1\\r\\n' or '$-1\\r\\n'
  elseif reply.ok then
    return '+' .. reply.ok .. '\\r\\n'
  elseif reply.err then
    return '-' .. reply.err .. '\\r\\n'
  end
  local parts = {}
  for index, each in ipairs(reply) do
    parts[index] = encode(each)
  end
  return '*' .. #parts .. '\\r\\n' .. table.concat(parts)
end

local function listed(first, ...)
  if first == 0.5 then
    return {...}
  end
  return first
end

return function(script, call, count, ...)
  local keys, args = {...}, {}
  for index = count + 1, select('#', ...) do
    args[index - count], keys[index] = keys[index], nil
  end
  return encode(script(keys, args, {call = function(...) return listed(call(...)) end}))
end
""")
"""A script with so many of the arguments as its keys: its reply in RESP."""
Write = tuple[Any, ...]
"""A command of a script, with its arguments."""
_WRITES: Final = frozenset({b"SET", b"DEL", b"HSET", b"HDEL", b"ZADD", b"ZREM"})
_INFO: Final = (
    b"# Server\r\nredis_version:7.2.4\r\nrun_id:%s\r\n# Memory\r\nused_memory:1000000\r\nmaxmemory:0\r\n"
    b"maxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\naof_last_write_status:ok\r\n"
    b"# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n"
)


class RedisError(Exception):
    """An error that is sent to the client."""


class SimRedis:
    """One server. `wall` gives its wall clock in Unix seconds."""

    def __init__(self, loop: SimLoop, wall: Callable[[], float]) -> None:
        self.data: dict[bytes, Any] = {}
        self.expires: dict[bytes, float] = {}
        self.is_up = True
        self.is_silent = False
        self.effects: Counter[str] = Counter()
        self._scripts: dict[bytes, Any] = {}
        self._wall = wall
        self._loop = loop
        self._connections: list[_Connection] = []
        self._kept: tuple[dict[bytes, Any], dict[bytes, float]] = ({}, {})
        self._starts = 0
        self._now = 0.0
        self.observer: Callable[[str, list[bytes], bytes, list[Write]], None] | None = None
        """Sees each command: the host that sent it, the reply, and what a script wrote."""
        self.written: list[Write] = []
        for script in vars(scripts).values():
            if isinstance(script, scripts.Script):
                compiled(script.sha, script.text)

    # For the network ----------------------------------------------------------------------------------------------

    def accept(self, peer: WireEnd) -> Channel | None:
        """A client connects."""
        if not self.is_up:
            return None
        connection = _Connection(self, peer)
        self._connections.append(connection)
        return connection

    def ended(self, connection: _Connection) -> None:
        """A client is gone."""
        if connection in self._connections:
            self._connections.remove(connection)

    # Faults -------------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """What it holds now is what `roll_back` goes back to."""
        self._kept = copy.deepcopy((self.data, self.expires))

    def empty(self, *, restart: bool = True) -> None:
        """It lost everything, as a restart without persistence does."""
        self.effects["redis emptied"] += bool(self.data)
        self.data, self.expires = {}, {}
        if restart:
            self._restart()

    def roll_back(self) -> None:
        """It is what it was at `keep`: a replica that lagged was promoted."""
        self.effects["redis rolled back"] += self.data != self._kept[0]
        self.data, self.expires = copy.deepcopy(self._kept)
        self._restart()

    def down(self) -> None:
        """The process is gone; what it holds is kept."""
        self.is_up = False
        self._hang_up()

    def up(self) -> None:
        """It is back."""
        self.is_up = True

    def silence(self) -> None:
        """It takes connections and answers nothing."""
        self.is_silent = True

    def speak(self) -> None:
        """It goes on with what it was asked meanwhile."""
        self.is_silent = False
        for connection in list(self._connections):
            connection.received(b"")

    def _restart(self) -> None:
        self._starts += 1
        self._scripts.clear()
        self._hang_up()

    def _hang_up(self) -> None:
        for connection in list(self._connections):
            connection.peer.reset()
        self._connections.clear()

    # Commands -----------------------------------------------------------------------------------------------------

    def execute(self, command: list[bytes]) -> bytes:
        """One command as it came; what is answered."""
        self._now = self._wall()
        try:
            return encode(self.run(command[0].upper(), command[1:]))
        except RedisError as error:
            return b"-%s\r\n" % str(error).encode()

    def run(self, name: bytes, args: list[bytes]) -> Any:
        """A command's reply as bytes, int, None or a list; `Status` for simple strings."""
        command = _COMMANDS.get(name)
        if command is None:
            raise RedisError(f"ERR unknown command '{name.decode()}'")
        return command(self, *args)

    def call_from_lua(self, name: bytes, *args: Any) -> Any:
        """`redis.call`."""
        command = _COMMANDS.get(name)
        if command is None:
            raise RedisError(f"ERR unknown command {name!r} from script")
        if self.observer is not None and name in _WRITES:
            self.written.append((name, *args))
        reply = command(self, *[arg if type(arg) is bytes else b"%.17g" % arg for arg in args])
        kind = type(reply)
        if kind is bytes or kind is int:
            return reply
        if reply is None:
            return False
        if kind is list:
            return _LIST, *[False if each is None else each for each in reply]
        return _TABLE({b"ok": bytes(reply)})

    def _find(self, key: bytes) -> Any:
        value = self.data.get(key)
        if value is not None and key in self.expires and self.expires[key] <= self._now:
            del self.data[key], self.expires[key]
            return None
        return value

    def _of(self, key: bytes, *, create: bool = False) -> dict[bytes, Any]:
        """A hash or a sorted set."""
        value = self._find(key)
        if value is None:
            value = {}
            if create:
                self.data[key] = value
        elif not isinstance(value, dict):
            raise RedisError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return cast("dict[bytes, Any]", value)

    def _drop_empty(self, key: bytes) -> None:
        if key in self.data and not self.data[key]:
            del self.data[key]

    def ping(self) -> Status:
        return Status(b"PONG")

    def info(self, *_: bytes) -> bytes:
        return _INFO % sha1(b"%d" % self._starts).hexdigest().encode()

    def time(self) -> list[bytes]:
        micros = round(self._now * 1e6)
        return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]

    def get(self, key: bytes) -> bytes | None:
        value = self._find(key)
        if isinstance(value, dict):
            raise RedisError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def set(self, key: bytes, value: bytes, *options: bytes) -> Status | None:
        words = [option.upper() for option in options]
        if b"NX" in words and self._find(key) is not None:
            return None
        self.data[key] = value
        self.expires.pop(key, None)
        if b"PX" in words:
            self.expires[key] = self._now + int(options[words.index(b"PX") + 1]) / 1000
        return Status(b"OK")

    def delete(self, *keys: bytes) -> int:
        found = 0
        for key in keys:
            found += self._find(key) is not None
            self.data.pop(key, None)
            self.expires.pop(key, None)
        return found

    def exists(self, *keys: bytes) -> int:
        return sum(self._find(key) is not None for key in keys)

    def hget(self, key: bytes, name: bytes) -> bytes | None:
        return self._of(key).get(name)

    def hset(self, key: bytes, *pairs: bytes) -> int:
        table = self._of(key, create=True)
        before = len(table)
        table.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(table) - before

    def hdel(self, key: bytes, *names: bytes) -> int:
        table = self._of(key)
        found = sum(table.pop(name, None) is not None for name in names)
        self._drop_empty(key)
        return found

    def hexists(self, key: bytes, name: bytes) -> int:
        return int(name in self._of(key))

    def hgetall(self, key: bytes) -> list[bytes]:
        return [each for pair in self._of(key).items() for each in pair]

    def hkeys(self, key: bytes) -> list[bytes]:
        return list(self._of(key))

    def hmget(self, key: bytes, *names: bytes) -> list[bytes | None]:
        table = self._of(key)
        return [table.get(name) for name in names]

    def zadd(self, key: bytes, *pairs: bytes) -> int:
        table = self._of(key, create=True)
        before = len(table)
        table.update((member, float(score)) for score, member in zip(pairs[::2], pairs[1::2], strict=True))
        return len(table) - before

    def zrem(self, key: bytes, *members: bytes) -> int:
        return self.hdel(key, *members)

    def zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = self._of(key).get(member)
        return None if score is None else b"%.17g" % score

    def zrangebyscore(self, key: bytes, low: bytes, high: bytes) -> list[bytes]:
        least, most = _bound(low), _bound(high)
        found = [
            (score, member)
            for member, score in self._of(key).items()
            if (least[0] < score or (least == (score, True))) and (score < most[0] or (most == (score, True)))
        ]
        return [member for _, member in sorted(found)]

    def evalsha(self, name: bytes, count: bytes, *rest: bytes) -> Any:
        script = self._scripts.get(name)
        if script is None:
            raise RedisError("NOSCRIPT No matching script. Please use EVAL.")
        return self._run_script(script, int(count), rest)

    def eval(self, text: bytes, count: bytes, *rest: bytes) -> Any:
        name = sha1(text).hexdigest().encode()
        self._scripts[name] = script = compiled(name, text)
        return self._run_script(script, int(count), rest)

    def _run_script(self, script: Any, count: int, rest: tuple[bytes, ...]) -> Any:
        return Encoded(_RUN(script, self.call_from_lua, count, *rest))


def compiled(name: bytes, text: bytes) -> Any:
    """A script by its SHA-1; a world has all of the product's compiled before histories fork from it."""
    if name not in _COMPILED:
        _COMPILED[name] = _RUNTIME.compile(b"local KEYS, ARGV, redis = ...\n" + text)
    return _COMPILED[name]


class Status(bytes):
    """A simple string."""

    __slots__ = ()


class Encoded(bytes):
    """A reply that is in RESP already."""

    __slots__ = ()


_COMMANDS: Final[dict[bytes, Callable[..., Any]]] = {
    b"PING": SimRedis.ping, b"INFO": SimRedis.info, b"TIME": SimRedis.time, b"GET": SimRedis.get,
    b"SET": SimRedis.set, b"DEL": SimRedis.delete, b"EXISTS": SimRedis.exists, b"HGET": SimRedis.hget,
    b"HSET": SimRedis.hset, b"HDEL": SimRedis.hdel, b"HEXISTS": SimRedis.hexists, b"HGETALL": SimRedis.hgetall,
    b"HKEYS": SimRedis.hkeys, b"HMGET": SimRedis.hmget, b"ZADD": SimRedis.zadd, b"ZREM": SimRedis.zrem,
    b"ZSCORE": SimRedis.zscore, b"ZRANGEBYSCORE": SimRedis.zrangebyscore, b"EVALSHA": SimRedis.evalsha,
    b"EVAL": SimRedis.eval,
}  # fmt: skip


class _Connection:
    """One client of the server. Implements `Channel`."""

    def __init__(self, server: SimRedis, peer: WireEnd) -> None:
        self.peer = peer
        self._server = server
        self._buffer = b""

    def received(self, data: bytes) -> None:
        self._buffer += data
        server = self._server
        if server.is_silent:
            server.effects["redis silent"] += bool(data)
            return
        replies: list[bytes] = []
        while True:
            command, size = decode(self._buffer)
            if command is None:
                break
            self._buffer = self._buffer[size:]
            reply = server.execute(command)
            replies.append(reply)
            if server.observer is not None:
                server.observer(self.peer.link.client, command, reply, server.written)
                server.written = []
        if replies:
            self.peer.send(b"".join(replies))

    def closed(self) -> None:
        self._server.ended(self)


def decode(data: bytes) -> tuple[list[bytes] | None, int]:
    """The first command in a stream and its size; None where it is not all there."""
    end = data.find(b"\r\n")
    if end < 0:
        return None, 0
    place, found = end + 2, cast("list[bytes]", [])
    for _ in range(int(data[1:end])):
        end = data.find(b"\r\n", place)
        if end < 0:
            return None, 0
        size = int(data[place + 1 : end])
        place = end + 2 + size + 2
        if place > len(data):
            return None, 0
        found.append(data[end + 2 : end + 2 + size])
    return found, place


def encode(reply: Any) -> bytes:
    """RESP2."""
    if type(reply) is Encoded:
        return reply
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, Status):
        return b"+%s\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%s\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    return b"*%d\r\n%s" % (len(reply), b"".join(map(encode, reply)))


def _bound(text: bytes) -> tuple[float, bool]:
    """A bound of ZRANGEBYSCORE, and whether it belongs to the range itself."""
    return (float(text[1:]), False) if text.startswith(b"(") else (float(text), True)
