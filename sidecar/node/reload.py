"""SIGHUP: a node reads its settings again and applies those that may change at run time, or none if any is invalid.

Environment and flags of a process do not change, so only the file can have changed. The settings that may change are in
`sidecar.settings.loaded.RELOADABLE`; changes of others are logged, and apply at the next start.
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
        """Called with the outcome of a reload."""

        def __call__(self, *, success: bool) -> None: ...


_PROGRAM: Final = Path(settings.__file__).with_name("reread.py")
_PATIENCE_S: Final = 30.0


class RereadError(Exception):
    """The settings are invalid now, or could not be read; `problems` lists everything that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Reloader:
    """Reads the settings on request, one reading after the other; requests during a reading cause one more.

    `take` is called with the new settings, `done` with the outcome.
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
        """Request a reload; to be called in the event loop's thread, at any time."""
        self._asked.set()

    async def run(self) -> None:
        """Reload on each request, until cancelled."""
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
    """Return `old` with those values of `new` that may change at run time; and the full names of the settings that
    changed, and of those that need a restart.
    """
    differs = differing(old.settings, new.settings)
    taken = [name for name in differs if name in RELOADABLE]
    merged_settings = replace(old.settings, **{name: getattr(new.settings, name) for name in taken})
    origins = {name: origin for name, origin in old.origins.items() if name not in RELOADABLE}
    origins |= {name: origin for name, origin in new.origins.items() if name in RELOADABLE}
    loaded = replace(old, settings=merged_settings, origins=origins, config=new.config, outdated=False)
    return loaded, [full_name(name) for name in taken], [full_name(name) for name in differs if name not in RELOADABLE]


async def reread(loaded: LoadedSettings) -> LoadedSettings:
    """Read the settings again from their sources, in a process of its own. Raises `RereadError`."""
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
    except (ValueError, KeyError, TypeError) as error:  # of another version: the package was replaced
        raise RereadError([f"this version cannot read the settings, restart the node: {error!r}"]) from None
    raise RereadError(answer["problems"])
