"""The synchronous twin of `sidecar.client.reader`: written by `python -m tools.sync`, not by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, Unpack

from aiokafka import ConsumerRecord

from sidecar.client.access import AccessParameters
from sidecar.client.reader import ShadowReader as _ShadowReader
from sidecar.client.sync.twin import Twin


class ShadowReader(Twin["_ShadowReader"]):
    """Reads a shadow topic from where its group stood, record by record. The shadow has to be there, as of
    `sidecar shadow create orders-audit --source orders`.

    ```python
    from sidecar.client.sync import ShadowReader

    def main() -> None:
        with ShadowReader("localhost:19092", shadow="orders-audit", group="audit") as reader:
            for record in reader:
                print(record.partition, record.offset, record.value)
                reader.commit()
                if not any(reader.lag().values()):
                    break

    main()
    ```

    `bootstrap` is `host:port,…` of nodes, or several of them. Records are aiokafka's `ConsumerRecord`, at the offsets
    that they have in the source; their `topic` is the shadow. Readers of one `group` share the partitions; its cursors
    are its own in each shadow, and `commit` moves them. Without a group every partition is read and nothing is kept.

    `offset_reset` says where to begin without a cursor, or with one that retention took the log from: `earliest` or
    `latest`. `isolation_level` as in Kafka: `read_committed` leaves out records of aborted transactions.
    `timeout` (seconds) bounds `with`, which ends once partitions are assigned.

    Kafka's protocol does not show whether the name is a shadow: an ordinary topic is read just the same. What does not
    exist, and a shadow that is closed, also while it is read, raise `SidecarError` with code 3; a cluster of Kafka
    without a node in front of it raises `SidecarUnavailableError`. Use it once, from as many threads as you like.

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
        super().__init__(
            _ShadowReader(
                bootstrap,
                shadow,
                group,
                offset_reset=offset_reset,
                isolation_level=isolation_level,
                timeout=timeout,
                **access,
            )
        )

    @property
    def shadow(self) -> str:
        """The name that is read."""
        return self._call(lambda: self._twin.shadow)

    @property
    def group(self) -> str | None:
        """Whose cursors it moves."""
        return self._call(lambda: self._twin.group)

    @property
    def partitions(self) -> frozenset[int]:
        """Those that this reader has now: all, or its share of the group's."""
        return self._call(lambda: self._twin.partitions)

    def __enter__(self) -> Self:
        self._start(self._twin.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(lambda: self._twin.__aexit__(kind, error, trace))

    def close(self) -> None:
        """End it; its group's other readers get its partitions. Repeating it is harmless."""
        self._finish(self._twin.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[bytes | None, bytes | None]:
        """The next record; waits for one as long as it takes. Interrupting it loses none."""
        try:
            return self._run(self._twin.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def read_available(self, limit: int = 500) -> Sequence[ConsumerRecord[bytes | None, bytes | None]]:
        """The next records of those that are in the log now, `limit` at most; none where all was read. It waits for
        nodes' answers, some seconds at most for each partition, never for a record to be written: a job that ends when
        there is no more to read, or a loop that has something else to do.

        ```python
        from sidecar.client.sync import ShadowReader

        def main() -> None:
            with ShadowReader("localhost:19092", shadow="orders-audit", group="audit") as reader:
                while records := reader.read_available():
                    print(len(records))
                    reader.commit()

        main()
        ```

        Records of a partition are in order, and each partition in turn. Raises ValueError for a limit below 1;
        `SidecarUnavailableError` where records are there and no node returned any; `SidecarError` with code 3 for a
        shadow that is closed. Whatever it raises, or cancelled: it
        has read nothing. Use it in one task at a time, and not while another one waits for a record.
        """
        return self._run(lambda: self._twin.read_available(limit))

    def commit(self) -> None:
        """Move the group's cursors after the last records that were read. Raises ValueError without a group."""
        return self._run(self._twin.commit)

    def lag(self) -> Mapping[int, int]:
        """How many offsets lie between this reader and the end of each of its partitions: the records that it has yet
        to read, and the markers of transactions among them. 0 where there is no record any more, whatever markers come
        last. With `read_committed` up to the last stable offset.
        """
        return self._run(self._twin.lag)

    def seek(self, partition: int, offset: int) -> None:
        """Go on at an offset of a partition. Raises ValueError where this reader does not have it."""
        return self._call(lambda: self._twin.seek(partition, offset))

    def seek_to_beginning(self) -> None:
        """Go on with the oldest record of each partition."""
        return self._run(self._twin.seek_to_beginning)

    def seek_to_end(self) -> None:
        """Go on with what is written from now on."""
        return self._run(self._twin.seek_to_end)
