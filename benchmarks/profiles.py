"""`--profile`: where a node's CPU time goes under each load, as a tree of its Python functions.

The samples come from inside the node (`benchmarks/sampler`); here they are asked for, added up and printed.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks import latency, machine
from benchmarks.measures import Target
from benchmarks.rounds import SIZE, SMALL_SIZE, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.arena import Arena
    from benchmarks.rounds import Work

_BLOCKS: Final = 400
_CALLS: Final = 100
_WRITTEN_S: Final = 10.0
_LEAST_SHARE: Final = 0.007


@dataclass(slots=True)
class Node:
    """A function where it was called from: samples in it and below, samples in it alone, what it called."""

    samples: int = 0
    own: int = 0
    callees: dict[str, Node] = field(default_factory=dict[str, "Node"])


def parse(collapsed: str) -> Node:
    """The tree of stacks, one per line: functions from the outermost on with `;` between them, then a count."""
    root = Node()
    for line in collapsed.splitlines():
        stack, _, count = line.rpartition(" ")
        node = root
        node.samples += int(count)
        for function in stack.split(";"):
            node = node.callees.setdefault(function, Node())
            node.samples += int(count)
        node.own += int(count)
    return root


def lines(tree: Node, cost: float, least_share: float = _LEAST_SHARE) -> Iterator[str]:
    """One line per function with its share of `cost`, deeper ones indented; those below `least_share` are left out.

    The outermost functions that have a single callee and no time of their own (the program's start) are skipped.
    """
    top = tree
    while len(top.callees) == 1 and not top.own:
        (top,) = top.callees.values()
    if tree.samples:
        yield from _lines(top, cost / tree.samples, least_share * tree.samples, 0)


def _lines(node: Node, each: float, least: float, depth: int) -> Iterator[str]:
    for name, callee in sorted(node.callees.items(), key=lambda item: -item[1].samples):
        if callee.samples >= least:
            yield f"{callee.samples * each:8.1f} {callee.own * each:8.1f}  {'  ' * depth}{name}"
            yield from _lines(callee, each, least, depth + 1)


def run(arena: Arena, work: Work) -> None:
    """Print a tree for each part and each target that is a node."""
    for target in work.targets:
        if not target.is_node:
            continue
        for part, size in (("produce", SIZE), ("small", SMALL_SIZE), ("consume", SIZE)):
            if part in work.parts:
                _throughput(arena, work, target, part, size)
        if "latency" in work.parts:
            _latency(arena, target)


def _throughput(arena: Arena, work: Work, target: Target, part: str, size: int) -> None:
    records = work.small_records if part == "small" else work.records
    topic, port = arena.topic(target, f"profile-{part}"), arena.port(target)
    arena.create(topic)
    if part == "consume":
        arena.load.produce(arena.port(Target.DIRECT), topic, records, size)
        seconds, tree = sampled(arena, lambda: arena.load.consume(port, topic, records))
    else:
        seconds, tree = sampled(arena, lambda: arena.load.produce(port, topic, records, size))
    arena.delete(topic)
    show(f"{target.label}: {part}", seconds / (records * size / 1e9) * 1000, "ms/GB", tree)


def _latency(arena: Arena, target: Target) -> None:
    topic = arena.topic(target, "profile-latency")
    arena.create(topic)
    targets = {target: (arena.port(target), topic)}
    seconds, tree = sampled(arena, lambda: latency.measure(targets, _BLOCKS, _CALLS, list_offsets=False))
    arena.delete(topic)
    show(f"{target.label}: one produce in flight", seconds / (_BLOCKS * _CALLS) * 1e6, "µs each", tree)


def sampled(arena: Arena, work: Callable[[], object]) -> tuple[float, Node]:
    """Do it; the CPU seconds that the node's processes took meanwhile, and the samples."""
    pid = arena.pid("node")
    arena.samples.unlink(missing_ok=True)
    before = machine.cpu_seconds(pid)
    os.kill(pid, signal.SIGUSR1)
    work()
    os.kill(pid, signal.SIGUSR2)
    seconds = machine.cpu_seconds(pid) - before
    deadline = time.monotonic() + _WRITTEN_S
    while not arena.samples.exists():
        arena.check_alive()
        if time.monotonic() > deadline:
            raise TimeoutError("the node wrote no samples")
        time.sleep(0.02)
    return seconds, parse(arena.samples.read_text())


def show(what: str, cost: float, unit: str, tree: Node) -> None:
    """Print a tree; `cost` is what all of it took."""
    say(f"{what}: {tree.samples} samples")
    print(f"\n## {what}: {cost:.1f} {unit}\n\n{'total':>8} {'own':>8}")
    for line in lines(tree, cost):
        print(line)
