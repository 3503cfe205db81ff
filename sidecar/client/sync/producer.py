"""The synchronous twin of `sidecar.client.producer`: written by `python -m tools.sync`, not by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ssl import SSLContext
from types import TracebackType
from typing import Literal, Self

from sidecar.client.access import SaslMechanism, SecurityProtocol, TokenProvider
from sidecar.client.names import Mode
from sidecar.client.producer import ExclusiveProducer as _ExclusiveProducer
from sidecar.client.receipt import Receipt
from sidecar.client.sync.twin import LosableTwin


class ExclusiveProducer(LosableTwin["_ExclusiveProducer"]):
    """Owns a topic and writes to it; nobody else does until it lets go or loses it.

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

    `bootstrap` is `host:port,…` of nodes, or several of them. `mode`, where somebody else owns the topic or waits for
    it: `exclusive` raises `ProducerBusyError`, `wait_for_exclusive` waits as long as it takes, `exclusive_with_fencing`
    takes the topic away. `name` is who this is, for people and for sequence ids: 1 to 255 bytes of UTF-8 without `;`,
    none of the names that client libraries have by default, borne by one live producer at a time. Without one a
    globally unique name is assigned, which `name` tells; nobody resumes under that.

    `with` owns the topic before it enters the block and without writing a record, and gives it up behind it.
    Where each partition has an owner of its own (the policy's scope `partition`), it owns every partition that there
    is then, or those in `partitions` alone: it writes to no other, its records without key and partition are spread
    over these, `last_sequence_id` is the least of theirs, and losing one of them is losing all. A key still decides
    among all partitions of the topic, so that a key stays where it is whoever owns what; `send` refuses one that
    belongs to somebody else's partition. For one partition that may move to another instance (a task of a stream
    processor), let the name move with it: `name="totals-3", partitions=[3]`.

    **Sequence ids** are on where the topic has deduplication. Without `sequence_id` they count up from
    `last_sequence_id` + 1, or from `initial_sequence_id`: that is the id of the first record (PIP-6; Pulsar's own
    clients begin one above it). Once one is given each has to be. On a topic without deduplication
    `last_sequence_id` stays -1, records bear no id, and whoever gives one gets a `SequenceError` that names the policy
    to set. An application that was restarted goes on with what follows `last_sequence_id`, or sends everything again:
    receipts of what was there already say `duplicate`. For that a record has to come to the same partition each time,
    so one without key and partition goes to partition id modulo their number. On a topic with several partitions
    `last_sequence_id` is the least of theirs: ids behind it may be in the log, and a *new* record under one of these
    would be taken for a duplicate. So go on with your own records from there; do not count on numbers alone. Two more
    things end in such a loss: a record that failed while a later one of its partition, under way at the same time, got
    into the log (one at a time where every record counts); and a name that was idle for six hours, which the
    node forgets: -1 is told then, though its records are there.

    `timeout` (seconds) bounds a `send`, and how long `with` tries while no node answers; waiting for others
    does not count. `compression` of batches: `gzip`, `snappy`, `lz4`, `zstd`.

    Nodes that have TLS or ask for a login take aiokafka's parameters: `security_protocol`, `ssl_context`,
    `sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password`, `sasl_oauth_token_provider`.

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
        timeout: float = 30.0,
        compression: Literal["gzip", "snappy", "lz4", "zstd"] | None = None,
        security_protocol: SecurityProtocol = "PLAINTEXT",
        ssl_context: SSLContext | None = None,
        sasl_mechanism: SaslMechanism = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_oauth_token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(
            _ExclusiveProducer(
                bootstrap,
                topic,
                name,
                mode,
                initial_sequence_id,
                partitions=partitions,
                timeout=timeout,
                compression=compression,
                security_protocol=security_protocol,
                ssl_context=ssl_context,
                sasl_mechanism=sasl_mechanism,
                sasl_plain_username=sasl_plain_username,
                sasl_plain_password=sasl_plain_password,
                sasl_oauth_token_provider=sasl_oauth_token_provider,
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
        highest, where partitions have owners of their own.
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
        id that this producer sent to the partition, save one that failed behind all others.

        Raises `ProducerFencedError` once the topic is lost; `SequenceError`; `SidecarUnavailableError` after `timeout`
        seconds: whether the record will be written is not known then, and giving its `sequence_id` again is safe;
        `SidecarError` with Kafka's code where the record itself is refused (10: too large, 3: no such partition, 42:
        one that this producer does not own): it is not in the log, unless the message says that an earlier try may
        have been written, and the same goes for those that left in one batch with it, which fail alike. A cancelled
        `send` takes its record back if that has not left.
        """
        return self._run(
            lambda: self._twin.send(value, key=key, headers=headers, partition=partition, sequence_id=sequence_id)
        )

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
