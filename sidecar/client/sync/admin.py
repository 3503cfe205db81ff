"""The synchronous twin of `sidecar.client.admin`: written by `python -m tools.sync`, not by hand."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from datetime import datetime
from ssl import SSLContext
from types import TracebackType
from typing import Literal, Self

from sidecar.client.admin import AdminClient as _AdminClient
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
from sidecar.client.sync.twin import Twin


class AdminClient(Twin["_AdminClient"]):
    """Looks after topics, owners, sequence ids and shadows, by the admin port of any node.

    ```python
    from sidecar.client.sync import AdminClient

    def main() -> None:
        with AdminClient("http://127.0.0.1:18080") as admin:
            topic = admin.set_policy("orders", access_mode="exclusive", deduplication=True)
            print(topic.generation, topic.owner)
            for topic in admin.topics(governed=True):
                print(topic.topic, topic.policy)

    main()
    ```

    `url` is `SIDECAR_ADMIN_URL` where none is given, or else `http://127.0.0.1:18080`. `token` is what the nodes have
    as `SIDECAR_ADMIN_TOKEN`, or for reads alone as `SIDECAR_ADMIN_READ_TOKEN`; by default the first of these variables
    that is set. Without one a node takes writes from its own machine only. `ssl_context` says for `https://` whom to
    trust, and may hold a client certificate; by default whom the system trusts. `timeout` (seconds) bounds each
    request; a node takes 60 at most.

    Results are the frozen dataclasses of `sidecar.client.facts`; what a newer node adds to them is passed over.

    Errors are `SidecarError` with the HTTP status as `code`, an `http.HTTPStatus`, and the node's own words: 400 for
    what cannot be, 401 and 403 without the right to this, 404 for what is not there, 409 for what cannot be now, 412
    for what was to be done under another generation.
    `SidecarUnavailableError`: 503 where the node cannot now, Kafka's codes 13 where nobody answers and 7 where nobody
    did in time; a write may have been done then. An answer that no node gives: code -1.

    A topic may be a prefix where a policy is meant: `payments.*`. Use it once, from as many threads as you like.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ssl_context: SSLContext | None = None,
        timeout: float = 70.0,
    ) -> None:
        super().__init__(_AdminClient(url, token, ssl_context=ssl_context, timeout=timeout))

    @property
    def url(self) -> str:
        """Whom it asks."""
        return self._call(lambda: self._twin.url)

    def __enter__(self) -> Self:
        self._start(self._twin.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(lambda: self._twin.__aexit__(kind, error, trace))

    def close(self) -> None:
        """End every connection; what is under way fails. Repeating it is harmless."""
        self._finish(self._twin.close)

    def status(self) -> Status:
        """The node that is asked, and what it sees."""
        return self._run(self._twin.status)

    def clients(self) -> Generator[ConnectedClient]:
        """The clients connected to the node that is asked, the oldest first, page by page."""
        return self._iterate(self._twin.clients)

    def settings(self) -> tuple[Setting, ...]:
        """The settings of the node that is asked."""
        return self._run(self._twin.settings)

    def events(self, topic: str | None = None, *, after: int | None = None) -> Generator[Event]:
        """What happens, of one topic or of all, as it happens and for ever: after the position `after` (-1: all that
        is kept, 90 days), by default from the moment on in which the first is waited for.

        Where the connection ends it goes on after the last event by itself, and raises `SidecarUnavailableError` once
        no node answered for `timeout` seconds. A node has room for 8 such readers, so close it where you stop early:

        ```python
        from contextlib import closing
        from sidecar.client.sync import AdminClient

        def main() -> None:
            with AdminClient("http://127.0.0.1:18080") as admin:
                with closing(admin.events("orders", after=-1)) as events:
                    for event in events:
                        print(event.at, event.kind, event.name, event.generation)
                        break

        main()
        ```
        """
        return self._iterate(lambda: self._twin.events(topic, after=after))

    def refusals(self, topic: str | None = None) -> tuple[Refusal, ...]:
        """What the node refused its clients lately, of one topic or of all, what happened last first."""
        return self._run(lambda: self._twin.refusals(topic))

    def topics(self, *, governed: bool = False) -> Generator[Topic]:
        """All topics and prefixes by name, page by page; `governed`: only those that have a policy."""
        return self._iterate(lambda: self._twin.topics(governed=governed))

    def topic(self, topic: str) -> Topic:
        """One topic or prefix, with its newest producer names and its shadows in numbers."""
        return self._run(lambda: self._twin.topic(topic))

    def partitions(self, topic: str) -> Generator[PartitionLog]:
        """Where the log of each partition begins and ends, by partition; of a shadow, its source's."""
        return self._iterate(lambda: self._twin.partitions(topic))

    def groups(self, topic: str) -> Generator[Cursor]:
        """What groups have committed for a topic, by group, page by page; a few seconds old at most."""
        return self._iterate(lambda: self._twin.groups(topic))

    def last_records(
        self, topic: str, *, limit: int | None = None, partition: int | None = None
    ) -> tuple[LogRecord, ...]:
        """The last `limit` records (None: 20; 100 at most) of a partition, or of the first 16 that have any, the newest
        first, cut. Needs the token to operate, where the node has one.
        """
        return self._run(lambda: self._twin.last_records(topic, limit=limit, partition=partition))

    def create_topic(
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
        """Create a topic, then set these fields of its policy; the brokers' defaults hold for what is None. 409 where
        there is such a topic already, 400 with Kafka's reason where Kafka refuses it. Returns when clients find it.
        """
        return self._run(
            lambda: self._twin.create_topic(
                topic,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                access_mode=access_mode,
                deduplication=deduplication,
                exclusive_reader=exclusive_reader,
                scope=scope,
                log_append_time=log_append_time,
            )
        )

    def set_policy(
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
        """Set these fields of the policy of a topic or prefix, which need not exist yet, and leave the others (None) as
        they are. Returns when it is in force, with the topic as it is then. With `if_generation` only where that is the
        topic's generation at the moment of the change, else 412 and nothing is done.
        """
        return self._run(
            lambda: self._twin.set_policy(
                topic,
                access_mode=access_mode,
                deduplication=deduplication,
                exclusive_reader=exclusive_reader,
                scope=scope,
                log_append_time=log_append_time,
                if_generation=if_generation,
            )
        )

    def delete_policy(self, topic: str, *, if_generation: int | None = None) -> None:
        """Forget the policy of a topic or prefix; 404 where it has none of its own. `if_generation` as in
        `set_policy`.
        """
        return self._run(lambda: self._twin.delete_policy(topic, if_generation=if_generation))

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic with its records; 409 where it has shadows, which go first where `force` says so."""
        return self._run(lambda: self._twin.delete_topic(topic, force=force))

    def fence(self, topic: str, *, partition: int | None = None, if_generation: int | None = None) -> Topic:
        """Depose the owner for ever; 409 where there is none. Where each partition has its own owner, that of
        `partition`. With `if_generation` only where that is the generation, the partition's then, at the moment of the
        change: a producer that became the owner meanwhile is left alone, 412.
        """
        return self._run(lambda: self._twin.fence(topic, partition=partition, if_generation=if_generation))

    def release(self, topic: str, *, partition: int | None = None, if_generation: int | None = None) -> Topic:
        """Clear the owner, which may claim again; otherwise as `fence`."""
        return self._run(lambda: self._twin.release(topic, partition=partition, if_generation=if_generation))

    def producers(self, topic: str, *, limit: int = 100) -> tuple[ProducerIds, ...]:
        """The producer names that wrote to a topic last, newest first: `limit` at most, from 1 on."""
        return self._run(lambda: self._twin.producers(topic, limit=limit))

    def producer(self, topic: str, name: str) -> ProducerState:
        """All that is known of a producer name; 404: not known, 409: the topic has no deduplication."""
        return self._run(lambda: self._twin.producer(topic, name))

    def forget_producer(self, topic: str, name: str) -> None:
        """Forget a producer name and its ids: its next id may be any. 409 while a connected session writes under it."""
        return self._run(lambda: self._twin.forget_producer(topic, name))

    def shadows(self, source: str | None = None) -> tuple[Shadow, ...]:
        """The shadows of a topic by name, or all, those too whose source is gone."""
        return self._run(lambda: self._twin.shadows(source))

    def shadow(self, name: str) -> Shadow:
        """One shadow, in numbers too."""
        return self._run(lambda: self._twin.shadow(name))

    def create_shadow(
        self, source: str, name: str, *, allow: Collection[str] | None = None, auto_reset_backlog_entries: int = 0
    ) -> Shadow:
        """Make a shadow of a topic; returns when every node serves it. `allow`: the principals that may read it, as
        `User:audit`; None: the node's default. 409 where the name is taken.
        """
        return self._run(
            lambda: self._twin.create_shadow(
                source, name, allow=allow, auto_reset_backlog_entries=auto_reset_backlog_entries
            )
        )

    def change_shadow(
        self, name: str, *, allow: Collection[str] | None = None, auto_reset_backlog_entries: int | None = None
    ) -> Shadow:
        """Change these fields of a shadow, and leave the others (None) as they are. An empty `allow` means nobody."""
        return self._run(
            lambda: self._twin.change_shadow(name, allow=allow, auto_reset_backlog_entries=auto_reset_backlog_entries)
        )

    def delete_shadow(self, source: str, name: str) -> None:
        """Delete a shadow with its cursors; the topic is as it was."""
        return self._run(lambda: self._twin.delete_shadow(source, name))

    def cursors(self, shadow: str) -> Generator[Cursor]:
        """What groups have committed for a shadow, by group, page by page; a few seconds old at most."""
        return self._iterate(lambda: self._twin.cursors(shadow))

    def reset_cursor(
        self,
        shadow: str,
        group: str,
        to: Literal["earliest", "latest"] | int | datetime,
        *,
        partitions: Collection[int] | None = None,
    ) -> Cursor:
        """Move the cursor of a group, in some partitions or all: to the earliest or latest record, to an offset, or to
        the first record of a time (with its zone). 409 while the group has members; a group that has none gets one.
        """
        return self._run(lambda: self._twin.reset_cursor(shadow, group, to, partitions=partitions))
