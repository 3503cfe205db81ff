"""A producer that owns its topic (PIP-68) and whose records bear sequence ids (PIP-6): what an application sees.

Decides nothing by itself: `claim` owns the topic, `numbering` counts, `pipeline` sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Final, Literal, Self, Unpack

from sidecar.client.access import AccessParameters, NodeAccess
from sidecar.client.claim import Claim
from sidecar.client.creation import NewTopic, create_missing
from sidecar.client.errors import SidecarError, SidecarUnavailableError
from sidecar.client.names import Mode, assigned_name, check_mode, checked_name
from sidecar.client.numbering import Numbering
from sidecar.client.pipeline import Pipeline
from sidecar.client.receipt import Receipt, Record, codec_of
from sidecar.client.sending import Sender
from sidecar.client.transport import Transport
from sidecar.protocol.addresses import addresses
from sidecar.protocol.errors import ErrorCode

_POLL_S: Final = 1.0
_AGAIN_S: Final = 0.2
_POLLS_PER_REFRESH: Final = 30


class ExclusiveProducer:
    """Owns a topic and writes to it; no other producer can until it releases or loses the topic.

    ```python
    import asyncio
    from sidecar.client import ExclusiveProducer

    async def main() -> None:
        lines = [b"first", b"second", b"third"]
        async with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
            for number, line in enumerate(lines):
                if number > producer.last_sequence_id:  # with deduplication: not what an earlier run wrote
                    print(await producer.send(line))

    asyncio.run(main())
    ```

    `bootstrap` is `host:port,…` of nodes, or several of them. `mode` decides what happens if another session owns the
    topic or waits for it (PIP-68): `exclusive` raises `ProducerBusyError`, `wait_for_exclusive` waits without a limit,
    `exclusive_with_fencing` takes the topic over. `name` is the producer's name, also for sequence ids: 1 to 255 bytes
    of UTF-8 without `;`, no client library's default, used by one live producer at a time. Without one a globally
    unique name is assigned, which `name` returns; no other producer can resume under that.

    `async with` owns the topic before it enters the block, without writing a record, and releases it afterwards. With
    the policy's scope `partition` it owns every partition that exists at that moment, or only those in `partitions`. It
    then writes to no other partition, spreads records without key and partition over these, and loses all of them when
    it loses one; `last_sequence_id` is the lowest of these partitions. A key is hashed over all partitions of the
    topic, so that it stays in its partition; `send` refuses a key of a partition that this producer does not own. If a
    partition may move to another instance (a task of a stream processor), move the name with it: `name="totals-3",
    partitions=[3]`.

    **Sequence ids** are on if the topic has deduplication. Without `sequence_id` they count up from
    `last_sequence_id` + 1, or from `initial_sequence_id`, which is the id of the first record (PIP-6; Pulsar's own
    clients start one above it). Once you give one, give all. On a topic without deduplication `last_sequence_id` stays
    -1, records have no id, and giving one raises a `SequenceError` that names the policy to set.

    After a restart an application continues after `last_sequence_id`, or sends everything again: receipts of records
    that are in the log already have `duplicate`. A repeated record has to go to the same partition, so one without key
    and partition goes to partition id modulo their number. With several partitions `last_sequence_id` is the lowest of
    them: higher ids may be in some logs, and a *new* record under such an id would be dropped as a duplicate. So resume
    with your own records from there, not with other records under the next numbers. Records are dropped in one more
    case: a record that failed while a later one of its partition, in flight at the same time, got into the log. If
    every record counts, send one at a time, or by `send_all`, which writes none behind one that failed.

    A node may forget a name to make room for newer ones. Then `last_sequence_id` is -1 although records of that name
    are in the log, and a record that is sent again is written a second time.

    `create=NewTopic(partitions=6)` makes the topic where it is missing; without it that is an error with code 3.

    `timeout` (seconds) bounds a `send`, and how long `async with` tries while no node answers; waiting for other owners
    does not count. `compression` of batches: `gzip`, `snappy`, `lz4`, `zstd`.

    Nodes that have TLS or ask for a login take aiokafka's parameters, each by its name: `security_protocol` (by default
    `PLAINTEXT`), `ssl_context`, `sasl_mechanism` (`PLAIN`), `sasl_plain_username`, `sasl_plain_password`,
    `sasl_oauth_token_provider`.

    Use it in one event loop, once.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topic: str,
        name: str | None = None,
        mode: Mode = "wait_for_exclusive",
        initial_sequence_id: int | None = None,
        *,
        partitions: Collection[int] | None = None,
        create: NewTopic | None = None,
        timeout: float = 30.0,
        compression: Literal["gzip", "snappy", "lz4", "zstd"] | None = None,
        **access: Unpack[AccessParameters],
    ) -> None:
        check_mode(mode)
        if not topic:
            raise ValueError("topic is empty")
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout:g} s")
        self._name: str = assigned_name() if name is None else checked_name(name)
        self._topic: str = topic
        self._initial = initial_sequence_id
        self._timeout = timeout
        self._codec = codec_of(compression)
        wanted = None if partitions is None else _checked_partitions(partitions)
        if create is not None and not isinstance(create, NewTopic):
            raise TypeError(f"create is {create!r}: NewTopic(), with partitions=6 or as the brokers have it, or None")
        self._create = create
        self._claim = Claim(addresses(bootstrap), topic, self._name, mode, timeout, wanted, NodeAccess(**access))
        self._numbering = Numbering(topic, None, ())
        self._pipeline: Pipeline | None = None
        self._sender: Sender | None = None
        self._started = False
        self._error: SidecarError | None = None
        self._over = asyncio.Event()
        self._hurry = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    # What it knows --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The producer name, given or assigned."""
        return self._name

    @property
    def topic(self) -> str:
        """The topic."""
        return self._topic

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that it owns or owned, in rising order; empty before."""
        return tuple(self._claim.partitions)

    @property
    def generation(self) -> int:
        """The generation under which the topic is or was owned: it rises with each owner, from 1 on; 0 before. The
        highest, where partitions have their own owners.
        """
        return self._claim.generation

    @property
    def last_sequence_id(self) -> int:
        """Where to resume: the least of `last_sequence_ids` over `partitions`, -1 where any has none."""
        return self._numbering.last_id

    @property
    def last_sequence_ids(self) -> dict[int, int]:
        """The highest sequence id under this name that is in the log, by partition of the topic; absent: none."""
        return self._numbering.last_ids

    async def lost(self) -> None:
        """Return once the topic is not owned any more: at once where somebody else takes it, or at `close`. A node that
        cannot be reached is no loss: an application that has to stop then needs a timer.

        ```python
        import asyncio
        from sidecar.client import ExclusiveProducer

        async def lead() -> None:
            await asyncio.sleep(0.1)  # what only one may do at a time

        async def main() -> None:
            async with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
                work, lost = asyncio.create_task(lead()), asyncio.create_task(producer.lost())
                await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
                for task in (work, lost):
                    task.cancel()

        asyncio.run(main())
        ```
        """
        await self._over.wait()

    # Sending --------------------------------------------------------------------------------------------------------

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        sequence_id: int | None = None,
    ) -> Receipt:
        """Write a record and wait until it is in the log of every replica in sync.

        Several may be awaited at once: in each partition records stand in the order of the calls. Without `partition`
        the key decides, as in Java's client; without a key see the class. `sequence_id` is at least 0 and above every
        id that this producer sent to the partition, save one that failed after all others.

        Raises `ProducerFencedError` once the topic is lost; `SequenceError`; `SidecarUnavailableError` after `timeout`
        seconds: giving its `sequence_id` again is safe; `SidecarError` with Kafka's code where the record itself is
        refused (10: too large, 3: no such partition, 42: one that this producer does not own). The error's `in_doubt`
        is True where the record may be in the log nonetheless, or may be written yet; else it is not. The other
        records of its batch fail in the same way. A cancelled `send` takes its record back if that has not left.
        """
        return await self._opened().send(Record(value, key, headers, partition, sequence_id))

    async def send_all(self, records: Iterable[Record | bytes | None]) -> list[Receipt | SidecarError]:
        """Write many records and wait for all of them; returns for each, in their order, its receipt or what `send`
        would have raised. Bytes stand for a record with this value alone.

        ```python
        import asyncio
        from sidecar.client import ExclusiveProducer, Receipt, Record

        async def main() -> None:
            records = [Record(b"paid", key=b"order-%d" % number) for number in range(1000)]
            async with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
                for record, outcome in zip(records, await producer.send_all(records), strict=True):
                    if isinstance(outcome, Receipt):
                        print(record.key, outcome.offset)
                    else:
                        print(record.key, outcome, outcome.in_doubt)

        asyncio.run(main())
        ```

        In each partition records stand in their order, and none behind one that failed: what had not left by then is
        not sent, its error has code 55 OPERATION_NOT_ATTEMPTED. So each partition has the beginning of what was given
        for it; send again, in their order, the records that have an error, and no other. Only what is no record at all,
        or has a wrong id or partition, stops no other. **Once the topic is lost** every record that has no outcome yet
        gets a `ProducerFencedError`. The successor's records stand behind all of this producer's. Any error's
        `in_doubt` says whether its record may be in the log nonetheless, because an answer was lost: False, it is not;
        True, sent again it may be there twice, unless it bears the same `sequence_id`.

        `timeout` bounds each record from when it is taken. `records` is read as far as there is room: 8 MiB or 10,000
        records without an outcome. Raises RuntimeError for a producer that is not open, and what `records` raises.
        Cancelled, it takes back what has not left.
        """
        return await self._opened().send_all(records)

    def _opened(self) -> Sender:
        if self._error is None and (self._sender is None or self._ending is not None):
            raise RuntimeError("the producer is not open: use `async with`")
        assert self._sender is not None
        return self._sender

    # Life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Own the topic, as `async with` does. Raises `ProducerBusyError`; `SequenceError` where `initial_sequence_id`
        is given and the topic has no deduplication; `SidecarUnavailableError`; `SidecarError` with code 3 for a topic
        or partition that does not exist, with code 42 for `partitions` of a topic that has one owner. Whatever it
        raises, or cancelled: nothing stays open.
        """
        if self._started:
            raise RuntimeError("a producer is used once: create another one")
        self._started = True
        try:
            await self._open()
        except BaseException:
            await self._end(drain=False)
            raise

    async def _open(self) -> None:
        claim = self._claim
        if self._create is not None:
            await create_missing(claim.addresses, claim.access, self._name, self._topic, self._create, self._timeout)
        await claim.take()
        self._numbering = Numbering(self._topic, await claim.last_ids(), claim.partitions, self._initial)
        transport = Transport(claim, self._codec)
        await transport.start()
        self._pipeline = pipeline = Pipeline(claim, self._numbering, transport, self._lose)
        self._sender = Sender(claim, self._numbering, pipeline, self._timeout)
        self._watcher = asyncio.create_task(self._watch(pipeline))

    async def close(self) -> None:
        """Wait for what was sent, `timeout` seconds at most, then give the topic up. Cancelled, it does so at once."""
        self._started = True
        await self._end(drain=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(drain=kind is None)

    async def _end(self, *, drain: bool) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._shut())
        if not drain:
            self._hurry.set()
        try:
            await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            self._hurry.set()
            await asyncio.wait({self._ending})
            raise

    async def _shut(self) -> None:
        pipeline, watcher = self._pipeline, self._watcher
        if pipeline is not None and self._error is None:
            drained, hurried = asyncio.ensure_future(pipeline.drain()), asyncio.ensure_future(self._hurry.wait())
            await asyncio.wait({drained, hurried}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            for task in (drained, hurried):
                task.cancel()
            await asyncio.gather(drained, hurried, return_exceptions=True)
        if watcher is not None:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        closed = "the producer was closed; the record may have been written"
        if pipeline is not None:
            await pipeline.close(SidecarUnavailableError(ErrorCode.NETWORK_EXCEPTION, closed, retryable=True))
        await self._claim.end()
        self._over.set()

    # Losing it ------------------------------------------------------------------------------------------------------

    async def _watch(self, pipeline: Pipeline) -> None:
        polls = 0
        while True:
            is_away = False
            try:
                await self._claim.check()
                polls += 1
                if polls % _POLLS_PER_REFRESH == 0:
                    await self._claim.refresh()
                    self._numbering.partitions = self._claim.partitions
            except SidecarUnavailableError:
                is_away = True
            except SidecarError as error:
                pipeline.fail(error)
                return
            if is_away:
                await asyncio.sleep(_AGAIN_S)
            else:
                await self._claim.news(_POLL_S)

    def _lose(self, error: SidecarError) -> None:
        self._error = error
        self._over.set()


def _checked_partitions(partitions: Collection[int]) -> tuple[int, ...]:
    wrong = [each for each in partitions if isinstance(each, bool) or not isinstance(each, int) or each < 0]
    if wrong:
        raise ValueError(f"partitions: {wrong[0]!r} is no number of a partition, from 0 on")
    if not partitions:
        raise ValueError("partitions is empty: name some, or None for every partition of the topic")
    return tuple(sorted(set(partitions)))
