"""DescribeOwners (0): the owners of topics, partitions, free strings and reader claims, and their queues.
LastSequence (0): the highest sequence ids of a producer name that are in the log.

Topics that other nodes serve are described from the changelog, without the queue, which only the serving node knows.
LastSequence takes over a topic that no node serves, because only the serving node knows the ids. Nothing else
is changed.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.changelog import claim_key
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.gateway.client import Client
from sidecar.gateway.own.bodies import AT_ONCE, NOBODY, RESOURCES, BadRequestError, RefusedError, check_name, fault_of
from sidecar.gateway.owners import BehindError, CatchingUp, Standing, standing
from sidecar.gateway.rights import may_see
from sidecar.gateway.sequence_ids import IdsError, SequenceIds, Why
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError, no_topic
from sidecar.protocol.metadata import MetadataRequest
from sidecar.resources.coordinator import Coordinator
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


@dataclass(eq=False)
class DescribeOwnersApi:
    """Answers DescribeOwners of all clients of a node."""

    _upstream: KafkaUpstream
    _nodes: NodeDirectory
    _resolver: NameResolver
    _governed: GovernedTopics
    _coordinator: Coordinator
    _catching_up: CatchingUp

    async def answer(self, client: Client, request: control.DescribeOwnersRequest) -> control.DescribeOwnersResponse:
        """DescribeOwners: owners of resources, and their queues."""
        if len(request.resources) > RESOURCES:
            raise BadRequestError(f"{RESOURCES} resources at most; without any all are listed")
        rights, group = client.rights, request.group
        if group and rights is not None and not rights.group(Operation.DESCRIBE, group):
            raise RefusedError(f"Kafka's ACLs do not let you describe the group {group}", control.NOT_AUTHORIZED)
        response = control.DescribeOwnersResponse()
        try:
            await self._catching_up.now()
            if request.resources:
                await self._describe(client, request, response)
            else:
                if not group:
                    await self._describe_topics(client, response)
                await self._describe_claims(client, group, response)
        except BehindError as error:
            raise RefusedError(str(error), control.UNAVAILABLE) from None
        except (UpstreamError, KafkaError):  # its text would name a broker
            raise RefusedError("Kafka cannot be asked now; try again", control.UNAVAILABLE) from None
        return response

    async def _describe_topics(self, client: Client, response: control.DescribeOwnersResponse) -> None:
        """Every existing governed topic that the client may know of."""
        found = await existing_partitions(self._upstream, None)
        governed = sorted(
            name
            for name in found
            if self._governed.env.policy_of(name) is not None and may_see(client, self._resolver, name)
        )
        for number, name in enumerate(governed):
            self._add_topic(response, name)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _describe(
        self, client: Client, request: control.DescribeOwnersRequest, response: control.DescribeOwnersResponse
    ) -> None:
        """The requested resources, in their order."""
        asked = {each.topic for each in request.resources if is_legal(each.topic.encode())}
        names = {name for name in asked if may_see(client, self._resolver, name)}
        partitions = await existing_partitions(self._upstream, names)
        for number, resource in enumerate(request.resources):
            fault = fault_of(resource)
            missing = "" if fault else missing_of(resource, partitions)
            if fault or missing:
                error = control.INVALID_REQUEST if fault else control.UNKNOWN_RESOURCE
                response.ownerships.add(resource=resource, error=error, message=fault or missing, serving_node=NOBODY)
            elif resource.name or request.group:
                ownerships, waiting = self._coordinator.describe([claim_key(request.group, resource)])
                response.ownerships.extend(ownerships)
                response.waiting.extend(waiting)
            else:
                self._add(response, resource)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _describe_claims(self, client: Client, group: str, response: control.DescribeOwnersResponse) -> None:
        """Every free string; or of a group, strings and the claims to topics that the client may know of."""
        keys = self._coordinator.claimed(group)

        def shows(found: control.Ownership | control.Waiting) -> bool:
            return not found.resource.topic or may_see(client, self._resolver, found.resource.topic)

        for first in range(0, len(keys), AT_ONCE):
            ownerships, waiting = self._coordinator.describe(keys[first : first + AT_ONCE])
            response.ownerships.extend(found for found in ownerships if found.owner_session and shows(found))
            response.waiting.extend(filter(shows, waiting))
            await asyncio.sleep(0)

    def _add(self, response: control.DescribeOwnersResponse, resource: control.Resource) -> None:
        if not resource.HasField("partition"):
            self._add_topic(response, resource.topic)
            return
        found = standing(self._governed, self._nodes, resource.topic)
        response.ownerships.append(ownership_of(resource, found))
        _add_waiting(response, resource.topic, found, resource.partition)

    def _add_topic(self, response: control.DescribeOwnersResponse, name: str) -> None:
        """The topic, followed by its partitions if they have their own owners."""
        found = standing(self._governed, self._nodes, name)
        response.ownerships.append(ownership_of(control.Resource(topic=name), found))
        for index in sorted(index for index in found.owners if index is not None):
            response.ownerships.append(ownership_of(control.Resource(topic=name, partition=index), found))
        _add_waiting(response, name, found, None)


@dataclass(eq=False)
class LastSequenceApi:
    """Answers LastSequence of all clients of a node."""

    _ids: SequenceIds
    _nodes: NodeDirectory
    _resolver: NameResolver

    async def answer(self, client: Client, request: control.LastSequenceRequest) -> control.LastSequenceResponse:
        """LastSequence: the highest sequence ids of a producer name in the log, after which it continues (PIP-6)."""
        if not request.topic:
            raise BadRequestError("topic is empty: sequence ids are known by topic")
        check_name(request.producer_name)
        try:
            if not may_see(client, self._resolver, request.topic):
                raise IdsError.no_topic(request.topic)
            known = await self._ids.of(request.topic, KNOW_S)
        except IdsError as error:
            message = error.message_for(self._nodes.at(client.listener).nodes)
            raise RefusedError(message, _WHY[error.why]) from None
        found = await known.marks(request.producer_name.encode())
        last = {index: mark.id for index, mark in found.items()}
        return control.LastSequenceResponse(last_sequence_ids=last, last_sequence_id=known.resume(found))


async def existing_partitions(upstream: KafkaUpstream, names: Iterable[str] | None) -> dict[str, frozenset[int]]:
    """The partitions of these topics, or of all; without those that do not exist."""
    wanted = None if names is None else tuple(sorted(names))
    if wanted == ():
        return {}
    state = await upstream.metadata(MetadataRequest(wanted, allow_auto_topic_creation=False))
    return {topic.name: frozenset(p.partition for p in topic.partitions) for topic in state.topics if topic.partitions}


def missing_of(resource: control.Resource, partitions: dict[str, frozenset[int]]) -> str:
    """Which part of a topic or partition does not exist; "" if it exists, or for a free string."""
    if resource.name:
        return ""
    there = partitions.get(resource.topic, frozenset())
    if not there:
        return no_topic(resource.topic)
    if resource.HasField("partition") and resource.partition not in there:
        return f"partition {resource.partition} of {resource.topic} does not exist"
    return ""


def ownership_of(resource: control.Resource, found: Standing) -> control.Ownership:
    """The ownership of a topic or partition; a partition of a topic with one owner has that owner."""
    index = resource.partition if resource.HasField("partition") and found.by_partition else None
    owner = found.owners.get(index)
    generation = owner.generation if owner is not None else found.generation
    if owner is None and index is not None:
        generation = found.generations.get(index, 0)
    return control.Ownership(
        resource=resource,
        generation=generation,
        owner_name=owner.name if owner is not None else "",
        owner_session=owner.session if owner is not None else "",
        serving_node=NOBODY if found.serving_node is None else found.serving_node,
        since_ms=owner.since_ms if owner is not None else 0,
        fencing_token=generation if owner is not None else 0,
    )


def _add_waiting(response: control.DescribeOwnersResponse, topic: str, found: Standing, partition: int | None) -> None:
    """Add the sessions that wait for a topic, or for one of its partitions, in order."""
    for waiter in found.waiting:
        if partition is None or waiter.partition in (None, partition):
            resource = control.Resource(topic=topic, partition=waiter.partition)
            response.waiting.add(resource=resource, name=waiter.name, session=waiter.session, since_ms=waiter.since_ms)
