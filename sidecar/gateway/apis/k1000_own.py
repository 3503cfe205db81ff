"""Own (0): claims a set of resources, all or nothing (`own`)."""

from collections.abc import Iterable
from typing import Final

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.audited import OwnAudited
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route
from sidecar.v1 import control_pb2 as control

_SETTLED: Final = frozenset({control.NONE, control.NOT_AUTHORIZED, control.DEPOSED, control.LOWER_GENERATION})
"""Final outcomes of a claim; after others its client repeats the request."""


def _claimed(body: bytes) -> Iterable[control.Resource]:
    return (claim.resource for claim in control.OwnRequest.FromString(body).claims)


def _outcome(body: bytes) -> int | None:
    error = control.OwnResponse.FromString(body).error
    return int(error) if error in _SETTLED else None


SPEC = ApiSpec(
    ApiKey.OWN, (0, 0), Route.LOCAL, Open("it asks for rights on what it names"), audit=OwnAudited(_claimed, _outcome),
    cold=lambda row, of: of.own[row.key],
    reason="the node that serves a topic grants it, one node of all the free strings and readers; others name it",
)  # fmt: skip
