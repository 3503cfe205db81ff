"""Merges the answers of brokers, for APIs that each broker answers about itself: ListGroups (0-5), ListTransactions
(0-2), DescribeLogDirs (0-5). A client that asks all nodes, as tools do, sees everything once.

ListGroups and ListTransactions ask all brokers, and list the groups and transactional ids for which FindCoordinator
names this node (`Placement.of_key`): clients look for them there. DescribeLogDirs asks this node's brokers.

DescribeLogDirs for named partitions describes those that Metadata places on this node, on all brokers that have their
replicas: clients ask the node that Metadata names (kadm, `Admin.describeReplicaLogDirs`).

A node without brokers has no directories. When a broker is lost the metadata is refreshed, because its
groups may have moved; if the broker is still listed, the lists answer 14 COORDINATOR_LOAD_IN_PROGRESS, which clients
retry, and DescribeLogDirs closes the client's connection, as if its broker were lost.

DescribeProducers (0) is split by leader and merged. A shadow that an allow list hides
from the client is refused with 29 TOPIC_AUTHORIZATION_FAILED.

KIP-518 (states of groups), KIP-664 (transactions, producers), KIP-113 (log directories).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, TopicKind
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway import asking
from sidecar.gateway.access.asked import TOPIC, error_fields
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import DisconnectedError, UpstreamError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.messages import admin, transactions
from sidecar.protocol.metadata import MetadataRequest
from sidecar.protocol.schema import Message, Values

_Answer = TypeVar("_Answer")
_NO_LOG_DIR: Final[Values] = {"log_dir": "(none)", "topics": [], "total_bytes": -1, "usable_bytes": -1}
"""The answer of a node without brokers: Java takes an empty list for CLUSTER_AUTHORIZATION_FAILED."""


_ASK_AGAIN: Final = {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class Listed:
    """A list that each broker answers: the field of its elements, and the field of an element's key. `merge` completes
    the answer with the brokers' other fields.
    """

    elements: str
    key: str
    merge: Callable[[list[Values]], Values] = lambda _answers: {}

    def keep(self, answers: list[Values], is_here: Callable[[str], bool]) -> Generator[None, None, None]:
        """Remove the elements of other nodes, in slices."""
        for answer in answers:
            listed: list[Values] = answer[self.elements]
            kept: list[Values] = []
            for first in range(0, len(listed), BOUNDS.turn):
                kept += [each for each in listed[first : first + BOUNDS.turn] if is_here(each[self.key])]
                yield
            answer[self.elements] = kept

    def joined(self, answers: list[Values]) -> Values:
        """All lists as one, each key once (a group that moves may be listed by two brokers); empty after an error."""
        values = _in_front(answers)
        found: dict[str, Values] = {}
        if not values["error_code"]:
            for answer in answers:
                found |= {element[self.key]: element for element in answer[self.elements]}
        return values | {self.elements: list(found.values())} | self.merge(answers)


class MergedApi:
    """Handles the requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, nodes: NodeDirectory, resolver: NameResolver) -> None:
        self._upstream = upstream
        self._view = upstream.view
        self._nodes = nodes
        self._resolver = resolver

    def _mine(self, client: Client) -> list[int]:
        """The brokers that belong to this node."""
        return self._nodes.at(client.listener).brokers_of(self._nodes.me.id, self._view.brokers)

    async def _ask_all(
        self, client: Client, brokers: Callable[[], Iterable[int]], ask: Callable[[int], Awaitable[_Answer]]
    ) -> list[_Answer]:
        """The answers of all these brokers. Raises `DisconnectedError`."""
        await self._upstream.brokers()
        answers, lost = await _settled(map(ask, brokers()))
        if lost is not None and not client.connection.closed:
            await self._upstream.metadata(MetadataRequest(()))
            answers, lost = await _settled(map(ask, brokers()))
        if lost is not None:
            raise lost
        return answers

    async def handle_list(
        self, message: Message, form: Listed, client: Client, exchange: Exchange, request: Request
    ) -> None:
        """Answer with the groups or transactional ids that clients find at this node."""
        version = request.version
        await asking.read_all(request)
        try:
            answers = await self._ask_all(
                client, lambda: self._view.brokers, lambda broker_id: client.ask(broker_id, request)
            )
        except UpstreamError:
            exchange.note_error(_ASK_AGAIN["error_code"])
            await asking.answer(exchange, message, _ASK_AGAIN)
            return
        placement = self._nodes.at(client.listener)
        if len(answers) == len(placement.nodes) == 1:
            exchange.answer([answers[0].view(answers[0].start, answers[0].end)])
            return
        found = [await asking.read(message, answer, version) for answer in answers]
        await in_slices(form.keep(found, lambda key: placement.of_key(key.encode()) == self._nodes.me.id))
        await asking.answer(exchange, message, form.joined(found))

    async def handle_log_dirs(self, client: Client, exchange: Exchange, request: Request) -> None:
        """DescribeLogDirs: the directories of this node's brokers, and all with named partitions of this node."""
        message = admin.DESCRIBE_LOG_DIRS
        topics: list[Values] | None = (await asking.fields(message, request))["topics"]
        if topics is None and not self._resolver.has_guards:
            await self._pass_log_dirs(client, exchange, request)
            return
        placed = [
            topic | {"partitions": [index for index in topic["partitions"] if self._is_here(client, topic, index)]}
            for topic in topics or ()
        ]
        named = {"topics": None if topics is None else [topic for topic in placed if topic["partitions"]]}

        async def ask(broker_id: int) -> Values:
            answer = await asking.one(client, broker_id, request, message, named)
            if broker_id in self._mine(client):
                return answer
            return answer | {"results": [found for found in answer["results"] if found["topics"]]}

        brokers = (lambda: self._view.brokers) if named["topics"] else (lambda: self._mine(client))
        values = _joined_log_dirs(await self._ask_all(client, brokers, ask))
        shown = [directory | {"topics": self._seen(client, directory["topics"])} for directory in values["results"]]
        await asking.answer(exchange, message, values | {"results": shown})

    async def _pass_log_dirs(self, client: Client, exchange: Exchange, request: Request) -> None:
        """All directories of this node's brokers: the answer of a single broker is forwarded unchanged."""
        message = admin.DESCRIBE_LOG_DIRS
        await asking.read_all(request)
        answers = await self._ask_all(
            client, lambda: self._mine(client), lambda broker_id: client.ask(broker_id, request)
        )
        if len(answers) == 1:
            exchange.answer([answers[0].view(answers[0].start, answers[0].end)])
            return
        values = _joined_log_dirs([await asking.read(message, answer, request.version) for answer in answers])
        await asking.answer(exchange, message, values)

    def _seen(self, client: Client, topics: list[Values]) -> list[Values]:
        """The topics without hidden ones: shadows whose allow list lacks the client. Metadata omits them too."""
        return [each for each in topics if not self._hides(client, each["name"])]

    def _hides(self, client: Client, topic: str) -> bool:
        return self._resolver.hides(topic.encode(), client.principal)

    def _is_here(self, client: Client, topic: Values, partition: int) -> bool:
        """Whether Metadata places the partition on this node."""
        name: bytes = topic["topic"].encode()
        if self._resolver.kind(name) is TopicKind.GOVERNED:
            return self._nodes.serves(name) == self._nodes.me.id
        return self._nodes.at(client.listener).of_partition(name, partition) == self._nodes.me.id

    # DescribeProducers --------------------------------------------------------------------------------------------

    async def handle_describe_producers(self, client: Client, exchange: Exchange, request: Request) -> None:
        """DescribeProducers: the producer states of the partitions' leaders."""
        message = transactions.DESCRIBE_PRODUCERS
        fields = await asking.fields(message, request)
        asked = [(topic["name"], index) for topic in fields["topics"] for index in topic["partition_indexes"]]
        hidden = {topic["name"] for topic in fields["topics"] if self._hides(client, topic["name"])}
        seen = [each for each in dict.fromkeys(asked) if each[0] not in hidden]
        await self._upstream.find_leaders(self._view.missing((name.encode(), index) for name, index in seen))
        by_leader: dict[int, list[tuple[str, int]]] = {}
        found: dict[tuple[str, int], Values] = {
            (name, index): {"partition_index": index} | error_fields(TOPIC) for name, index in asked if name in hidden
        }
        if found:
            exchange.note_error(TOPIC)
        for name, index in seen:
            leader = self._view.leader(name.encode(), index)
            if leader == NO_LEADER:
                code = self._view.why_no_leader(name.encode(), index)
                found[name, index] = {"partition_index": index, "error_code": code}
            else:
                by_leader.setdefault(leader, []).append((name, index))
        for answer in await asyncio.gather(
            *(self._ask_leader(client, leader, request, some) for leader, some in by_leader.items())
        ):
            found |= answer
        topics = _by_topic((name, found[name, index]) for name, index in dict.fromkeys(asked))
        await asking.answer(exchange, message, _topics("partitions", topics))

    async def _ask_leader(
        self, client: Client, leader: int, request: Request, partitions: list[tuple[str, int]]
    ) -> dict[tuple[str, int], Values]:
        """One leader's answer by partition; an error for each partition that it does not answer."""
        found = {
            (name, index): {"partition_index": index, "error_code": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
            for name, index in partitions
        }
        fields = _topics("partition_indexes", _by_topic(partitions))
        try:
            answer = await asking.one(client, leader, request, transactions.DESCRIBE_PRODUCERS, fields)
        except DisconnectedError:
            pass
        else:
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    found[topic["name"], partition["partition_index"]] = partition
        stale = {name.encode() for (name, _), partition in found.items() if partition["error_code"] in STALE_ROUTE}
        if stale:
            self._upstream.refresh_soon(stale)
        return found


async def _settled(asked: Iterable[Awaitable[_Answer]]) -> tuple[list[_Answer], DisconnectedError | None]:
    """The answers that arrived, and the error of one that did not."""
    answers: list[_Answer] = []
    lost: DisconnectedError | None = None
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, DisconnectedError):
            lost = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            answers.append(answer)
    return answers, lost


def _by_topic(elements: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for name, element in elements:
        topics.setdefault(name, []).append(element)
    return topics


def _topics(partitions: str, topics: dict[str, list[Any]]) -> Values:
    return {"topics": [{"name": name, partitions: elements} for name, elements in topics.items()]}


def _in_front(answers: list[Values]) -> Values:
    """The fields before the lists: the longest throttle time and the first error."""
    return {
        "throttle_time_ms": max((answer.get("throttle_time_ms", 0) for answer in answers), default=0),
        "error_code": next((code for answer in answers if (code := answer.get("error_code", 0))), 0),
    }


def _joined_log_dirs(answers: list[Values]) -> Values:
    """Numbers directories of the same name on different brokers: clients identify them by name."""
    values = _in_front(answers)
    results: list[Values] = []
    seen: dict[str, int] = {}
    for result in (result for answer in answers for result in answer["results"]):
        name: str = result["log_dir"]
        seen[name] = count = seen.get(name, 0) + 1
        results.append(result | {"log_dir": name if count == 1 else f"{name} ({count})"})
    if not results and not values["error_code"]:
        results = [_NO_LOG_DIR]
    return values | {"results": results}
