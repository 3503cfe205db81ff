"""How a node becomes the coordinator of claims: it opens an epoch of the slot of `__claims` and loads the claims.

The order makes it safe, as in `sidecar.takeover.takeover`: open the slot, fence the ownership partition, read it up
to the marker, append `Serving` under the new epoch. After that no record of an older coordinator can follow, and all
claims that it granted have been read. This node cannot know the connections of other nodes or earlier epochs. So it
deletes the claims of `conn:` sessions right after `Serving`, in the same batch if they fit.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.access.services import NodeServices
from sidecar.changelog import MASTER_SLOT, Entry, Key, Kind, Record, StampedJournal, retired_ids
from sidecar.fencing.expiry import DEFAULT_KEEP_ALIVE, read_keep_alives
from sidecar.fencing.slot import WriterSlot, transactional_id
from sidecar.fencing.topic import fence_slot, retire_formers
from sidecar.network.slices import in_slices
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, ProducerId, Stamp
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as state

CLAIMS: Final = "__claims"
"""The pseudo topic: the node that serves it coordinates. No topic of this name is ever governed."""

_SEEN_S: Final = 10.0
_RECORDS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class CoordinatorEpoch:
    """The right to write claims, until another node opens a newer epoch. `claims`: those found, of `pid:` sessions."""

    slot: WriterSlot
    stamp: Stamp
    journal: StampedJournal
    claims: Mapping[Key, state.Claim]


def fencing_token(claim: Entry[state.Claim], serving: Entry[state.Serving] | None) -> int:
    """Return the fencing token of a claim (Kleppmann, "How to do distributed locking"): the offset of its record, which
    rises with every claim, even after releases and compaction. 0 if no coordinator is known.

    The offset is added to the time in microseconds at which claims in the log began, because operators may create a
    lost log anew, whose offsets start again at 0. So tokens rise while fewer than a million records a second are
    written. They may be too low by the difference of the brokers' clocks if the log is created anew on a broker whose
    clock is behind, and also while a node coordinates whose version has no `Serving.fencing_base`.
    """
    return 0 if serving is None else fencing_base(serving) + claim.offset


def fencing_base(serving: Entry[state.Serving] | None) -> int:
    """Return the base for the next record that opens a coordinator epoch; 0: it is the first one in its log."""
    return 0 if serving is None else serving.value.fencing_base or serving.at_ms * 1000


async def open_epoch(services: NodeServices) -> CoordinatorEpoch:
    """Open a coordinator epoch. Raises `FencedError`, `KafkaError`, `ChangelogError`, `UpstreamError`, TimeoutError."""
    changelog = services.changelog
    view, key = changelog.view, Key(Kind.SERVING, CLAIMS, MASTER_SLOT)
    slot = WriterSlot(services.upstream, transactional_id(services.cluster, CLAIMS))
    await slot.open()
    former = view.serving(CLAIMS)
    formers = {slot.transactional_id: ProducerId(former.value.producer_id)} if former is not None else {}
    await fence_slot(services.upstream, slot, changelog.fenced(), formers)
    await changelog.tailer.seen(slot.stamp, timeout=_SEEN_S)
    found, stamp = view.serving(CLAIMS), slot.stamp
    if found is not None and found.value.producer_id not in (stamp.producer_id, *formers.values()):
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "another node took the claims over at the same moment")
    claims, void = await in_slices(_found(list(view.claims())))
    serving = state.Serving(
        node=services.node_id,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.epoch,
        retired_producer_ids=retired_ids(found.value if found is not None else None, stamp),
        since_ms=changelog.clock.now_ms(),
        fencing_base=fencing_base(found),
    )
    records = [Record(key, serving), *[Record(gone, None) for gone in void]]
    journal, offset = changelog.journal(stamp), Offset(0)
    for first in range(0, len(records), _RECORDS_AT_ONCE):
        some = records[first : first + _RECORDS_AT_ONCE]
        offset = Offset(await journal.append(some) + len(some) - 1)
    await changelog.tailer.reached(offset, timeout=_SEEN_S)
    return CoordinatorEpoch(slot, stamp, journal, claims)


def _found(
    entries: Sequence[Entry[state.Claim]],
) -> Generator[None, None, tuple[dict[Key, state.Claim], list[Key]]]:
    """Divide the claims of the log into those of `pid:` sessions, and the keys of the others; in slices."""
    claims: dict[Key, state.Claim] = {}
    void: list[Key] = []
    for number, entry in enumerate(entries, 1):
        if Session(entry.value.session).is_plain:
            void.append(entry.key)
        else:
            claims[entry.key] = entry.value
        if not number % _RECORDS_AT_ONCE:
            yield
    return claims, void


async def keep_alive(services: NodeServices, epoch: CoordinatorEpoch) -> None:
    """Renew the fence before brokers forget it. Raises what `open_epoch` raises."""
    partitions = services.changelog.fenced()
    await epoch.slot.keep_alive(partitions)
    found = services.changelog.view.serving(CLAIMS)
    await retire_formers(services.upstream, None if found is None else found.value, partitions)


async def keep_alive_interval(services: NodeServices) -> float:
    """Return the interval of keep-alives in seconds, by the settings of the brokers and of the ownership topic. Raises
    `UpstreamError`, `KafkaError`.
    """
    topic = services.changelog.partition.topic
    return (await read_keep_alives(services.upstream, [topic])).get(topic, DEFAULT_KEEP_ALIVE).interval
