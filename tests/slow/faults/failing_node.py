"""What a failing node is patched with, in its own process, before it serves (`tests.forking`).

Failpoints: at the k-th passage of a named point the process kills itself with SIGKILL, so nothing is cleaned up, as in
a crash. A test names the point in the file `FAULTS_ARM` (`point k`) while the node runs; what was reached is written to
`FAULTS_REACHED`. Mutants, named by `FAULTS_MUTANT`: nodes with a mistake that tests have to notice.

`FAULTS_HASTE` makes snapshots small, frequent and in many chunks, and reads logs in small pieces, so that points in the
midst of them are reached by a few records; claims of nodes that died end sooner. The product has no hook for any of
this.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

POINTS = {
    "marked": "ids are marked as pushed, the batch is not forwarded",
    "shipped": "the batch is handed to the connection",
    "forwarded": "Kafka has answered, and nobody has looked",
    "answered": "Kafka's answer is taken, the client has none",
    "before-shift": "a duplicate is to be dropped, its SequenceBase is not appended",
    "after-shift": "the SequenceBase is appended, the duplicate is not acknowledged",
    "rest-forwarded": "the new records of a part duplicate are in the log, and nobody has looked",
    "rest-answered": "Kafka's answer for the new records of a part duplicate is taken, the client has none",
    "between-chunks": "a part of a snapshot is in Kafka",
    "snapshot-in-kafka": "a snapshot is in Kafka, not in Redis",
    "fenced": "a takeover has fenced, nothing says who serves",
    "committed": "a takeover is in the changelog, Redis does not know",
    "recovering": "a part of the log is read again",
}


class Failpoints:
    """Counts passages of the point that is armed, and ends the process at the k-th."""

    def __init__(self, arm: Path, reached: Path) -> None:
        self._arm = arm
        self._reached = reached
        self._armed = ""
        self._count = 0

    def passed(self, point: str) -> None:
        """The node is at a point."""
        try:
            armed = self._arm.read_text()
        except FileNotFoundError:
            return
        if armed != self._armed:
            self._armed, self._count = armed, 0
        wanted, number = armed.split()
        if wanted != point:
            return
        self._count += 1
        if self._count == int(number):
            self._reached.write_text(armed)
            os.kill(os.getpid(), signal.SIGKILL)


def after(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Call `act` with a function's arguments when it has returned."""
    original = getattr(owner, name)
    if asyncio.iscoroutinefunction(original):

        async def awaited(*args: Any, **options: Any) -> Any:
            found = await original(*args, **options)
            act(*args)
            return found

        setattr(owner, name, awaited)
    else:

        def called(*args: Any, **options: Any) -> Any:
            found = original(*args, **options)
            act(*args)
            return found

        setattr(owner, name, called)


def before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Call `act` with a function's arguments in front of it."""
    original = getattr(owner, name)

    def called(*args: Any, **options: Any) -> Any:
        act(*args)
        return original(*args, **options)  # a coroutine function's step has not begun yet

    setattr(owner, name, called)


def patch_failpoints(points: Failpoints) -> None:
    """Put every point of `POINTS` where it is."""
    from metadata import MetadataStore  # noqa: PLC0415  the path has to be right first, and the node's imports small
    from sidecar.dedup import recovery, snapshots  # noqa: PLC0415
    from sidecar.dedup.batches import Flight, Outgoing  # noqa: PLC0415
    from sidecar.forwarder import forwarder as links  # noqa: PLC0415
    from sidecar.forwarder import gathered  # noqa: PLC0415
    from sidecar.takeover.takeover import Takeover  # noqa: PLC0415
    from sidecar.writing.epoch import SlotEpoch  # noqa: PLC0415

    def at(point: str) -> Callable[..., None]:
        return lambda *_: points.passed(point)

    def answered(reply: Any, *_: Any) -> None:
        if any(append.records != append.client_records for _, append in reply.sent):
            points.passed("rest-forwarded")
        else:
            points.passed("forwarded")

    def landed(flight: Any, *_: Any) -> None:
        points.passed("rest-answered" if flight.shift else "answered")

    after(Outgoing, "watch", at("marked"))
    after(links.LeaderLink, "_send", at("shipped"))
    before(gathered.GatheredReply, "answer_received", answered)
    before(links.WholeReply, "answer_received", answered)
    after(Flight, "landed", landed)
    before(SlotEpoch, "shift", at("before-shift"))
    after(SlotEpoch, "shift", at("after-shift"))
    before(MetadataStore, "keep_snapshot", at("snapshot-in-kafka"))
    after(Takeover, "_fence", at("fenced"))
    after(Takeover, "_append", at("committed"))
    after(recovery, "learn", at("recovering"))
    to_records = snapshots.to_records

    def chunk_by_chunk(*args: Any) -> Iterator[Any]:
        for index, record in enumerate(to_records(*args)):
            if index:
                points.passed("between-chunks")
            yield record

    setattr(snapshots, "to_records", chunk_by_chunk)  # noqa: B010  a function of a module


def patch_haste() -> None:
    """Make snapshots and readings of many small parts, and wait for the claim of a node that died for a second only."""
    from sidecar.cluster.logs import LogReader  # noqa: PLC0415
    from sidecar.dedup import cleaning, partition, snapshots  # noqa: PLC0415
    from sidecar.takeover import arbitration  # noqa: PLC0415

    LogReader.read.__defaults__ = (100,)
    for module, name, value in (
        (cleaning, "SNAPSHOT_BATCHES", 3),
        (partition, "SNAPSHOT_LEAST_S", 0.1),
        (snapshots, "CHUNK_BYTES", 64),
        (arbitration, "CLAIM_LEASE_MS", 1_000),
    ):
        assert hasattr(module, name)
        setattr(module, name, value)


def mark_before_forward(marks: Any, epoch: Any) -> None:
    """An id counts as in the log as soon as it is sent, and for good."""
    push = marks.Marks.push

    def push_for_good(its: Any, pushed: Any, *rest: Any) -> Any:
        found = push(its, pushed, *rest)
        _learn(marks, its, pushed, 0)
        return found

    marks.Marks.push = push_for_good


def mark_after_ack(marks: Any, epoch: Any) -> None:
    """An id is known only after its client was answered."""
    push, landed = marks.Marks.push, marks.Marks.landed
    kept: dict[Any, Any] = {}

    def push_nothing(its: Any, pushed: Any, *rest: Any) -> Any:
        found = push(its, (), *rest)
        kept[found] = pushed
        return found

    def landed_later(its: Any, batch: Any, offset: int, records: int, now: int) -> None:
        landed(its, batch, offset, records, now)
        asyncio.get_running_loop().call_later(0.05, _learn, marks, its, kept.pop(batch), now)

    marks.Marks.push, marks.Marks.landed = push_nothing, landed_later


def in_flight_is_new(marks: Any, epoch: Any) -> None:
    """An id that is under way is judged new."""
    _settle_by(marks, lambda known, sent: known)


def in_flight_is_duplicate(marks: Any, epoch: Any) -> None:
    """An id that is under way is judged to be in the log."""
    _settle_by(marks, lambda known, sent: sent)


def replay_by_put(marks: Any, epoch: Any) -> None:
    """The newer record counts in a replay, not the higher id."""
    from sidecar.dedup import recovery  # noqa: PLC0415

    recovery._PORTION_RECORDS = 1  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]  a batch each
    learn = marks.Marks.learn

    def put(its: Any, mark: Any) -> None:
        its.forget(mark.name)
        learn(its, mark)

    marks.Marks.learn = put


def shift_not_recorded(marks: Any, epoch: Any) -> None:
    """Records are dropped without a SequenceBase."""

    async def record_nothing(*_: Any) -> None:
        return None

    epoch.SlotEpoch.shift = record_nothing


def _learn(marks: Any, its: Any, pushed: Iterable[Any], now: int) -> None:
    for name, sequence_id, _ in pushed:
        its.learn(marks.Mark(name, sequence_id, marks.NO_ID, now))


def _settle_by(marks: Any, border: Callable[[int, int], int]) -> None:
    bounds = marks.Marks.bounds

    def settled(*args: Any) -> tuple[int, int]:
        found = border(*bounds(*args))
        return found, found

    marks.Marks.bounds = settled
    marks.Marks.is_elsewhere = lambda *_: False  # else it waits for other sessions' before it judges


MUTANTS: dict[str, Callable[[Any, Any], None]] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        mark_before_forward,
        mark_after_ack,
        in_flight_is_new,
        in_flight_is_duplicate,
        replay_by_put,
        shift_not_recorded,
    )
}


def patch_mutant(mutant: str) -> None:
    """Make the mistake that a mutant makes."""
    from sidecar.dedup import marks  # noqa: PLC0415
    from sidecar.writing import epoch  # noqa: PLC0415

    MUTANTS[mutant](marks, epoch)


def patch() -> None:
    """Change the node whose process this is, as its environment says."""
    if mutant := os.environ.get("FAULTS_MUTANT"):
        patch_mutant(mutant)
    if os.environ.get("FAULTS_HASTE"):
        patch_haste()
    patch_failpoints(Failpoints(Path(os.environ["FAULTS_ARM"]), Path(os.environ["FAULTS_REACHED"])))
