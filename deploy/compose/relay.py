"""Makes an address of this network namespace lead to another host: `python relay.py 127.0.0.1:19093 sidecar-2:19092`.

Nodes send every client the addresses that work on the host, 127.0.0.1:19092 and 127.0.0.1:19093. Programs in a
container that shares node 1's network find node 1 there, and node 2 by this. Bytes are passed as they are; a connection
ends for both sides when either ends it.

`--beside 127.0.0.1:18080` ends it with 1 once nobody listens there for half a minute: where the container whose network
it shares was started again, that has a new one, which only a start takes up. `--check` starts nothing: it exits with 0
where somebody listens at the first address.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

CHUNK: Final = 64 * 1024
CONNECT_S: Final = 5.0
CONNECTIONS: Final = 1000
"""More are closed at once: what runs here are a few programs, and files are limited."""
LOOK_S: Final = 10.0
LOOKS: Final = 3


class Address(NamedTuple):
    """Where somebody listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """From `host:port`. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form host:port")
    return Address(host, int(port))


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, until it ends."""
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()


class Relay:
    """Passes connections on to one target."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end."""
        self._open += 1
        try:
            if self._open <= CONNECTIONS:
                # Cancelled with the program: Python 3.11 would report it as a failure.
                with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                    await self._join(reader, writer)
        finally:
            self._open -= 1
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_S):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        ways = [asyncio.ensure_future(pass_on(reader, far_writer)), asyncio.ensure_future(pass_on(far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()


async def answers(place: Address) -> bool:
    """Whether somebody listens there."""
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(*place)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def gone(place: Address, look_s: float) -> None:
    """Return once nobody listened there for several looks in a row."""
    missed = 0
    while missed < LOOKS:
        await asyncio.sleep(look_s)
        missed = 0 if await answers(place) else missed + 1


async def relay(listen: Address, target: Address, beside: Address | None, look_s: float) -> int:
    """Serve until SIGTERM or Ctrl-C, or until `beside` is gone. Raises OSError where the address is taken."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    server = await asyncio.start_server(Relay(target).serve, *listen)
    sys.stdout.write(f"{listen} leads to {target}\n")
    sys.stdout.flush()
    ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(told.wait())]
    if beside is not None:
        ends.append(asyncio.ensure_future(gone(beside, look_s)))
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    server.close()  # not wait_closed: connections that are open end with the process
    if told.is_set():
        return 0
    sys.stderr.write(f"nobody listens at {beside} any more\n")
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="Makes an address here lead to another host.")
    parser.add_argument("listen", type=address)
    parser.add_argument("target", type=address)
    parser.add_argument("--beside", type=address, help="end where nobody listens here any more")
    parser.add_argument("--look-s", type=float, default=LOOK_S, help="seconds between two looks at it")
    parser.add_argument("--check", action="store_true", help="only look whether somebody listens")
    given = parser.parse_args(arguments)
    if given.check:
        return 0 if asyncio.run(answers(given.listen)) else 1
    return asyncio.run(relay(given.listen, given.target, given.beside, given.look_s))


if __name__ == "__main__":
    sys.exit(main())
