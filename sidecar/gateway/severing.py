"""Closes the connections of readers that lost their claims, or that wait for a log that their topic name no longer
refers to. A few hundred connections are checked per turn.

When a claim passes to another holder, the former holder's connections are closed at once (Kafka wiki "Single
Reader/Writer"). A pending long poll would still return records that its client may no longer read, so its connection is
closed too; on its next connection the client learns which partitions are refused. The same holds for a shadow that was
deleted, created with another source, or hidden from a reader: a pending poll would return records of the former log
under its name. It also holds when Kafka's ACLs change. This module only closes: `sidecar.resources.readers`, the
resolver and `rights.py` decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from sidecar.changelog import Change, Kind, Tailer
from sidecar.cluster.resolver import NameResolver, Source
from sidecar.gateway.client import Client
from sidecar.gateway.whole_fetch import FetchExchange
from sidecar.network.tasks import Tasks
from sidecar.resources.readers import HandOver, ReaderClaims
from sidecar.security.acls import Operation

_PER_TURN: Final = 256


class Severing:
    """Applies the changelog to `claims`, and closes connections of `clients`. Closing twice is harmless."""

    def __init__(
        self, clients: Mapping[int, Client], claims: ReaderClaims, resolver: NameResolver, tasks: Tasks
    ) -> None:
        self._clients = clients
        self._claims = claims
        self._resolver = resolver
        self._tasks = tasks
        self._passed: set[HandOver] = set()
        self._narrowed: set[bytes] = set()
        self._rerouted: dict[bytes, Source | None] = {}
        self._are_rights_others = False
        self._is_under_way = False

    def follow(self, tailer: Tailer) -> None:
        """Load the claims and follow the changelog. Listeners on which the claims depend must subscribe first."""
        self._resolver.rerouted = self._reroute
        tailer.subscribe(self.changed, Kind.CLAIM, Kind.POLICY, Kind.SHADOW)
        self._claims.load(tailer.view.claims())

    def changed(self, change: Change) -> None:
        """Apply a record of the changelog."""
        passed, narrowed = self._claims.changed(change)
        self._passed.update(passed)
        self._narrowed.update(narrowed)
        if passed or narrowed:
            self._begin()

    def _reroute(self, before: Mapping[bytes, Source | None]) -> None:
        if before:
            self._rerouted = dict(before) | self._rerouted  # polls may wait since before the first change
            self._begin()

    def rights_changed(self) -> None:
        """Check all connections, because Kafka's ACLs have changed."""
        self._are_rights_others = True
        self._begin()

    def _begin(self) -> None:
        if not self._is_under_way:
            self._is_under_way = True
            self._tasks.start(self._sweep())

    async def _sweep(self) -> None:
        try:
            while self._passed or self._narrowed or self._rerouted or self._are_rights_others:
                rights, self._are_rights_others = self._are_rights_others, False
                passed, self._passed = self._passed, set()
                narrowed, self._narrowed = self._narrowed, set()
                rerouted, self._rerouted = self._rerouted, {}
                former = _by_former(passed)
                for number, client in enumerate(list(self._clients.values()), 1):
                    reader = client.reader
                    names = (reader.session, reader.name, *reader.bound_sessions) if former else ()
                    is_over = any(each.severs(reader) for name in names for each in former.get(name, ()))
                    if is_over or self._waits_in_vain(client, narrowed, rerouted, rights=rights):
                        client.connection.abort()
                    if not number % _PER_TURN:
                        await asyncio.sleep(0)
        finally:
            self._is_under_way = False

    def _waits_in_vain(
        self, client: Client, narrowed: set[bytes], rerouted: Mapping[bytes, Source | None], *, rights: bool
    ) -> bool:
        """Whether a client's pending request could return records that it may no longer read by the name it used."""
        if not (narrowed or rerouted or rights):
            return False
        pending = (each for each in client.connection.pending if isinstance(each, FetchExchange))
        parked = [each for exchange in pending for each in exchange.partitions()]
        names, may = {name for name, _ in parked}, client.rights
        return (
            self._claims.refuses([each for each in parked if each[0] in narrowed], client.reader)
            or any(not self._reads_on(client, name, rerouted[name]) for name in names & rerouted.keys())
            or (rights and may is not None and any(may.refuses(Operation.READ, name) for name in names))
        )

    def _reads_on(self, client: Client, name: bytes, before: Source | None) -> bool:
        now = self._resolver.source(name)
        if before is None or now is None or now.is_closed:
            return False
        return (now.topic, now.topic_id) == (before.topic, before.topic_id) and now.may_be_read_by(client.principal)


def _by_former(passed: Collection[HandOver]) -> dict[str, list[HandOver]]:
    """The changes by what identifies the former holder's connections: thousands may come at once."""
    found: dict[str, list[HandOver]] = {}
    for each in passed:
        for name in {each.old.session, each.old.name} - {""}:
            found.setdefault(name, []).append(each)
    return found
