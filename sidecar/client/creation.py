"""Creates the topic of a producer if it is missing, by Kafka's CreateTopics through a node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sidecar.client._requests import describe_owners
from sidecar.client.access import NodeAccess
from sidecar.client.connection import connect, first
from sidecar.client.errors import SidecarUnavailableError, of_kafka
from sidecar.protocol.calls import admin as calls
from sidecar.protocol.errors import ErrorCode, error_name

_AGAIN_S: Final = 0.2
_SHORT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """How a producer creates a missing topic: `ExclusiveProducer(…, create=NewTopic(partitions=6))`. The brokers'
    defaults apply to fields that are None and to settings that `configs` does not name.

    Raises ValueError for a number below 1, TypeError for a value of `configs` that is not a `str`.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for name, count in (("partitions", self.partitions), ("replication_factor", self.replication_factor)):
            if count is not None and count < 1:
                raise ValueError(f"{name} is {count}: 1 or more, or None for the brokers' default")
        if wrong := [name for name, value in self.configs.items() if type(value) is not str]:
            raise TypeError(f'configs: the value of {wrong[0]} is no text, such as "604800000"')


async def create_missing(
    addresses: tuple[tuple[str, int], ...], access: NodeAccess, name: str, topic: str, wanted: NewTopic, timeout: float
) -> None:
    """Create the topic if it is missing, and return once nodes know a leader of it. `name` is the producer's name.

    Raises `SidecarUnavailableError` if that takes longer than `timeout` seconds, `SidecarError` with Kafka's code if
    Kafka refuses the topic.
    """

    async def ask(address: tuple[str, int]) -> bool:
        connection = await connect(address, name, min(_SHORT_S, timeout), access)
        try:
            found = (await connection.call(calls.DescribeTopics((topic,)), _SHORT_S)).topic(topic)
            if found.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return found.error != ErrorCode.LEADER_NOT_AVAILABLE  # the claim reports all other errors
            await connection.call(describe_owners(topic), _SHORT_S)  # a Kafka broker closes the connection
            new = calls.NewTopic(topic, wanted.partitions, wanted.replication_factor, wanted.configs)
            request = calls.CreateTopics((new,), int(timeout * 1000))
            outcome = (await connection.call(request, timeout))[topic]
        finally:
            await connection.close()
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            reason = f"{error_name(outcome.error)}: {outcome.message}"
            raise of_kafka(outcome.error, f"topic {topic} is missing and cannot be made: {reason}")
        return False

    now = asyncio.get_running_loop().time
    until = now() + timeout
    while True:
        try:
            if await first(addresses, ask):
                return
            error = of_kafka(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} was made and has no leader yet")
        except SidecarUnavailableError as away:
            error = away
        if now() > until:
            raise error
        await asyncio.sleep(_AGAIN_S)
