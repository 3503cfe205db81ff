"""The services of their node that rooms use which grant ownership."""

from dataclasses import dataclass

from metadata import MetadataStore
from sidecar.changelog import Changelog
from sidecar.forwarder.sequences import EPOCH_RECORDS
from sidecar.protocol.caller import Upstream


@dataclass(frozen=True, slots=True)
class NodeServices:
    """The node's identity and the services that it calls."""

    node_id: int
    boot: str
    cluster: str
    upstream: Upstream
    changelog: Changelog
    store: MetadataStore
    epoch_records: int = EPOCH_RECORDS
    """The slot epoch is replaced after an idempotent session wrote this many records to one partition under it."""
