"""Checks that all nodes of a cluster use one Redis: when a node starts, on that node and on the running ones.

Two groups of nodes with the same cluster name on one Kafka, each with its own Redis, would take topics from each other
without end. Kafka fences the loser, so no data is corrupted, but no topic keeps its owner. Each Redis has a random
name; the changelog records which one the cluster uses. A node that starts with another Redis writes a record with its
name and waits for one lease. A running node whose own Redis still has its name writes an objection, and the starting
node is refused. Without an objection Redis was emptied or moved while no node ran. A starting node never stops running
ones.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Final

from metadata import MetadataError, MetadataStore
from sidecar.changelog import REDIS_KEY, Change, Changelog, ChangelogError, Record
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import Offset
from sidecar.v1 import state_pb2 as state

NOT_NOW: Final = (MetadataError, UpstreamError, KafkaError, ChangelogError, TimeoutError)
"""Errors because of which the check is not possible now; it is repeated later."""
_SEEN_S: Final = 10.0


class OtherRedisError(Exception):
    """Nodes of this cluster run with another Redis; the message says what to do."""


class OneRedis:
    """The check of one node. `problem`: why this node must not be used; "" if its Redis is the cluster's."""

    def __init__(self, changelog: Changelog, store: MetadataStore, tasks: Tasks, cluster: str, node_id: int) -> None:
        self.problem = ""
        self._changelog = changelog
        self._store = store
        self._tasks = tasks
        self._cluster = cluster
        self._node_id = node_id
        self._own = ""
        self._asks = False
        self._unsubscribe = changelog.tailer.subscribe(self._changed, REDIS_KEY)

    def close(self) -> None:
        """Stop following the changelog."""
        self._unsubscribe()

    @property
    def is_settled(self) -> bool:
        """Whether this node's Redis was asked for its name, and the changelog knows it."""
        return bool(self._own)

    async def join(self) -> None:
        """Check that this node's Redis is the cluster's; make it the cluster's if no other is in use. Waits for one
        lease if the changelog names another one.

        Raises `OtherRedisError`, and `NOT_NOW` if Redis or Kafka do not answer.
        """
        own = await self._store.identity(secrets.token_hex(16))
        known = self._changelog.view.redis()
        meanwhile = [] if known is not None and known.value.id == own else await self._ask(own)
        self._own, self.problem = own, ""
        for change in meanwhile:
            self._changed(change)

    async def _ask(self, own: str) -> list[Change]:
        """Write a record that names this node's Redis, wait for an objection, return later records of others."""
        words, news = list[Change](), asyncio.Event()

        def heard(change: Change) -> None:
            if change.after is not None:
                words.append(change)
                news.set()

        stop = self._changelog.tailer.subscribe(heard, REDIS_KEY)
        self._asks = True
        try:
            offset = await self._changelog.append([Record(REDIS_KEY, self._word(own, insists=False))])
            await self._changelog.tailer.reached(offset, timeout=_SEEN_S)
            if _follows_none(words, offset, own):
                return _behind(words, offset)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._store.lease_ms / 1000):
                    while (other := _objection(words, offset, own)) is None:
                        news.clear()
                        await news.wait()
                    raise OtherRedisError(self._sentence(other))
            return _behind(words, offset)
        finally:
            stop()
            self._asks = False

    def _changed(self, change: Change) -> None:
        """Handle another node's record while this node runs."""
        if change.after is None or not self._own or self._asks:
            return
        word: state.Redis = change.after.value
        if word.id == self._own:
            self.problem = ""
        elif word.insists:
            self.problem = self._sentence(word)
        else:
            self._tasks.start(self._insist(word))

    async def _insist(self, word: state.Redis) -> None:
        """Object to a node that starts with another Redis, if this node's Redis still has its name."""
        try:
            found = await self._store.identity(self._own)
            if found == self._own:
                await self._changelog.append([Record(REDIS_KEY, self._word(found, insists=True))])
            elif found == word.id:  # this node's Redis was emptied and got a new name
                self._own, self.problem = found, ""
        except NOT_NOW:
            self.problem = self._sentence(word)

    def _word(self, own: str, *, insists: bool) -> state.Redis:
        at_ms = int(time.time() * 1000)
        return state.Redis(id=own, node=self._node_id, address=self._store.address, insists=insists, at_ms=at_ms)

    def _sentence(self, other: state.Redis) -> str:
        return (
            f"node {other.node} of the cluster {self._cluster} on this Kafka uses another Redis ({other.address}) than"
            f" this node ({self._store.address}): give all nodes of a cluster the same SIDECAR_REDIS_URL, or a cluster"
            " of its own another SIDECAR_CLUSTER; to move a cluster to another Redis, stop all of its nodes first"
        )


def _follows_none(words: list[Change], offset: Offset, own: str) -> bool:
    """Return whether the record at an offset is the first one, or follows one of the same Redis."""
    former = next(word.before for word in words if word.after is not None and word.after.offset == offset)
    return former is None or former.value.id == own


def _objection(words: list[Change], offset: Offset, own: str) -> state.Redis | None:
    """Return the first record of another Redis after an offset, if any."""
    said = [word.after.value for word in _behind(words, offset) if word.after is not None]
    return next((word for word in said if word.id != own), None)


def _behind(words: list[Change], offset: Offset) -> list[Change]:
    return [word for word in words if word.after is not None and word.after.offset > offset]
