"""Configurations that name brokers or their addresses: the values that clients see instead, and those they may not set.

Clients see nodes as brokers, so a broker's own id and listeners are shown as the node's, other addresses not at all.
Pure.
"""

import re
from collections.abc import Iterable
from typing import Final

from sidecar.cluster.nodes import NodeAddress
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.primitives import Octets
from sidecar.protocol.schema import Values

_IDS: Final = frozenset({"node.id", "broker.id"})
_LISTENERS: Final = frozenset({"listeners", "advertised.listeners"})
_HIDDEN: Final = frozenset(
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
    """Whether a described topic may list replicas by broker, found without decoding: after the name stands a value.

    Answers about a thousand topics have megabytes, which to decode would keep the node from everything else.
    """
    return (_LISTED_FLEXIBLE if flexible else _LISTED_BEFORE_FLEXIBLE).search(answer) is not None


def show_as(node: NodeAddress, config: Values, listener: str = "") -> None:
    """Put the node in the place of the broker in one described configuration, and in its synonyms.

    Clients of a listener see that one alone: what others are called and where they are is not theirs to know.
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
    if name in _HIDDEN or name.endswith("bootstrap.servers") or names_brokers(name, value):
        return None
    return value
