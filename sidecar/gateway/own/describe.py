"""DescribeOwners (0): the owners of topics, partitions, free strings and reader claims, and their queues.

Changes nothing. Topics that other nodes serve are described from the changelog, without the queue, which only the
serving node knows.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.changelog import Key, claim_key
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.gateway.catching_up import BehindError, CatchingUp
from sidecar.gateway.client import Client
from sidecar.gateway.own.bodies import AT_ONCE, NOBODY, RESOURCES, BadRequestError, answer, decode, fault_of
from sidecar.gateway.owners import Standing, standing
from sidecar.gateway.rights import may_see
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError, no_topic
from sidecar.protocol.metadata import MetadataRequest
from sidecar.resources.coordinator import Coordinator
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control


class _NotAuthorizedError(Exception):
    """The client may not know of what it asks for."""


@dataclass(eq=False)
class DescribeOwnersApi:
    """Answers DescribeOwners of all clients of a node."""

    _upstream: KafkaUpstream
    _nodes: NodeDirectory
    _governed: GovernedTopics
    _coordinator: Coordinator
    _catching_up: CatchingUp

    async def handle(self, client: Client, exchange: Exchange, head: Request) -> None:
        """Owners of resources, and their queues."""
        response = control.DescribeOwnersResponse()
        try:
            request = decode(control.DescribeOwnersRequest, head)
            if len(request.resources) > RESOURCES:
                raise BadRequestError(f"{RESOURCES} resources at most; without any all are listed")
            if (
                request.group
                and client.rights is not None
                and not client.rights.group(Operation.DESCRIBE, request.group)
            ):
                raise _NotAuthorizedError(f"Kafka's ACLs do not let you describe the group {request.group}")
            await self._catching_up.now()
            if request.resources:
                await self._describe(client, request, response)
            else:
                if not request.group:
                    await self._describe_topics(client, response)
                await self._describe_claims(request.group, response)
        except _NotAuthorizedError as error:
            response = _refused(control.NOT_AUTHORIZED, str(error))
        except BadRequestError as error:
            response = _refused(control.INVALID_REQUEST, str(error))
        except BehindError as error:
            response = _refused(control.UNAVAILABLE, str(error))
        except (UpstreamError, KafkaError):  # its text would name a broker
            response = _refused(control.UNAVAILABLE, "Kafka cannot be asked now; try again")
        answer(exchange, head, response.error, response)

    async def _describe_topics(self, client: Client, response: control.DescribeOwnersResponse) -> None:
        """Every governed topic that exists and that the client may know of."""
        found = await existing_partitions(self._upstream, None)
        governed = sorted(
            name for name in found if self._governed.policy_of(name) is not None and may_see(client, name)
        )
        for number, name in enumerate(governed):
            self._add_topic(response, name, self._standing(name))
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _describe(
        self, client: Client, request: control.DescribeOwnersRequest, response: control.DescribeOwnersResponse
    ) -> None:
        """The resources that were named, in their order."""
        asked = {each.topic for each in request.resources if is_legal(each.topic.encode())}
        names = {name for name in asked if may_see(client, name)}
        partitions = await existing_partitions(self._upstream, names)
        for number, resource in enumerate(request.resources):
            fault = fault_of(resource)
            missing = "" if fault else missing_of(resource, partitions)
            if fault or missing:
                error = control.INVALID_REQUEST if fault else control.UNKNOWN_RESOURCE
                response.ownerships.add(resource=resource, error=error, message=fault or missing, serving_node=NOBODY)
            elif resource.name or request.group:
                self._add_claims(response, [claim_key(request.group, resource)])
            else:
                self._add(response, resource)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _describe_claims(self, group: str, response: control.DescribeOwnersResponse) -> None:
        """Every free string, or all that a group claims."""
        keys = self._coordinator.state.claimed(group)
        for first in range(0, len(keys), AT_ONCE):
            ownerships, waiting = self._coordinator.state.describe(keys[first : first + AT_ONCE])
            response.ownerships.extend(found for found in ownerships if found.owner_session)
            response.waiting.extend(waiting)
            await asyncio.sleep(0)

    def _add_claims(self, response: control.DescribeOwnersResponse, keys: list[Key]) -> None:
        ownerships, waiting = self._coordinator.state.describe(keys)
        response.ownerships.extend(ownerships)
        response.waiting.extend(waiting)

    def _standing(self, name: str) -> Standing:
        return standing(self._governed, self._nodes, name)

    def _add(self, response: control.DescribeOwnersResponse, resource: control.Resource) -> None:
        found = self._standing(resource.topic)
        index = resource.partition if resource.HasField("partition") else None
        if index is None:
            self._add_topic(response, resource.topic, found)
            return
        response.ownerships.append(ownership_of(resource, found))
        _add_waiting(response, resource.topic, found, index)

    def _add_topic(self, response: control.DescribeOwnersResponse, name: str, found: Standing) -> None:
        """The topic; where its partitions have their own owners, those after it."""
        response.ownerships.append(ownership_of(control.Resource(topic=name), found))
        for index in sorted(index for index in found.owners if index is not None):
            response.ownerships.append(ownership_of(control.Resource(topic=name, partition=index), found))
        _add_waiting(response, name, found, None)


def _refused(error: control.Error, message: str) -> control.DescribeOwnersResponse:
    return control.DescribeOwnersResponse(error=error, message=message)


async def existing_partitions(upstream: KafkaUpstream, names: Iterable[str] | None) -> dict[str, frozenset[int]]:
    """The partitions of these topics, or of all; without those that do not exist."""
    wanted = None if names is None else tuple(sorted(names))
    if wanted == ():
        return {}
    state = await upstream.metadata(MetadataRequest(wanted, allow_auto_topic_creation=False))
    return {topic.name: frozenset(p.partition for p in topic.partitions) for topic in state.topics if topic.partitions}


def missing_of(resource: control.Resource, partitions: dict[str, frozenset[int]]) -> str:
    """What of a topic or partition does not exist; "" where it does, or for a free string."""
    if resource.name:
        return ""
    there = partitions.get(resource.topic, frozenset())
    if not there:
        return no_topic(resource.topic)
    if resource.HasField("partition") and resource.partition not in there:
        return f"partition {resource.partition} of {resource.topic} does not exist"
    return ""


def ownership_of(resource: control.Resource, found: Standing) -> control.Ownership:
    """How a topic or partition stands; a partition of a topic with one owner has that one."""
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
    """Who waits for a topic, or for one of its partitions, in order."""
    for waiter in found.waiting:
        if partition is None or waiter.partition in (None, partition):
            resource = control.Resource(topic=topic, partition=waiter.partition)
            response.waiting.add(resource=resource, name=waiter.name, session=waiter.session, since_ms=waiter.since_ms)
