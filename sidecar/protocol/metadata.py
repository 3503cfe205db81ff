"""Metadata, api key 3: requested upstream in version 10 by names and 12 by ids; clients get versions 0 to 13.

Versions: 1 controller, racks, internal flag · 2 cluster id · 4 auto-creation flag · 5 offline replicas · 7 leader
epochs · 8 authorized operations · 9 flexible · 10 topic ids in answers (KIP-516) · 11 no operations of the cluster ·
12 topics asked for by id · 13 an error of the whole answer (KIP-1102).

Coded by hand for speed: with the table an answer of 1,000 partitions takes 5 times as long to read and 12 times as
long to write.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import Request
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import I32, Reader, Writer, answer_frame, at_once, new_tuple
from sidecar.protocol.topic_ids import ID_BYTES, NO_TOPIC_ID

FIRST_WITH_IDS: Final = 10
"""The first version whose answers have topic ids."""
_FIRST_BY_ID: Final = 12
_FIRST_WITH_ERROR: Final = 13
NO_OPERATIONS: Final = -(2**31)
_PARTITION: Final = Struct(">hiii")
PADDING: Final = b"\x04" + b"".join(bytes((0x90 + number, 0xCE, 0x01, 0)) for number in range(4))
"""Four tagged fields of version 9 without content: 16 bytes that clients step over (KIP-482). librdkafka reserves four
times an answer's length for its parsed form. For topics of one partition with short names that is too little, unless
each has 16 bytes more, as the topic ids from version 10 on. Otherwise it rejects the answer as broken and never finds a
leader. Content is left out: librdkafka 2.1 steps over one byte too few of it, and crashes at what follows.
`tests/kafka/passthrough/test_metadata.py::test_librdkafka_reads_the_metadata_of_many_small_topics`."""


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """A request of a client, or of the node itself. `topics` None: all; empty: none (v1 and later).

    `ids`: topics by their ids, of 16 bytes; then `topics` is empty, as a broker ignores names beside ids.
    `faulty`: the answer to a request that brokers refuse; empty if it is valid.
    """

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool = True
    include_cluster_operations: bool = False
    include_topic_operations: bool = False
    ids: tuple[bytes, ...] = ()
    faulty: "tuple[TopicState, ...]" = ()

    @property
    def names_nothing(self) -> bool:
        return self.topics == () and not self.ids


def request_steps(reader: Reader, version: int) -> Generator[None, None, MetadataRequest]:
    """A client's request, body only (the tags of the header already read), in slices. A topic that is named twice
    counts once, as in a broker.
    """
    flexible = version >= 9
    count = reader.nullable_array(flexible, element_bytes=2)
    named: list[tuple[bytes, str | None]] = []
    for number in range(1, count + 1):
        if version < FIRST_WITH_IDS:
            named.append((NO_TOPIC_ID, reader.text(flexible)))
        else:
            named.append((reader.raw(ID_BYTES), reader.nullable_text(True)))
        reader.tags(flexible)
        if not number % BOUNDS.turn:
            yield
    auto = reader.boolean() if version >= 4 else True
    cluster = reader.boolean() if 8 <= version <= 10 else False
    of_topics = reader.boolean() if version >= 8 else False
    reader.tags(flexible)
    ids: tuple[bytes, ...] = ()
    if version >= FIRST_WITH_IDS:
        ids = tuple(dict.fromkeys(topic_id for topic_id, _ in named if topic_id != NO_TOPIC_ID))
    names = tuple(dict.fromkeys(name for _, name in named if name is not None))
    if version >= FIRST_WITH_IDS and _is_faulty(named, version):
        states = tuple(
            TopicState(name or "", ErrorCode.INVALID_REQUEST, UUID(bytes=topic_id), False, ())
            for topic_id, name in named
        )
        return MetadataRequest((), auto, cluster, of_topics, faulty=states)
    topics = None if count < 0 or (version == 0 and count == 0) else () if ids else names
    return MetadataRequest(topics, auto, cluster, of_topics, ids)


def _is_faulty(named: Iterable[tuple[bytes, str | None]], version: int) -> bool:
    """Whether topics are named by id before version 12, or have neither name nor id
    (`KafkaApis.handleTopicMetadataRequest`).
    """
    if version >= _FIRST_BY_ID:
        return any(name is None and topic_id == NO_TOPIC_ID for topic_id, name in named)
    return any(name is None or topic_id != NO_TOPIC_ID for topic_id, name in named)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker upstream; in an answer to a client, a node."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionState(NamedTuple):
    """A partition as its cluster describes it; `leader` and `leader_epoch` are -1 if there is none."""

    partition: int
    error: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as its cluster describes it. `name` is empty if it was requested by an unknown id."""

    name: str
    error: int
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionState, ...]
    operations: int = NO_OPERATIONS


@dataclass(frozen=True, slots=True)
class ClusterState:
    """An answer to Metadata. `error`: the error of the whole answer, only in answers to clients."""

    throttle_ms: int
    brokers: tuple[Broker, ...]
    cluster_id: str | None
    controller: int
    topics: tuple[TopicState, ...]
    operations: int = NO_OPERATIONS
    error: int = 0


class MetadataCall(Request[ClusterState]):
    """The request upstream by names, version 10, which Kafka has from 2.8 on."""

    api_key: ClassVar[int] = ApiKey.METADATA
    api_version: ClassVar[int] = 10
    flexible: ClassVar[bool] = True

    request: MetadataRequest

    def encode(self, writer: Writer) -> None:
        request = self.request
        if request.topics is None:
            writer.array(-1, True)
        else:
            writer.array(len(request.topics), True)
            out = writer.out
            for name in request.topics:
                out += NO_TOPIC_ID
                writer.text(name, True)
                out.append(0)
        writer.boolean(request.allow_auto_topic_creation)
        writer.boolean(request.include_cluster_operations)
        writer.boolean(request.include_topic_operations)
        writer.tags(True)

    def decode(self, reader: Reader) -> ClusterState:
        return at_once(self.decode_steps(reader))

    def decode_steps(self, reader: Reader) -> Generator[None, None, ClusterState]:
        """As `decode`, in slices: a cluster may have 100,000 partitions."""
        throttle_ms = reader.i32()
        brokers: list[Broker] = []
        for _ in range(reader.array(True, element_bytes=10)):
            brokers.append(Broker(reader.i32(), reader.text(True), reader.i32(), reader.nullable_text(True)))
            reader.skip_tags()
        cluster_id = reader.nullable_text(True)
        controller = reader.i32()
        topics: list[TopicState] = []
        sliced = 0
        for _ in range(reader.array(True, element_bytes=20)):
            topics.append(_read_topic(reader))
            sliced += 1 + len(topics[-1].partitions)
            if sliced >= BOUNDS.turn:
                sliced = 0
                yield
        operations = reader.i32() if self.api_version == MetadataCall.api_version else NO_OPERATIONS
        reader.skip_tags()
        return ClusterState(throttle_ms, tuple(brokers), cluster_id, controller, tuple(topics), operations)


class MetadataByIdCall(MetadataCall):
    """The request upstream by ids, version 12, which Kafka has from 3.1 on. It creates no topic."""

    api_version: ClassVar[int] = _FIRST_BY_ID

    def encode(self, writer: Writer) -> None:
        request = self.request
        writer.array(len(request.ids), True)
        for topic_id in request.ids:
            writer.raw(topic_id)
            writer.text(None, True)
            writer.tags(True)
        writer.boolean(False)
        writer.boolean(request.include_topic_operations)
        writer.tags(True)


def _read_topic(reader: Reader) -> TopicState:
    error = reader.i16()
    name = reader.nullable_text(True) or ""
    topic_id = UUID(bytes=reader.raw(ID_BYTES))
    internal = reader.boolean()
    partitions: list[PartitionState] = []
    for _ in range(reader.array(True, element_bytes=_PARTITION.size + 4)):
        code, index, leader, epoch = _PARTITION.unpack_from(reader.buffer, reader.skip(_PARTITION.size))
        for _ in range(3):  # replicas, in-sync replicas, offline replicas: a virtual cluster shows its own
            reader.skip_compact_array(4)
        reader.skip_tags()
        partitions.append(new_tuple(PartitionState, (index, code, leader, epoch)))
    operations = reader.i32()
    reader.skip_tags()
    return TopicState(name, error, topic_id, internal, tuple(partitions), operations)


def answer_steps(correlation_id: int, version: int, state: ClusterState) -> Generator[None, None, bytes]:
    """A whole answer frame for a client, versions 0 to 13, in slices. A partition's leader is its only replica, and in
    sync.
    """
    flexible = version >= 9
    writer = answer_frame(correlation_id, flexible)
    if version >= 3:
        writer.i32(state.throttle_ms)
    writer.array(len(state.brokers), flexible)
    for broker in state.brokers:
        writer.i32(broker.id)
        writer.text(broker.host, flexible)
        writer.i32(broker.port)
        if version >= 1:
            writer.text(broker.rack, flexible)
        writer.tags(flexible)
    if version >= 2:
        writer.text(state.cluster_id, flexible)
    if version >= 1:
        writer.i32(state.controller)
    writer.array(len(state.topics), flexible)
    sliced = 0
    for topic in state.topics:
        _write_topic(writer, version, topic)
        sliced += 1 + len(topic.partitions)
        if sliced >= BOUNDS.turn:
            sliced = 0
            yield
    if 8 <= version <= 10:
        writer.i32(state.operations)
    if version >= _FIRST_WITH_ERROR:
        writer.i16(state.error)
    writer.tags(flexible)
    return writer.frame()


def _write_topic(writer: Writer, version: int, topic: TopicState) -> None:
    flexible = version >= 9
    writer.i16(topic.error)
    writer.text(topic.name if topic.name or version < _FIRST_BY_ID else None, flexible)
    if version >= FIRST_WITH_IDS:
        writer.raw(topic.topic_id.bytes)
    if version >= 1:
        writer.boolean(topic.internal)
    writer.array(len(topic.partitions), flexible)
    out = writer.out
    for partition in topic.partitions:
        out += _partition(version, partition)
    if version >= 8:
        writer.i32(topic.operations)
    if flexible:
        writer.raw(PADDING if version < FIRST_WITH_IDS else b"\0")


_FLEXIBLE_PARTITION: Final = Struct(">hiiiBiBiBB")
_FLEXIBLE_LEADERLESS: Final = Struct(">hiiiBBBB")


def _partition(version: int, partition: PartitionState) -> bytes:
    index, error, leader, epoch = partition.partition, partition.error, partition.leader, partition.leader_epoch
    if version >= 9:
        if leader < 0:
            return _FLEXIBLE_LEADERLESS.pack(error, index, leader, epoch, 1, 1, 1, 0)
        return _FLEXIBLE_PARTITION.pack(error, index, leader, epoch, 2, leader, 2, leader, 1, 0)
    out = Struct(">hii").pack(error, index, leader)
    if version >= 7:
        out += I32.pack(epoch)
    replicas = I32.pack(0) if leader < 0 else Struct(">ii").pack(1, leader)
    out += replicas + replicas
    if version >= 5:
        out += I32.pack(0)
    return out
