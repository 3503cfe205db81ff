"""The records of a takeover's commit: the topic's new owner and its slot's epoch. Pure.

Both go into the ownership topic in one batch. `succession` computes where each session's sequences continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from metadata.ownership import AccessMode
from sidecar.access.rules import MODE_NUMBERS, MODES
from sidecar.changelog import Entry, Opened, pack_offsets, pack_positions, unpack_offsets
from sidecar.dedup.topic import TopicIds
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Stamp
from sidecar.protocol.session import Caller, Session
from sidecar.takeover.requests import FOR_NOBODY, NOBODY, Purpose, Request
from sidecar.takeover.succession import REMEMBERED_MS, Sequences, pack_refused
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

DEPOSED_KEPT: Final = 20_000
"""The limit of deposed sessions that owned the topic or wrote: a change of owner every five seconds for a day. Without
names they take less than 640 KiB.
"""
STRANGERS_KEPT: Final = 1_000
"""The limit of those that only waited, or were refused on a deposed session's connection: any client can add them.
"""
_FORMER_KEPT: Final = 200
_FORMER_KEPT_WITHOUT_IDS: Final = 20


def was_deposed(value: state.Ownership, session: Session) -> bool:
    """Whether a session that still took itself for the owner was deposed. A plain session is not listed, and never
    leaves before its connection closes: so another owner after it has deposed it.
    """
    return session.is_plain or any(deposed.session == session for deposed in value.deposed)


def mode_of(number: int) -> AccessMode:
    """An access mode by its number in records; unknown numbers of a newer node count as exclusive."""
    return MODES.get(number, AccessMode.EXCLUSIVE)


def mode_number(mode: AccessMode) -> control.AccessMode:
    """The number of an access mode in records."""
    return MODE_NUMBERS[mode]


def ownership(
    request: Request,
    known: state.Ownership | None,
    topic_id: UUID,
    generation: int,
    ends: Mapping[int, int],
    now_ms: int,
    *,
    keeps: bool,
) -> state.Ownership:
    """The record of the topic's new owner. `keeps`: the last owner continues, and `known` is unchanged unless it was
    released.
    """
    if keeps and known is not None and known.generation == generation:
        if request.purpose in (Purpose.SHARE, Purpose.SPLIT):
            return freed(known, now_ms, deposes=request.purpose is Purpose.SHARE)
        if request.purpose in FOR_NOBODY or not known.released_ms:
            return known
    deposed = {} if known is None else {d.session: d for d in known.deposed if now_ms - d.last_try_ms < REMEMBERED_MS}
    if known is not None and request.deposes and known.session not in ("", request.session):
        deposed[known.session] = _lost(known.session, known.generation, now_ms)
    for session in request.dismisses:
        deposed[session] = _lost(session, max(1, generation - 1), now_ms)
    for session, tried in request.evicts.items():
        listed = deposed.get(session)
        deposed[session] = _lost(session, 0 if listed is None else listed.generation, tried)
    nobody = request.session == NOBODY
    stays = known if keeps else None
    return state.Ownership(
        topic_id=topic_id.bytes,
        generation=generation,
        session="" if nobody else request.session,
        name="" if nobody else request.name,
        mode=MODE_NUMBERS[request.mode],
        since_ms=now_ms if stays is None else stays.since_ms,
        start=pack_offsets(ends) if stays is None else stays.start,
        deposed=_kept(deposed.values()),
        released_ms=now_ms if nobody else 0,
        client=request.client,
    )


def _lost(session: str, generation: int, tried_ms: int) -> state.Deposed:
    """The entry of a deposed session. `generation`: the one under which it owned the topic or wrote beside others; 0 if
    it did neither. It has no name: nobody reads that, and names would be most of the list.
    """
    return state.Deposed(session=session, generation=generation, last_try_ms=tried_ms)


def _kept(deposed: Iterable[state.Deposed]) -> list[state.Deposed]:
    """The newest sessions that owned or wrote, and the newest others; the others never displace those."""
    in_order = sorted(
        (found for found in deposed if not Session(found.session).is_plain), key=lambda found: found.last_try_ms
    )
    lost = [found for found in in_order if found.generation]
    others = [found for found in in_order if not found.generation]
    return [*lost[-DEPOSED_KEPT:], *others[-STRANGERS_KEPT:]]


def freed(known: state.Ownership, now_ms: int, *, deposes: bool) -> state.Ownership:
    """Other sessions write from now on: the last owner can never continue with its generation."""
    if not known.session:
        return known
    found = state.Ownership()
    found.CopyFrom(known)
    if deposes and not Session(known.session).is_plain and all(each.session != known.session for each in known.deposed):
        found.deposed.append(_lost(known.session, known.generation, now_ms))
    found.session, found.name, found.released_ms = "", "", now_ms
    return found


def opening(
    topic_id: UUID,
    node: int,
    stamp: Stamp,
    session: tuple[Session, str],
    generation: int | None,
    sequences: Sequences,
    now_ms: int,
    *,
    retired_ids: Iterable[int] = (),
    former: Iterable[state.FormerWriter] = (),
    ids_from: Mapping[int, int] | None = None,
    begins: Mapping[int, int] | None = None,
    caller: Caller | None = None,
    under: int = 0,
) -> Opened:
    """The record that opens an epoch for a session (id and name); without a generation, that of a shared slot.

    `begins`: offsets before everything that is written under the epoch. `caller`: the client that the session belongs
    to, if that is known. `under`: the offset of the master slot's record, for another slot.
    """
    record = state.Slot() if generation is None else state.Serving(generation=generation)
    record.topic_id, record.node, record.since_ms = topic_id.bytes, node, now_ms
    record.producer_id, record.producer_epoch = stamp.producer_id, stamp.epoch
    record.session, record.name = session
    if caller is not None and record.session:
        record.principal, record.client_id = caller
    record.base.CopyFrom(pack_positions(sequences.bases))
    record.refused.extend(pack_refused(sequences.refused))
    record.left.extend(sequences.left)
    record.retired_producer_ids.extend(retired_ids)
    record.former.extend(former)
    if ids_from is not None and isinstance(record, state.Serving):
        record.ids_from.CopyFrom(pack_offsets(ids_from))
    if begins is not None:
        record.begins.CopyFrom(pack_offsets(begins))
    record.under = under
    if sequences.own:
        record.own.CopyFrom(pack_positions(sequences.own))
    return record


def former_writers(
    opened: Opened | None, stamp: Stamp, name: str, is_covered: Callable[[int, int], bool], most: int
) -> list[state.FormerWriter]:
    """The writers of a slot's earlier epochs, oldest first; `name`: the writer of the new one. `is_covered` returns
    whether snapshots have everything of a producer id and epoch. Of writers that are covered, or above `most`, only the
    last per producer id stays, without its name: so no batch of theirs is taken for another writer's.

    A session that raised its epoch, or returns under its name, needs no entry: an entry is valid from the one before it
    up to its own epoch.
    """
    if opened is None:
        return []
    found = list(opened.former)
    goes_on = opened.producer_id == stamp.producer_id and opened.name == name
    if opened.session and not goes_on:
        found.append(
            state.FormerWriter(producer_id=opened.producer_id, last_epoch=opened.producer_epoch, name=opened.name)
        )
    forgotten: dict[int, state.FormerWriter] = {}
    kept: list[state.FormerWriter] = []
    for index, each in enumerate(found):
        if each.forgotten or index < len(found) - most or is_covered(each.producer_id, each.last_epoch):
            one = state.FormerWriter(producer_id=each.producer_id, last_epoch=each.last_epoch, forgotten=True)
            forgotten[each.producer_id] = one
        else:
            kept.append(each)
    return [*forgotten.values(), *kept]


def caller_of(record: Opened | state.LeftSession) -> Caller | None:
    """The client that a record's session belongs to; None if the record does not name it."""
    return Caller(record.principal, record.client_id) if record.HasField("client_id") else None


def callers(opened: Opened) -> dict[str, Caller]:
    """The clients of the sessions in a record: the session of its epoch, and those that left."""
    said = {left.session: caller_of(left) for left in opened.left}
    if opened.session and (caller := caller_of(opened)) is not None:
        said[opened.session] = caller
    return {session: caller for session, caller in said.items() if caller is not None}


@dataclass(frozen=True, slots=True)
class FormerWriters:
    """The writers of a slot's earlier epochs that no snapshot covers, if its topic has sequence ids.

    A record names them, so that their batches are counted under the right producer names when the log is read again
    (`dedup`). Batches that snapshots have need no name any more. `_ids`: the topic's sequence ids; None: it has none.
    `_is_master`: the slot is the master slot.
    """

    _topic: str
    _ids: TopicIds | None
    _is_master: bool

    def check(self, node: int, opened: Entry[Opened] | None) -> None:
        """Raise `KafkaError` 5 LEADER_NOT_AVAILABLE if there were more writers than a record can name. If another node
        opened the newest epoch, this node's memory of the ids is incomplete.
        """
        ids = self._ids
        if ids is None or opened is None:
            return
        former = opened.value.former
        is_covered = any(each.forgotten or ids.is_covered(each.producer_id, each.last_epoch) for each in former)
        if len(former) >= _FORMER_KEPT and not is_covered:
            ids.urge()
            message = f"{_FORMER_KEPT} writers of {self._topic} came and went since its last snapshot; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        if self._is_master and opened.value.node != node:
            ids.distrust()

    def listed(self, record: Opened | None, stamp: Stamp, name: str) -> list[state.FormerWriter]:
        """The former writers for the record of the epoch `stamp`, whose writer has this name."""
        if self._ids is None:
            return former_writers(record, stamp, name, lambda _, __: False, _FORMER_KEPT_WITHOUT_IDS)
        return former_writers(record, stamp, name, self._ids.is_covered, 2 * _FORMER_KEPT)

    def ids_from(self, opened: Entry[Opened] | None, ends: Mapping[int, int]) -> dict[int, int] | None:
        """Where the topic's logs ended when it began to have sequence ids: now (`ends`) if it had none before. None if
        it has none, or for a slot other than the master slot.
        """
        if self._ids is None or not self._is_master:
            return None
        if opened is None or opened.offset < self._ids.since:
            return dict(ends)
        value = opened.value
        if isinstance(value, state.Serving) and value.HasField("ids_from"):
            return unpack_offsets(value.ids_from)
        return dict(ends)
