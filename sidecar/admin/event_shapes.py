"""What REST says of an event: from its record in the changelog. Pure."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any, Final

from sidecar.admin.fields import COUNT, FLAG, NUMBER, TEXT, TIME, Kind, Shape, by_key, list_of
from sidecar.admin.producer_ids import DETAIL, SESSION
from sidecar.admin.shapes import MODE, POLICY
from sidecar.exclusive.records import mode_of
from sidecar.node.port import Policy
from sidecar.v1 import state_pb2 as state

KINDS: Final = {number: name.lower() for name, number in state.Event.Kind.items() if number}
"""By the number in a record; a newer node writes others."""


def _said(name: str) -> Callable[[state.Event], Any]:
    """A detail that is a text or a flag; None where it is empty."""
    return lambda event: getattr(event.details, name) or None


def _present(get: Callable[[state.EventDetails], Any], name: str) -> Callable[[state.Event], Any]:
    """A detail that may be empty; None where it is not there."""
    return lambda event: get(event.details) if event.details.HasField(name) else None


def _policy(event: state.Event) -> Policy | None:
    """A policy is JSON in `detail`. None for one that is gone, and for what a newer node writes."""
    if event.kind != state.Event.POLICY:
        return None
    try:
        return Policy.of_body(event.detail)
    except (ValueError, TypeError):
        return None


def _moves(reset: state.CursorReset) -> dict[int, tuple[int, int]]:
    """The offsets before and after, by partition."""
    moves = zip(reset.partition, reset.from_offset, reset.to_offset, strict=True)
    return {index: (before, after) for index, before, after in moves}


_CURSOR_MOVE: Final = Shape("CursorMove", before=NUMBER.of(itemgetter(0)), after=NUMBER.of(itemgetter(1)))
_CURSOR_RESET: Final = Shape("CursorReset", group=TEXT, limit=NUMBER, partitions=by_key(_CURSOR_MOVE.inline).of(_moves))
EVENT_DETAILS: Final = Shape(
    "EventDetails",
    "What `detail` says, for programs: only the fields that the event has.",
    by=DETAIL.said("deposed: who owns it since, a name or a session; policy: who changed it, in words.")
    .of(_said("by"))
    .or_absent(),
    deposed=DETAIL.said("claimed, failover: who owned it before, a name or a session.")
    .of(_said("deposed"))
    .or_absent(),
    reason=TEXT.of(_said("reason")).or_absent(),
    deleted=FLAG.said("A policy, or a shadow.").of(_said("deleted")).or_absent(),
    policy=POLICY.kind.of(_policy).or_absent(),
    source=TEXT.said("Of a shadow, as it is since; so are the next two.")
    .of(_present(attrgetter("shadow.source"), "shadow"))
    .or_absent(),
    allow=list_of(TEXT)
    .said("Left out where it is long.")
    .of(_present(lambda said: None if said.long_allow else said.shadow.allow, "shadow"))
    .or_absent(),
    auto_reset_backlog_entries=COUNT.of(
        _present(attrgetter("shadow.auto_reset_backlog_entries"), "shadow")
    ).or_absent(),
    closed=TEXT.said('Why a shadow cannot be read any more; "": it can again.')
    .of(_present(attrgetter("closed"), "closed"))
    .or_absent(),
    reset=_CURSOR_RESET.inline.said("A cursor that fell too far behind and was moved to the end.")
    .of(_present(attrgetter("reset"), "reset"))
    .or_absent(),
)
EVENT: Final = Shape(
    "Event",
    id=TEXT.of(lambda event: event.id.hex()),
    at=TIME.of("at_ms"),
    kind=Kind({**TEXT.schema, "enum": list(KINDS.values())}, KINDS.__getitem__),
    topic=TEXT,
    partition=NUMBER.or_null().of(lambda event: event.partition if event.HasField("partition") else None),
    generation=NUMBER,
    session=SESSION,
    name=TEXT,
    mode=MODE.or_null().of(lambda event: mode_of(event.mode) if event.mode else None),
    client=TEXT,
    node=NUMBER,
    detail=DETAIL.said("For people."),
    details=Kind(EVENT_DETAILS.kind.schema).of(lambda event: EVENT_DETAILS.to_json(event) or None).or_absent(),
)
