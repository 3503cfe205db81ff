"""The coordinator of free strings and reader claims: the room's interface on every node, and the right to coordinate.

`claims` decides what follows from an event; this module carries it out: it appends changes to the log, batch by batch.
All of it runs in one event loop. It sends no answers, and closes no connections: the handler of a request asks `ready`,
then `look`, then `take` or `wait`, and asks again when there is news of its token among the `events`.

One node at a time has the right, by a lease in Redis and the fence of a slot in Kafka. Kafka makes it safe: a replaced
coordinator that has not noticed it cannot append any more. When it notices, it closes the connections whose claims
ended with its epoch. The node asks Redis for the coordinator, and asks again before each batch of claims: while Redis
does not answer, nothing new is claimed, and owners keep what they own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import suppress
from typing import Final

from metadata import MetadataError, MetadataUnavailable
from metadata.lease import Lease, Sent
from metadata.nodes import ServeStatus
from sidecar.access.prospects import Prospect
from sidecar.access.services import NodeServices
from sidecar.changelog import (
    FAILURES,
    MASTER_SLOT,
    AppendRefusedError,
    ChangelogError,
    Entry,
    Key,
    Kind,
    claimed,
)
from sidecar.changelog import Change as LogChange
from sidecar.cluster.nodes import NodeDirectory
from sidecar.network.backoff import RetryTimeoutError
from sidecar.network.slices import in_slices
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset
from sidecar.protocol.session import Session
from sidecar.resources.claim_table import Change, ClaimTable
from sidecar.resources.claims import Claim, Claims, End, News, Release, Sever, Stored
from sidecar.resources.commits import Batch, Commits, Work
from sidecar.resources.epoch import (
    CLAIMS,
    CoordinatorEpoch,
    fencing_token,
    keep_alive,
    keep_alive_interval,
    open_epoch,
)
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import BUSY, ClaimVerdict, Request
from sidecar.telemetry.ownership_reports import OwnershipReports
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

_NAME: Final = CLAIMS.encode()
_SERVING: Final = Key(Kind.SERVING, CLAIMS, MASTER_SLOT)
_SEEN_S: Final = 10.0
_TICK_S: Final = 0.5
_CONFIRM_S: Final = 5.0
_AGAIN_S: Final = 5.0
_DRAIN_S: Final = 5.0
_KEPT_ALIVE_SHARE: Final = 0.8
_TOLD_AT_ONCE: Final = 500
_CLOSED_AT_ONCE: Final = 100
_LISTED_AT_ONCE: Final = 1_000

_NOT_NOW: Final = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "nothing can be claimed now; try again")


class Coordinator:
    """Grants and releases claims while this node has the right to. `claims`: what it knows of them, and the `events`
    that the node has to carry out. Times in seconds.
    """

    def __init__(
        self,
        services: NodeServices,
        nodes: NodeDirectory,
        tasks: Tasks,
        hooks: OwnershipReports,
        limits: ClaimLimits,
        *,
        reconnect_grace: float,
        disconnect_grace: float,
    ) -> None:
        self.claims = Claims(limits, disconnect_grace)
        self.events = self.claims.events
        self.serving = False
        self.draining = False
        self.epoch: CoordinatorEpoch | None = None
        self.commits: Commits | None = None
        self._services = services
        self.nodes = nodes
        self._tasks = tasks
        self._hooks = hooks
        self._reconnect_grace = reconnect_grace
        self._opening: asyncio.Task[KafkaError | None] | None = None
        self._telling: asyncio.Task[None] | None = None
        """Reports the end of the last epoch."""
        self._fenced_at = self._fence_due = 0.0
        self._clock = services.changelog.clock
        self._lease = Lease(services.store.lease_ms, clock=self._clock.elapsed)
        self._beat_sent: Sent | None = None
        self._woken = asyncio.Event()
        subscribe = services.changelog.tailer.subscribe
        self._unsubscribe: Callable[[], None] | None = subscribe(self._logged, Kind.CLAIM, _SERVING)

    # Claiming -----------------------------------------------------------------------------------------------------

    def look(self, request: Request) -> ClaimVerdict:
        """Return the verdict on a request, by the claims that are in the log; BUSY if this node does not coordinate.
        Changes nothing.
        """
        return BUSY if self.epoch is None else self.claims.look(request, self._clock.now_ms())

    async def take(self, request: Request, connection: int, address: str) -> ClaimVerdict:
        """Judge a request again, and if it is READY, write its claims. Returns once this node's view has them, or 10 s
        after they are in the log. The connection must be bound to the session.

        Deposed sessions' connections are severed. Any other verdict changes nothing. Raises `KafkaError` 6
        NOT_LEADER_OR_FOLLOWER if this node no longer coordinates, 5 LEADER_NOT_AVAILABLE if nothing can be claimed now.
        """
        claim = Claim(request, connection, address)
        commits = self._writing()
        try:
            last = await self._stored(commits, claim)
        except KafkaError:
            self._hooks.claims_answered("unavailable", len(request.wishes))
            raise
        self._count(claim.verdict)
        await self._seen(last)
        return claim.verdict

    def wait(self, request: Request) -> ClaimVerdict:
        """Enter a request into all of its queues unless it is refused, and return the verdict. It stays in the queues
        until `leave`, or the end of the session.

        Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if this node no longer coordinates.
        """
        self._writing()
        is_new = not self.is_waiting(request.token)
        verdict = self.claims.waits(request, self._clock.now_ms())
        if is_new and self.is_waiting(request.token):
            self._count(verdict)
        return verdict

    def is_waiting(self, token: bytes) -> bool:
        """Return whether a request is in the queues."""
        return token in self.claims.table.waiting.by_token

    def leave(self, tokens: Iterable[bytes]) -> None:
        """Remove requests from their queues; ignores those that are in none."""
        self.claims.left(tokens)

    async def release(self, token: bytes, keys: Collection[Key] | None = None) -> None:
        """Release the token's claims to `keys`, or all its claims and queue places; may be repeated.

        Returns once the release is in the log. Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if this node no longer
        coordinates, 5 LEADER_NOT_AVAILABLE if it cannot be written now.
        """
        await self._seen(await self._stored(self._writing(), Release(token, keys)))

    def lost_by(self, token: bytes) -> Collection[Key]:
        """Return the keys that a token was granted, or waited for, and lost, as far as this node has read the log."""
        return self.claims.lost.of(token)

    def is_anothers(self, session: str, principal: str) -> bool:
        """Return whether a session owns something that another principal claimed for it."""
        return self.claims.table.is_anothers(session, principal)

    def bind(self, connection: int, session: str) -> None:
        """Note that an open connection speaks for a session (Own, Watch). Raises `KafkaError` 42 INVALID_REQUEST beyond
        1,000 sessions.
        """
        self.claims.sessions.bind(connection, session)

    def connection_closed(self, connection: int) -> None:
        """Note that a client's connection has closed; end the sessions that end with it."""
        self._submit(self.claims.closed(connection, self._clock.elapsed()))
        self._woken.set()  # a session's grace may end before the next tick

    # Carrying out -------------------------------------------------------------------------------------------------

    def _writing(self) -> Commits:
        if self.commits is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not coordinate claims")
        return self.commits

    async def _stored(self, commits: Commits, intent: Claim | Release) -> Offset | None:
        done: asyncio.Future[Offset | None] = asyncio.get_running_loop().create_future()
        self._queue(commits, Work(intent, done))
        return await done

    def _submit(self, ends: Iterable[End]) -> None:
        for end in ends:
            if self.commits is not None:
                self._queue(self.commits, Work(end))

    def _queue(self, commits: Commits, work: Work) -> None:
        """Queue work, to be decided and written when its turn comes."""
        commits.queue.append(work)
        if commits.idle.is_set():
            commits.idle.clear()
            self._tasks.start(self._write_all(commits))

    async def _write_all(self, commits: Commits) -> None:
        batch = Batch()
        try:
            while commits.queue:
                batch = commits.next_batch(self.claims, self._clock.now_ms())
                for work in batch.done:
                    self._over(work)
                if batch.writes:
                    await self._write(commits, batch)
                elif commits.queue:
                    await asyncio.sleep(0)
        except BaseException as error:
            if isinstance(error, Exception):
                self._broken(error)  # the log decides: the next epoch begins with what is in it
            self._fail([*batch.done, *[work for work, _ in batch.writes]], _NOT_NOW)
            raise
        finally:
            commits.idle.set()

    async def _write(self, commits: Commits, batch: Batch) -> None:
        """Append a batch, and apply it: without its claims if the right to coordinate cannot be confirmed."""
        try:
            if any(isinstance(work.intent, Claim) for work, _ in batch.writes):
                await self._confirm()
        except KafkaError as error:
            self._fail([work for work, _ in batch.writes if isinstance(work.intent, Claim)], error)
            batch = Batch([each for each in batch.writes if not isinstance(each[0].intent, Claim)])
        works, records = [work for work, _ in batch.writes], batch.records
        if commits.closed is not None or not records:
            self._fail(works, commits.closed or _NOT_NOW)
            return
        try:
            first = await commits.journal.append(records)
        except (AppendRefusedError, RetryTimeoutError) as error:  # certainly not in the log
            self._fail(works, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"it could not be stored: {error}"))
        except Exception as error:  # noqa: BLE001  whatever the error, the outcome of the append is unknown
            self._broken(error)
            self._fail(works, commits.closed or _NOT_NOW)
        else:
            for work, change in batch.writes:
                if commits.closed is None:
                    follows = self.claims.stored(work.intent, change)
                    self._report(change, follows)
                    self._submit(follows.ends)
                self._over(work, Offset(first + len(records) - 1), commits.closed)

    def _fail(self, works: Iterable[Work], error: KafkaError) -> None:
        for work in works:
            self._over(work, error=error)

    def _over(self, work: Work, last: Offset | None = None, error: KafkaError | None = None) -> None:
        work.over(last, error)
        if isinstance(work.intent, End):
            self._submit(self.claims.ended(work.intent, failed=error is not None))

    def _report(self, change: Change, follows: Stored) -> None:
        lost, hooks = follows.lost, self._hooks
        if change.request is None:
            hooks.claims_answered("released", len(lost))
            if lost:
                _, claim = lost[0]
                hooks.claims_let_go(_text(claim), len(lost), claim.session)
            return
        deposed, first = follows.deposed, next(iter(change.claims.values()))
        hooks.claims_answered("granted", len(change.claims))
        if deposed:
            hooks.claims_answered("lost", sum(claim.session in deposed for _, claim in lost))
        loser = next(iter(deposed), None)
        hooks.claims_granted(_text(first), len(change.claims), first.generation, first.session, loser)

    def _count(self, verdict: ClaimVerdict) -> None:
        if verdict.prospect in (Prospect.READY, Prospect.BUSY):
            return  # counted once it is in the log, or not at all
        errors = {each.error for each in verdict.answers if each.error} - {control.TIMED_OUT}
        outcome = control.Error.Name(min(errors)).lower() if errors else "waiting"
        self._hooks.claims_answered(outcome, len(verdict.answers))

    async def _seen(self, last: Offset | None) -> None:
        """Wait until this node's view has the record at `last`, for at most 10 s."""
        if last is not None:
            with suppress(TimeoutError, ChangelogError):  # it is in the log, so the answer is sent anyway
                await self._services.changelog.tailer.reached(last, timeout=_SEEN_S)

    # Looking ------------------------------------------------------------------------------------------------------

    @property
    def coordinates(self) -> bool:
        return self.epoch is not None

    @property
    def node(self) -> int | None:
        """The node that coordinates or should; None if that is this node and it is shutting down."""
        if self.epoch is not None:
            return self._services.node_id
        placement, serving = self.nodes.placement, self.nodes.serving.get(_NAME)
        node = serving if serving in placement.nodes else placement.of_topic(_NAME)
        return None if self.draining and node == self._services.node_id else node

    async def claimed(self, group: str) -> list[Key]:
        """Return the resources of a group ("": free strings) that are owned or, on the coordinator, waited for."""
        return await in_slices(self._of_group(group))

    def _of_group(self, group: str) -> Generator[None, None, list[Key]]:
        table, found = self.claims.table, dict[Key, None]()
        if self.epoch is None:
            owned = [entry.key for entry in self._services.changelog.view.claims()]
        else:
            owned = list(table.owners)
        for number, key in enumerate([*owned, *table.waiting.queued()], 1):
            if claimed(key)[0] == group:
                found[key] = None
            if not number % _LISTED_AT_ONCE:
                yield
        return list(found)

    def owner(self, key: Key) -> control.Ownership:
        """Return the owner of a resource: the coordinator's by its table, others' by the changelog."""
        view = self._services.changelog.view
        entry, node = view.claim(key), -1 if self.node is None else self.node
        claim = self.claims.table.owners.get(key) if self.epoch is not None or entry is None else entry.value
        if claim is None:
            return control.Ownership(resource=claimed(key)[1], serving_node=node)
        stored = entry if entry is not None and entry.value.token == claim.token else None
        return control.Ownership(
            resource=claim.resource,
            generation=claim.generation,
            owner_name=claim.name,
            owner_session=claim.session,
            serving_node=node,
            since_ms=claim.since_ms,
            fencing_token=0 if stored is None else fencing_token(stored, view.serving(CLAIMS)),
        )

    def queue(self, key: Key) -> list[control.Waiting]:
        """Return the requests that wait for a resource, in order; only the coordinator knows them."""
        resource = claimed(key)[1]
        return [
            control.Waiting(
                resource=resource, name=place.request.name, session=place.request.session, since_ms=place.since_ms
            )
            for place in self.claims.table.waiting.queue(key).values()
        ]

    def is_held(self, key: Key, token: bytes, generation: int) -> bool:
        """Return whether this node coordinates, and the token owns a resource in this generation."""
        claim = self.claims.table.owners.get(key)  # the table is empty if it does not
        return claim is not None and (claim.token, claim.generation) == (token, generation)

    def limit(self, *, disconnect_grace: float, queue_limit: int, principal_limit: int) -> None:
        """Change the limits; owners keep what they own, requests that already wait stay in their queues."""
        self.claims.sessions.disconnect_grace = disconnect_grace
        self.claims.limits.queue, self.claims.limits.of_principal = queue_limit, principal_limit

    # Taking and losing it ---------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return once this node coordinates; take the right if no node has it and this node is the first in line.

        Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if another node coordinates or should (`node`), 5
        LEADER_NOT_AVAILABLE if no node can now.
        """
        while self.epoch is None:
            if self.draining:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node is shutting down")
            if self._opening is None:
                self._opening = self._tasks.start(self._try_to_open())
            refusal = await asyncio.shield(self._opening)
            if refusal is not None:
                raise KafkaError(refusal.code, refusal.message)

    @property
    def is_fresh(self) -> bool:
        """Whether this node's lease of the right to coordinate is valid: then no other node has the right."""
        return self._lease.held

    async def confirm(self) -> None:
        """Check that this node still coordinates. If its lease has ended, read the ownership topic to its end: a node
        that was stalled may not have noticed a newer coordinator, and without Redis only the log shows it. Raises
        `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if there is one, 5 LEADER_NOT_AVAILABLE if the log cannot be read.
        """
        if not self.is_fresh:
            try:
                await self._services.changelog.tailer.read_to_end(_CONFIRM_S)
            except FAILURES as error:
                self._hooks.claims_failed(error)
                message = "it is not known whether this node still coordinates claims; try again"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None
        if not self.coordinates:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node coordinates claims now")

    async def _try_to_open(self) -> KafkaError | None:
        """Try to become coordinator, once for all concurrent callers; return the reason if that fails, else None."""
        try:
            await self._open()
        except KafkaError as error:
            return error
        finally:
            self._opening = None
        return None

    async def _open(self) -> None:
        me = self._services.node_id
        if self.node != me:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.node} coordinates claims")
        await self._take_lease()
        self.serving = True
        began = self._clock.elapsed()
        try:
            epoch = await open_epoch(self._services)
        except FAILURES as error:
            self.serving = False
            self._hooks.claims_failed(error)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the claims are being taken over; try again") from None
        table = self.claims.new_table()
        await in_slices(table.load(epoch.claims.items()))
        if not self.serving or self.draining or self._is_outdated(epoch):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "another node took the claims over; try again")
        self._begin(epoch, table, began)

    async def _take_lease(self) -> None:
        """Request the right to coordinate from Redis. Raises `KafkaError` 5 LEADER_NOT_AVAILABLE, 6
        NOT_LEADER_OR_FOLLOWER.
        """
        services = self._services
        serving = services.changelog.view.serving(CLAIMS)
        last_node = serving.value.node if serving is not None else None
        sent = self._lease.sending()
        try:
            answer = await services.store.serve(CLAIMS, services.node_id, services.boot, last_node=last_node)
        except MetadataError as error:
            if not isinstance(error, MetadataUnavailable):
                self._hooks.claims_failed(error)
            message = "nothing can be claimed while Redis does not answer; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None
        if answer.status is ServeStatus.HELD and answer.holder is not None:
            self.nodes.serving[_NAME] = answer.holder.node_id
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {answer.holder.node_id} coordinates claims")
        if answer.status is not ServeStatus.GRANTED:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no node coordinates claims yet; try again")
        self.nodes.serving[_NAME] = services.node_id
        self._lease.granted(sent)

    def _begin(self, epoch: CoordinatorEpoch, table: ClaimTable, began: float) -> None:
        self.epoch, self._fenced_at, self._fence_due = epoch, began, 0.0
        self.commits = Commits(epoch.journal)
        self.claims.opened(table, self._clock.elapsed() + self._reconnect_grace)
        self._hooks.coordinator_changed(True, len(epoch.claims), "")
        self._woken.set()

    async def _confirm(self) -> None:
        """Renew the right to coordinate. Raises `KafkaError`; if another node has the right, ends the epoch."""
        try:
            await self._take_lease()
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._step_down(error.message or "")
            raise

    def _broken(self, error: BaseException) -> None:
        self._hooks.claims_failed(error)
        self._step_down(str(error))

    def _is_outdated(self, epoch: CoordinatorEpoch) -> bool:
        """Return whether another node has opened a later epoch."""
        serving = self._services.changelog.view.serving(CLAIMS)
        return serving is not None and serving.writer != epoch.stamp

    def _step_down(self, reason: str) -> None:
        """End the epoch, and close the connections whose own claims (`conn:` sessions) ended with it."""
        commits, self.serving = self.commits, False
        if self.epoch is None or commits is None:
            return
        self.epoch, self.commits, former = None, None, self.claims.lost_right()
        if self.nodes.serving.get(_NAME) == self._services.node_id:
            del self.nodes.serving[_NAME]
        self._lease.end()
        self._hooks.coordinator_changed(False, len(former.owners), reason)
        commits.closed = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node coordinates claims no more; ask again")
        works = list(commits.queue)
        commits.queue.clear()
        self._fail(works, commits.closed)
        self._telling = self._tasks.start(in_slices(self._tell(former)))

    def _tell(self, table: ClaimTable) -> Generator[None, None, None]:
        """Put news for every token of an epoch that has ended into `events`, and the connections whose own claims ended
        with it. In slices: other work of the node must not wait for a hundred thousand claims.
        """
        told = 0
        for token in table.tokens():
            keys = table.keys_of_token(token)
            self.events.put_nowait(News(token, keys))
            told += 1 + len(keys)
            if told >= _TOLD_AT_ONCE:
                told = 0
                yield
        for number, session in enumerate(filter(lambda one: Session(one).is_plain, table.sessions()), 1):
            for connection in self.claims.sessions.connections(session):
                self.events.put_nowait(Sever(connection))
            if not number % _CLOSED_AT_ONCE:
                yield

    # The changelog and the leases ---------------------------------------------------------------------------------

    def _logged(self, change: LogChange) -> None:
        if change.key.kind is Kind.CLAIM:
            before: Entry[state.Claim] | None = change.before
            after: Entry[state.Claim] | None = change.after
            if before is not None:
                self.claims.record_read(change.key, before.value, None if after is None else after.value)
        elif self.epoch is not None and self._is_outdated(self.epoch):
            self._step_down("another node took the claims over")

    def served_topics(self) -> list[str]:
        """Return the topics that a heartbeat asserts: `__claims` if this node coordinates."""
        if self._beat_sent is None:  # if several are under way, the lease counts from the first
            self._beat_sent = self._lease.sending()
        return [CLAIMS] if self.serving else []

    def heard(self, lost: set[str]) -> None:
        """Handle a heartbeat's answer. `lost`: the asserted topics that another live node serves."""
        if CLAIMS in lost:
            self._step_down("another node has the right to coordinate claims")
        elif self.serving and self._beat_sent is not None:
            self._lease.granted(self._beat_sent)
        self._beat_sent = None

    # Time ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: end sessions whose grace is over, take over claims that no node coordinates any more, renew
        the fence.
        """
        while True:
            self._woken.clear()
            self.pass_time()
            if self.epoch is not None:
                await self._keep_fence(self.epoch)
            elif self._is_orphaned():
                with suppress(KafkaError):  # reported to metrics and logs; tried again with the next tick
                    await self.ready()
            ends = self.claims.sessions.next_end()
            pause = _TICK_S if ends is None else min(_TICK_S, max(0.0, ends - self._clock.elapsed()))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, pause)):
                    await self._woken.wait()

    def _is_orphaned(self) -> bool:
        """Return whether a node coordinated once, none does now, and this node is the first in line."""
        if self.draining or self._services.changelog.view.serving(CLAIMS) is None:
            return False
        return self.node == self._services.node_id

    async def _keep_fence(self, epoch: CoordinatorEpoch) -> None:
        now = self._clock.elapsed()
        if now < self._fence_due:
            return
        try:
            interval = await keep_alive_interval(self._services)
            self._fence_due = self._fenced_at + interval * _KEPT_ALIVE_SHARE
            if now < self._fence_due:
                return
            await keep_alive(self._services, epoch)
        except FencedError as error:
            if self.epoch is epoch:
                self._step_down(str(error))
        except FAILURES as error:
            self._fence_due = now + _AGAIN_S
            self._hooks.claims_failed(error)
        else:
            self._fenced_at = now
            self._fence_due = now + interval * _KEPT_ALIVE_SHARE

    def pass_time(self) -> None:
        """End the sessions whose grace is over, and retry those whose release failed."""
        self._submit(self.claims.time_passed(self._clock.elapsed()))

    async def drain(self) -> None:
        """Accept no new work, finish the work under way, hand the right over to another node."""
        self.draining = True
        if self.commits is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await self.commits.idle.wait()
        was_serving = self.serving
        self._step_down("the node shuts down")
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=_DRAIN_S)
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if was_serving:
            with suppress(MetadataUnavailable):  # then the lease ends by itself
                await self._services.store.hand_over(CLAIMS, self._services.node_id, self._services.boot)


def _text(claim: state.Claim) -> str:
    """Return a text for the claim's resource, for people."""
    resource = claim.resource
    name = resource.name or resource.topic
    part = f"/{resource.partition}" if resource.HasField("partition") else ""
    return f"{claim.group}:{name}{part}" if claim.group else f"{name}{part}"
