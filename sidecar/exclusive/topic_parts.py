"""What the parts of a topic know of the topic that has them, and a partition's parts of the whole topic."""

from typing import Protocol

from sidecar.changelog import SlotName
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.interfaces import Owning
from sidecar.exclusive.newcomers import Newcomers, Refusals, TopicQueue
from sidecar.exclusive.owner import TopicOwner
from sidecar.exclusive.shared import SharedSessions
from sidecar.exclusive.upkeep import Upkeep
from sidecar.exclusive.writer import SlotWriter
from sidecar.protocol.ids import Stamp


class WholeTopic(Protocol):
    """The topic that a partition with its own owner belongs to."""

    upkeep: Upkeep

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids of the topic, where it has any."""
        ...

    async def take(self, partition: int) -> Stamp:
        """The right to serve the topic and its master slot, whose stamp is returned."""
        ...

    def outdated(self) -> None:
        """The master slot is of a topic that was deleted: it is taken anew before anything else."""

    def taken(self, slot: SlotName) -> None:
        """The partition's slot was taken for its owner."""

    def forget_if_idle(self, partition: int) -> None:
        """The partition has no operation in progress any more."""


class TopicParts(Owning, Protocol):
    """What a topic, or a partition with its own owner, is made of; `topic` puts them together."""

    environment: Environment
    whole: WholeTopic | None
    upkeep: Upkeep
    refusals: Refusals
    newcomers: Newcomers
    writer: SlotWriter
    shared: SharedSessions

    @property
    def owner(self) -> TopicOwner: ...
    @property
    def queue(self) -> TopicQueue: ...
    @property
    def ids(self) -> TopicIds | None: ...
    def stop_writing(self) -> None:
        """Nobody writes under the epochs there are."""

    async def save_ids(self) -> None:
        """The topic is served here no longer."""
