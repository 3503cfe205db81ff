"""Objects made from files, and made again when the files change: certificates, users."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar

MadeT = TypeVar("MadeT")

LOOK_S: Final = 1.0
"""Seconds between two looks at the files: a `stat` call for each."""


class FileError(ValueError):
    """A file that cannot be used; the message names it."""


class MadeOfFiles(Generic[MadeT]):
    """Returns the object made from the current files. Each call checks the files, once a second at most.

    If the files become unusable, the old object stays in use until they change again. `make` raises FileError; the
    constructor passes it on; `on_change` is called on each change, with the error, or with None where the new
    files are in use. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        make: Callable[[], MadeT],
        on_change: Callable[[FileError | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = tuple(paths)
        self._make = make
        self._on_change = on_change
        self._clock = clock
        self._marks = self._look()  # before the files are read: a change meanwhile is seen the next time
        self._made = make()
        self._looked = clock()

    def __call__(self) -> MadeT:
        """Return the current object."""
        now = self._clock()
        if now - self._looked >= LOOK_S:
            self._looked = now
            marks = self._look()
            if marks != self._marks:
                self._marks = marks
                self._make_again()
        return self._made

    def _make_again(self) -> None:
        try:
            self._made = self._make()
        except FileError as error:
            self._on_change(error)
        else:
            self._on_change(None)

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_mark(path) for path in self._paths]


def _mark(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file's content: modification time in ns, size, inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
