"""What a request names: topics, numbers, flags, a JSON body. Each fault is told by a ShapeError."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sidecar.admin import names
from sidecar.admin.shapes import ShapeError

if TYPE_CHECKING:
    from aiohttp import web


def governable(request: web.Request) -> str:
    """The topic or prefix in the path, unless it is internal."""
    name = request.match_info["topic"]
    if names.is_internal(name):
        raise ShapeError(f"{name} is internal: it is never governed")
    if not names.is_topic(name) and not names.is_prefix(name):
        raise ShapeError(
            f"{name!r} is neither a topic name (1 to 249 of a-z A-Z 0-9 . _ -) nor a prefix with * behind it"
        )
    return name


def one_topic(request: web.Request, what: str) -> str:
    """The topic in the path. `what` says of what belongs to one topic alone, as in "owners belong"."""
    name = governable(request)
    if names.is_prefix(name):
        raise ShapeError(f"{name} speaks of many topics; {what} to one each")
    return name


async def body(request: web.Request) -> object:
    """The body, read as JSON."""
    try:
        return json.loads(await request.read())
    except ValueError as fault:
        raise ShapeError(f"the body is not valid JSON: {fault}") from None


def number(request: web.Request, name: str, low: int, high: int) -> int | None:
    """A parameter that is a whole number, both bounds included; None where it is not there."""
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or not low <= int(text) <= high:
        raise ShapeError(f"{name} has to be a whole number from {low} to {high}, not {text!r}")
    return int(text)


def flag(request: web.Request, name: str) -> bool:
    """A parameter that is true or false; false where it is not there."""
    text = request.query.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise ShapeError(f"{name} has to be true or false, not {text!r}")
    return text == "true"
