"""Claims, publications, releases, crashes and losses of Redis in any order, against a reference of one page.

The reference says what each script must answer; the changelog in it stands for Kafka, where of two takeovers that began
at the same record only one commits. What must hold whatever happens: as long as claims carry the changelog's newest
record no generation ever belongs to two owners, and generations only rise.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from metadata import (
    AccessMode,
    ClaimRequest,
    ClaimStatus,
    Generation,
    MetadataStore,
    Ownership,
    new_token,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.kafka.metadata.servers import RedisSide

RESOURCE = "orders"
SESSIONS = ("pid:1", "pid:2", "conn:3")


def _order(record: Ownership) -> tuple[int, int, bool]:
    return record.generation, record.position, record.session is None


@dataclass
class Redis:
    """What the scripts may know, and their rules."""

    owner: Ownership | None = None
    ticket: int = 0
    claim: tuple[bytes, int, bool] | None = None
    """Token, generation, and whether its lease has run out."""
    used: frozenset[bytes] = frozenset()

    def learn(self, record: Ownership | None) -> None:
        if record is not None and (self.owner is None or _order(record) > _order(self.owner)):
            self.owner = record

    def claimed(self, request: ClaimRequest) -> tuple[ClaimStatus, int | None]:
        self.learn(request.known)
        if self.claim is not None and self.claim[0] == request.token:
            return self._grant(request.token, self.claim[1])
        if request.token in self.used:
            return ClaimStatus.OVER, None
        current = self.owner.generation if self.owner else 0
        holder = self.owner.session if self.owner else None
        asked = request.asked
        returns = holder is None and request.returns_to == current != 0
        keeps = (holder == request.session or returns) and (asked is None or asked <= current)
        if not keeps:
            if asked is not None and 0 < asked < current:
                return ClaimStatus.LOWER_GENERATION, None
            wins = asked is not None or request.mode is AccessMode.EXCLUSIVE_WITH_FENCING
            if holder not in (None, request.session) and not wins:
                return ClaimStatus.HELD, None
        if self.claim is not None and not self.claim[2]:
            return ClaimStatus.BUSY, None
        if keeps:
            return self._grant(request.token, current)
        self.ticket = max(current, self.ticket, (asked or 0) - 1) + 1
        return self._grant(request.token, self.ticket)

    def _grant(self, token: bytes, generation: int) -> tuple[ClaimStatus, int]:
        self.claim = (token, generation, False)
        self.used |= {token}
        return ClaimStatus.GRANTED, generation

    def published(self, record: Ownership, token: bytes | None) -> None:
        self.learn(record)
        if self.claim is not None and (self.claim[0] == token or self.claim[1] < record.generation):
            self.claim = None


@dataclass
class Takeover:
    """A node that was granted a claim and has not committed yet."""

    request: ClaimRequest
    generation: int
    done: bool = field(default=False)


class Arbitration(RuleBasedStateMachine):
    redis_side: RedisSide

    def __init__(self) -> None:
        super().__init__()
        self.cluster = f"machine-{uuid.uuid4().hex}"
        self.runner = asyncio.Runner()
        self.store = MetadataStore(self.redis_side.url, self.cluster, command_timeout_ms=20_000, connections=1)
        self.client = self.redis_side.client()
        self.reference = Redis()
        self.log: list[Ownership] = []
        self.takeovers: list[Takeover] = []
        self.snapshot: tuple[dict[bytes, bytes], Redis] | None = None

    def teardown(self) -> None:
        self.wait(self.store.aclose())
        self.runner.close()
        keys = self.redis_side.keys(self.cluster)
        if keys:
            self.client.delete(*keys)
        self.client.close()

    def wait(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    @property
    def newest(self) -> Ownership | None:
        return self.log[-1] if self.log else None

    @property
    def last_owner(self) -> Ownership | None:
        return next((record for record in reversed(self.log) if record.session), None)

    def record(self, generation: int, session: str | None) -> Ownership:
        return Ownership(RESOURCE, Generation(generation), len(self.log), session, name=f"at {len(self.log)}")

    # What nodes do

    @rule(session=st.sampled_from(SESSIONS), mode=st.sampled_from(AccessMode), ask=st.none() | st.integers(-3, 3))
    def a_session_claims(self, session: str, mode: AccessMode, ask: int | None) -> None:
        current = self.newest.generation if self.newest else 0
        asked = None if ask is None else max(0, current + ask)
        released = self.newest is not None and self.newest.session is None
        was_its_own = self.last_owner is not None and self.last_owner.session == session
        request = ClaimRequest(
            RESOURCE,
            new_token(),
            1,
            "aa",
            session,
            session,
            mode,
            600_000,
            known=self.newest,
            asked=asked,
            returns_to=current if released and was_its_own else None,
        )
        self.claim(request)

    @precondition(lambda self: self.takeovers)
    @rule(data=st.data())
    def a_claim_is_sent_again(self, data: st.DataObject) -> None:
        self.claim(data.draw(st.sampled_from(self.takeovers)).request)

    def claim(self, request: ClaimRequest) -> None:
        status, generation = self.reference.claimed(request)
        answer = self.wait(self.store.claim(request))
        assert (answer.status, answer.generation) == (status, generation)
        assert answer.current == self.reference.owner
        if generation is not None and not any(takeover.request is request for takeover in self.takeovers):
            self.takeovers.append(Takeover(request, generation))

    @precondition(lambda self: any(not takeover.done for takeover in self.takeovers))
    @rule(data=st.data(), publishes=st.booleans())
    def a_takeover_commits(self, data: st.DataObject, publishes: bool) -> None:
        takeover = data.draw(st.sampled_from([takeover for takeover in self.takeovers if not takeover.done]))
        takeover.done = True
        request = takeover.request
        if request.known is not self.newest:
            # Kafka's fence: somebody else committed since. The node starts over with another claim.
            assert isinstance(self.wait(self.store.abandon(RESOURCE, request.token)), bool)
            if self.reference.claim is not None and self.reference.claim[0] == request.token:
                self.reference.claim = None
            return
        owner = self.record(takeover.generation, request.session)
        before = self.last_owner
        if before is not None and before.session == request.session:
            assert owner.generation >= before.generation
        else:
            assert owner.generation > (before.generation if before else 0), "a change of owner raises the generation"
        self.log.append(owner)
        if publishes:
            self.publish(owner, request.token)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def a_record_is_published_late_or_again(self, data: st.DataObject) -> None:
        self.publish(data.draw(st.sampled_from(self.log)), None)

    def publish(self, record: Ownership, token: bytes | None) -> None:
        self.reference.published(record, token)
        answer = self.wait(self.store.publish(record, token))
        assert answer.current == self.reference.owner
        assert answer.accepted == (self.reference.owner == record)

    @precondition(lambda self: any(record.session for record in self.log))
    @rule(data=st.data(), logged=st.booleans())
    def an_owner_is_released(self, data: st.DataObject, logged: bool) -> None:
        owned = data.draw(st.sampled_from([record for record in self.log if record.session]))
        free = Ownership(RESOURCE, owned.generation, owned.position, None, name=owned.name)
        self.reference.learn(free)
        answer = self.wait(self.store.release(owned))
        assert answer.current == self.reference.owner
        current = answer.current
        assert answer.released == (current.session is None and current.generation == owned.generation)
        if logged and owned is self.newest:
            self.log.append(self.record(owned.generation, None))

    # What happens to Redis

    @precondition(lambda self: self.reference.claim)
    @rule()
    def the_claims_lease_runs_out(self) -> None:
        key = f"sidecar:{{{self.cluster}}}:claims"
        _, rest = self.client.hget(key, RESOURCE).split(b" ", 1)
        self.client.hset(key, RESOURCE, b"1 " + rest)
        assert self.reference.claim is not None
        self.reference.claim = (*self.reference.claim[:2], True)

    @rule()
    def redis_is_emptied(self) -> None:
        keys = self.redis_side.keys(self.cluster)
        if keys:
            self.client.delete(*keys)
        self.reference = Redis()

    @rule()
    def redis_is_dumped(self) -> None:
        content = {key: self.client.dump(key) for key in self.redis_side.keys(self.cluster)}
        reference = self.reference
        self.snapshot = content, Redis(reference.owner, reference.ticket, reference.claim, reference.used)

    @precondition(lambda self: self.snapshot)
    @rule()
    def redis_is_rolled_back_to_the_dump(self) -> None:
        assert self.snapshot is not None
        content, reference = self.snapshot
        self.redis_is_emptied()
        for key, value in content.items():
            self.client.restore(key, 0, value)
        self.reference = Redis(reference.owner, reference.ticket, reference.claim, reference.used)

    # What must hold

    @invariant()
    def generations_rise_and_have_one_owner_each(self) -> None:
        owners: dict[int, str] = {}
        for record in self.log:
            if record.session is not None:
                assert owners.setdefault(record.generation, record.session) == record.session
        generations = [record.generation for record in self.log]
        assert generations == sorted(generations)

    @invariant()
    def redis_knows_what_the_reference_knows(self) -> None:
        state = self.wait(self.store.ownership(RESOURCE))
        assert state.owner == self.reference.owner
        claim = self.reference.claim
        expected = claim[:2] if claim is not None and not claim[2] else None
        assert (state.claim and (state.claim.token, state.claim.generation)) == expected


def test_generations_rise_and_have_one_owner_each_whatever_redis_forgets(redis_side: RedisSide):
    run_state_machine_as_test(
        type("Machine", (Arbitration,), {"redis_side": redis_side}),
        settings=settings(
            max_examples=15,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
