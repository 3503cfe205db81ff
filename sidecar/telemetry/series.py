"""The numbers behind the metrics: plain integers and lists, so that counting a request costs well under a microsecond.

Nothing here knows prometheus_client; `sidecar.telemetry.exposition` reads these objects when it is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

REQUEST_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: half a millisecond to ten seconds."""

SHORT_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds in seconds for what should take microseconds: a Redis script."""

OVERHEAD_BOUNDS: Final = (*SHORT_BOUNDS, 2.5, 5.0, 10.0)
"""Upper bounds in seconds for a node's own share of a request: a tenth of a millisecond, unless it has to wait."""

LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds in seconds; the timers of an event loop are no finer than a millisecond."""

OTHER: Final = "_other"
"""The label value that stands for all topics beyond the cap. A topic that somebody calls so shares its series."""

_SPLIT: Final = frozenset({"Fetch", "Produce"})
"""APIs of which it is known how long brokers were waited for."""

_EXAMPLE_CHARACTERS: Final = 128
"""All names and values of an exemplar together may have so many (OpenMetrics 1.0)."""


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


class Client(Protocol):
    """Where a request came from: `host:port`."""

    @property
    def peer(self) -> str: ...


class Traced(Protocol):
    """A request, as far as it can be identified."""

    @property
    def client_id(self) -> bytes: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def connection(self) -> Client: ...


class Example(NamedTuple):
    """One request of a bucket. `at`: Unix seconds of its answer."""

    seconds: float
    at: float
    client_id: bytes
    correlation_id: int
    address: str

    def labels(self) -> dict[str, str]:
        """What an exemplar says of it; the client id is cut where there is no room for it."""
        found = {"address": _plain(self.address)[:60], "correlation_id": str(self.correlation_id)}
        room = _EXAMPLE_CHARACTERS - sum(map(len, (*found, *found.values(), "client_id")))
        return {**found, "client_id": _plain(self.client_id.decode(errors="replace"))[:room]}


def _plain(text: str) -> str:
    """`text` without what some reader of exemplars stumbles over."""
    return "".join(found if found.isprintable() and found not in '"\\' else "\ufffd" for found in text)


class ApiStats:
    """Requests of one API: their number is the sum of `buckets`.

    `examples`: a request of each bucket, the first one since somebody asked. `upstream` and `overhead` are the time
    that brokers were waited for and the rest, where that is known.
    """

    __slots__ = (
        "buckets", "bytes_in", "bytes_out", "examples", "name", "overhead", "seconds", "upstream", "wanted",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes_in = 0
        self.bytes_out = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(REQUEST_BOUNDS) + 1)
        self.examples: list[Example | None] = [None] * len(self.buckets)
        self.wanted = [True] * len(self.buckets)
        self.upstream, self.overhead = (
            (Histogram(REQUEST_BOUNDS), Histogram(OVERHEAD_BOUNDS)) if name in _SPLIT else (None, None)
        )

    @property
    def count(self) -> int:
        """How many requests were answered."""
        return sum(self.buckets)

    def take_examples(self) -> list[Example | None]:
        """One for each bucket that has had one; the next request of each takes its place."""
        self.wanted = [True] * len(self.buckets)
        return list(self.examples)


class TopicStats:
    """One governed topic. `owner` is (name, mode); `generation` None: not known here. `unknown`: batches that were
    answered to come again, as nobody knew yet whether the log has their ids.
    """

    __slots__ = ("bytes", "duplicates", "fenced", "generation", "owner", "records", "unknown")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.duplicates = 0
        self.unknown = 0
        self.fenced: dict[str, int] = {}
        self.generation: int | None = None
        self.owner: tuple[str, str] | None = None


class Queue(NamedTuple):
    """How many producers wait for a topic, and how many of them for what nobody owns and nobody writes to."""

    waiting: int
    stranded: int


class LagSeries(Protocol):
    """How many groups have cursors in a shadow, and how far behind they are in all and at most."""

    @property
    def groups(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def longest(self) -> int: ...


class ShadowSeries(NamedTuple):
    """One shadow. `last_read_ms`: Unix ms, 0 for never; `lag` None: nothing that this node knows."""

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
