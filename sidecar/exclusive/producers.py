"""Handles what clients of governed topics do by Kafka's protocol: their batches, producer ids and connections.

Finds the topic of a batch and the session that produces. The topic decides about the batch. A client that names its
old producer id when it requests a new one (InitProducerId v3+, KIP-360) continues as its own successor.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Final

from metadata.ownership import AccessMode
from sidecar.dedup.turned_away import KeptBytes
from sidecar.exclusive.answers import MOVED
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.offers import Offer
from sidecar.exclusive.partitions import Topic
from sidecar.exclusive.producing import Producing
from sidecar.exclusive.registry import Registry
from sidecar.exclusive.returning import ClientReply, Door
from sidecar.exclusive.topic import GovernedTopic
from sidecar.forwarder.forwarder import Asker, WholeRequest
from sidecar.forwarder.outcome import LONGEST_WAIT_MS, Outcome
from sidecar.network.framing import Frame
from sidecar.network.slices import in_slices
from sidecar.ownership.state import Claimant
from sidecar.policy.admission import PENDING, ExistingPartitions, checked_header
from sidecar.protocol import batch as record_batch
from sidecar.protocol import produce
from sidecar.protocol.batch import Numbers
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.primitives import new_tuple
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult
from sidecar.protocol.session import Session

_FIRST: Final = Session.by_producer_id(0)
_SUCCESSORS_KEPT: Final = 10_000
_CLAIMANTS_KEPT: Final = 1_000
_CLOSED_AT_ONCE: Final = 100
"""Topics and partitions with their own owners that are handled in one turn of the loop when a connection closes."""
_GONE: Final = Outcome(ErrorCode.NETWORK_EXCEPTION)
_REFUSALS: Final = frozenset({ErrorCode.POLICY_VIOLATION, ErrorCode.PRODUCER_FENCED})
_REFUSAL_STEP_S: Final = 0.1
_LONGEST_REFUSAL_S: Final = 1.0
_FIRST_WHOLE: Final = 7
"""Kafka refuses zstd in lower versions of Produce, and the node's own requests (version 8) may carry zstd."""


class Producers:
    """The producers of one node's clients."""

    def __init__(self, environment: Environment, topics: Registry) -> None:
        self.kept = KeptBytes()
        self.existing = ExistingPartitions(environment.services.upstream, environment.tasks, topics.missing)
        self.knows_first_id = False
        """Whether Kafka gave the producer id 0, which exists once per cluster, to a client of this node, or of one that
        recorded its session.
        """
        self._env = environment
        self._topics = topics
        self._door = Door(self.kept, topics.by_name, environment.now)
        self._successors: OrderedDict[Session, Session] = OrderedDict()

    # Batches ------------------------------------------------------------------------------------------------------

    def append(
        self,
        client: Producing,
        part: ProducePart,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
        topic_id: bytes = b"",
    ) -> None:
        """Append one batch to a governed topic, and call `done` once, perhaps within this call. The caller gives the
        batch's bytes away. `topic_id`: the topic's id in the request, empty if the request has its name.
        """

        def settle(missing: Outcome | None) -> None:
            if missing is None:
                self.append(client, part, batch, timeout_ms, done, topic_id)
            else:
                done(new_tuple(ProduceResult, (part.topic, part.partition, *missing, ())))

        if not client.is_alive():  # closed while this waited: nothing is begun, as no event would end it
            settle(_GONE)
            return
        missing = self.existing.admits(part.topic, part.partition, settle)
        if missing is None:
            self._append_there(client, part, batch, timeout_ms, done, topic_id)
        elif missing is not PENDING:
            settle(missing)

    def _append_there(
        self,
        client: Producing,
        part: ProducePart,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
        topic_id: bytes,
    ) -> None:
        """Append one batch to a partition that exists."""

        def answered(outcome: Outcome) -> None:
            result = new_tuple(ProduceResult, (part.topic, part.partition, *outcome, ()))
            if outcome.error in _REFUSALS:
                self._refuse(client, done, result)
                return
            if not outcome.error:
                client.governed.refusals = 0
            done(result)

        try:
            header = checked_header(batch)
        except KafkaError as error:
            answered(Outcome(error.code, message=error.message))
            return
        reply = ClientReply(self._door, client, part, header, batch, answered, topic_id)
        claimant, topic = (
            client.governed.claimants.get((part.topic, header.producer_id)),
            self._topics.by_name.get(part.topic),
        )
        if self._env.draining:
            reply.answer(Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="this node is shutting down"))
            return
        if topic is None and self._env.policy_of(part.topic.decode()) is None:
            reply.answer(MOVED)  # its policy ended since the request was read
            return
        if not self._env.forwarder.admit(len(batch)):
            message = "the retry buffer of this node is full; try again"
            reply.answer(Outcome(ErrorCode.NOT_ENOUGH_REPLICAS, message=message))
            return
        if claimant is None or topic is None:
            claimant, topic = self._introduce(client, part.topic, header.producer_id)
        if not topic.forward(claimant, part.partition, header, batch, timeout_ms, reply):
            self._topics.connected(client.connection_id, topic)  # it may be a new object for the same name
            address, alive = client.address, client.is_alive
            topic.offer(Offer(claimant, address, part.partition, header, batch, timeout_ms, alive, reply))

    def _refuse(self, client: Producing, done: Callable[[ProduceResult], None], result: ProduceResult) -> None:
        """Answer a refusal: at once, or with a growing delay if the client only repeats what is refused.

        Some clients repeat without a pause, tens of thousands of times. If the connection carries anything else, there
        is no delay: the answers after this one would wait for it.
        """
        now = self._env.now()
        if now != client.governed.refused_at:  # all batches of one request see the same time
            client.governed.refusals += 1
        client.governed.refused_at = now
        alone = not client.carries_ordinary and self._topics.claimed_by(client.connection_id) <= 1
        if client.governed.refusals == 1 or not alone:
            done(result)
        else:
            delay = min(_LONGEST_REFUSAL_S, _REFUSAL_STEP_S * (client.governed.refusals - 1))
            asyncio.get_running_loop().call_later(delay, done, result)

    def append_whole(
        self, client: Producing, request: ProduceRequest, frame: Frame, body: int, moved: int, asker: Asker
    ) -> bool:
        """Forward a whole request with acks=all in the usual case: valid batches of the topic's owner, all of which can
        be sent now. The frame is then given away, and `asker` is answered later. Otherwise returns False and does
        nothing.

        `body`: the position where the client id ends. `moved`: the number to add to the positions in `request`.
        """
        parts, window, name = request.parts, memoryview(frame.buffer), request.parts[0].topic
        topic = self._topics.by_name.get(name)
        if (
            topic is None
            or self._env.draining
            or client.governed.turned_away
            or name in self.existing.waiting
            or asker.version < _FIRST_WHOLE
            or not 0 <= request.timeout_ms <= LONGEST_WAIT_MS
        ):
            return False
        if produce.bare_bytes(asker.version, name, parts) != frame.end - body:
            return False  # a broker might not understand the rest, and close a connection that others share
        batches: list[tuple[ProducePart, memoryview, Numbers]] = []
        claimant: Claimant | None = None
        for part in parts:
            batch = window[part.start + moved : part.end + moved]
            numbers = record_batch.read_numbers(batch)
            if numbers is None or part.topic != name or (numbers.producer_id < 0 and topic.ids is not None):
                return False
            if not batches:
                claimant = client.governed.claimants.get((name, numbers.producer_id))
            elif numbers.producer_id != batches[0][2].producer_id:
                return False
            if claimant is None:
                return False
            batches.append((part, batch, numbers))
        assert claimant is not None
        return topic.forward_whole(claimant, new_tuple(WholeRequest, (frame, body, request.timeout_ms, batches, asker)))

    def _introduce(self, client: Producing, name: bytes, producer_id: int) -> tuple[Claimant, Topic]:
        """Register a session that produces to a topic under a producer id for the first time on this connection."""
        session = Session.by_producer_id(producer_id) if producer_id >= 0 else client.session
        shown, is_named, mode, generation = client.producer
        successor, connection = self._successors.get(session), client.connection_id
        claimant = Claimant(session, shown, is_named, connection, mode, generation, successor, caller=client.caller)
        if len(client.governed.claimants) >= _CLAIMANTS_KEPT:
            client.governed.claimants.clear()
        client.governed.claimants[name, producer_id] = claimant
        topic = self._topics.topic(name.decode())
        self._topics.connected(connection, topic)
        return claimant, topic

    def policy_mode(self, topic: str) -> AccessMode:
        """The access mode that a topic's policy has for clients that ask for none."""
        return self._env.mode_of(topic)

    async def govern(self, topics: Collection[bytes]) -> dict[bytes, KafkaError]:
        """Make ordinary topics governed; returns when every node knows it. The result has an error for each topic for
        which that failed.
        """
        errors = await asyncio.gather(*[self._env.catalog.govern(topic.decode(errors="replace")) for topic in topics])
        return {topic: error for topic, error in zip(topics, errors, strict=True) if error is not None}

    # Connections and producer ids -----------------------------------------------------------------------------------

    def check(self, client: Producing, producer_id: int | None, *, transactional: bool = False) -> KafkaError | None:
        """The error if a client may not initialise again under a producer id: it belongs to another client, or it was
        deposed somewhere. None if it may. Kafka itself knows to which client a `transactional` one belongs.
        """
        if producer_id is None:
            return None
        session = Session.by_producer_id(producer_id)
        foreign = None if transactional else self._env.bindings.check(session, client.caller)
        if foreign is not None:
            return foreign
        lost = self._env.deposed.lost_by(session)
        if lost is None:
            return None
        topic, generation = lost
        return KafkaError(ErrorCode.PRODUCER_FENCED, f"this producer was fenced from {topic} (generation {generation})")

    def initialised(
        self,
        client: Producing,
        new_producer_id: int,
        named_producer_id: int | None,
        *,
        transactional: bool = False,
    ) -> None:
        """Bind a new producer id to its client. If the client named its old one, the new session follows the old one. A
        `transactional` one is not bound: Kafka gives it to any client that requests its transactional id, and it never
        writes to governed topics.
        """
        self.knows_first_id |= new_producer_id == 0
        if not transactional:
            self._env.bindings.given(new_producer_id, client.caller)
            # A client may have used it before Kafka gave it to this one.
            self._topics.forget_refusals(Session.by_producer_id(new_producer_id))
        if named_producer_id is not None and named_producer_id != new_producer_id:
            self._successors[Session.by_producer_id(new_producer_id)] = Session.by_producer_id(named_producer_id)
            while len(self._successors) > _SUCCESSORS_KEPT:
                self._successors.popitem(last=False)

    def recorded(self, session: str) -> None:
        """Note that a record of the changelog names a session."""
        self.knows_first_id |= session == _FIRST

    def followed_by(self, session: Session) -> Session | None:
        """The session of the same client that this one follows, as its InitProducerId named it."""
        return self._successors.get(session)

    def connection_closed(self, connection: int) -> None:
        """Handle the end of a client connection."""
        self.kept.forget(connection)
        self._env.bindings.connection_closed(connection)
        parts = self._topics.connection_closed(connection)
        for part in parts[:_CLOSED_AT_ONCE]:
            part.connection_closed(connection)
        if parts[_CLOSED_AT_ONCE:]:
            self._env.tasks.start(in_slices(_close(parts[_CLOSED_AT_ONCE:], connection)))


def _close(parts: Sequence[GovernedTopic], connection: int) -> Generator[None, None, None]:
    """Handle the end of a connection that claimed many topics, or a topic of many partitions, in slices."""
    for number, part in enumerate(parts):
        if not number % _CLOSED_AT_ONCE:
            yield
        part.connection_closed(connection)
