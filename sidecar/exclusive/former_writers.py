"""The sessions of a slot's earlier epochs, on a topic with sequence ids, as far as no snapshot covers their batches.

A record names them, so that a later reading of the log counts each batch under its producer's name (`dedup`). Batches
that a snapshot covers need this no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sidecar.changelog import unpack_offsets
from sidecar.exclusive import records
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.changelog import Entry, Opened
    from sidecar.exclusive.domain import Domain
    from sidecar.protocol.ids import Stamp

_KEPT: Final = 200
_KEPT_WITHOUT_IDS: Final = 20


class Covered(Protocol):
    """What snapshots have of a topic's sequence ids. `since`: behind this offset of the ownership topic it has them; -1
    where that was never seen to begin.
    """

    since: int

    def is_covered(self, producer_id: int, last_epoch: int) -> bool:
        """Everything that was written up to this epoch."""
        ...

    def urge(self) -> None:
        """New ones are needed soon."""
        ...

    def distrust(self) -> None:
        """Another node served the topic meanwhile: this node's memory of it is incomplete."""
        ...


def _never_covered(*_: int) -> bool:
    """Of a topic without sequence ids there are no snapshots."""
    return False


class FormerWriters:
    """Of the slots of one topic. `ids`: what snapshots have of its sequence ids; None: it has none."""

    def __init__(self, domain: Domain, ids: Covered | None) -> None:
        self._domain = domain
        self._ids = ids

    def check(self, opened: Entry[Opened] | None) -> None:
        """Raises `KafkaError` 5 LEADER_NOT_AVAILABLE where more writers came and went than a record can name."""
        ids = self._ids
        if ids is None or opened is None or len(opened.value.former) < _KEPT:
            return
        if not any(each.forgotten or ids.is_covered(each.producer_id, each.last_epoch) for each in opened.value.former):
            ids.urge()
            message = f"{_KEPT} writers of {self._domain.topic} came and went since its last snapshot; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)

    def served_by(self, node: int, opened: Entry[Opened] | None) -> None:
        """Another node may have opened the newest epoch: then the memory of this node is incomplete."""
        if self._ids is not None and opened is not None and self._domain.is_master and opened.value.node != node:
            self._ids.distrust()

    def listed(self, record: Opened | None, stamp: Stamp, name: str) -> list[state.FormerWriter]:
        """For the record of the epoch `stamp`, whose writer has this name."""
        if self._ids is None:
            return records.former_writers(record, stamp, name, _never_covered, _KEPT_WITHOUT_IDS)
        return records.former_writers(record, stamp, name, self._ids.is_covered, 2 * _KEPT)

    def ids_from(self, opened: Entry[Opened] | None, ends: Mapping[int, int]) -> dict[int, int] | None:
        """Where the topic's logs ended when it began to have sequence ids: now (`ends`), where it had none since. None
        where it has none, or for a slot beside the master slot.
        """
        if self._ids is None or not self._domain.is_master:
            return None
        if opened is None or opened.offset < self._ids.since:
            return dict(ends)
        value = opened.value
        if isinstance(value, state.Serving) and value.HasField("ids_from"):
            return unpack_offsets(value.ids_from)
        return dict(ends)
