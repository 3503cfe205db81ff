"""Leadership on real nodes: one leads, the next one follows, and nobody leads on who has lost it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from sidecar.client import (
    AdminClient,
    ExclusiveProducer,
    Leadership,
    OwnError,
    ProducerBusyError,
    ProducerFencedError,
    SidecarError,
    SidecarUnavailableError,
)
from tests.conftest import StartNode, Unique
from tests.kafka.client.conftest import Topic
from tests.kafka.client.test_owning import connections, until
from tests.nodes import NodeProcess
from tests.own import OwnClient, string
from tests.rest import Rest
from tests.services import Services

LEADER = """
import sys
from sidecar.client.sync import Leadership
with Leadership(sys.argv[1], sys.argv[2], name="process") as lead:
    print(lead.generation, flush=True)
    lead.lost()
"""


@contextmanager
def leading_process(node: NodeProcess, resource: str) -> Iterator[subprocess.Popen[str]]:
    """A program that leads, by now."""
    program = [sys.executable, "-c", LEADER, node.bootstrap, resource]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


@asynccontextmanager
async def waiting(lead: Leadership) -> AsyncIterator[asyncio.Task[None]]:
    """Its start, under way; it is closed behind the block."""
    start = asyncio.create_task(lead.start())
    yield start
    start.cancel()
    await asyncio.wait({start})
    await lead.close()


async def queue(node: NodeProcess, resource: str, *names: str) -> None:
    """Until these wait, in this order."""

    def found() -> bool:
        with OwnClient(node.bootstrap) as observer:
            return [each.name for each in observer.owners(string(resource)).waiting] == list(names)

    await until(found, f"the queue {names}")


async def test_one_leads_and_the_next_follows(node: NodeProcess, unique: Unique) -> None:
    resource = unique("scheduler")
    following = Leadership(node.bootstrap, resource, name="b", timeout=0.5, silence=1)
    async with Leadership(node.bootstrap, resource, name="a") as lead:
        assert (lead.generation, lead.is_leader) == (1, True)
        with pytest.raises(ProducerBusyError, match="a") as busy:
            await Leadership(node.bootstrap, resource, name="c", mode="exclusive").start()
        assert busy.value.code is OwnError.HELD
        start = asyncio.create_task(following.start())
        await queue(node, resource, "b")
        await asyncio.wait({start}, timeout=1)  # its timeout is no limit for that
        assert not start.done()
        await queue(node, resource, "b")
    await asyncio.wait_for(start, 10)
    assert following.is_leader
    await following.close()
    async with Leadership(node.bootstrap, resource, name="d", mode="exclusive") as last:
        assert last.generation == 1  # the wiki: free again, 1 again
        assert 0 < lead.fencing_token < following.fencing_token < last.fencing_token


async def test_who_is_deposed_hears_it_and_who_waited_is_told(node: NodeProcess, unique: Unique) -> None:
    resource = unique("scheduler")
    async with Leadership(node.bootstrap, resource, name="a", silence=100) as lead:
        start = asyncio.create_task(Leadership(node.bootstrap, resource, name="b").start())
        await queue(node, resource, "b")
        async with Leadership(node.bootstrap, resource, name="c", mode="exclusive_with_fencing") as winner:
            await asyncio.wait_for(lead.lost(), 10)
            assert isinstance(lead.error, ProducerFencedError)
            assert "c owns it now (generation 2)" in lead.error.message
            assert (lead.is_leader, winner.is_leader, winner.generation) == (False, True, 2)
            with pytest.raises(ProducerFencedError, match=r"c owns it now \(generation 2\)"):
                await asyncio.wait_for(start, 10)


async def test_the_wikis_generations(node: NodeProcess, unique: Unique) -> None:
    resource = unique("scheduler")
    async with Leadership(node.bootstrap, resource, name="a", generation=7) as first:
        assert first.generation == 1
        async with Leadership(node.bootstrap, resource, name="b", generation=7) as second:
            assert second.generation == 7
            await asyncio.wait_for(first.lost(), 10)
            with pytest.raises(ProducerBusyError) as lower:
                await Leadership(node.bootstrap, resource, name="c", generation=3).start()
            assert (lower.value.code, lower.value.retryable) == (OwnError.LOWER_GENERATION, False)
            async with Leadership(node.bootstrap, resource, name="d", generation=0) as reset:
                assert reset.generation == 1
                await asyncio.wait_for(second.lost(), 10)


async def test_a_topic_is_led_and_nobody_writes_there_meanwhile(
    node: NodeProcess, rest: Rest, new_topic: Topic
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2)
    async with Leadership(node.bootstrap, topic=topic, name="lead") as lead:
        assert lead.generation == 1
        with pytest.raises(ProducerBusyError, match="lead"):
            await ExclusiveProducer(node.bootstrap, topic=topic, name="rival", mode="exclusive").start()
    async with ExclusiveProducer(node.bootstrap, topic=topic, name="writer", mode="exclusive") as writer:
        assert writer.generation == 2  # it never falls
        async with Leadership(node.bootstrap, topic=topic, name="lead", mode="exclusive_with_fencing") as lead:
            assert lead.generation == 3
            with pytest.raises(ProducerFencedError):
                await writer.send(b"late")
            async with AdminClient(node.admin_url) as admin:
                await admin.fence(topic)
            await asyncio.wait_for(lead.lost(), 10)
            assert isinstance(lead.error, ProducerFencedError)


async def test_a_partition_and_a_groups_reading_are_claims_of_their_own(
    node: NodeProcess, rest: Rest, new_topic: Topic, unique: Unique
) -> None:
    topic = await asyncio.to_thread(new_topic, rest, 2, access_mode="exclusive", scope="partition")
    group = unique("g")
    async with (
        Leadership(node.bootstrap, topic=topic, partition=0, mode="exclusive") as first,
        Leadership(node.bootstrap, topic=topic, partition=1, mode="exclusive") as second,
        Leadership(node.bootstrap, topic=topic, partition=1, group=group, mode="exclusive") as reader,
        Leadership(node.bootstrap, topic=topic, partition=1, group=group + "2", mode="exclusive") as other,
        Leadership(node.bootstrap, "x", group=group, mode="exclusive") as name,
    ):
        assert [each.generation for each in (first, second, reader, other, name)] == [1] * 5
        with pytest.raises(ProducerBusyError):
            await Leadership(node.bootstrap, topic=topic, partition=1, group=group, mode="exclusive").start()
    with pytest.raises(SidecarError) as missing:
        await Leadership(node.bootstrap, topic=topic, partition=9).start()
    assert missing.value.code is OwnError.UNKNOWN_RESOURCE


# What dies ------------------------------------------------------------------------------------------------------------


async def test_a_process_that_is_killed_leads_no_more(node: NodeProcess, unique: Unique) -> None:
    resource = unique("scheduler")
    with leading_process(node, resource) as process:
        async with waiting(Leadership(node.bootstrap, resource, name="b")) as start:
            await queue(node, resource, "b")
            assert not start.done()
            process.kill()
            await asyncio.wait_for(start, 10)


async def test_a_node_that_is_killed_takes_the_leader_with_it(node_process: StartNode, unique: Unique) -> None:
    """The one who waited at the same node leads at another one."""
    cluster, resource = unique("c"), unique("scheduler")
    nodes = [await asyncio.to_thread(node_process, cluster=cluster, node_id=number) for number in (1, 2)]
    bootstrap = [each.bootstrap for each in nodes]
    async with Leadership(bootstrap, resource, name="a", silence=100) as lead:
        owner = lead._claim._owner
        assert owner is not None
        serving = next(each for each in nodes if each.bootstrap == f"{owner.address[0]}:{owner.address[1]}")
        async with waiting(Leadership(bootstrap, resource, name="b")) as start:
            await queue(serving, resource, "b")
            await asyncio.to_thread(serving.kill)
            await asyncio.wait_for(lead.lost(), 10)
            assert isinstance(lead.error, SidecarUnavailableError)
            await asyncio.wait_for(start, 60)
        assert not lead.is_leader


async def test_a_node_that_is_silent_is_believed_for_a_while(node_process: StartNode, unique: Unique) -> None:
    node = await asyncio.to_thread(node_process)
    async with Leadership(node.bootstrap, unique("scheduler"), name="a", silence=2) as lead:
        await asyncio.to_thread(node.pause)
        try:
            assert lead.is_leader
            await asyncio.wait_for(lead.lost(), 10)
            assert isinstance(lead.error, SidecarUnavailableError)
        finally:
            await asyncio.to_thread(node.resume)
    await until(lambda: connections(node) == 0, "the node to know that they are gone")


async def test_where_a_kafka_has_no_node_in_front_it_says_so(services: Services) -> None:
    with pytest.raises(SidecarUnavailableError, match="only a node of the sidecar answers"):
        await Leadership(services.kafka_bootstrap, "scheduler", timeout=2).start()


async def test_who_waits_can_be_cancelled_and_keeps_no_place(node: NodeProcess, unique: Unique) -> None:
    resource = unique("scheduler")
    async with Leadership(node.bootstrap, resource, name="a"):
        start = asyncio.create_task(Leadership(node.bootstrap, resource, name="b").start())
        await queue(node, resource, "b")
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await queue(node, resource)
    async with Leadership(node.bootstrap, resource, name="c", mode="exclusive") as last:
        assert last.is_leader
