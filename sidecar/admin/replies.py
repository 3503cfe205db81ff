"""JSON answers, and one shape for every error: `{"error_code": HTTP status, "message": text}`.

The middleware turns everything that ends a request early into that shape: the node's refusals, aiohttp's own 404, 405
and 413, a body that is not JSON, and bugs, which are logged and not shown to the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.admin.faults import ShapeError
from sidecar.admin.fields import Shape
from sidecar.admin.shapes import ERROR
from sidecar.node.port import (
    ConflictError,
    GenerationError,
    InvalidError,
    NotFoundError,
    NothingDoneError,
    PortError,
    UnavailableError,
)
from sidecar.telemetry.seldom import Seldom

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT", int, str)

_EVENTS: Final = Seldom()
_ALIKE: Final = 20
"""The most failures of one kind that are logged within five seconds."""

NOTHING_DONE: Final = "X-Sidecar-Nothing-Done"
"""The header of a 503 of a node that does not serve the topic: the node that forwarded the request may try again."""
_STATUS: Final[dict[type[Exception], int]] = {
    InvalidError: 400,
    ShapeError: 400,
    NotFoundError: 404,
    ConflictError: 409,
    GenerationError: 412,
    UnavailableError: 503,
    TimeoutError: 503,
}


def reply(
    body: Mapping[str, Any] | Sequence[str], status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An answer in JSON. An unpaired surrogate, which UTF-8 cannot encode, stays escaped."""
    text = json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")
    return web.Response(body=text, status=status, content_type="application/json", charset="utf-8", headers=headers)


def page(
    shape: Shape, every: Sequence[ItemT], key: Callable[[ItemT], KeyT], after: KeyT | None, size: int
) -> web.Response:
    """A page of `size` items of a list that is sorted by `key`: the items after `after`. The key of its last item, as
    text, is the token of the next page.
    """
    left = [each for each in every if after is None or key(each) > after]
    token = str(key(left[size - 1])) if len(left) > size else None
    return reply(shape.to_json((left[:size], token)))


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error answer in the common shape."""
    return reply(ERROR.to_json(None, error_code=status, message=message), status, headers)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns errors into JSON answers; see the module's docstring."""
    answer = await _answer(request, handler)
    if isinstance(request.content.exception(), web.RequestPayloadError):
        request.content.feed_eof()  # aiohttp would read on, and log its failure as a bug
        answer.force_close()
    return answer


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as refused:
        return _of_aiohttp(request, refused)
    except web.RequestPayloadError:
        return error(400, "the body is not encoded as its headers say")
    except (PortError, ShapeError, TimeoutError) as refused:
        status = next(status for kind, status in _STATUS.items() if isinstance(refused, kind))
        headers = {NOTHING_DONE: "1"} if isinstance(refused, NothingDoneError) else None
        return error(status, str(refused) or "the node did not answer in time", headers)
    except ConnectionResetError:
        return error(400, "the client went while it sent its request")  # nobody reads this answer
    except Exception as bug:  # noqa: BLE001 - a bug in one answer must not end the connection, nor become visible
        if _EVENTS.ask(type(bug).__name__, _ALIKE) is not None:
            structlog.get_logger().error("admin_request_failed", method=request.method, path=request.path, exc_info=bug)
        return error(500, "internal error; the node's log has the details")


def _of_aiohttp(request: web.Request, refused: web.HTTPException) -> web.Response:
    if isinstance(refused, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refused.allowed_methods))
        return error(405, f"{request.method} is not possible here; possible: {allowed}", {"Allow": allowed})
    if isinstance(refused, web.HTTPNotFound):
        return error(404, f"there is nothing at {request.path}; /openapi.json lists what there is")
    return error(refused.status, refused.reason)
