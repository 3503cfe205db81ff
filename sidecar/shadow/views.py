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


class Views:
    """Finds the log that a client of this node reads under a topic's name."""

    def __init__(self, resolver: NameResolver, view: ClusterView) -> None:
        self._resolver = resolver
        self._view = view

    def names_shadows(self, parts: Iterable[Part]) -> bool:
        """Whether any of these partitions is a shadow's."""
        resolver = self._resolver
        return resolver.has_shadows and any(resolver.is_shadow(part.topic) for part in parts)

    def is_shadow(self, topic: bytes) -> bool:
        """Whether a name is a shadow's."""
        return self._resolver.is_shadow(topic)

    def log(self, topic: bytes, principal: str) -> bytes | None:
        """Return the topic whose log a principal reads under a name; None if it may not, or there is no log
        (`refusal`).
        """
        if not self._resolver.is_shadow(topic):
            return topic
        source = self._source(topic, principal)
        return None if source is None else source.topic

    def read(self, part: PartT, principal: str) -> Read[PartT] | None:
        """Return a partition with its log, as `log` finds it."""
        if not self._resolver.is_shadow(part.topic):
            return Read(part, part.topic)
        source = self._source(part.topic, principal)
        return None if source is None else Read(part, source.topic, source.topic_id.bytes)

    def _source(self, shadow: bytes, principal: str) -> Source | None:
        source = source_of(shadow, principal, self._resolver, self._view)
        return None if isinstance(source, ErrorCode) else source

    def topic_id(self, topic: bytes) -> bytes:
        """Return the id of the topic whose log is read under a name; empty if it is not known."""
        source = self._resolver.source(topic)
        if source is not None:
            return source.topic_id.bytes
        route = self._view.route(topic)
        return b"" if route is None or not route.topic_id.int else route.topic_id.bytes

    def refusal(self, topic: bytes, principal: str) -> ErrorCode:
        """Why there is no log to read."""
        source = source_of(topic, principal, self._resolver, self._view)
        return source if isinstance(source, ErrorCode) else ErrorCode.NONE

    def reads(self, parts: Iterable[PartT], principal: str) -> list[Read[PartT]] | None:
        """Return each partition with its log. None if one has no log, or two names have the same log: then each needs a
        check.
        """
        found: list[Read[PartT]] = []
        names: dict[bytes, bytes] = {}
        known: dict[bytes, Read[PartT]] = {}
        for part in parts:
            read = known.get(part.topic)
            if read is None:
                read = self.read(part, principal)
                if read is None or names.setdefault(read.log, part.topic) != part.topic:
                    return None
                known[part.topic] = read
            found.append(read._replace(part=part))
        return found

    def missing(self, parts: Iterable[Part], principal: str) -> set[bytes]:
        """Return the topics whose leaders have to be looked up before these partitions can be read."""
        logs = ((self.log(part.topic, principal), part.partition) for part in parts)
        return self._view.missing((log, partition) for log, partition in logs if log is not None)


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
