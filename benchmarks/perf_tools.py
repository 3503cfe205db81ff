"""Kafka's own load generators, ProducerPerformance and ConsumerPerformance: started, watched, their reports read.

Their defaults are left alone (the producer is idempotent, 16 KiB batches, linger 5 ms) but for acks=all.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from sidecar.local.java import Tuning
from sidecar.local.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.local.tools import Tools

_HEAP_MB: Final = 512
_POLL_S: Final = 0.05
_LIMIT_S: Final = 150.0
_SENT: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .* ms 99\.9th", re.MULTILINE)
_FAULT: Final = re.compile(r"^.*(?:Exception|ERROR).*$", re.MULTILINE)


class ToolFailedError(RuntimeError):
    """A load generator failed, took too long or did less than it was told to."""


class BypassError(RuntimeError):
    """A client talked to others than its target: its figures would be those of somebody else."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a tool reports: records and records per second."""

    records: int
    per_second: float


def parse_producer(output: str) -> Rate | None:
    """The last line of ProducerPerformance, which alone has percentiles; None where there is none."""
    found = _SENT.findall(output)
    return Rate(int(found[-1][0]), float(found[-1][1])) if found else None


def parse_consumer(output: str) -> Rate | None:
    """The line of ConsumerPerformance: its rate while it fetched, the time for joining a group left out."""
    for line in output.splitlines():
        columns = [column.strip() for column in line.split(",")]
        if len(columns) == 10 and re.match(r"\d{4}-\d\d-\d\d ", columns[0]):
            records, fetching_ms = int(columns[4]), int(columns[7])
            return Rate(records, records / max(1, fetching_ms) * 1000)
    return None


class PerfTools:
    """The tools of one Kafka version. `check` is called while one runs; what it raises ends the tool."""

    def __init__(self, tools: Tools, check: Callable[[], None]) -> None:
        self._tools = tools
        self._check = check

    def produce(self, port: int, topic: str, records: int, size: int) -> Rate:
        """Send `records` of `size` bytes as fast as it goes. Raises ToolFailedError, BypassError."""
        output = self._run(
            port,
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={HOST}:{port}", "acks=all"),
        )
        return _checked(parse_producer(output), records, output)

    def consume(self, port: int, topic: str, records: int) -> Rate:
        """Read `records` from the beginning, in a new group. Raises ToolFailedError, BypassError."""
        output = self._run(
            port,
            "ConsumerPerformance",
            *("--bootstrap-server", f"{HOST}:{port}", "--topic", topic, "--messages", str(records)),
            *("--group", f"bench-{uuid.uuid4().hex[:12]}", "--timeout", "10000", "--hide-header"),
        )
        return _checked(parse_consumer(output), records, output)

    def _run(self, port: int, tool: str, *arguments: str) -> str:
        """Run it to its end, watching its connections; both outputs."""
        main_class = f"org.apache.kafka.tools.{tool}"
        command = self._tools.command(main_class, *arguments, heap_mb=_HEAP_MB, tuning=Tuning.FAST)
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            try:
                ports = self._watch(process, tool)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
            log.seek(0)
            output = log.read().decode(errors="replace")
        if ports - {port}:
            raise BypassError(f"{tool} was told port {port} and talked to {sorted(ports)}")
        if not ports:
            raise ToolFailedError(f"{tool} was never seen connected: {output[-300:]}")
        return output

    def _watch(self, process: subprocess.Popen[bytes], tool: str) -> set[int]:
        """Wait for its end; the remote ports it was connected to meanwhile."""
        deadline = time.monotonic() + _LIMIT_S
        ports: set[int] = set()
        while process.poll() is None:
            self._check()
            if time.monotonic() > deadline:
                raise ToolFailedError(f"{tool} took more than {_LIMIT_S:.0f} s")
            ports |= machine.remote_ports(process.pid)
            time.sleep(_POLL_S if not ports else 4 * _POLL_S)
        return ports


def _checked(rate: Rate | None, records: int, output: str) -> Rate:
    fault = _FAULT.search(output)
    if rate is None or rate.records < records or fault:
        said = fault[0] if fault else output[-300:]
        raise ToolFailedError(f"{rate.records if rate else 0} of {records} records: {said.strip()}")
    return rate
