"""The meaning of a request to a schema registry, by its method and path: which subject, read or written. Pure.

Only reads are listed: any other request with a subject counts as a write, so operations of a newer registry are
refused, not let through. A path that two servers could interpret differently is refused too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

_GETS: Final = frozenset({"GET", "HEAD"})
_AMBIGUOUS: Final = re.compile(r"[^!-~]|[;\\#]")
"""Characters at which some servers cut a path, or which they cannot read."""
_ROOTS: Final = frozenset({"subjects", "config", "mode"})


class BadPathError(ValueError):
    """The path has no single meaning; the message says what to write instead."""


class Kind(Enum):
    """What a request does."""

    PASSES = "names no subject in its path"
    READS = "asks for what belongs to a subject"
    WRITES = "changes what belongs to a subject"
    LISTS = "asks for a list of subjects, or of things that carry one"


@dataclass(frozen=True, slots=True)
class Target:
    """A request's path: its `parts` unchanged, and which of them is the subject."""

    kind: Kind
    parts: tuple[str, ...]
    place: int | None = None
    context: str = ""
    """The context in the path (`/contexts/.eu/…`), as `:.eu:`."""
    is_raw: bool = False
    """The answer is a schema as it was registered, so it contains nothing from the registry."""

    @property
    def subject(self) -> str | None:
        """The subject in the path, decoded."""
        return None if self.place is None else unquote(self.parts[self.place])

    def path(self, subject: str | None = None) -> str:
        """The path for the registry; `subject`, if given, replaces the subject."""
        parts = list(self.parts)
        if subject is not None and self.place is not None:
            parts[self.place] = quote(subject, safe="")
        return "/" + "/".join(parts)


def read(method: str, path: str) -> Target:
    """Parse an unchanged request path after `/schemas`. Raises BadPathError."""
    parts = tuple(path.lstrip("/").split("/")) if path.strip("/") else ()
    while parts and not parts[-1]:
        parts = parts[:-1]
    words = [unquote(part) for part in parts]
    dots = any(piece in (".", "..") for word in words for piece in word.split("/"))
    if dots or "" in words or path.startswith("//") or _AMBIGUOUS.search(path):
        raise BadPathError("the path has an empty part, a . or .., or a character to be written as %3B, %23 or alike")
    target = _target(method, parts, words)
    if any("/" in word for word in words):
        # A server that decodes before it splits sees other parts: refused if that makes a difference.
        if any("/" in word for index, word in enumerate(words) if index != target.place):
            raise BadPathError("a %2F may stand in the name of a subject alone")
        if target.kind is not Kind.WRITES and method not in _GETS:
            return Target(Kind.WRITES, target.parts, target.place, target.context)
    return target


def _target(method: str, parts: tuple[str, ...], words: list[str]) -> Target:
    context, first = "", 0
    if len(words) > 2 and words[0] == "contexts":
        context, first = f":{words[1]}:", 2
    place = _place(words, first)
    if place is not None:
        kind = Kind.READS if _reads(method, words[first:]) else Kind.WRITES
        return Target(kind, parts, place, context, is_raw=words[-1] == "schema" and len(words) > place + 1)
    if method == "GET" and _lists(words[first:]):
        return Target(Kind.LISTS, parts, None, context)
    return Target(Kind.PASSES, parts, None, context, is_raw=bool(words) and words[-1] == "schema")


def _place(words: list[str], first: int) -> int | None:
    """The position of the subject."""
    if len(words) > first + 1 and words[first] in _ROOTS:
        return first + 1
    if len(words) > first + 2 and words[first : first + 2] == ["compatibility", "subjects"]:
        return first + 2
    return None


def _reads(method: str, words: list[str]) -> bool:
    """Whether a request reads. A look-up of a schema and a check for compatibility are sent by POST
    and change nothing.
    """
    if method in _GETS:
        return True
    looks_up = words[0] == "subjects" and len(words) == 2
    return method == "POST" and (looks_up or words[0] == "compatibility")


def _lists(words: list[str]) -> bool:
    if words in (["subjects"], ["schemas"]):
        return True
    return len(words) == 4 and words[:2] == ["schemas", "ids"] and words[3] in ("subjects", "versions")


def is_get(method: str) -> bool:
    """Whether a method changes nothing, whatever the path."""
    return method in _GETS


def is_read(method: str, path: str) -> bool:
    """Whether a request changes nothing, for the rule about which clients may write."""
    try:
        return is_get(method) or read(method, path).kind is Kind.READS
    except BadPathError:
        return False


@dataclass(frozen=True, slots=True)
class Query:
    """A query string, unchanged and parsed."""

    text: str

    def get(self, name: str) -> str | None:
        """The first value of a parameter."""
        return next((value for key, value in self._pairs() if key == name), None)

    def replaced(self, **values: str | None) -> Query:
        """The query with these parameters set, or removed (None); the others stay."""
        kept = [(key, value) for key, value in self._pairs() if key not in values]
        return Query(urlencode([*kept, *((key, value) for key, value in values.items() if value is not None)]))

    def _pairs(self) -> list[tuple[str, str]]:
        return parse_qsl(self.text, keep_blank_values=True)
