"""Remembers sequences that got a final error: their clients count them as used. Bounded on the node."""

from collections import OrderedDict
from typing import Final, TypeAlias

from sidecar.forwarder.sequences import RefusedSequences
from sidecar.ownership.state import Claimant
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.session import Session
from sidecar.takeover.slots import SlotScope

_REFUSED_KEPT: Final = 50_000
_REFUSED_KEPT_GONE: Final = 5_000

_Place: TypeAlias = "tuple[Refusals, Session]"
"""A session on one topic."""


class RefusedLedger:
    """Limits the refused sequences that the topics of a node remember. Above the limit it forgets those of sessions
    without a connection first, then those of the session that was refused longest ago.

    If a client continues after refused sequences that were forgotten, it is refused with 45
    OUT_OF_ORDER_SEQUENCE_NUMBER: its batches are never taken for repeats, nor appended in a wrong place.
    """

    def __init__(self, most: int = _REFUSED_KEPT, gone: int = _REFUSED_KEPT_GONE) -> None:
        """`most`: spans and partitions of all sessions together. `gone`: the same, of sessions without a connection."""
        self._limits = most, gone
        self._sizes: tuple[OrderedDict[_Place, int], OrderedDict[_Place, int]] = OrderedDict(), OrderedDict()
        self._totals = [0, 0]
        self._of_connection: dict[int, set[_Place]] = {}
        self._connection: dict[_Place, int] = {}

    @property
    def total(self) -> int:
        """The number of spans and partitions that are remembered."""
        return sum(self._totals)

    def noted(self, place: _Place, more: int, connection: int | None) -> None:
        """Add `more` to the size of a session, which uses this connection now (None: the same as before)."""
        connection = self._connection.get(place) if connection is None else connection
        size = self._take(place) + more
        if connection is not None:
            self._connection[place] = connection
            self._of_connection.setdefault(connection, set()).add(place)
        self._put(place, size, gone=False)

    def dropped(self, place: _Place) -> None:
        """Remove a session that has no refused sequences any more."""
        self._take(place)

    def _take(self, place: _Place) -> int:
        total = 0
        for number, sizes in enumerate(self._sizes):
            size = sizes.pop(place, 0)
            self._totals[number] -= size
            total += size
        self._leave(place)
        return total

    def connection_closed(self, connection: int) -> None:
        """Keep some of its sessions' sequences: they may come back on another connection."""
        for place in self._of_connection.pop(connection, ()):
            self._connection.pop(place, None)
            size = self._sizes[0].pop(place, 0)
            self._totals[0] -= size
            self._put(place, size, gone=True)

    def _put(self, place: _Place, size: int, *, gone: bool) -> None:
        self._sizes[gone][place] = size
        self._totals[gone] += size
        while self._totals[1] > self._limits[1] or self.total > self._limits[0]:
            (refusals, session), _ = next(iter(self._sizes[1 if self._sizes[1] else 0].items()))
            refusals.forget(session)

    def _leave(self, place: _Place) -> None:
        connection = self._connection.pop(place, None)
        if connection is not None:
            places = self._of_connection[connection]
            places.discard(place)
            if not places:
                del self._of_connection[connection]


class Refusals:
    """Sequences that got a final error, by session and partition of one topic, until a slot's record has them. Only of
    partitions that exist (`ExistingPartitions`), and only of batches of the session's own client (`bindings`).
    """

    def __init__(self, ledger: RefusedLedger | None = None) -> None:
        """`ledger`: the limit that all topics of a node share."""
        self._found: dict[Session, dict[int, RefusedSequences]] = {}
        self._ledger = ledger or RefusedLedger()

    def add(self, claimant: Claimant, partition: int, header: BatchHeader) -> None:
        """Note a final error that does not end the session: its client counts these sequences as used."""
        if header.producer_id >= 0:
            self.note(
                claimant.session,
                partition,
                header.producer_epoch,
                header.base_sequence,
                header.records,
                claimant.connection,
            )

    def note(
        self,
        session: Session,
        partition: int,
        client_epoch: int,
        first: ClientSequence,
        records: int,
        connection: int | None = None,
    ) -> None:
        """As `add`, for an idempotent session."""
        by_partition = self._found.setdefault(session, {})
        sequences = by_partition.get(partition)
        before = 0 if sequences is None else 1 + len(sequences.spans)
        if sequences is None:
            sequences = by_partition[partition] = RefusedSequences(client_epoch)
        sequences.refused(client_epoch, first, records)
        self._ledger.noted((self, session), 1 + len(sequences.spans) - before, connection)

    def has(self, session: Session, scope: SlotScope) -> bool:
        """Whether a session has refused sequences in the partitions of a slot that no record has yet."""
        return session in self._found and any(scope.covers(partition) for partition in self._found[session])

    def of(self, session: Session, scope: SlotScope) -> dict[int, RefusedSequences]:
        """The refused sequences of a session in the partitions of a slot."""
        by_partition = self._found.get(session, {})
        return {partition: found for partition, found in by_partition.items() if scope.covers(partition)}

    def forgive(self, session: Session, scope: SlotScope) -> None:
        """Forget these sequences: the record of the session's slot has them."""
        forgiven = 0
        for partition, found in self.of(session, scope).items():
            del self._found[session][partition]
            forgiven += 1 + len(found.spans)
        if not self._found.get(session, True):
            self.forget(session)
        elif forgiven:
            self._ledger.noted((self, session), -forgiven, None)

    def forget(self, session: Session) -> None:
        """Forget all refused sequences of a session."""
        if self._found.pop(session, None) is not None:
            self._ledger.dropped((self, session))
