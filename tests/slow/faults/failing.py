"""A node of `failing_node.py` as tests run it: armed while it runs, dead by its own hand, started again."""

from __future__ import annotations

import signal
from pathlib import Path

from sidecar.local.process import Child, Command
from tests.nodes import NodeProcess, fork
from tests.slow.faults import failing_node
from tests.slow.faults.failing_node import MUTANTS, POINTS
from tests.wait import wait_for


class FailingNode(NodeProcess):
    """One node with failpoints. `mutant` is one of `MUTANTS`, `haste` is for points within snapshots and recovery."""

    def __init__(
        self,
        directory: Path,
        kafka_bootstrap: str,
        redis_url: str,
        *,
        cluster: str,
        node_id: int = 1,
        mutant: str = "",
        haste: bool = False,
        **settings: str,
    ) -> None:
        super().__init__(directory, kafka_bootstrap, redis_url, cluster=cluster, node_id=node_id, **settings)
        assert not mutant or mutant in MUTANTS
        self._arm = directory / f"arm-{cluster}-{node_id}"
        self._reached = directory / f"reached-{cluster}-{node_id}"
        self._environment = {
            "FAULTS_ARM": str(self._arm),
            "FAULTS_REACHED": str(self._reached),
            "FAULTS_MUTANT": mutant,
            "FAULTS_HASTE": "1" if haste else "",
        }

    def _begin(self, command: Command) -> Child:
        child = fork(command, failing_node.__name__)
        assert child is not None, "only a fork can be patched, and these settings allow none"
        return child

    def arm(self, point: str, number: int = 1) -> None:
        """Have it die at the `number`th passage of a point from now on."""
        assert point in POINTS
        self._reached.unlink(missing_ok=True)
        new = self._arm.with_suffix(".new")
        new.write_text(f"{point} {number}")
        new.replace(self._arm)

    def recover(self) -> None:
        """Disarm it, and start it where a test that failed left it dead."""
        self._arm.unlink(missing_ok=True)
        if self.is_dead:
            self.start()

    @property
    def is_dead(self) -> bool:
        return not self.child.alive

    def died_at(self, point: str, timeout: float = 60.0) -> None:
        """Wait for its death, and make sure that it was this one: killed by itself, at that point. It is disarmed."""
        wait_for(lambda: self.is_dead, f"the node to die at {point}", timeout)
        assert self.child.exit_code == -signal.SIGKILL
        reached = self._reached.read_text().split() if self._reached.exists() else []
        assert reached[:1] == [point], f"died at {reached} instead of {point}"
        self._arm.unlink()
