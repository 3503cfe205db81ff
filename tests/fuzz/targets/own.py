"""Bodies of the sidecar's own APIs (protobuf), with all that is checked before a room is asked.

Input: which API, then the body.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from sidecar.changelog import claimed
from sidecar.gateway.own import asked
from sidecar.gateway.own.bodies import BadRequestError, check_group, check_name, decode, fault_of
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.policy import identity
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.session import Caller, Session
from sidecar.resources.requests import Wish
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final = (
    control.OwnRequest,
    control.ReleaseRequest,
    control.DescribeOwnersRequest,
    control.LastSequenceRequest,
    control.WatchRequest,
)
_CLIENT: Final[Any] = SimpleNamespace(
    identity=identity.parse(b"billing;mode=exclusive"),
    session=Session.by_connection(1, "boot", 1),
    caller=Caller("User:ANONYMOUS", "billing"),
)


def play(data: bytes) -> None:
    if not data:
        return
    kind = _KINDS[data[0] % len(_KINDS)]
    frame = Frame(bytearray(data), 0, len(data), True)
    try:
        body: Any = decode(kind, Request(1000, 0, 1, b"billing", frame, 1))
        if isinstance(body, control.OwnRequest):
            _own(body)
        elif isinstance(body, control.LastSequenceRequest):
            check_name(body.producer_name)
        elif isinstance(body, control.DescribeOwnersRequest):
            check_group(body.group)
            for resource in body.resources:
                assert fault_of(resource) or Wish.of(body.group, resource).key
    except (BadRequestError, KafkaError):
        return


def _own(body: control.OwnRequest) -> None:
    found = asked.read(body, _CLIENT)
    assert len(found.wishes) == len(body.claims)
    for wish in found.wishes.values():
        assert str(wish)
        assert Wish.of(*claimed(wish.key)).key == wish.key, "a claim's key is another's"


def seeds() -> Iterator[bytes]:
    topic = control.Resource(topic="orders", partition=1)
    text = control.Resource(name="a/b c")
    claims = [control.Claim(resource=topic, generation=3), control.Claim(resource=text)]
    bodies: tuple[Any, ...] = (
        control.OwnRequest(claims=claims, mode=control.EXCLUSIVE, token=bytes(16), producer_id=7, wait_ms=5),
        control.OwnRequest(claims=claims[1:], mode=control.WAIT_FOR_EXCLUSIVE, group="readers", producer_name="é"),
        control.ReleaseRequest(token=bytes(16), resources=[topic, text]),
        control.DescribeOwnersRequest(resources=[topic, text], group="readers"),
        control.LastSequenceRequest(topic="orders", producer_name="billing"),
        control.WatchRequest(token=bytes(16)),
    )
    for body in bodies:
        yield bytes((_KINDS.index(type(body)),)) + body.SerializeToString()
