"""A second opinion from Kafka itself: how the records that a client wrote lie in the log, whoever passed them on.

Asked with one Fetch v4 at the brokers, directly. A client that quietly left out the compression, the producer id or the
transaction it was asked for would read its records back all the same.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass

_TIMEOUT_S = 10.0
_MAX_BYTES = 8 * 1024 * 1024
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_UNKNOWN_TOPIC, _NOT_LEADER = 3, 6


@dataclass(frozen=True, slots=True)
class Batch:
    """What the header of a stored batch says (KIP-98)."""

    codec: str
    transactional: bool
    control: bool
    producer_id: int


def batches(brokers: Collection[str], topic: str, partition: int = 0) -> list[Batch]:
    """The first 8 MB of a partition; empty where no broker leads such a partition."""
    for broker in sorted(brokers):
        error, data = _fetch(broker, topic, partition)
        if error == 0:
            return read_headers(data)
        if error not in {_UNKNOWN_TOPIC, _NOT_LEADER}:
            raise RuntimeError(f"Fetch of {topic}-{partition} from {broker}: error {error}")
    return []


def _fetch(broker: str, topic: str, partition: int) -> tuple[int, bytes]:
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 0, 0, _MAX_BYTES, 0, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, partition, 0, _MAX_BYTES)
    request = struct.pack(">hhih", 1, 4, 0, -1) + body
    host, port = broker.rsplit(":", 1)
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            answer = stream.read(*struct.unpack(">i", stream.read(4)))
    # Correlation id, throttle time, one topic: its name, one partition: index, error, high watermark, last stable
    # offset.
    at = 4 + 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    at += 4 + 2 + 8 + 8 + 4 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return error, answer[at + 4 : at + 4 + max(size, 0)]


def read_headers(data: bytes) -> list[Batch]:
    """The headers of the whole batches at the beginning of a Fetch answer's records."""
    found: list[Batch] = []
    at = 0
    while at + 61 <= len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        (attributes,) = struct.unpack_from(">h", data, at + 21)
        (producer_id,) = struct.unpack_from(">q", data, at + 43)
        found.append(Batch(_CODECS[attributes & 7], bool(attributes & 16), bool(attributes & 32), producer_id))
        at += 12 + length
    return found


def _all_with(codec: str) -> Callable[[list[Batch]], bool]:
    return lambda found: all(batch.codec == codec for batch in found)


WITNESSES: dict[str, tuple[str, Callable[[list[Batch]], bool]]] = {
    **{
        f"compression-{codec}": (f"every batch is stored with the codec {codec}", _all_with(codec)) for codec in _CODECS
    },
    "idempotent": ("every batch has a producer id", lambda found: all(batch.producer_id >= 0 for batch in found)),
    "acks-0": ("no batch has a producer id", lambda found: all(batch.producer_id < 0 for batch in found)),
    "txn-commit": (
        "every batch is part of a transaction, and there are markers",
        lambda found: all(batch.transactional for batch in found) and any(batch.control for batch in found),
    ),
}
"""Features whose records can be told apart in the log: what has to be true of the first partition of the cell's topic.
"""


def complaint(feature: str, brokers: Collection[str], prefix: str) -> str | None:
    """What is wrong with the records of a cell whose topic is `prefix` or `prefix.topic`; None where all is well."""
    if feature not in WITNESSES:
        return None
    rule, holds = WITNESSES[feature]
    found = batches(brokers, prefix) or batches(brokers, f"{prefix}.topic")
    if not found:
        return f"no record of the cell is in Kafka's log, where the rule is: {rule}"
    return None if holds(found) else f"not true of Kafka's log: {rule}; it holds {found[:5]}"
