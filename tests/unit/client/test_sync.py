"""The synchronous twins: as their asynchronous classes, in a thread of their own, and gone with their end."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import sidecar.client
from sidecar.client import sync
from sidecar.client.sync.portal import Portal
from sidecar.client.sync.twin import LosableTwin, blocks, calls, ends, iterates, makes, reads, starts
from tests.wait import wait_for

TWINS = [getattr(sync, name) for name in sync.__all__]


class Async:
    """Something asynchronous to have a twin of, used by `async with`."""

    def __init__(self) -> None:
        self._log: list[str] = []
        self.gate = asyncio.Event()
        self.over = asyncio.Event()

    @property
    def log(self) -> list[str]:
        """What was done."""
        return self._log

    def thread(self) -> str:
        return threading.current_thread().name

    async def start(self) -> None:
        self._log.append("start")

    async def fail(self) -> None:
        raise ValueError("so it is")

    async def wait(self) -> None:
        self._log.append("waits")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            self._log.append("cancelled")
            raise

    async def count(self) -> AsyncGenerator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            self._log.append("counted")

    async def lost(self) -> None:
        await self.over.wait()

    async def close(self) -> None:
        self._log.append("close")
        self.over.set()


class Sync(LosableTwin[Async], of=Async):
    """A twin of it."""

    @makes(Async)
    def __init__(self) -> None: ...

    log: Final = reads(Async, lambda twin: twin.log)
    start: Final = starts(Async.start)
    start_in_vain: Final = starts(Async.fail)
    fail: Final = blocks(Async.fail)
    wait: Final = blocks(Async.wait)
    count: Final = iterates(Async.count)
    thread: Final = calls(Async.thread)
    close: Final = ends(Async.close)


def threads() -> set[str]:
    return {each.name for each in threading.enumerate() if each.name.startswith("sidecar-")}


# The same from outside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_has_the_methods_and_parameters_of_its_asynchronous_self(twin: type[Any]) -> None:
    source = getattr(sidecar.client, twin.__name__)
    names = {name for name in vars(source) if not name.startswith("_")}
    assert names <= {name for name in dir(twin) if not name.startswith("_")}
    for name in names - {"lost"}:
        mine, theirs = inspect.getattr_static(twin, name), inspect.getattr_static(source, name)
        assert isinstance(mine, property) is isinstance(theirs, property), name
        if not isinstance(mine, property):
            assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters, name
            assert not inspect.iscoroutinefunction(mine), name
            assert "Async" not in str(inspect.signature(mine).return_annotation), name
        assert mine.__doc__, name
    assert inspect.signature(twin).parameters == inspect.signature(source).parameters


@pytest.mark.parametrize("twin", TWINS)
def test_no_docstring_of_a_twin_speaks_of_asyncio(twin: type[Any]) -> None:
    said = [twin.__doc__, *(member.__doc__ for name, member in vars(twin).items() if not name.startswith("_"))]
    for text in filter(None, said):
        assert not re.search(r"\basync\b|\bawait|asyncio|event loop", text), text


def test_a_twin_has_the_text_of_its_asynchronous_self_for_programs_that_block() -> None:
    assert Sync.__doc__ == "Something asynchronous to have a twin of, used by `with`."
    assert inspect.getattr_static(Sync, "log").__doc__ == "What was done."
    assert (sync.Leadership.__doc__ or "").count("```python") == 1
    assert "leadership.is_leader and step()" in (sync.Leadership.__doc__ or "")


# A thread of its own --------------------------------------------------------------------------------------------------


def test_it_runs_in_a_thread_that_ends_with_it() -> None:
    twin = Sync()
    assert not threads()
    twin.start()
    assert {twin.thread()} == threads() == {"sidecar-Sync"}
    twin.close()
    assert not threads()
    twin.close()
    assert twin.log == ["start", "close"]
    with pytest.raises(RuntimeError, match="closed"):
        twin.start()


def test_an_error_is_the_callers() -> None:
    twin = Sync()
    with pytest.raises(ValueError, match="so it is"):
        twin.start_in_vain()
    assert not threads()
    other = Sync()
    other.start()
    with pytest.raises(ValueError, match="so it is"):
        other.fail()
    assert threads()
    other.close()


def test_what_waits_wants_it_to_be_open() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        Sync().wait()
    with pytest.raises(RuntimeError, match="not open"):
        Sync().lost()


def test_a_second_start_that_fails_leaves_the_first() -> None:
    twin = Sync()
    twin.start()
    with pytest.raises(ValueError, match="so it is"):
        twin.start_in_vain()
    assert twin.thread() == "sidecar-Sync"
    twin.close()


def test_a_generator_is_closed_where_its_reader_stops() -> None:
    twin = Sync()
    twin.start()
    assert list(twin.count()) == [0, 1, 2]
    for number in twin.count():
        if number == 1:
            break
    assert twin.log == ["start", "counted", "counted"]
    twin.close()


def test_many_threads_may_call_it() -> None:
    twin = Sync()
    twin.start()
    waiting = [threading.Thread(target=twin.wait) for _ in range(5)]
    for each in waiting:
        each.start()
    wait_for(lambda: twin.log.count("waits") == 5, "all to wait")
    twin._call(twin._twin.gate.set)
    for each in waiting:
        each.join(10)
    assert "cancelled" not in twin.log
    twin.close()


def test_who_waits_while_it_is_closed_is_told() -> None:
    twin, told = Sync(), list[BaseException]()
    twin.start()

    def wait() -> None:
        try:
            twin.wait()
        except RuntimeError as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_for(lambda: "waits" in twin.log, "the call")
    twin.close()
    waiting.join(10)
    assert "closed meanwhile" in str(told[0])


def test_lost_is_waited_for_or_asked_now_and_then() -> None:
    twin, told = Sync(), list[bool]()
    twin.start()
    assert not twin.lost(timeout=0)
    assert not twin.lost(timeout=0.01)
    waiting = threading.Thread(target=lambda: told.append(twin.lost()))
    waiting.start()
    twin._call(twin._twin.over.set)
    waiting.join(10)
    assert told == [True]
    assert twin.lost(timeout=0)
    twin.close()
    assert twin.lost()


def test_a_blocking_call_in_its_own_loop_is_an_error() -> None:
    twin = Sync()
    twin.start()
    with pytest.raises(RuntimeError, match="event loop that has to answer it"):
        twin._call(twin.wait)
    twin.close()


def test_one_that_is_forgotten_is_closed() -> None:
    twin = Sync()
    twin.start()
    log = twin.log
    del twin
    gc.collect()
    wait_for(lambda: not threads(), "its thread to end")
    assert log == ["start", "close"]


def test_a_portal_stops_twice_and_takes_nothing_behind_that() -> None:
    portal = Portal("sidecar-test")
    portal.stop()
    portal.stop()
    with pytest.raises(RuntimeError, match="closed"):
        portal.run(Async().wait)


# Interrupted ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Ctrl-C does what it does in a foreground, also where the tests run in a background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_ctrl_c_cancels_the_call_and_goes_on_when_it_has_ended() -> None:
    twin = Sync()
    twin.start()
    main = threading.get_ident()

    def interrupt() -> None:
        wait_for(lambda: "waits" in twin.log, "the call")
        signal.pthread_kill(main, signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        twin.wait()
    assert twin.log == ["start", "waits", "cancelled"]  # by now, not some time later
    helper.join(10)
    assert twin.thread() == "sidecar-Sync"  # and it goes on
    twin.close()


# Processes ------------------------------------------------------------------------------------------------------------


def run(program: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    text = "from tests.unit.client.test_sync import Sync\n" + textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", text], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )


def test_what_is_left_open_is_closed_when_the_interpreter_exits() -> None:
    done = run(
        """
        twin = Sync()
        twin.start()
        close = twin._twin.close
        async def told():
            await close()
            print("closed", flush=True)
        twin._twin.close = told
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_a_forked_child_is_told_and_ends() -> None:
    assert os.name == "posix"
    done = run(
        """
        import os
        twin = Sync()
        twin.start()
        child = os.fork()
        if not child:
            try:
                twin.wait()
            except RuntimeError as error:
                print(error, flush=True)
            raise SystemExit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        twin.close()
        print(twin.log)
        """
    )
    assert done.returncode == 0, done.stderr
    told, code, log = done.stdout.splitlines()
    assert "before a fork" in told
    assert (code, log) == ("3", "['start', 'close']")
