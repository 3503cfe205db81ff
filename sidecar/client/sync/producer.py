"""The synchronous twin of `sidecar.client.producer`: written by `python -m tools.sync`, not by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Literal, Self, Unpack

from sidecar.client.access import AccessParameters
from sidecar.client.creation import NewTopic
from sidecar.client.errors import SidecarError
from sidecar.client.names import Mode
from sidecar.client.producer import ExclusiveProducer as _ExclusiveProducer
from sidecar.client.receipt import Receipt, Record
from sidecar.client.sync.twin import LosableTwin


class ExclusiveProducer(LosableTwin["_ExclusiveProducer"]):
    """Owns a topic and writes to it; no other producer can until it releases or loses the topic.

    ```python
    from sidecar.client.sync import ExclusiveProducer

    def main() -> None:
        lines = [b"first", b"second", b"third"]
        with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
            for number, line in enumerate(lines):
                if number > producer.last_sequence_id:  # with deduplication: not what an earlier run wrote
                    print(producer.send(line))

    main()
    ```

    `bootstrap` is `host:port,…` of nodes, or several of them. `mode` decides what happens if another session owns the
    topic or waits for it (PIP-68): `exclusive` raises `ProducerBusyError`, `wait_for_exclusive` waits without a limit,
    `exclusive_with_fencing` takes the topic over. `name` is the producer's name, also for sequence ids: 1 to 255 bytes
    of UTF-8 without `;`, no client library's default, used by one live producer at a time. Without one a globally
    unique name is assigned, which `name` returns; no other producer can resume under that.

    `with` owns the topic before it enters the block, without writing a record, and releases it afterwards. With
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
    with your own records from there, not with other records under the next numbers. Records are dropped in two more
    cases: a record that failed while a later one of its partition, in flight at the same time, got into the log (if
    every record counts send one at a time, or by `send_all`, which writes none behind one that failed); and a name that
    was idle for six hours, which the node forgets: `last_sequence_id` is -1 then, although its records are in the log.

    `create=NewTopic(partitions=6)` makes the topic where it is missing; without it that is an error with code 3.

    `timeout` (seconds) bounds a `send`, and how long `with` tries while no node answers; waiting for other owners
    does not count. `compression` of batches: `gzip`, `snappy`, `lz4`, `zstd`.

    Nodes that have TLS or ask for a login take aiokafka's parameters, each by its name: `security_protocol` (by default
    `PLAINTEXT`), `ssl_context`, `sasl_mechanism` (`PLAIN`), `sasl_plain_username`, `sasl_plain_password`,
    `sasl_oauth_token_provider`.

    Use it once, from as many threads as you like.
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
        super().__init__(
            _ExclusiveProducer(
                bootstrap,
                topic,
                name,
                mode,
                initial_sequence_id,
                partitions=partitions,
                create=create,
                timeout=timeout,
                compression=compression,
                **access,
            )
        )

    @property
    def name(self) -> str:
        """The producer name, given or assigned."""
        return self._call(lambda: self._twin.name)

    @property
    def topic(self) -> str:
        """The topic."""
        return self._call(lambda: self._twin.topic)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that it owns or owned, in rising order; empty before."""
        return self._call(lambda: self._twin.partitions)

    @property
    def generation(self) -> int:
        """The generation under which the topic is or was owned: it rises with each owner, from 1 on; 0 before. The
        highest, where partitions have their own owners.
        """
        return self._call(lambda: self._twin.generation)

    @property
    def last_sequence_id(self) -> int:
        """Where to resume: the least of `last_sequence_ids` over `partitions`, -1 where any has none."""
        return self._call(lambda: self._twin.last_sequence_id)

    @property
    def last_sequence_ids(self) -> dict[int, int]:
        """The highest sequence id under this name that is in the log, by partition of the topic; absent: none."""
        return self._call(lambda: self._twin.last_sequence_ids)

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        sequence_id: int | None = None,
    ) -> Receipt:
        """Write a record and wait until it is in the log of every replica in sync.

        Threads may call it at once: in each partition records stand in the order of the calls. Without `partition`
        the key decides, as in Java's client; without a key see the class. `sequence_id` is at least 0 and above every
        id that this producer sent to the partition, save one that failed after all others.

        Raises `ProducerFencedError` once the topic is lost; `SequenceError`; `SidecarUnavailableError` after `timeout`
        seconds: giving its `sequence_id` again is safe; `SidecarError` with Kafka's code where the record itself is
        refused (10: too large, 3: no such partition, 42: one that this producer does not own). The error's `in_doubt`
        is True where the record may be in the log nonetheless, or may be written yet; else it is not. The other
        records of its batch fail in the same way. An interrupted `send` takes its record back if that has not left.
        """
        return self._run(
            lambda: self._twin.send(value, key=key, headers=headers, partition=partition, sequence_id=sequence_id)
        )

    def send_all(self, records: Iterable[Record | bytes | None]) -> list[Receipt | SidecarError]:
        """Write many records and wait for all of them; returns for each, in their order, its receipt or what `send`
        would have raised. Bytes stand for a record with this value alone.

        ```python
        from sidecar.client import Receipt, Record
        from sidecar.client.sync import ExclusiveProducer

        def main() -> None:
            records = [Record(b"paid", key=b"order-%d" % number) for number in range(1000)]
            with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
                for record, outcome in zip(records, producer.send_all(records), strict=True):
                    if isinstance(outcome, Receipt):
                        print(record.key, outcome.offset)
                    else:
                        print(record.key, outcome, outcome.in_doubt)

        main()
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
        Interrupted, it takes back what has not left.
        """
        return self._run(lambda: self._twin.send_all(records))

    def start(self) -> None:
        """Own the topic, as `with` does. Raises `ProducerBusyError`; `SequenceError` where `initial_sequence_id`
        is given and the topic has no deduplication; `SidecarUnavailableError`; `SidecarError` with code 3 for a topic
        or partition that does not exist, with code 42 for `partitions` of a topic that has one owner. Whatever it
        raises, or interrupted: nothing stays open.
        """
        return self._start(self._twin.start)

    def close(self) -> None:
        """Wait for what was sent, `timeout` seconds at most, then give the topic up. Interrupted, at once."""
        self._finish(self._twin.close)

    def __enter__(self) -> Self:
        self._start(self._twin.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(lambda: self._twin.__aexit__(kind, error, trace))
