"""`/v1`: status, events, topics, their policies, fence and release. Checks the request, calls the node, and shapes the
answer; requests for the node that serves a topic are passed on to it.

No rule about ownership is here: the node decides what a fence does and which owners may be fenced.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

from aiohttp import web

from sidecar import __version__
from sidecar.admin import asked
from sidecar.admin.faults import LAST_PARTITION, ShapeError, is_prefix, is_topic
from sidecar.admin.fields import COUNT, TEXT, Shape, ref
from sidecar.admin.judged import judged_now
from sidecar.admin.operations import (
    EVENTS,
    FAILED,
    GOVERNABLE,
    IF_MATCH,
    OF_NUMBERS,
    PARTITION_NUMBER,
    answer,
    flag,
    in_header,
    in_query,
    nothing,
    paged,
    reads,
    writes,
)
from sidecar.admin.passing_on import BEHIND, PASSED_ON, Passing, SilentError
from sidecar.admin.replies import reply
from sidecar.admin.shapes import (
    CLIENTS,
    EVENT,
    KINDS,
    REFUSAL,
    REFUSALS,
    SETTINGS,
    STATUS,
    TOPIC,
    TOPICS,
    new_topic_from_json,
    policy_from_json,
)
from sidecar.node.port import NotFoundError, NothingDoneError, Topic, UnavailableError
from sidecar.node.view import NodeView
from sidecar.protocol.errors import no_topic
from sidecar.v1 import state_pb2 as state

_ID_DIGITS: Final = 19
_POLICY_LIMIT: Final = 64 * 1024
"""The size limit of a policy, in bytes."""
_PER_TURN: Final = 64
"""Items that are encoded in one turn of the event loop: a page may hold a thousand."""
_DESCRIBE_S: Final = 3.0
"""Seconds for another node to describe a topic. After that this node answers with what it knows."""
KNOWN_S: Final = 2.0
"""Seconds for this node to learn changes of other nodes. After that it answers a read with what it knows."""
CLIENTS_SHOWN: Final = 100
"""The default number of clients in a page; the limit is `asked.PAGE_SIZE`."""
REFUSALS_SHOWN: Final = 100
"""The default number of refusals in a page, likewise."""
_LAST_TOKEN: Final = 9_999_999_999
_NEWEST_EVENTS: Final = 1_000
"""The most earlier events that a stream may begin with."""
_TAKEN_S: Final = 30.0
"""Seconds for a reader of events to read what was sent."""


_POLICY: Final = "/v1/topics/{topic}/policy"
_OF_TOPIC: Final = in_query("topic", TEXT.schema, "Of this topic only.")
_PARTITION: Final = in_query("partition", PARTITION_NUMBER, "Of a topic whose scope is partition.")
_OF_POLICIES: Final = (
    GOVERNABLE,
    in_query(
        "partition",
        PARTITION_NUMBER,
        "Whose generation If-Match means, of a topic whose scope is partition; 400 without If-Match. "
        "The policy is the whole topic's.",
    ),
    IF_MATCH,
)
_OF_EVENTS: Final = (
    _OF_TOPIC,
    in_query("from", COUNT.schema, "From this position on; 0: all that are kept."),
    in_query(
        "last",
        {"type": "integer", "minimum": 0, "maximum": _NEWEST_EVENTS, "default": 0},
        "From now on, with at most so many (of `topic`) of before; `from` goes first.",
    ),
    in_header("Last-Event-ID", COUNT.schema, "Behind this position."),
)
_STREAM: Final = {
    "description": "One event each: its id a position, its name the kind, its data an `Event`.",
    "content": {"text/event-stream": {"schema": ref(EVENT.name)}},
}
_TAG: Final = "The generation in quotes; with `partition` that of the partition."
_TAGGED: Final = {**answer(TOPIC), "headers": {"ETag": {"schema": TEXT.schema, "description": _TAG}}}
_ANOTHER: Final = {"412": {**FAILED, "description": "The generation is another; nothing was done."}}
_ENDED: Final = {"200": _TAGGED, "409": FAILED, **_ANOTHER}


class Rest:
    """The handlers."""

    def __init__(self, port: NodeView, passing: Passing) -> None:
        self._port = port
        self._passing = passing

    @reads("/v1/status", answer(STATUS))
    async def status(self, _request: web.Request) -> web.Response:
        """The node and what it sees."""
        return reply(STATUS.to_json(await self._port.status(), version=__version__))

    @reads("/v1/clients", answer(CLIENTS), *paged(CLIENTS_SHOWN, pattern=OF_NUMBERS))
    async def list_clients(self, request: web.Request) -> web.Response:
        """Clients connected to this node, the oldest first."""
        size = asked.page_size(request, CLIENTS_SHOWN)
        after = asked.number(request, "page_token", 0, _LAST_TOKEN)
        found, token = await self._port.clients(after or 0, size)
        return reply(CLIENTS.to_json((found, None if token is None else str(token))))

    @reads("/v1/settings", answer(SETTINGS))
    async def list_settings(self, _request: web.Request) -> web.Response:
        """The settings of this node, secrets masked."""
        return reply(SETTINGS.to_json((self._port.settings(), None)))

    @reads("/v1/refusals", answer(REFUSALS), *paged(REFUSALS_SHOWN, pattern=OF_NUMBERS), _OF_TOPIC)
    async def list_refusals(self, request: web.Request) -> web.Response:
        """What this node refused its clients lately. `page_token` is how many came before."""
        size = asked.page_size(request, REFUSALS_SHOWN)
        first = asked.number(request, "page_token", 0, _LAST_TOKEN) or 0
        every = self._port.refusals(request.query.get("topic"))
        token = str(first + size) if first + size < len(every) else None
        return await _listed(REFUSAL, every[first : first + size], token)

    @reads(
        "/v1/topics",
        answer(TOPICS),
        *paged(),
        flag("governed", "Only topics that have a policy."),
        in_query("contains", TEXT.schema, "Only names with this in them, whatever the case."),
        in_query("prefix", TEXT.schema, "Only names that begin with this: what a policy of `PREFIX*` covers."),
    )
    async def list_topics(self, request: web.Request) -> web.Response:
        """Topics and prefixes by name. `page_token` is the last name of the page before."""
        size, after = asked.page_size(request), asked.last_topic(request)
        part, prefix = request.query.get("contains", "").lower(), request.query.get("prefix", "")
        knows = await self._catch_up()
        every = await self._port.topic_names(governed=asked.flag(request, "governed"))
        known = [name for name in every if name > after and part in name.lower() and name.startswith(prefix)]
        page = known[:size]
        token = page[-1] if len(page) < len(known) else None
        return _marked(await _listed(TOPIC, await self._port.topics(page), token), knows=knows)

    @reads("/v1/topics/{topic}", _TAGGED, GOVERNABLE, _PARTITION)
    async def get_topic(self, request: web.Request) -> web.Response:
        """One topic or prefix. The node that serves it answers: only that node knows the queue and the ids. Where that
        one does not answer, this one says what it knows.
        """
        name = request.match_info["topic"]

        async def asked_here() -> web.Response:
            knows = await self._catch_up()
            self._port.check_serving(name)
            return _marked(await self._described(request, name), knows=knows)

        knows = False
        if is_topic(name):
            try:
                response = await self._passing.where_it_is_served(request, asked_here, _DESCRIBE_S)
            except (SilentError, NothingDoneError):
                if PASSED_ON in request.headers:
                    raise
            else:
                if response.status == web.HTTPOk.status_code:
                    return response
        else:
            knows = await self._catch_up()
        return _marked(await self._described(request, name), knows=knows)

    async def _catch_up(self) -> bool:
        """Whether this node knows everything that others acknowledged. If the leader of the ownership topic is
        unreachable, it answers with what it knows, for operators who look for a fault.
        """
        try:
            async with asyncio.timeout(KNOWN_S):
                await self._port.catch_up()
        except (UnavailableError, TimeoutError):
            return False
        return True

    async def _described(self, request: web.Request, name: str) -> web.Response:
        legal = is_topic(name) or is_prefix(name)
        known = await self._port.topics([name], producers=True) if legal else ()
        if not known:
            raise NotFoundError(no_topic(name) if is_topic(name) else f"there is no topic {name}")
        body = TOPIC.to_json(known[0], shadowReplication=known[0].shadow_stats or {})
        return reply(body, headers=_tagged(known[0], asked.number(request, "partition", 0, LAST_PARTITION)))

    @writes("POST /v1/topics", "topic.create", {"201": answer(TOPIC)}, failing=(409,), body="NewTopic")
    async def create_topic(self, request: web.Request) -> web.Response:
        """Create a topic. With a policy where one is given; answers with the topic."""
        wanted, policy = new_topic_from_json(body := await asked.body(request, _POLICY_LIMIT))
        judged_now().note(topic=wanted.name, wanted=body)
        return reply(TOPIC.to_json(await self._port.create_topic(wanted, policy, _sender())), status=201)

    @writes(f"PUT {_POLICY}", "policy.set", {"200": _TAGGED, **_ANOTHER}, *_OF_POLICIES, body="Policy")
    async def put_policy(self, request: web.Request) -> web.Response:
        """Set some fields of the policy, or create it. Answers with the topic as it is then."""
        name = asked.governable(request)
        match = asked.generations_alone(request)
        change = policy_from_json(wanted := await asked.body(request, _POLICY_LIMIT))
        judged_now().note(policy=wanted)
        topic = await self._port.merge_policy(name, change, match, _sender())
        return _shown(topic, None if match is None or topic.generations is None else match.partition)

    @writes(f"DELETE {_POLICY}", "policy.unset", {**nothing("Forgotten"), **_ANOTHER}, *_OF_POLICIES)
    async def delete_policy(self, request: web.Request) -> web.Response:
        """Forget the policy."""
        await self._port.delete_policy(asked.governable(request), asked.generations_alone(request), _sender())
        return web.Response(status=204)

    @reads(EVENTS, _STREAM, *_OF_EVENTS)
    async def events(self, request: web.Request) -> web.StreamResponse:
        """What happens, as server-sent events. A client that reconnects says by Last-Event-ID where it was."""
        first = asked.number(request, "from", 0, 2**63 - 1)
        newest = asked.number(request, "last", 0, _NEWEST_EVENTS) or 0
        after = None if first is None else first - 1
        if last := request.headers.get("Last-Event-ID", ""):
            if not (last.isdecimal() and last.isascii() and len(last) < _ID_DIGITS):
                raise ShapeError(f"Last-Event-ID has to be the id of an event, not {last[:100]!r}")
            after = int(last)
        found, stands = self._port.events(after, newest, request.query.get("topic")), judged_now().stands
        beginning = await anext(found)  # a refusal has to be answered before the stream begins
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        with suppress(ConnectionError):  # a reader may leave at any time
            async with aclosing(found):
                await answer.prepare(request)
                await _write(request, answer, beginning)
                async for event in found:
                    if not stands():
                        break
                    await _write(request, answer, event)
        return answer

    @writes("POST /v1/topics/{topic}/fence", "owner.fence", _ENDED, _PARTITION, IF_MATCH)
    async def fence(self, request: web.Request) -> web.Response:
        """Depose the owner for ever."""
        return await self._end_ownership(request, self._port.fence)

    @writes("POST /v1/topics/{topic}/release", "owner.release", _ENDED, _PARTITION, IF_MATCH)
    async def release(self, request: web.Request) -> web.Response:
        """Clear the owner, which may claim again."""
        return await self._end_ownership(request, self._port.release)

    async def _end_ownership(
        self, request: web.Request, act: Callable[[str, int | None, frozenset[int] | None], Awaitable[Topic]]
    ) -> web.Response:
        name = asked.one_topic(request, "owners belong")
        partition, match = asked.number(request, "partition", 0, LAST_PARTITION), asked.generations(request)

        async def asked_here() -> web.Response:
            return _shown(await act(name, partition, None if match is None else match.generations), partition)

        return await self._passing.where_it_is_served(request, asked_here)


async def _listed(shape: Shape, facts: Sequence[object], token: str | None) -> web.Response:
    """A page of a list that may be long."""
    items: list[dict[str, Any]] = []
    for number, each in enumerate(facts, start=1):
        items.append(shape.to_json(each))
        if number % _PER_TURN == 0:
            await asyncio.sleep(0)
    return reply({"items": items, "next_page_token": token})


def _sender() -> str:
    """Who sent the running request, in the words of the events topic."""
    peer = judged_now().behalf.peer
    return f"an operator at {peer}" if peer else "an operator"


def _shown(topic: Topic, partition: int | None) -> web.Response:
    return reply(TOPIC.to_json(topic), headers=_tagged(topic, partition))


def _marked(answer: web.Response, *, knows: bool) -> web.Response:
    if not knows:
        answer.headers[BEHIND] = "1"
    return answer


def _tagged(topic: Topic, partition: int | None) -> dict[str, str]:
    """The generation as an entity tag for If-Match. Raises ShapeError for a partition without a generation of its own.
    The answer must not be cached: its other fields change while the generation stays.
    """
    if partition is None:
        generation = topic.generation
    elif topic.generations is None:
        raise ShapeError(f"{topic.name} has no owners of partitions: leave partition out")
    elif partition >= topic.partitions:
        raise ShapeError(f"{topic.name} has {topic.partitions} partitions, and no {partition}")
    else:
        generation = topic.generations.get(partition, 0)
    stored = {"Cache-Control": "no-store"}
    return stored if topic.name.endswith("*") else {"ETag": f'"{generation}"', **stored}


async def _write(request: web.Request, answer: web.StreamResponse, found: tuple[int, state.Event] | None) -> None:
    """Send an event. Raises ConnectionError if the reader has disconnected, or reads too slowly: it would occupy a
    place for a stream.
    """
    try:
        async with asyncio.timeout(_TAKEN_S):
            await answer.write(server_sent(found))
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionAbortedError from None


def server_sent(found: tuple[int, state.Event] | None) -> bytes:
    """One event, or, if there is none, a comment, which shows that the connection is still open. Events of kinds that
    only newer nodes know are left out.
    """
    if found is None or found[1].kind not in KINDS:
        return b": \n\n"
    position, event = found
    data = json.dumps(EVENT.to_json(event), separators=(",", ":"))
    return f"id: {position}\nevent: {KINDS[event.kind]}\ndata: {data}\n\n".encode()
