"""Answers to Own requests, the ownerships that Watch reports, and the reasons why a request cannot be granted here.
Changes nothing, except that ordinary topics become governed when they are requested.

Kafka's ACLs are checked when a request arrives, and again when its turn comes (`not_allowed`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from metadata.ownership import AccessMode
from sidecar.access.prospects import Look, Prospect
from sidecar.changelog import Key
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, TopicKind, is_legal
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.owning import TopicClaim, TopicOwners
from sidecar.gateway.own.asked import Asked
from sidecar.gateway.own.bodies import NOBODY
from sidecar.gateway.own.sets import ClaimSet
from sidecar.gateway.owners import Standing, standing
from sidecar.gateway.rights import Rights
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError, no_topic
from sidecar.protocol.metadata import MetadataRequest
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.requests import Wish, gone_message, refused_by
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control

_DRAINING = "this node is shutting down: ask another one"
_RELEASED = "this claim was released: claim with a new token"
_SUPERSEDED = "its session has claimed it under another token"


@dataclass(frozen=True, slots=True)
class GrantingRooms:
    """The rooms that grant claims, and answers from their present state."""

    upstream: KafkaUpstream
    nodes: NodeDirectory
    resolver: NameResolver
    governed: GovernedTopics
    coordinator: Coordinator
    topics: TopicOwners

    # Ownerships -------------------------------------------------------------------------------------------------------

    def now(self, wishes: Collection[Wish]) -> list[control.Ownership]:
        """The owner of each resource."""
        topics: dict[str, Standing] = {}
        return [self._owner(wish, topics) for wish in wishes]

    def _owner(self, wish: Wish, topics: dict[str, Standing]) -> control.Ownership:
        name = wish.resource.topic
        if not wish.is_written:
            return self.coordinator.owner(wish.key)
        if not is_legal(name.encode()):
            return control.Ownership(resource=wish.resource, serving_node=NOBODY)
        if name not in topics:
            topics[name] = standing(self.governed, self.nodes, name, queue=False)
        return ownership_of(wish.resource, topics[name])

    def standing(self, claims: ClaimSet, key: Key) -> control.Ownership:
        """The state of a granted claim: NONE with the generation, or the error of its loss."""
        wish, asked, claim = claims.asked.wishes[key], claims.asked, claims.topics.get(key)
        if claim is not None:
            return self._of_topic(wish, claim)
        (ownership,) = self.now([wish])
        if ownership.owner_session != asked.session:
            return _gone(ownership)
        if key in self.coordinator.lost_by(asked.token):  # the session owns it under another token
            return _with(ownership, control.DEPOSED, _SUPERSEDED)
        if not self.coordinator.coordinates:
            return _with(ownership, control.NOT_SERVING, "another node coordinates claims now: ask there")
        return ownership

    def _of_topic(self, wish: Wish, claim: TopicClaim) -> control.Ownership:
        generation = self.topics.generation(claim)
        if generation is not None and not self.topics.is_served_elsewhere(claim):
            # called for each of hundreds of partitions: does not look at the others
            own, node_id = claim.claimant, self.nodes.me.id
            ownership = control.Ownership(resource=wish.resource, generation=generation, serving_node=node_id)
            ownership.owner_name, ownership.owner_session, ownership.fencing_token = own.label, own.session, generation
            return ownership
        (ownership,) = self.now([wish])
        if generation is None:
            return _gone(ownership)
        return _with(ownership, control.NOT_SERVING, f"another node serves {claim.topic}: ask there")

    def superseded(self, wish: Wish) -> control.Ownership:
        """The answer for a claim that now belongs to another request of the same session."""
        return _with(self.now([wish])[0], control.DEPOSED, _SUPERSEDED)

    def is_anothers(self, asked: Asked) -> bool:
        """Whether a session owns a free string or reader claim that another principal claimed for it, perhaps at
        another node. The client that Kafka gave the producer id to may always claim.
        """
        is_anothers = self.coordinator.is_anothers(asked.session, asked.caller.principal)
        return is_anothers and not self.governed.env.bindings.was_given(asked.session, asked.caller)

    # Faults -----------------------------------------------------------------------------------------------------------

    async def faults(self, asked: Asked) -> dict[Key, Look]:
        """Why resources cannot be owned. Ordinary topics become governed by this call."""
        if self.governed.env.draining:
            return dict.fromkeys(asked.wishes, refused_by(control.NOT_SERVING, _DRAINING))
        wishes = asked.wishes.values()
        names = {wish.resource.topic for wish in wishes if is_legal(wish.resource.topic.encode())}
        try:
            partitions = await existing_partitions(self.upstream, names)
        except (UpstreamError, KafkaError):  # its text would name a broker
            return dict.fromkeys(asked.wishes, refused_by(control.UNAVAILABLE, "Kafka cannot be asked now; try again"))
        faults = {wish.key: fault for wish in wishes if (fault := self._fault(wish, partitions)) is not None}
        written = {wish.resource.topic for wish in wishes if wish.is_written}
        if faults or not written:
            return faults
        refused = await self.topics.govern(written)
        return {wish.key: refused[wish.resource.topic] for wish in wishes if wish.resource.topic in refused}

    def _fault(self, wish: Wish, partitions: dict[str, frozenset[int]]) -> Look | None:
        missing, topic = missing_of(wish.resource, partitions), wish.resource.topic
        if missing:
            return refused_by(control.UNKNOWN_RESOURCE, missing)
        if not wish.is_written:
            return None
        if topic.startswith("__"):
            return refused_by(control.NOT_AUTHORIZED, f"{topic} is an internal topic: nobody can own it")
        if self.resolver.kind(topic.encode()) is TopicKind.SHADOW:
            return refused_by(control.NOT_AUTHORIZED, f"{topic} is a shadow: nobody writes to it")
        scope = self.topics.scope_fault(topic, wish.index)
        return refused_by(control.INVALID_REQUEST, scope) if scope else None

    # Answers ----------------------------------------------------------------------------------------------------------

    def owned(self, claims: ClaimSet) -> control.OwnResponse:
        """What a granted request owns, and what it has lost since."""
        wishes, answers = claims.asked.wishes, list[control.Ownership]()
        for key, ownership in zip(wishes, self.now(wishes.values()), strict=True):
            if key in claims.lost:
                answers.append(claims.lost[key])
            elif key in claims.released:
                answers.append(_with(ownership, control.DEPOSED, _RELEASED))
            elif ownership.owner_session != claims.asked.session:  # just lost: the request has no news of it yet
                answers.append(self.standing(claims, key))
            else:
                answers.append(ownership)
        return _response(claims.asked, answers)

    def waiting(self, claims: ClaimSet) -> control.OwnResponse:
        """The answer to a request that still waits."""
        answer = _response(claims.asked, self.now(claims.asked.wishes.values()))
        answer.error = control.TIMED_OUT
        answer.message = "still waiting: ask again with the same token to keep the place"
        for ownership in answer.ownerships:
            ownership.error = control.TIMED_OUT
        return answer

    def not_granted(self, asked: Asked, looks: Mapping[Key, Look]) -> control.OwnResponse:
        """Nothing was granted: the owner of each resource, and the errors."""
        owners = self.now(asked.wishes.values())
        for key, ownership in zip(asked.wishes, owners, strict=True):
            look = looks.get(key)
            if look is not None and look.prospect is Prospect.REFUSED:
                _with(ownership, look.error, look.message)
        return _response(asked, owners)

    def refused(self, asked: Asked, error: control.Error, message: str) -> control.OwnResponse:
        """Nothing was granted, for one reason."""
        return self.not_granted(asked, dict.fromkeys(asked.wishes, refused_by(error, message)))

    def not_coordinating(self, asked: Asked, error: KafkaError) -> control.OwnResponse:
        """The answer if another node, or no node now, coordinates free strings and reader claims."""
        look = not_now(error)
        return self.not_granted(asked, {key: look for key, wish in asked.wishes.items() if not wish.is_written})


def _response(asked: Asked, ownerships: list[control.Ownership]) -> control.OwnResponse:
    first = next((ownership for ownership in ownerships if ownership.error != control.NONE), None)
    return control.OwnResponse(
        error=control.NONE if first is None else first.error,
        message="" if first is None else first.message,
        ownerships=ownerships,
        producer_name=asked.name,
    )


def _gone(now: control.Ownership) -> control.Ownership:
    return _with(now, control.DEPOSED, gone_message(now.owner_name, now.owner_session, now.generation))


def _with(ownership: control.Ownership, error: control.Error, message: str) -> control.Ownership:
    ownership.error, ownership.message = error, message
    return ownership


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
    wishes = wanted.wishes.values()
    group = next(iter(wishes)).group  # of all wishes of a request
    if group and not rights.group(Operation.READ, group):
        return forbidden(f"the group {group}")
    for wish in wishes:
        topic = wish.resource.topic
        if not topic:
            continue  # a free string is no Kafka resource
        if wish.is_written:
            fences = mode(topic, wanted.mode) is AccessMode.EXCLUSIVE_WITH_FENCING
            may = rights.may_own(topic, deposes=fences or wish.generation is not None)
        else:
            may = rights.topic(Operation.READ, topic)
        if not may:
            return forbidden(str(wish))
    return None


def forbidden(what: str) -> control.OwnResponse:
    """The answer to a client that may not own something."""
    return control.OwnResponse(error=control.NOT_AUTHORIZED, message=f"Kafka's ACLs do not allow it: {what}")


async def existing_partitions(upstream: KafkaUpstream, names: Iterable[str] | None) -> dict[str, frozenset[int]]:
    """The partitions of these topics, or of all; without those that do not exist."""
    wanted = None if names is None else tuple(sorted(names))
    if wanted == ():
        return {}
    state = await upstream.metadata(MetadataRequest(wanted, allow_auto_topic_creation=False))
    return {topic.name: frozenset(p.partition for p in topic.partitions) for topic in state.topics if topic.partitions}


def missing_of(resource: control.Resource, partitions: dict[str, frozenset[int]]) -> str:
    """Which part of a topic or partition does not exist; "" if it exists, or for a free string."""
    if resource.name:
        return ""
    there = partitions.get(resource.topic, frozenset())
    if not there:
        return no_topic(resource.topic)
    if resource.HasField("partition") and resource.partition not in there:
        return f"partition {resource.partition} of {resource.topic} does not exist"
    return ""


def ownership_of(resource: control.Resource, found: Standing) -> control.Ownership:
    """The ownership of a topic or partition; a partition of a topic with one owner has that owner."""
    index = resource.partition if resource.HasField("partition") and found.by_partition else None
    owner = found.owners.get(index)
    generation = owner.generation if owner is not None else found.generation
    if owner is None and index is not None:
        generation = found.generations.get(index, 0)
    return control.Ownership(
        resource=resource,
        generation=generation,
        owner_name=owner.name if owner is not None else "",
        owner_session=owner.session if owner is not None else "",
        serving_node=NOBODY if found.serving_node is None else found.serving_node,
        since_ms=owner.since_ms if owner is not None else 0,
        fencing_token=generation if owner is not None else 0,
    )
