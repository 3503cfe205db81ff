"""A record of history as REST has it: pure."""

from __future__ import annotations

import dataclasses
from typing import Final

from sidecar.exclusive.records import mode_of
from sidecar.node import port
from sidecar.v1 import state_pb2 as state

_KINDS: Final = {number: port.EventKind(name.lower()) for name, number in state.Event.Kind.items() if number}
_NOTHING: Final = port.EventDetails()


def as_event(position: int, event: state.Event) -> port.Event | None:
    """None for a kind of a newer node."""
    if event.kind not in _KINDS:
        return None
    details = _details(event)
    return port.Event(
        position=position,
        id=event.id.hex(),
        kind=_KINDS[event.kind],
        at_ms=event.at_ms,
        topic=event.topic,
        generation=event.generation,
        session=event.session,
        name=event.name,
        mode=mode_of(event.mode) if event.mode else None,
        client=event.client,
        node_id=event.node,
        detail=event.detail,
        partition=event.partition if event.HasField("partition") else None,
        details=None if details == _NOTHING else details,
    )


def _details(event: state.Event) -> port.EventDetails:
    said = event.details
    found = port.EventDetails(
        by=said.by or None,
        deposed=said.deposed or None,
        reason=said.reason or None,
        deleted=said.deleted or None,
        policy=_policy(event),
        closed=said.closed if said.HasField("closed") else None,
        reset=_reset(said.reset) if said.HasField("reset") else None,
    )
    if not said.HasField("shadow"):
        return found
    shadow = said.shadow
    return dataclasses.replace(
        found,
        source=shadow.source,
        allow=None if said.long_allow else tuple(shadow.allow),
        auto_reset_backlog_entries=shadow.auto_reset_backlog_entries,
    )


def _policy(event: state.Event) -> port.Policy | None:
    """A policy is JSON in `detail`. None for one that is gone, and for what a newer node writes."""
    if event.kind != state.Event.POLICY:
        return None
    try:
        return port.Policy.of_body(event.detail)
    except (ValueError, TypeError):
        return None


def _reset(said: state.CursorReset) -> port.CursorReset:
    moves = zip(said.partition, said.from_offset, said.to_offset, strict=True)
    return port.CursorReset(
        said.group, said.limit, {index: port.CursorMove(before, after) for index, before, after in moves}
    )
