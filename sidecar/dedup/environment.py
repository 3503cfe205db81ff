"""What the sequence ids of every topic need of their node, as an interface."""

from typing import NamedTuple, Protocol

from metadata import MetadataStore
from sidecar.changelog import Changelog
from sidecar.cluster.logs import LogReader
from sidecar.dedup.content import Headers
from sidecar.dedup.marks import NAMES_LIMIT
from sidecar.network.tasks import Tasks


class IdsHooks(Protocol):
    """What the node wants to know; implementations are cheap and never raise."""

    def duplicates_dropped(self, topic: str, records: int) -> None: ...
    def ids_unknown(self, topic: str) -> None: ...
    def ids_read(self, topic: str, records: int) -> None:
        """Some of what `ids_recovered` reports when it is done."""

    def ids_recovered(self, topic: str, records: int, seconds: float) -> None: ...
    def ids_lost(self, topic: str, reason: str) -> None: ...
    def snapshot_written(self, topic: str, names: int, size: int) -> None: ...
    def operation_failed(self, topic: str, error: BaseException) -> None: ...


class IdsServices(NamedTuple):
    """What the ids of every topic of this node need."""

    logs: LogReader
    changelog: Changelog
    store: MetadataStore
    tasks: Tasks
    hooks: IdsHooks
    headers: Headers
    names_limit: int = NAMES_LIMIT
