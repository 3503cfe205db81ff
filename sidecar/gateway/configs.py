"""Configurations of topics and brokers, as clients see them (KIP-133, KIP-339; BROKER_LOGGER: KIP-412).

Configurations may name brokers or their addresses. Clients see nodes as brokers, so a broker's id and listeners are
replaced by the node's, and other addresses are removed. Values that name brokers may not be set (`refused_configs`).

A BROKER or BROKER_LOGGER resource with a name means a node. Changing one is refused with 42 INVALID_REQUEST: the client
cannot know which broker it would reach. BROKER without a name means the cluster's defaults: forwarded, as are topics,
groups and client metrics. The sidecar's own topics may be described, but altering them is refused with 29
TOPIC_AUTHORIZATION_FAILED.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sidecar.cluster.nodes import NodeAddress
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.network.request import Exchange, Request
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.primitives import Octets
from sidecar.protocol.schema import Message, Values

_TOPIC: Final = 2
_BROKER: Final = 4
_BROKER_LOGGER: Final = 8
OF_ONE_BROKER: Final = frozenset({_BROKER, _BROKER_LOGGER})
"""The types of resources that mean a node, if they have a name."""

_NODE_ALTERED: Final = KafkaError(
    ErrorCode.INVALID_REQUEST,
    "the configuration of one broker cannot be changed through a sidecar, whose nodes stand for brokers: change the"
    " cluster-wide default (no name), or ask Kafka directly",
)


@dataclass(frozen=True, slots=True)
class AlteringApi:
    """Handles AlterConfigs or IncrementalAlterConfigs, for all clients of a node: to the controller, without what is
    refused here.
    """

    _upstream: KafkaUpstream
    _resolver: NameResolver
    _message: Message
    _shadow: ShadowRule

    async def handle(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Handle one request."""
        lists, refusal = ("resources", "responses"), partial(self._refusal, client)
        await asking.change(client, exchange, self._upstream, request, self._message, lists, refusal, refused)

    def _refusal(self, client: Client, resource: Values) -> KafkaError | None:
        name: str = resource["resource_name"]
        if resource["resource_type"] in OF_ONE_BROKER and name:
            return _NODE_ALTERED
        if resource["resource_type"] == _TOPIC:
            return self._shadow.refusal(self._resolver, name, client) or refused_configs(resource["configs"])
        return None


def refused(resource: Values, error: KafkaError) -> Values:
    """The answer for a resource that is refused."""
    named = {field: resource[field] for field in ("resource_type", "resource_name")}
    return named | {"error_code": error.code, "error_message": error.message}


def hides(resolver: NameResolver, client: Client, resource: Values) -> bool:
    """Whether a resource is a shadow that an allow list hides from the client: Metadata does not list it either."""
    name: bytes = resource["resource_name"].encode()
    return resource["resource_type"] == _TOPIC and resolver.hides(name, client.principal)


# What names brokers --------------------------------------------------------------------------------------------------

_IDS: Final = frozenset({"node.id", "broker.id"})
_LISTENERS: Final = frozenset({"listeners", "advertised.listeners"})
_HIDDEN_ONES: Final = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "host.name",
        "port",
        "zookeeper.connect",
    }
)
_REPLICA_LISTS: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
_REPLICAS_LISTED: Final = KafkaError(
    ErrorCode.INVALID_CONFIG,
    "replicas cannot be listed by broker: clients of a sidecar see its nodes, not the brokers; set * or nothing",
)
_ALL_REPLICAS: Final = frozenset({"", "*", None})
_LISTED: Final = rb"(?:leader|follower)\.replication\.throttled\.replicas"
_LISTED_BEFORE_FLEXIBLE: Final = re.compile(_LISTED + rb"(?!\x00\x00|\xff\xff|\x00\x01\*)", re.DOTALL)
_LISTED_FLEXIBLE: Final = re.compile(_LISTED + rb"(?!\x00|\x01|\x02\*)", re.DOTALL)


def names_brokers(config: str, value: str | None) -> bool:
    """Whether setting this topic configuration would name brokers (pairs partition:broker)."""
    return config in _REPLICA_LISTS and value not in _ALL_REPLICAS


def refused_configs(configs: Iterable[Values]) -> KafkaError | None:
    """Why these configurations of a topic cannot be set."""
    return _REPLICAS_LISTED if any(names_brokers(each["name"], each["value"]) for each in configs) else None


def lists_replicas(answer: Octets, *, flexible: bool) -> bool:
    """Whether a described topic may list replicas by broker; found without decoding, by a name with a value after it.

    Answers about a thousand topics have megabytes: decoding them would block the node.
    """
    return (_LISTED_FLEXIBLE if flexible else _LISTED_BEFORE_FLEXIBLE).search(answer) is not None


def show_as(node: NodeAddress, config: Values, listener: str = "") -> None:
    """Replace the broker by the node in one described configuration, and in its synonyms.

    Clients see only their own listener: names and addresses of other listeners are not shown.
    """
    config["value"] = _shown(config["name"], config["value"], node, listener)
    for synonym in config.get("synonyms", ()):
        synonym["value"] = _shown(synonym["name"], synonym["value"], node, listener)


def _shown(name: str, value: str | None, node: NodeAddress, listener: str) -> str | None:
    if value is None:
        return None
    if name in _IDS:
        return str(node.id)
    if name in _LISTENERS:
        return f"{listener or 'PLAINTEXT'}://{node.host}:{node.port}"
    if name in _HIDDEN_ONES or name.endswith("bootstrap.servers") or names_brokers(name, value):
        return None
    return value
