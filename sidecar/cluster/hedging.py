"""Asks one broker a question that any broker can answer, and a second one if the first does not answer soon; and asks
once what several callers want to know.

A broker that is frozen (stopped, in a long collection, behind a link that drops packets) keeps its connections open
and answers nothing. Without this, a caller that asks it would wait for the whole request timeout, and so would all
clients with the same question. Only for requests that change nothing: more than one broker may answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

from sidecar.network.tasks import take_failure
from sidecar.protocol.caller import CallTimeoutError, DisconnectedError, UpstreamError
from sidecar.protocol.errors import KafkaError

T = TypeVar("T")
AnswerT = TypeVar("AnswerT")

PATIENCE_S: Final = 0.5
"""How long a broker may keep silent before another is asked as well."""


class Shared(Generic[AnswerT]):
    """Questions that have no answer yet, by key: a caller that has the same one waits for the same answer. Failures are
    reported that are not `expected`, as all callers may have gone meanwhile.
    """

    def __init__(self, *expected: type[Exception]) -> None:
        self.tasks: dict[Hashable, asyncio.Task[AnswerT]] = {}
        self._expected = expected

    async def answer(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """What `ask` returns, to whichever caller had the question first. Raises what that raises."""
        task = self.tasks.get(key)
        if task is None:
            task = self.tasks[key] = asyncio.get_running_loop().create_task(ask())
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def _ended(self, key: Hashable, task: asyncio.Task[AnswerT]) -> None:
        take_failure(task, *self._expected)
        if self.tasks.get(key) is task:
            del self.tasks[key]

    async def close(self) -> None:
        """Ask no more; waiting calls are cancelled."""
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Hedged:
    """Questions under way; those whose answer is not needed any more run on until they end by themselves."""

    def __init__(self, patience: float = PATIENCE_S) -> None:
        self._patience = patience
        self._tasks: set[asyncio.Task[Any]] = set()

    async def first_answer(
        self,
        ask: Callable[[int], Coroutine[Any, Any, T]],
        choose: Callable[[Collection[int]], int | None],
    ) -> T:
        """The first answer. `choose` names a broker that was not asked yet, None when there is none left.

        Raises what the last broker failed with, `DisconnectedError` where there was nobody to ask.
        """
        asked: list[int] = []
        running: set[asyncio.Task[T]] = set()
        failure: DisconnectedError | CallTimeoutError = DisconnectedError("no broker is known", sent=False)
        while True:
            broker = choose(asked)
            if broker is not None:
                asked.append(broker)
                running.add(self._start(ask(broker)))
            elif not running:
                raise failure
            done, running = await asyncio.wait(
                running, timeout=None if broker is None else self._patience, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                try:
                    return task.result()
                except (DisconnectedError, CallTimeoutError) as error:
                    failure = error

    async def answers(self, ask: Callable[[int], Coroutine[Any, Any, T]], brokers: Collection[int]) -> list[T]:
        """What some brokers answer, those left out that fail, or keep silent for a moment once there is an answer.

        Raises as `first_answer` where none answers.
        """
        running = {self._start(ask(broker)) for broker in brokers}
        found: list[T] = []
        failure: DisconnectedError | CallTimeoutError = DisconnectedError("no broker is known", sent=False)
        while running:
            patience = self._patience if found else None
            done, running = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                try:
                    found.append(task.result())
                except (DisconnectedError, CallTimeoutError) as error:
                    failure = error
            if not done:
                break
        if not found:
            raise failure
        return found

    def _start(self, question: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(question)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        take_failure(task, UpstreamError, KafkaError)

    async def cancel(self) -> None:
        """End what still runs."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
