"""Everything in this process that reads the time or makes random bytes, put on a world's clock and seed.

The product asks `time`, `random`, `secrets` and `uuid`, as any program does; here these answer for the host that runs.
`install` is for ever: a world lives in its own process (`tests.sim.worker`). Functions that a module has imported
by name, or bound as a default argument, are found and exchanged too. Objects that are hashed by their address get a
number instead, and what a turn of `sidecar.network.turn` has to write is kept per host.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
import types
import typing
import uuid
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from sidecar.network import turn as turns
from tests.sim.chance import Chance

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.host import Host
    from tests.sim.loop import SimLoop

_NUMBERED: Final = ("sidecar.", "metadata.", "tests.sim.kafka.")
EPOCH_S: Final = 1_760_000_000.0
"""Unix time at which worlds begin."""
_BOOTED_S: Final = 5000.0
_PACKAGES: Final = ("sidecar", "metadata", "redis", "asyncio", "tests.sim.kafka")
REAL_RANDOM: Final = random.Random
REAL_CPU: Final = time.process_time

_made: list[random.Random] = []
_kept: list[object] = []
_numbers: dict[int, tuple[int, object]] = {}
_state: dict[str, Any] = {}


class SeededRandom(REAL_RANDOM):
    """`random.Random`, which without a seed takes one from the world."""

    def __init__(self, seed: Any = None) -> None:
        if seed is None:
            seed = _source("generators").getrandbits(64)
            _made.append(self)
            if _state["steady"]:
                _steady(self, seed)
                return
        super().__init__(seed)


def _steady(generator: random.Random, seed: Any) -> None:
    generator.__class__ = Chance
    cast(Chance, generator).become(seed)


def _source(name: str) -> random.Random:
    """Where random values come from; in a steady world one of each sort does not depend on how many of others there
    were.
    """
    if not _state["steady"]:
        return _state["rng"]
    sources: dict[str, Chance] = _state["sources"]
    if name not in sources:
        sources[name] = Chance(f"{_state['seed']} {name}")
    return sources[name]


def reseed(seed: int) -> random.Random:
    """All randomness of this process goes by `seed` from here on; a generator for the world itself is returned."""
    make = Chance if _state["steady"] else REAL_RANDOM
    rng = _state["rng"] = make(f"{seed} entropy")
    _state["seed"], _state["sources"] = seed, {}
    random.seed(seed)
    for place, each in enumerate(_made):
        each.seed(f"{seed} {place}" if _state["steady"] else rng.getrandbits(64))
    return make(f"{seed} world")


def install(
    loop: SimLoop, seed: int, log: Callable[[float, str, dict[str, Any]], None], *, steady: bool = False
) -> random.Random:
    """Take over this process. `log` hears every event that a host logs. `steady`: see `chance`."""
    _state["steady"] = steady
    Chance.loop = loop

    def monotonic() -> float:
        return _BOOTED_S + loop.time()

    def wall() -> float:
        host = loop.current
        return EPOCH_S + loop.now + (0.0 if host is None else host.wall_offset)

    def clock_gettime(clock: int) -> float:
        if clock == time.CLOCK_REALTIME:
            return wall()
        return _BOOTED_S + (loop.now if clock == time.CLOCK_BOOTTIME else loop.time())

    def token_bytes(size: int | None = None) -> bytes:
        size = 32 if size is None else size
        return _source(f"{size} bytes").randbytes(size)

    def randbits(bits: int) -> int:
        return _source(f"{bits} bits").getrandbits(bits)

    def randbelow(below: int) -> int:
        return _source("below").randrange(below)

    def choice(found: Any) -> Any:
        return _source("choice").choice(found)

    rng = reseed(seed)
    swapped: dict[int, Any] = {
        id(asyncio.get_running_loop): lambda: loop,  # which asks the system for the process's id each time
        id(time.time): wall,
        id(time.monotonic): monotonic,
        id(time.perf_counter): monotonic,
        id(time.clock_gettime): clock_gettime,
        id(time.time_ns): lambda: int(wall() * 1e9),
        id(time.monotonic_ns): lambda: int(monotonic() * 1e9),
        id(random.Random): SeededRandom,
        id(secrets.token_bytes): token_bytes,
        id(secrets.token_hex): lambda size=None: token_bytes(size).hex(),
        id(secrets.randbits): randbits,
        id(secrets.randbelow): randbelow,
        id(secrets.choice): choice,
        id(uuid.uuid4): lambda: uuid.UUID(int=_source("uuid").getrandbits(128), version=4),
    }
    for module in (time, random, secrets, uuid):
        _exchange(vars(module), swapped)
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES) and module is not None:
            _exchange_in_module(module, swapped)
    loop.on_switch = _swap_turn
    _list_no_tasks()
    slow = typing._get_protocol_attrs  # type: ignore[attr-defined]  # before Python 3.12 asked at every isinstance
    typing._get_protocol_attrs = cache(slow)  # type: ignore[attr-defined]
    _quiet_logs(loop, log)
    return rng


def _exchange(table: dict[str, Any], swapped: dict[int, Any]) -> None:
    for name, value in list(table.items()):
        if id(value) in swapped:
            table[name] = swapped[id(value)]
        elif type(value) is partial and id(value.func) in swapped:
            table[name] = partial(swapped[id(value.func)], *value.args, **value.keywords)
            _kept.append(value)  # its id stays its own
            swapped[id(value)] = table[name]
        elif type(value) is REAL_RANDOM:
            if _state["steady"]:
                _steady(value, len(_made))
            else:
                value.seed(_state["rng"].getrandbits(64))
            _made.append(value)


def _exchange_in_module(module: types.ModuleType, swapped: dict[int, Any]) -> None:
    _exchange(vars(module), swapped)
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            for member in list(vars(value).values()):
                _exchange_defaults(member, swapped)
            if value.__hash__ is object.__hash__ and module.__name__.startswith(_NUMBERED):
                value.__hash__ = cast(Any, _numbered)
        else:
            _exchange_defaults(value, swapped)


def _numbered(self: object) -> int:
    """Instead of its address: sets of objects have the same order in every process."""
    known = _numbers.get(id(self))
    if known is None:
        known = _numbers[id(self)] = len(_numbers), self  # kept, so that its address is nobody else's
    return known[0]


def _exchange_defaults(function: Any, swapped: dict[int, Any]) -> None:
    if isinstance(function, types.FunctionType):
        if function.__defaults__:
            function.__defaults__ = tuple(_instead(each, swapped) for each in function.__defaults__)
        if function.__kwdefaults__:
            function.__kwdefaults__ = {name: _instead(each, swapped) for name, each in function.__kwdefaults__.items()}


def _instead(value: Any, swapped: dict[int, Any]) -> Any:
    if type(value) is partial and id(value.func) in swapped:
        return partial(swapped[id(value.func)], *value.args, **value.keywords)
    return swapped.get(id(value), value)


def _list_no_tasks() -> None:
    """Hosts know their tasks: nobody asks for the set of weak references that asyncio keeps of them."""
    tasks = getattr(asyncio.tasks, "_all_tasks", None)
    if tasks is not None:
        tasks.add = bool  # which does nothing


def _swap_turn(old: Host | None, new: Host | None) -> None:
    """What a turn has to write belongs to a process: `turn.TURN` is one per process, and here there are many. Nodes of
    another release have another one (`Host.turn`).
    """
    turn: Any = turns.TURN if old is None or old.turn is None else old.turn
    if turn._dirty or turn._scheduled:
        if old is not None:
            old.state = turn._dirty, turn._scheduled
        turn._dirty, turn._scheduled = [], False
    if new is not None and new.state is not None:
        turn = turns.TURN if new.turn is None else new.turn
        (turn._dirty, turn._scheduled), new.state = new.state, None


def _quiet_logs(loop: SimLoop, log: Callable[[float, str, dict[str, Any]], None]) -> None:
    def told(_logger: Any, method: str, event: Any) -> Any:
        host = loop.current
        log(loop.now, host.name if host else "world", {"level": method, **event})
        raise structlog.DropEvent

    structlog.configure(
        processors=[told], wrapper_class=structlog.make_filtering_bound_logger(20), cache_logger_on_first_use=True
    )
