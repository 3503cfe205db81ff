"""Batches cost a node something only once their client may write: nothing else is opened, and little is kept."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sidecar.dedup import content
from sidecar.protocol import limits
from sidecar.protocol.compression import decompress
from tests.kafka.exclusive.deduplicated import deduplicated, log_of, write
from tests.kafka.exclusive.room import Room

if TYPE_CHECKING:
    from sidecar.protocol.primitives import Octets
    from tests.services import Services

ZSTD = 4


class Opened(NamedTuple):
    """A batch that was decompressed, and by whom."""

    limit: int
    at_once: bool


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    found: list[Opened] = []
    loop = threading.get_ident()

    def counted(codec: int, data: Octets, limit: int) -> Octets:
        found.append(Opened(limit, threading.get_ident() == loop))
        return decompress(codec, data, limit)

    monkeypatch.setattr(content, "decompress", counted)
    return found


@pytest.mark.parametrize("plain", [False, True])
async def test_a_batch_of_a_client_that_may_not_write_is_not_opened(
    room: Room, services: Services, opened: list[Opened], plain: bool
) -> None:
    """414 KB of zstd from a refused client stopped the node for 40 s."""
    topic = await deduplicated(room, services)
    owner, rival = room.connect("billing"), room.connect("audit", plain=plain)
    assert (await write(owner, topic, 1, codec=ZSTD))[0] == 0
    before = len(opened)
    assert before
    for number in (1, 2, 2):
        assert (await write(rival, topic, number, codec=ZSTD))[0] == 44
    assert len(opened) == before


async def test_what_was_refused_is_looked_at_once_its_client_may_write(
    room: Room, services: Services, opened: list[Opened]
) -> None:
    """Else its ids, below what it writes then, pass for duplicates: acknowledged, and nowhere."""
    topic = await deduplicated(room, services)
    owner, rival = room.connect("billing", plain=True), room.connect("audit", plain=True)
    assert (await write(owner, topic, 1))[0] == 0
    assert (await write(rival, topic, 5, codec=ZSTD))[0] == 44
    assert not opened
    assert room.governed.producers.kept.in_all
    owner.close()
    assert (await write(rival, topic, 6, codec=ZSTD))[0] == 0
    assert opened
    assert not room.governed.producers.kept.in_all
    assert (await write(rival, topic, 5, codec=ZSTD))[0] == 44
    assert await log_of(services, topic) == ["1", "6"]


async def test_what_is_kept_of_a_connection_goes_with_it(room: Room, services: Services) -> None:
    topic = await deduplicated(room, services)
    owner, rival = room.connect("billing"), room.connect("audit", plain=True)
    assert (await write(owner, topic, 1))[0] == 0
    then = int(time.time() * 1_000)
    assert (await write(rival, topic, 5, timestamp_ms=then))[0] == 44
    held = room.governed.producers.kept.in_all
    assert held
    assert (await write(rival, topic, 5, timestamp_ms=then))[0] == 44
    assert room.governed.producers.kept.in_all == held, "the same batch is kept once"
    rival.close()
    assert not room.governed.producers.kept.in_all


async def test_a_large_batch_is_opened_and_cut_by_a_thread(
    room: Room, services: Services, opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """63 MiB of zeros in 2 kB of zstd held the event loop for 40 ms, 120 of them for 5 s."""
    monkeypatch.setattr(limits, "BATCH_AT_ONCE_BYTES", 100)
    topic = await deduplicated(room, services)
    owner = room.connect("billing")
    assert (await write(owner, topic, *range(20), codec=ZSTD))[0] == 0
    assert await write(owner, topic, *range(15, 25), codec=ZSTD) == (0, -1)
    assert (await write(owner, topic, 25, codec=ZSTD))[0] == 0
    assert await log_of(services, topic) == [str(number) for number in range(26)]
    assert {each.limit for each in opened if each.at_once} == {100}
    assert any(not each.at_once for each in opened)


async def test_batches_behind_a_large_one_keep_their_order(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_AT_ONCE_BYTES", 250)
    topic = await deduplicated(room, services)
    owner = room.connect("billing")
    assert (await write(owner, topic, 0))[0] == 0
    sent = [owner.begin(topic, ids=list(ids), codec=ZSTD) for ids in (range(1, 20), (20,), (21,))]
    assert [(await each).error for each in sent] == [0, 0, 0]
    assert await log_of(services, topic) == [str(number) for number in range(22)]
