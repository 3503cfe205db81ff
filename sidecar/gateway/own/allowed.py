"""What Kafka's ACLs allow a client to claim: asked when the request comes, and again when it is its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metadata.ownership import AccessMode
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.gateway.own.asked import Asked
    from sidecar.gateway.rights import Rights


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
