"""SIGHUP: a node reads its settings again and takes over what may change while it runs, or nothing where any is wrong.

The environment of a process does not change and flags do not either, so it is the file that is read again. Which
settings may change is `sidecar.settings.loaded.RELOADABLE`; the others are named, and wait for the next start.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from sidecar import settings
from sidecar.settings.loaded import RELOADABLE, LoadedSettings, differing, full_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    class Done(Protocol):
        """Called with the outcome of a reading."""

        def __call__(self, *, success: bool) -> None: ...


_PROGRAM: Final = Path(settings.__file__).with_name("reread.py")
_PATIENCE_S: Final = 30.0


class RereadError(Exception):
    """The settings cannot be used as they stand now; `problems` says all that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Reloader:
    """Reads again whenever it was asked to, one reading after the other; several wishes meanwhile are one.

    `take` gets the settings from now on; `done` whether it went well.
    """

    def __init__(self, loaded: LoadedSettings, take: Callable[[LoadedSettings], None], done: Done) -> None:
        self._loaded = loaded
        self._take = take
        self._done = done
        self._asked = asyncio.Event()
        self._log = structlog.get_logger()
        if loaded.outdated:
            self._asked.set()

    def ask(self) -> None:
        """To be called in the event loop's thread, at any time."""
        self._asked.set()

    async def run(self) -> None:
        """For as long as the node serves."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                found = await reread(self._loaded)
            except RereadError as error:
                self._done(success=False)
                self._log.error("settings_not_reloaded", problems=error.problems, effect="nothing has changed")
                continue
            self._loaded, taken, waiting = merged(self._loaded, found)
            self._take(self._loaded)
            self._done(success=True)
            self._log.info("settings_reloaded", changed=taken)
            if waiting:
                self._log.warning("settings_need_restart", settings=waiting, advice="restart the node to change them")


def merged(old: LoadedSettings, new: LoadedSettings) -> tuple[LoadedSettings, list[str], list[str]]:
    """`old` with all of `new` that may change at run time; the full names of what did so, and of what has to wait."""
    differs = differing(old.settings, new.settings)
    taken = [name for name in differs if name in RELOADABLE]
    merged_settings = replace(old.settings, **{name: getattr(new.settings, name) for name in taken})
    origins = {name: origin for name, origin in old.origins.items() if name not in RELOADABLE}
    origins |= {name: origin for name, origin in new.origins.items() if name in RELOADABLE}
    loaded = replace(old, settings=merged_settings, origins=origins, config=new.config, outdated=False)
    return loaded, [full_name(name) for name in taken], [full_name(name) for name in differs if name not in RELOADABLE]


async def reread(loaded: LoadedSettings) -> LoadedSettings:
    """The settings that a node with these sources would get now. Raises `RereadError`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(_PROGRAM)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise RereadError([f"the process that reads the settings cannot start: {error}"]) from None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            out, problems = await process.communicate(loaded.to_json().encode())
    except TimeoutError:
        raise RereadError([f"the settings could not be read within {_PATIENCE_S:.0f} s"]) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = problems.decode(errors="replace").strip().rpartition("\n")[2]
        raise RereadError([f"the process that reads the settings ended with {process.returncode}: {last}"])
    try:
        answer = json.loads(out)
        if "problems" not in answer:
            return LoadedSettings.from_json(answer["settings"])
    except (ValueError, KeyError, TypeError) as error:  # of another version: the package was replaced under the node
        raise RereadError([f"this version cannot read the settings, restart the node: {error!r}"]) from None
    raise RereadError(answer["problems"])
