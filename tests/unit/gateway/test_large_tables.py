"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords with many partitions: work is counted, not timed."""

from __future__ import annotations

from collections import Counter
from struct import Struct
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.view import ClusterView
from sidecar.gateway.access.asked import PerTopic
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.tables import TablesApi
from sidecar.network.client import ClientConnection
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.tasks import Tasks
from sidecar.protocol import partitioned
from sidecar.protocol.limits import PORTION, SLICE
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.protocol.primitives import I32, Octets, at_once
from sidecar.security.acls import Operation
from tests.wait import wait_for_async

I64 = Struct(">q")
LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 2, 21, 23


class CountingView(ClusterView):
    """Counts how often a leader is looked up."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.lookups = 0
        found = tuple(PartitionState(index, 0, index % 2, 1) for index in range(partitions))
        topic = TopicState("t", 0, UUID(int=1), False, found)
        self.apply(ClusterState(0, (Broker(0, "a", 1), Broker(1, "b", 2)), "c", 0, (topic,)))

    def leader(self, topic: bytes, partition: int) -> int:
        self.lookups += 1
        return super().leader(topic, partition)


class Paper:
    """A client with two brokers that take requests and answer when they are told to."""

    def __init__(self, partitions: int, *, deletes: bool = False) -> None:
        self.view = CountingView(partitions)
        self.errors = Counter[int]()
        self.sent: list[tuple[bytes, Any]] = []
        self.connection = ClientConnection(cast(Any, self), 1, 1 << 27)
        self.answers: list[bytes] = []
        self.user = None
        identity = SimpleNamespace(name="c", has_settings=False)
        self.client = cast(
            Any,
            SimpleNamespace(
                connection=self.connection, identity=identity, links=self, principal="User:ANONYMOUS", rights=None
            ),
        )
        upstream = SimpleNamespace(view=self.view, refresh_soon=lambda _: None)
        access, purging = PerTopic(Operation.DESCRIBE), cast(Any, self if deletes else None)
        self.api = TablesApi(cast(Any, upstream), NameResolver(), Tasks(self._failed), access, ShadowRule.READ, purging)

    def _failed(self, error: BaseException) -> None:
        raise error

    async def prepare(self, *_: object) -> dict[Any, Any]:
        """No topic has sequence ids."""
        return {}

    def to(self, _broker: int, **_: object) -> Paper:
        return self

    def send_parts(self, parts: list[Octets], reply: Any) -> None:
        self.sent.append((b"".join(parts), reply))

    def error_answered(self, _exchange: Any, code: int) -> None:
        self.errors[code] += 1

    def exchange_done(self, exchange: Any, _size: int) -> None:
        self.answers.append(b"")

    def handle(self, key: int, version: int, body: bytes) -> None:
        data = bytearray(bytes(4) + key.to_bytes(2, "big") + version.to_bytes(2, "big") + I32.pack(1) + b"\0\1c" + body)
        I32.pack_into(data, 0, len(data) - 4)
        self.api.handle(self.client, Request(key, version, 1, b"c", Frame(data, 0, len(data), True), 15))


def list_offsets(partitions: int) -> bytes:
    elements = b"".join(I32.pack(index) + I64.pack(-1) for index in range(partitions))
    return I32.pack(-1) + I32.pack(1) + b"\0\1t" + I32.pack(partitions) + elements


async def lookups(partitions: int) -> int:
    """How often leaders are looked up for a request that is split over two brokers."""
    paper = Paper(partitions)
    paper.handle(LIST_OFFSETS, 1, list_offsets(partitions))

    async def has_left() -> bool:
        return len(paper.sent) == 2

    await wait_for_async(has_left, "both requests", 20)
    layout = partitioned.layout_of(2, 1)
    for message, reply in paper.sent:
        table = partitioned.walk(message, 15, len(message), layout)
        results = [partitioned.TableResult(b"t", part.partition, 0, bytes(22)) for part in table.parts]
        results = [each._replace(element=I32.pack(each.partition) + bytes(18)) for each in results]
        answer = bytearray(at_once(partitioned.encode_steps(1, layout, results)))
        reply.answer_received(Frame(answer, 0, len(answer), True))

    async def is_answered() -> bool:
        return bool(paper.answers)

    await wait_for_async(is_answered, "the answer", 20)
    return paper.view.lookups


async def test_the_work_for_a_partition_does_not_grow_with_the_request() -> None:
    few, many = 2 * SLICE, 8 * SLICE
    assert await lookups(many) / many == pytest.approx(await lookups(few) / few, rel=0.01)


async def test_settling_looks_at_the_whole_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer made a set of all partitions anew."""
    sizes: list[int] = []

    def counted(found: Any = ()) -> set[Any]:
        made = set(found)
        sizes.append(len(made))
        return made

    monkeypatch.setattr("sidecar.gateway.tables.set", counted, raising=False)
    await lookups(4 * SLICE)
    assert sum(size == 4 * SLICE for size in sizes) == 1


async def test_a_partition_that_is_named_again_is_asked_once() -> None:
    paper = Paper(2)
    elements = b"".join(I32.pack(index % 2) + I32.pack(1) + I32.pack(0) for index in range(20))
    paper.handle(OFFSET_FOR_LEADER_EPOCH, 2, I32.pack(1) + b"\0\1t" + I32.pack(20) + elements)
    assert len(paper.sent) == 2
    layout = partitioned.layout_of(23, 2)
    for message, _ in paper.sent:
        assert len(partitioned.walk(message, 15, len(message), layout).parts) == 1


async def test_a_partition_that_is_named_thousands_of_times_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that it was refused once more began another answer to the whole request: as many at work, each with
    its own copy.
    """
    times = 2 * PORTION
    begun: list[None] = []

    def counted(*arguments: Any) -> Any:
        begun.append(None)
        return partitioned.encode_steps(*arguments)

    monkeypatch.setattr(
        "sidecar.gateway.tables.partitioned", SimpleNamespace(**vars(partitioned) | {"encode_steps": counted})
    )
    paper = Paper(2)
    again = b"".join(I32.pack(index % 2) + I64.pack(-1) for index in range(times))
    paper.handle(LIST_OFFSETS, 1, I32.pack(-1) + I32.pack(1) + b"\0\1t" + I32.pack(times) + again)

    async def is_answered() -> bool:
        return bool(paper.answers)

    await wait_for_async(is_answered, "the answer", 20)
    assert (len(paper.answers), len(begun), paper.sent) == (1, 1, [])


async def test_a_request_that_deletes_nothing_is_answered() -> None:
    paper = Paper(2, deletes=True)
    paper.handle(DELETE_RECORDS, 0, I32.pack(0) + I32.pack(1000))

    async def is_answered() -> bool:
        return bool(paper.answers)

    await wait_for_async(is_answered, "the answer", 5)
    assert paper.sent == []
