"""CreateTopics (2-7), DeleteTopics (1-6), CreatePartitions (0-3), ElectLeaders (0-2): sent to the controller, without
the elements that are refused here (KIP-4, KIP-195, KIP-460). AlterPartitionReassignments (0-1) and
ListPartitionReassignments (0): answered here (KIP-455).

- The sidecar's own topics (`__sidecar_*`), and shadows: 29 TOPIC_AUTHORIZATION_FAILED. Creating a topic with a shadow's
  name: 36 TOPIC_ALREADY_EXISTS.
- Deleting a topic that has shadows: 44 POLICY_VIOLATION.
- Deleting a topic by its id (version 6): the id is resolved here. An unknown id is refused with 100 UNKNOWN_TOPIC_ID,
  because the controller might know its topic.
- Names and ids that occur twice are forwarded, because the controller refuses them before it checks rights.
- Explicit replica assignments name brokers, which a virtual cluster does not show: 39 INVALID_REPLICA_ASSIGNMENT.
- Topic configurations that list replicas by broker: 40 INVALID_CONFIG.

- Replicas cannot be moved, as that names brokers. The API is answered with the reason; if it were not served, tools
  would report a Kafka that is too old. No reassignment is ever listed.

The rest is forwarded, unchanged if nothing was refused. Kafka checks the replication factor, which may exceed the
number of nodes that clients see.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sidecar.cluster.resolver import NameResolver, TopicKind
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import ids_in, refused_topic
from sidecar.gateway.client import Client
from sidecar.gateway.configs import refused_configs
from sidecar.gateway.rights import may_see
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import admin
from sidecar.protocol.schema import NEVER, Message, Values
from sidecar.protocol.topic_ids import NO_TOPIC_ID

_ASSIGNED: Final = KafkaError(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "replicas cannot be assigned by hand: clients of a sidecar see its nodes, not the brokers; let Kafka place them",
)
_NOT_MOVED: Final = KafkaError(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "replicas cannot be moved through a sidecar, whose nodes stand for brokers: ask Kafka directly",
)
_NOTHING_TO_CANCEL: Final = KafkaError(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is known through a sidecar: ask Kafka directly"
)
_TAKEN: Final = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "there is a shadow topic of this name")


def _there(name: str) -> KafkaError:
    """A controller's answer for a name that is taken."""
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _created(topic: Values) -> KafkaError | None:
    return _ASSIGNED if topic["assignments"] else refused_configs(topic["configs"])


def _grown(topic: Values) -> KafkaError | None:
    return _ASSIGNED if topic["assignments"] else None


def _nothing(_topics: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class _Change:
    """One API: the lists in request and answer, and the refusals besides the sidecar's own topics. `by_id`: the list in
    requests that name topics by id, and the first version of these. `reroutes`: the API changes the partitions'
    leaders.
    """

    message: Message
    topics: str
    results: str
    refusal: Callable[[Any], KafkaError | None] = _nothing
    by_id: tuple[str, int] = ("", NEVER)
    reroutes: bool = False

    def topics_of(self, version: int) -> str:
        """The list of topics in a request."""
        return self.by_id[0] if version >= self.by_id[1] else self.topics


_CHANGES: Final = {
    change.message.key: change
    for change in (
        _Change(admin.CREATE_TOPICS, "topics", "topics", _created),
        _Change(admin.DELETE_TOPICS, "topic_names", "responses", by_id=("topics", 6), reroutes=True),
        _Change(admin.CREATE_PARTITIONS, "topics", "results", _grown, reroutes=True),
        _Change(admin.ELECT_LEADERS, "topic_partitions", "replica_election_results"),
    )
}
TOPIC_KEYS: Final = frozenset(_CHANGES)
"""The APIs that `TopicsApi` handles."""

_NO_SUCH_ID: Final = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
_UNKNOWN_LAYOUT: Final = {"num_partitions": -1, "replication_factor": -1, "configs": []}


class TopicsApi:
    """Handles the requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver) -> None:
        self._upstream = upstream
        self._resolver = resolver

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Handle one request that changes topics. Upstream decides on an ElectLeaders with null for the topics."""
        change, upstream = _CHANGES[request.key], self._upstream
        listed = change.topics_of(request.version)
        if listed == change.by_id[0]:
            fields = await asking.fields(change.message, request)
            await asking.learn_ids(upstream, ids_in(fields[listed]))
        lists, refusal = (listed, change.results), partial(self._refusal, client, change)
        forget = self._forget_routes if change.reroutes else _nothing
        await asking.change(client, exchange, upstream, request, change.message, lists, refusal, self._refused, forget)

    def _forget_routes(self, topics: list[Any]) -> None:
        """Forget what the view knows of the partitions, because it has just become wrong."""
        names = map(self._name, topics)
        self._upstream.view.forget(name.encode() for name in names if name is not None)

    def _refusal(self, client: Client, change: _Change, topic: Any) -> KafkaError | None:
        """Why a topic is refused, to a client that Kafka's ACLs allow the change. A name that the client may not see is
        in no message.
        """
        found = self._name(topic)
        if found is None:
            return _NO_SUCH_ID if ids_in([topic]) else None
        name = found.encode()
        if change.message is admin.CREATE_TOPICS and self._resolver.kind(name) is TopicKind.SHADOW:
            return _TAKEN if may_see(client, self._resolver, found) else _there(found)
        error = self._resolver.change_refused(name, client.principal)
        if error is None and change.message is admin.DELETE_TOPICS and (shadows := self._resolver.shadows_of(name)):
            seen = [each for shadow in shadows if may_see(client, self._resolver, each := shadow.decode())]
            others = [] if len(seen) == len(shadows) else ["others that you may not see"]
            names = ", ".join((*seen, *others))
            error = KafkaError(ErrorCode.POLICY_VIOLATION, f"this topic has shadows, delete those first: {names}")
        return error or change.refusal(topic)

    def _name(self, topic: Any) -> str | None:
        """The topic of an element in a request; None for an unknown id, or if it has neither name nor id."""
        if isinstance(topic, str):
            return topic
        if not ids_in([topic]):
            return topic["name"] if "name" in topic else topic["topic"]
        return asking.topic_name(self._upstream, topic["topic_id"])

    def _refused(self, topic: Any, error: KafkaError) -> Values:
        found = {"error_code": error.code, "error_message": error.message or None}
        if isinstance(topic, str):
            return {"name": topic} | found
        if "topic" in topic:
            return refused_topic(topic, found, "partition_result", "partition_id")
        by_id = {"name": self._name(topic), "topic_id": topic.get("topic_id", NO_TOPIC_ID)}
        return found | by_id | _UNKNOWN_LAYOUT

    async def handle_reassign(self, client: Client, exchange: Exchange, request: Request) -> None:
        """AlterPartitionReassignments: refused, each partition with its reason."""
        message = admin.ALTER_PARTITION_REASSIGNMENTS
        fields = await asking.fields(message, request)
        responses = [
            {
                "name": topic["name"],
                "partitions": [self._not_moved(client, exchange, topic, each) for each in topic["partitions"]],
            }
            for topic in fields["topics"]
        ]
        await asking.answer(exchange, message, {"responses": responses})

    def _not_moved(self, client: Client, exchange: Exchange, topic: Values, partition: Values) -> Values:
        error = self._resolver.change_refused(topic["name"].encode(), client.principal)
        if error is None:
            error = _NOTHING_TO_CANCEL if partition["replicas"] is None else _NOT_MOVED
        exchange.note_error(error.code)
        found = {"error_code": error.code, "error_message": error.message}
        return found | {"partition_index": partition["partition_index"]}

    async def handle_list(self, _client: Client, exchange: Exchange, request: Request) -> None:
        """ListPartitionReassignments: none."""
        message = admin.LIST_PARTITION_REASSIGNMENTS
        await asking.fields(message, request)
        await asking.answer(exchange, message, {})
