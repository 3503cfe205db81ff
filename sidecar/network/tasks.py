"""Keep a reference to tasks that nobody awaits, and report their failures: the event loop holds tasks only weakly."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


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
