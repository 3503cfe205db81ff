"""A Fetch and the place of its answer, the same for all ways in `gateway.fetch`.

An answer names topics as the request did, by name or by id. An error for a partition names its leader (KIP-951).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from sidecar.network.request import Exchange
from sidecar.protocol import fetch
from sidecar.protocol.fetch import FIRST_WITH_LEADERS, with_leader
from sidecar.protocol.topic_ids import reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.client import Client
    from sidecar.gateway.leader_hints import LeaderHints
    from sidecar.network.request import Request
    from sidecar.protocol.fetch_parts import FetchRequest
    from sidecar.protocol.primitives import Octets
    from sidecar.shadow.cursor_room import Readers

_MOST_BYTES: Final = 55 * 1024 * 1024
"""Kafka's default for `fetch.max.bytes` of brokers."""
_INDEX_ERROR: Final = Struct(">ih")


@dataclass(frozen=True, slots=True)
class Node:
    """What every Fetch needs of its node."""

    upstream: KafkaUpstream
    readers: Readers
    hints: LeaderHints


class FetchExchange(Exchange):
    """The base of all kinds of Fetch. `ids`: those of its topics, and of the logs that it reads."""

    __slots__ = ("_client", "_isolation", "_parts", "ids", "node")

    def __init__(self, client: Client, request: Request, fields: FetchRequest, node: Node) -> None:
        super().__init__(client.connection, request)
        self.weight = min(max(0, fields.max_bytes), _MOST_BYTES)  # as the client allows, within what brokers give
        self.node = node
        self.ids = fields.ids
        self._client = client
        self._parts = fields.parts
        self._isolation = fields.isolation

    def partitions(self) -> Iterable[tuple[bytes, int]]:
        """The partitions that it reads, by the client's names."""
        return [(part.topic, part.partition) for part in self._parts]

    def refuse_all(self, code: int) -> None:
        """Answer every partition with an error."""
        self.answer_elements(
            [(part.topic, fetch.error_element(self.version, part.partition, code)) for part in self._parts]
        )

    def answer_elements(self, elements: list[tuple[bytes, Octets]], throttle_ms: int = 0, error: int = 0) -> None:
        """Answer with these elements, each with the client's name of the topic."""
        version, ids = self.version, self.ids
        leaders = {}
        if version >= FIRST_WITH_LEADERS:
            codes = ((topic, *_INDEX_ERROR.unpack_from(element)) for topic, element in elements)
            leaders = self.node.hints.of(self._client.listener, codes)
        if leaders:
            elements = [
                (topic, with_leader(element, leader) if (leader := leaders.get((topic, _index(element)))) else element)
                for topic, element in elements
            ]
        if ids is not None:
            elements = [(reference(ids, topic), element) for topic, element in elements]
        self.answer(fetch.encode_answer(self.correlation_id, version, elements, throttle_ms, error, leaders.values()))


def _index(element: Octets) -> int:
    return _INDEX_ERROR.unpack_from(element)[0]
