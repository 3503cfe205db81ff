"""How much a node does in one callback, in units that are the same in every run: a client's bytes must not hold it.

A unit is a call of a Python or C function; what is decompressed counts by its size. What `aside` does is a thread's,
and counts for nothing. Watched from the step on that asks for it, as watching takes time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.sim.world import World

MOST: Final = 200_000
"""Units in one callback: some 30 ms, of the 50 ms that `sidecar.protocol.limits` allows."""
_BYTES_A_UNIT: Final = 64


class Work:
    """Of all nodes of a world. `held`: what took too long."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self._units = 0
        self._is_aside = False

    def watch(self, world: World) -> None:
        """From now on."""
        loop = world.loop
        if loop.around is not None:
            return
        loop.around = self._around
        in_thread = loop.run_in_executor

        def run_in_executor(executor: Any, func: Any, *args: Any) -> Any:
            before, self._is_aside = self._is_aside, True
            try:
                return in_thread(executor, func, *args)
            finally:
                self._is_aside = before

        loop.run_in_executor = run_in_executor
        _count_bytes(self._decompressed)

    def _around(self, handle: Any) -> None:
        host = handle.host
        if host is None or not host.name.startswith("node-"):
            _call(handle)
            return
        self._units = 0
        sys.setprofile(self._called)
        try:
            _call(handle)
        finally:
            sys.setprofile(None)
        if self._units > MOST and len(self.held) < 3:
            self.held.append(f"{host.name} did {self._units} units of work in one callback, {MOST} are the most")

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if not self._is_aside and event in ("call", "c_call"):
            self._units += 1

    def _decompressed(self, size: int) -> None:
        if not self._is_aside:
            self._units += size // _BYTES_A_UNIT


def _call(handle: Any) -> None:
    if handle.context is None:
        handle.callback(*handle.args)
    else:
        handle.context.run(handle.callback, *handle.args)


def _count_bytes(told: Any) -> None:
    from sidecar.protocol import codecs  # noqa: PLC0415 - only where it is watched

    original = codecs.decompress

    def decompress(codec: int, data: Any, limit: int) -> Any:
        found = original(codec, data, limit)
        told(len(found))
        return found

    codecs.decompress = decompress
