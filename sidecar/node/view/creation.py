"""Topics that are created: in Kafka, and governed from their first record on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sidecar.node import port
from sidecar.protocol.caller import UnknownTopicError, UpstreamError
from sidecar.protocol.calls import CreateTopics, NewTopic
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name

if TYPE_CHECKING:
    from sidecar.node.parts import Running
    from sidecar.node.view.changes import Changes

_TIMEOUT_MS: Final = 15_000
_POLL_S: Final = 0.1
_DEFAULT: Final = -1
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

    async def create(self, wanted: port.NewTopic, policy: port.Policy | None) -> port.Topic:
        """As `NodePort.create_topic`. The policy comes first, so that no client is faster than it; Kafka is asked
        before whether it will create the topic, so that no policy stays behind that nobody needs.
        """
        await self._ask(wanted, validate_only=True)
        if policy is not None:  # the stamps of records are a setting of the topic, which is not there yet
            await self._changes.merge_policy(wanted.name, replace(policy, log_append_time=None))
        await self._ask(wanted)
        await self._wait_for(wanted.name)
        if policy is not None and policy.log_append_time is not None:
            return await self._changes.merge_policy(wanted.name, policy)
        return await self._changes.described(wanted.name)

    async def _ask(self, wanted: port.NewTopic, *, validate_only: bool = False) -> None:
        name, upstream = wanted.name, self._node.upstream
        topic = NewTopic(name, wanted.partitions or _DEFAULT, wanted.replication_factor or _DEFAULT, wanted.configs)
        request = CreateTopics((topic,), _TIMEOUT_MS, validate_only)
        try:
            answers = await upstream.call(upstream.controller(), request)
        except (UpstreamError, KafkaError, TimeoutError) as error:
            if validate_only:
                raise port.UnavailableError(f"Kafka does not answer, nothing was done: {error}") from None
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None
        error, message = answers[name]
        if error == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise port.ConflictError(f"there is a topic {name} already")
        if error in _WRONG:
            raise port.InvalidError(f"Kafka refuses a topic {name}: {error_name(error)}: {message}")
        if error in _REFUSED:
            raise port.ConflictError(f"Kafka does not let the node create topics: {error_name(error)}: {message}")
        if error:
            raise port.UnavailableError(f"Kafka did not create {name}: {error_name(error)}: {message}")

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
