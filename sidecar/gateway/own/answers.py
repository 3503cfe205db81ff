"""Answers to Own requests, the ownerships that Watch reports, and the reasons why a request cannot be granted here.
Changes nothing, except that ordinary topics become governed when they are requested.

Kafka's ACLs are checked when a request arrives, and again when its turn comes (`not_allowed`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from metadata.ownership import AccessMode
from sidecar.access.prospects import Look, Prospect
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, TopicKind, is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.owning import TopicClaim, TopicOwners
from sidecar.gateway.own.asked import Asked, Target
from sidecar.gateway.own.bodies import NOBODY
from sidecar.gateway.own.describe import existing_partitions, missing_of, ownership_of
from sidecar.gateway.own.tickets import Ticket
from sidecar.gateway.owners import Standing, standing
from sidecar.gateway.rights import Rights
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.requests import gone_message
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control

_RELEASED = "this claim was released: claim with a new token"
_SUPERSEDED = "its session has claimed it under another token"


@dataclass(frozen=True, slots=True)
class Rooms:
    """The rooms that grant claims, and answers from their present state."""

    upstream: KafkaUpstream
    nodes: NodeDirectory
    resolver: NameResolver
    governed: GovernedTopics
    topics: TopicOwners
    coordinator: Coordinator

    # Ownerships -------------------------------------------------------------------------------------------------------

    def now(self, targets: Sequence[Target]) -> list[control.Ownership]:
        """The owner of each target; all have the same group, as those of a request."""
        topics: dict[str, Standing] = {}
        read = [target for target in targets if not target.is_written]
        owners = self.coordinator.owners([target.key for target in read]) if read else ()
        found = dict(zip(read, owners, strict=True))
        for target in targets:
            if not target.is_written:
                continue
            if not is_legal(target.topic.encode()):
                found[target] = control.Ownership(resource=target.resource, serving_node=NOBODY)
                continue
            if target.topic not in topics:
                topics[target.topic] = standing(self.governed, self.nodes, target.topic, queue=False)
            found[target] = ownership_of(target.resource, topics[target.topic])
        return [found[target] for target in targets]

    def standing(self, ticket: Ticket, target: Target) -> control.Ownership:
        """The state of a granted target: NONE with the generation, or the error of its loss."""
        if target.is_written:
            return self._of_topic(ticket.claims[target], target)
        (ownership,) = self.now([target])
        if ownership.owner_session != ticket.asked.session:
            ownership.error, ownership.message = control.DEPOSED, gone_message(ownership)
        elif target.key in self.coordinator.lost_by(ticket.asked.token):  # the session owns it under another token
            ownership.error, ownership.message = control.DEPOSED, _SUPERSEDED
        elif not self.coordinator.coordinates:
            ownership.error, ownership.message = control.NOT_SERVING, "another node coordinates claims now: ask there"
        return ownership

    def _of_topic(self, claim: TopicClaim, target: Target) -> control.Ownership:
        generation = self.topics.generation(claim)
        if generation is None:
            (ownership,) = self.now([target])
            ownership.error, ownership.message = control.DEPOSED, gone_message(ownership)
        elif self.topics.is_served_elsewhere(claim):
            (ownership,) = self.now([target])
            ownership.error, ownership.message = control.NOT_SERVING, f"another node serves {target.topic}: ask there"
        else:  # called for each of hundreds of partitions: does not look at the others
            own, node_id = claim.claimant, self.nodes.me.id
            ownership = control.Ownership(resource=target.resource, generation=generation, serving_node=node_id)
            ownership.owner_name, ownership.owner_session, ownership.fencing_token = own.label, own.session, generation
        return ownership

    def superseded(self, target: Target) -> control.Ownership:
        """The answer for a target that now belongs to another request of the same session."""
        (ownership,) = self.now([target])
        ownership.error, ownership.message = control.DEPOSED, _SUPERSEDED
        return ownership

    # Faults -----------------------------------------------------------------------------------------------------------

    async def faults(self, asked: Asked) -> dict[Target, Look]:
        """By target, why it cannot be owned. Ordinary topics become governed by this call."""
        if self.governed.draining:
            return dict.fromkeys(
                asked.targets, refused_by(control.NOT_SERVING, "this node is shutting down: ask another one")
            )
        names = {target.topic for target in asked.targets if target.topic and is_legal(target.topic.encode())}
        try:
            partitions = await existing_partitions(self.upstream, names)
        except (UpstreamError, KafkaError):  # its text would name a broker
            return dict.fromkeys(asked.targets, refused_by(control.UNAVAILABLE, "Kafka cannot be asked now; try again"))
        faults: dict[Target, Look] = {}
        for target in asked.targets:
            missing = missing_of(target.resource, partitions)
            if missing:
                faults[target] = refused_by(control.UNKNOWN_RESOURCE, missing)
            elif target.is_written and target.topic.startswith("__"):
                faults[target] = refused_by(
                    control.NOT_AUTHORIZED, f"{target.topic} is an internal topic: nobody can own it"
                )
            elif target.is_written and self.resolver.kind(target.topic.encode()) is TopicKind.SHADOW:
                faults[target] = refused_by(control.NOT_AUTHORIZED, f"{target.topic} is a shadow: nobody writes to it")
            elif target.is_written:
                scope = self.topics.scope_fault(target.topic, target.index)
                if scope:
                    faults[target] = refused_by(control.INVALID_REQUEST, scope)
        if faults:
            return faults
        written = {target.topic for target in asked.targets if target.is_written}
        if not written:
            return {}
        refused = await self.topics.govern(written)
        return {target: refused[target.topic] for target in asked.targets if target.topic in refused}

    # Answers ----------------------------------------------------------------------------------------------------------

    def owned(self, ticket: Ticket) -> control.OwnResponse:
        """The targets that a granted request owns, and those that it has lost since."""
        targets = ticket.asked.targets
        found = self.now(targets)
        for number, target in enumerate(targets):
            if target in ticket.lost:
                found[number] = ticket.lost[target]
            elif target in ticket.released:
                found[number].error, found[number].message = control.DEPOSED, _RELEASED
            elif (
                found[number].owner_session != ticket.asked.session
            ):  # just lost: the request has not been notified yet
                found[number] = self.standing(ticket, target)
        return self._response(ticket.asked, found)

    def waiting(self, ticket: Ticket) -> control.OwnResponse:
        """The answer to a request that still waits."""
        answer = self._response(ticket.asked, self.now(ticket.asked.targets))
        answer.error = control.TIMED_OUT
        answer.message = "still waiting: ask again with the same token to keep the place"
        for ownership in answer.ownerships:
            ownership.error = control.TIMED_OUT
        return answer

    def not_granted(self, asked: Asked, looks: Mapping[Target, Look]) -> control.OwnResponse:
        """Nothing was granted: the owner of each target, and the errors of targets."""
        found = self.now(asked.targets)
        for target, ownership in zip(asked.targets, found, strict=True):
            look = looks.get(target)
            if look is not None and look.prospect is Prospect.REFUSED:
                ownership.error, ownership.message = look.error, look.message
        return self._response(asked, found)

    def refused(self, asked: Asked, error: control.Error, message: str) -> control.OwnResponse:
        """Nothing was granted, for one reason."""
        return self.not_granted(asked, dict.fromkeys(asked.targets, refused_by(error, message)))

    def not_coordinating(self, asked: Asked, error: KafkaError) -> control.OwnResponse:
        """The answer if another node, or no node now, coordinates free strings and reader claims."""
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


def not_now(error: KafkaError) -> Look:
    """The error of a target: another node coordinates (6), or none can now (5)."""
    elsewhere = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    return refused_by(control.NOT_SERVING if elsewhere else control.UNAVAILABLE, error.message)


def not_allowed(
    wanted: Asked, rights: Rights | None, mode: Callable[[str, control.AccessMode], AccessMode]
) -> control.OwnResponse | None:
    """Why Kafka's ACLs forbid a client's request, if they do: a topic needs WRITE; a reader claim needs READ on its
    group, as every request of Kafka's that moves the group's cursors, and READ on its topic. `mode` returns the mode in
    which a topic is claimed, from the requested one.
    """
    if rights is None or not rights.enforced:
        return None
    group = wanted.targets[0].group  # of all targets of a request
    if group and not rights.group(Operation.READ, group):
        return forbidden(f"the group {group}")
    for target, generation in zip(wanted.targets, wanted.generations, strict=True):
        if not target.topic:
            continue  # a free string is no Kafka resource
        if target.is_written:
            fences = mode(target.topic, wanted.mode) is AccessMode.EXCLUSIVE_WITH_FENCING
            may = rights.may_own(target.topic, deposes=fences or generation is not None)
        else:
            may = rights.topic(Operation.READ, target.topic)
        if not may:
            return forbidden(str(target))
    return None


def forbidden(what: str) -> control.OwnResponse:
    """The answer to a client that may not own something."""
    return control.OwnResponse(error=control.NOT_AUTHORIZED, message=f"Kafka's ACLs do not allow it: {what}")


def refused_by(error: control.Error, message: str) -> Look:
    """Why a target cannot be owned here."""
    return Look(Prospect.REFUSED, error, message)
