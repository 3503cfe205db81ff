"""A file with the records of many seeds: a ZIP archive with one member for each, `SEED.jsonl`, and `about.json`.

unzip -p record.zip 7.jsonl | less
"""

from __future__ import annotations

import json
import zipfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT: Final = 2
"""Raised where records of before cannot be compared with those of now."""
_ABOUT: Final = "about.json"
_SUFFIX: Final = ".jsonl"


class ArchiveError(Exception):
    """The file is no record, or is one of another format."""


@dataclass(frozen=True, slots=True)
class About:
    """Where a record comes from. `revision`: the product's, with `+` if its files were changed; `mix`: of histories;
    `simulator`: a digest of what played them.
    """

    revision: str
    mix: str
    simulator: str = ""
    format: int = FORMAT


class Archive:
    """Opened by `create` or `read`."""

    def __init__(self, file: zipfile.ZipFile, about: About) -> None:
        self._file = file
        self.about = about

    @property
    def seeds(self) -> list[int]:
        """In order."""
        names = self._file.namelist()
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))

    def add(self, seed: int, record: bytes) -> None:
        """Keep the record of a seed."""
        self._file.writestr(f"{seed}{_SUFFIX}", record)

    def record(self, seed: int) -> bytes:
        """Raises KeyError for a seed that is not in it."""
        return self._file.read(f"{seed}{_SUFFIX}")


@contextmanager
def create(path: Path, about: About) -> Iterator[Archive]:
    """A new file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_ABOUT, json.dumps(asdict(about)))
        yield Archive(file, about)


@contextmanager
def read(path: Path) -> Iterator[Archive]:
    """Raises `ArchiveError`."""
    try:
        file = zipfile.ZipFile(path)
        values = json.loads(file.read(_ABOUT))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ArchiveError(f"{path} is no record: {error}") from None
    with file:
        if values.get("format") != FORMAT:
            raise ArchiveError(f"{path} has format {values.get('format')}, not {FORMAT}: make it again")
        yield Archive(file, About(**values))
