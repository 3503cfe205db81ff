"""The tagged fields of Fetch requests (KIP-482), which followers use and consumers do not.

Kafka's generated parsers do not look at the announced size of a tagged field that they know: if it is wrong, they read
the next field elsewhere than a parser that steps over it. So a field of a wrong size is malformed here.
"""

from typing import Final

from sidecar.protocol.primitives import MalformedFrameError, Reader, RequestReader

FIRST_WITH_STATE: Final = 15
"""The first version that has the replica in a tagged field (KIP-903)."""
_CLUSTER_TAG: Final = 0
_STATE_TAG: Final = 1
_EPOCH_BYTES: Final = 8
_PARTITION_TAGS: Final = {0: 16, 1: 8}
"""The sizes of a partition's tagged fields, by number: a directory's id (KIP-853), a high watermark (KIP-1166)."""


def skip_partition_tags(reader: RequestReader) -> None:
    """Step over the tagged fields of a partition. Raises `MalformedFrameError`."""
    if reader.position < reader.end and not reader.buffer[reader.position]:
        reader.position += 1
        return
    for number, (start, end) in reader.tagged_fields().items():
        if end - start != _PARTITION_TAGS.get(number, end - start):
            raise MalformedFrameError(f"tagged field {number} of a partition in {end - start} bytes")


def read_replica(reader: RequestReader, replica_id: int, version: int) -> int:
    """Step over the tagged fields of a request: the cluster's id, and the state of the replica that sent it. Returns
    the replica's id; `replica_id` if there is none. Raises `MalformedFrameError`.
    """
    if reader.position < reader.end and not reader.buffer[reader.position]:
        reader.position += 1
        return replica_id
    found = reader.tagged_fields()
    if _CLUSTER_TAG in found:
        cluster = Reader(reader.buffer, *found[_CLUSTER_TAG])
        cluster.nullable_text(flexible=True)
        _check_read(cluster, "the id of a cluster")
    if version >= FIRST_WITH_STATE and _STATE_TAG in found:
        state = Reader(reader.buffer, *found[_STATE_TAG])
        replica_id = state.i32()
        state.skip(_EPOCH_BYTES)
        state.skip_tags()
        _check_read(state, "the state of a replica")
    return replica_id


def _check_read(field: Reader, name: str) -> None:
    if field.remaining:
        raise MalformedFrameError(f"{field.remaining} bytes behind {name}")
