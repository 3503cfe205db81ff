"""A node starts while Kafka does not answer yet, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sidecar.node.node import Node
from tests.sim.kafka.direct import JumpLoop, SimulatedKafka

LIST_OFFSETS = 2


def test_a_node_whose_changelog_could_not_be_read_reads_it_once_when_it_can() -> None:
    """The reading of an attempt that failed does not go on beside the next one."""

    async def start() -> list[str]:
        kafka = SimulatedKafka()
        problems: list[str] = []
        node: Any = SimpleNamespace(
            upstream=kafka.node(), settings=SimpleNamespace(cluster="c"), problem="",
            hooks=SimpleNamespace(changelog_error=lambda error: None),
            _log=SimpleNamespace(warning=lambda event, **about: problems.append(event)),
            _kafka_answers=lambda *, yes: None,
        )  # fmt: skip
        kafka.refuse(LIST_OFFSETS, 6, times=10_000)
        kafka.call_later(150, lambda: [broker.refusals.clear() for broker in kafka.cluster.brokers.values()])
        changelog = await Node._open_changelog(cast(Node, node))
        assert problems == ["changelog_unreadable"] * 2
        reading = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("tail ")]
        await changelog.close()
        await kafka.close()
        return reading

    with asyncio.Runner(loop_factory=JumpLoop) as runner:
        assert runner.run(start()) == ["tail __sidecar_c-0"]
