"""An event loop in its own thread, for callers that block. Knows nothing of what runs there.

A call that is interrupted in its own thread (Ctrl-C) is cancelled in the loop, and has ended there before the
interruption goes on. A fork takes no threads along: in the child every call is an error instead of a wait for ever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

ResultT = TypeVar("ResultT")

_JOIN_S: Final = 10.0


class Portal:
    """A loop that runs from now on until `stop`."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._gate = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, act: Callable[[], Awaitable[ResultT]], timeout: float | None = None) -> ResultT:
        """The result of what `act` begins in the loop. Raises what that raises; TimeoutError after `timeout` seconds,
        where it is cancelled; RuntimeError in the loop's own thread, in a forked child, and after `stop`.
        """
        self._check()
        outcome: concurrent.futures.Future[ResultT] = concurrent.futures.Future()
        tasks: list[asyncio.Task[ResultT]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(_await(act)))
            tasks[0].add_done_callback(lambda task: _settle(outcome, task))

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        try:
            self._soon(begin)
            return outcome.result(timeout)
        except BaseException:
            if not outcome.done() and self._soon(cancel, must=False):
                concurrent.futures.wait([outcome], timeout=_JOIN_S)
            raise

    def stop(self) -> None:
        """End what runs, and the thread. Repeating it is harmless; in a forked child there is nothing to end."""
        if self._pid != os.getpid():
            return
        with self._gate:
            if not self._stopping:
                self._stopping = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_S)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("it was made before a fork, and its thread did not come along: make one in this process")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call in the event loop that has to answer it")

    def _soon(self, act: Callable[[], None], *, must: bool = True) -> bool:
        with self._gate:
            if self._stopping:
                if must:
                    raise RuntimeError("it was closed")
                return False
            self._loop.call_soon_threadsafe(act)
            return True

    def _main(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _await(act: Callable[[], Awaitable[ResultT]]) -> ResultT:
    return await act()


def _settle(outcome: concurrent.futures.Future[ResultT], task: asyncio.Task[ResultT]) -> None:
    if task.cancelled():
        outcome.set_exception(RuntimeError("it was closed meanwhile"))
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())
