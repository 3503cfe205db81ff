"""The state of Fetch on a client connection beyond one request: long polls at brokers, and reads that it shares.

Imports no other module of the API; `split_fetch`, `shared_fetch` and `fetch` use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from sidecar.protocol.fetch import FetchPart
    from sidecar.protocol.primitives import Octets
    from sidecar.shadow.views import Read


class PollAnswer(NamedTuple):
    """What one poll brought: elements by the partitions of the request, ready to be put into an answer."""

    elements: list[tuple[bytes, int, Octets]]
    record_bytes: int
    is_fruitless: bool


class PollLane:
    """A long poll that a client has at a broker. It outlives the request that began it."""

    __slots__ = ("answer", "asked", "prompt_until", "reads", "waiting")

    def __init__(self, asked: tuple[object, ...], reads: list[Read[FetchPart]]) -> None:
        self.asked = asked
        self.prompt_until = 0.0
        self.reads = reads
        self.waiting: PollWaiter | None = None
        self.answer: PollAnswer | None = None


class PollWaiter(Protocol):
    """A request that waits for a poll."""

    def poll_ended(self, place: tuple[int, int], lane: PollLane) -> None:
        """The poll at a broker (node id, isolation level) has its answer."""
        ...


class SharedRead(Protocol):
    """A request that waits for a poll shared by all that read the same."""

    def leave(self) -> None:
        """Its client has gone."""
        ...


@dataclass(slots=True)
class Fetching:
    """Of one client connection. `polls`: by broker and isolation level. `empty_elements`: how a partition without new
    records is answered, by log, partition, version and isolation level.
    """

    polls: dict[tuple[int, int], PollLane] = field(default_factory=dict[tuple[int, int], PollLane])
    empty_elements: dict[tuple[bytes, int, int, int], bytes] = field(
        default_factory=dict[tuple[bytes, int, int, int], bytes]
    )
    shared: set[SharedRead] = field(default_factory=set[SharedRead])
    alone_at: float = 0.0
    """When it last read by itself what others read, too; 0.0 where no connection is left of that."""
