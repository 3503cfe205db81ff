"""What all synchronous classes share: each runs its asynchronous twin in an event loop in a thread (a portal).

A method is declared by a function that takes the asynchronous one. Its parameters, their types and its docstring are
that one's: type checkers find them through `ParamSpec`, programs when they run. The docstring is that one's for
programs that block: they await nothing.
"""

# ruff: noqa: SLF001 - the functions declare methods of `Twin`, and call what is private to it

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import FunctionType, TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from sidecar.client.sync.portal import Portal

_WORDS: Final = (
    ("Use it in one event loop, once.", "Use it once, from as many threads as you like."),
    ("Cancelling it loses none.", "Interrupting it loses none."),
    ("Cancelled, it does so at once.", "Interrupted, at once."),
    ("Several may be awaited at once:", "Threads may call it at once:"),
    ("Cancelled, it takes back", "Interrupted, it takes back"),
    ("A cancelled `send` takes", "An interrupted `send` takes"),
    ("or cancelled: nothing", "or interrupted: nothing"),
    ("async with", "with"),
    ("async for", "for"),
    ("import asyncio\n", ""),
    ("from contextlib import aclosing", "from contextlib import closing"),
    ("aclosing(", "closing("),
    ("from sidecar.client import", "from sidecar.client.sync import"),
    (
        "from sidecar.client.sync import ExclusiveProducer, Receipt, Record",
        "from sidecar.client import Receipt, Record\nfrom sidecar.client.sync import ExclusiveProducer",
    ),
    ("async def", "def"),
    ("asyncio.run(main())", "main()"),
    ("await ", ""),
)
_AWAITED: Final = re.compile(r"(?<!\w)\(await ([^()]*\([^()]*\))\)")
_EXAMPLE: Final = re.compile(r"```python\n.*?```", re.DOTALL)


def blocking(text: str | None) -> str:
    """A docstring for programs that block."""
    found = _AWAITED.sub(r"\1", inspect.cleandoc(text or ""))
    for word, instead in _WORDS:
        found = found.replace(word, instead)
    return found


def with_example(text: str | None, own: str | None) -> str:
    """`text` with the example in `own` in place of its first one, where there is one in `own`."""
    found, example = inspect.cleandoc(text or ""), _EXAMPLE.search(inspect.cleandoc(own or ""))
    return found if example is None else _EXAMPLE.sub(lambda _: example[0], found, count=1)


class Closable(Protocol):
    """An asynchronous class that can have a synchronous twin."""

    async def close(self) -> None: ...


class Losable(Closable, Protocol):
    """An asynchronous class whose objects may be lost."""

    async def lost(self) -> None: ...


P = ParamSpec("P")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
SelfT = TypeVar("SelfT")
TwinT = TypeVar("TwinT", bound=Closable)
LosableT = TypeVar("LosableT", bound=Losable)

_LEFT_OPEN_S: Final = 5.0
"""How long closing what was left open may take when the interpreter exits, in seconds."""


class Twin(Generic[TwinT]):
    """Holds `twin` and runs its methods in its own thread, which begins and ends with it."""

    def __init_subclass__(cls, of: type[Any] | None = None) -> None:
        """`of`: the asynchronous class, whose docstring is this one's; an example in the latter takes its place."""
        super().__init_subclass__()
        if of is not None:
            cls.__doc__ = blocking(with_example(of.__doc__, cls.__doc__))
        for name, member in vars(cls).items():
            if isinstance(member, property):
                member.__doc__ = blocking(getattr(of, name).__doc__)
            elif isinstance(member, FunctionType) and hasattr(member, "__wrapped__"):
                member.__module__, member.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"

    def __init__(self, twin: TwinT) -> None:
        self._twin = twin
        self._gate = threading.Lock()
        self._finishing = threading.Lock()
        self._portal: Portal | None = None
        self._ended = False
        self._left_open: weakref.finalize[..., Twin[TwinT]] | None = None

    def __enter__(self) -> Self:
        self._start(cast("Any", self._twin).__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(lambda: cast("Any", self._twin).__aexit__(kind, error, trace))

    def _start(self, act: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Start; if that fails, nothing stays open."""
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
        """Call in the loop a function that does not wait."""
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
        """Close; only the first call does anything, and others wait for it."""
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
    """The twin of a class whose objects may be lost."""

    def lost(self, timeout: float | None = None) -> bool:
        """Wait until it is lost or closed, `timeout` seconds at most: whether it is. Ask in its own thread, or now
        and then with `timeout=0`.
        """
        if self._ended:
            return True
        return self._run(lambda: _ends(self._twin.lost, timeout))


# Declared by the asynchronous method ----------------------------------------------------------------------------------


class Method(Generic[P, ResultT]):
    """A method, as type checkers see it."""

    def __get__(self, twin: object, owner: type[Any] | None = None) -> Callable[P, ResultT]: ...  # pyright: ignore[reportReturnType]


class Read(Generic[ResultT]):
    """A property, as type checkers see it."""

    def __get__(self, twin: object, owner: type[Any] | None = None) -> ResultT: ...  # pyright: ignore[reportReturnType]


def makes(source: Callable[P, Closable]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """A constructor, which makes an object of the asynchronous class; it stands for an empty one."""

    def begin(twin: Any, *args: Any, **named: Any) -> None:
        Twin.__init__(twin, source(*args, **named))

    return lambda _: _like(cast("Any", source).__init__, begin)


def blocks(source: Callable[Concatenate[SelfT, P], Awaitable[ResultT]]) -> Method[P, ResultT]:
    """A method that waits for a coroutine. Raises RuntimeError if the twin is not open."""
    return _runs(source, Twin._run)


def starts(source: Callable[Concatenate[SelfT, P], Awaitable[ResultT]]) -> Method[P, ResultT]:
    """A method that opens the twin; if it fails, nothing stays open."""
    return _runs(source, Twin._start)


def ends(source: Callable[Concatenate[SelfT, P], Awaitable[None]]) -> Method[P, None]:
    """A method that closes the twin; only the first call does anything, and others wait for it."""
    return _runs(source, Twin._finish)


def calls(source: Callable[Concatenate[SelfT, P], ResultT]) -> Method[P, ResultT]:
    """A method that does not wait; it runs in the loop all the same."""
    return _runs(source, Twin._call)


def iterates(source: Callable[Concatenate[SelfT, P], AsyncGenerator[ItemT]]) -> Method[P, Generator[ItemT]]:
    """A generator of what an asynchronous one yields."""
    signature = inspect.signature(source)
    found = _runs(source, Twin._iterate)
    found.__signature__ = signature.replace(return_annotation=str(signature.return_annotation).removeprefix("Async"))
    return found


def reads(_source: type[SelfT], get: Callable[[SelfT], ResultT]) -> Read[ResultT]:
    """A property of the asynchronous class: `get` reads it, in the loop."""
    return cast("Any", property(lambda twin: twin._call(lambda: get(twin._twin))))


def _runs(source: Callable[..., Any], run: Callable[..., Any]) -> Any:
    name = source.__name__

    def method(twin: Twin[Any], *args: Any, **named: Any) -> Any:
        return run(twin, lambda: getattr(twin._twin, name)(*args, **named))

    return _like(source, method)


def _like(source: Callable[..., Any], method: Any) -> Any:
    """`method` with the parameters and the docstring of `source`."""
    functools.update_wrapper(method, source)
    method.__doc__ = blocking(source.__doc__)
    return method


async def _ends(act: Callable[[], Awaitable[None]], timeout: float | None) -> bool:
    task = asyncio.ensure_future(act())
    try:
        await asyncio.wait({task}, timeout=timeout)
        return task.done()
    finally:
        task.cancel()


def _abandon(portal: Portal, twin: Closable) -> None:
    """Close a twin that was left open: its owner is gone, or the interpreter exits."""
    try:
        portal.run(lambda: _ends(twin.close, _LEFT_OPEN_S), _LEFT_OPEN_S * 2)
    except Exception:  # noqa: BLE001, S110  no caller is left; what is open ends with the loop
        pass
    finally:
        portal.stop()
