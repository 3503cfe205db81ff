"""Keeps idempotent batches in order when a broker was lost while it had unanswered batches. Pure.

A client sends several batches of a partition without waiting. A client that is connected to a broker itself loses all
of them with that connection and sends all of them again. Behind a node, only the node's own connection is lost: the
client's next batches would be sent on the new connection, before the lost ones. Kafka refuses such a gap with 45
OUT_OF_ORDER_SEQUENCE_NUMBER (KIP-98), except from a producer that the partition does not know: its first batch may have
any sequence. Then the later batch is appended, the earlier ones, sent again, count as repeats, and the client
(librdkafka did) reports records as delivered that are not in the log.

If a partition's leader has moved, a batch has to wait, too, while the former leader has not answered an earlier one. A
former leader that is cut off may answer late, and its appended batches are truncated from its log: the new leader would
take the later batch as the first of its producer.

A batch for a partition without a leader, or for which no broker could be asked, is refused here, and the client sends
it again. If there is a leader for the next batch, that one must not be sent first.

The same holds for a topic that is no longer governed: while it was, the node wrote with its own producer id, so Kafka
does not know the client's. A batch that was refused then, and is sent again, comes before later ones.

So after a lost batch, later ones of its producer are not sent to the partition until the client has sent it again, or
a later one turns out to be in the log. Batches without a producer id have no order to preserve.
"""

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from sidecar.protocol.batch import SEQUENCE_MODULUS
from sidecar.protocol.topic_ids import stand_in

Buffer: TypeAlias = bytes | bytearray
"""No memoryview: a slice of one would keep the whole request in memory."""

_FROM: Final = 16
"""The offset in a batch of the bytes that identify its producer: the magic byte (offsets as in `protocol.batch`)."""
_TO: Final = 57
_PLACE: Final = Struct(">27xqhi")
_HALF: Final = SEQUENCE_MODULUS // 2


class Place(NamedTuple):
    """The position of a batch in its producer's order."""

    producer_id: int
    epoch: int
    sequence: int


def signature(buffer: Buffer, start: int, end: int) -> Buffer:
    """Returns a copy of the few bytes of a batch from which `place_of` reads its place later."""
    stop = start + _TO
    return buffer[start + _FROM : min(end, stop)]


def place_of(kept: Buffer) -> Place | None:
    """A batch's place; None for a batch without a producer id, or if it is not a v2 batch."""
    if len(kept) < _TO - _FROM or kept[0] != 2:
        return None
    found = Place(*_PLACE.unpack(kept))
    return found if found.producer_id >= 0 else None


class OrdinaryBatches:
    """The state of Produce for ordinary partitions on one client connection. `expected`: the batches that the client
    has to send again before later ones are accepted; nearly always empty. `were_sent`: whether it ever sent a batch to
    an ordinary partition. `sent_under`: the version of the cluster's view in which the brokers that have its unanswered
    batches lead.
    """

    __slots__ = ("expected", "sent_under", "were_sent")

    def __init__(self) -> None:
        self.were_sent = False
        self.sent_under = -1
        self.expected: dict[tuple[bytes, int], Place] = {}

    def matters(self) -> bool:
        """Whether the client's next batch may follow one that is unanswered or has to be sent again."""
        return self.were_sent or bool(self.expected)

    def lost(self, topic: bytes, partition: int, kept: Buffer) -> None:
        """Note that the client has to send a batch again. If there are several, the earliest in order counts."""
        place = place_of(kept)
        if place is not None:
            self.expects(topic, partition, place)

    def expects(self, topic: bytes, partition: int, place: Place) -> None:
        """As `lost`, for a batch with a producer id."""
        known = self.expected.get((topic, partition))
        if known is None or known[:2] != place[:2] or _is_ahead(known.sequence, place.sequence):
            self.expected[topic, partition] = place

    def appended(self, topic: bytes, partition: int, kept: Buffer) -> None:
        """Note that a batch is in the log. No earlier batch is expected any more: some clients (librdkafka) then treat
        earlier ones as delivered, and others send them again as repeats.
        """
        expected = self.expected.get((topic, partition))
        place = place_of(kept) if expected is not None else None
        if expected is None or place is None or place[:2] != expected[:2]:
            return
        if not _is_ahead(expected.sequence, place.sequence):
            del self.expected[topic, partition]

    def named(self, topic: bytes, partition: int, topic_id: bytes) -> None:
        """Move what is noted under a topic's id to its name, which was unknown when the batch was lost."""
        place = self.expected.pop((stand_in(topic_id), partition), None)
        if place is not None:
            self.expects(topic, partition, place)

    def admits(self, topic: bytes, partition: int, kept: Buffer) -> bool:
        """Whether a batch may be sent on: the expected one, an earlier one, or one of a new epoch or producer."""
        expected = self.expected.get((topic, partition))
        place = place_of(kept) if expected is not None else None
        if expected is None or place is None:
            return True
        if place[:2] == expected[:2] and place.sequence != expected.sequence:
            return _is_ahead(expected.sequence, place.sequence)
        del self.expected[topic, partition]
        return True


def _is_ahead(sequence: int, of: int) -> bool:
    """Whether a sequence is after `of`, by less than half the range: sequences wrap from 2^31 - 1 to 0."""
    return 0 < (sequence - of) % SEQUENCE_MODULUS < _HALF
