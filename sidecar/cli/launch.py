"""Starts a node's process from the command line: the same process id, another program.

Reading settings takes 11 MB that a node does not need, and Python does not return memory. So the process replaces
itself with a fresh interpreter that runs `node_process.py`. Settings are sent through a pipe: they hold secrets, which
must not be on a command line, or in an environment unless the user put them there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from sidecar.settings.loaded import LoadedSettings

_PROGRAM: Final = Path(__file__).with_name("node_process.py")
_PIPE_BYTES: Final = 60_000
"""Fits into a pipe without a reader."""
_TAKE_AN_ARGUMENT: Final = ("-W", "-X")


@contextmanager
def hangups_held() -> Iterator[None]:
    """Block SIGHUP until a handler is installed, in this process after exec and in its children too.

    A node and a supervisor handle it once they can. A SIGHUP after the settings were read would otherwise end a process
    that has just started, or be lost together with a change of the file.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become_node(loaded: LoadedSettings, workers: int = 1) -> NoReturn:
    """Replace this process with a node, or with the supervisor of `workers` nodes."""
    descriptor = settings_pipe(loaded)
    os.set_inheritable(descriptor, True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, node_command(descriptor, workers=workers))  # noqa: S606 - our own program, our own interpreter


def node_command(descriptor: int, *, workers: int = 1, parent: int = 0) -> list[str]:
    """The command line of a node that reads its settings from `descriptor`, with the interpreter options of this
    process.

    `parent`: the process with which it ends, 0: none.

    `-P`: if the program's directory were on the path, modules there would hide those of the standard library.
    """
    options = [option for option in interpreter_options(sys.orig_argv) if option != "-P"]
    return [sys.executable, *options, "-P", str(_PROGRAM), *map(str, (descriptor, workers, parent))]


def settings_pipe(loaded: LoadedSettings) -> int:
    """A pipe's descriptor from which to read `loaded`. Raises ValueError if the settings are larger than a pipe."""
    data = loaded.to_json().encode()
    if len(data) > _PIPE_BYTES:
        raise ValueError(f"the settings are {len(data)} bytes long; {_PIPE_BYTES} is the most")
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def interpreter_options(arguments: list[str]) -> list[str]:
    """The options between the interpreter and the program: `-W error`, `-X dev`, …"""
    found: list[str] = []
    rest = iter(arguments[1:])
    for argument in rest:
        if not argument.startswith("-") or argument in {"-m", "-c", "-"}:
            break
        found.append(argument)
        if argument in _TAKE_AN_ARGUMENT:
            found.append(next(rest, ""))
    return found
