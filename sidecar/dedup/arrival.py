"""A batch at a gate, and its session."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sidecar.dedup.content import Content, Headers, TooLargeAtOnceError
from sidecar.dedup.marks import Pushed
from sidecar.forwarder.outcome import Outcome
from sidecar.network.aside import Allowance
from sidecar.network.turn import TURN
from sidecar.protocol import limits
from sidecar.protocol.batch import HEADER_BYTES
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.records import RecordIds

_BYTES_AN_ELEMENT: Final = 8 * 1024
"""What is looked at in the time that an element of a request takes."""


class Session(NamedTuple):
    """The writer: its session id, its producer name (None where no name identifies it), and the producer id
    of its slot.
    """

    id: str
    name: bytes | None
    producer_id: int


@dataclass(slots=True, eq=False)
class Arrival:
    """A batch that wants in. `first` is the client's base sequence, -1 for a plain session. `turn` is asked once, with
    its ids: the answer to a batch that its connection sends out of turn. `allowance` is its connection's.
    """

    batch: memoryview
    first: ClientSequence
    records: int
    timeout_ms: int
    done: Callable[[Outcome], None]
    turn: Callable[[Content], Outcome | None] | None = None
    allowance: Allowance = field(default_factory=Allowance)
    content: Content | None = None
    is_large: bool = False
    """It cannot be opened at once."""
    fault: KafkaError | None = None
    rest: tuple[list[RecordIds], tuple[bytearray, tuple[Pushed, ...]]] | None = None
    """The batch without its duplicates, and the records that were kept for that."""
    until: float = 0.0

    def cut(self, content: Content, kept: list[RecordIds]) -> None:
        """Write it again with these records alone; takes a while."""
        self.rest = kept, content.without_duplicates(kept)


class Contents:
    """Looks into the batches of one session. Faults of one are reported when it has its turn (`Arrival.fault`)."""

    __slots__ = ("_headers", "_name", "_names_limit", "_read")

    def __init__(self, headers: Headers, name: bytes | None, names_limit: int) -> None:
        self._headers = headers
        self._name = name
        self._names_limit = names_limit
        self._read: tuple[bytes, Content] | None = None
        """The batch that was looked at last and not let out at once: its header, with the CRC, and what is in it."""

    def at_once(self, batch: memoryview, records: int) -> Content | None:
        """None for a bad one, and for a large one: both are looked at when their turn has come."""
        try:
            return self.opened(batch, records, at_once=True)
        except (KafkaError, TooLargeAtOnceError):
            return None

    def look_into(self, arrival: Arrival) -> None:
        """Open a large batch that is offered; takes a while. Raises `KafkaError`."""
        arrival.content = self.opened(arrival.batch, arrival.records)

    def opened(self, batch: memoryview, records: int, *, at_once: bool = False) -> Content:
        """What is in a batch. Raises `KafkaError`; with `at_once`, `TooLargeAtOnceError` for a large one, and where the
        turn has opened enough.
        """
        if not (at_once and TURN.running):
            return Content(batch, records, self._headers, self._name, at_once=at_once, names_limit=self._names_limit)
        if TURN.opened > limits.OPENED_A_TURN:
            raise TooLargeAtOnceError
        size = limits.BATCH_AT_ONCE_BYTES  # one that fails may have taken all that it was allowed
        try:
            found = Content(batch, records, self._headers, self._name, at_once=True, names_limit=self._names_limit)
            size = found.size
        finally:
            TURN.opened += size
            TURN.elements += size // _BYTES_AN_ELEMENT
        return found

    def remember(self, batch: memoryview, content: Content) -> None:
        """A batch that is not let out at once is about to be offered: `of` need not read it again."""
        self._read = bytes(batch[:HEADER_BYTES]), content

    def of(self, arrival: Arrival) -> Content | None:
        """What is in a batch that is offered; None where it has a fault, or is large: noted there."""
        read, self._read = self._read, None
        if read is not None and read[0] == bytes(arrival.batch[:HEADER_BYTES]):
            return read[1]
        try:
            return self.opened(arrival.batch, arrival.records, at_once=True)
        except TooLargeAtOnceError:
            arrival.is_large = True
        except KafkaError as error:
            arrival.fault = error
        return None
