"""What rooms that give out ownership need of their node."""

from dataclasses import dataclass

from metadata import MetadataStore
from sidecar.changelog import Changelog
from sidecar.forwarder.sequences import EPOCH_RECORDS
from sidecar.protocol.caller import Upstream


@dataclass(frozen=True, slots=True)
class NodeServices:
    """Which node it is, and the services that it calls."""

    node_id: int
    boot: str
    cluster: str
    upstream: Upstream
    changelog: Changelog
    store: MetadataStore
    epoch_records: int = EPOCH_RECORDS
    """Records of an idempotent session in one partition after which its slot epoch is replaced."""
