"""Reads what a request contains: topics, numbers, flags, a JSON body. Every fault raises a ShapeError."""

from __future__ import annotations

import json
import re
from typing import Final

from aiohttp import web

from sidecar.admin.faults import LAST_PARTITION, ShapeError, is_internal, is_prefix, is_topic
from sidecar.node.port import IfMatch

_ONE: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAG: Final = re.compile(_ONE)
_TAGS: Final = re.compile(rf"{_ONE}(?:\s*,\s*{_ONE})*")
TAGS_PATTERN: Final = rf"^(\*|{_ONE}(\s*,\s*{_ONE})*)$"
"""The allowed values of If-Match, as a pattern of JSON schema."""
_GENERATION: Final = re.compile(r'"(?:0|[1-9][0-9]{0,18})"')
_HIGHEST: Final = 2**63 - 1
_DIGITS: Final = len(str(_HIGHEST))
PAGE_SIZE: Final = 1_000
"""The largest size of a page of a list, and the default unless a list has another."""


def governable(request: web.Request) -> str:
    """The topic or prefix in the path. Internal topics are refused."""
    name = request.match_info["topic"]
    if is_internal(name):
        raise ShapeError(f"{name} is an internal topic and cannot be governed")
    if not is_topic(name) and not is_prefix(name):
        raise ShapeError(f"{name!r} is neither a topic name (1 to 249 of a-z A-Z 0-9 . _ -) nor a prefix followed by *")
    return name


def one_topic(request: web.Request, what: str) -> str:
    """The topic in the path; prefixes are refused. `what` names what belongs to a single topic, as
    in "owners belong".
    """
    name = governable(request)
    if is_prefix(name):
        raise ShapeError(f"{name} stands for many topics; {what} to a single topic")
    return name


async def body(request: web.Request, limit: int | None = None) -> object:
    """The body, parsed as JSON. `limit`: in bytes, if it is lower than the server's own (413)."""
    try:
        text = await request.read()
        if limit is not None and len(text) > limit:
            raise web.HTTPRequestEntityTooLarge(limit, len(text))
        return json.loads(text)
    except ValueError as fault:
        raise ShapeError(f"the body is not valid JSON: {fault}") from None
    except RecursionError:
        raise ShapeError("the body nests lists or objects too deeply") from None


def generations(request: web.Request) -> IfMatch | None:
    """If-Match (RFC 9110): generations as entity tags, or `*`; None if it is absent. A tag that is no generation, or a
    weak tag, matches none.
    """
    partition = number(request, "partition", 0, LAST_PARTITION)
    if (said := request.headers.getall("If-Match", None)) is None:
        return None
    text = ", ".join(said).strip()
    if text == "*":
        return IfMatch(None, partition)
    if _TAGS.fullmatch(text) is None:
        raise ShapeError(f'If-Match has to be a generation in quotes, as in If-Match: "7", or *, not {text[:100]!r}')
    if (name := request.match_info["topic"]).endswith("*"):
        raise ShapeError(f"{name} stands for many topics, a generation belongs to one: leave If-Match out, or send *")
    numbers = [int(tag[1:-1]) for tag in _TAG.findall(text) if _GENERATION.fullmatch(tag)]
    return IfMatch(frozenset(number for number in numbers if number <= _HIGHEST), partition)


def generations_alone(request: web.Request) -> IfMatch | None:
    """The same, for requests in which `partition` only selects the generation. Without If-Match it is refused, because
    it could be taken for the partition to change.
    """
    match = generations(request)
    if match is None and "partition" in request.query:
        raise ShapeError("partition only selects the generation for If-Match: send If-Match, or leave partition out")
    return match


def number(request: web.Request, name: str, low: int, high: int) -> int | None:
    """An integer parameter from `low` to `high`, both included; None if it is absent."""
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS or not low <= int(text) <= high:
        raise ShapeError(f"{name} has to be a whole number from {low} to {high}, not {text!r}")
    return int(text)


def page_size(request: web.Request, otherwise: int = PAGE_SIZE) -> int:
    """The requested size of a page, 1 to `PAGE_SIZE`; `otherwise` if it is absent."""
    size = number(request, "page_size", 1, PAGE_SIZE)
    return otherwise if size is None else size


def last_topic(request: web.Request) -> str:
    """The last name of the page before, in a list by topic names; "" if there is none."""
    token = request.query.get("page_token", "")
    if token and not is_topic(token) and not is_prefix(token):
        raise bad_token(token)
    return token


def bad_token(token: str) -> ShapeError:
    """The error for a token that no page returned."""
    return ShapeError(f"page_token has to be the next_page_token of the page before, not {token[:100]!r}")


def flag(request: web.Request, name: str) -> bool:
    """A boolean parameter; false if it is absent."""
    text = request.query.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise ShapeError(f"{name} has to be true or false, not {text!r}")
    return text == "true"
