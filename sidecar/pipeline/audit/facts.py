"""What nodes know of a topic, as plain tables: the writers of its epochs, the ids that it has to hold, its takeovers.

`sidecar.jobs` makes them from the internal topics and Redis; here they become data frames. Reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Writer:
    """The session of a slot's epochs from `first_epoch` to `last_epoch`.

    `rank` is the position among the producer ids of a slot, oldest first. `name` is None if the session has no name,
    and `generation` if the topic had no owner. `opened_epoch` is the last epoch up to `first_epoch` whose opening is
    known; `opened_at` is the offset of the record in the ownership topic that opened it, None if compaction deleted it.
    Times are Unix ms.
    """

    producer_id: int
    first_epoch: int
    last_epoch: int
    slot: str
    rank: int
    shared: bool
    session: str | None = None
    name: str | None = None
    generation: int | None = None
    opened_at: int | None = None
    opened_ms: int | None = None
    opened_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """The highest id of a name in a partition, from a snapshot. `offset` is that of its record (-1: unknown); the
    snapshot includes every record before `covered`.
    """

    partition: int
    name: str
    id: int
    offset: int
    covered: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """One event about writers, from the events topic. `event` is its id in hexadecimal, `partition` is set for scope
    partition only. `kind` and `mode` are as in the REST interface.
    """

    event: str
    at_ms: int
    kind: str
    partition: int | None
    generation: int
    session: str
    name: str
    mode: str
    client: str
    node: int
    producer_id: int
    producer_epoch: int
    detail: str


@dataclass(frozen=True, slots=True)
class Lag:
    """How many records a group that reads a shadow of the topic has not yet read, over all partitions."""

    shadow: str
    reader: str
    lag: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about one topic. `governed`: an offset per partition from which on it surely was governed;
    `ungoverned`: later times (Unix ms, end None: until now) in which it had no policy.
    """

    writers: tuple[Writer, ...] = ()
    marks: tuple[Mark, ...] = ()
    governed: Mapping[int, int] = field(default_factory=dict[int, int])
    ungoverned: tuple[tuple[int, int | None], ...] = ()
    takeovers: tuple[Takeover, ...] = ()


WRITERS: Final = (
    "producer_id long, first_epoch int, last_epoch int, slot string, rank int, shared boolean, session string,"
    " name string, generation long, opened_at long, opened_ms long, opened_epoch int"
)
MARKS: Final = "partition int, name string, id long, offset long, covered long"
TAKEOVERS: Final = (
    "event string, at_ms long, kind string, partition int, generation long, session string, name string, mode string,"
    " client string, node int, producer_id long, producer_epoch int, detail string"
)
LAGS: Final = "shadow string, reader string, lag long"
GOVERNED: Final = "partition int, offset long"
UNGOVERNED: Final = "from_ms long, to_ms long"
BOUNDS: Final = "partition int, start long, end long"


def as_frame(spark: SparkSession, rows: Iterable[Any], schema: str) -> DataFrame:
    """Dataclasses or tuples as a data frame with one partition."""
    found = [row if isinstance(row, tuple) else astuple(row) for row in rows]
    return spark.createDataFrame(found, schema).coalesce(1)
