"""A node's way from a client to a partition, driven step by step: real lanes, epochs and successions, a paper network.

A request to a broker is delivered, answered, or lost with its connection; what was lost on the way may still be
delivered later, as a stopped broker does when it goes on. A broker that does not lead refuses; one that lost its place
says so after the append. Nothing here retries or reorders: what tests see is the work of the parts under test.

One thing is left out that Kafka itself cannot tell apart: a batch that comes late after the broker has already said 45
of it. Clients take 45 for final and send its records again under the next epoch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from metadata.ownership import AccessMode
from sidecar.changelog import Position, pack_positions
from sidecar.changelog.records import read_batches
from sidecar.dedup.reply import Reply
from sidecar.forwarder.lane import Lane, LaneOwner
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import EPOCH_RECORDS, Append, PlainSequences, RefusedSequences, Verdict
from sidecar.protocol.batch import read_header
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.ids import StampedSequence as Stamped
from sidecar.protocol.session import Session
from sidecar.takeover import requests, succession
from sidecar.takeover.slots import SlotScope, TakenSlot
from sidecar.v1 import state_pb2 as state
from sidecar.writing.epoch import SlotEpoch
from tests.unit.exclusive.paper_kafka import Partition
from tests.unit.forwarder.paper import record_batch

SLOT_ID = 9_000
TOPIC_ID = UUID(int=1)
NO_LEADER, NOT_LEADER, TIMED_OUT, TOO_LARGE, LOST, OUT_OF_ORDER = 5, 6, 7, 10, 13, 45
_ANSWERS = {Verdict.REPEAT: 46, Verdict.ASTRIDE: 45, Verdict.STRAY: 45, Verdict.WAIT: 45, Verdict.STALE: 47}


@dataclass(eq=False)
class Request:
    """A batch on its way to a broker, as its bytes were when it left."""

    lane: Lane
    append: Append
    stamp: tuple[int, int, int]
    values: tuple[int, ...]
    outcome: Outcome | None = None


@dataclass(eq=False)
class Link:
    """A connection to a broker: requests are processed and answered in order."""

    broker: int
    requests: deque[Request] = field(default_factory=deque)

    def undelivered(self) -> Request | None:
        return next((request for request in self.requests if request.outcome is None), None)


class Cluster:
    """Partitions and who leads them."""

    def __init__(self, partitions: int) -> None:
        self.partitions = [Partition() for _ in range(partitions)]
        self.leaders = [0] * partitions
        self.serving: state.Serving | None = None
        """The changelog's newest record of the topic, and the epoch that the coordinator gave out last."""
        self.slot_epoch = -1
        self.epoch_records = EPOCH_RECORDS
        self.too_large: set[tuple[int, ...]] = set()
        self.zombies: list[tuple[int, deque[Request]]] = []
        """(broker, requests) of connections that are gone, and may yet be read."""

    def process(self, broker: int, request: Request) -> Outcome:
        """What a broker makes of a request."""
        index = request.lane.partition
        if self.leaders[index] != broker:
            return Outcome(NOT_LEADER)
        if request.values in self.too_large:
            return Outcome(TOO_LARGE)
        error, offset = self.partitions[index].append(*request.stamp, request.values)
        if error == OUT_OF_ORDER:
            for _, waiting in self.zombies:
                late = [zombie for zombie in waiting if zombie.lane.partition == index]
                for zombie in late:
                    waiting.remove(zombie)
            self.zombies = [found for found in self.zombies if found[1]]
        return Outcome(error, offset)

    def wake_zombie(self, which: int) -> None:
        """A broker reads what still lay in a socket whose other end is gone; its answer goes nowhere."""
        broker, requests = self.zombies[which % len(self.zombies)]
        self.process(broker, requests.popleft())
        self.zombies = [found for found in self.zombies if found[1]]


class PaperForwarder:
    """Makes lanes and ships their batches, by a view of the leaders that may be old."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.lanes: list[Lane] = []
        self.view: list[int | None] = list(cluster.leaders)
        self.links: dict[int, Link] = {}
        self.held = 0
        self.unsettled: list[tuple[Lane, Append]] = []
        """What was shipped while there was no leader: told so in the next turn."""

    def lane(
        self,
        topic: bytes,
        partition: int,
        stamp: Stamp,
        plain: PlainSequences | None,
        owner: LaneOwner,
        topic_id: UUID | None = None,
    ) -> Lane:
        lane = Lane(topic, partition, stamp, plain, self, owner, random.Random(7))
        self.lanes.append(lane)
        return lane

    def ship(self, lane: Lane, append: Append) -> None:
        broker = self.view[lane.partition]
        if broker is None:
            self.unsettled.append((lane, append))
            return
        header = read_header(append.batch, 0, append.size)
        stamp = header.producer_id, header.producer_epoch, header.base_sequence
        link = self.links.setdefault(broker, Link(broker))
        (written,) = read_batches(bytes(append.batch))
        values = tuple(int(record.value or b"") for _, record in written.records)
        link.requests.append(Request(lane, append, stamp, values))

    def leader_lost(self, topic: bytes) -> None:
        """The view is refreshed when the test says so."""

    def released(self, size: int) -> None:
        self.held -= size
        assert self.held >= 0

    # Steps

    def deliver(self, link: Link, fault: int | None) -> None:
        """The broker takes the next request. `fault`: it answers so; 10 and 19 instead of an append, else behind it."""
        request = link.undelivered()
        assert request is not None
        known = set(request.values) <= set(self.cluster.partitions[request.lane.partition].values)
        if fault == TOO_LARGE and not known:
            self.cluster.too_large.add(request.values)
        if fault in (TOO_LARGE, 19) and not known:
            request.outcome = Outcome(fault)
            return
        outcome = self.cluster.process(link.broker, request)
        request.outcome = Outcome(fault) if fault is not None and outcome.error == 0 else outcome

    def answer(self, link: Link) -> None:
        request = link.requests.popleft()
        assert request.outcome is not None
        request.lane.settled(request.append, request.outcome)

    def cut(self, link: Link, *, linger: bool) -> None:
        """The connection ends; what was not delivered yet may `linger` in the broker's socket."""
        lost, link.requests = link.requests, deque()
        waiting = deque(request for request in lost if request.outcome is None)
        if linger and waiting:
            self.cluster.zombies.append((link.broker, waiting))
        for request in lost:
            request.lane.settled(request.append, Outcome(LOST))

    def settle_leaderless(self) -> None:
        unsettled, self.unsettled = self.unsettled, []
        for lane, append in unsettled:
            lane.settled(append, Outcome(NO_LEADER))


class PaperNode:
    """Serves one topic: what `exclusive.topic` does with the batches of the owner, without claims and without IO."""

    def __init__(self, cluster: Cluster) -> None:
        self.forwarder = PaperForwarder(cluster)
        self.cluster = cluster
        self.epoch: SlotEpoch | None = None
        self.takeovers = self.raises = 0
        self.needs_takeover = False
        self.lanes: list[Lane] = self.forwarder.lanes

    # Lanes' owner

    def fenced(self, lane: Lane) -> None:
        self._lose(lane, NOT_LEADER)

    def numbering_lost(self, lane: Lane) -> None:
        self._lose(lane, TIMED_OUT)

    def refused(self, partition: int, client_epoch: int, first: int, records: int) -> None:
        raise AssertionError("there are no sequence ids here")

    def _lose(self, lane: Lane, code: int) -> None:
        if self.epoch is None or lane.stamp != self.epoch.taken.stamp:
            return
        self.needs_takeover = True
        self._drop(code)

    def _drop(self, code: int) -> None:
        epoch, self.epoch = self.epoch, None
        if epoch is not None:
            epoch.close(Outcome(code))

    # Operations

    def take_over(self, request: requests.Request) -> None:
        """As `takeover`: the next epoch, a marker everywhere, what the log says, `Serving`."""
        self._drop(NOT_LEADER)
        self.needs_takeover = False
        self.takeovers += 1
        changelog = self.cluster
        serving = changelog.serving
        before = (SLOT_ID, serving.producer_epoch if serving is not None else -1)
        changelog.slot_epoch += 1
        for partition in self.cluster.partitions:
            partition.mark(SLOT_ID, changelog.slot_epoch)
        stamped = {index: found.last_stamped(*before) for index, found in enumerate(self.cluster.partitions)}
        last = {index: Stamped(sequence) for index, sequence in stamped.items() if sequence is not None}
        partitions = range(len(self.cluster.partitions))
        bases, _, left, _ = succession.sequences(request, serving, partitions, last, {}, now_ms=0)
        self._open(request.session, bases, left)

    def _open(self, session: str, bases: dict[int, Position], left: list[state.LeftSession]) -> None:
        epoch = self.cluster.slot_epoch
        stamp = Stamp(ProducerId(SLOT_ID), ProducerEpoch(epoch))
        self.cluster.serving = state.Serving(
            session=session, producer_id=SLOT_ID, producer_epoch=epoch, base=pack_positions(bases), left=left
        )
        taken = TakenSlot(
            SlotScope("orders"), TOPIC_ID, stamp, cast(Any, None), cast(Any, None), Session(session), session, 1,
            bases, {}, tuple(range(len(self.cluster.partitions))), state.Ownership(), 0, {},
        )  # fmt: skip
        self.epoch = SlotEpoch(taken, cast(Any, self.forwarder), self, limit=self.cluster.epoch_records)

    def replace_epoch(self, raised: dict[int, Position]) -> None:
        """As `SlotWriter.raise_epoch` where nothing is under way: the client raised its epoch, or there was enough."""
        old, serving = self.epoch, self.cluster.serving
        assert old is not None
        assert serving is not None
        mine = serving.producer_epoch == old.taken.stamp.epoch == self.cluster.slot_epoch
        if not (mine and old.certain):
            self.take_over(claim_of(old.taken.session))  # Kafka refuses to raise an epoch that is not the newest
            return
        self.raises += 1
        self.cluster.slot_epoch += 1
        self._open(serving.session, {**old.stands_at(), **raised}, list(serving.left))
        old.close(Outcome(NOT_LEADER))

    # Batches

    def offer(
        self, session: str, partition: int, epoch: int, sequence: int, values: tuple[int, ...], timeout: float,
        done: Callable[[Outcome], None],
    ) -> None:  # fmt: skip
        """As `GovernedTopic._forward` for the session that owns the topic; others are answered 44 elsewhere."""
        if self.needs_takeover or self.epoch is None or self.epoch.taken.session != session:
            done(Outcome(NO_LEADER))
            return
        plain = not session.startswith(Session("pid:"))
        data = record_batch([b"%d" % value for value in values])
        header = read_header(data, 0, len(data))
        header = header._replace(producer_id=-1 if plain else 1, producer_epoch=epoch, base_sequence=sequence)
        verdict = self.epoch.verdict(partition, header)
        if verdict in (Verdict.RAISE, Verdict.RENEW):
            if not self.epoch.idle:
                done(Outcome(NO_LEADER))
                return
            self.replace_epoch({partition: Position(epoch, Client(0))} if verdict is Verdict.RAISE else {})
            verdict = self.epoch.verdict(partition, header)
            assert verdict is not Verdict.RENEW, "for ever"
            if verdict is Verdict.RAISE:
                done(Outcome(NO_LEADER))
                return
        if verdict is not Verdict.FORWARD:
            done(Outcome(_ANSWERS[verdict]))
            return
        self.forwarder.held += len(data)
        self.epoch.append(partition, header, memoryview(data), int(timeout * 1000), Reply(done))


def claim_of(
    session: str, client_epoch: int = 0, refused: dict[int, RefusedSequences] | None = None
) -> requests.Request:
    return requests.Request(
        requests.Purpose.CLAIM,
        Session(session),
        "",
        AccessMode.EXCLUSIVE,
        client_epoch=client_epoch,
        refused=refused or {},
    )
