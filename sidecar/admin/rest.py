"""`/v1`: status, events, topics, their policies, fence and release, sequence ids. Checks what was sent, asks the node,
shapes the answer; a question for the node that serves a topic is passed on to it.

No rule about ownership is here: what a fence does, and who may be fenced, the node knows.
"""

from __future__ import annotations

import json
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from yarl import URL

from sidecar import __version__
from sidecar.admin import asked, names
from sidecar.admin.cursor_shapes import stats_to_json
from sidecar.admin.replies import reply
from sidecar.admin.shapes import (
    event_to_json,
    ids_to_json,
    policy_from_json,
    producer_to_json,
    status_to_json,
    topic_to_json,
)
from sidecar.node_port import ElsewhereError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.node_port import Event, NodePort, Topic

_ID_DIGITS: Final = 19
_PASSED_ON: Final = "X-Sidecar-Passed-On"
_PASS_ON_S: Final = 15.0
PAGE_SIZE: Final = 1_000
"""Topics in one page, unless fewer are asked for; nobody gets more."""
PRODUCERS: Final = 100
"""Producer names in an answer, unless another number is asked for, up to `PAGE_SIZE`."""


class Rest:
    """The handlers."""

    def __init__(self, port: NodePort) -> None:
        self._port = port

    async def status(self, _request: web.Request) -> web.Response:
        """The node and what it sees."""
        return reply(status_to_json(await self._port.status(), __version__))

    async def topics(self, request: web.Request) -> web.Response:
        """A page of topics and prefixes by name; `page_token` is the last name of the page before."""
        size = asked.number(request, "page_size", 1, PAGE_SIZE)
        after = request.query.get("page_token", "")
        known = [
            name for name in await self._port.topic_names(governed=asked.flag(request, "governed")) if name > after
        ]
        page = known[: PAGE_SIZE if size is None else size]
        items = [topic_to_json(topic) for topic in await self._port.topics(page)]
        return reply({"items": items, "next_page_token": page[-1] if len(page) < len(known) else None})

    async def topic(self, request: web.Request) -> web.Response:
        """One topic or prefix."""
        name = request.match_info["topic"]
        legal = names.is_topic(name) or names.is_prefix(name)
        known = await self._port.topics([name], producers=True) if legal else ()
        if not known:
            raise NotFoundError(f"there is no topic {name}")
        stats = known[0].shadow_stats or {}
        in_numbers = {shadow: stats_to_json(found) for shadow, found in sorted(stats.items())}
        return reply({**topic_to_json(known[0]), "shadowReplication": in_numbers})

    async def put_policy(self, request: web.Request) -> web.Response:
        """Merge fields into a policy; answers with the topic as it is then."""
        name = asked.governable(request)
        change = policy_from_json(await asked.body(request))
        return reply(topic_to_json(await self._port.merge_policy(name, change)))

    async def delete_policy(self, request: web.Request) -> web.Response:
        """Forget a policy."""
        await self._port.delete_policy(asked.governable(request))
        return web.Response(status=204)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """What happens, as server-sent events; who comes again says by Last-Event-ID where it was."""
        first = asked.number(request, "from", 0, 2**63 - 1)
        after = None if first is None else first - 1
        last = request.headers.get("Last-Event-ID", "")
        if last.isdecimal() and last.isascii() and len(last) < _ID_DIGITS:
            after = int(last)
        topic = request.query.get("topic")
        found = self._port.events(after)
        beginning = await anext(found)  # a refusal is answered before the stream begins
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        with suppress(ConnectionError):  # whoever reads goes when he likes
            async with aclosing(found):
                await answer.prepare(request)
                await answer.write(_server_sent(beginning, topic))
                async for event in found:
                    await answer.write(_server_sent(event, topic))
        return answer

    async def fence(self, request: web.Request) -> web.Response:
        """Depose the owner for ever."""
        return await self._end_ownership(request, self._port.fence)

    async def release(self, request: web.Request) -> web.Response:
        """Clear the owner, who may claim again."""
        return await self._end_ownership(request, self._port.release)

    async def _end_ownership(
        self, request: web.Request, act: Callable[[str, int | None], Awaitable[Topic]]
    ) -> web.Response:
        name = asked.one_topic(request, "owners belong")
        partition = asked.number(request, "partition", 0, 2**31 - 1)
        return await _where_it_is_served(request, lambda: _shown(act(name, partition)))

    async def producers(self, request: web.Request) -> web.Response:
        """The producer names that wrote to a topic last, newest first."""
        name = asked.one_topic(request, "sequence ids belong")
        size = asked.number(request, "page_size", 1, PAGE_SIZE)

        async def answer() -> web.Response:
            found = await self._port.producers(name, PRODUCERS if size is None else size)
            return reply({"items": [producer_to_json(each) for each in found], "next_page_token": None})

        return await _where_it_is_served(request, answer)

    async def producer(self, request: web.Request) -> web.Response:
        """What is known of one producer name."""
        name, producer = asked.one_topic(request, "sequence ids belong"), request.match_info["name"]

        async def answer() -> web.Response:
            return reply(ids_to_json(await self._port.producer(name, producer)))

        return await _where_it_is_served(request, answer)

    async def forget_producer(self, request: web.Request) -> web.Response:
        """Forget a producer name and its sequence ids."""
        name, producer = asked.one_topic(request, "sequence ids belong"), request.match_info["name"]

        async def answer() -> web.Response:
            await self._port.forget_producer(name, producer)
            return web.Response(status=204)

        return await _where_it_is_served(request, answer)


async def _shown(topic: Awaitable[Topic]) -> web.Response:
    return reply(topic_to_json(await topic))


async def _where_it_is_served(request: web.Request, answer: Callable[[], Awaitable[web.Response]]) -> web.Response:
    """The answer of this node, or of the one that serves the topic; who was asked by another node passes nothing on."""
    try:
        return await answer()
    except ElsewhereError as elsewhere:
        if _PASSED_ON in request.headers:
            raise
        return await _pass_on(request, elsewhere)


async def _pass_on(request: web.Request, elsewhere: ElsewhereError) -> web.Response:
    """Ask the node that serves the topic, and answer what it answers. The path goes on as it came: a name in it may
    hold whatever stands for something else in a URL.
    """
    target = URL(f"http://{elsewhere.admin}{request.rel_url.raw_path_qs}", encoded=True)
    headers = {_PASSED_ON: "1"}
    if (authorization := request.headers.get("Authorization")) is not None:
        headers["Authorization"] = authorization
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=_PASS_ON_S)) as session,
            session.request(request.method, target, headers=headers) as answer,
        ):
            body = await answer.read()
            kind = "application/json" if body else None
            return web.Response(body=body, status=answer.status, content_type=kind)
    except (ClientError, TimeoutError) as error:
        raise UnavailableError(f"{elsewhere}, which does not answer: {error}") from None


def _server_sent(event: Event | None, topic: str | None) -> bytes:
    """A comment where there is nothing to tell: it shows that the line still stands."""
    if event is None or (topic is not None and event.topic != topic):
        return b": \n\n"
    data = json.dumps(event_to_json(event), separators=(",", ":"))
    return f"id: {event.position}\nevent: {event.kind}\ndata: {data}\n\n".encode()
