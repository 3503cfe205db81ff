"""Does a broker still have these topics under these ids? Asked behind a request that names a topic by name, on the same
connection: a broker answers one request of a connection after the other, and never goes back to a former topic of a
name. So if the topic has its id now, the request before was about that topic, too.

`HasLogs` costs a broker least. It is for brokers that serve Fetch by id (Kafka 3.1, KIP-516); `HasTopics` is for older
ones. Both read no record.
"""

from collections.abc import Mapping
from typing import ClassVar, Final
from uuid import UUID

from sidecar.protocol import fetch
from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import Request
from sidecar.protocol.calls.tails import Position, element_of
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.metadata import MetadataCall, MetadataRequest
from sidecar.protocol.primitives import Reader, Writer

_BEHIND_ALL: Final = 2**63 - 1
"""An offset behind the end of every log: a leader compares the topic id first (`ReplicaManager.readFromLog`)."""
_LIMITS: Final = (0, 0, 1, 0)
"""Wait and bytes at least, bytes at most, isolation level."""
_SAME: Final = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})


class HasLogs(Request[bool]):
    """Whether this broker leads partitions of the topics with these ids: one partition by topic id."""

    api_key: ClassVar[int] = ApiKey.FETCH
    api_version: ClassVar[int] = fetch.FIRST_BY_ID
    flexible: ClassVar[bool] = True

    partitions: Mapping[bytes, int]

    def encode(self, writer: Writer) -> None:
        """See `Request.encode`."""
        elements = [
            (topic_id, fetch.flexible_element(element_of(Position(b"", index, -1, _BEHIND_ALL), 1)))
            for topic_id, index in self.partitions.items()
        ]
        fetch.write_body(writer, self.api_version, _LIMITS, elements)

    def decode(self, reader: Reader) -> bool:
        """See `Request.decode`."""
        found = fetch.walk_body(reader, self.api_version).parts
        return len(found) == len(self.partitions) and all(part.error in _SAME for part in found)


class HasTopics(Request[bool]):
    """Whether this broker knows these topics under these ids, by name."""

    api_key: ClassVar[int] = MetadataCall.api_key
    api_version: ClassVar[int] = MetadataCall.api_version
    flexible: ClassVar[bool] = True

    ids: Mapping[str, UUID]

    def encode(self, writer: Writer) -> None:
        """See `Request.encode`."""
        MetadataCall(MetadataRequest(tuple(self.ids), allow_auto_topic_creation=False)).encode(writer)

    def decode(self, reader: Reader) -> bool:
        """See `Request.decode`."""
        state = MetadataCall(MetadataRequest(())).decode(reader)
        return {topic.name: topic.topic_id for topic in state.topics if topic.partitions} == self.ids
