"""Keep a reference to tasks that nobody awaits, and report their failures: the event loop holds tasks only weakly.

Loops run as long as the node does: one that raises, or ends by itself, is reported and begins again. A node without one
of them would look healthy and lose what the loop keeps: its leases, its fences, its snapshots. So `Loops.failing` names
those that fail again and again, and the node is not ready then.
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
"""A loop that ran for this time without a failure has recovered: longer than the longest pause of any loop."""


def take_failure(task: asyncio.Task[Any], *expected: type[BaseException]) -> None:
    """To be called when a task is done whose callers may all have gone. What is not `expected` is a mistake of ours:
    the event loop's handler hears of it, although a caller that still waits raises it as well.
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
        """End what still runs."""
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
        """Run `work` for ever; it is begun anew with a call. Cancel the task to end it."""
        loop = self._loops[name] = _Loop(asyncio.get_running_loop().time())
        return self._tasks.start(self._run(name, loop, work))

    def failing(self) -> dict[str, str]:
        """What keeps each loop from running that fails again and again."""
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
