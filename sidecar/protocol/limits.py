"""What one request may cost: every bound on a stranger's bytes, in one place, each with its reason. Pure.

A node is one event loop that also renews leases and serves everybody else. So nothing that a client sends may hold it
for longer than some 50 ms, or make it keep much more than the bytes that it received:

- A frame is refused by its length, before it is received (`frame_bytes`).
- The elements of a request are counted by the lengths of its arrays, before they are walked (`elements`).
- What is legal and large is taken up in slices, between which others have their turn (`Bounds.turn`).
- Records are opened only for a client that may write them. A small batch is opened at once, a large one by a thread:
  codecs work without Python's lock (`BATCH_AT_ONCE_BYTES`).

Settings move some of these (`BOUNDS`). Measured in docs/performance.md, "What one frame may cost".
"""

from typing import Final

FRAME_BYTES: Final = 4 * 1024 * 1024
"""A request of any API but Produce. Kafka's default for all of them, 100 MiB, is meant for records. 4 MiB are 100,000
partitions of Fetch or ListOffsets, or names of 40 bytes; an assignment of a group has to fit into a message of the
offsets topic, 1 MiB by default.
"""

PRODUCE: Final = 0
_PRODUCE_ONLY: Final = frozenset({PRODUCE})

SMALL_FRAME_BYTES: Final = 64 * 1024
_SMALL: Final = frozenset({10, 12, 18, 22, 25, 26, 60, 68})
"""APIs that name one thing: FindCoordinator, Heartbeat, ApiVersions, InitProducerId, AddOffsetsToTxn, EndTxn,
DescribeCluster, ConsumerGroupHeartbeat. A string has at most 32 KiB on the wire.
"""

ELEMENTS: Final = 20_000
"""Elements of all arrays of a request, tagged fields included, unless `_MORE` says otherwise. The Kafka controller
takes no more than 10,000 changes in one request (`QuorumController.MAX_RECORDS_PER_USER_OP`).
"""

_MORE: Final = {
    0: 15_000,  # Produce: a batch has 70 bytes, so a client's default of 1 MiB holds no more
    1: 20_000,  # Fetch, which is walked at once: every one of a consumer names all that it reads
    2: 110_000,  # ListOffsets: monitoring asks for all partitions of a cluster at once
    3: 50_000,  # Metadata: names; a client that wants all of them names none
    18: 100,  # ApiVersions has two fields
    21: 110_000,  # DeleteRecords
    23: 110_000,  # OffsetForLeaderEpoch
    78: 60_000,  # ShareFetch, ShareAcknowledge: a byte for each record, of which a member can have 2,000 of a partition
    79: 60_000,
}
"""For 100,000 partitions in up to 10,000 topics, about what a whole cluster has; they are walked in slices. What makes
objects of its elements has fewer: the collector of garbage looks at all of them in one go, 1 ms for 1,000.
"""

AT_ONCE_BYTES: Final = 16 * 1024
"""A request or an answer of this size is short in any case; what is larger may have to be taken up in slices."""

ANY_API: Final = -1
"""Stands for one that is not told apart."""

MOST_ELEMENTS: Final = max(_MORE.values())
"""Of the API that may have the most; the setting `max_request_elements` names it, and the others keep their share."""
MOST_CONNECTIONS: Final = 10_000_000
"""The highest limit of connections that settings may say."""
LEAST_ELEMENTS: Final = 100
"""Of any API, however low that setting is."""

SLICE: Final = 256
"""Elements that are taken up before others have a turn, unless `turn_elements` says otherwise: 3 ms at 10 µs each."""

PORTION: Final = 8 * SLICE
"""Elements that are moved from one list to another, or looked up, before others have a turn: less than 1 ms."""

BATCH_BYTES: Final = 64 * 1024 * 1024
"""The records of one batch, decompressed. More is no batch but a bomb."""

BATCH_AT_ONCE_BYTES: Final = 1024 * 1024
"""Records, decompressed, that are looked at on the event loop: 1 ms. More by a thread, one batch at a time."""

OPENED_A_TURN: Final = 4 * BATCH_AT_ONCE_BYTES
"""Bytes of records that are looked at before others have a turn, where one request has many batches. The rest by a
thread.
"""

OPENED_A_SECOND: Final = 128 * 1024 * 1024
"""Bytes of records, decompressed, that the thread looks at for one connection, unless `decompression_byte_rate` says
otherwise: a tenth of what it can. What comes after that waits, and has to come again after two seconds.
"""

BATCH_RECORDS: Final = 100_000
"""Records with sequence ids in one batch. Each is an object where a batch is taken apart, and librdkafka and Java
write 10,000 and a few thousand.
"""

RECORDS_AT_ONCE: Final = 1_000
"""Records that are taken apart one by one on the event loop: 2 ms."""

KEPT_BYTES: Final = 4 * 1024 * 1024
"""Of batches that were not let in and whose ids may matter later, per connection, as they came."""

KEPT_BATCHES: Final = 512
"""As many, per connection: its requests without an answer are no more than that."""

KEPT_IN_ALL_BYTES: Final = 64 * 1024 * 1024
"""Of all connections."""


class Bounds:
    """The bounds that settings move. One process has one set of them, as it has one event loop.

    `elements`: of all arrays of one request, by the API that may have the most; `produce`, `fetch` and `partitions`:
    what that makes of Produce, of Fetch, and of ListOffsets and its like, for their walks. `turn`: elements that are
    taken up before others have a turn, `objects` of those that become dicts of fields (20 µs and more each).
    `opened_a_second`: bytes of records that the thread opens for one connection.
    """

    __slots__ = ("elements", "fetch", "objects", "opened_a_second", "partitions", "produce", "turn")

    def __init__(self) -> None:
        self.move()

    def move(self, elements: int = MOST_ELEMENTS, turn: int = SLICE, opened_a_second: int = OPENED_A_SECOND) -> None:
        """Have these from now on; without arguments those that hold without settings."""
        self.elements, self.turn, self.opened_a_second = elements, turn, opened_a_second
        self.objects = max(1, turn // 4)
        self.produce, self.fetch, self.partitions = self.of(PRODUCE), self.of(1), self.of(2)

    def of(self, api_key: int) -> int:
        """Elements of all arrays of one request of this API."""
        return max(LEAST_ELEMENTS, _MORE.get(api_key, ELEMENTS) * self.elements // MOST_ELEMENTS)


BOUNDS: Final = Bounds()


def frame_bytes(api_key: int, produce: int) -> int:
    """The largest request of an API, in bytes after the length prefix; `produce` is that of Produce."""
    if api_key in _PRODUCE_ONLY:
        return produce
    return min(produce, SMALL_FRAME_BYTES if api_key in _SMALL else FRAME_BYTES)


def elements(api_key: int) -> int:
    """Elements of all arrays of one request."""
    return BOUNDS.of(api_key)
