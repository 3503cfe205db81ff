"""A shadow's record that two nodes change at once: neither's word is lost, and what was deleted stays deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from sidecar.changelog import Changelog, Key, Kind, Record, StampedJournal, changelog
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.fencing.record_writer import RecordWriter
from sidecar.protocol.caller import FencedError, Upstream
from sidecar.protocol.ids import Offset
from sidecar.shadow.records import SHADOW_SLOT, OvertakenError, ShadowRecords
from sidecar.v1 import state_pb2 as state
from tests.unit.shadow.paper import Nodes

NAME = "audit"


class Alone:
    """No other node is waited for."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def seen_by_all(self, offset: int) -> None:
        self.seen.append(offset)


class Interrupted(RecordWriter):
    """A writer with which something happens in front of each append, as long as there is something left to happen."""

    def __init__(self, upstream: Upstream, cluster: str, changelog: Changelog) -> None:
        super().__init__(upstream, cluster, changelog, SHADOW_SLOT)
        self.happens: list[Callable[[], Awaitable[object]]] = []

    async def open(self, name: str) -> StampedJournal:
        found = await super().open(name)
        append = found.append

        async def interrupted(records: Sequence[Record]) -> Offset:
            if self.happens:
                await self.happens.pop(0)()
            return await append(records)

        found.append = interrupted  # type: ignore[method-assign]
        return found


class Pair:
    """Two nodes' records of the shadows of one cluster; `here` is interrupted by what is put into `writer.happens`."""

    def __init__(self, upstream: Upstream, cluster: str, here: Changelog, there: Changelog) -> None:
        self.log, self.there_log, self.members = here, there, Alone()
        self.writer = Interrupted(upstream, cluster, here)
        nodes = NodeDirectory(NodeAddress(1, "127.0.0.1", 1))
        self.here = ShadowRecords(here, self.writer, nodes, self.members)
        self.there = ShadowRecords(there, RecordWriter(upstream, cluster, there, SHADOW_SLOT), nodes, Alone())

    async def read_there(self) -> state.Shadow | None:
        await self.there_log.tailer.read_to_end(10)
        entry = self.there.get(NAME)
        return None if entry is None else entry.value

    async def forget_there(self) -> None:
        entry = self.there.get(NAME)
        assert entry is not None
        await self.there.forget(NAME, entry.value)


@pytest.fixture
async def pair(nodes: Nodes) -> Pair:
    here, there = await nodes.start(), await nodes.start()
    found = Pair(nodes.kafka.node(), "c", here.log, there.log)
    await found.there.add(
        NAME, state.Shadow(source="orders", source_topic_id=b"s" * 16, topic_id=b"i" * 16, allow=["User:*"])
    )
    return found


def allow(*principals: str) -> Callable[[state.Shadow], None]:
    def edit(record: state.Shadow) -> None:
        record.allow[:] = principals

    return edit


def limit(records: int) -> Callable[[state.Shadow], None]:
    def edit(record: state.Shadow) -> None:
        record.auto_reset_backlog_entries = records

    return edit


async def test_two_changes_at_once_are_both_made(pair: Pair) -> None:
    pair.writer.happens.append(lambda: pair.there.change(NAME, limit(7)))
    made = await pair.here.change(NAME, allow("User:a"))
    assert (list(made.allow), made.auto_reset_backlog_entries) == (["User:a"], 7)
    assert await pair.read_there() == made
    assert pair.writer.happens == []


async def test_a_change_that_is_interrupted_again_and_again_is_made_in_the_end(pair: Pair) -> None:
    pair.writer.happens += [lambda number=number: pair.there.change(NAME, limit(number)) for number in (1, 2, 3)]
    made = await pair.here.change(NAME, allow("User:a"))
    assert (list(made.allow), made.auto_reset_backlog_entries) == (["User:a"], 3)
    assert await pair.read_there() == made


async def test_a_change_never_brings_a_deleted_shadow_back(pair: Pair) -> None:
    pair.writer.happens.append(pair.forget_there)
    with pytest.raises(LookupError):
        await pair.here.change(NAME, allow("User:a"))
    assert await pair.read_there() is None


async def test_a_change_begins_with_what_others_wrote_a_moment_ago(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this node reads it late: it would take its own word for what is there already."""
    tailer = pair.log.tailer
    take = tailer._take

    async def late(fetched: Any) -> None:
        await asyncio.sleep(0.3)
        await take(fetched)

    monkeypatch.setattr(tailer, "_take", late)
    await pair.there.change(NAME, allow("User:a"))
    await pair.there.change(NAME, limit(9))
    made = await pair.here.change(NAME, allow("User:*"))
    assert (list(made.allow), made.auto_reset_backlog_entries) == (["User:*"], 9)
    assert await pair.read_there() == made
    with pytest.raises(LookupError):
        await pair.here.change("nothing", allow("User:a"))


async def test_a_change_to_what_is_there_writes_nothing_and_is_known_to_all(pair: Pair) -> None:
    before = await pair.log.tailer.read_to_end(10)
    await pair.here.change(NAME, allow("User:*"))
    assert await pair.log.tailer.read_to_end(10) == before
    entry = pair.here.get(NAME)
    assert entry is not None
    assert pair.members.seen == [entry.offset]


def made(source: str, number: int) -> state.Shadow:
    return state.Shadow(source=source, created_ms=number, allow=["User:*"])


async def test_of_two_that_make_one_shadow_the_first_in_the_log_has_it(pair: Pair) -> None:
    await pair.forget_there()
    pair.writer.happens.append(lambda: pair.there.add(NAME, made("orders", 1)))
    with pytest.raises(OvertakenError):
        await pair.here.add(NAME, made("returns", 2))
    assert await pair.read_there() == made("orders", 1)
    with pytest.raises(OvertakenError):
        await pair.here.add(NAME, made("returns", 3))
    assert await pair.read_there() == made("orders", 1)


async def test_nothing_of_a_late_writer_comes_behind_what_another_one_wrote(pair: Pair) -> None:
    """It has decided, and the log goes on: what it sends then is refused, and would be the record that stays."""
    late = await pair.writer.open(NAME)
    await pair.there.change(NAME, limit(7))
    with pytest.raises(FencedError):
        await late.append([Record(Key(Kind.SHADOW, NAME), None)])
    found = await pair.read_there()
    assert found is not None
    assert found.auto_reset_backlog_entries == 7


async def test_a_node_that_was_away_since_it_looked_looks_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers may have forgotten the fence by then: here there is none, as after a day."""

    async def away() -> None:
        entry = pair.there.get(NAME)
        assert entry is not None
        changed = state.Shadow()
        changed.CopyFrom(entry.value)
        limit(7)(changed)
        await pair.there_log.append([Record(Key(Kind.SHADOW, NAME), changed)])
        passed = changelog.elapsed() + 60.0
        monkeypatch.setattr(changelog, "elapsed", lambda: passed)
        pair.writer.happens.append(back)

    async def back() -> None:
        monkeypatch.undo()

    pair.writer.happens.append(away)
    made = await pair.here.change(NAME, allow("User:a"))
    assert (list(made.allow), made.auto_reset_backlog_entries) == (["User:a"], 7)
    assert await pair.read_there() == made
    assert pair.writer.happens == []


async def test_a_late_deletion_leaves_a_shadow_that_was_made_anew(pair: Pair) -> None:
    entry = pair.there.get(NAME)
    assert entry is not None

    async def anew() -> None:
        await pair.there.forget(NAME, entry.value)
        await pair.there.add(NAME, made("orders", 5))

    pair.writer.happens.append(anew)
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() == made("orders", 5)
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() == made("orders", 5)


async def test_a_record_that_was_written_in_front_of_a_rivals_fence_is_not_taken_for_anothers(pair: Pair) -> None:
    """The answer to the append is lost, and what is sent again meets the fence."""
    await pair.forget_there()
    opened = pair.writer.open

    async def fenced_behind_it(name: str) -> StampedJournal:
        journal = await opened(name)
        append = journal.append

        async def lose(records: Sequence[Record]) -> Offset:
            await append(records)
            raise FencedError(47, journal.writer, "append")

        if pair.writer.happens:
            pair.writer.happens.pop()
            journal.append = lose  # type: ignore[method-assign]
        return journal

    pair.writer.open = fenced_behind_it  # type: ignore[method-assign]
    pair.writer.happens.append(pair.forget_there)
    await pair.here.add(NAME, made("orders", 1))
    assert await pair.read_there() == made("orders", 1)


async def test_a_deletion_of_what_is_not_there_writes_nothing(pair: Pair) -> None:
    end = await pair.log.tailer.read_to_end(10)
    await pair.here.forget(NAME, made("orders", 9))
    await pair.here.forget("nothing", made("orders", 9))
    assert len([entry for entry in pair.log.view.shadows() if entry.offset >= end]) == 0
    assert await pair.log.tailer.read_to_end(10) == end + 2, "the fences of both"


async def test_what_two_delete_at_once_is_gone(pair: Pair) -> None:
    entry = pair.there.get(NAME)
    assert entry is not None
    pair.writer.happens.append(lambda: pair.there.forget(NAME, entry.value))
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() is None


async def test_a_shadow_that_was_changed_is_deleted_all_the_same(pair: Pair) -> None:
    entry = pair.there.get(NAME)
    assert entry is not None
    pair.writer.happens.append(lambda: pair.there.change(NAME, limit(7)))
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() is None
