"""Reasons why this node cannot grant an Own request: Kafka's ACLs, resources that do not exist or belong to another
node. ACLs are asked when the request comes, and again when it is its turn.
"""

from collections.abc import Callable

from metadata.ownership import AccessMode
from sidecar.access.prospects import Look, Prospect
from sidecar.cluster.resolver import TopicKind, is_legal
from sidecar.gateway.own.answers import Rooms
from sidecar.gateway.own.asked import Asked, Target
from sidecar.gateway.own.describe import existing_partitions, missing_of
from sidecar.gateway.rights import Rights
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control


def not_allowed(
    wanted: Asked, rights: Rights | None, mode: Callable[[str, control.AccessMode], AccessMode]
) -> control.OwnResponse | None:
    """Why Kafka's ACLs do not let a client claim what it asks for: WRITE to own a topic, READ to read one alone. `mode`
    says in which one a topic is claimed, given the one that is asked for.
    """
    if rights is None or not rights.enforced:
        return None
    for target, generation in zip(wanted.targets, wanted.generations, strict=True):
        if not target.topic:
            continue  # a free string is no resource of Kafka's
        if target.is_written:
            fences = mode(target.topic, wanted.mode) is AccessMode.EXCLUSIVE_WITH_FENCING
            may = rights.may_own(target.topic, deposes=fences or generation is not None)
        else:
            may = rights.topic(Operation.READ, target.topic)
        if not may:
            return control.OwnResponse(error=control.NOT_AUTHORIZED, message=f"Kafka's ACLs do not allow it: {target}")
    return None


async def find_faults(rooms: Rooms, asked: Asked) -> dict[Target, Look]:
    """By target, why it cannot be owned; topics that were not governed are governed then."""
    if rooms.governed.draining:
        return _all(asked, control.NOT_SERVING, "this node is shutting down: ask another one")
    names = {target.topic for target in asked.targets if target.topic and is_legal(target.topic.encode())}
    try:
        partitions = await existing_partitions(rooms.upstream, names)
    except (UpstreamError, KafkaError):  # its text would name a broker
        return _all(asked, control.UNAVAILABLE, "Kafka cannot be asked now; try again")
    faults: dict[Target, Look] = {}
    for target in asked.targets:
        missing = missing_of(target.resource, partitions)
        if missing:
            faults[target] = _refused(control.UNKNOWN_RESOURCE, missing)
        elif target.is_written and target.topic.startswith("__"):
            faults[target] = _refused(control.NOT_AUTHORIZED, f"{target.topic} is an internal topic: nobody can own it")
        elif target.is_written and rooms.resolver.kind(target.topic.encode()) is TopicKind.SHADOW:
            faults[target] = _refused(control.NOT_AUTHORIZED, f"{target.topic} is a shadow: nobody writes to it")
        elif target.is_written:
            scope = rooms.topics.scope_fault(target.topic, target.index)
            if scope:
                faults[target] = _refused(control.INVALID_REQUEST, scope)
    if faults:
        return faults
    written = {target.topic for target in asked.targets if target.is_written}
    if not written:
        return {}
    refused = await rooms.topics.govern(written)
    return {target: refused[target.topic] for target in asked.targets if target.topic in refused}


def _all(asked: Asked, error: control.Error, message: str) -> dict[Target, Look]:
    return dict.fromkeys(asked.targets, _refused(error, message))


def _refused(error: control.Error, message: str) -> Look:
    return Look(Prospect.REFUSED, error, message)
