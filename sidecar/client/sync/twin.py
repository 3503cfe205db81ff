"""What every synchronous twin does alike: its asynchronous self lives in a portal, from the beginning to the end."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from sidecar.client.sync.portal import Portal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator


class Closable(Protocol):
    """What a twin can be of."""

    async def close(self) -> None: ...


class Losable(Closable, Protocol):
    """What may be lost."""

    async def lost(self) -> None: ...


ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
TwinT = TypeVar("TwinT", bound=Closable)
LosableT = TypeVar("LosableT", bound=Losable)

_LEFT_OPEN_S: Final = 5.0
"""For the end of what was left open when the interpreter exits."""


class Twin(Generic[TwinT]):
    """Holds `twin` and runs its methods in its own thread, which begins and ends with it."""

    def __init__(self, twin: TwinT) -> None:
        self._twin = twin
        self._gate = threading.Lock()
        self._finishing = threading.Lock()
        self._portal: Portal | None = None
        self._ended = False
        self._left_open: weakref.finalize[..., Twin[TwinT]] | None = None

    def _start(self, act: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Begin; where that fails nothing is left."""
        is_first = self._portal is None
        try:
            return self._open().run(act)
        except BaseException:
            if is_first:
                self._end()
            raise

    def _run(self, act: Callable[[], Awaitable[ResultT]]) -> ResultT:
        portal = self._portal
        if portal is None:
            raise RuntimeError("it was closed" if self._ended else "it is not open: use `with`")
        return portal.run(act)

    def _call(self, act: Callable[[], ResultT]) -> ResultT:
        """In the loop, what does not wait."""
        portal = self._portal
        if portal is None:
            return act()

        async def run() -> ResultT:
            return act()

        return portal.run(run)

    def _iterate(self, begin: Callable[[], AsyncGenerator[ItemT]]) -> Generator[ItemT]:
        items = begin()
        try:
            while True:
                try:
                    item = self._run(items.__anext__)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if self._portal is not None:
                self._run(items.aclose)

    def _finish(self, act: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
        """End; only the first one does anything, and others wait for it."""
        with self._finishing:
            if self._ended:
                return None
            try:
                return self._open().run(act)
            finally:
                self._end()

    def _open(self) -> Portal:
        with self._gate:
            if self._portal is None:
                if self._ended:
                    raise RuntimeError("it was closed: create another one")
                self._portal = Portal(f"sidecar-{type(self).__name__}")
                self._left_open = weakref.finalize(self, _abandon, self._portal, self._twin)
            return self._portal

    def _end(self) -> None:
        with self._gate:
            self._ended = True
            portal, self._portal = self._portal, None
        if self._left_open is not None:
            self._left_open.detach()
        if portal is not None:
            portal.stop()


class LosableTwin(Twin[LosableT]):
    """A twin of what may be lost."""

    def lost(self, timeout: float | None = None) -> bool:
        """Wait until it is lost or closed, `timeout` seconds at most: whether it is. Ask in its own thread, or now
        and then with `timeout=0`.
        """
        if self._ended:
            return True
        return self._run(lambda: _ends(self._twin.lost, timeout))


async def _ends(act: Callable[[], Awaitable[None]], timeout: float | None) -> bool:
    task = asyncio.ensure_future(act())
    try:
        await asyncio.wait({task}, timeout=timeout)
        return task.done()
    finally:
        task.cancel()


def _abandon(portal: Portal, twin: Closable) -> None:
    """Of one that was left open: its owner is gone, or the interpreter exits."""
    try:
        portal.run(lambda: _ends(twin.close, _LEFT_OPEN_S), _LEFT_OPEN_S * 2)
    except Exception:  # noqa: BLE001, S110  no caller is left; what is open ends with the loop
        pass
    finally:
        portal.stop()
