"""Ask one broker a question that any broker can answer, and further ones if it does not answer soon. Ask only once if
several callers have the same question.

A broker that is frozen (stopped, in a long collection, behind a link that drops packets) keeps its connections open
and answers nothing. Without hedging, a caller would wait for the whole request timeout, and so would all clients with
the same question. Only for requests that change nothing: several brokers may handle the same one.
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
"""How long the first broker may take to answer before another one is asked too."""


class Shared(Generic[AnswerT]):
    """Unanswered questions by key: callers with the same question wait for the same answer. A failure that is not
    `expected` is reported, because no caller may be left to see it.
    """

    def __init__(self, *expected: type[Exception]) -> None:
        self.tasks: dict[Hashable, asyncio.Task[AnswerT]] = {}
        self._expected = expected

    async def answer(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """Return or raise the outcome of `ask`; it is called only if no call with this key is under way."""
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
        """Cancel all questions and the calls that wait for them."""
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Hedged:
    """Questions under way. A question whose answer is no longer needed is not cancelled: it runs until it ends."""

    def __init__(self, patience: float = PATIENCE_S) -> None:
        self._patience = patience
        self._tasks: set[asyncio.Task[Any]] = set()

    async def first_answer(
        self,
        ask: Callable[[int], Coroutine[Any, Any, T]],
        choose: Callable[[Collection[int]], int | None],
    ) -> T:
        """Return the first answer. `choose` returns a broker that was not asked yet, or None if none is left.

        Raises the error of the broker that failed last, or `DisconnectedError` if no broker is known.
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
        """Return the answers of `brokers`, without those that fail or that are late once there is one answer.

        Raises what `first_answer` raises if none answers.
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
        """Cancel all questions that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
