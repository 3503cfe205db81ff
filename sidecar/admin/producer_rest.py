"""`/v1` of sequence ids by producer name: each question goes to the node that serves the topic."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from sidecar.admin import asked
from sidecar.admin.operations import answer, nothing, paged, reads, writes
from sidecar.admin.passing_on import Passing
from sidecar.admin.replies import reply
from sidecar.admin.shapes import PRODUCER_IDS, PRODUCERS, PRODUCERS_PAGE
from sidecar.node.view import NodeView

_PLACE_PATTERN: Final = r"^(([0-9]{1,10})\.((?:[0-9a-f]{2}){1,255}))?$"
"""A token of a list of producers, as JSON schema has patterns."""
_PLACE: Final = re.compile(r"([0-9]{1,10})\.((?:[0-9a-f]{2}){1,255})")
"""Where a page of producer names ends: Unix seconds of its last record, and the name's bytes."""
_PRODUCER: Final = r"/v1/topics/{topic}/dedup/{name:[^/]+}"
"""A name may hold anything, braces too; a slash in it comes as %2F."""
_BELONG: Final = "sequence ids belong"
_FAILING: Final = (404, 409, 503)


class ProducerRest:
    """The handlers."""

    def __init__(self, port: NodeView, passing: Passing) -> None:
        self._port = port
        self._passing = passing

    @reads(
        "/v1/topics/{topic}/dedup",
        answer(PRODUCERS_PAGE),
        *paged(
            PRODUCERS,
            "`next_page_token` of the page before. A producer that writes meanwhile moves to the front.",
            _PLACE_PATTERN,
        ),
        failing=_FAILING,
    )
    async def list_producers(self, request: web.Request) -> web.Response:
        """Producer names with sequence ids, newest first."""
        name = asked.one_topic(request, _BELONG)
        size, after = asked.page_size(request, PRODUCERS), _place(request)

        async def asked_here() -> web.Response:
            found, last = await self._port.producers(name, size, after)
            token = None if last is None else f"{last[0]}.{last[1].hex()}"
            return reply(PRODUCERS_PAGE.to_json((found, token)))

        return await self._passing.where_it_is_served(request, asked_here)

    @reads(_PRODUCER, answer(PRODUCER_IDS), failing=_FAILING)
    async def get_producer(self, request: web.Request) -> web.Response:
        """The sequence ids of a producer name."""
        name, producer = asked.one_topic(request, _BELONG), request.match_info["name"]

        async def asked_here() -> web.Response:
            return reply(PRODUCER_IDS.to_json(await self._port.producer(name, producer)))

        return await self._passing.where_it_is_served(request, asked_here)

    @writes(f"DELETE {_PRODUCER}", "producer.forget", nothing("Forgotten"), failing=_FAILING)
    async def forget_producer(self, request: web.Request) -> web.Response:
        """Forget a name that nobody uses."""
        name, producer = asked.one_topic(request, _BELONG), request.match_info["name"]

        async def asked_here() -> web.Response:
            await self._port.forget_producer(name, producer)
            return web.Response(status=204)

        return await self._passing.where_it_is_served(request, asked_here)


def _place(request: web.Request) -> tuple[int, bytes] | None:
    token = request.query.get("page_token", "")
    if not token:
        return None
    if (found := _PLACE.fullmatch(token)) is None:
        raise asked.bad_token(token)
    return int(found[1]), bytes.fromhex(found[2])
