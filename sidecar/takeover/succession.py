"""Computes where the sequences of every session continue under the next epoch of a slot. Pure.

Stamped sequence = client sequence - base (`sidecar.forwarder.sequences`), so the base of the next epoch is the client's
next sequence: after the last one in the log, or after those that were refused for good. Sessions that left
without being deposed are listed with theirs for a day, so that they continue there when they return. Clients raise
their own epochs and start again at 0, partition by partition (KIP-360): so a position has the client epoch, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from sidecar.changelog import Opened, Position, pack_positions, unpack_positions
from sidecar.forwarder.sequences import MODULUS, RefusedSequences, place_behind
from sidecar.protocol.ids import ClientSequence, StampedSequence
from sidecar.protocol.session import Session
from sidecar.takeover.requests import Request
from sidecar.v1 import state_pb2 as state

NOTHING: Final = StampedSequence(-1)
"""The last stamped sequence if nothing was stamped."""

UNKNOWN: Final = StampedSequence(-2)
"""The last stamped sequence is unknown: a record names some, but the log no longer shows which of them were
appended."""

_NOWHERE: Final = 2**28
"""A base so far ahead of the client that every batch it sends is a gap: 45 OUT_OF_ORDER_SEQUENCE_NUMBER."""

REMEMBERED_MS: Final = 24 * 3600 * 1000
"""How long deposed sessions and those that left are listed."""

_EPOCHS: Final = 32_768
_LEFT_KEPT: Final = 5_000
_LEFT_KEPT_SHARED: Final = 100
"""The limit for the record of a shared slot: there are many such slots."""
_LEFT_BYTES: Final = 384 * 1024
"""The limit for the listed sessions: a record stays below a megabyte."""

Shifts: TypeAlias = "Mapping[int, state.SequenceBase]"
"""Where the base of a slot's session moved within its newest epoch, by partition."""

_UNSHIFTED: Final[Shifts] = {}


@dataclass(frozen=True, slots=True)
class Mention:
    """What a slot's record says of a session: its next sequence by partition, and its refused sequences. Of several
    mentions the latest epoch counts. `at` orders them: the offset of the master slot's record under which the epoch was
    opened, then the offset of its own record, which a frozen node may append late. `own`: the session's positions under
    its own producer id at that time.
    """

    at: tuple[int, int]
    next: Mapping[int, Position]
    refused: Mapping[int, RefusedSequences] = field(default_factory=dict[int, RefusedSequences])
    own: Mapping[int, Position] = field(default_factory=dict[int, Position])


class Sequences(NamedTuple):
    """The sequences in the record of the next epoch: the session's bases, the refused sequences below them (not in the
    log), the sessions that left, and the session's positions under its own producer id.
    """

    bases: dict[int, Position]
    refused: dict[int, RefusedSequences]
    left: list[state.LeftSession]
    own: dict[int, Position]


def next_positions(
    base: state.Positions, last: Mapping[int, StampedSequence], shifts: Shifts = _UNSHIFTED
) -> dict[int, Position]:
    """A session's next sequence per partition: its base if nothing was stamped, else after the last one. The base is
    another one after duplicates were dropped (`shifts`). If the last one is `UNKNOWN`, Kafka shall refuse everything
    with 45 OUT_OF_ORDER_SEQUENCE_NUMBER until the client raises its epoch: a position is never guessed.
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
            begins = place_behind(shift.base) if count >= shift.from_sequence else ClientSequence(shift.base_before)
        found[index] = Position(at.client_epoch, place_behind(begins + count) if count else begins)
    return found


def _further(slots: Position, own: Position) -> Position:
    """The later position of a session that wrote through slots and, without a policy, under its own producer id."""
    if own.client_epoch == slots.client_epoch:
        return own if (own.sequence - slots.sequence) % MODULUS < MODULUS // 2 else slots
    return own if 0 < (own.client_epoch - slots.client_epoch) % _EPOCHS < _EPOCHS // 2 else slots


def begin_at(known: Position | None, refused: RefusedSequences | None, client_epoch: int) -> Position:
    """Where a session continues in a partition: after the sequences that were refused to it."""
    if known is None:
        known = Position(client_epoch if refused is None else refused.client_epoch, ClientSequence(0))
    if refused is None or refused.client_epoch != known.client_epoch:
        return known
    return Position(known.client_epoch, refused.behind(known.sequence))


def mention(
    session: Session,
    opened: Opened,
    at: int,
    last: Mapping[int, StampedSequence],
    now_ms: int,
    shifts: Shifts = _UNSHIFTED,
) -> Mention | None:
    """What the record at offset `at` says of a session. `last`: the last stamped sequences of the record's epoch."""
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
    request: Request,
    opened: Opened | None,
    partitions: Iterable[int],
    last: Mapping[int, StampedSequence],
    before: Mapping[int, Position],
    now_ms: int,
    *,
    memory: Mapping[int, Position] = {},
    at: int = 0,
    elsewhere: Iterable[Mention] = (),
    shifts: Shifts = _UNSHIFTED,
) -> Sequences:
    """The sequences with which the next epoch begins.

    `opened`: the record of the slot's newest epoch, at offset `at`. `last`: the last stamped sequences of that epoch.
    `shifts`: where its bases moved since. `before`: the session's positions without a policy. `memory`: its positions
    as this node remembers them. `elsewhere`: what other slots' records say of the session.
    """
    mentions = list(elsewhere)
    if opened is not None and (own := mention(request.session, opened, at, last, now_ms, shifts)) is not None:
        mentions.append(own)
    mentions.sort(key=lambda found: found.at)
    known, heard = {**before, **memory}, dict[int, Position]()
    for found in mentions:
        known.update(found.next)
        heard.update(found.own)
    for index, position in memory.items():
        known[index] = _further(known[index], position)
    for index, position in before.items():  # written while the topic had no policy, before its slots or between
        if heard.get(index) != position:  # else it was below a base before, and lags ever farther behind it
            known[index] = _further(known.get(index, position), position)
    refused = dict(mentions[-1].refused) if mentions else {}
    bases = {
        index: begin_at(known.get(index), request.refused.get(index), request.client_epoch) for index in partitions
    }
    listed = () if opened is None else opened.left
    left = {each.session: each for each in listed if now_ms - each.left_ms < REMEMBERED_MS}
    if opened is not None and opened.session not in ("", request.session) and not request.deposes:
        left[opened.session] = state.LeftSession(
            session=opened.session,
            name=opened.name,
            left_ms=now_ms,
            next=pack_positions(next_positions(opened.base, last, shifts)),
            refused=opened.refused,
            opened_at=at,
            under=opened.under or at,
            client_id=opened.client_id if opened.HasField("client_id") else None,
            principal=opened.principal if opened.HasField("principal") else None,
            own=opened.own if opened.HasField("own") else None,
        )
    left.pop(request.session, None)
    gone = [session for session in left.values() if not Session(session.session).is_plain]
    gone.sort(key=lambda session: session.left_ms)
    for index, more in request.refused.items():
        if index not in bases:
            continue  # the topic was created anew since, with fewer partitions
        into = refused.setdefault(index, RefusedSequences(more.client_epoch))
        for first, behind in more.spans:
            into.refused(more.client_epoch, ClientSequence(first), (behind - first) % MODULUS)
    kept = _newest(gone, _LEFT_KEPT if isinstance(opened, state.Serving) else _LEFT_KEPT_SHARED)
    return Sequences(bases, refused, kept, heard | dict(before))


def pack_refused(refused: Mapping[int, RefusedSequences]) -> list[state.RefusedSpans]:
    """The refused sequences in the form of a record, in the order of the partitions."""
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
    """The refused sequences of a record, by partition. Raises ValueError if columns differ in length."""
    return {
        found.partition: RefusedSequences(found.client_epoch, list(zip(found.first, found.behind, strict=True)))
        for found in columns
    }


def _newest(listed: list[state.LeftSession], most: int) -> list[state.LeftSession]:
    """The last sessions of the list: at most `most`, and few enough bytes that the record fits into the changelog."""
    room, first = _LEFT_BYTES, len(listed)
    while first > max(0, len(listed) - most) and (room := room - listed[first - 1].ByteSize()) >= 0:
        first -= 1
    return listed[first:]
