"""Batches cost a node something only once their client may write: nothing else is opened, and little is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.dedup import content
from sidecar.protocol.compression import decompress
from tests.kafka.exclusive.deduplicated import write

if TYPE_CHECKING:
    from sidecar.protocol.primitives import Octets
    from tests.kafka.exclusive.room import Room
    from tests.unit.exclusive.world import World

ZSTD = 4


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that were decompressed."""
    found: list[int] = []

    def counted(codec: int, data: Octets, limit: int) -> Octets:
        found.append(len(data))
        return decompress(codec, data, limit)

    monkeypatch.setattr(content, "decompress", counted)
    return found


@pytest.fixture
async def topic(room: Room, world: World) -> str:
    return await world.govern(room, 1, deduplication=True)


@pytest.mark.parametrize("plain", [False, True])
async def test_a_batch_of_a_client_that_may_not_write_is_not_opened(
    room: Room, topic: str, opened: list[int], plain: bool
) -> None:
    """414 KB of zstd from a refused client stopped the node for 40 s."""
    owner, rival = room.connect("billing"), room.connect("audit", plain=plain)
    assert (await write(owner, topic, 1, codec=ZSTD))[0] == 0
    before = len(opened)
    assert before
    for number in (1, 2, 2):
        assert (await write(rival, topic, number, codec=ZSTD))[0] == 44
    assert len(opened) == before


async def test_what_was_refused_is_looked_at_once_its_client_may_write(
    room: Room, world: World, topic: str, opened: list[int]
) -> None:
    """Else its ids, below what it writes then, pass for duplicates: acknowledged, and nowhere."""
    owner, rival, kept = room.connect("billing"), room.connect("audit", plain=True), room.governed.producers.kept
    assert (await write(owner, topic, 1))[0] == 0
    assert (await write(rival, topic, 5, codec=ZSTD))[0] == 44
    assert (not opened, kept.in_all > 0) == (True, True)
    owner.close()
    assert (await write(rival, topic, 6))[0] == 0
    assert (len(opened) > 0, kept.in_all) == (True, 0)
    assert (await write(rival, topic, 5, codec=ZSTD))[0] == 44
    assert await world.ids(topic) == [1, 6]


async def test_what_is_kept_of_a_connection_goes_with_it(room: Room, topic: str) -> None:
    owner, rival, kept = room.connect("billing"), room.connect("audit", plain=True), room.governed.producers.kept
    assert (await write(owner, topic, 1))[0] == 0
    then = room.wall_ms()
    assert (await write(rival, topic, 5, timestamp_ms=then))[0] == 44
    held = kept.in_all
    assert held
    assert (await write(rival, topic, 5, timestamp_ms=then))[0] == 44
    assert kept.in_all == held, "the same batch is kept once"
    rival.close()
    assert not kept.in_all
