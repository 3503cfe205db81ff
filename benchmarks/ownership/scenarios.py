"""The measurements with one writer at a time: each returns its samples in milliseconds.

The clock runs from what happens (the taker sends, a connection is closed, a signal is sent) to the acknowledgement.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.measures import Target
from benchmarks.ownership.measures import HEARTBEAT_MS
from benchmarks.ownership.writers import Writer, check_log
from sidecar.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.arena import Arena

_TAKER: Final = "a;mode=exclusive_with_fencing"
_WAITING: Final = "b;mode=wait_for_exclusive"
_WARM: Final = 3
_ROOT: Final = Path(__file__).resolve().parents[2]


def change_of_owner(arena: Arena, partitions: int, times: int, tell: Callable[[float], None]) -> list[float]:
    """A session of a new client deposes the owner; a few changes before them do not count."""
    topic = arena.topic(Target.EXCLUSIVE, f"change-{partitions}")
    arena.create_all([topic], partitions)
    port, found = arena.node_port(1), list[float]()
    owner = Writer(port, _TAKER, topic)
    owner.write()
    acknowledged = owner.acknowledged
    for turn in range(times + _WARM):
        taker = Writer(port, _TAKER, topic)
        began = time.perf_counter()
        took = (taker.write() - began) * 1000
        owner.check_refused(ErrorCode.PRODUCER_FENCED)
        owner.close()
        owner = taker
        acknowledged += taker.acknowledged
        if turn >= _WARM:
            found.append(took)
            tell(took)
    owner.close()
    check_log(arena.port(Target.DIRECT), topic, acknowledged)
    arena.delete(topic)
    return found


def close(arena: Arena, times: int, tell: Callable[[float], None]) -> list[float]:
    """The owner closes its connection; a session that waits for the topic gets it."""
    topic = arena.topic(Target.EXCLUSIVE, "close")
    arena.create_all([topic], 2)
    port, found = arena.node_port(1), list[float]()
    owner = Writer(port, _WAITING, topic)
    owner.write()
    acknowledged = owner.acknowledged
    for turn in range(times + _WARM):
        waiting = Writer(port, _WAITING, topic)
        waiting.check_refused(ErrorCode.REQUEST_TIMED_OUT)
        began = time.perf_counter()
        owner.close()
        took = (waiting.write() - began) * 1000
        owner = waiting
        acknowledged += waiting.acknowledged
        if turn >= _WARM:
            found.append(took)
            tell(took)
    owner.close()
    check_log(arena.port(Target.DIRECT), topic, acknowledged)
    arena.delete(topic)
    return found


def client_kill(arena: Arena, times: int, tell: Callable[[float], None]) -> list[float]:
    """The owner, a process that writes all the time, is killed; a session that waits for the topic gets it."""
    port, found = arena.node_port(1), list[float]()
    for turn in range(times):
        topic = arena.topic(Target.EXCLUSIVE, f"client-kill-{turn}")
        arena.create_all([topic], 2)
        with _owner(port, topic) as owner, Writer(port, _WAITING, topic) as waiting:
            waiting.check_refused(ErrorCode.REQUEST_TIMED_OUT)
            began = time.perf_counter()
            owner.kill()
            took = (waiting.write() - began) * 1000
        found.append(took)
        tell(took)
        arena.delete(topic)
    return found


@contextmanager
def _owner(port: int, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A process that owns the topic."""
    command = (sys.executable, "-m", "benchmarks.ownership.owner", str(port), topic)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env=os.environ) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("the process that was to own the topic ended")
            yield process
        finally:
            process.kill()


def node_kill(arena: Arena, times: int, tell: Callable[[float], None]) -> list[float]:
    """The node that serves the topic is killed; its owner's session goes on at the other one, then the other way.

    The kills are spread over the time between two heartbeats, each of which renews the node's lease.
    """
    topic = arena.topic(Target.EXCLUSIVE, "node-kill")
    arena.create_all([topic], 2)
    serving, other, found = 1, 2, list[float]()
    with Writer(arena.node_port(serving), "a", topic) as writer:
        writer.write()
        for turn in range(times):
            time.sleep(turn / times * HEARTBEAT_MS / 1000)
            killed = arena.kill_node(serving)
            writer.move(arena.node_port(other))
            took = (writer.write() - killed) * 1000
            arena.start_node(serving)
            arena.check_addresses()
            serving, other = other, serving
            found.append(took)
            tell(took)
        acknowledged = writer.acknowledged
    check_log(arena.port(Target.DIRECT), topic, acknowledged)
    arena.delete(topic)
    return found
