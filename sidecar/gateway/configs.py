"""DescribeConfigs (0-4), AlterConfigs (0-2), IncrementalAlterConfigs (0-1): split by the broker that must answer, and
merged (KIP-133, KIP-339; BROKER_LOGGER: KIP-412).

- A BROKER or BROKER_LOGGER resource with a name means a node. A broker of that node describes it (any broker, if the
  node has none), and the answer has the node's id and listeners, so that tools that inspect every broker work.
  Changing one is refused with 42 INVALID_REQUEST: the client cannot know which broker it would reach.
- BROKER without a name means the cluster's defaults: forwarded, as are topics, groups and client metrics. If the
  request names nothing else, the answer is forwarded unchanged: it may have megabytes.
- ListConfigResources (0-1), answered by any broker, lists nodes instead of brokers (KIP-714, KIP-1142).
- The sidecar's own topics may be described, but altering them is refused with 29 TOPIC_AUTHORIZATION_FAILED.
- A shadow that an allow list hides from the client is refused with the same error, as a topic without DESCRIBE.

Configurations may name brokers or their addresses. Clients see nodes as brokers, so a broker's id and listeners are
replaced by the node's, and other addresses are removed. Values that name brokers may not be set (`refused_configs`).
"""

import asyncio
import re
from collections.abc import Generator, Iterable
from functools import partial
from typing import Final

from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import MESSAGES, TOPIC
from sidecar.gateway.client import Client
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.messages import admin
from sidecar.protocol.metadata import MetadataRequest
from sidecar.protocol.primitives import Octets
from sidecar.protocol.schema import Message, Values

_TOPIC: Final = 2
_BROKER: Final = 4
_BROKER_LOGGER: Final = 8
_RESULTS_AT_ONCE: Final = 10
"""Results that are converted per slice; each has about 40 settings."""
_OF_ONE_BROKER: Final = frozenset({_BROKER, _BROKER_LOGGER})

_NODE_ALTERED: Final = KafkaError(
    ErrorCode.INVALID_REQUEST,
    "the configuration of one broker cannot be changed through a sidecar, whose nodes stand for brokers: change the"
    " cluster-wide default (no name), or ask Kafka directly",
)
_HIDDEN: Final = KafkaError(TOPIC, MESSAGES[TOPIC])
_NO_BROKER: Final = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker answers for this node")


class ConfigsApi:
    """Handles the three APIs for all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, nodes: NodeDirectory, resolver: NameResolver) -> None:
        self._upstream = upstream
        self._nodes = nodes
        self._resolver = resolver

    async def handle_list(self, client: Client, exchange: Exchange, request: Request) -> None:
        """ListConfigResources."""
        message, upstream = admin.LIST_CONFIG_RESOURCES, self._upstream
        answer = await asking.first_that_answers(client, upstream, None, request, harmless=True)
        values = await asking.read(message, answer, request.version)
        if request.version:  # version 0 lists client metrics only
            nodes = self._nodes.at(client.listener).nodes
            resources: list[Values] = values["config_resources"]
            kept = [
                found
                for found in resources
                if found["resource_type"] not in _OF_ONE_BROKER and not self._hides(client, found)
            ]
            kinds = dict.fromkeys(each for found in resources if (each := found["resource_type"]) in _OF_ONE_BROKER)
            kept += [{"resource_name": str(node), "resource_type": kind} for kind in kinds for node in nodes]
            values = values | {"config_resources": kept}
        await asking.answer(exchange, message, values)

    def _hides(self, client: Client, resource: Values) -> bool:
        """Whether a resource is a shadow that an allow list hides from the client: Metadata does not list it either."""
        name: bytes = resource["resource_name"].encode()
        return resource["resource_type"] == _TOPIC and self._resolver.hides(name, client.principal)

    # Describe -----------------------------------------------------------------------------------------------------

    async def handle_describe(self, client: Client, exchange: Exchange, request: Request) -> None:
        """DescribeConfigs."""
        message = admin.DESCRIBE_CONFIGS
        fields = await asking.fields(message, request)
        if not any(
            found["resource_type"] in _OF_ONE_BROKER or self._hides(client, found) for found in fields["resources"]
        ):
            await self._pass_description(client, exchange, request)
            return
        nodes = self._nodes.at(client.listener)
        anywhere: dict[tuple[int, str], Values] = {}
        named: dict[tuple[int, int], tuple[Values, NodeAddress]] = {}
        results: list[Values] = []
        for resource in fields["resources"]:
            if self._hides(client, resource):
                client.note_refusal(resource["resource_name"].encode(), _HIDDEN.code, None)
                exchange.note_error(_HIDDEN.code)
                results.append(_refused(resource, _HIDDEN))
                continue
            if resource["resource_type"] not in _OF_ONE_BROKER or not resource["resource_name"]:
                anywhere[resource["resource_type"], resource["resource_name"]] = resource  # named twice: requested once
                continue
            name: str = resource["resource_name"]
            node = nodes.nodes.get(int(name)) if name.isascii() and name.isdigit() else None
            if node is None:
                exchange.note_error(ErrorCode.INVALID_REQUEST)
                known = ", ".join(map(str, nodes.nodes))
                unknown = f"there is no broker {name} here, only {known}"
                results.append(_refused(resource, KafkaError(ErrorCode.INVALID_REQUEST, unknown)))
            else:
                named[resource["resource_type"], node.id] = resource, node  # each needs a request to a broker
        asked = [self._describe_node(client, request, fields, *found) for found in named.values()]
        if anywhere or not (named or results):
            asked.append(self._describe_anywhere(client, request, fields | {"resources": [*anywhere.values()]}))
        for answer in await asyncio.gather(*asked):
            results += answer
        await asking.answer(exchange, message, {"results": results})

    async def _pass_description(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Describe resources of no broker: the answer is forwarded unchanged, unless it lists replicas by broker."""
        message, upstream = admin.DESCRIBE_CONFIGS, self._upstream
        answer = await asking.first_that_answers(client, upstream, None, request, harmless=True)
        whole = answer.view(answer.start, answer.end)
        if not lists_replicas(whole, flexible=request.version >= message.flexible):
            exchange.answer([whole])
            return
        values = await asking.read(message, answer, request.version)
        await in_slices(self._show(values["results"], client.listener))
        await asking.answer(exchange, message, values)

    async def _describe_anywhere(self, client: Client, request: Request, fields: Values) -> list[Values]:
        answer = await asking.anywhere(client, self._upstream, request, admin.DESCRIBE_CONFIGS, fields)
        results: list[Values] = answer["results"]
        await in_slices(self._show(results, client.listener))
        return results

    def _show(self, results: list[Values], listener: str) -> Generator[None, None, None]:
        """Replace the broker that described itself by this node, in slices."""
        me = self._nodes.me.at(listener, self._nodes.first_listener) or self._nodes.me
        for number, result in enumerate(results, 1):
            for config in result["configs"]:
                show_as(me, config, listener)
            if not number % _RESULTS_AT_ONCE:
                yield

    async def _describe_node(
        self, client: Client, request: Request, fields: Values, named: Values, node: NodeAddress
    ) -> list[Values]:
        for _ in range(2):
            brokers = await self._upstream.brokers()
            mine = self._nodes.at(client.listener).brokers_of(node.id, brokers) or sorted(brokers)
            for broker_id in mine:
                values = fields | {"resources": [named | {"resource_name": str(broker_id)}]}
                try:
                    answer = await asking.one(client, broker_id, request, admin.DESCRIBE_CONFIGS, values)
                except DisconnectedError:
                    if client.connection.closed:
                        raise
                    continue
                for result in answer["results"]:
                    for config in result["configs"]:
                        show_as(node, config, client.listener)
                    result["resource_name"] = named["resource_name"]
                    if result["error_code"]:  # a broker's message for success is empty, not null
                        result["error_message"] = "the broker behind this node refused"
                return answer["results"]
            await self._upstream.metadata(MetadataRequest(()))
        return [_refused(named, _NO_BROKER)]

    # Alter --------------------------------------------------------------------------------------------------------

    async def alter(
        self, message: Message, shadow: ShadowRule, client: Client, exchange: Exchange, request: Request
    ) -> None:
        """AlterConfigs and IncrementalAlterConfigs."""
        lists, refusal = ("resources", "responses"), partial(self._alteration_refused, shadow, client)
        await asking.change(client, exchange, self._upstream, request, message, lists, refusal, _refused)

    def _alteration_refused(self, shadow: ShadowRule, client: Client, resource: Values) -> KafkaError | None:
        name: str = resource["resource_name"]
        if resource["resource_type"] in _OF_ONE_BROKER and name:
            return _NODE_ALTERED
        if resource["resource_type"] == _TOPIC:
            return shadow.refusal(self._resolver, name, client) or refused_configs(resource["configs"])
        return None


def _refused(resource: Values, error: KafkaError) -> Values:
    named = {field: resource[field] for field in ("resource_type", "resource_name")}
    return named | {"error_code": error.code, "error_message": error.message}


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
