"""Answers that are kept for a few seconds; callers that ask while one is on its way share it."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

from sidecar.network.tasks import take_failure

AnswerT = TypeVar("AnswerT")
_MOST: Final = 1_000


class Recent(Generic[AnswerT]):
    """Answers by key, each `seconds` old at most when it is given. Failures are not remembered; those that are not
    `expected` are reported, as all callers may have gone meanwhile.
    """

    def __init__(self, seconds: float, *expected: type[Exception]) -> None:
        self._seconds = seconds
        self._expected = expected
        self._kept: dict[Hashable, tuple[float, AnswerT]] = {}
        self._asking: dict[Hashable, asyncio.Task[AnswerT]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """The answer that is remembered, else what `ask` returns. Raises what that raises."""
        loop = asyncio.get_running_loop()
        kept = self._kept.get(key)
        if kept is not None and loop.time() - kept[0] < self._seconds:
            return kept[1]
        task = self._asking.get(key)
        if task is None:
            task = loop.create_task(ask())
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done, loop.time()))
        return await asyncio.shield(task)

    def _take_failure(self, task: asyncio.Task[AnswerT]) -> None:
        take_failure(task, *self._expected)

    def _asked(self, key: Hashable, task: asyncio.Task[AnswerT], now: float) -> None:
        self._take_failure(task)
        if self._asking.get(key) is not task:
            return  # forgotten meanwhile: it may be from before the change
        del self._asking[key]
        if not task.cancelled() and task.exception() is None:
            if len(self._kept) >= _MOST:
                self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < self._seconds}
            if len(self._kept) < _MOST:
                self._kept[key] = now, task.result()

    def forget(self, key: Hashable) -> None:
        """What `key` stands for has changed."""
        self._kept.pop(key, None)
        task = self._asking.pop(key, None)
        if task is not None:
            task.add_done_callback(self._take_failure)

    async def close(self) -> None:
        """Ask no more; waiting calls are cancelled."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
