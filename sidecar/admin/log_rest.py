"""`/v1/topics/{topic}/…` about logs (where partitions begin and end, who reads, the last records) and about sequence
ids by producer name. What only the node that serves a topic knows is requested from it.

Only operators may see the last records: with a token whose holder may operate, or, if there is none, from the node's
own machine. Records are not interpreted, and long content is cut.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Final

from aiohttp import web

from sidecar.admin import asked
from sidecar.admin.faults import LAST_PARTITION
from sidecar.admin.operations import (
    OF_NUMBERS,
    PARTITION_NUMBER,
    TO_OPERATE,
    answer,
    in_query,
    nothing,
    paged,
    reads,
    writes,
)
from sidecar.admin.passing_on import PASSED_ON, Passing, SilentError
from sidecar.admin.replies import page, reply
from sidecar.admin.shadow_shapes import GROUPS, MOST_RECORDS, PARTITIONS, RECORDS, RECORDS_PAGE
from sidecar.admin.shapes import PRODUCER_IDS, PRODUCERS, PRODUCERS_PAGE
from sidecar.node.port import NothingDoneError
from sidecar.node.view import NodeView

RECORDS_PATH: Final = "/v1/topics/{topic}/records"
_FAILING: Final = (404, 409, 503)
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MOST_RECORDS, "default": RECORDS}
_LAST_TOKEN: Final = 9_999_999_999
_SERVING_S: Final = 5.0
"""Seconds for an answer of the node that serves the topic, which knows generations. After that this
node reads the log.
"""


class LogRest:
    """The handlers."""

    def __init__(self, port: NodeView, passing: Passing) -> None:
        self._port = port
        self._passing = passing

    @reads("/v1/topics/{topic}/partitions", answer(PARTITIONS), *paged(pattern=OF_NUMBERS), failing=_FAILING)
    async def list_partitions(self, request: web.Request) -> web.Response:
        """Where the log of each partition begins and ends, and its size. `page_token` is the last one of the page
        before.
        """
        name, size = asked.one_topic(request, "partitions belong"), asked.page_size(request)
        after = asked.number(request, "page_token", 0, _LAST_TOKEN)
        return page(PARTITIONS, await self._port.logs.partitions(name), attrgetter("partition"), after, size)

    @reads("/v1/topics/{topic}/groups", answer(GROUPS), *paged(pattern=None), failing=_FAILING)
    async def list_groups(self, request: web.Request) -> web.Response:
        """What groups have committed for a topic, and how far behind they are. `page_token` is the last group of the
        page before.
        """
        name, size = asked.one_topic(request, "groups belong"), asked.page_size(request)
        after = request.query.get("page_token", "")
        return page(GROUPS, await self._port.logs.groups(name), attrgetter("group"), after, size)

    @reads(
        RECORDS_PATH,
        answer(RECORDS_PAGE),
        in_query("limit", _LIMIT, "Of records."),
        in_query("partition", PARTITION_NUMBER, "Of this partition; else of the first 16 that have records."),
        failing=_FAILING,
        security=TO_OPERATE,
        act="records.read",
    )
    async def last_records(self, request: web.Request) -> web.Response:
        """The last records, the newest first, cut."""
        name = asked.one_topic(request, "records belong")
        most = asked.number(request, "limit", 1, MOST_RECORDS) or RECORDS
        partition = asked.number(request, "partition", 0, LAST_PARTITION)

        async def read_here() -> web.Response:
            return reply(RECORDS_PAGE.to_json((await self._port.logs.records(name, partition, most), None)))

        async def where_it_is_served() -> web.Response:
            self._port.check_serving(name)
            return await read_here()

        try:
            return await self._passing.where_it_is_served(request, where_it_is_served, _SERVING_S)
        except (SilentError, NothingDoneError):
            if PASSED_ON in request.headers:
                raise
            return await read_here()


_PLACE_PATTERN: Final = r"^(([0-9]{1,10})\.((?:[0-9a-f]{2}){1,255}))?$"
"""A token of a list of producers, as a pattern of JSON schema."""
_PLACE: Final = re.compile(r"([0-9]{1,10})\.((?:[0-9a-f]{2}){1,255})")
"""Where a page of producer names ends: Unix seconds of its last record, and the name's bytes."""
_PRODUCER: Final = r"/v1/topics/{topic}/dedup/{name:[^/]+}"
"""A name may hold anything, braces too; a slash in it is sent as %2F."""
_BELONG: Final = "sequence ids belong"


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
