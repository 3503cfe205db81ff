"""Checked Own requests. Pure."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.changelog import Key
from sidecar.gateway.client import Client
from sidecar.gateway.own.bodies import RESOURCES, BadRequestError, check_group, check_name, check_resource
from sidecar.protocol.session import Caller, Session
from sidecar.resources.requests import Request, Wish
from sidecar.v1 import control_pb2 as control

TOKEN_BYTES: Final = 16
LONGEST_WAIT_MS: Final = 300_000
"""The longest wait. A client that wants to wait longer gets TIMED_OUT after this time, and repeats the request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `fingerprint`: equal for equal requests; `session`: the session to which the claims are bound;
    `caller`: the client that sends it.
    """

    token: bytes
    fingerprint: bytes
    session: Session
    name: str
    caller: Caller
    mode: control.AccessMode
    wait_s: float
    wishes: Mapping[Key, Wish]

    @property
    def request(self) -> Request | None:
        """The coordinator's part: all wishes except those for writing; None if there are none."""
        wishes = tuple(wish for wish in self.wishes.values() if not wish.is_written)
        caller = self.caller
        return Request(self.token, self.session, self.name, self.mode, wishes, caller.principal) if wishes else None


def read(request: control.OwnRequest, client: Client, *, knows_first: bool = True) -> Asked:
    """Check a request. Raises `BadRequestError` with the reason.

    `knows_first`: whether this node knows a client with producer id 0. If not, a 0 is an omitted field of proto3: two
    clients that omit it would be one session, and both own what either claims.
    """
    _check(request)
    least = 0 if knows_first else 1
    wishes: dict[Key, Wish] = {}
    for claim in request.claims:
        wish = Wish.of(request.group, claim.resource, claim.generation if claim.HasField("generation") else None)
        if wishes.setdefault(wish.key, wish) is not wish:
            raise BadRequestError(f"{wish} is claimed twice in one request")
    identity = client.identity
    own_name = identity.name if identity is not None and identity.is_named else ""
    same = control.OwnRequest()
    same.CopyFrom(request)
    same.wait_ms = 0
    return Asked(
        token=request.token or secrets.token_bytes(TOKEN_BYTES),
        fingerprint=same.SerializeToString(deterministic=True),
        session=Session.by_producer_id(request.producer_id) if request.producer_id >= least else client.session,
        name=request.producer_name or own_name or f"sidecar-{uuid.uuid4()}",
        caller=client.caller,
        mode=request.mode,
        wait_s=min(request.wait_ms, LONGEST_WAIT_MS) / 1000,
        wishes=wishes,
    )


def _check(request: control.OwnRequest) -> None:
    if not 1 <= len(request.claims) <= RESOURCES:
        raise BadRequestError(f"a request has 1 to {RESOURCES} claims, not {len(request.claims)}")
    if request.mode not in control.AccessMode.values():
        raise BadRequestError(f"mode {request.mode} is not known to this version")
    if request.mode == control.SHARED:
        raise BadRequestError("mode SHARED owns nothing: leave the claim out, or ask for an exclusive mode")
    if len(request.token) not in (0, TOKEN_BYTES):
        raise BadRequestError(f"a token has {TOKEN_BYTES} random bytes, not {len(request.token)}")
    if request.wait_ms < 0:
        raise BadRequestError(f"wait_ms is {request.wait_ms}: give 0 or more")
    if request.producer_id < -1:
        raise BadRequestError(f"producer_id is {request.producer_id}: give one of Kafka's, or -1 for this connection")
    if request.producer_name:
        check_name(request.producer_name)
    check_group(request.group)
    for claim in request.claims:
        check_resource(claim.resource)
        if claim.HasField("generation") and claim.generation < 0:
            raise BadRequestError(f"generation {claim.generation}: give 0 or more, or leave it out")
