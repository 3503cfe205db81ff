"""The numbers behind the metrics: plain integers and lists, so that counting a request costs well under a microsecond.

Nothing here knows prometheus_client; `sidecar.telemetry.exposition` reads these objects when it is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: half a millisecond to ten seconds."""

SHORT_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds in seconds for what should take microseconds: a Redis script."""

LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds in seconds; the timers of an event loop are no finer than a millisecond."""

OTHER: Final = "_other"
"""The label value that stands for all topics beyond the cap. A topic that somebody calls so shares its series."""


class Histogram:
    """Observations by bucket; the last bucket has no upper bound. `total` is the sum in seconds."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation. A bound belongs to its own bucket (`le`)."""
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.buckets)


class ApiStats:
    """Requests of one API: their number is the sum of `buckets`."""

    __slots__ = ("buckets", "bytes_in", "bytes_out", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes_in = 0
        self.bytes_out = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(REQUEST_BOUNDS) + 1)

    @property
    def count(self) -> int:
        """How many requests were answered."""
        return sum(self.buckets)


class TopicStats:
    """One governed topic. `owner` is (name, mode); `generation` None: not known here."""

    __slots__ = ("bytes", "duplicates", "fenced", "generation", "owner", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.duplicates = 0
        self.fenced: dict[str, int] = {}
        self.generation: int | None = None
        self.owner: tuple[str, str] | None = None


class LagSeries(Protocol):
    """How many groups have cursors in a shadow, and how far behind they are in all and at most."""

    @property
    def groups(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def longest(self) -> int: ...


class ShadowSeries(NamedTuple):
    """One shadow. `last_read_ms`: Unix ms, 0 for never; `lag` None: nothing that this node tells."""

    name: str
    readers: int
    bytes: int
    last_read_ms: int
    resets: int
    lag: LagSeries | None


class _Lag(NamedTuple):
    groups: int
    total: int
    longest: int


def folded(shadows: Sequence[ShadowSeries], limit: int) -> list[ShadowSeries]:
    """The first `limit` shadows, and the others as one."""
    own, others = list(shadows[:limit]), shadows[limit:]
    if others:
        lags = [found.lag for found in others if found.lag is not None]
        lag = _Lag(
            sum(found.groups for found in lags),
            sum(found.total for found in lags),
            max((found.longest for found in lags), default=0),
        )
        own.append(
            ShadowSeries(
                OTHER,
                sum(found.readers for found in others),
                sum(found.bytes for found in others),
                max(found.last_read_ms for found in others),
                sum(found.resets for found in others),
                lag if lags else None,
            )
        )
    return own


class TopicTable:
    """Governed topics up to a cap; all others share one entry, `OTHER`.

    A topic keeps its place until `forget`. What is counted for those without a place counts in `folded` as well.
    """

    __slots__ = ("_limit", "folded", "other", "topics")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.topics: dict[str, TopicStats] = {}
        self.other = TopicStats()
        self.folded = 0

    def get(self, topic: str) -> TopicStats:
        """The topic's numbers, or those of all topics beyond the cap."""
        stats = self.topics.get(topic)
        if stats is not None:
            return stats
        if len(self.topics) < self._limit and topic != OTHER:
            stats = self.topics[topic] = TopicStats()
            return stats
        self.folded += 1
        return self.other

    def forget(self, topic: str) -> None:
        """Drop the topic's series and free its place."""
        self.topics.pop(topic, None)
