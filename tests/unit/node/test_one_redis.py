"""Two nodes of a new cluster that start at one moment, with a Redis each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from sidecar.changelog import REDIS_KEY, Key, Record
from sidecar.changelog.view import Change, View
from sidecar.network.tasks import Tasks
from sidecar.node.one_redis import OneRedis
from sidecar.protocol.ids import Offset
from sidecar.v1 import state_pb2 as state
from tests.wait import wait_for_async


class Log:
    """The changelog of one node. Another node's word comes right behind the first one of this one, in the same answer
    of Kafka: both are heard before anybody who waits for the first one goes on.
    """

    def __init__(self, others: state.Redis) -> None:
        self.view = View()
        self.tailer = self
        self.words: list[state.Redis] = []
        self._others = others
        self._listeners: list[Callable[[Change], None]] = []

    def subscribe(self, listener: Callable[[Change], None], key: Key) -> Callable[[], None]:
        assert key == REDIS_KEY
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def append(self, records: list[Record]) -> Offset:
        (record,) = records
        offset = Offset(len(self.words))
        self._take(record)
        if not offset:
            self._take(Record(record.key, self._others))
        await asyncio.sleep(0)
        return offset

    def _take(self, record: Record) -> None:
        offset = Offset(len(self.words))
        self.words.append(cast(state.Redis, record.value))
        change = self.view.apply(offset, 1, None, record.encode())
        assert change is not None
        for listener in tuple(self._listeners):
            listener(change)

    async def reached(self, offset: Offset, timeout: float) -> None:
        await asyncio.sleep(0)


class Store:
    lease_ms = 100
    address = "redis-1"

    async def identity(self, proposed: str) -> str:
        return "a"


async def test_a_node_insists_against_one_that_it_heard_while_it_asked_itself() -> None:
    log = Log(state.Redis(id="b", node=2, address="redis-2"))
    failures: list[BaseException] = []
    tasks = Tasks(failures.append)
    node = OneRedis(cast(Any, log), cast(Any, Store()), tasks, "default", 1)
    await node.join()

    async def insisted() -> bool:
        return len(log.words) > 2

    await wait_for_async(insisted, "the node to insist")
    assert (log.words[2].id, log.words[2].insists, node.problem) == ("a", True, "")
    await tasks.cancel()
    assert failures == []
