"""Which log a request reads under a topic's name, and how a request for several names of one log is split.

A shadow can be read as long as its source has the topic id that the shadow was created for (KIP-516). No IO, no state.
"""

from collections.abc import Generator, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from sidecar.cluster.resolver import NameResolver, Source
from sidecar.cluster.view import ClusterView
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import PORTION
from sidecar.protocol.primitives import at_once


class Part(Protocol):
    """One partition in a request."""

    @property
    def topic(self) -> bytes: ...
    @property
    def partition(self) -> int: ...


PartT = TypeVar("PartT", bound=Part)


class Read(NamedTuple, Generic[PartT]):
    """A partition in a request, and the topic whose log answers it. `topic_id`: of a shadow's source, the id that the
    shadow was created for.
    """

    part: PartT
    log: bytes
    topic_id: bytes = b""

    @property
    def source(self) -> tuple[bytes, int]:
        """The partition that is read."""
        return self.log, self.part.partition

    @property
    def is_renamed(self) -> bool:
        """Whether the log is another topic's: a shadow's source."""
        return self.log != self.part.topic


def source_of(shadow: bytes, principal: str, resolver: NameResolver, view: ClusterView) -> Source | ErrorCode:
    """Return the topic whose log a principal reads under a shadow's name. If there is none, return the error:
    TOPIC_AUTHORIZATION_FAILED if the principal may not read the shadow; UNKNOWN_TOPIC_OR_PARTITION if its source was
    deleted or created again, or the shadow is not created yet.
    """
    source = resolver.source(shadow)
    if source is not None and not source.may_be_read_by(principal):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if source is None or source.is_closed:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    route = view.route(source.topic)
    same = route is None or route.topic_id == source.topic_id
    return source if same else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def log_of(topic: bytes, principal: str, resolver: NameResolver, view: ClusterView) -> bytes | None:
    """Return the topic whose log a principal reads under a name; None if `source_of` returns an error."""
    if not resolver.is_shadow(topic):
        return topic
    source = source_of(topic, principal, resolver, view)
    return None if isinstance(source, ErrorCode) else source.topic


def topic_id_of(topic: bytes, resolver: NameResolver, view: ClusterView) -> bytes:
    """Return the id of the topic whose log is read under a name; empty if it is not known."""
    source = resolver.source(topic)
    if source is not None:
        return source.topic_id.bytes
    route = view.route(topic)
    return b"" if route is None or not route.topic_id.int else route.topic_id.bytes


def layers(reads: Iterable[Read[PartT]], *, apart: bool = False) -> list[list[Read[PartT]]]:
    """Split reads into the fewest requests of which none names a partition of a log twice. `apart`: no request has both
    shadows and other topics.
    """
    return at_once(layer_steps(reads, apart=apart))


def layer_steps(reads: Iterable[Read[PartT]], *, apart: bool = False) -> Generator[None, None, list[list[Read[PartT]]]]:
    """As `layers`, in slices."""
    found: list[list[Read[PartT]]] = []
    seen: list[set[tuple[bytes, int]]] = []
    for number, read in enumerate(reads, 1):
        if not number % PORTION:
            yield
        key = read.log, read.part.partition
        index = next(
            (
                index
                for index, keys in enumerate(seen)
                if key not in keys and not (apart and found[index][0].is_renamed != read.is_renamed)
            ),
            len(found),
        )
        if index == len(found):
            found.append([])
            seen.append(set())
        found[index].append(read)
        seen[index].add(key)
    return found
