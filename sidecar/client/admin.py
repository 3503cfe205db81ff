"""A node's REST interface for applications: one method per operation of its OpenAPI document; `facts` are the results.

Decides nothing: the node decides what a fence does and which clients may fence. Pulsar's paths, the schema registry,
metrics and health are not part of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from datetime import datetime
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from sidecar.client.errors import SidecarError, SidecarUnavailableError
from sidecar.client.facts import (
    ConnectedClient,
    Cursor,
    Event,
    LogRecord,
    PartitionLog,
    ProducerIds,
    ProducerState,
    Refusal,
    Setting,
    Shadow,
    Status,
    Topic,
)
from sidecar.client.rest import Rest, event_of, fact, given, of_partition, page_of, path_of, under
from sidecar.protocol.errors import ErrorCode

FactT = TypeVar("FactT")

DEFAULT_URL: Final = "http://127.0.0.1:18080"
_AGAIN_S: Final = 0.5
_PAGE: Final = "1000"


class AdminClient:
    """Manages topics, owners, sequence ids and shadows through the admin port of any node.

    ```python
    import asyncio
    from sidecar.client import AdminClient

    async def main() -> None:
        async with AdminClient("http://127.0.0.1:18080") as admin:
            topic = await admin.set_policy("orders", access_mode="exclusive", deduplication=True)
            print(topic.generation, topic.owner)
            async for topic in admin.topics(governed=True):
                print(topic.topic, topic.policy)

    asyncio.run(main())
    ```

    `url` is by default the variable `SIDECAR_ADMIN_URL`, or `http://127.0.0.1:18080` if that is not set. `token` is the
    nodes' `SIDECAR_ADMIN_TOKEN`, or `SIDECAR_ADMIN_READ_TOKEN`, which allows reads only; by default the first of these
    variables that is set. A node without a token accepts writes from its own machine only. `ssl_context` is for
    `https://`: the trusted authorities, by default the system's, and perhaps a client certificate. `timeout` (seconds)
    limits each request; a node needs 60 at most.

    Results are the frozen dataclasses of `sidecar.client.facts`; fields that a newer node adds are ignored.

    Errors are `SidecarError` with the HTTP status as `code`, an `http.HTTPStatus`, and the node's message: 400 for an
    invalid request, 401 and 403 without the right to it, 404 for what does not exist, 409 for what is not possible now,
    412 if the topic has another generation than the request requires.
    `SidecarUnavailableError` has 503 if the node cannot do it now, and Kafka's codes 13 if no node can be reached and 7
    if none answers in time; a write may have been done then. An answer that does not come from a node has code -1.

    Where a policy is meant, a topic may be a prefix: `payments.*`. Use it in one event loop, once.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ssl_context: SSLContext | None = None,
        timeout: float = 70.0,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout:g} s")
        found = url or os.environ.get("SIDECAR_ADMIN_URL") or DEFAULT_URL
        if token is None:
            token = os.environ.get("SIDECAR_ADMIN_TOKEN") or os.environ.get("SIDECAR_ADMIN_READ_TOKEN")
        self._rest = Rest(found, token, timeout, ssl_context)
        self._timeout = timeout
        self._started = False

    @property
    def url(self) -> str:
        """The URL of the node."""
        return self._rest.url

    async def __aenter__(self) -> Self:
        if self._started:
            raise RuntimeError("a client is used once: create another one")
        self._started = True
        self._rest.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; requests under way fail. Repeating it is harmless."""
        self._started = True
        await self._rest.close()

    # The node -------------------------------------------------------------------------------------------------------

    async def status(self) -> Status:
        """Return the status of the node at `url`: its state, and the nodes and brokers that it sees."""
        return await self._read(Status, "GET", "/v1/status")

    async def clients(self) -> AsyncGenerator[ConnectedClient]:
        """The clients connected to the node that is asked, the oldest first, page by page."""
        async for each in self._pages(ConnectedClient, "/v1/clients", {}):
            yield each

    async def settings(self) -> tuple[Setting, ...]:
        """The settings of the node that is asked."""
        return await self._list(Setting, "/v1/settings")

    async def events(self, topic: str | None = None, *, after: int | None = None) -> AsyncGenerator[Event]:
        """Yield the events of one topic, or of all, without an end: those after the position `after` (-1: all stored
        events, which are kept for 90 days), by default those after the iteration begins.

        If the connection ends, it reconnects and continues after the last event. It raises `SidecarUnavailableError`
        if no node answers for `timeout` seconds. A node serves 8 such readers at most, so close it if you stop early:

        ```python
        import asyncio
        from contextlib import aclosing
        from sidecar.client import AdminClient

        async def main() -> None:
            async with AdminClient("http://127.0.0.1:18080") as admin:
                async with aclosing(admin.events("orders", after=-1)) as events:
                    async for event in events:
                        print(event.at, event.kind, event.name, event.generation)
                        break

        asyncio.run(main())
        ```
        """
        query = {} if topic is None else {"topic": topic}
        if after is not None and after < 0:
            query["from"], after = "0", None
        now = asyncio.get_running_loop().time
        until = 0.0
        while True:
            try:
                async with aclosing(
                    self._rest.stream("/v1/events", query, None if after is None else str(after))
                ) as sent:
                    async for each in sent:
                        until = now() + self._timeout
                        if each is not None:
                            event = event_of(each.id, each.data)
                            after = event.position
                            query.pop("from", None)
                            yield event
            except SidecarUnavailableError:
                if now() > until:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def refusals(self, topic: str | None = None) -> tuple[Refusal, ...]:
        """Return the node's recent refusals of client requests, for one topic or for all, the newest first."""
        query = {"page_size": _PAGE, **({} if topic is None else {"topic": topic})}
        async with aclosing(self._pages(Refusal, "/v1/refusals", query)) as pages:
            return tuple([each async for each in pages])

    # Topics ---------------------------------------------------------------------------------------------------------

    async def topics(self, *, governed: bool = False) -> AsyncGenerator[Topic]:
        """All topics and prefixes by name, page by page; `governed`: only those that have a policy."""
        async for each in self._pages(Topic, "/v1/topics", {"governed": str(governed).lower()}):
            yield each

    async def topic(self, topic: str) -> Topic:
        """One topic or prefix, with its newest producer names and its shadows in numbers."""
        return await self._read(Topic, "GET", path_of("v1", "topics", topic))

    async def partitions(self, topic: str) -> AsyncGenerator[PartitionLog]:
        """Where the log of each partition begins and ends, by partition; for a shadow, the logs of its source."""
        async for each in self._pages(PartitionLog, path_of("v1", "topics", topic, "partitions"), {}):
            yield each

    async def groups(self, topic: str) -> AsyncGenerator[Cursor]:
        """What groups have committed for a topic, by group, page by page; a few seconds old at most."""
        async for each in self._pages(Cursor, path_of("v1", "topics", topic, "groups"), {}):
            yield each

    async def last_records(
        self, topic: str, *, limit: int | None = None, partition: int | None = None
    ) -> tuple[LogRecord, ...]:
        """Return the last `limit` records (None: 20; 100 at most), the newest first: of `partition`, or of the first 16
        partitions that have records. Keys and values are cut. If the node has `SIDECAR_ADMIN_TOKEN`, it is needed.
        """
        query = {name: str(value) for name, value in given(limit=limit, partition=partition).items()}
        return await self._list(LogRecord, path_of("v1", "topics", topic, "records"), query)

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        access_mode: Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"] | None = None,
        deduplication: bool | None = None,
        exclusive_reader: bool | None = None,
        scope: Literal["topic", "partition"] | None = None,
        log_append_time: bool | None = None,
    ) -> Topic:
        """Create a topic, then set these fields of its policy; the brokers' defaults apply to fields that are None. 409
        if the topic exists already, 400 with Kafka's reason if Kafka refuses it. Returns when clients can find it.
        """
        policy = given(
            access_mode=access_mode,
            deduplication=deduplication,
            exclusive_reader=exclusive_reader,
            scope=scope,
            log_append_time=log_append_time,
        )
        counts = given(partitions=partitions, replication_factor=replication_factor)
        more = {**({"configs": dict(configs)} if configs else {}), **({"policy": policy} if policy else {})}
        return await self._read(Topic, "POST", path_of("v1", "topics"), None, {"topic": topic, **counts, **more})

    async def set_policy(
        self,
        topic: str,
        *,
        access_mode: Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"] | None = None,
        deduplication: bool | None = None,
        exclusive_reader: bool | None = None,
        scope: Literal["topic", "partition"] | None = None,
        log_append_time: bool | None = None,
        if_generation: int | None = None,
    ) -> Topic:
        """Set these fields of the policy of a topic or prefix, which need not exist yet; fields that are None stay
        unchanged. Returns the topic once the policy is in force. With `if_generation` the change is done only if the
        topic has this generation at that moment; otherwise the error is 412.
        """
        body = given(
            access_mode=access_mode,
            deduplication=deduplication,
            exclusive_reader=exclusive_reader,
            scope=scope,
            log_append_time=log_append_time,
        )
        return await self._read(Topic, "PUT", path_of("v1", "topics", topic, "policy"), None, body, if_generation)

    async def delete_policy(self, topic: str, *, if_generation: int | None = None) -> None:
        """Delete the policy of a topic or prefix; 404 if it has no policy of its own. `if_generation` as in
        `set_policy`.
        """
        await self._rest.call("DELETE", path_of("v1", "topics", topic, "policy"), headers=under(if_generation))

    async def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic with its records; 409 if it has shadows. With `force` its shadows are deleted first."""
        await self._rest.call("DELETE", path_of("v1", "topics", topic), {"force": str(force).lower()})

    async def fence(self, topic: str, *, partition: int | None = None, if_generation: int | None = None) -> Topic:
        """Depose the owner for ever; 409 if there is none. If each partition has its own owner, depose the owner of
        `partition`. With `if_generation` it is done only if the topic, or that partition, has this generation at that
        moment: a producer that became the owner meanwhile is not deposed, and the error is 412.
        """
        path = path_of("v1", "topics", topic, "fence")
        return await self._read(Topic, "POST", path, of_partition(partition), None, if_generation)

    async def release(self, topic: str, *, partition: int | None = None, if_generation: int | None = None) -> Topic:
        """Clear the owner, which may claim again; otherwise as `fence`."""
        path = path_of("v1", "topics", topic, "release")
        return await self._read(Topic, "POST", path, of_partition(partition), None, if_generation)

    # Sequence ids ---------------------------------------------------------------------------------------------------

    async def producers(self, topic: str, *, limit: int = 100) -> tuple[ProducerIds, ...]:
        """Return the producer names that wrote to a topic last, newest first. `limit`: how many at most, 1 or more."""
        path = path_of("v1", "topics", topic, "dedup")
        if limit < 1:
            raise ValueError(f"limit has to be 1 or more, not {limit}")
        found: list[ProducerIds] = []
        async with aclosing(self._pages(ProducerIds, path, {"page_size": str(min(limit, int(_PAGE)))})) as pages:
            async for each in pages:
                found.append(each)
                if len(found) == limit:
                    break
        return tuple(found)

    async def producer(self, topic: str, name: str) -> ProducerState:
        """All that is known of a producer name; 404: not known, 409: the topic has no deduplication."""
        return await self._read(ProducerState, "GET", path_of("v1", "topics", topic, "dedup", name))

    async def forget_producer(self, topic: str, name: str) -> None:
        """Forget a producer name and its ids: its next id may be any. 409 while a connected session writes under it."""
        await self._rest.call("DELETE", path_of("v1", "topics", topic, "dedup", name))

    # Shadows --------------------------------------------------------------------------------------------------------

    async def shadows(self, source: str | None = None) -> tuple[Shadow, ...]:
        """Return the shadows of a topic by name, or all shadows, including those whose source was deleted."""
        path = "/v1/shadows" if source is None else path_of("v1", "topics", source, "shadows")
        return tuple([each async for each in self._pages(Shadow, path, {})])

    async def shadow(self, name: str) -> Shadow:
        """Return one shadow with its statistics."""
        return await self._read(Shadow, "GET", path_of("v1", "shadows", name))

    async def create_shadow(
        self, source: str, name: str, *, allow: Collection[str] | None = None, auto_reset_backlog_entries: int = 0
    ) -> Shadow:
        """Create a shadow of a topic; returns when every node serves it. `allow`: the principals that may read it, such
        as `User:audit`; None: the node's default. 409 if the name is taken.
        """
        body: dict[str, Any] = {"name": name, "auto_reset_backlog_entries": auto_reset_backlog_entries}
        if allow is not None:
            body["allow"] = list(allow)
        return await self._read(Shadow, "POST", path_of("v1", "topics", source, "shadows"), body=body)

    async def change_shadow(
        self, name: str, *, allow: Collection[str] | None = None, auto_reset_backlog_entries: int | None = None
    ) -> Shadow:
        """Change these fields of a shadow; fields that are None stay unchanged. An empty `allow` means nobody."""
        body: dict[str, Any] = {} if allow is None else {"allow": list(allow)}
        if auto_reset_backlog_entries is not None:
            body["auto_reset_backlog_entries"] = auto_reset_backlog_entries
        return await self._read(Shadow, "PATCH", path_of("v1", "shadows", name), body=body)

    async def delete_shadow(self, source: str, name: str) -> None:
        """Delete a shadow with its cursors; its source is not changed."""
        await self._rest.call("DELETE", path_of("v1", "topics", source, "shadows", name))

    async def cursors(self, shadow: str) -> AsyncGenerator[Cursor]:
        """What groups have committed for a shadow, by group, page by page; a few seconds old at most."""
        async for each in self._pages(Cursor, path_of("v1", "shadows", shadow, "cursors"), {}):
            yield each

    async def reset_cursor(
        self,
        shadow: str,
        group: str,
        to: Literal["earliest", "latest"] | int | datetime,
        *,
        partitions: Collection[int] | None = None,
    ) -> Cursor:
        """Move the cursor of a group, in some partitions or all: to the earliest or latest record, to an offset, or to
        the first record of a time (with its zone). 409 while the group has members. Without a cursor, one is created.
        """
        target: object = to
        if isinstance(to, datetime):
            if to.tzinfo is None:
                raise ValueError(f"{to.isoformat()} has no time zone")
            target = {"timestamp": to.isoformat()}
        elif isinstance(to, int):
            target = {"offset": to}
        body: dict[str, Any] = {"to": target} | ({} if partitions is None else {"partitions": sorted(partitions)})
        return await self._read(Cursor, "POST", path_of("v1", "shadows", shadow, "cursors", group, "reset"), body=body)

    # Answers --------------------------------------------------------------------------------------------------------

    async def _read(
        self,
        kind: type[FactT],
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        if_generation: int | None = None,
    ) -> FactT:
        found = await self._rest.call(method, path, query, body, under(if_generation))
        return fact(kind, found, f"{method} {path}")

    async def _list(self, kind: type[FactT], path: str, query: Mapping[str, str] | None = None) -> tuple[FactT, ...]:
        items, _ = page_of(kind, await self._rest.call("GET", path, query), path)
        return items

    async def _pages(self, kind: type[FactT], path: str, query: dict[str, str]) -> AsyncGenerator[FactT]:
        token: str | None = ""
        while token is not None:
            asked = {"page_size": _PAGE, **query} | ({"page_token": token} if token else {})
            before, (items, token) = token, page_of(kind, await self._rest.call("GET", path, asked), path)
            if token == before:
                raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, f"GET {path}: page {token!r} is followed by itself")
            for each in items:
                yield each
