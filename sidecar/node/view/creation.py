"""Topics that are created: in Kafka, then their policies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from sidecar.node import port
from sidecar.node.parts import Running
from sidecar.node.view.changes import Changes
from sidecar.node.view.serving import rooms_of
from sidecar.protocol.caller import UnknownTopicError, UpstreamError
from sidecar.protocol.calls.admin import CreateTopics
from sidecar.protocol.errors import APPEND_IN_DOUBT, ErrorCode, KafkaError, error_name

_TIMEOUT_MS: Final = 15_000
_POLL_S: Final = 0.1
_STAMPS: Final = "message.timestamp.type"
_WRONG: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)
_REFUSED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class Creation:
    """Creates topics for one node. `changes` sets their policies."""

    def __init__(self, node: Running, changes: Changes) -> None:
        self._node = node
        self._changes = changes

    async def create(self, wanted: port.NewTopic, policy: port.Policy | None, by: str = "") -> port.Topic:
        """Create a topic, then set fields of its policy; returns when clients find it and the policy is in force.
        Raises ConflictError where there is such a topic, InvalidError with Kafka's reason where Kafka refuses it: then
        nothing was done. `by`: who wants it, for the history.

        The topic comes first: of two who create it at once one gets 409, and must not change what the other one made.
        """
        stamps = self._stamps(wanted.name, policy)
        await self._ask(wanted if stamps is None else _stamped(wanted, by_brokers=stamps))
        await self._wait_for(wanted.name)
        if policy is None:
            return await self._changes.described(wanted.name)
        try:
            return await self._changes.merge_policy(wanted.name, policy, by=by)
        except port.PortError as error:
            raise type(error)(f"{wanted.name} is made, its policy is not set: {error}") from None

    def _stamps(self, name: str, policy: port.Policy | None) -> bool | None:
        """Whether brokers are to stamp records, by the policy or by one that an earlier topic of this name left."""
        if policy is not None and policy.log_append_time is not None:
            return policy.log_append_time
        left = rooms_of(self._node).governed.catalog.book.exact(name)
        return None if left is None else left.log_append_time

    async def _ask(self, wanted: port.NewTopic) -> None:
        name, upstream = wanted.name, self._node.upstream
        try:
            answers = await upstream.call(upstream.controller(), CreateTopics((wanted,), _TIMEOUT_MS))
        except (UpstreamError, KafkaError, TimeoutError) as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None
        error, message = answers[name]
        if error == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise port.ConflictError(self._existing(name))
        if error in _WRONG:
            raise port.InvalidError(f"Kafka refuses a topic {name}: {error_name(error)}: {message}")
        if error in _REFUSED:
            raise port.ConflictError(f"Kafka does not let the node create topics: {error_name(error)}: {message}")
        if error in APPEND_IN_DOUBT:
            doubt = KafkaError(error, message or "")
            raise port.UnavailableError.unsettled(doubt, f"sidecar topic show {name}")
        if error:
            raise port.UnavailableError(f"Kafka did not create {name}: {error_name(error)}: {message}")

    def _existing(self, name: str) -> str:
        source = self._node.resolver.source(name.encode())
        if source is not None:
            return f"{name} is a shadow of {source.topic.decode()} already: see `sidecar shadow show {name}`"
        return f"there is a topic {name} already: `sidecar topic set {name}` changes its policy"

    async def _wait_for(self, name: str) -> None:
        """Until every partition has a leader, as far as the node sees."""
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                while True:
                    try:
                        await self._node.upstream.whole_layout(name)
                    except (UnknownTopicError, KafkaError):
                        await asyncio.sleep(_POLL_S)
                    else:
                        return
        except (UpstreamError, TimeoutError) as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None


def _stamped(wanted: port.NewTopic, *, by_brokers: bool) -> port.NewTopic:
    """With the setting that the policy's field stands for, so that the first record has it as well."""
    kind = "LogAppendTime" if by_brokers else "CreateTime"
    said = wanted.configs.get(_STAMPS, kind)
    if said != kind:
        raise port.InvalidError(f"log_append_time means {_STAMPS}={kind}, and the settings say {said}: leave one away")
    return replace(wanted, configs={**wanted.configs, _STAMPS: kind})
