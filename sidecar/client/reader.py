"""A reader of a shadow topic (PIP-180): an aiokafka consumer that reads through nodes; raises an error if it cannot.

Without a node in front, a shadow is an empty topic on the brokers, and a consumer would silently reset its cursors. A
closed shadow looks to aiokafka like a topic without new records. Both are errors here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, Unpack

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from sidecar.client._requests import describe_owners
from sidecar.client.access import AccessParameters, NodeAccess
from sidecar.client.connection import Connection, connect, first
from sidecar.client.errors import SidecarError, SidecarUnavailableError, code_of, of_kafka
from sidecar.protocol.addresses import addresses
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.calls.admin import DescribeTopics, FindCoordinator, TopicDescription
from sidecar.protocol.errors import ErrorCode

_CLIENT_ID: Final = "sidecar-reader"
_IDLE_S: Final = 5.0
"""After this time without records the reader checks whether there can be any."""
_FIRST_LOOK_S: Final = 0.01
_LONGEST_LOOK_S: Final = 0.2
_LOOK_S: Final = 2.0
"""The timeout of the check at each node, in seconds: new records wait meanwhile."""


class ShadowReader:
    """Reads a shadow topic from where its group stood, record by record. The shadow has to be there, as of
    `sidecar shadow create orders-audit --source orders`.

    ```python
    import asyncio
    from sidecar.client import ShadowReader

    async def main() -> None:
        async with ShadowReader("localhost:19092", shadow="orders-audit", group="audit") as reader:
            async for record in reader:
                print(record.partition, record.offset, record.value)
                await reader.commit()
                if not any((await reader.lag()).values()):
                    break

    asyncio.run(main())
    ```

    `bootstrap` is `host:port,…` of nodes, or several of them. Records are aiokafka's `ConsumerRecord`, at the offsets
    that they have in the source; their `topic` is the shadow. Readers of one `group` share the partitions; its cursors
    are its own in each shadow, and `commit` moves them. Without a group every partition is read and nothing is kept.

    `offset_reset` says where to begin without a cursor, or with one that retention took the log from: `earliest` or
    `latest`. `isolation_level` as in Kafka: `read_committed` leaves out records of aborted transactions.
    `timeout` (seconds) bounds `async with`, which ends once partitions are assigned.

    Kafka's protocol does not show whether the name is a shadow: an ordinary topic is read just the same. What does not
    exist, and a shadow that is closed, also while it is read, raise `SidecarError` with code 3; a cluster of Kafka
    without a node in front of it raises `SidecarUnavailableError`. Use it in one event loop, once.

    Nodes that have TLS or ask for a login take aiokafka's parameters, each by its name: `security_protocol` (by default
    `PLAINTEXT`), `ssl_context`, `sasl_mechanism` (`PLAIN`), `sasl_plain_username`, `sasl_plain_password`,
    `sasl_oauth_token_provider`.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        shadow: str,
        group: str | None = None,
        *,
        offset_reset: Literal["earliest", "latest"] = "earliest",
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout: float = 30.0,
        **access: Unpack[AccessParameters],
    ) -> None:
        if not shadow:
            raise ValueError("shadow is empty")
        if group == "":
            raise ValueError("group is empty: name one, or None to keep no cursors")
        if offset_reset not in ("earliest", "latest"):
            raise ValueError(f"offset_reset {offset_reset!r} is none of earliest, latest")
        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation_level {isolation_level!r} is none of read_uncommitted, read_committed")
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout:g} s")
        self._access = NodeAccess(**access)
        self._addresses = addresses(bootstrap)
        self._shadow = shadow
        self._group = group
        self._timeout = timeout
        self._settings: dict[str, Any] = {
            "bootstrap_servers": [f"{host}:{port}" for host, port in self._addresses],
            "client_id": _CLIENT_ID,
            "group_id": group,
            "auto_offset_reset": offset_reset,
            "isolation_level": isolation_level,
            "enable_auto_commit": False,
            **self._access.settings,
        }
        self._kafka: AIOKafkaConsumer | None = None
        self._ahead: dict[TopicPartition, ConsumerRecord[bytes | None, bytes | None]] = {}
        """Records that `lag` or `read_available` fetched and nobody has read yet: they are read next."""
        self._taking = asyncio.Lock()

    @property
    def shadow(self) -> str:
        """The name of the shadow."""
        return self._shadow

    @property
    def group(self) -> str | None:
        """The group whose cursors it moves; None without a group."""
        return self._group

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions assigned to this reader: all, or its share of the group's."""
        return frozenset(each.partition for each in self._open().assignment())

    # From the beginning to the end ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._kafka is not None:
            raise ValueError("a reader is used once: make another")
        try:
            async with asyncio.timeout(self._timeout):
                await self._check(self._timeout)
                self._kafka = AIOKafkaConsumer(**self._settings)
                self._kafka.subscribe([self._shadow], listener=_Forget(self._ahead))
                with _as_own():
                    await self._kafka.start()
        except TimeoutError:
            await self._stop()
            message = f"{self._shadow} cannot be read within {self._timeout:g} s"
            raise SidecarUnavailableError(ErrorCode.REQUEST_TIMED_OUT, message, retryable=True) from None
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def close(self) -> None:
        """End it; its group's other readers get its partitions. Repeating it is harmless."""
        await self._stop()

    async def _stop(self) -> None:
        if self._kafka is not None:
            with contextlib.suppress(KafkaError):
                await self._kafka.stop()

    async def _check(self, timeout: float) -> None:
        """Raise `SidecarError` if no node answers, or nodes do not know the topic."""
        found = await first(self._addresses, lambda address: self._described(address, timeout))
        if found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise SidecarError(found.error, f"there is no topic {self._shadow}, or it is a shadow that is closed")
        if found.error and not found.leaders:
            raise of_kafka(found.error, self._shadow)

    async def _described(self, address: tuple[str, int], timeout: float) -> TopicDescription:
        connection = await connect(address, _CLIENT_ID, timeout, self._access)
        try:
            await connection.call(describe_owners(self._shadow), timeout)  # Kafka itself hangs up on it
            if self._kafka is None and self._group is not None:
                await self._await_coordinator(connection, self._group, timeout)
            return (await connection.call(DescribeTopics((self._shadow,)), timeout)).topic(self._shadow)
        except SidecarUnavailableError as error:
            message = f"{error.message}; only a node of the sidecar can serve a shadow's records"
            raise SidecarUnavailableError(error.code, message, retryable=True) from None
        finally:
            await connection.close()

    async def _await_coordinator(self, connection: Connection, group: str, timeout: float) -> None:
        """Wait until Kafka has created `__consumer_offsets`, for a cluster's first group; aiokafka would log errors."""
        while True:
            found = await connection.call(FindCoordinator(group, CoordinatorKind.GROUP), timeout)
            if found.error != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                return
            await asyncio.sleep(_LONGEST_LOOK_S)

    def _open(self) -> AIOKafkaConsumer:
        if self._kafka is None:
            raise ValueError("a reader reads within `async with`")
        return self._kafka

    # Reading ----------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[bytes | None, bytes | None]:
        """The next record; waits for one as long as it takes. Cancelling it loses none."""
        kafka = self._open()
        while True:
            try:
                async with asyncio.timeout(_IDLE_S), self._taking:
                    for partition in self._ahead:
                        return self._ahead.pop(partition)
                    with _as_own():
                        return await kafka.getone()
            except TimeoutError:
                with contextlib.suppress(SidecarUnavailableError):  # aiokafka goes on trying
                    await self._check(_LOOK_S)

    async def read_available(self, limit: int = 500) -> Sequence[ConsumerRecord[bytes | None, bytes | None]]:
        """The next records of those that are in the log now, `limit` at most; none where all was read. It waits for
        nodes' answers, some seconds at most for each partition, never for a record to be written: a job that ends when
        there is no more to read, or a loop that has something else to do.

        ```python
        import asyncio
        from sidecar.client import ShadowReader

        async def main() -> None:
            async with ShadowReader("localhost:19092", shadow="orders-audit", group="audit") as reader:
                while records := await reader.read_available():
                    print(len(records))
                    await reader.commit()

        asyncio.run(main())
        ```

        Records of a partition are in order, and each partition in turn. Raises ValueError for a limit below 1;
        `SidecarUnavailableError` where records are there and no node returned any; `SidecarError` with code 3 for a
        shadow that is closed. Whatever it raises, or cancelled: it
        has read nothing. Use it in one task at a time, and not while another one waits for a record.
        """
        if limit < 1:
            raise ValueError(f"limit is {limit}, less than 1")
        kafka = self._open()
        found: list[ConsumerRecord[bytes | None, bytes | None]] = []
        try:
            async with self._taking:
                with _as_own():
                    is_whole = await self._read_all(kafka, limit, found)
            if not found and not is_whole:
                await self._check(_LOOK_S)
                message = f"no node returned the records of {self._shadow} that are there"
                raise SidecarUnavailableError(ErrorCode.REQUEST_TIMED_OUT, message, retryable=True)
        except BaseException:
            for record in reversed(found):
                with contextlib.suppress(ValueError):  # a partition that went to another reader meanwhile
                    self.seek(record.partition, record.offset)
            raise
        return found

    async def _read_all(
        self, kafka: AIOKafkaConsumer, limit: int, found: list[ConsumerRecord[bytes | None, bytes | None]]
    ) -> bool:
        """Read from all partitions; return False if records were left out for another reason than the limit."""
        mine = sorted(kafka.assignment())
        if not mine:
            await self._check(_LOOK_S)  # aiokafka has no partitions of what is gone
            return True
        try:
            async with asyncio.timeout(_IDLE_S):
                ends = await kafka.end_offsets(mine)
        except TimeoutError:
            return False
        return all([await self._read_up_to(kafka, each, ends[each], limit, found) for each in mine])

    async def _read_up_to(
        self,
        kafka: AIOKafkaConsumer,
        partition: TopicPartition,
        end: int,
        limit: int,
        found: list[ConsumerRecord[bytes | None, bytes | None]],
    ) -> bool:
        """Read up to `end`; return False if records before it were left out for another reason than the limit."""
        while len(found) < limit and await self._position(kafka, partition) < end:
            await self._look_ahead(kafka, partition, end)
            if partition not in self._ahead:
                return await kafka.position(partition) >= end
            found.append(self._ahead.pop(partition))
            if len(found) < limit:
                found += (await kafka.getmany(partition, max_records=limit - len(found))).get(partition, ())
        return True

    async def commit(self) -> None:
        """Move the group's cursors after the last records that were read. Raises ValueError without a group."""
        if self._group is None:
            raise ValueError("without a group there are no cursors to commit")
        kafka = self._open()
        with _as_own():
            if not self._ahead:
                await kafka.commit()
            else:
                await kafka.commit({each: await self._position(kafka, each) for each in kafka.assignment()})

    async def lag(self) -> Mapping[int, int]:
        """The number of offsets between this reader and the end of each of its partitions: the records that it has yet
        to read, and the transaction markers among them. 0 if only markers remain. With `read_committed` the end is the
        last stable offset.
        """
        kafka = self._open()
        with _as_own():
            mine = sorted(kafka.assignment())
            ends = await kafka.end_offsets(mine)
            if not self._taking.locked():  # else somebody waits for a record, and gets past markers by that
                async with self._taking:
                    for each in mine:
                        await self._look_ahead(kafka, each, ends[each])
            return {each.partition: max(0, ends[each] - await self._position(kafka, each)) for each in mine}

    async def _position(self, kafka: AIOKafkaConsumer, partition: TopicPartition) -> int:
        """The next offset of this reader. aiokafka's own position is after a record that was only fetched ahead."""
        ahead = self._ahead.get(partition)
        return await kafka.position(partition) if ahead is None else ahead.offset

    async def _look_ahead(self, kafka: AIOKafkaConsumer, partition: TopicPartition, end: int) -> None:
        """Fetch the next record before the end, if there is one. aiokafka skips a control batch, such as an owner's
        fence, only when it looks for a record after it.
        """
        now = asyncio.get_running_loop().time
        until, wait = now() + _IDLE_S, _FIRST_LOOK_S
        while partition not in self._ahead and await kafka.position(partition) < end and now() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    self._ahead[partition] = await kafka.getone(partition)
            wait = min(_LONGEST_LOOK_S, wait * 2)

    # Elsewhere --------------------------------------------------------------------------------------------------------

    def seek(self, partition: int, offset: int) -> None:
        """Continue at an offset of a partition. Raises ValueError if the partition is not assigned to this reader."""
        self._ahead.pop(TopicPartition(self._shadow, partition), None)
        try:
            self._open().seek(TopicPartition(self._shadow, partition), offset)
        except IllegalStateError:
            raise ValueError(f"partition {partition} is not this reader's: it has {sorted(self.partitions)}") from None

    async def seek_to_beginning(self) -> None:
        """Continue with the oldest record of each partition."""
        self._ahead.clear()
        with _as_own():
            await self._open().seek_to_beginning()

    async def seek_to_end(self) -> None:
        """Continue with the records that are written from now on."""
        self._ahead.clear()
        with _as_own():
            await self._open().seek_to_end()


class _Forget(ConsumerRebalanceListener):
    """Drops records fetched ahead when the group rebalances: its readers then continue at its cursors."""

    def __init__(self, ahead: dict[TopicPartition, ConsumerRecord[bytes | None, bytes | None]]) -> None:
        self._ahead = ahead

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._ahead.clear()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._ahead.clear()


@contextlib.contextmanager
def _as_own() -> Iterator[None]:
    """Raise errors of aiokafka as errors of the SDK."""
    try:
        yield
    except KafkaError as error:
        code = code_of(error)
        if code is None:
            raise SidecarUnavailableError(ErrorCode.NETWORK_EXCEPTION, str(error), retryable=error.retriable) from error
        raise of_kafka(code, str(error)) from error
