"""What one node has acknowledged any other node knows from then on: it is asked while it is held back, and answers with
all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from sidecar.exclusive.serving import ServingRights
from sidecar.protocol.caller import DisconnectedError
from sidecar.v1 import control_pb2 as control
from tests.conftest import Unique
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.operation.two_nodes import HeldTailer, RunningNode, running
from tests.own import OwnClient, topic
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for_async


class Pair:
    """`serving` acknowledges what `other` has not heard of."""

    def __init__(self, serving: RunningNode, other: RunningNode, kafka: str, prefix: str, clients: ExitStack) -> None:
        self.serving = serving
        self.other = other
        self._kafka = kafka
        self._prefix = prefix
        self._clients = clients
        self._count = 0

    async def acknowledged(self) -> tuple[str, HeldTailer]:
        """A topic whose owner billing was just told that its id 7 is in the log, by `serving`."""
        self._count += 1
        name = await asyncio.to_thread(create_topic, self._kafka, 1, f"{self._prefix}{self._count}")
        held = self.other.hold()
        owner = self._clients.enter_context(await asyncio.to_thread(IdProducer, self.serving.bootstrap, "billing"))
        assert (await asyncio.to_thread(owner.write, name, 7)).error == 0
        return name, held


@pytest.fixture
async def pair(services: Services, unique: Unique) -> AsyncIterator[Pair]:
    cluster, prefix = unique("two"), f"{unique('orders')}-"
    policy = {"access_mode": "exclusive", "deduplication": True}
    with ExitStack() as clients:
        async with running(services, cluster, 1) as serving:
            assert (await serving.call("PUT", f"/v1/topics/{prefix}*/policy", policy))[0] == 200
            async with running(services, cluster, 2) as other:
                await serving.rooms.membership.beat_now()  # it has heard nothing of the other one yet
                yield Pair(serving, other, services.kafka_bootstrap, prefix, clients)


async def test_an_application_reads_at_any_node_what_one_has_acknowledged(pair: Pair) -> None:
    other = pair.other
    name, held = await pair.acknowledged()
    status, told = await held.meets(other.call("GET", f"/v1/topics/{name}"))
    assert (status, told["serving_node"], told["generation"], told["owner"]["name"]) == (200, 1, 1, "billing")
    (producer,) = told["producers"]
    assert (producer["name"], producer["last_sequence_id"]) == ("billing", 7)

    name, held = await pair.acknowledged()
    status, told = await held.meets(other.call("GET", f"/v1/topics?contains={name}"))
    (found,) = told["items"]
    assert (found["generation"], found["owner"]["name"], found["serving_node"]) == (1, "billing", 1)

    name, held = await pair.acknowledged()
    status, told = await held.meets(other.call("GET", f"/v1/topics/{name}/dedup/billing"))
    assert (status, told["last_sequence_id"]) == (200, 7)

    with await asyncio.to_thread(OwnClient, other.bootstrap) as own:
        name, held = await pair.acknowledged()
        described = await held.meets(asyncio.to_thread(own.owner, topic(name)))
        assert (described.owner_name, described.generation, described.serving_node) == ("billing", 1, 1)

        name, held = await pair.acknowledged()
        last = await held.meets(asyncio.to_thread(own.last_sequence, name, "billing"))
        assert last.error == control.NOT_SERVING
        assert last.message.startswith("node 1 serves ")


@pytest.mark.parametrize(("act", "has_read"), [("fence", True), ("release", False)])
async def test_an_operator_ends_an_ownership_at_any_node(pair: Pair, act: str, has_read: bool) -> None:
    """`has_read`: it knows the owner from the ownership topic, and no heartbeat has said which node serves him."""
    name, held = await pair.acknowledged()
    if has_read:
        held.go_on()
        await pair.other.rooms.changelog.tailer.read_to_end(20.0)
        assert name.encode() not in pair.other.node.nodes.serving
    status, told = await held.meets(pair.other.call("POST", f"/v1/topics/{name}/{act}"))
    assert (status, told["owner"]) == (200, None), told
    status, told = await pair.serving.call("GET", f"/v1/topics/{name}")
    assert (status, told["owner"]) == (200, None)


async def test_an_operators_word_waits_while_the_topic_moves(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither node serves it for a moment, and each names the other one."""
    name, held = await pair.acknowledged()
    held.go_on()
    serving, moves = pair.serving, asyncio.Event()
    governed = serving.rooms.governed.topic(name)
    hand_back = governed.hand_back

    async def slow() -> None:
        await moves.wait()
        await hand_back()

    monkeypatch.setattr(governed, "hand_back", slow)
    rights: ServingRights = serving.rooms.governed.env.rights
    rights.moving.add(name)
    governed.serving = False
    moving = asyncio.ensure_future(rights.hand_over(name, 2, governed.hand_back))
    asked = 0
    check = serving.rooms.catching_up.now

    async def counted() -> None:
        nonlocal asked
        asked += 1
        await check()

    monkeypatch.setattr(serving.rooms.catching_up, "now", counted)
    fencing = asyncio.ensure_future(pair.other.call("POST", f"/v1/topics/{name}/fence"))

    async def refused_twice() -> bool:
        return asked > 1 or fencing.done()

    await wait_for_async(refused_twice, "the node that lets go of it to be asked again")
    assert not fencing.done()
    moves.set()
    await moving
    status, told = await fencing
    assert (status, told.get("owner"), told.get("serving_node")) == (200, None, 2), told


async def test_while_kafka_cannot_be_asked_an_operator_is_told_what_is_known_and_changes_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, held = await pair.acknowledged()
    held.go_on()
    serving = pair.serving

    async def away(*_: object) -> None:
        raise DisconnectedError("broker 1 is away", sent=False)

    async def unread(timeout: float) -> None:
        raise TimeoutError

    monkeypatch.setattr(serving.node.upstream, "metadata", away)
    monkeypatch.setattr(serving.rooms.changelog.tailer, "read_to_end", unread)
    status, told = await serving.call("GET", f"/v1/topics/{name}")
    assert (status, told.get("owner", {}).get("name"), told.get("partitions")) == (200, "billing", 1), told
    for method, path in (("POST", "fence"), ("POST", "release"), ("DELETE", "policy")):
        assert (await serving.call(method, f"/v1/topics/{name}/{path}"))[0] == 503
