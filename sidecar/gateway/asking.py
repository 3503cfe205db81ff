"""Sends requests to brokers for one client, on its own connections, with its client.id without settings.

A request that changes nothing may go to another broker if one is lost; any other is sent again only if it certainly
was not sent before. Failures are never answered here: the caller turns them into the API's own error.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Final

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.access.asked import Divided, some_steps
from sidecar.gateway.client import AnswerWaiter, Client
from sidecar.gateway.plan import Fact, Missing
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.protocol import partitioned, schema
from sidecar.protocol.caller import BadAnswerError, DisconnectedError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.limits import PORTION
from sidecar.protocol.messages.by_key import MESSAGES
from sidecar.protocol.partitioned import Layout, Table
from sidecar.protocol.primitives import MalformedFrameError, TaggedFieldsError
from sidecar.protocol.schema import Message, Values

_HEAD_BYTES: Final = 14
"""The bytes from the length prefix to the client id."""
_PATIENCE_S: Final = 1.0
"""The timeout, in seconds, of a broker for a request that other brokers could answer."""


async def fields(message: Message, request: Request, *, whole: bool = True) -> Values:
    """A client's request, decoded in slices; `whole` as in `Message.request_steps`. Raises `MalformedFrameError`."""
    reader = message.request_reader(request.frame.buffer, request.body, request.frame.end)
    values = await in_slices(message.read_request_steps(reader, request.version))
    if whole and reader.remaining:
        raise MalformedFrameError(f"{reader.remaining} bytes behind the end of the request")
    request.is_read = not (reader.tagged or reader.remaining)
    return values


async def read_all(request: Request) -> None:
    """Read a request that is forwarded unchanged, and leave in its frame those bytes alone that the node reads as Kafka
    does: no tagged fields, of which a broker may know more than the node, and nothing behind its end. Raises
    `MalformedFrameError`.
    """
    if request.is_read:
        return
    message, frame = MESSAGES[request.key], request.frame
    reader = message.request_reader(frame.buffer, request.body, frame.end)
    await in_slices(message.read_request_steps(reader, request.version))
    if reader.tagged or reader.remaining:
        request.drop_tags(reader.tagged, reader.position)
    request.is_read = True


def read_table(request: Request, layout: Layout) -> Generator[None, None, Table]:
    """As `read_all`, for requests that `partitioned` walks; in slices."""
    try:
        table = yield from partitioned.walk_steps(request.frame.buffer, request.body, request.frame.end, layout)
    except TaggedFieldsError as found:
        request.drop_tags(found.sections)
        table = yield from partitioned.walk_steps(request.frame.buffer, request.body, request.frame.end, layout)
    request.is_read = True
    return table


def leading_text(request: Request, count: int = 1) -> tuple[str, ...]:
    """See `schema.leading_text`."""
    flexible, frame = MESSAGES[request.key].form(request.version).flexible, request.frame
    return schema.leading_text(frame.buffer, request.body, frame.end, flexible=flexible, count=count)


async def rewritten(client: Client, request: Request, message: Message, values: Values) -> Request:
    """The request with other fields. Its client id is unchanged; `Client.send` removes the settings from it."""
    raw = b"" if client.identity is None else client.identity.raw
    data = await in_slices(message.write_request_steps(request.version, request.correlation_id, raw, values))
    frame = Frame(bytearray(data), 0, len(data), True)
    going_on = Request(request.key, request.version, request.correlation_id, raw, frame, _HEAD_BYTES + len(raw))
    going_on.is_read = True
    return going_on


async def answer(exchange: Exchange, message: Message, values: Values) -> None:
    """Answer a client, in slices."""
    data = await in_slices(message.answer_steps(exchange.version, exchange.correlation_id, values))
    if not exchange.connection.closed:
        exchange.answer([data])


def any_broker(client: Client, upstream: KafkaUpstream) -> int:
    """The broker that this client asked last, while that connection is open, else any live one.

    Other brokers learn later what a client has changed through one broker, so its next requests go to the same one.
    """
    recent = client.links.recent
    return recent if recent is not None and client.links.stands(recent) else upstream.live_broker()


async def one(client: Client, broker_id: int, request: Request, message: Message, values: Values) -> Values:
    """Send a request that the node has encoded to one broker, and read its answer.

    Raises `DisconnectedError`, `BadAnswerError`.
    """
    name = b"" if client.identity is None else client.identity.name.encode()
    waiter = AnswerWaiter(request.correlation_id)
    fields = await in_slices(message.write_request_steps(request.version, request.correlation_id, name, values))
    client.links.to(broker_id).send_parts([fields], waiter)
    return await read(message, await waiter.future, request.version)


async def pass_divided(
    client: Client,
    exchange: Exchange,
    request: Request,
    message: Message,
    divided: Divided | None,
    ask: Callable[[Request], Awaitable[Frame]],
) -> None:
    """Answer with the result of `ask` for the remaining request, and with the refused part. If nothing is refused
    (`divided` None), the answer is forwarded unchanged. Raises what `ask` raises, and `BadAnswerError`.
    """
    if divided is None:
        frame = await ask(request)
        exchange.answer([frame.view(frame.start, frame.end)])
        return
    found: Values = {}
    if divided.fields is not None:
        frame = await ask(await rewritten(client, request, message, divided.fields))
        found = await read(message, frame, request.version)
    await answer(exchange, message, divided.amend(found))


async def change(
    client: Client,
    exchange: Exchange,
    upstream: KafkaUpstream,
    request: Request,
    message: Message,
    lists: tuple[str, str],
    refusal: Callable[[Any], KafkaError | None],
    refused_as: Callable[[Any, KafkaError], Values],
    changed: Callable[[list[Any]], None] = lambda _kept: None,
    refused_anyway: Callable[[int, Values], Callable[[Any], bool]] = lambda _version, _fields: lambda _element: False,
) -> None:
    """Send a change to the controller, without the elements that are refused here, and answer. `lists`: the elements in
    request and answer; `refused_as`: the answer for a refused one; `changed` is called with the elements that were
    sent, in portions, before the client is answered. `refusal` is not asked about elements that the controller refuses
    anyway: `refused_anyway` finds them, in a version and the fields of a request.

    Raises `MalformedFrameError`, `DisconnectedError`, `BadAnswerError`.
    """
    values = await fields(message, request)
    anyway = refused_anyway(request.version, values)

    def refused(each: Any) -> Values | None:
        if anyway(each) or (error := refusal(each)) is None:
            return None
        exchange.note_error(error.code)
        return refused_as(each, error)

    divided = await in_slices(some_steps(values, lists, refused))
    kept: list[Any] = ((divided and divided.fields) or values)[lists[0]] or []

    def tell() -> Generator[None, None, None]:
        for first in range(0, len(kept), PORTION):
            changed(kept[first : first + PORTION])
            yield

    async def ask(going_on: Request) -> Frame:
        frame = await first_that_answers(client, upstream, upstream.controller, going_on, harmless=False)
        await in_slices(tell())
        return frame

    await pass_divided(client, exchange, request, message, divided, ask)


async def anywhere(
    client: Client, upstream: KafkaUpstream, request: Request, message: Message, values: Values
) -> Values:
    """Send a request that changes nothing to any broker; to another one if that is lost.

    Raises `DisconnectedError`, `BadAnswerError`.
    """
    for _ in upstream.view.brokers:
        client.links.recent = broker_id = any_broker(client, upstream)
        try:
            return await one(client, broker_id, request, message, values)
        except DisconnectedError:
            if client.connection.closed:
                raise
    return await one(client, upstream.live_broker(), request, message, values)


async def read(message: Message, frame: Frame, version: int) -> Values:
    """The fields of a broker's answer, read in slices. Raises `BadAnswerError`, because the client is not at fault."""
    try:
        return await in_slices(message.read_answer_steps(frame.buffer, frame.start, frame.end, version))
    except (MalformedFrameError, struct.error) as error:
        raise BadAnswerError(f"answer to api key {message.key} v{version}: {error}") from None


async def first_that_answers(
    client: Client,
    upstream: KafkaUpstream,
    choose: Callable[[], int] | None,
    request: Request,
    *,
    harmless: bool,
) -> Frame:
    """Forward a request unchanged to the broker that `choose` returns (None: any), and to the next choice if that is
    lost.

    `harmless` requests are also repeated if the lost broker may have received them, or does not answer. Raises
    `DisconnectedError` if no broker is left, or the client has disconnected, and `MalformedFrameError`.
    """
    await read_all(request)
    for _ in range(1 + len(upstream.view.brokers)):
        broker_id = choose() if choose else any_broker(client, upstream)
        client.links.recent = broker_id
        try:
            answer = client.ask(broker_id, request)
            return await (_within_patience(client, upstream, broker_id, answer) if harmless else answer)
        except DisconnectedError as error:
            if client.connection.closed or (error.sent and not harmless):
                raise
    return await client.ask(upstream.live_broker(), request)


async def pass_to_any(upstream: KafkaUpstream, client: Client, exchange: Exchange, request: Request) -> None:
    """Forward a request unchanged to any broker: all answer alike, and no answer names a broker."""
    answer = await first_that_answers(client, upstream, None, request, harmless=True)
    exchange.answer([answer.view(answer.start, answer.end)])


async def pass_to_controller(upstream: KafkaUpstream, client: Client, exchange: Exchange, request: Request) -> None:
    """Forward a change once, unchanged, to the controller; after upstream's 41 NOT_CONTROLLER the client retries."""
    answer = await first_that_answers(client, upstream, upstream.controller, request, harmless=False)
    exchange.answer([answer.view(answer.start, answer.end)])


async def learn_ids(upstream: KafkaUpstream, ids: Iterable[bytes]) -> None:
    """Look up the names of topics by their ids (KIP-516), if some are unknown."""
    if unknown := {*ids} - upstream.view.names.keys():
        await upstream.find_ids(unknown)


async def look_up(upstream: KafkaUpstream, missing: Iterable[Missing]) -> dict[Fact, bool]:
    """Look up facts that a plan misses: first names, if some are unknown. Returns what was looked up, for `Facts`."""
    ids = {each.topic[1:] for each in missing if each.fact is Fact.NAME}
    if ids:
        return {Fact.NAME: await upstream.find_ids(ids)}
    return {Fact.LEADER: await upstream.find_leaders({each.topic for each in missing})}


def topic_name(upstream: KafkaUpstream, topic_id: bytes) -> str | None:
    """The name of the topic with this id; None while it is unknown."""
    name = upstream.view.names.get(topic_id)
    return None if name is None else name.decode()


async def _within_patience(
    client: Client, upstream: KafkaUpstream, broker_id: int, answer: Coroutine[Any, Any, Frame]
) -> Frame:
    """The answer. Raises `DisconnectedError` if the broker does not answer in time while others could."""
    if len(upstream.view.brokers) < 2:
        return await answer
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await answer
    except TimeoutError:
        upstream.fell_silent(broker_id)
        client.links.recent = None
        raise DisconnectedError(f"broker {broker_id} keeps silent", sent=True) from None
