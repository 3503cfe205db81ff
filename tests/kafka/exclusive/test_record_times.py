"""What a client says of its records' times, and what leaders make of it: the fence lives by the second."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup import content
from sidecar.exclusive.keeper import Keeper
from sidecar.fencing.expiry import KeepAlive, read_keep_alives
from sidecar.protocol import limits
from sidecar.protocol.calls.transactions import ActiveProducer, DescribeProducers
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.writing import upkeep
from tests.kafka.exclusive.conftest import governed_in
from tests.kafka.exclusive.room import Room, until
from tests.logs import read_log
from tests.services import Services

if TYPE_CHECKING:
    from sidecar.protocol.primitives import Octets

OK, INVALID_TIMESTAMP = 0, 32
PLAIN, GZIP, SNAPPY, LZ4 = range(4)
NO_TIME_MS = -1
LOG_APPEND_TIME = 0x08
HOUR_MS = 3600 * 1000


def ago(milliseconds: int) -> int:
    return int(time.time() * 1000) - milliseconds


@pytest.fixture
async def topic(services: Services, room: Room) -> str:
    """Its settings are known."""
    name = await governed_in(room, services, 1)
    room.topic(name).upkeep.read((await read_keep_alives(room.governed.env.services.upstream, [name]))[name])
    return name


async def remembered(room: Room, topic: str) -> ActiveProducer:
    """What the leader remembers of the owner."""
    upstream = room.governed.env.services.upstream
    leader = (await upstream.layout(topic)).leaders[0]
    answer = (await upstream.call(leader, DescribeProducers({topic: (0,)})))[TopicPartition(topic, 0)]
    (found,) = answer.producers
    return found


@pytest.mark.parametrize("timestamp_ms", [ago(30 * HOUR_MS), NO_TIME_MS], ids=["30 hours old", "without a time"])
async def test_old_records_are_refused_whatever_the_header_says_of_them(
    room: Room, topic: str, services: Services, timestamp_ms: int
) -> None:
    owner = room.connect("owner")
    assert await owner.send(topic, b"0") == OK
    for sequence in (1, 1):  # by way of the whole request, and by that of one batch
        assert (
            await owner.send(topic, b"old", sequence=sequence, timestamp_ms=timestamp_ms, claimed_ms=ago(0))
            == INVALID_TIMESTAMP
        )
    assert abs((await remembered(room, topic)).last_timestamp_ms - ago(0)) < HOUR_MS
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0"]


@pytest.mark.parametrize("codec", [GZIP, LZ4])
async def test_compressed_records_that_were_older_than_their_header_said_get_a_new_fence_and_are_opened_from_then_on(
    room: Room, topic: str, services: Services, codec: int
) -> None:
    owner, governed, old = room.connect("owner"), room.governed, ago(30 * HOUR_MS)
    failures: list[BaseException] = []
    upstream = governed.env.services.upstream
    assert isinstance(upstream, KafkaUpstream)

    keeper = Keeper(upstream, governed.env.tasks, governed, lambda name, error: failures.append(error))
    found = room.topic(topic)
    await until(lambda: owner.send(topic, b"0", sequence=0))
    await keeper.look([found])
    assert not found.upkeep.is_due(found.upkeep.now()), "nothing is wrong with honest ones"
    assert await owner.send(topic, b"1", sequence=1, timestamp_ms=old, claimed_ms=ago(0), codec=codec) == OK
    assert found.upkeep.wants_look
    await keeper.look([found])
    assert found.upkeep.is_due(found.upkeep.now())
    assert [type(error) for error in failures] == [KafkaError]
    await found.keep_alive()
    assert ago((await remembered(room, topic)).last_timestamp_ms) < HOUR_MS
    assert await owner.send(topic, b"x", sequence=2, timestamp_ms=old, claimed_ms=ago(0), codec=codec) == (
        INVALID_TIMESTAMP
    )
    assert await owner.send(topic, b"2", sequence=2, codec=codec) == OK
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0", b"1", b"2"]


async def test_a_large_batch_whose_header_says_old_is_looked_into_by_a_thread(
    room: Room, topic: str, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five megabytes with such a header held the event loop for four seconds."""
    opened: list[bool] = []
    loop = threading.get_ident()

    def counted(batch: memoryview) -> Octets:
        opened.append(threading.get_ident() == loop)
        return content.payload_of(batch)

    monkeypatch.setattr(limits, "BATCH_AT_ONCE_BYTES", 50)
    monkeypatch.setattr(upkeep, "payload_of", counted)
    owner, old, now = room.connect("owner"), ago(30 * HOUR_MS), ago(0)
    value = b"v" * 100
    await until(lambda: owner.send(topic, b"0", sequence=0))
    for codec in (PLAIN, GZIP):
        refused = await owner.send(topic, value, sequence=1, timestamp_ms=old, claimed_ms=old, codec=codec)
        assert refused == INVALID_TIMESTAMP
    young = owner.begin(topic, value, sequence=1, timestamp_ms=now, claimed_ms=old, codec=GZIP)
    behind = owner.begin(topic, b"2", sequence=2)
    assert [(await each).error for each in (young, behind)] == [OK, OK]
    assert opened == [False, False, False]
    assert await asyncio.to_thread(read_log, services.kafka_bootstrap, topic) == [b"0", value, b"2"]


async def test_a_leader_remembers_the_times_of_records_and_not_of_their_header(room: Room, topic: str) -> None:
    """`LogValidator` looks at every record, compressed or not; with attribute bit 3 a record's time is the header's."""
    room.topic(topic).upkeep.read(KeepAlive(3600.0, "no limit"))  # the node lets everything pass
    owner, old, now = room.connect("owner"), ago(30 * HOUR_MS), ago(0)
    assert await owner.send(topic, b"0") == OK
    for codec in (PLAIN, GZIP, SNAPPY, LZ4):
        assert await owner.send(topic, timestamp_ms=old, claimed_ms=now, codec=codec) == OK
        assert (await remembered(room, topic)).last_timestamp_ms == old
    assert await owner.send(topic, timestamp_ms=NO_TIME_MS, claimed_ms=now) == OK
    assert (await remembered(room, topic)).last_timestamp_ms == NO_TIME_MS
    assert await owner.send(topic, timestamp_ms=now, claimed_ms=old, attributes=LOG_APPEND_TIME) == OK
    assert (await remembered(room, topic)).last_timestamp_ms == old
