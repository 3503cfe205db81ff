"""Changes a schema registry's answers for readers of a shadow: subjects are renamed, and lists name shadows beside
their sources. Also makes errors in a registry's own form, `{"error_code": …, "message": …}`, each with what to do.
Pure.

Lists are read and written item by item, so that other tasks can run during a long one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from aiohttp import web

from sidecar.shadow.subjects import Claim

_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()


class BadAnswerError(ValueError):
    """The registry's answer is not valid; the message says why."""


def renamed(body: bytes, claim: Claim) -> bytes:
    """An answer about a subject, under the name that the client used; other answers are unchanged, byte for byte.

    Raises BadAnswerError if it is not JSON.
    """
    found = _loaded(body)
    if not isinstance(found, dict) or not isinstance(found.get("subject"), str):
        return body
    return _written({**found, "subject": claim.back(found["subject"])}).encode()


def items(body: bytes) -> Iterator[Any]:
    """The items of a JSON array, one after the other. Raises BadAnswerError when it reaches a part
    that is not valid.
    """
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
    """The subject of a list's item, which may be the item itself; None if it has none."""
    found = item.get("subject") if isinstance(item, dict) else item
    return found if isinstance(found, str) else None


def under(item: Any, subject: str) -> Any:
    """An item of a list under another subject."""
    return {**item, "subject": subject} if isinstance(item, dict) else subject


class Listing:
    """Builds a JSON array of at most `limit` bytes. It has at most `most` items (0: all), beginning with number
    `offset`.
    """

    def __init__(self, limit: int, offset: int = 0, most: int = 0) -> None:
        self._left = limit
        self._offset = offset
        self._most = most
        self._parts: list[str] = []
        self._seen: set[str] = set()

    def add(self, item: Any) -> None:
        """Add an item; repeated ones count once. Raises BadAnswerError if the list gets too long."""
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


_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_SETTING: Final = "SIDECAR_SCHEMA_REGISTRY_URL"
_NOT_FOUND: Final = 40401
"""A registry's own code for a subject that does not exist."""
_READ_ONLY: Final = 40301


class RegistryError(Exception):
    """An error for the client: an HTTP status, a registry's error code (the status if it has none), a message."""

    def __init__(self, status: int, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code

    def reply(self) -> web.Response:
        """The answer."""
        text = json.dumps({"error_code": self.code, "message": str(self)}, ensure_ascii=False)
        return web.Response(text=text, status=self.status, content_type=_TYPE)


def without_registry() -> RegistryError:
    """The error if no registry is configured."""
    return RegistryError(501, f"no schema registry is configured: set {_SETTING} on this node")


def away(url: str, error: BaseException) -> RegistryError:
    """The error if the registry cannot be reached, or does not answer."""
    slow = isinstance(error, TimeoutError)
    what = "does not answer in time" if slow else f"cannot be asked ({error or type(error).__name__})"
    return RegistryError(
        504 if slow else 502, f"the schema registry at {url} {what}: look whether it runs, and at {_SETTING}"
    )


def read_only(found: Claim) -> RegistryError:
    """The error for a write to a shadow's subject."""
    message = (
        f"{found.shadow} is a shadow of {found.source}, and {found.subject} is read-only with it:"
        f" write to {found.read}, under the source's name; producers write to {found.source}"
    )
    return RegistryError(403, message, _READ_ONLY)


def closed(found: Claim) -> RegistryError:
    """The error for a read under a closed shadow."""
    message = (
        f"{found.shadow} is closed: {found.source} was deleted or created again, or the shadow is not created yet;"
        f" delete the shadow and create it again to read {found.subject}"
    )
    return RegistryError(404, message, _NOT_FOUND)


def not_found(found: Claim) -> RegistryError:
    """The error if the name to be read belongs to another topic."""
    message = f"Subject '{found.subject}' not found: {found.read} belongs to another topic than {found.source}"
    return RegistryError(404, message, _NOT_FOUND)
