"""What is read from /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import machine
from benchmarks.machine import Clock

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:2384 01 00000000:00000000 00:00000000 00000000     0        0 200 1 0 20 4 30 10 -1
   2: 0100007F:9C41 0100007F:2385 01 00000000:00000000 00:00000000 00000000     0        0 300 1 0 20 4 30 10 -1
"""


def test_the_remote_ports_of_ones_own_sockets_alone() -> None:
    assert set(machine.ports_of(TABLE, {"100", "200"})) == {0x2384}
    assert not machine.ports_of(TABLE, set())


def test_a_connection_of_this_process_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert port in machine.remote_ports(os.getpid())


def test_work_done_by_a_child_counts_for_its_parents_tree() -> None:
    before = machine.cpu_seconds(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in machine.tree(os.getpid())
        assert machine.cpu_seconds(os.getpid()) - before >= 0.2
        assert machine.cpu_seconds(child.pid) >= 0.2
        child.communicate(b"\n")


def test_memory_at_its_peak_is_never_less_than_now() -> None:
    found = machine.memory(os.getpid())
    assert 1 < found.resident <= found.peak


def test_busy_with_others_is_what_is_left_after_idle_time_and_our_own() -> None:
    earlier, later = Clock(total=100.0, busy=40.0), Clock(total=110.0, busy=48.0)
    assert later.busy_share(earlier) == 0.8
    assert later.busy_share(earlier, own=6.0) == 0.2
    assert later.busy_share(earlier, own=9.0) == 0.0
    assert earlier.busy_share(earlier) == 0.0


def test_the_machines_clock_goes_forward() -> None:
    first = Clock.now()
    deadline = time.monotonic() + 5
    while Clock.now().total == first.total:
        assert time.monotonic() < deadline
    assert Clock.now().total > first.total
    assert Clock.now().busy >= first.busy - 0.1, "idle time that the kernel puts right (proc(5)) is never much"


def test_children_of_this_process_share_its_scheduler_group() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert machine.scheduler_group(child.pid) == machine.scheduler_group(os.getpid())
        child.communicate(b"\n")


def test_a_process_of_which_the_kernel_tells_no_scheduler_group_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/sched_autogroup_enabled").write_text("1\n")
    (tmp_path / "7").mkdir()
    (tmp_path / "7/autogroup").write_text("")
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    assert machine.scheduler_group(7) is None
    (tmp_path / "7/autogroup").write_text("/autogroup-12 nice 0\n")
    assert machine.scheduler_group(7) == "/autogroup-12"
