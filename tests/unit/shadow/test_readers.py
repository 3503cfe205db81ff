"""Who reads a shadow through a node, within bounds."""

from __future__ import annotations

from uuid import UUID

import pytest

from sidecar.cluster.resolver import NameResolver, Source
from sidecar.protocol import fetch
from sidecar.shadow.cursor_room import WINDOW_S, Readers, Reading

AUDIT, COPY = b"orders-audit", b"orders-copy"


class Clock:
    """Both clocks of the module, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1_700_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("sidecar.shadow.cursor_room.time", found)
    return found


@pytest.fixture
def resolver() -> NameResolver:
    found = NameResolver()
    found.set_shadows({name: Source(b"orders", UUID(int=1)) for name in (AUDIT, COPY)})
    return found


def test_connections_count_until_they_have_not_read_for_a_while(clock: Clock, resolver: NameResolver) -> None:
    seen = Readers(resolver)
    assert seen.of(AUDIT) == Reading(0, 0, 0)
    seen.read(AUDIT, 1, 100)
    clock.now += WINDOW_S - 1
    seen.read(AUDIT, 2, 50)
    seen.read(COPY, 3, 7)
    assert seen.of(AUDIT) == Reading(2, 150, int(clock.time() * 1000))
    last = int(clock.time() * 1000)
    clock.now += 2
    assert seen.of(AUDIT) == Reading(1, 150, last)
    seen.read(AUDIT, 1, 0)
    assert seen.of(AUDIT).readers == 2
    clock.now += WINDOW_S + 1
    assert seen.of(AUDIT).readers == 0
    assert seen.of(COPY) == Reading(0, 7, last)


def test_readers_that_come_and_go_take_no_memory(clock: Clock, resolver: NameResolver) -> None:
    """A connection that reads on keeps its place, whoever came later."""
    seen = Readers(resolver)
    for number in range(10_000):
        seen.read(AUDIT, number, 1)
        seen.read(AUDIT, -1, 1)
        clock.now += 1
    assert len(seen._shadows[AUDIT].readers) <= WINDOW_S + 2
    assert seen.of(AUDIT).record_bytes == 20_000


def test_shadows_that_are_gone_take_no_memory(clock: Clock, resolver: NameResolver) -> None:
    seen = Readers(resolver)
    for number in range(100):
        name = b"shadow-%d" % number
        resolver.set_shadows({name: Source(b"orders", UUID(int=1))})
        seen.read(name, 1, 1)
    assert len(seen._shadows) == 1
    seen.forget(b"shadow-99")
    assert seen.of(b"shadow-99") == Reading(0, 0, 0)


@pytest.mark.parametrize("version", range(4, 12))
def test_answers_count_by_the_size_of_their_record_sets(clock: Clock, resolver: NameResolver, version: int) -> None:
    """Aborted transactions and watermarks are none of it, nor is what belongs to other topics."""
    seen = Readers(resolver)
    empty = fetch.error_element(version, 0, 0)
    records = b"x" * 300
    fixed = len(empty) - 8 - (4 if version >= 11 else 0)
    aborted = (2).to_bytes(4) + bytes(32)
    replica = empty[fixed + 4 : fixed + 8] if version >= 11 else b""
    full = empty[:fixed] + aborted + replica + len(records).to_bytes(4) + records
    frame = b"".join(bytes(part) for part in fetch.encode_answer(1, version, [(AUDIT, full)]))
    assert fetch.walk_answer(frame, 0, len(frame), version).parts[0].record_bytes == 300
    seen.answered(1, version, [(AUDIT, full), (b"orders", full), (AUDIT, empty), (COPY, empty)])
    assert (seen.of(AUDIT).record_bytes, seen.of(COPY).record_bytes) == (300, 0)
    assert (seen.of(AUDIT).readers, seen.of(COPY).readers, seen.of(b"orders").readers) == (1, 1, 0)
