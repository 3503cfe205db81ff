"""`/v1/topics/{topic}/…` about logs: where partitions begin and end, who reads, and a look at the last records.

The last is for operators alone: with a token on the node for its holder, without one for programs on its own machine.
Nothing of a record is interpreted, and what is shown is cut.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from aiohttp import web

from sidecar.admin import asked, names
from sidecar.admin.log_shapes import GROUPS, MOST_RECORDS, PARTITIONS, RECORDS, RECORDS_PAGE
from sidecar.admin.operations import OF_NUMBERS, PARTITION_NUMBER, TO_OPERATE, answer, in_query, paged, reads
from sidecar.admin.passing_on import PASSED_ON, Passing, SilentError
from sidecar.admin.replies import page, reply
from sidecar.node.port import NothingDoneError
from sidecar.node.view import NodeView

RECORDS_PATH: Final = "/v1/topics/{topic}/records"
_FAILING: Final = (404, 409, 503)
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MOST_RECORDS, "default": RECORDS}
_LAST_TOKEN: Final = 9_999_999_999
_SERVING_S: Final = 5.0
"""Seconds for the node that serves a topic, which knows generations: after them this one reads the log."""


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
        partition = asked.number(request, "partition", 0, names.LAST_PARTITION)

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
