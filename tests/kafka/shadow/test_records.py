"""A shadow's record that two nodes change at once: neither's word is lost, and what was deleted stays deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from sidecar.changelog import Changelog, Record
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.protocol.ids import Offset
from sidecar.shadow.records import OvertakenError, ShadowRecords
from sidecar.v1 import state_pb2 as state
from tests.conftest import Unique
from tests.kafka_calls import kafka_calls
from tests.services import Services

NAME = "audit"


class Alone:
    """No other node is waited for."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def seen_by_all(self, offset: int) -> None:
        self.seen.append(offset)


class Interrupted:
    """A changelog in which something happens in front of each append, as long as there is something left to happen."""

    def __init__(self, changelog: Changelog) -> None:
        self.happens: list[Callable[[], Awaitable[object]]] = []
        self._changelog = changelog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._changelog, name)

    async def append(self, records: Sequence[Record]) -> Offset:
        if self.happens:
            await self.happens.pop(0)()
        return await self._changelog.append(records)


class Pair:
    """Two nodes' records of the shadows of one cluster; `here` is interrupted by what is put into `log.happens`."""

    def __init__(self, here: Changelog, there: Changelog) -> None:
        self.log, self.there_log, self.members = Interrupted(here), there, Alone()
        nodes = NodeDirectory(NodeAddress(1, "127.0.0.1", 1))
        self.here = ShadowRecords(cast("Changelog", self.log), nodes, self.members)
        self.there = ShadowRecords(there, nodes, Alone())

    async def read_there(self) -> state.Shadow | None:
        await self.there_log.tailer.read_to_end(10)
        entry = self.there.get(NAME)
        return None if entry is None else entry.value


@pytest.fixture
async def pair(services: Services, unique: Unique) -> AsyncIterator[Pair]:
    async with kafka_calls(services.kafka_bootstrap) as kafka:
        cluster = unique("c")
        here, there = [await Changelog.open(kafka.upstream, cluster) for _ in range(2)]
        found = Pair(here, there)
        await found.there.write(NAME, state.Shadow(source="orders", topic_id=b"i" * 16, allow=["User:*"]))
        yield found
        await here.close()
        await there.close()


def allow(*principals: str) -> Callable[[state.Shadow], None]:
    def edit(record: state.Shadow) -> None:
        record.allow[:] = principals

    return edit


def limit(records: int) -> Callable[[state.Shadow], None]:
    def edit(record: state.Shadow) -> None:
        record.auto_reset_backlog_entries = records

    return edit


async def test_two_changes_at_once_are_both_made(pair: Pair) -> None:
    pair.log.happens.append(lambda: pair.there.change(NAME, limit(7)))
    made = await pair.here.change(NAME, allow("User:a"))
    assert (list(made.allow), made.auto_reset_backlog_entries) == (["User:a"], 7)
    assert await pair.read_there() == made
    assert pair.log.happens == []


async def test_a_change_that_is_interrupted_again_and_again_is_made_in_the_end(pair: Pair) -> None:
    pair.log.happens += [lambda number=number: pair.there.change(NAME, limit(number)) for number in (1, 2, 3)]
    made = await pair.here.change(NAME, allow("User:a"))
    assert (list(made.allow), made.auto_reset_backlog_entries) == (["User:a"], 3)
    assert await pair.read_there() == made


async def test_a_change_never_brings_a_deleted_shadow_back(pair: Pair) -> None:
    pair.log.happens.append(lambda: pair.there.write(NAME, None))
    with pytest.raises(LookupError):
        await pair.here.change(NAME, allow("User:a"))
    assert await pair.read_there() is None


async def test_a_change_begins_with_what_others_wrote_a_moment_ago(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this node reads it late: it would take its own word for what is there already."""
    tailer = pair.log.tailer
    take = tailer._take

    async def late(fetched: object) -> None:
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
    await pair.there.write(NAME, None)
    pair.log.happens.append(lambda: pair.there.add(NAME, made("orders", 1)))
    with pytest.raises(OvertakenError):
        await pair.here.add(NAME, made("returns", 2))
    assert await pair.read_there() == made("orders", 1)
    with pytest.raises(OvertakenError):
        await pair.here.add(NAME, made("returns", 3))
    assert await pair.read_there() == made("orders", 1)


async def test_who_was_overtaken_takes_back_nothing_that_was_written_since(pair: Pair) -> None:
    """The other node has finished its shadow before this one is about to put its record back."""
    await pair.there.write(NAME, None)
    finished = made("orders", 1)
    finished.topic_id = b"j" * 16
    pair.log.happens += [
        lambda: pair.there.add(NAME, made("orders", 1)),
        lambda: pair.there.write(NAME, finished),
    ]
    with pytest.raises(OvertakenError):
        await pair.here.add(NAME, made("returns", 2))
    assert await pair.read_there() == finished


async def test_a_late_deletion_leaves_a_shadow_that_was_made_anew(pair: Pair) -> None:
    entry = pair.there.get(NAME)
    assert entry is not None

    async def anew() -> None:
        await pair.there.forget(NAME, entry.value)
        await pair.there.add(NAME, made("orders", 5))

    pair.log.happens.append(anew)
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() == made("orders", 5)
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() == made("orders", 5)


async def test_what_two_delete_at_once_is_gone(pair: Pair) -> None:
    entry = pair.there.get(NAME)
    assert entry is not None
    pair.log.happens.append(lambda: pair.there.forget(NAME, entry.value))
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() is None


async def test_a_shadow_that_was_changed_is_deleted_all_the_same(pair: Pair) -> None:
    entry = pair.there.get(NAME)
    assert entry is not None
    pair.log.happens.append(lambda: pair.there.change(NAME, limit(7)))
    await pair.here.forget(NAME, entry.value)
    assert await pair.read_there() is None
