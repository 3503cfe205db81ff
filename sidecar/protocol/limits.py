"""What one request may cost: all limits on a stranger's bytes, each with its reason. Pure.

A node is one event loop that also renews leases and serves all other clients. So no client's data may block it for
longer than about 50 ms, or make it store much more than the bytes that it received:

- A frame is refused by its length, before it is received (`frame_bytes`).
- The elements of a request are counted by the lengths of its arrays, before they are walked (`elements`).
- Large valid requests are handled in slices, between which others have their turn (`Bounds.turn`).
- Records are opened only for a client that may write them. A small batch is opened at once, a large one by a thread:
  codecs work without Python's lock (`BATCH_AT_ONCE_BYTES`).

Settings change some of these (`BOUNDS`). Measurements: docs/operate/performance.md, "What one frame may cost".
"""

from typing import Final

from sidecar.protocol.api import ApiKey

FRAME_BYTES: Final = 4 * 1024 * 1024
"""The largest request of any API but Produce. Kafka's default for all of them, 100 MiB, is meant for records. 4 MiB are
100,000 partitions of Fetch or ListOffsets, or names of 40 bytes; an assignment of a group has to fit into a message of
the offsets topic, 1 MiB by default.
"""

_PRODUCE: Final = ApiKey.PRODUCE.value

SMALL_FRAME_BYTES: Final = 64 * 1024
_SMALL: Final = frozenset(
    {
        ApiKey.FIND_COORDINATOR.value,
        ApiKey.HEARTBEAT.value,
        ApiKey.API_VERSIONS.value,
        ApiKey.INIT_PRODUCER_ID.value,
        ApiKey.ADD_OFFSETS_TO_TXN.value,
        ApiKey.END_TXN.value,
        ApiKey.DESCRIBE_CLUSTER.value,
        ApiKey.CONSUMER_GROUP_HEARTBEAT.value,
    }
)
"""APIs that name one thing. A string has at most 32 KiB on the wire. Numbers, because they are compared faster."""

ELEMENTS: Final = 20_000
"""Elements of all arrays of a request, tagged fields included, unless `_MORE` says otherwise. The Kafka controller
takes no more than 10,000 changes in one request (`QuorumController.MAX_RECORDS_PER_USER_OP`).
"""

_MORE: Final = {
    _PRODUCE: 15_000,  # a batch has 70 bytes, so a client's default of 1 MiB holds no more
    ApiKey.FETCH: 20_000,  # walked at once: each one of a consumer names all partitions that it reads
    ApiKey.LIST_OFFSETS: 110_000,  # monitoring asks for all partitions of a cluster at once
    ApiKey.METADATA: 50_000,  # names; a client that wants all of them names none
    ApiKey.API_VERSIONS: 100,  # it has two fields
    ApiKey.DELETE_RECORDS: 110_000,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 110_000,
    ApiKey.SHARE_FETCH: 60_000,  # a byte for each record, of which a member can have 2,000 of a partition
    ApiKey.SHARE_ACKNOWLEDGE: 60_000,
}
"""Enough for 100,000 partitions in up to 10,000 topics, about a whole cluster; they are walked in slices. APIs whose
elements become objects have fewer: the garbage collector visits all objects in one pass, 1 ms for 1,000.
"""

AT_ONCE_BYTES: Final = 16 * 1024
"""A request or an answer up to this size is always short; a larger one may have to be handled in slices."""

ANY_API: Final = -1
"""The key for APIs without a limit of their own."""

MOST_ELEMENTS: Final = max(_MORE.values())
"""The limit of the API that may have the most. The setting `max_request_elements` replaces it, the others in
proportion.
"""
MOST_CONNECTIONS: Final = 10_000_000
"""The highest connection limit that settings may have."""
LEAST_ELEMENTS: Final = 100
"""The lowest limit of any API, however low that setting is."""

SLICE: Final = 256
"""Elements that are handled before others have a turn, unless `turn_elements` says otherwise: 3 ms at 10 µs each."""

PORTION: Final = 8 * SLICE
"""Elements that are moved from one list to another, or looked up, before others have a turn: less than 1 ms."""

BATCH_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of one batch's records, decompressed. More is treated as a decompression bomb."""

BATCH_AT_ONCE_BYTES: Final = 1024 * 1024
"""Bytes of decompressed records that are read on the event loop: 1 ms. A thread reads larger batches, one at a time."""

OPENED_A_TURN: Final = 4 * BATCH_AT_ONCE_BYTES
"""Bytes of records that are read before others have a turn, if one request has many batches. A thread reads the rest.
"""

OPENED_A_SECOND: Final = 128 * 1024 * 1024
"""Bytes of decompressed records a second that the thread reads for one connection, unless `decompression_byte_rate`
says otherwise: a tenth of its capacity. Further batches wait; after two seconds they must be sent again.
"""

BATCH_RECORDS: Final = 100_000
"""Records with sequence ids in one batch. Each becomes an object if a batch is split; librdkafka writes 10,000
and Java a few thousand.
"""

RECORDS_AT_ONCE: Final = 1_000
"""Records of a batch that is split on the event loop: 2 ms."""

KEPT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of batches, as received, that were refused and whose ids may be needed later, per connection."""

KEPT_BATCHES: Final = 512
"""The most such batches per connection, which is also the limit of its unanswered requests."""

KEPT_IN_ALL_BYTES: Final = 64 * 1024 * 1024
"""The most such bytes of all connections."""


class Bounds:
    """The limits that settings change. One process has one set of them, as it has one event loop.

    `elements`: of all arrays of one request, by the API that may have the most; `produce`, `fetch` and `partitions`:
    the resulting limits of Produce, of Fetch, and of ListOffsets and similar APIs. `turn`: elements that are handled
    before others have a turn. `objects`: the same for elements that become dicts of fields (20 µs and more each).
    `opened_a_second`: bytes of records that the thread opens for one connection.
    """

    __slots__ = ("elements", "fetch", "objects", "opened_a_second", "partitions", "produce", "turn")

    def __init__(self) -> None:
        self.move()

    def move(self, elements: int = MOST_ELEMENTS, turn: int = SLICE, opened_a_second: int = OPENED_A_SECOND) -> None:
        """Set these limits; without arguments, the defaults."""
        self.elements, self.turn, self.opened_a_second = elements, turn, opened_a_second
        self.objects = max(1, turn // 4)
        self.produce, self.fetch = self.of(ApiKey.PRODUCE), self.of(ApiKey.FETCH)
        self.partitions = self.of(ApiKey.LIST_OFFSETS)

    def of(self, api_key: int) -> int:
        """Elements of all arrays of one request of this API."""
        return max(LEAST_ELEMENTS, _MORE.get(api_key, ELEMENTS) * self.elements // MOST_ELEMENTS)


BOUNDS: Final = Bounds()


def frame_bytes(api_key: int, produce: int) -> int:
    """The largest request of an API, in bytes after the length prefix; `produce` is that of Produce."""
    if api_key == _PRODUCE:
        return produce
    return min(produce, SMALL_FRAME_BYTES if api_key in _SMALL else FRAME_BYTES)


def elements(api_key: int) -> int:
    """Elements of all arrays of one request."""
    return BOUNDS.of(api_key)
