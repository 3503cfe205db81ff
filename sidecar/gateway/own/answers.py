"""Builds the answers to Own, and the ownerships that Watch reports; and the rooms that they are asked of. Decides
nothing, changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sidecar.access.prospects import Look, Prospect
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.owning import TopicClaim, TopicOwners
from sidecar.gateway.own.asked import Asked, Target
from sidecar.gateway.own.bodies import NOBODY
from sidecar.gateway.own.describe import ownership_of
from sidecar.gateway.own.tickets import Ticket
from sidecar.gateway.owners import Standing, standing
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.requests import gone_message
from sidecar.v1 import control_pb2 as control

_RELEASED = "this claim was released: claim with a new token"
_SUPERSEDED = "its session has claimed it under another token"


class Answers:
    """Answers from what the rooms know at that moment."""

    def __init__(
        self, nodes: NodeDirectory, governed: GovernedTopics, topics: TopicOwners, coordinator: Coordinator
    ) -> None:
        self._nodes = nodes
        self._governed = governed
        self._topics = topics
        self._coordinator = coordinator

    # Ownerships -------------------------------------------------------------------------------------------------------

    def now(self, targets: Sequence[Target]) -> list[control.Ownership]:
        """The owner of each of these; in one group, as those of a request are."""
        topics: dict[str, Standing] = {}
        found: dict[Target, control.Ownership] = {}
        for target in targets:
            if not target.is_written:
                (found[target],) = self._coordinator.state.owners([target.key])
                continue
            if not is_legal(target.topic.encode()):
                found[target] = control.Ownership(resource=target.resource, serving_node=NOBODY)
                continue
            if target.topic not in topics:
                topics[target.topic] = standing(self._governed, self._nodes, target.topic, queue=False)
            found[target] = ownership_of(target.resource, topics[target.topic])
        return [found[target] for target in targets]

    def standing(self, ticket: Ticket, target: Target) -> control.Ownership:
        """How a request that was granted a target stands there now: NONE with its generation, or why it lost it."""
        if target.is_written:
            return self._of_topic(ticket.claims[target], target)
        (ownership,) = self.now([target])
        superseded = target.key in self._coordinator.lost_by(ticket.asked.token)  # the session has another token for it
        if ownership.owner_session != ticket.asked.session:
            ownership.error, ownership.message = control.DEPOSED, gone_message(ownership)
        elif superseded:
            ownership.error, ownership.message = control.DEPOSED, _SUPERSEDED
        elif not self._coordinator.coordinates:
            ownership.error, ownership.message = control.NOT_SERVING, "another node coordinates claims now: ask there"
        return ownership

    def _of_topic(self, claim: TopicClaim, target: Target) -> control.Ownership:
        generation = self._topics.generation(claim)
        if generation is None:
            (ownership,) = self.now([target])
            ownership.error, ownership.message = control.DEPOSED, gone_message(ownership)
        elif self._topics.is_served_elsewhere(claim):
            (ownership,) = self.now([target])
            ownership.error, ownership.message = control.NOT_SERVING, f"another node serves {target.topic}: ask there"
        else:  # asked for each of hundreds of partitions: without a look at the others
            own, node_id = claim.claimant, self._nodes.me.id
            ownership = control.Ownership(resource=target.resource, generation=generation, serving_node=node_id)
            ownership.owner_name, ownership.owner_session, ownership.fencing_token = own.label, own.session, generation
        return ownership

    def superseded(self, target: Target) -> control.Ownership:
        """Another request of the same session has a target now."""
        (ownership,) = self.now([target])
        ownership.error, ownership.message = control.DEPOSED, _SUPERSEDED
        return ownership

    # Answers ----------------------------------------------------------------------------------------------------------

    def owned(self, ticket: Ticket) -> control.OwnResponse:
        """What a request that was granted owns, and has lost since."""
        targets = ticket.asked.targets
        found = self.now(targets)
        for number, target in enumerate(targets):
            if target in ticket.lost:
                found[number] = ticket.lost[target]
            elif target in ticket.released:
                found[number].error, found[number].message = control.DEPOSED, _RELEASED
            elif (
                found[number].owner_session != ticket.asked.session
            ):  # lost this moment: the request has not heard of it yet
                found[number] = self.standing(ticket, target)
        return self._response(ticket.asked, found)

    def waiting(self, ticket: Ticket) -> control.OwnResponse:
        """It has its places still."""
        answer = self._response(ticket.asked, self.now(ticket.asked.targets))
        answer.error = control.TIMED_OUT
        answer.message = "still waiting: ask again with the same token to keep the place"
        for ownership in answer.ownerships:
            ownership.error = control.TIMED_OUT
        return answer

    def not_granted(self, asked: Asked, looks: Mapping[Target, Look]) -> control.OwnResponse:
        """Nothing was granted: the owner of each target, and what is wrong with which."""
        found = self.now(asked.targets)
        for target, ownership in zip(asked.targets, found, strict=True):
            look = looks.get(target)
            if look is not None and look.prospect is Prospect.REFUSED:
                ownership.error, ownership.message = look.error, look.message
        return self._response(asked, found)

    def refused(self, asked: Asked, error: control.Error, message: str) -> control.OwnResponse:
        """Nothing was granted, for one reason."""
        return self.not_granted(asked, dict.fromkeys(asked.targets, Look(Prospect.REFUSED, error, message)))

    def not_coordinating(self, asked: Asked, error: KafkaError) -> control.OwnResponse:
        """Free strings and reader claims are another node's affair, or without an owner now."""
        look = not_now(error)
        return self.not_granted(asked, {target: look for target in asked.targets if not target.is_written})

    def _response(self, asked: Asked, found: list[control.Ownership]) -> control.OwnResponse:
        first = next((ownership for ownership in found if ownership.error != control.NONE), None)
        return control.OwnResponse(
            error=control.NONE if first is None else first.error,
            message="" if first is None else first.message,
            ownerships=found,
            producer_name=asked.name,
        )


class Rooms(NamedTuple):
    """The rooms that claims are made in, and what builds the answers."""

    upstream: KafkaUpstream
    nodes: NodeDirectory
    resolver: NameResolver
    governed: GovernedTopics
    topics: TopicOwners
    coordinator: Coordinator
    answers: Answers


def not_now(error: KafkaError) -> Look:
    """Another node coordinates (6), or nobody can now (5)."""
    elsewhere = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    return Look(Prospect.REFUSED, control.NOT_SERVING if elsewhere else control.UNAVAILABLE, error.message)
