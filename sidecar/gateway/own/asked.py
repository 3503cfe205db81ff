"""What an Own request asks for, checked. Pure."""

from __future__ import annotations

import re
import secrets
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata.ownership import AccessMode
from sidecar.changelog import Key, claim_key, claimed
from sidecar.exclusive.claims import Claimant
from sidecar.gateway.client import Client
from sidecar.gateway.own.bodies import RESOURCES, STRING_BYTES, BadRequestError, check_name, fault_of
from sidecar.protocol.session import Caller, Session
from sidecar.v1 import control_pb2 as control

TOKEN_BYTES: Final = 16
LONGEST_WAIT_MS: Final = 300_000
"""A client that asks to wait longer gets TIMED_OUT after this, and asks again."""
WHOLE: Final = -1
"""In place of a partition: all of them."""
_GROUP: Final = re.compile(r"[^\x00-\x1f\x7f]*")


class Target(NamedTuple):
    """What identifies a resource: a topic, or one partition of it (-1: all), or a free string."""

    group: str
    topic: str
    partition: int
    name: str

    @classmethod
    def of(cls, group: str, resource: control.Resource) -> Target:
        """The target of a resource without faults."""
        partition = resource.partition if resource.HasField("partition") else WHOLE
        return cls(group, resource.topic, partition, resource.name)

    @property
    def is_written(self) -> bool:
        """A topic or partition for writing: the room `exclusive` owns it; all else is the coordinator's."""
        return bool(self.topic) and not self.group

    @property
    def index(self) -> int | None:
        """The partition; None where it is a topic or a string."""
        return None if self.partition == WHOLE else self.partition

    @property
    def resource(self) -> control.Resource:
        """As clients name it."""
        return control.Resource(topic=self.topic, partition=self.index, name=self.name)

    @property
    def key(self) -> Key:
        """Of its record in the changelog, where it is not for writing."""
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
    """One request. `fingerprint` is the same where the same is asked; `session` what the claims are bound to."""

    token: bytes
    fingerprint: bytes
    session: Session
    name: str
    caller: Caller
    """Which client asks."""
    mode: control.AccessMode
    wait_s: float
    targets: tuple[Target, ...]
    generations: tuple[int | None, ...]

    @property
    def read(self) -> tuple[Target, ...]:
        """The targets that are the coordinator's: all but what is written to."""
        return tuple(target for target in self.targets if not target.is_written)

    def claimant(self, number: int, connection: int, mode: AccessMode, succeeds: Session | None) -> Claimant:
        """The claimant of the topic or partition with this number in the request.

        A token distinguishes it from its own ghost: one that asks again is not made to wait for the end of an old
        connection.
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
    """Check a request. Raises `BadRequestError` saying what is wrong with it.

    `knows_first`: the producer id 0 is a client's, as far as this node knows. Where it is not, a 0 is a field that was
    left out, as proto3 sends those: two clients that did so would be one session, and both own what either claims.
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
    """Raises `BadRequestError` for what no group is called."""
    if len(group.encode()) > STRING_BYTES or not _GROUP.fullmatch(group):
        raise BadRequestError(f"a group has {STRING_BYTES} bytes of UTF-8 at most, and no control characters")
