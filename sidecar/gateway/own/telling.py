"""How the answers to Own and Watch read. Decides nothing, changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.cluster.resolver import is_legal
from sidecar.exclusive.owning import Look, Prospect
from sidecar.gateway.own.bodies import NOBODY
from sidecar.gateway.own.describe import ownership_of
from sidecar.gateway.own.looks import not_now
from sidecar.gateway.owners import standing
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.exclusive.governor import Governor
    from sidecar.exclusive.owning import TopicOwners
    from sidecar.gateway.own.asked import Asked, Target
    from sidecar.gateway.own.tickets import Ticket
    from sidecar.protocol.errors import KafkaError
    from sidecar.resources.coordinator import Coordinator

_RELEASED = "this claim was released: claim with a new token"
_LOST = "this claim was lost for good: claim with a new token"


class Teller:
    """Words answers by what the rooms know at that moment."""

    def __init__(self, nodes: NodeDirectory, governor: Governor, topics: TopicOwners, coordinator: Coordinator) -> None:
        self._nodes = nodes
        self._governor = governor
        self._topics = topics
        self._coordinator = coordinator

    # Ownerships -------------------------------------------------------------------------------------------------------

    def now(self, target: Target) -> control.Ownership:
        """Who owns a target."""
        if target.is_written and not is_legal(target.topic.encode()):
            return control.Ownership(resource=target.resource, serving_node=NOBODY)
        if target.is_written:
            return ownership_of(target.resource, standing(self._governor, self._nodes, target.topic))
        found, _ = self._coordinator.describe(target.group, [target.key])
        if found:
            return found[0]
        node = self._coordinator.node
        return control.Ownership(resource=target.resource, serving_node=NOBODY if node is None else node)

    def standing(self, ticket: Ticket, target: Target) -> control.Ownership:
        """How a request that was granted a target stands there now: NONE with its generation, or why it lost it."""
        told = self.now(target)
        if not target.is_written:
            if told.owner_session != ticket.asked.session:
                told.error, told.message = control.DEPOSED, _LOST
            elif not self._coordinator.coordinates:
                told.error, told.message = control.NOT_SERVING, "another node coordinates claims now: ask there"
            return told
        claim = ticket.claims[target]
        generation = self._topics.generation(claim)
        if self._topics.is_served_elsewhere(claim) and generation is not None:
            told.error, told.message = control.NOT_SERVING, f"another node serves {target.topic}: ask there"
        elif generation is None:
            told.error, told.message = control.DEPOSED, _LOST
        else:
            told.generation = generation
        return told

    # Answers ----------------------------------------------------------------------------------------------------------

    def owned(self, ticket: Ticket) -> control.OwnResponse:
        """What a request that was granted owns, and has lost since."""
        found: list[control.Ownership] = []
        for target in ticket.asked.targets:
            told = ticket.lost.get(target)
            if told is None:
                told = self.now(target)
                if target in ticket.released:
                    told.error, told.message = control.DEPOSED, _RELEASED
            found.append(told)
        return self._response(ticket.asked, found)

    def waiting(self, ticket: Ticket) -> control.OwnResponse:
        """It has its places still."""
        answer = self._response(ticket.asked, [self.now(target) for target in ticket.asked.targets])
        answer.error = control.TIMED_OUT
        answer.message = "still waiting: ask again with the same token to keep the place"
        for told in answer.ownerships:
            told.error = control.TIMED_OUT
        return answer

    def answer(self, asked: Asked, looks: Mapping[Target, Look]) -> control.OwnResponse:
        """Nothing was granted: who owns each target, and what is wrong with which."""
        found: list[control.Ownership] = []
        for target in asked.targets:
            told, look = self.now(target), looks.get(target)
            if look is not None and look.prospect is Prospect.REFUSED:
                told.error, told.message = look.error, look.message
            found.append(told)
        return self._response(asked, found)

    def refused(self, asked: Asked, error: control.Error, message: str) -> control.OwnResponse:
        """Nothing was granted, for one reason."""
        return self.answer(asked, dict.fromkeys(asked.targets, Look(Prospect.REFUSED, error, message)))

    def not_coordinating(self, asked: Asked, error: KafkaError) -> control.OwnResponse:
        """Free strings and reader claims are another node's affair, or nobody's now."""
        look = not_now(error)
        return self.answer(asked, {target: look for target in asked.targets if not target.is_written})

    def _response(self, asked: Asked, found: list[control.Ownership]) -> control.OwnResponse:
        first = next((told for told in found if told.error != control.NONE), None)
        return control.OwnResponse(
            error=control.NONE if first is None else first.error,
            message="" if first is None else first.message,
            ownerships=found,
            producer_name=asked.name,
        )
