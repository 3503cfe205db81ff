"""DescribeTopicPartitions (0): topics and their partitions page by page (KIP-966), with nodes instead of brokers.

A broker's page is converted as Metadata shows topics (`gateway.metadata`): the node that serves a partition is its only
replica, in sync, and a shadow has the partitions and leader epochs of its source. The lists of eligible and last known
leaders would name brokers: both are empty.

Topics that the client may not see (by Kafka's ACLs, or shadows of others) are left out of the list of all topics, and
refused with 29 TOPIC_AUTHORIZATION_FAILED if the request names them. A cursor would reveal such a topic's name, so
pages are read on until the next topic that the client may see.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from uuid import UUID

from sidecar.gateway import asking
from sidecar.gateway.access.asked import Operation, PerTopic, ResourceType
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, Services, ShadowRule
from sidecar.gateway.client import Client
from sidecar.gateway.rights import may_see
from sidecar.network.request import Exchange, Request
from sidecar.protocol.caller import BadAnswerError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.cluster import DESCRIBE_TOPIC_PARTITIONS
from sidecar.protocol.metadata import NO_OPERATIONS, PartitionState, TopicState
from sidecar.protocol.schema import Values

_LONGEST: Final = 2000
"""The most partitions in a page: Kafka's default of max.request.partition.size.limit."""


async def _handle(of: Services, client: Client, exchange: Exchange, request: Request) -> None:
    """Answer with one page."""
    fields = await asking.fields(DESCRIBE_TOPIC_PARTITIONS, request)
    named = [topic["name"] for topic in fields["topics"]]
    cursor: Values | None = fields["cursor"]
    if cursor is not None and (cursor["partition_index"] < 0 or (named and cursor["topic_name"] not in named)):
        exchange.note_error(ErrorCode.INVALID_REQUEST)
        await _answer(exchange, [_error(name, ErrorCode.INVALID_REQUEST) for name in named], None)
        return
    wanted = sorted(name for name in {*named} if cursor is None or name >= cursor["topic_name"])
    seen = [name for name in wanted if may_see(client, of.resolver, name)]
    hidden = sorted({*wanted}.difference(seen))
    for name in hidden:
        client.note_refusal(name.encode(), ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        exchange.note_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found: list[Values] = []
    further: Values | None = None
    if seen or not named:
        if named and cursor is not None and cursor["topic_name"] not in seen:
            cursor = None
        asked: Values = {"topics": [{"name": name} for name in seen], "cursor": cursor}
        most = max(1, min(_LONGEST, fields["response_partition_limit"]))
        found, further = await _page(of, client, request, asked, most)
    states = await of.cluster.shown(map(_state, found), client.listener)
    kept = [each for each in states if named or each.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]  # as in Metadata
    topics = [_topic(client, state) for state in kept]
    topics += [_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in hidden]
    await _answer(exchange, topics, further)


async def _page(
    of: Services, client: Client, request: Request, asked: Values, left: int
) -> tuple[list[Values], Values | None]:
    """The topics of a page that the client may see, and the next page's cursor. `left`: the most partitions, ≥ 1.
    Raises `BadAnswerError`, `DisconnectedError`.
    """
    found: list[Values] = []
    while True:
        limited = asked | {"response_partition_limit": left or _LONGEST}
        answer = await asking.anywhere(client, of.upstream, request, DESCRIBE_TOPIC_PARTITIONS, limited)
        shown = [topic for topic in answer["topics"] if may_see(client, of.resolver, topic["name"])]
        for topic in shown:
            if not left:
                return found, {"topic_name": topic["name"], "partition_index": 0}
            if found and found[-1]["name"] == topic["name"]:
                found[-1]["partitions"] += topic["partitions"]
            else:
                found.append(topic)
            left = max(0, left - len(topic["partitions"]))
        further: Values | None = answer["next_cursor"]
        is_full = not left or len(shown) == len(answer["topics"])
        if further is None or (is_full and may_see(client, of.resolver, further["topic_name"])):
            return found, further
        if further == asked["cursor"]:
            raise BadAnswerError("a page of topics that ends where it begins")
        asked = asked | {"cursor": further}


def _state(topic: Values) -> TopicState:
    partitions: list[Any] = topic["partitions"]
    return TopicState(
        topic["name"],
        topic["error_code"],
        UUID(bytes=topic["topic_id"]),
        topic["is_internal"],
        tuple(
            PartitionState(each["partition_index"], each["error_code"], each["leader_id"], each["leader_epoch"])
            for each in partitions
        ),
        topic["topic_authorized_operations"],
    )


def _topic(client: Client, topic: TopicState) -> Values:
    operations, rights = topic.operations, client.rights
    if rights is not None:
        operations &= rights.allowed(ResourceType.TOPIC, topic.name)
    return {
        "error_code": topic.error,
        "name": topic.name,
        "topic_id": topic.topic_id.bytes,
        "is_internal": topic.internal,
        "partitions": list(map(_partition, topic.partitions)),
        "topic_authorized_operations": operations,
    }


def _partition(partition: PartitionState) -> Values:
    """A partition, without an error: brokers give none for a partition without a leader (`KRaftMetadataCache`)."""
    replicas = [] if partition.leader < 0 else [partition.leader]
    return {
        "partition_index": partition.partition,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": replicas,
        "eligible_leader_replicas": [],
        "last_known_elr": [],
    }


def _error(name: str, code: int) -> Values:
    return {"error_code": code, "name": name, "topic_authorized_operations": NO_OPERATIONS}


async def _answer(exchange: Exchange, topics: Iterable[Values], further: Values | None) -> None:
    await asking.answer(exchange, DESCRIBE_TOPIC_PARTITIONS, {"topics": [*topics], "next_cursor": further})


SPEC = ApiSpec(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), Route.ANY, PerTopic(Operation.DESCRIBE), ShadowRule.SHOWN,
    cold=lambda _, of: partial(_handle, of),
    reason="newest known (KIP-966); a broker's page, with nodes as leaders and the only replicas",
)  # fmt: skip
