"""Reports what happens to governed topics, and what clients are refused: to the events topic, Redis, metrics and the
log.
"""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata import MetadataUnavailable
from metadata.ownership import Generation, Ownership
from sidecar.access.services import NodeServices
from sidecar.changelog import FAILURES
from sidecar.network.tasks import Tasks
from sidecar.ownership.state import Holder, State
from sidecar.protocol.session import Caller
from sidecar.takeover.records import mode_number
from sidecar.takeover.requests import NOBODY, Purpose, Request
from sidecar.takeover.slots import SlotScope, TakenSlot, generation_of
from sidecar.telemetry.ownership_reports import OwnershipReports
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state


class Subject(NamedTuple):
    """What is reported of a topic, or of a partition with its own owner. `taken`: the slot epoch under which its owner
    writes here; None if it does not.
    """

    scope: SlotScope
    state: State
    taken: TakenSlot | None

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.scope.topic


@dataclass(eq=False)
class OwnershipEvents:
    """Publishes changes once the changelog has them."""

    _services: NodeServices
    _tasks: Tasks
    _hooks: OwnershipReports
    _in_order: asyncio.Lock = field(default_factory=asyncio.Lock)

    def taken_over(
        self, topic: Subject, request: Request, before: Holder | None, seconds: float, by: Caller | None
    ) -> None:
        """Report a takeover of a topic or partition. `by`: the client whose batch or claim began it."""
        holder = topic.state.holder
        kept = before is not None and holder is not None and before.session == holder.session
        deposed = before.label if before is not None and request.deposes and not kept else None
        mode = request.mode.value
        self._hooks.takeover(
            topic.name, mode, seconds, holder.session if holder else "", topic.state.generation, deposed
        )
        if request.purpose is Purpose.CLAIM and by is not None:
            lost = request.dismisses if deposed is None else (deposed, *request.dismisses)
            if lost:
                self._hooks.deposed(_named(topic), lost, by, request.client)
        self._owner_changed(topic, holder.label if holder else None, mode)
        kind = (
            state.Event.FAILOVER if kept else state.Event.DEPOSED if request.session == NOBODY else state.Event.CLAIMED
        )
        if deposed is not None and before is not None and request.session != NOBODY:
            self._add_event(state.Event.DEPOSED, topic, before, by=holder.label if holder else "")
        self._add_event(kind, topic, holder or before, deposed=deposed or "")

    def _owner_changed(self, topic: Subject, label: str | None, mode: str | None) -> None:
        """Report the owner to the metrics; a topic with owners per partition has their highest generation."""
        if topic.scope.is_master:
            self._hooks.owner_changed(topic.name, topic.state.generation, label, mode if label is not None else None)
        else:
            # This partition's newest record may not have been read back yet.
            known = generation_of(self._services.changelog.view, SlotScope(topic.name))
            highest = max(topic.state.generation, known)
            self._hooks.owner_changed(topic.name, highest, None, None)

    def report_again(self, topic: Subject) -> None:
        """Report a topic's owner again: metrics may have forgotten it."""
        holder = topic.state.holder
        self._owner_changed(topic, holder.label if holder else None, holder.mode.value if holder else None)

    def shared_opened(self, topic: str, taken: TakenSlot, client: str) -> None:
        """Report that a session writes beside others from now on, under this epoch."""
        event = state.Event(
            kind=state.Event.CLAIMED, topic=topic, session=taken.session, name=taken.name, mode=control.SHARED,
            client=client,
        )  # fmt: skip
        self._add(event, taken)

    def shared(self, topic: Subject, last: Holder) -> None:
        """Report that the last owner is deposed: sessions write beside each other now."""
        self._owner_changed(topic, None, None)
        self._add_event(state.Event.DEPOSED, topic, last, reason="shared producers write now")

    async def released(self, topic: Subject, holder: Holder) -> None:
        """Report that the owner was released."""
        self._hooks.released(topic.name, holder.session, topic.state.generation)
        self._owner_changed(topic, None, None)
        self._add_event(state.Event.RELEASED, topic, holder)
        held = Ownership(
            topic.scope.resource,
            Generation(topic.state.generation),
            max(0, topic.state.position),
            holder.session,
            holder.name,
            node_id=self._services.node_id,
        )
        with suppress(MetadataUnavailable):  # the next claim brings the changelog's record with it
            await self._services.store.release(held)

    def _add_event(
        self,
        kind: state.Event.Kind,
        topic: Subject,
        holder: Holder | None,
        *,
        by: str = "",
        deposed: str = "",
        reason: str = "",
    ) -> None:
        detail = f"by {by}" if by else f"deposed {deposed}" if deposed else reason
        ownership = topic.state.record
        event = state.Event(
            kind=kind,
            topic=topic.name,
            generation=holder.generation if kind == state.Event.DEPOSED and holder else topic.state.generation,
            session=holder.session if holder else "",
            name=holder.name if holder else "",
            mode=mode_number(holder.mode) if holder else control.ACCESS_MODE_UNSPECIFIED,
            client=ownership.client if ownership is not None else "",
            detail=detail,
        )
        if detail:
            event.details.CopyFrom(state.EventDetails(by=by, deposed=deposed, reason=reason))
        if topic.scope.partition is not None:
            event.partition = topic.scope.partition
        if ownership is not None:
            event.start.CopyFrom(ownership.start)
        self._add(event, topic.taken)

    def policy_changed(self, name: str, body: str, at_ms: int, by: str) -> None:
        """Report that an operator, or a client by its mode, changed a policy. `body` is empty if it was deleted, `by`
        if its author is unknown.

        `at_ms` is no later than what nodes do because of it: an audit uses it to see which epochs came before.
        """
        event = state.Event(kind=state.Event.POLICY, at_ms=at_ms, topic=name, detail=body or "deleted")
        if by or not body:
            event.details.CopyFrom(state.EventDetails(by=by, deleted=not body))
        self._add(event)

    async def client_refused(self, topic: str, client_id: str, host: str, detail: str, at_ms: int) -> None:
        """Report that a client was refused for a new reason. `topic`: "" if it is about no topic."""
        event = state.Event(
            kind=state.Event.REFUSED, at_ms=at_ms, topic=topic, name=client_id, client=host, detail=detail
        )
        await self._append(self._signed(event))

    def _add(self, event: state.Event, taken: TakenSlot | None = None) -> None:
        """Append an event. `taken`: the slot epoch under which the owner writes."""
        if taken is not None:
            event.producer_id, event.producer_epoch = taken.stamp.producer_id, taken.stamp.epoch
            if taken.caller is not None:
                event.client_id = taken.caller.client_id
        self._tasks.start(self._append(self._signed(event)))

    def _signed(self, event: state.Event) -> state.Event:
        event.id, event.node = secrets.token_bytes(16), self._services.node_id
        event.at_ms = event.at_ms or self._services.changelog.clock.now_ms()
        return event

    async def _append(self, event: state.Event) -> None:
        try:
            async with self._in_order:
                await self._services.changelog.add_event(event)
        except FAILURES as error:
            self._hooks.operation_failed(event.topic, error)


def _named(topic: Subject) -> str:
    """The topic, or its partition as `orders-3`."""
    partition = topic.scope.partition
    return topic.name if partition is None else f"{topic.name}-{partition}"
