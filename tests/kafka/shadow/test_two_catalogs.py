"""Shadows made by two nodes in one moment: one of them makes it, and what it made stays a shadow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from sidecar.changelog import Changelog
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.fencing.record_writer import RecordWriter
from sidecar.protocol.caller import Request
from sidecar.protocol.calls.admin import CreateTopics, DeleteTopic
from sidecar.shadow.catalog import BadShadowError, NameTakenError, Shadow, ShadowCatalog
from sidecar.shadow.records import SHADOW_SLOT, ShadowRecords
from tests.conftest import Unique
from tests.kafka.shadow.test_records import Alone
from tests.kafka_calls import KafkaCalls, kafka_calls
from tests.services import Services
from tests.topics import create_topic

_TIMES = 15


class Node:
    """A node's catalog, and what it is made of."""

    def __init__(self, kafka: KafkaCalls, cluster: str, log: Changelog, number: int) -> None:
        self.log = log
        self.upstream = kafka.upstream
        writer = RecordWriter(kafka.upstream, cluster, log, SHADOW_SLOT)
        self.records = ShadowRecords(log, writer, NodeDirectory(NodeAddress(number, "127.0.0.1", number)), Alone())
        self.catalog = ShadowCatalog(kafka.upstream, log, NameResolver(), self.records)
        self.catalog.start()


@pytest.fixture
async def nodes(services: Services, unique: Unique) -> AsyncIterator[list[Node]]:
    cluster = unique("c")
    async with kafka_calls(services.kafka_bootstrap) as one, kafka_calls(services.kafka_bootstrap) as other:
        logs = [await Changelog.open(kafka.upstream, cluster) for kafka in (one, other)]
        yield [
            Node(kafka, cluster, log, number)
            for number, (kafka, log) in enumerate(zip((one, other), logs, strict=True), start=1)
        ]
        for log in logs:
            await log.close()


async def test_one_of_two_makes_it(nodes: list[Node], services: Services, unique: Unique) -> None:
    """Nobody takes the record of a shadow whose maker was told that it is there: its topic would take writes."""
    sources = [create_topic(services.kafka_bootstrap, 1) for _ in nodes]
    for _ in range(_TIMES):
        name = unique("audit")
        making = (node.catalog.create(source, name) for node, source in zip(nodes, sources, strict=True))
        outcomes = await asyncio.gather(*making, return_exceptions=True)
        (made,) = (found for found in outcomes if isinstance(found, Shadow))
        assert [type(found) for found in outcomes if found is not made] == [NameTakenError]
        for node in nodes:
            await node.log.tailer.read_to_end(10)
            (known,) = (found for found in node.catalog.all() if found.name == name)
            assert known == made


async def test_what_becomes_a_shadow_meanwhile_is_no_source(
    nodes: list[Node], services: Services, unique: Unique
) -> None:
    source, first, second = create_topic(services.kafka_bootstrap, 1), unique("first"), unique("second")
    catalog = nodes[0].catalog
    outcomes = await asyncio.gather(
        catalog.create(source, first), catalog.create(first, second), return_exceptions=True
    )
    assert isinstance(outcomes[0], Shadow)
    assert isinstance(outcomes[1], BadShadowError)


async def test_a_slow_deletion_takes_no_other_topic_of_the_name(
    nodes: list[Node], services: Services, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one node is about to delete the shadow's topic another one has done so, and somebody has made a topic of
    that name.
    """
    fast, slow = nodes
    source, name = create_topic(services.kafka_bootstrap, 1), unique("audit")
    await fast.catalog.create(source, name)
    await slow.log.tailer.read_to_end(10)
    call = slow.upstream.call

    async def too_late(broker: int | None, request: Request[Any], **options: Any) -> Any:
        if isinstance(request, DeleteTopic):
            await fast.catalog.delete(name)
            async with kafka_calls(services.kafka_bootstrap) as somebody:
                await somebody.create(name)
        return await call(broker, request, **options)

    monkeypatch.setattr(slow.upstream, "call", too_late)
    await slow.catalog.delete(name)
    assert (await fast.upstream.layout(name, refresh=True)).leaders, "somebody's topic is there"


async def test_what_kafka_refuses_for_good_is_told_in_its_words_and_nothing_stays(
    nodes: list[Node], services: Services, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, source, name = nodes[0], create_topic(services.kafka_bootstrap, 1), unique("audit")
    call = node.upstream.call

    async def with_too_many_replicas(broker: int | None, request: Request[Any], **options: Any) -> Any:
        if isinstance(request, CreateTopics):
            request = replace(request, topics=tuple(replace(each, replication_factor=100) for each in request.topics))
        return await call(broker, request, **options)

    monkeypatch.setattr(node.upstream, "call", with_too_many_replicas)
    with pytest.raises(BadShadowError, match=r"INVALID_REPLICATION_FACTOR: .*100"):
        await node.catalog.create(source, name)
    assert node.catalog.all() == []
