"""Reads the usual Produce requests of one read of a socket at once, or the usual answers to them. Pure.

Only compiled code does this. Without it nothing counts as usual, and every frame is read by itself, as is each frame of
another form. What is usual is read as `produce.walk` and `produce.all_appended` read it.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

from sidecar.protocol.compiled import COMPILED
from sidecar.protocol.primitives import Octets
from sidecar.protocol.produce import ProducePart, ProduceRequest
from sidecar.protocol.topic_ids import Ids, Names

UsualRequest: TypeAlias = tuple[int, int, int, Any, list[ProducePart], Ids | None, list[bytes]]
"""Where the frame begins and ends, its correlation id, what `routes` has for all its partitions, these partitions, the
ids of their topics (None if it has names), and the bytes of each batch that `sidecar.gateway.gaps.signature` keeps.
"""
Routes: TypeAlias = dict[bytes, dict[int, Any]]
"""Anything but None for each partition, by topic."""


class Requests(Protocol):
    """Finds the usual requests."""

    def __call__(
        self,
        buffer: Octets,
        start: int,
        end: int,
        client_id: bytes,
        version: int,
        names: Names,
        routes: Routes,
        largest: int,
        most: int,
        elements: int,
        bound: int,
        /,
    ) -> list[UsualRequest]:
        """Return the requests from `start` on, up to the first one that is not usual, or not whole.

        A usual request has this client id and version, acks other than 0, no transactional id, no tags, and partitions
        with one and the same route, each once and with a batch, at most `bound`. `names`: topics by id. A frame has at
        most `largest` bytes after its length prefix. At most `most` are returned, and none after requests of several
        partitions that have more than `elements` together.
        """
        ...


class Answers(Protocol):
    """Finds the usual answers."""

    def __call__(
        self, buffer: Octets, start: int, end: int, waiting: Sequence[Any], order: Sequence[Any], kind: type[Any], /
    ) -> list[int]:
        """Return the sizes (bytes, with length prefix) of the answers from `start` on, up to the first that is not
        usual, or not whole.

        A usual answer says of as many partitions as were asked for that they were appended. It is for the next of those
        that are `waiting` at the broker. That one is a `kind`, has the answer's correlation id, and is the next in
        `order`, that of the client's requests. A `kind` has `correlation_id`, `version` and `parts`.
        """
        ...


def _nothing(*_: Any) -> list[Any]:
    return []


IS_COMPILED: Final = hasattr(COMPILED, "usual_produces")
requests: Final[Requests] = getattr(COMPILED, "usual_produces", _nothing)
answers: Final[Answers] = getattr(COMPILED, "acknowledged", _nothing)
if COMPILED is not None and IS_COMPILED:
    COMPILED.produce_types(ProducePart, ProduceRequest)
