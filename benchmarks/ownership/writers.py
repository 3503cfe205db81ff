"""A session that writes one batch at a time, as an idempotent client does, and insists until it is taken."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from benchmarks.raw_client import PASSING, Connection, IdempotentProducer, RefusedError, new_producer
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.calls.logs import FetchPartition
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

VALUE_BYTES: Final = 100
PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.002
_FETCH_BYTES: Final = 16_000_000


class Writer:
    """One session with a producer id of its own and one connection at a time; `acknowledged` are its batches."""

    def __init__(self, port: int, client_id: str, topic: str) -> None:
        self._connection = Connection(port, client_id)
        self._producer = IdempotentProducer(new_producer(self._connection), topic, VALUE_BYTES, client_id)
        self._client_id = client_id
        self.acknowledged = 0

    def try_once(self) -> None:
        """Send the next batch, again where it was not taken before. Raises RefusedError."""
        self._producer.check(self._connection.exchange(self._producer.prepare()))
        self.acknowledged += 1

    def write(self, pause: float = _PAUSE_S) -> float:
        """Try every few milliseconds until the batch is acknowledged; time.perf_counter() then.

        Raises RefusedError for codes that are final, or after `PATIENCE_S`.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.try_once()
            except RefusedError as error:
                if error.code not in PASSING or time.monotonic() > deadline:
                    raise
                time.sleep(pause)
            else:
                return time.perf_counter()

    def move(self, port: int) -> None:
        """Go on by another connection, to the same node or another one."""
        self._connection.close()
        self._connection = Connection(port, self._client_id)

    def check_refused(self, code: ErrorCode) -> None:
        """Try the next batch once. Raises RuntimeError where it is taken, RefusedError where another code comes."""
        try:
            self.try_once()
        except RefusedError as error:
            if error.code != code:
                raise
        else:
            raise RuntimeError(f"a batch that {code!r} should have refused was acknowledged")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_log(broker_port: int, topic: str, acknowledged: int) -> None:
    """Raises RuntimeError unless partition 0 holds as many records as were acknowledged, asked of Kafka itself."""
    written, offset = 0, 0
    with Connection(broker_port) as broker:
        while True:
            request = FetchPartition(TopicPartition(topic, 0), Offset(offset), 0, _FETCH_BYTES)
            records = broker.ask(request).records
            batches = batch_sizes(records, 0, len(records))
            headers = [read_header(records, start, start + size) for start, size in batches]
            if not headers:
                break
            written += sum(header.records for header in headers if not header.is_control)
            offset = headers[-1].base_offset + headers[-1].last_offset_delta + 1
    if written != acknowledged:
        raise RuntimeError(f"{topic}: {acknowledged} records acknowledged, {written} in the log")
