"""Checked Own requests. Pure."""

from __future__ import annotations

import re
import secrets
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata.ownership import AccessMode
from sidecar.changelog import Key, claim_key, claimed
from sidecar.gateway.client import Client
from sidecar.gateway.own.bodies import RESOURCES, STRING_BYTES, BadRequestError, check_name, fault_of
from sidecar.ownership.state import Claimant
from sidecar.protocol.session import Caller, Session
from sidecar.resources.requests import Request, Wish
from sidecar.v1 import control_pb2 as control

TOKEN_BYTES: Final = 16
LONGEST_WAIT_MS: Final = 300_000
"""The longest wait. A client that wants to wait longer gets TIMED_OUT after this time, and repeats the request."""
WHOLE: Final = -1
"""Instead of a partition: all partitions."""
_GROUP: Final = re.compile(r"[^\x00-\x1f\x7f]*")


class Target(NamedTuple):
    """What identifies a resource: a topic, or one partition of it (-1: all), or a free string."""

    group: str
    topic: str
    partition: int
    name: str

    @classmethod
    def of(cls, group: str, resource: control.Resource) -> Target:
        """The target of a valid resource."""
        partition = resource.partition if resource.HasField("partition") else WHOLE
        return cls(group, resource.topic, partition, resource.name)

    @property
    def is_written(self) -> bool:
        """Whether it is a topic or partition for writing: `exclusive` grants these, the coordinator all others."""
        return bool(self.topic) and not self.group

    @property
    def index(self) -> int | None:
        """The partition; None for a whole topic or a free string."""
        return None if self.partition == WHOLE else self.partition

    @property
    def resource(self) -> control.Resource:
        """The resource as clients name it."""
        return control.Resource(topic=self.topic, partition=self.index, name=self.name)

    @property
    def key(self) -> Key:
        """The key of its record in the changelog, if it is not for writing."""
        return claim_key(self.group, self.resource)

    @classmethod
    def of_key(cls, key: Key) -> Target:
        """The target of such a record."""
        group, resource = claimed(key)
        return cls.of(group, resource)

    def __str__(self) -> str:
        if self.name:
            what = f"the string {self.name!r}"
        else:
            what = self.topic if self.partition == WHOLE else f"partition {self.partition} of {self.topic}"
        return f"{what} in group {self.group}" if self.group else what


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `fingerprint`: equal for equal requests; `session`: the session to which the claims are bound."""

    token: bytes
    fingerprint: bytes
    session: Session
    name: str
    caller: Caller
    """The client that sends the request."""
    mode: control.AccessMode
    wait_s: float
    targets: tuple[Target, ...]
    generations: tuple[int | None, ...]

    @property
    def read(self) -> tuple[Target, ...]:
        """The targets that the coordinator grants: all except those for writing."""
        return tuple(target for target in self.targets if not target.is_written)

    def request(self, wishes: tuple[Wish, ...]) -> Request:
        """The coordinator's part of the request."""
        return Request(self.token, self.session, self.name, self.mode, wishes, self.caller.principal)

    def claimant(self, number: int, connection: int, mode: AccessMode, succeeds: Session | None) -> Claimant:
        """The claimant of the topic or partition with this number in the request.

        The token identifies the request, so a repetition does not have to wait for the end of the client's former
        connection (ghost).
        """
        names_session = not self.session.is_plain
        return Claimant(
            self.session,
            self.name,
            False,
            connection,
            mode,
            self.generations[number],
            succeeds,
            names_session=names_session,
            caller=self.caller,
        )


def read(request: control.OwnRequest, client: Client, *, knows_first: bool = True) -> Asked:
    """Check a request. Raises `BadRequestError` with the reason.

    `knows_first`: whether this node knows a client with producer id 0. If not, a 0 is an omitted field of proto3: two
    clients that omit it would be one session, and both own what either claims.
    """
    _check(request)
    least = 0 if knows_first else 1
    targets = tuple(Target.of(request.group, claim.resource) for claim in request.claims)
    if len(set(targets)) != len(targets):
        twice = next(target for target, times in Counter(targets).items() if times > 1)
        raise BadRequestError(f"{twice} is claimed twice in one request")
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
        targets=targets,
        generations=tuple(claim.generation if claim.HasField("generation") else None for claim in request.claims),
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
        fault = fault_of(claim.resource)
        if fault:
            raise BadRequestError(fault)
        if claim.HasField("generation") and claim.generation < 0:
            raise BadRequestError(f"generation {claim.generation}: give 0 or more, or leave it out")


def check_group(group: str) -> None:
    """Raises `BadRequestError` for an invalid group name."""
    if len(group.encode()) > STRING_BYTES or not _GROUP.fullmatch(group):
        raise BadRequestError(f"a group has {STRING_BYTES} bytes of UTF-8 at most, and no control characters")
