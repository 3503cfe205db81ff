"""Eight clients at once: claims per second, beside appends per second of as many producers at the broker itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.claims.caller import Caller
from benchmarks.claims.calls import expect, new_token, own, release, strings
from benchmarks.claims.trips import VALUE_BYTES
from benchmarks.measures import Target
from benchmarks.raw_client import Connection, IdempotentProducer, new_producer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.arena import Arena

CLIENTS: Final = 8


@dataclass(frozen=True, slots=True)
class Round:
    """Per second: claims, each of which was let go of again, and plain appends at the broker."""

    claims: float
    appends: float


def measure(arena: Arena, rounds: int, seconds: float) -> list[Round]:
    """Both in turns; a round beforehand is thrown away."""
    topic = arena.topic(Target.UNGOVERNED, "claims-together")
    arena.create(topic)
    with Connection(arena.port(Target.DIRECT)) as connection:
        producers = [IdempotentProducer(new_producer(connection), topic, VALUE_BYTES) for _ in range(CLIENTS)]

    async def append(number: int, caller: Caller) -> None:
        producer = producers[number]
        producer.check(bytearray(await caller.exchange(bytes(producer.prepare()))))

    async def claim(number: int, caller: Caller) -> None:
        token = new_token()
        told = await caller.ask(own(strings(f"{arena.run}-together-{number}"), token))
        expect("Own", told.error, told.message)
        let_go = await caller.ask(release(token))
        expect("Release", let_go.error, let_go.message)

    found = [
        Round(
            uvloop.run(_rate(arena.port(Target.UNGOVERNED), claim, seconds)),
            uvloop.run(_rate(arena.port(Target.DIRECT), append, seconds)),
        )
        for _ in range(rounds + 1)
    ]
    return found[1:]


async def _rate(port: int, call: Callable[[int, Caller], Awaitable[None]], seconds: float) -> float:
    callers = await asyncio.gather(*[Caller.connect(port) for _ in range(CLIENTS)])
    began = time.perf_counter()

    async def go_on(number: int, caller: Caller) -> int:
        times = 0
        while time.perf_counter() - began < seconds:
            await call(number, caller)
            times += 1
        return times

    try:
        times = await asyncio.gather(*[go_on(number, caller) for number, caller in enumerate(callers)])
        return sum(times) / (time.perf_counter() - began)
    finally:
        for caller in callers:
            caller.close()
