"""DescribeOwners (0): the owners of topics, partitions, free strings and reader claims, and their queues.
LastSequence (0): the highest sequence ids of a producer name that are in the log.

Topics that other nodes serve are described from the changelog, without the queue, which only the serving node knows.
LastSequence takes over a topic that no node serves, because only the serving node knows the ids. Nothing else
is changed.
"""

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import Final

from sidecar.changelog import claim_key, claimed
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, is_legal
from sidecar.gateway.client import Client
from sidecar.gateway.own.answers import GrantingRooms, existing_partitions, missing_of, ownership_of
from sidecar.gateway.own.bodies import AT_ONCE, NOBODY, RESOURCES, BadRequestError, RefusedError, check_name, fault_of
from sidecar.gateway.owners import BehindError, CatchingUp, standing
from sidecar.gateway.rights import may_see
from sidecar.gateway.sequence_ids import IdsError, SequenceIds, Why
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control

KNOW_S: Final = 10.0
"""How long LastSequence waits for ids that are being read, in seconds."""
_WHY: Final = {
    Why.NO_TOPIC: control.UNKNOWN_RESOURCE,
    Why.NO_IDS: control.UNKNOWN_RESOURCE,
    Why.ELSEWHERE: control.NOT_SERVING,
    Why.NOT_NOW: control.UNAVAILABLE,
}


async def describe_owners(
    rooms: GrantingRooms, catching_up: CatchingUp, client: Client, request: control.DescribeOwnersRequest
) -> control.DescribeOwnersResponse:
    """DescribeOwners: owners of resources, and their queues; without resources all that the client may know of."""
    rights, group = client.rights, request.group
    if len(request.resources) > RESOURCES:
        raise BadRequestError(f"{RESOURCES} resources at most; without any all are listed")
    if group and rights is not None and not rights.group(Operation.DESCRIBE, group):
        raise RefusedError(f"Kafka's ACLs do not let you describe the group {group}", control.NOT_AUTHORIZED)
    try:
        await catching_up.now()
        return await _described(rooms, client, request)
    except BehindError as error:
        raise RefusedError(str(error), control.UNAVAILABLE) from None
    except (UpstreamError, KafkaError):  # its text would name a broker
        raise RefusedError("Kafka cannot be asked now; try again", control.UNAVAILABLE) from None


async def _described(
    rooms: GrantingRooms, client: Client, request: control.DescribeOwnersRequest
) -> control.DescribeOwnersResponse:
    def sees(topic: str) -> bool:
        return not topic or may_see(client, rooms.resolver, topic)

    response, group, lists = control.DescribeOwnersResponse(), request.group, not request.resources
    topics = {resource.topic for resource in request.resources if is_legal(resource.topic.encode())}
    partitions = await existing_partitions(
        rooms.upstream, None if lists and not group else {topic for topic in topics if sees(topic)}
    )
    resources: Iterable[control.Resource] = request.resources
    if lists:
        governed = sorted(topic for topic in partitions if rooms.governed.env.policy_of(topic) is not None)
        claims = (claimed(key)[1] for key in await rooms.coordinator.claimed(group))
        resources = chain((control.Resource(topic=topic) for topic in governed), claims)
    for number, resource in enumerate(resources, 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        if lists and not sees(resource.topic):
            continue
        fault = "" if lists else fault_of(resource)
        missing = "" if fault or lists else missing_of(resource, partitions)
        if fault or missing:
            error = control.INVALID_REQUEST if fault else control.UNKNOWN_RESOURCE
            response.ownerships.add(resource=resource, error=error, message=fault or missing, serving_node=NOBODY)
        elif resource.name or group:
            key = claim_key(group, resource)
            owner = rooms.coordinator.owner(key)
            response.ownerships.extend([owner] if owner.owner_session or not lists else [])
            response.waiting.extend(rooms.coordinator.queue(key))
        else:
            _add_topic(rooms, response, resource)
    return response


def _add_topic(rooms: GrantingRooms, response: control.DescribeOwnersResponse, resource: control.Resource) -> None:
    """A partition; or a topic, followed by its partitions if they have their own owners; and their queues."""
    state, is_part = standing(rooms.governed, rooms.nodes, resource.topic), resource.HasField("partition")
    response.ownerships.append(ownership_of(resource, state))
    for index in sorted(index for index in state.owners if index is not None) if not is_part else ():
        part = control.Resource(topic=resource.topic, partition=index)
        response.ownerships.append(ownership_of(part, state))
    for waiter in state.waiting:
        if not is_part or waiter.partition in (None, resource.partition):
            where = control.Resource(topic=resource.topic, partition=waiter.partition)
            response.waiting.add(resource=where, name=waiter.name, session=waiter.session, since_ms=waiter.since_ms)


async def last_sequence(
    ids: SequenceIds, nodes: NodeDirectory, resolver: NameResolver, client: Client, request: control.LastSequenceRequest
) -> control.LastSequenceResponse:
    """LastSequence: the highest sequence ids of a producer name in the log, after which it continues (PIP-6)."""
    if not request.topic:
        raise BadRequestError("topic is empty: sequence ids are known by topic")
    check_name(request.producer_name)
    try:
        if not may_see(client, resolver, request.topic):
            raise IdsError.no_topic(request.topic)
        known = await ids.of(request.topic, KNOW_S)
    except IdsError as error:
        raise RefusedError(error.message_for(nodes.at(client.listener).nodes), _WHY[error.why]) from None
    marks = await known.marks(request.producer_name.encode())
    last = {index: mark.id for index, mark in marks.items()}
    return control.LastSequenceResponse(last_sequence_ids=last, last_sequence_id=known.resume(marks))
