"""What /proc tells of processes and of the machine: CPU time, memory, sockets, scheduler groups. Linux only.

Reads alone; processes that end meanwhile are simply no longer counted.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")
_MIB: Final = 1024 * 1024


def _fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat behind the program's name, which may hold anything (proc_pid_stat(5), from 3 on)."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def tree(root: int) -> set[int]:
    """`root` and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float:
    """CPU time of a process tree so far, user and system, in seconds; ended children count once waited for."""
    return sum(_own_cpu(pid) + _reaped_cpu(pid) for pid in tree(root))


def _own_cpu(pid: int) -> float:
    """To the nanosecond where the kernel keeps schedstat, else to the clock tick (10 ms)."""
    nanoseconds = 0
    with suppress(OSError, ValueError):
        for task in (_PROC / str(pid) / "task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    if nanoseconds:
        return nanoseconds / 1e9
    fields = _fields(pid)
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / _TICK


def _reaped_cpu(pid: int) -> float:
    fields = _fields(pid)
    return 0.0 if fields is None else (int(fields[13]) + int(fields[14])) / _TICK


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process tree in MiB: now, and the sum of each process's own peak."""

    resident: float
    peak: float


def memory(root: int) -> Memory:
    """What a process tree holds, and held at most, in memory (VmRSS and VmHWM of proc_pid_status(5))."""
    totals = {"VmRSS": 0, "VmHWM": 0}
    for pid in tree(root):
        with suppress(OSError):
            for name, kibibytes in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", _status(pid), re.MULTILINE):
                totals[name] += int(kibibytes) * 1024
    return Memory(totals["VmRSS"] / _MIB, totals["VmHWM"] / _MIB)


def _status(pid: int) -> str:
    return (_PROC / str(pid) / "status").read_text()


def remote_ports(pid: int) -> set[int]:
    """The remote ports of a process's TCP connections: shows to whom a client really talks."""
    return set(_connections(pid))


def connections_to(root: int, port: int) -> int:
    """How many connections a process tree has to a port."""
    return sum(_connections(pid)[port] for pid in tree(root))


def _connections(pid: int) -> Counter[int]:
    """How many connections a process has, by remote port."""
    sockets: set[str] = set()
    ports: Counter[int] = Counter()
    with suppress(OSError):
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            ports += ports_of((_PROC / str(pid) / "net" / table).read_text(), sockets)
    return ports


def ports_of(table: str, sockets: set[str]) -> Counter[int]:
    """How often each remote port is in the text of /proc/net/tcp with one of `sockets` (inodes); none for listeners."""
    found: Counter[int] = Counter()
    for line in table.splitlines()[1:]:
        columns = line.split()
        if len(columns) > 9 and columns[9] in sockets:
            found[int(columns[2].rpartition(":")[2], 16)] += 1
    del found[0]
    return found


def scheduler_group(pid: int) -> str | None:
    """The autogroup that shares the CPU as one (sched(7)); None where the kernel has none, tells none (a container
    started outside of every session), or they are switched off.

    Every session is one: a broker, a node and a client in three sessions get a third of the machine each, whatever
    they do, so that a client with a node in between would have more of it than one without.
    """
    try:
        if (_PROC / "sys/kernel/sched_autogroup_enabled").read_text().strip() != "1":
            return None
        return next(iter((_PROC / str(pid) / "autogroup").read_text().split()), None)
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Clock:
    """The machine's CPU seconds since its start: all of them, and those that were not idle (steal counts as busy)."""

    total: float
    busy: float

    @classmethod
    def now(cls) -> Clock:
        """Read it."""
        ticks = [int(value) / _TICK for value in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        return cls(sum(ticks), sum(ticks) - ticks[3] - ticks[4])

    def busy_share(self, since: Clock, own: float = 0.0) -> float:
        """Which share of the machine was busy since then with anything but `own` seconds of ours, from 0 to 1."""
        total = self.total - since.total
        return max(0.0, self.busy - since.busy - own) / total if total > 0 else 0.0


def description() -> dict[str, object]:
    """What the figures depend on and a reader wants to know."""
    cpus = (_PROC / "cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpus, re.MULTILINE)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "cpu": model[1] if model else platform.machine(),
        "memory_gb": round(pages / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
