"""Arbitrates through Redis which session may take a topic.

A takeover makes a claim before it begins, and publishes its outcome (`Arbitration`). Only the order of rivals depends
on Redis. Every claim carries the changelog's newest record, which corrects an empty or rolled back Redis; without Redis
the node that served last continues.
"""

import secrets
from contextlib import suppress
from typing import Final

from metadata import MetadataUnavailable
from metadata.ownership import AccessMode, ClaimAnswer, ClaimRequest, ClaimStatus, Generation, Ownership
from sidecar.access.services import NodeServices
from sidecar.changelog import Entry, Opened
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.takeover.requests import FOR_NOBODY, NothingDoneError, Request
from sidecar.takeover.slots import SlotScope, TakenSlot, generation_floor, is_outdated, owner_record
from sidecar.v1 import state_pb2 as state

CLAIM_LEASE_MS: Final = 10_000
"""How long other claims wait for one that is never completed."""


class HeldError(KafkaError):
    """Another session, `owner`, owns the topic: Redis or the changelog knew it before this node did."""

    def __init__(self, owner: Ownership | None) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, "held")
        self.owner = owner


class ExhaustedError(KafkaError):
    """The topic was claimed under the highest possible generation."""

    def __init__(self, resource: str) -> None:
        super().__init__(
            ErrorCode.POLICY_VIOLATION,
            f"no generation is left for {resource}: a client asked for the highest one. Use another topic",
        )


class Arbitration:
    """The claims of one takeover."""

    def __init__(self, services: NodeServices, scope: SlotScope, request: Request) -> None:
        self._services = services
        self._scope = scope
        self._request = request

    async def claim(
        self, ownership: Entry[state.Ownership] | None, opened: Entry[Opened] | None, *, keeps: bool
    ) -> tuple[bytes | None, int]:
        """Claim; returns the claim's token, if there is one, and the generation of the takeover.

        `keeps`: the session is the last owner. Raises `HeldError`, `KafkaError`, `MetadataUnavailable`.
        """
        # Model: Arbitrate, GoOnAlone.
        services, wanted, scope = self._services, self._request, self._scope
        if scope.is_shared:
            return None, 0
        # Generations of a topic never fall, also where it was deleted and created again.
        latest = services.changelog.view.ownership(scope.topic, scope.slot)
        if wanted.purpose in FOR_NOBODY:  # a claim without an owner: the right to serve is enough
            return None, latest.value.generation if latest is not None else 0
        known, floor = None, generation_floor(services.changelog.view, scope)
        if latest is not None:
            node = opened.value.node if opened is not None else -1
            known = owner_record(scope.resource, latest.value, latest.offset, latest.writer, node)
            if ownership is None or is_outdated(services.changelog.view, scope, ownership):
                known = Ownership(scope.resource, known.generation, known.position, None)
        if not keeps and floor > (known.generation if known is not None else 0):
            # The scope was changed since: generations never fall.
            position, session = (known.position, known.session) if known is not None else (0, None)
            known = Ownership(scope.resource, Generation(floor), position, session)
        let_go = keeps and ownership is not None and ownership.value.released_ms
        token = secrets.token_bytes(16)
        request = ClaimRequest(
            resource=scope.resource,
            token=token,
            node_id=services.node_id,
            boot=services.boot,
            session=wanted.session,
            name=wanted.name,
            mode=AccessMode.EXCLUSIVE_WITH_FENCING if wanted.deposes else wanted.mode,
            lease_ms=CLAIM_LEASE_MS,
            known=known,
            asked=wanted.asked,
            topic=scope.topic,
            returns_to=ownership.value.generation if ownership is not None and let_go else None,
        )
        try:
            answer = await self._ask(request)
        except MetadataUnavailable:
            if keeps and ownership is not None and opened is not None and opened.value.node == services.node_id:
                return None, ownership.value.generation  # the node that served last continues without Redis
            raise
        if answer.status is ClaimStatus.GRANTED and answer.generation is not None:
            return token, answer.generation
        if answer.status in (ClaimStatus.HELD, ClaimStatus.LOWER_GENERATION):
            raise HeldError(answer.current)
        if answer.status is ClaimStatus.ELSEWHERE:
            raise NothingDoneError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{scope.topic} is served by another node")
        if answer.status is ClaimStatus.EXHAUSTED:
            raise ExhaustedError(scope.resource)
        raise NothingDoneError(ErrorCode.LEADER_NOT_AVAILABLE, f"another claim to {scope.resource} is under way")

    async def _ask(self, request: ClaimRequest) -> ClaimAnswer:
        """Claim; if the answer was lost, repeat the claim with the same token."""
        try:
            return await self._services.store.claim(request)
        except MetadataUnavailable as error:
            if not error.maybe_applied:
                raise
        return await self._services.store.claim(request)

    async def publish(self, taken: TakenSlot, token: bytes | None) -> None:
        """Report the outcome, and end the claim."""
        # Model: Publish.
        resource, node = self._scope.resource, self._services.node_id
        record = owner_record(resource, taken.ownership, taken.position, taken.stamp, node)
        with suppress(MetadataUnavailable):  # the changelog has it; the next heartbeat that arrives updates Redis
            await self._services.store.publish(record, token)

    async def abandon(self, token: bytes | None) -> None:
        """Withdraw the claim."""
        if token is not None:
            with suppress(MetadataUnavailable):  # the claim's own lease ends it
                await self._services.store.abandon(self._scope.resource, token)
