"""The sidecar's own APIs on the Kafka port: DescribeOwners (0), LastSequence (0).

Kafka's framing with request header v1 and response header v0, bodies as in `proto/sidecar/v1/control.proto`. Errors
are in the body, of a request that does not parse too: a connection never ends by one. Served whether ApiVersions
listed them or not.

Both only tell. LastSequence takes a topic over that nobody serves, as its ids are known to the node that serves it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from sidecar.cluster.resolver import is_legal
from sidecar.gateway.owners import standing
from sidecar.gateway.sequence_ids import NO_ID, IdsError, SequenceIds, Why
from sidecar.protocol import api
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.metadata import MetadataRequest
from sidecar.protocol.primitives import I32
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.exclusive.governor import Governor
    from sidecar.gateway.client import Client
    from sidecar.gateway.handler import ColdApi
    from sidecar.gateway.owners import Standing
    from sidecar.network.client import Exchange, RequestHead
    from sidecar.network.framing import Frame

RequestT = TypeVar("RequestT", bound=Message)

NOBODY: Final = -1
"""In `serving_node`: no node serves the topic. Node ids begin at 0."""
BODY_BYTES: Final = 1024 * 1024
"""The longest body that is read."""
RESOURCES: Final = 1_000
"""As many may be named in one request; whoever names none is told of all."""
NAME_BYTES: Final = 255
KNOW_S: Final = 10.0
"""How long LastSequence waits for ids that are being read."""
_AT_ONCE: Final = 100
_WHY: Final = {
    Why.NO_TOPIC: control.UNKNOWN_RESOURCE,
    Why.NO_IDS: control.UNKNOWN_RESOURCE,
    Why.ELSEWHERE: control.NOT_SERVING,
    Why.NOT_NOW: control.UNAVAILABLE,
}
_AS_KAFKAS: Final = {
    control.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    control.NOT_SERVING: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    control.UNAVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE,
    control.UNKNOWN_RESOURCE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Under which name an error is counted: metrics speak of Kafka's."""


class BadRequestError(ValueError):
    """The message says what is wrong with the body."""


def decode(kind: type[RequestT], frame: Frame, head: RequestHead) -> RequestT:
    """A request's body. Raises `BadRequestError`."""
    size = frame.end - head.body
    name = kind.DESCRIPTOR.name
    if size > BODY_BYTES:
        raise BadRequestError(f"a {name} has {BODY_BYTES} bytes at most, this one {size}")
    try:
        return kind.FromString(bytes(frame.view(head.body, frame.end)))
    except DecodeError:
        raise BadRequestError(f"the body is no sidecar.v1.{name}, see control.proto") from None


def encode_answer(correlation_id: int, body: Message) -> bytes:
    """A whole answer frame."""
    data = body.SerializeToString()
    return I32.pack(4 + len(data)) + I32.pack(correlation_id) + data


def check_name(name: str) -> None:
    """Whether a producer can have this name. Raises `BadRequestError`."""
    if not name:
        raise BadRequestError("producer_name is empty: sequence ids belong to a name")
    if len(name.encode()) > NAME_BYTES:
        raise BadRequestError(f"producer_name has more than {NAME_BYTES} bytes of UTF-8")


def fault_of(resource: control.Resource) -> str:
    """What is wrong with a resource; "" where nothing is."""
    if bool(resource.topic) == bool(resource.name):
        return "a resource has either a topic or a name"
    if resource.HasField("partition") and (resource.name or resource.partition < 0):
        return "partition is a number from 0 on, of a topic"
    return ""


class OwnApis:
    """Answers the sidecar's own requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, nodes: NodeDirectory, governor: Governor) -> None:
        self._upstream = upstream
        self._nodes = nodes
        self._governor = governor
        self._ids = SequenceIds(upstream, nodes, governor)

    def handlers(self) -> dict[int, ColdApi]:
        """By API key."""
        return {
            api.DESCRIBE_OWNERS: self.handle_describe_owners,
            api.LAST_SEQUENCE: self.handle_last_sequence,
        }

    # LastSequence -------------------------------------------------------------------------------------------------

    async def handle_last_sequence(self, client: Client, exchange: Exchange, frame: Frame, head: RequestHead) -> None:
        """The highest sequence ids of a producer name that are in the log: where it goes on."""
        try:
            request = decode(control.LastSequenceRequest, frame, head)
            if not request.topic:
                raise BadRequestError("topic is empty: sequence ids are known by topic")
            check_name(request.producer_name)
            answer = await self._last_sequence(request.topic, request.producer_name.encode())
        except BadRequestError as error:
            answer = control.LastSequenceResponse(error=control.INVALID_REQUEST, message=str(error))
        except IdsError as error:
            answer = control.LastSequenceResponse(error=_WHY[error.why], message=str(error))
        if answer.error != control.NONE:
            answer.last_sequence_id = NO_ID
        _answer(exchange, head, answer.error, answer)

    async def _last_sequence(self, topic: str, name: bytes) -> control.LastSequenceResponse:
        known = await self._ids.of(topic, KNOW_S)
        last = known.last(name)
        return control.LastSequenceResponse(last_sequence_ids=last, last_sequence_id=known.resume(last))

    # DescribeOwners -----------------------------------------------------------------------------------------------

    async def handle_describe_owners(self, client: Client, exchange: Exchange, frame: Frame, head: RequestHead) -> None:
        """Owners of topics and partitions, and who waits for them."""
        answer = control.DescribeOwnersResponse()
        try:
            request = decode(control.DescribeOwnersRequest, frame, head)
            if len(request.resources) > RESOURCES:
                raise BadRequestError(f"{RESOURCES} resources at most; without any all are told")
            if request.resources:
                await self._describe(request, answer)
            elif not request.group:  # nobody claims a group's partitions for reading in this version
                await self._describe_all(answer)
        except BadRequestError as error:
            answer.error, answer.message = control.INVALID_REQUEST, str(error)
        except (UpstreamError, KafkaError):  # its text would name a broker
            answer = control.DescribeOwnersResponse(
                error=control.UNAVAILABLE, message="Kafka cannot be asked now; try again"
            )
        _answer(exchange, head, answer.error, answer)

    async def _describe_all(self, answer: control.DescribeOwnersResponse) -> None:
        """Every governed topic that exists."""
        book = self._governor.catalog.book
        found = await self._partitions(None)
        governed = sorted(name for name in found if book.effective(name) is not None)
        for number, name in enumerate(governed):
            self._tell_topic(answer, name, self._standing(name))
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _describe(self, request: control.DescribeOwnersRequest, answer: control.DescribeOwnersResponse) -> None:
        """The resources that were named, in their order."""
        names = {each.topic for each in request.resources if not request.group and is_legal(each.topic.encode())}
        partitions = await self._partitions(names)
        for number, resource in enumerate(request.resources):
            self._tell(answer, resource, partitions, group=request.group)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _partitions(self, names: Iterable[str] | None) -> dict[str, frozenset[int]]:
        """The partitions of these topics, or of all; without those that do not exist."""
        wanted = None if names is None else tuple(sorted(names))
        if wanted == ():
            return {}
        state = await self._upstream.metadata(MetadataRequest(wanted, allow_auto_topic_creation=False))
        return {
            topic.name: frozenset(p.partition for p in topic.partitions) for topic in state.topics if topic.partitions
        }

    def _standing(self, name: str) -> Standing:
        return standing(self._governor, self._nodes, name)

    def _tell(
        self,
        answer: control.DescribeOwnersResponse,
        resource: control.Resource,
        partitions: dict[str, frozenset[int]],
        *,
        group: str,
    ) -> None:
        fault = fault_of(resource)
        if fault:
            answer.ownerships.add(resource=resource, error=control.INVALID_REQUEST, message=fault, serving_node=NOBODY)
            return
        if resource.name or group:  # nobody can claim such a thing in this version
            answer.ownerships.add(resource=resource, serving_node=NOBODY)
            return
        there = partitions.get(resource.topic, frozenset())
        index = resource.partition if resource.HasField("partition") else None
        if not there or (index is not None and index not in there):
            what = f"topic {resource.topic[:249]}" if not there else f"partition {index} of {resource.topic}"
            answer.ownerships.add(
                resource=resource,
                error=control.UNKNOWN_RESOURCE,
                message=f"{what} does not exist",
                serving_node=NOBODY,
            )
            return
        found = self._standing(resource.topic)
        if index is None:
            self._tell_topic(answer, resource.topic, found)
            return
        _add(answer, resource.topic, index, found, index if found.by_partition else None)
        _add_waiting(answer, resource.topic, found, index)

    def _tell_topic(self, answer: control.DescribeOwnersResponse, name: str, found: Standing) -> None:
        """The topic; where its partitions have owners of their own, those behind it."""
        _add(answer, name, None, found, None)
        for index in sorted(index for index in found.owners if index is not None):
            _add(answer, name, index, found, index)
        _add_waiting(answer, name, found, None)


def _add(
    answer: control.DescribeOwnersResponse, topic: str, partition: int | None, found: Standing, owned: int | None
) -> None:
    """One ownership: of a topic or partition, with the owner that `owned` has."""
    owner = found.owners.get(owned)
    serving = NOBODY if found.serving_node is None else found.serving_node
    generation = owner.generation if owner is not None else found.generation
    if owner is None and owned is not None:
        generation = found.generations.get(owned, 0)
    answer.ownerships.add(
        resource=control.Resource(topic=topic, partition=partition),
        generation=generation,
        owner_name=owner.name if owner is not None else "",
        owner_session=owner.session if owner is not None else "",
        serving_node=serving,
        since_ms=owner.since_ms if owner is not None else 0,
    )


def _add_waiting(answer: control.DescribeOwnersResponse, topic: str, found: Standing, partition: int | None) -> None:
    """Who waits for a topic, or for one of its partitions, in order."""
    for waiter in found.waiting:
        if partition is None or waiter.partition in (None, partition):
            resource = control.Resource(topic=topic, partition=waiter.partition)
            answer.waiting.add(resource=resource, name=waiter.name, session=waiter.session, since_ms=waiter.since_ms)


def _answer(exchange: Exchange, head: RequestHead, error: control.Error, body: Message) -> None:
    if error != control.NONE:
        exchange.note_error(_AS_KAFKAS[error])
    exchange.answer([encode_answer(head.correlation_id, body)])
