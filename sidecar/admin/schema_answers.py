"""Answers of a schema registry as readers of a shadow see them: renamed, and in lists beside what they stand for. Pure.

Lists are read and written item by item, so that a long one leaves other work its turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from sidecar.shadow.subjects import Claim

_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()


class BadAnswerError(ValueError):
    """The registry answered something else than it should; the message says what."""


def renamed(body: bytes, claim: Claim) -> bytes:
    """An answer about a subject that was read, under the name that was asked for; others stay to the byte.

    Raises BadAnswerError where it is no JSON.
    """
    found = _loaded(body)
    if not isinstance(found, dict) or not isinstance(found.get("subject"), str):
        return body
    return _written({**found, "subject": claim.back(found["subject"])}).encode()


def items(body: bytes) -> Iterator[Any]:
    """The items of a JSON array, one after the other. Raises BadAnswerError where it is none, when it comes to that."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadAnswerError("not UTF-8") from None
    at = _behind_space(text, 0)
    if text[at : at + 1] != "[":
        raise BadAnswerError("not a list")
    at = _behind_space(text, at + 1)
    if text[at : at + 1] == "]":
        return
    while True:
        try:
            item, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise BadAnswerError("not valid JSON") from None
        yield item
        at = _behind_space(text, at)
        end = text[at : at + 1]
        if end == "]":
            return
        if end != ",":
            raise BadAnswerError("not valid JSON")
        at = _behind_space(text, at + 1)


def subject_of(item: Any) -> str | None:
    """The subject that an item of a list is, or carries; None where it has none."""
    found = item.get("subject") if isinstance(item, dict) else item
    return found if isinstance(found, str) else None


def under(item: Any, subject: str) -> Any:
    """An item of a list under another subject."""
    return {**item, "subject": subject} if isinstance(item, dict) else subject


class Listing:
    """A JSON array in the making, of `limit` bytes at most. Of its items those from `offset` on are given, `most` of
    them; 0: all.
    """

    def __init__(self, limit: int, offset: int = 0, most: int = 0) -> None:
        self._left = limit
        self._offset = offset
        self._most = most
        self._parts: list[str] = []
        self._seen: set[str] = set()

    def add(self, item: Any) -> None:
        """One more item; repeated ones count once. Raises BadAnswerError where the list gets too long."""
        text = _written(item)
        if text in self._seen:
            return
        self._left -= len(text) + 1
        if self._left < 0:
            raise BadAnswerError("too long: ask with subjectPrefix")
        self._seen.add(text)
        self._parts.append(text)

    def body(self) -> bytes:
        """The array."""
        end = None if self._most == 0 else self._offset + self._most
        return f"[{','.join(self._parts[self._offset : end])}]".encode()


def _loaded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadAnswerError("not valid JSON") from None


def _written(found: Any) -> str:
    return json.dumps(found, separators=(",", ":"))


def _behind_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
