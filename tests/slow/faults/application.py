"""An application at work: it writes the ids of its name, sends again until it is answered, and notes what it was told.

It does what clients do: a lost connection or a retriable answer, and the same batch goes again with the same sequence,
perhaps to another node. An idempotent one is the same session over all its connections; `restart` makes it a new one.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from sidecar.protocol import produce_upstream
from tests.kafka.exclusive.producers import RawProducer, Sent, batch_of, id_headers
from tests.slow.faults.checker import Attempt, Key, Told

if TYPE_CHECKING:
    from sidecar.protocol.primitives import Octets

PATIENCE = 60.0
"""Seconds that an application tries: a crash of a node, its start and the sessions' graces are over by then."""

_PAUSE = 0.005
_AGAIN = frozenset({3, 5, 6, 7, 13, 19, 45})
REFUSED = frozenset({44})


_opened: WeakSet[Connection] = WeakSet()


def close_connections() -> None:
    """Close all that a test that failed left open: they would fail the test after it."""
    for connection in list(_opened):
        connection.close()
    _opened.clear()


class Connection(RawProducer):
    """One connection, batches with ids."""

    def __init__(self, bootstrap: str, client_id: str, producer_id: int = -1) -> None:
        super().__init__(bootstrap, client_id, producer_id)
        self.socket.settimeout(30)
        _opened.add(self)

    def push(self, topic: str, partition: int, batch: Octets, timeout_ms: int) -> int:
        """Send a batch; its correlation id. The answer comes with `finish`."""
        self._correlation += 1
        parts = produce_upstream.encode_request(
            self._correlation, self._client_id, 8, -1, timeout_ms, [(topic.encode(), partition, batch)]
        )
        self.socket.sendall(b"".join(parts))
        return self._correlation

    def is_answered(self) -> bool:
        """Wait until an answer is here to be read."""
        return bool(self.socket.recv(1, socket.MSG_PEEK))


class Application:
    """A producer name and what it was told. `addresses` are tried in turn; `mode` as in `client.id`."""

    def __init__(
        self,
        name: str,
        topic: str,
        addresses: Sequence[str],
        history: list[Attempt],
        *,
        plain: bool = False,
        mode: str = "",
    ) -> None:
        self.name = name
        self.topic = topic
        self.history = history
        self.unfinished: list[Key] = []
        self.addresses = list(addresses)
        self._client_id = f"{name};mode={mode}" if mode else name
        self._plain = plain
        self._connection: Connection | None = None
        self._producer_id = -1
        self._sequences: dict[int, int] = defaultdict(int)
        self._pending: list[Key] = []

    # Sessions -------------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """It ends and begins anew: another session, no memory."""
        self.disconnect()
        self._producer_id = -1
        self._sequences.clear()
        self._pending.clear()

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connect(self) -> Connection:
        """The connection, a new one where there is none. Raises `OSError`."""
        if self._connection is None:
            connection = Connection(self.addresses[0], self._client_id, self._producer_id)
            self._connection = connection
            if not self._plain and self._producer_id < 0:
                error, producer_id = connection.ask_producer_id()
                if error:
                    raise ConnectionError(f"no producer id: {error}")
                connection.producer_id = self._producer_id = producer_id
        return self._connection

    def elsewhere(self) -> None:
        """Go on by the next address."""
        self.disconnect()
        self.addresses.append(self.addresses.pop(0))

    # Writing --------------------------------------------------------------------------------------------------------

    def write(
        self,
        *ids: int,
        partition: int = 0,
        under: str | None = None,
        padding: int = 0,
        timeout_ms: int = 10_000,
        patience: float = PATIENCE,
        ends: Callable[[], bool] = lambda: False,
    ) -> bool:
        """One batch, until it is acknowledged: whether it was. `under`: another name, in the records' headers.

        `ends`: when to leave off, for `resume`.
        """
        keys = [Key(partition, under or self.name, each) for each in ids]
        assert not self._pending, "a session resumes first: its sequences are given to a batch for good"
        return self._write(keys, padding, timeout_ms, patience, ends)

    def resume(self) -> None:
        """Send the batch again that `write` left off with, if any, until it is acknowledged."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._write(pending, 0, 10_000, PATIENCE, lambda: False)

    def _write(self, keys: list[Key], padding: int, timeout_ms: int, patience: float, ends: Callable[[], bool]) -> bool:
        partition = keys[0].partition
        deadline = time.monotonic() + patience
        while True:
            try:
                connection = self.connect()
                batch = self.batch(keys, padding=padding)
                connection.push(self.topic, partition, batch, timeout_ms)
                sent = connection.finish()
            except OSError:
                self._note(keys, Told.INFO)
                self.elsewhere()
            else:
                if self._settles(keys, sent):
                    return sent.error in (0, 46)
            if ends():
                self._pending = keys
                return False
            if time.monotonic() > deadline:
                self.unfinished += keys
                return False
            time.sleep(_PAUSE)

    def batch(self, keys: list[Key], *, padding: int = 0, sequence: int | None = None) -> bytearray:
        """The next batch of the session, or the same one again; or one with a sequence of its own."""
        headers = [id_headers(key.id, None if key.name == self.name else key.name.encode()) for key in keys]
        values = [f"{key.name}:{key.id}".encode() + b"." * padding for key in keys]
        if self._plain:
            return batch_of(values, -1, -1, -1, headers=headers)
        if sequence is None:
            sequence = self._sequences[keys[0].partition]
        return batch_of(values, self._producer_id, 0, sequence, headers=headers)

    def key(self, number: int, partition: int = 0) -> Key:
        """A record under its own name."""
        return Key(partition, self.name, number)

    def settles(self, keys: list[Key], sent: Sent) -> bool:
        """Note an answer: whether the batch is done with."""
        return self._settles(keys, sent)

    def lost_sight(self, keys: list[Key]) -> None:
        """Note that nobody waits for an answer any more."""
        self._note(keys, Told.INFO)

    def _settles(self, keys: list[Key], sent: Sent) -> bool:
        partition = keys[0].partition
        if sent.error in (0, 46):
            self._sequences[partition] += len(keys)
            self._note(keys, Told.OK, sent.offset if sent.error == 0 else -1)
            return True
        if sent.error in _AGAIN:
            self._note(keys, Told.INFO)
            if sent.error == 6:
                self.elsewhere()
            return False
        self._note(keys, Told.FAIL)
        if sent.error in REFUSED:  # the application sends it anew; its client counts the sequences as used
            self._sequences[partition] += len(keys)
            return False
        return True

    def _note(self, keys: list[Key], told: Told, offset: int = -1) -> None:
        for index, key in enumerate(keys):
            self.history.append(Attempt(key, told, offset + index if offset >= 0 else -1))
