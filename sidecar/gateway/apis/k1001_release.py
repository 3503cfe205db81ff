"""Release (0): gives claims back (`own`)."""

from sidecar.gateway.access.asked import Open
from sidecar.gateway.apis.audited import OwnAudited
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route
from sidecar.v1 import control_pb2 as control

SPEC = ApiSpec(
    ApiKey.RELEASE, (0, 0), Route.LOCAL, Open("a token is the right to its claims"),
    audit=OwnAudited(
        lambda body: control.ReleaseRequest.FromString(body).resources,
        lambda body: int(control.ReleaseResponse.FromString(body).error),
    ),
    cold=lambda row, of: of.own[row.key], reason="the node that granted a claim takes it back",
)  # fmt: skip
