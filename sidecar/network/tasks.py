"""Keeps a reference to tasks that nobody awaits, and reports their failures: the event loop has only weak references.

Loops run as long as the node does. A loop that raises, or ends by itself, is reported and started again. Without one of
its loops a node would look healthy, but lose what the loop maintains: its leases, its fences, its snapshots. So
`Loops.failing` returns the loops that fail repeatedly, and the node is not ready then.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_OFTEN: Final = 3
"""Failures in a row after which a loop counts as failing."""
_STEADY_S: Final = 120.0
"""Seconds without a failure after which a loop has recovered: longer than the longest pause of any loop."""


def take_failure(task: asyncio.Task[Any], *expected: type[BaseException]) -> None:
    """Take the exception of a finished task whose callers may all have been cancelled. An exception that is not
    `expected` is a bug: the event loop's handler gets it, although a caller that still waits raises it as well.
    """
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, expected):
        complaint = {"message": "a question that callers share failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(complaint)


class Tasks:
    """Background tasks of one part of the node. `failed` is called with each unexpected exception."""

    __slots__ = ("_failed", "_tasks")

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._failed(error)

    async def cancel(self) -> None:
        """Cancel all tasks that still run, and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class _Loop:
    began: float
    failures: int = 0
    problem: str = ""


class Loops:
    """The loops of one node. `failed` is called at each failure with the name of the loop and its exception."""

    def __init__(self, tasks: Tasks, failed: Callable[[str, Exception], None]) -> None:
        self._tasks = tasks
        self._failed = failed
        self._loops: dict[str, _Loop] = {}

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run `work` for ever: after each failure it is called again. Cancel the task to end it."""
        loop = self._loops[name] = _Loop(asyncio.get_running_loop().time())
        return self._tasks.start(self._run(name, loop, work))

    def failing(self) -> dict[str, str]:
        """The loops that fail repeatedly, each with its last error."""
        now = asyncio.get_running_loop().time()
        return {
            name: loop.problem
            for name, loop in self._loops.items()
            if loop.failures >= _OFTEN and now - loop.began < _STEADY_S
        }

    async def _run(self, name: str, loop: _Loop, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        now = asyncio.get_running_loop().time
        while True:
            loop.began = now()
            try:
                await work()
                raise RuntimeError(f"{name} ended by itself")
            except Exception as error:  # noqa: BLE001  whatever it is, the loop has to go on
                loop.failures = 1 if now() - loop.began >= _STEADY_S else loop.failures + 1
                loop.problem = repr(error)
                self._failed(name, error)
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(loop.failures - 1, 10)))
