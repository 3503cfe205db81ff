"""Which log a request reads under a topic's name, and how a request for several names of one log is taken apart.

A shadow is read as long as its source is the topic that it was made of. Asks nothing and remembers nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.cluster.resolver import NameResolver
    from sidecar.cluster.view import ClusterView


class Part(Protocol):
    """One partition in a request."""

    @property
    def topic(self) -> bytes: ...
    @property
    def partition(self) -> int: ...


PartT = TypeVar("PartT", bound=Part)


class Read(NamedTuple, Generic[PartT]):
    """A partition in a request, and the topic whose log answers it."""

    part: PartT
    log: bytes

    @property
    def source(self) -> tuple[bytes, int]:
        """The partition that is read."""
        return self.log, self.part.partition


class Views:
    """The names of this node's clients."""

    def __init__(self, resolver: NameResolver, view: ClusterView) -> None:
        self._resolver = resolver
        self._view = view

    def names_shadows(self, parts: Iterable[Part]) -> bool:
        """Whether any of these partitions is a shadow's."""
        resolver = self._resolver
        return resolver.has_shadows and any(resolver.is_shadow(part.topic) for part in parts)

    def log(self, topic: bytes) -> bytes | None:
        """The topic whose log is read under a name. None for a shadow whose source is gone, or is another topic by
        now, or that is not made yet: its readers are told that there is no such topic.
        """
        if not self._resolver.is_shadow(topic):
            return topic
        source = self._resolver.source(topic)
        if source is None:
            return None
        route = self._view.route(source.topic)
        return source.topic if route is None or route.topic_id == source.topic_id else None

    def reads(self, parts: Iterable[PartT]) -> list[Read[PartT]] | None:
        """Each with its log. None where one has no log, or a log goes by two names: those are asked one by one."""
        found: list[Read[PartT]] = []
        names: dict[bytes, bytes] = {}
        logs: dict[bytes, bytes] = {}
        for part in parts:
            log = logs.get(part.topic)
            if log is None:
                log = self.log(part.topic)
                if log is None or names.setdefault(log, part.topic) != part.topic:
                    return None
                logs[part.topic] = log
            found.append(Read(part, log))
        return found

    def missing(self, parts: Iterable[Part]) -> set[bytes]:
        """The topics whose leaders have to be asked for before these partitions can be read."""
        logs = ((self.log(part.topic), part.partition) for part in parts)
        return self._view.missing((log, partition) for log, partition in logs if log is not None)


def layers(reads: Iterable[Read[PartT]]) -> list[list[Read[PartT]]]:
    """As few requests as it takes so that none asks for one partition of a log twice."""
    found: list[list[Read[PartT]]] = []
    seen: list[set[tuple[bytes, int]]] = []
    for read in reads:
        key = read.log, read.part.partition
        index = next((index for index, keys in enumerate(seen) if key not in keys), len(found))
        if index == len(found):
            found.append([])
            seen.append(set())
        found[index].append(read)
        seen[index].add(key)
    return found
