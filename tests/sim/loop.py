"""An event loop on a virtual clock: nothing waits, time jumps to the next timer when nothing is ready to run.

Everything that runs belongs to a host, which whatever it schedules inherits. Handles of a dead host are dropped, those
of a frozen one withheld until it thaws. Threads do not exist: what is meant for one runs inline. Futures and tasks are
hashed by a running number, so that sets of them have one order in every process.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from contextvars import Context

    from tests.sim.host import Host
    from tests.sim.net import Network

_STEP_S = 2e-6
"""What one callback takes: code that looks at the clock in a loop gets somewhere."""
_STEADY_BURN = 4
"""How much of a fuse each moment of a host takes in a steady world: about as many callbacks as run in one."""
_LIVELOCK_STEPS = 200_000
_LIVELOCK_S = 1.0


class LivelockError(Exception):
    """So many callbacks ran within one second of virtual time that something turns in circles."""


class SimFuture(asyncio.Future[Any]):
    """A future that is hashed by its number, which its maker assigns."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimTask(asyncio.Task[Any]):
    """A task that is hashed by its number and known to its host."""

    def __init__(self, work: Coroutine[Any, Any, Any], *, loop: SimLoop, name: str | None = None) -> None:
        loop.made += 1
        self.number = loop.made
        super().__init__(work, loop=loop, name=name or f"t{loop.made}")
        if (host := loop.current) is not None:
            host.tasks.append(self)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimHandle:
    """A callback of one host; a timer where it stands in the loop's heap."""

    __slots__ = ("args", "callback", "context", "done", "due", "host", "outside")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        host: Host | None,
        due: float,
        outside: bool = False,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.host = host
        self.due = due
        self.outside = outside
        self.done = False

    def cancel(self) -> None:
        self.done = True

    def cancelled(self) -> bool:
        return self.done

    def when(self) -> float:
        """When it is due, on the clock of its host."""
        return self.due - (self.host.slept if self.host is not None else 0.0)


class SimLoop(asyncio.BaseEventLoop):
    """Driven by `run`; `now` is virtual seconds since the start, the same for every host."""

    def __init__(self, *, steady: bool = False) -> None:
        super().__init__()
        self.now = 0.0
        self.step_s = 0.0 if steady else _STEP_S
        self.zero = 0.0
        """When the history began: what people read counts from there."""
        self.current: Host | None = None
        self.made = 0
        self.steps = 0
        self.network: Network | None = None
        self.crashes: list[str] = []
        self.on_switch: Callable[[Host | None, Host | None], None] = lambda _old, _new: None
        self.around: Callable[[SimHandle], None] | None = None
        """Calls back in place of the loop, where somebody wants to see what that takes."""
        self._queue: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._count = 0

    def __del__(self) -> None:
        """It holds nothing of the machine's."""

    # Scheduling ---------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """The monotonic clock of the host that asks."""
        host = self.current
        return self.now if host is None else self.now - host.slept

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        handle = SimHandle(callback, args, context, self.current, 0.0)
        self._queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        when = self.now + delay
        handle = SimHandle(callback, args, context, self.current, when)
        self._count += 1
        heappush(self._timers, (when, self._count, handle))
        return handle

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        host = self.current
        if host is not None:
            when += host.slept
        handle = SimHandle(callback, args, context, host, when)
        self._count += 1
        heappush(self._timers, (when, self._count, handle))
        return handle

    def at(
        self,
        host: Host | None,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> SimHandle:
        """Call something on a host at a moment of virtual time."""
        handle = SimHandle(callback, args, context, host, when)
        self._count += 1
        heappush(self._timers, (when, self._count, handle))
        return handle

    def deliver(self, host: Host | None, when: float, callback: Callable[..., object], *args: Any) -> None:
        """As `at`, for what reaches a host from outside: no clock of its own decides when."""
        self._count += 1
        heappush(self._timers, (when, self._count, SimHandle(callback, args, None, host, when, True)))

    def soon(self, host: Host | None, callback: Callable[..., object], *args: Any) -> None:
        """Call something on a host as soon as it gets to it."""
        self._queue.append(SimHandle(callback, args, None, host, 0.0))

    @contextmanager
    def on(self, host: Host | None) -> Iterator[None]:
        """What is done and scheduled in here belongs to `host`."""
        before = self.current
        self._enter(host)
        running = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(running)
            self._enter(before)

    def _enter(self, host: Host | None) -> None:
        if host is not self.current:
            self.on_switch(self.current, host)
            self.current = host

    # Futures, tasks, threads --------------------------------------------------------------------------------------

    def create_future(self) -> Any:
        future = SimFuture(loop=self)
        self.made += 1
        future.number = self.made
        return future

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        return SimTask(coro, loop=self, name=name)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """What is meant for a thread is done at once; its outcome arrives a turn later, as a thread's would be."""
        future = self.create_future()
        try:
            outcome, error = func(*args), None
        except Exception as raised:  # noqa: BLE001 - it is the caller's
            outcome, error = None, raised
        self.call_soon(_settle, future, outcome, error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback that raised, or a task's failure that nobody looked at: never all right."""
        error = context.get("exception")
        where = self.current.name if self.current else "world"
        self.crashes.append(f"{self.now - self.zero:.6f} {where}: {context.get('message')}: {error!r}")

    get_debug: Any = staticmethod(bool)  # False, asked for each future and task

    # Network ------------------------------------------------------------------------------------------------------

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert self.network is not None
        assert self.current is not None
        return self.network.listen(self.current, protocol_factory, (host, port), options.get("start_serving", True))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.network is not None
        assert self.current is not None
        return await self.network.connect(self.current, protocol_factory, (host, port))

    def remove_reader(self, fd: Any) -> bool:
        assert self.network is not None
        return self.network.stop_accepting(fd)

    # Hosts --------------------------------------------------------------------------------------------------------

    def freeze(self, host: Host) -> None:
        """It runs nothing any more, until `thaw`; its clocks go on."""
        host.frozen = True

    def thaw(self, host: Host, *, slept: float = 0.0, timers_first: bool = False) -> None:
        """Go on with what came due meanwhile. `slept`: seconds that its monotonic clock stood still, so that timers
        have so much longer to go.
        """
        host.frozen = False
        held, host.held = host.held, []
        if slept:
            host.slept += slept
            mine = [entry for entry in self._timers if entry[2].host is host and _sleeps(entry[2])]
            self._timers = [entry for entry in self._timers if entry[2].host is not host or not _sleeps(entry[2])]
            late = [handle for handle in held if handle.due and _sleeps(handle)]
            held = [handle for handle in held if handle not in late]
            for handle in [entry[2] for entry in mine] + late:
                handle.due += slept
                self._count += 1
                self._timers.append((handle.due, self._count, handle))
            heapify(self._timers)
        if timers_first:
            held.sort(key=lambda handle: not (handle.due and _sleeps(handle)))
        self._queue.extend(held)

    def kill(self, host: Host) -> None:
        """It is gone between two callbacks: nothing of it runs again, no `finally` either."""
        if host.alive:
            host.alive, host.died_at = False, self.now
            host.held.clear()
            host.on_death(host)

    # Running ------------------------------------------------------------------------------------------------------

    def run(  # noqa: C901, PLR0912, PLR0915 - all of it runs for every callback of every history
        self, until: float, stop: Callable[[], bool] | None = None
    ) -> None:
        """Run everything that is due up to a moment, or until `stop` holds after some callback."""
        queue, pop, step_s = self._queue, heappop, self.step_s
        before, window_end, window_steps = events._get_running_loop(), self.now + _LIVELOCK_S, 0
        events._set_running_loop(self)
        try:
            while True:
                timers, now = self._timers, self.now
                while timers and timers[0][0] <= now:
                    queue.append(pop(timers)[2])
                if not queue:
                    if not timers or timers[0][0] > until:
                        self.now = max(now, until)
                        return
                    self.now = timers[0][0]
                    continue
                handle = queue.popleft()
                if handle.done:
                    continue
                host = handle.host
                if host is not None:
                    if not host.alive:
                        continue
                    if host.frozen:
                        host.held.append(handle)
                        continue
                    if host.fuse >= 0:
                        self._burn(host)
                        if not host.alive:
                            continue
                if host is not self.current:
                    self.on_switch(self.current, host)
                    self.current = host
                self.now += step_s
                self.steps += 1
                window_steps += 1
                try:
                    if self.around is not None:
                        self.around(handle)
                    elif (context := handle.context) is None:
                        handle.callback(*handle.args)
                    else:
                        context.run(handle.callback, *handle.args)
                except Exception as error:  # noqa: BLE001 - kept for the check of crashes
                    self.call_exception_handler({"message": f"callback {handle.callback!r}", "exception": error})
                now = self.now
                if now > window_end:
                    window_end, window_steps = now + _LIVELOCK_S, 0
                elif window_steps > _LIVELOCK_STEPS:
                    raise LivelockError(f"{window_steps} callbacks at {now:.3f}")
                if now > until or (stop is not None and stop()):
                    return
        finally:
            events._set_running_loop(before)
            self._enter(None)

    def _burn(self, host: Host) -> None:
        """A callback of a host with a fuse is about to run. In a steady world moments count, as callbacks must not."""
        if self.step_s:
            host.fuse -= 1
        elif host.burnt_at != self.now:
            host.burnt_at = self.now
            host.fuse -= _STEADY_BURN
        if host.fuse < 0:
            self.kill(host)

    def finish(self, work: Coroutine[Any, Any, Any], host: Host, within: float = 60.0) -> Any:
        """Run until a coroutine on `host` is done, and return its outcome."""
        with self.on(host):
            task = self.create_task(work)
        self.run(self.now + within, task.done)
        if not task.done():
            raise TimeoutError(f"not done within {within} virtual seconds")
        return task.result()

    def failed_tasks(self, host: Host) -> list[str]:
        """Tasks of a host that ended with an exception that nobody looked at."""
        return [
            repr(task._exception)  # type: ignore[attr-defined]
            for task in host.tasks
            if task.done() and not task.cancelled() and task._log_traceback  # type: ignore[attr-defined]
        ]


def _sleeps(handle: SimHandle) -> bool:
    """Whether it is a timer of its host's own, not something that arrives from outside."""
    return not handle.outside


def _settle(future: Any, outcome: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(outcome)
    else:
        future.set_exception(error)
