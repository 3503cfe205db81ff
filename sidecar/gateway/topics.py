"""Sends changes of topics to the controller, without the elements that are refused here.

- The sidecar's own topics (`__sidecar_*`), and shadows by the API's rule: 29 TOPIC_AUTHORIZATION_FAILED.
- Names and ids that occur twice are forwarded, because the controller refuses them before it checks rights.
- A topic that is named by an unknown id: 100 UNKNOWN_TOPIC_ID, because the controller might know its topic.
- Explicit replica assignments name brokers, which a virtual cluster does not show: 39 INVALID_REPLICA_ASSIGNMENT.

The rest is forwarded, unchanged if nothing was refused. Kafka checks the replication factor, which may exceed the
number of nodes that clients see.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import ids_in, refused_topic
from sidecar.gateway.client import Client
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.schema import NEVER, Message, Values
from sidecar.protocol.topic_ids import NO_TOPIC_ID

ASSIGNED: Final = KafkaError(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "replicas cannot be assigned by hand: clients of a sidecar see its nodes, not the brokers; let Kafka place them",
)
_NO_SUCH_ID: Final = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
_UNKNOWN_LAYOUT: Final = {"num_partitions": -1, "replication_factor": -1, "configs": []}


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Change:
    """What is looked at of an API that changes topics: the lists in request and answer. `refusal`: why an element is
    refused whose topic, known by its name, is not. `refused_anyway`: see `asking.change`. `by_id`: the list in requests
    that name topics by id, and the first version of these. `reroutes`: the API changes the partitions' leaders.
    """

    topics: str
    results: str
    refusal: Callable[[NameResolver, Client, str, Any], KafkaError | None] = _nothing
    refused_anyway: Callable[[int, Values], Callable[[Any], bool]] = lambda _version, _fields: lambda _element: False
    by_id: tuple[str, int] = ("", NEVER)
    reroutes: bool = False

    def topics_of(self, version: int) -> str:
        """The list of topics in a request."""
        return self.by_id[0] if version >= self.by_id[1] else self.topics


@dataclass(frozen=True, slots=True)
class TopicsApi:
    """Handles the requests of one such API, of all clients of a node."""

    _upstream: KafkaUpstream
    _resolver: NameResolver
    _message: Message
    _shadow: ShadowRule
    _change: Change

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Handle one request. Upstream decides on an ElectLeaders with null for the topics."""
        change, upstream, message = self._change, self._upstream, self._message
        listed = change.topics_of(request.version)
        if listed == change.by_id[0]:
            fields = await asking.fields(message, request)
            await asking.learn_ids(upstream, ids_in(fields[listed]))
        lists, refusal = (listed, change.results), partial(self._refusal, client)
        forget = self._forget_routes if change.reroutes else _nothing
        await asking.change(
            client, exchange, upstream, request, message, lists, refusal, self._refused, forget, change.refused_anyway
        )

    def _forget_routes(self, topics: list[Any]) -> None:
        """Forget what the view knows of the partitions, because it has just become wrong."""
        names = map(self._name, topics)
        self._upstream.view.forget(name.encode() for name in names if name is not None)

    def _refusal(self, client: Client, topic: Any) -> KafkaError | None:
        """Why a topic is refused, to a client that Kafka's ACLs allow the change. A name that the client may not see is
        in no message.
        """
        name = self._name(topic)
        if name is None:
            return _NO_SUCH_ID if ids_in([topic]) else None
        error = self._shadow.refusal(self._resolver, name, client)
        return error or self._change.refusal(self._resolver, client, name, topic)

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
