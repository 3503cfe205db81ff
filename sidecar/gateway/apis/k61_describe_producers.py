"""DescribeProducers (0): split by leader and merged (KIP-664).

A shadow that an allow list hides from the client is refused with 29 TOPIC_AUTHORIZATION_FAILED.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from sidecar.cluster.resolver import is_legal
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway import asking
from sidecar.gateway.access.asked import TOPIC, Asked, Asking, Divided, Operation, error_fields, refused_topic, some
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.messages.transactions import DESCRIBE_PRODUCERS
from sidecar.protocol.schema import Values


def _describe_producers(asking: Asking) -> Divided | None:
    def refused(topic: Values) -> Values | None:
        may = not is_legal(topic["name"].encode()) or asking.rights.topic(Operation.READ, topic["name"])
        return None if may else refused_topic(topic, error_fields(TOPIC))

    return some(asking.fields, ("topics", "topics"), refused, TOPIC)


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Answer with the producer states of the partitions' leaders."""
    message, view = DESCRIBE_PRODUCERS, of.upstream.view
    fields = await asking.fields(message, request)
    asked = [(topic["name"], index) for topic in fields["topics"] for index in topic["partition_indexes"]]
    hidden = {
        topic["name"] for topic in fields["topics"] if of.resolver.hides(topic["name"].encode(), client.principal)
    }
    seen = [each for each in dict.fromkeys(asked) if each[0] not in hidden]
    await of.upstream.find_leaders(view.missing((name.encode(), index) for name, index in seen))
    by_leader: dict[int, list[tuple[str, int]]] = {}
    found: dict[tuple[str, int], Values] = {
        (name, index): {"partition_index": index} | error_fields(TOPIC) for name, index in asked if name in hidden
    }
    if found:
        exchange.note_error(TOPIC)
    for name, index in seen:
        leader = view.leader(name.encode(), index)
        if leader == NO_LEADER:
            code = view.why_no_leader(name.encode(), index)
            found[name, index] = {"partition_index": index, "error_code": code}
        else:
            by_leader.setdefault(leader, []).append((name, index))
    for answer in await asyncio.gather(
        *(_ask_leader(of, client, leader, request, parts) for leader, parts in by_leader.items())
    ):
        found |= answer
    topics = _by_topic((name, found[name, index]) for name, index in dict.fromkeys(asked))
    await asking.answer(exchange, message, _topics("partitions", topics))


async def _ask_leader(
    of: Services, client: Client, leader: int, request: Request, partitions: list[tuple[str, int]]
) -> dict[tuple[str, int], Values]:
    """One leader's answer by partition; an error for each partition that it does not answer."""
    found = {
        (name, index): {"partition_index": index, "error_code": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
        for name, index in partitions
    }
    fields = _topics("partition_indexes", _by_topic(partitions))
    try:
        answer = await asking.one(client, leader, request, DESCRIBE_PRODUCERS, fields)
    except DisconnectedError:
        pass
    else:
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                found[topic["name"], partition["partition_index"]] = partition
    stale = {name.encode() for (name, _), partition in found.items() if partition["error_code"] in STALE_ROUTE}
    if stale:
        of.upstream.refresh_soon(stale)
    return found


def _by_topic(elements: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for name, element in elements:
        topics.setdefault(name, []).append(element)
    return topics


def _topics(partitions: str, topics: dict[str, list[Any]]) -> Values:
    return {"topics": [{"name": name, partitions: elements} for name, elements in topics.items()]}


SPEC = ApiSpec(
    ApiKey.DESCRIBE_PRODUCERS, (0, 0), Route.LEADERS, Asked(_describe_producers), ShadowRule.OWN,
    cold=lambda _, of: partial(_handle, of),
)  # fmt: skip
