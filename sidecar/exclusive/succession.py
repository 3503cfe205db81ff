"""What a takeover writes down: whose the topic is from now on, and where the sequences of every session go on. Pure.

Stamped sequence = client sequence - base (`sidecar.forwarder.sequences`), so the base of the next epoch is the client's
next sequence: behind the last one that the log holds, or behind those that were refused for good. Sessions that left
without being deposed are listed with theirs for a day, so that they find their place when they come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from metadata.ownership import AccessMode
from sidecar.changelog import Position, pack_offsets, pack_positions, unpack_positions
from sidecar.forwarder.sequences import MODULUS, RefusedSequences, place_behind
from sidecar.protocol.ids import ProducerId
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from sidecar.changelog import Opened
    from sidecar.protocol.ids import Stamp

NOTHING: Final = -1
"""A last stamped sequence where nothing was stamped."""

UNKNOWN: Final = -2
"""A last stamped sequence where a record names some, and the log does not tell any more which of them it has."""

_NOWHERE: Final = 2**28
"""So far in front of a base no client sends anything: from there on all that it does send is a gap (45)."""

NOBODY: Final = "admin:fence"
"""The session under which an administrator's fence claims: nobody owns the topic afterwards."""

REMEMBERED_MS: Final = 24 * 3600 * 1000
"""How long deposed sessions and those that left are listed."""

_EPOCHS: Final = 32_768
_LEFT_KEPT: Final = 5_000
_LEFT_KEPT_SHARED: Final = 100
"""Of each shared slot, of which there are many."""
DEPOSED_KEPT: Final = 20_000
"""Of those that owned the topic or wrote: a change of owner every five seconds for a day. Without names they take less
than 640 KiB.
"""
STRANGERS_KEPT: Final = 1_000
"""Of those that only waited, or came on a connection that carried a deposed session: whoever can connect can add them.
"""
_LEFT_BYTES: Final = 384 * 1024
"""A record stays below a megabyte."""
_PLAIN: Final = "conn:"
_MODES: Final = {
    AccessMode.SHARED: control.SHARED,
    AccessMode.EXCLUSIVE: control.EXCLUSIVE,
    AccessMode.WAIT_FOR_EXCLUSIVE: control.WAIT_FOR_EXCLUSIVE,
    AccessMode.EXCLUSIVE_WITH_FENCING: control.EXCLUSIVE_WITH_FENCING,
}
_MODE_NAMES: Final = {int(number): mode for mode, number in _MODES.items()}


Shifts: TypeAlias = "Mapping[int, state.SequenceBase]"
"""Where the base of a slot's session moved within its newest epoch, by partition."""

_UNSHIFTED: Final[Shifts] = {}


@dataclass(frozen=True, slots=True)
class Mention:
    """Where a slot's record leaves a session: what it sends next by partition, and what was refused to it. Of several
    the latest epoch counts. `at` orders them: the offset of the master slot's record under which the epoch was opened,
    then that of its own record, which a frozen node may append late. `own` is where the session stood by its own
    producer id then.
    """

    at: tuple[int, int]
    next: Mapping[int, Position]
    refused: Mapping[int, RefusedSequences] = field(default_factory=dict[int, RefusedSequences])
    own: Mapping[int, Position] = field(default_factory=dict[int, Position])


class Sequences(NamedTuple):
    """What the record of the next epoch says of sequences: the session's bases, what is below them without being in the
    log, the sessions that left, and where the session stands by its own producer id.
    """

    bases: dict[int, Position]
    refused: dict[int, RefusedSequences]
    left: list[state.LeftSession]
    own: dict[int, Position]


class Memory(NamedTuple):
    """Where a session stood on this node, which served it under this epoch of this topic."""

    topic_id: UUID
    stamp: Stamp
    stands_at: Mapping[int, Position]


@dataclass(frozen=True, slots=True)
class Intent:
    """For whom a takeover is made. `refused` are the session's sequences that this node refused for good, by partition:
    they count as used. `client_epoch` is its client's on partitions where nothing is known of it. `deposes`: the holder
    loses the topic for good. `dismisses`: so do these, who write beside each other, and `evicts`: these, who waited or
    strike back (session, name, last try in Unix ms).
    `memory`: where the session stands as this node knows by itself. `adopts`: for nobody; the topic is free and
    stays so, but its fence needs a node. `shares`: so that sessions may write beside each other; the last owner, who
    might go on, is deposed. `splits`: so that partitions may have owners of their own; the last owner of the whole is
    one no more.
    """

    session: str
    name: str
    mode: AccessMode
    asked: int | None = None
    client: str = ""
    client_epoch: int = 0
    refused: Mapping[int, RefusedSequences] = field(default_factory=dict[int, RefusedSequences])
    deposes: bool = False
    dismisses: tuple[str, ...] = ()
    evicts: tuple[tuple[str, str, int], ...] = ()
    memory: Memory | None = None
    adopts: bool = False
    shares: bool = False
    splits: bool = False
    client_id: str | None = None
    """The client.id that the session belongs to; None: as it stands in the newest record that knows it."""
    generations: frozenset[int] | None = None
    """The takeover is wanted only where the generation is one of these."""


def is_plain(session: str) -> bool:
    """It ends with its connection and never comes back: nothing has to be remembered of it."""
    return session.startswith(_PLAIN)


def was_deposed(value: state.Ownership, session: str) -> bool:
    """Whether an owner that went on in good faith lost the topic for ever. A plain one is not listed: it never leaves
    before its connection closes, so another owner behind it deposed it.
    """
    return is_plain(session) or any(deposed.session == session for deposed in value.deposed)


def mode_of(number: int) -> AccessMode:
    """An access mode as records spell it; unknown numbers of a newer node count as exclusive."""
    return _MODE_NAMES.get(number, AccessMode.EXCLUSIVE)


def mode_number(mode: AccessMode) -> control.AccessMode:
    """An access mode as records spell it."""
    return _MODES[mode]


def next_positions(base: state.Positions, last: Mapping[int, int], shifts: Shifts = _UNSHIFTED) -> dict[int, Position]:
    """A session's next sequence per partition: its base where nothing was stamped, else behind the last one; the base
    being another one where duplicates were dropped. Where it is unknown Kafka shall refuse everything (45) until the
    client raises its epoch: a place is never guessed.
    """
    # Model: TakeOver.
    found: dict[int, Position] = {}
    for index, at in unpack_positions(base).items():
        if last.get(index, NOTHING) == UNKNOWN:
            found[index] = Position(at.client_epoch, place_behind(at.sequence - _NOWHERE))
            continue
        count = last.get(index, NOTHING) + 1  # stamped sequences do not wrap: `sequences.EPOCH_RECORDS`
        begins, shift = at.sequence, shifts.get(index)
        if shift is not None:
            begins = place_behind(shift.base) if count >= shift.from_sequence else shift.base_before
        found[index] = Position(at.client_epoch, place_behind(begins + count) if count else begins)
    return found


def own_producer_id(session: str) -> ProducerId | None:
    """The producer id under which a session writes where there is no policy; None: it has none."""
    return ProducerId(int(session[4:])) if session.startswith("pid:") else None


def _further(slots: Position, own: Position) -> Position:
    """Where a session stands that wrote through slots and, without a policy, under its own producer id."""
    if own.client_epoch == slots.client_epoch:
        return own if (own.sequence - slots.sequence) % MODULUS < MODULUS // 2 else slots
    return own if 0 < (own.client_epoch - slots.client_epoch) % _EPOCHS < _EPOCHS // 2 else slots


def begin_at(known: Position | None, refused: RefusedSequences | None, client_epoch: int) -> Position:
    """Where a session goes on in a partition, behind what was refused to it."""
    if known is None:
        known = Position(client_epoch if refused is None else refused.client_epoch, 0)
    if refused is None or refused.client_epoch != known.client_epoch:
        return known
    return Position(known.client_epoch, refused.behind(known.sequence))


def mention(
    session: str, opened: Opened, at: int, last: Mapping[int, int], now_ms: int, shifts: Shifts = _UNSHIFTED
) -> Mention | None:
    """What the record at offset `at`, behind whose epoch `last` are the last stamped sequences, says of a session."""
    if opened.session == session:
        next_ = next_positions(opened.base, last, shifts)
        return Mention((opened.under or at, at), next_, unpack_refused(opened.refused), unpack_positions(opened.own))
    for left in opened.left:
        if left.session == session and now_ms - left.left_ms < REMEMBERED_MS:
            own = unpack_positions(left.own)
            opened_at = left.under or left.opened_at, left.opened_at
            return Mention(opened_at, unpack_positions(left.next), unpack_refused(left.refused), own)
    return None


def sequences(
    intent: Intent,
    opened: Opened | None,
    partitions: Iterable[int],
    last: Mapping[int, int],
    before: Mapping[int, Position],
    now_ms: int,
    *,
    memory: Mapping[int, Position] = {},
    at: int = 0,
    elsewhere: Iterable[Mention] = (),
    shifts: Shifts = _UNSHIFTED,
) -> Sequences:
    """What the next epoch begins with.

    `last` are the last stamped sequences under the slot's newest epoch, which the record `opened` at offset `at`
    opened, and `shifts` say where its bases moved since; `before` is where the session stood without a policy,
    `memory` where it stands as this node knows by itself, `elsewhere` what other slots' records say of it.
    """
    mentions = list(elsewhere)
    if opened is not None and (own := mention(intent.session, opened, at, last, now_ms, shifts)) is not None:
        mentions.append(own)
    mentions.sort(key=lambda found: found.at)
    known, heard = {**before, **memory}, dict[int, Position]()
    for found in mentions:
        known.update(found.next)
        heard.update(found.own)
    for index, position in memory.items():
        known[index] = _further(known[index], position)
    for index, position in before.items():  # written while the topic had no policy, before its slots or between
        if heard.get(index) != position:  # else it was in front of a base before, and lags ever farther behind it
            known[index] = _further(known.get(index, position), position)
    refused = dict(mentions[-1].refused) if mentions else {}
    bases = {index: begin_at(known.get(index), intent.refused.get(index), intent.client_epoch) for index in partitions}
    listed = () if opened is None else opened.left
    left = {each.session: each for each in listed if now_ms - each.left_ms < REMEMBERED_MS}
    if opened is not None and opened.session not in ("", intent.session) and not intent.deposes:
        left[opened.session] = state.LeftSession(
            session=opened.session,
            name=opened.name,
            left_ms=now_ms,
            next=pack_positions(next_positions(opened.base, last, shifts)),
            refused=opened.refused,
            opened_at=at,
            under=opened.under or at,
            client_id=opened.client_id if opened.HasField("client_id") else None,
            own=opened.own if opened.HasField("own") else None,
        )
    left.pop(intent.session, None)
    gone = [session for session in left.values() if not is_plain(session.session)]
    gone.sort(key=lambda session: session.left_ms)
    for index, more in intent.refused.items():
        if index not in bases:
            continue  # of a topic that was created anew since, with fewer partitions
        into = refused.setdefault(index, RefusedSequences(more.client_epoch))
        for first, behind in more.spans:
            into.refused(more.client_epoch, first, (behind - first) % MODULUS)
    kept = _newest(gone, _LEFT_KEPT if isinstance(opened, state.Serving) else _LEFT_KEPT_SHARED)
    return Sequences(bases, refused, kept, heard | dict(before))


def pack_refused(refused: Mapping[int, RefusedSequences]) -> list[state.RefusedSpans]:
    """For a record, in the order of the partitions."""
    return [
        state.RefusedSpans(
            partition=index,
            client_epoch=found.client_epoch,
            first=[first for first, _ in found.spans],
            behind=[behind for _, behind in found.spans],
        )
        for index, found in sorted(refused.items())
        if found.spans
    ]


def unpack_refused(columns: Iterable[state.RefusedSpans]) -> dict[int, RefusedSequences]:
    """By partition. Raises ValueError where the columns do not fit together."""
    return {
        found.partition: RefusedSequences(found.client_epoch, list(zip(found.first, found.behind, strict=True)))
        for found in columns
    }


def ownership(
    intent: Intent,
    known: state.Ownership | None,
    topic_id: UUID,
    generation: int,
    ends: Mapping[int, int],
    now_ms: int,
    *,
    keeps: bool,
) -> state.Ownership:
    """Who owns the topic now. `keeps`: the last owner goes on, `known` stays as it is unless it was released."""
    if keeps and known is not None and (intent.adopts or not known.released_ms) and known.generation == generation:
        return _freed(known, now_ms, deposes=intent.shares) if intent.shares or intent.splits else known
    deposed = {} if known is None else {d.session: d for d in known.deposed if now_ms - d.last_try_ms < REMEMBERED_MS}
    if known is not None and intent.deposes and known.session not in ("", intent.session):
        deposed[known.session] = _lost(known.session, known.generation, now_ms)
    for session in intent.dismisses:
        deposed[session] = _lost(session, max(1, generation - 1), now_ms)
    for session, _, tried in intent.evicts:
        listed = deposed.get(session)
        deposed[session] = _lost(session, 0 if listed is None else listed.generation, tried)
    nobody = intent.session == NOBODY
    stays = known if keeps else None
    return state.Ownership(
        topic_id=topic_id.bytes,
        generation=generation,
        session="" if nobody else intent.session,
        name="" if nobody else intent.name,
        mode=_MODES[intent.mode],
        since_ms=now_ms if stays is None else stays.since_ms,
        start=pack_offsets(ends) if stays is None else stays.start,
        deposed=_kept(deposed.values()),
        released_ms=now_ms if nobody else 0,
        client=intent.client,
    )


def _lost(session: str, generation: int, tried_ms: int) -> state.Deposed:
    """`generation`: that under which it owned the topic or wrote beside others; 0 where it did neither. Names are for
    nobody, and would take most of the list.
    """
    return state.Deposed(session=session, generation=generation, last_try_ms=tried_ms)


def _kept(deposed: Iterable[state.Deposed]) -> list[state.Deposed]:
    """The newest of those that lost something, and of the others: these never displace those."""
    in_order = sorted((found for found in deposed if not is_plain(found.session)), key=lambda found: found.last_try_ms)
    lost = [_lost(found.session, found.generation, found.last_try_ms) for found in in_order if found.generation]
    others = [_lost(found.session, 0, found.last_try_ms) for found in in_order if not found.generation]
    return [*lost[-DEPOSED_KEPT:], *others[-STRANGERS_KEPT:]]


def opening(
    topic_id: UUID,
    node: int,
    stamp: Stamp,
    session: tuple[str, str],
    generation: int | None,
    bases: Mapping[int, Position],
    refused: Mapping[int, RefusedSequences],
    left: Iterable[state.LeftSession],
    retired_ids: Iterable[int],
    now_ms: int,
    former: Iterable[state.FormerWriter] = (),
    ids_from: Mapping[int, int] | None = None,
    begins: Mapping[int, int] | None = None,
    *,
    client_id: str | None = None,
    own: Mapping[int, Position] = {},
    under: int = 0,
) -> Opened:
    """The record that opens an epoch for a session (id and name), a shared slot's where it has no generation.

    `begins`: offsets in front of everything that is written under the epoch. `client_id`: whom the session belongs to,
    where that is known. `own`: where it stands by its own producer id. `under`: the offset of the master slot's record,
    for another slot.
    """
    record = state.Slot() if generation is None else state.Serving(generation=generation)
    record.topic_id, record.node, record.since_ms = topic_id.bytes, node, now_ms
    record.producer_id, record.producer_epoch = stamp.producer_id, stamp.epoch
    record.session, record.name = session
    if client_id is not None and record.session:
        record.client_id = client_id
    record.base.CopyFrom(pack_positions(bases))
    record.refused.extend(pack_refused(refused))
    record.left.extend(left)
    record.retired_producer_ids.extend(retired_ids)
    record.former.extend(former)
    if ids_from is not None and isinstance(record, state.Serving):
        record.ids_from.CopyFrom(pack_offsets(ids_from))
    if begins is not None:
        record.begins.CopyFrom(pack_offsets(begins))
    record.under = under
    if own and record.session:
        record.own.CopyFrom(pack_positions(own))
    return record


def client_ids(opened: Opened) -> dict[str, str]:
    """The client.ids that a record knows of sessions: of the one it opens an epoch for, and of those that left."""
    found = {left.session: left.client_id for left in opened.left if left.HasField("client_id")}
    if opened.session and opened.HasField("client_id"):
        found[opened.session] = opened.client_id
    return found


def former_writers(
    opened: Opened | None, stamp: Stamp, name: str, is_covered: Callable[[int, int], bool], most: int
) -> list[state.FormerWriter]:
    """Whose the earlier epochs of a slot were, oldest first; `name` is whose the new one is. `is_covered` tells of a
    producer id and epoch whether snapshots have all of it; of those, and of more than `most`, only the last is kept,
    without its name, so that nothing of theirs is ever taken for another's.

    A session that raised its epoch, or comes again under its name, needs no entry: one holds up to its epoch from the
    one before on.
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


def _freed(known: state.Ownership, now_ms: int, *, deposes: bool) -> state.Ownership:
    """Others write from now on: the last owner can never go on with its generation."""
    if not known.session:
        return known
    found = state.Ownership()
    found.CopyFrom(known)
    if deposes and not is_plain(known.session) and all(each.session != known.session for each in known.deposed):
        found.deposed.append(_lost(known.session, known.generation, now_ms))
    found.session, found.name, found.released_ms = "", "", now_ms
    return found


def retired(opened: Opened | None, stamp: Stamp) -> list[int]:
    """The producer ids that the slot had before this one."""
    if opened is None:
        return []
    found = list(opened.retired_producer_ids)
    if opened.producer_id != stamp.producer_id:
        found.append(opened.producer_id)
    return found


def _newest(listed: list[state.LeftSession], most: int) -> list[state.LeftSession]:
    """The last ones, so many and of so many bytes that the record always fits into the changelog."""
    room, first = _LEFT_BYTES, len(listed)
    while first > max(0, len(listed) - most) and (room := room - listed[first - 1].ByteSize()) >= 0:
        first -= 1
    return listed[first:]
