"""Runs the chosen cells of the matrix, the columns side by side, and keeps what came of each.

A column is a thread with one worker at a time: the cells of a client follow each other in the order asked for, so that
a test which waits for its cell waits for little else. A worker that hangs or dies costs its cell, and a new one takes
the next.
"""

from __future__ import annotations

import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .absences import ABSENCES
from .features import FEATURE
from .outcome import Outcome, Result, Route, failed, judge
from .stored import complaint
from .worker import Answered, Worker, WorkerError


class CellId(NamedTuple):
    """A cell of the matrix on one of the routes; `client` and `feature` are names from `features`."""

    route: Route
    client: str
    feature: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where clients go: they are given `bootstrap`, may know `nodes`, `brokers` lie behind.

    `trouble` says what makes it pointless to go on: a node that has ended.
    """

    route: Route
    bootstrap: str
    nodes: frozenset[str]
    brokers: frozenset[str]
    secured: bool
    trouble: Callable[[], str | None] = lambda: None


@dataclass
class MatrixRun:
    """All cells of one session. `start` worker commands come from `commands`, by client; logs go to `folder`."""

    targets: Mapping[Route, Target]
    commands: Mapping[str, Callable[[], Sequence[str]]]
    jars: Sequence[Path]
    folder: Path
    name: str = field(default_factory=lambda: f"matrix-{uuid.uuid4().hex[:8]}")
    results: dict[CellId, Result] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._futures: dict[CellId, Future[Result]] = {}
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()

    def start(self, cells: Iterable[CellId]) -> None:
        """Begin with these cells; of several routes, direct Kafka first."""
        columns: dict[str, list[CellId]] = {}
        for cell in sorted(cells, key=lambda cell: cell.route is not Route.DIRECT):
            self._futures[cell] = Future()
            columns.setdefault(cell.client, []).append(cell)
        for client, column in columns.items():
            thread = threading.Thread(target=self._run_column, args=(client, column), name=f"column {client}")
            thread.start()
            self._threads.append(thread)

    def result(self, cell: CellId) -> Result:
        """What came of the cell; waits for it."""
        return self._futures[cell].result()

    def close(self) -> None:
        """Stop after the cells that are running now."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run_column(self, client: str, cells: list[CellId]) -> None:
        worker: Worker | None = None
        route: Route | None = None
        try:
            for cell in cells:
                if worker is not None and cell.route is not route:
                    worker.close()
                    worker = None
                route = cell.route
                if self._stop.is_set():
                    self._keep(cell, failed("not run: the session was ended"))
                    continue
                if trouble := self.targets[route].trouble():
                    self._keep(cell, failed(f"not run: {trouble}"))
                    continue
                started = time.monotonic()
                try:
                    worker = worker or self._new_worker(client, route)
                    result = self._run_cell(worker, cell)
                except WorkerError as error:
                    result = failed(f"{client} worker: {error}", seconds=time.monotonic() - started)
                    if worker is not None:
                        worker.kill()
                        worker = None
                except Exception as error:  # noqa: BLE001  a defect here must fail its cell, not leave tests waiting
                    result = failed(f"{type(error).__name__}: {error}", traceback.format_exc())
                self._keep(cell, result)
        finally:
            if worker is not None:
                worker.close()

    def _keep(self, cell: CellId, result: Result) -> None:
        self.results[cell] = result
        self._futures[cell].set_result(result)

    def _new_worker(self, client: str, route: Route) -> Worker:
        worker = Worker(self.commands[client](), self.folder / f"{client}-{route.value}.log")
        self.versions[client] = worker.version
        return worker

    def _run_cell(self, worker: Worker, cell: CellId) -> Result:
        absence = ABSENCES.get((cell.client, cell.feature))
        if absence is not None and cell.feature in worker.features:
            return failed("listed as absent, and there is a scenario for it")
        if absence is not None and cell.client == "java-client":
            # The Java worker has no evidence of its own: it lies in the jars.
            absence.evidence.verify(self.jars)
            return Result(Outcome.ABSENT, absence.reason)
        target = self.targets[cell.route]
        started = time.monotonic()
        asked = {
            "feature": cell.feature,
            "bootstrap": target.bootstrap,
            "nodes": sorted(target.nodes),
            "secured": target.secured,
            "prefix": self.prefix(cell),
        }
        answered = worker.run(asked, FEATURE[cell.feature].limit_s)
        result = judge(cell.client, cell.feature, answered.answer, time.monotonic() - started)
        if not result.passed:
            return result
        objection = strangers(answered, target, cell.feature)
        if objection is None and result.outcome is Outcome.OK:
            objection = complaint(cell.feature, target.brokers, self.prefix(cell))
        return result if objection is None else failed(objection, seconds=result.seconds)

    def prefix(self, cell: CellId) -> str:
        """What the names of the cell's topics, groups and users begin with."""
        return f"{self.name}.{cell.route.value}.{cell.client}.{cell.feature}"


def strangers(answered: Answered, target: Target, feature: str) -> str | None:
    """What is wrong with the connections of the client: one that leads elsewhere than to a node, or none where some
    must be.
    """
    elsewhere = answered.far_ends - target.nodes
    if elsewhere:
        brokers = " (the broker itself)" if elsewhere & target.brokers else ""
        return f"the client had connections to {sorted(elsewhere)}{brokers}; the nodes are {sorted(target.nodes)}"
    if feature == "cluster" and not answered.held:
        return "the client was to stand still with its connections open, and none was seen"
    return None
