"""A raw Kafka client for tests: one socket, frames, messages of kio's in any version, answers read in order.

It does nothing by itself: no retries, no refresh, no threads. What it does not understand it leaves as bytes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from tests.frames import TIMEOUT, Frames
from tests.kafka.gateway.requests import request
from tests.unit.protocol import kio_entities as kio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.protocol.schema import Message, Values

PARKED_MS = int(2 * TIMEOUT * 1000)
"""`max_wait` of a Fetch that has to be answered before: who gets its answer only at the end of that has given up."""


class RawClient(Frames):
    """Requests may be sent without waiting; their answers come in order."""

    def __init__(self, address: str, client_id: str | None = "raw", *, receive_buffer: int | None = None) -> None:
        super().__init__(address, receive_buffer=receive_buffer)
        self.client_id = client_id
        self._correlation = 0
        self._expected: list[tuple[int, Any]] = []

    def frame(self, message: Any) -> bytes:
        """A request's frame with the next correlation id. Whoever sends it himself takes no answer for it."""
        self._correlation += 1
        return kio.request_frame(message, self._correlation, self.client_id)

    def send(self, message: Any, *, answered: bool = True) -> int:
        """Send a request; its correlation id. `answered` False: acks=0."""
        data = self.frame(message)
        if answered:
            answer = kio.entity(int(type(message).__api_key__), int(type(message).__version__), "response")
            self._expected.append((self._correlation, answer))
        self.send_bytes(data)
        return self._correlation

    def receive(self) -> Any:
        """The answer to the oldest request without one. Raises `ClosedError`."""
        correlation, cls = self._expected.pop(0)
        frame = self.receive_frame()
        assert int.from_bytes(frame[4:8], "big") == correlation, "answers out of order"
        return kio.answer_of(cls, frame)

    def ask(self, message: Any) -> Any:
        """Send a request and receive its answer; those of earlier requests must have been received."""
        assert not self._expected, "answers to earlier requests come first"
        self.send(message)
        return self.receive()

    def ask_values(self, message: Message, request: Any) -> Values:
        """As `ask`, the answer read by the node's own table: kio cannot read what has a time of -1."""
        frame = self.ask_bytes(request)
        return message.decode_answer(frame, 0, len(frame), int(type(request).__version__))

    def ask_bytes(self, request: Any) -> bytes:
        """As `ask`, the answer's frame as it came."""
        self.send(request, answered=False)
        return self.receive_frame()


# Requests ---------------------------------------------------------------------------------------------------------


def api_versions(version: int = 3) -> Any:
    return request(18, version, client_software_name="raw", client_software_version="1")


def batch(
    value: bytes = b"v", *, count: int = 1, producer: tuple[int, int] | None = None, sequence: int = 0
) -> bytearray:
    """A record batch, idempotent where it has a producer (id, epoch)."""
    stamp = None if producer is None else Stamp(ProducerId(producer[0]), ProducerEpoch(producer[1]))
    return build_batch([RawRecord(b"k", value)] * count, stamp, sequence)


Records = bytes | bytearray | None


def produce(
    parts: Mapping[tuple[str, int], Records], *, version: int = 8, acks: int = -1, transactional_id: str | None = None
) -> Any:
    """A Produce request: record sets by topic and partition."""
    data = [
        {"name": topic, "partition_data": [{"index": index, "records": None if found is None else bytes(found)}]}
        for (topic, index), found in parts.items()
    ]
    return request(0, version, acks=acks, timeout=20_000, topic_data=data, transactional_id=transactional_id)


def fetch(
    positions: Mapping[tuple[str, int], int],
    *,
    version: int = 11,
    max_wait: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 * 1024 * 1024,
    partition_max_bytes: int = 2**20,
    **fields: Any,
) -> Any:
    """A Fetch request: offsets by topic and partition."""
    limit = {"partition_max_bytes": partition_max_bytes}
    topics = [
        {"topic": topic, "partitions": [{"partition": index, "fetch_offset": offset, **limit}]}
        for (topic, index), offset in positions.items()
    ]
    fields = {"session_epoch": -1, "replica_id": -1, **fields}
    limits = {"max_wait": max_wait, "min_bytes": min_bytes, "max_bytes": max_bytes}
    return request(1, version, topics=topics, **limits, **_known(1, version, fields))


def list_offsets(at: Mapping[tuple[str, int], int], *, version: int = 7, **fields: Any) -> Any:
    """A ListOffsets request: times (Unix ms, -1 the end, -2 the beginning) by topic and partition."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": index, "timestamp": time}]}
        for (topic, index), time in at.items()
    ]
    return request(2, version, replica_id=-1, topics=topics, **_known(2, version, fields))


def metadata(topics: Iterable[str] | None, *, version: int = 9, create: bool = False) -> Any:
    """A Metadata request; None: all topics."""
    named = None if topics is None else [{"name": topic} for topic in topics]
    return request(3, version, topics=named, **_known(3, version, {"allow_auto_topic_creation": create}))


def init_producer_id(*, version: int = 3) -> Any:
    return request(
        22, version, transaction_timeout=60_000, **_known(22, version, {"producer_id": -1, "producer_epoch": -1})
    )


def find_coordinator(key: str, *, version: int = 3, kind: int = 0) -> Any:
    return request(10, version, key=key, **_known(10, version, {"key_type": kind}))


def _known(key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that this version has."""
    known = {field.name for field in dataclasses.fields(kio.entity(key, version, "request"))}
    return {name: value for name, value in fields.items() if name in known}


# Answers ----------------------------------------------------------------------------------------------------------


def produced(answer: Any) -> dict[tuple[str, int], Any]:
    """The partitions of a Produce answer."""
    return {(topic.name, found.index): found for topic in answer.responses for found in topic.partition_responses}


def fetched(answer: Any) -> dict[tuple[str, int], Any]:
    """The partitions of a Fetch answer."""
    return {(topic.topic, found.partition_index): found for topic in answer.responses for found in topic.partitions}


def code(found: Any) -> int:
    """The error code of a partition, or of a whole answer."""
    return int(found.error_code.value)
