"""Samples of stacks, added up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import benchmarks
from benchmarks import machine
from benchmarks.profiles import lines, parse
from tests.wait import wait_for

STACKS = """\
main (a.py);run (a.py);read (b.py) 30
main (a.py);run (a.py);read (b.py);walk (c.py) 50
main (a.py);run (a.py);write (b.py) 19
main (a.py);run (a.py);seldom (b.py) 1
"""


def test_a_function_counts_for_whoever_called_it() -> None:
    tree = parse(STACKS)
    read = tree.callees["main (a.py)"].callees["run (a.py)"].callees["read (b.py)"]
    assert (tree.samples, read.samples, read.own) == (100, 80, 30)


def test_the_tree_begins_where_it_branches_and_leaves_out_what_hardly_costs() -> None:
    assert [line.split() for line in lines(parse(STACKS), 200.0, 0.05)] == [
        ["160.0", "60.0", "read", "(b.py)"],
        ["100.0", "100.0", "walk", "(c.py)"],
        ["38.0", "38.0", "write", "(b.py)"],
    ]


def test_no_samples_are_no_lines() -> None:
    assert list(lines(parse(""), 10.0)) == []


def test_the_sampler_tells_what_a_process_works_at(tmp_path: Path) -> None:
    program = "import time\ndef work():\n    while True: sum(range(100))\nprint(flush=True)\nwork()"
    samples = tmp_path / "samples"
    sampler = str(Path(benchmarks.__file__).with_name("sampler"))
    environment = {**os.environ, "PYTHONPATH": sampler, "BENCH_SAMPLES": str(samples)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()

            def sampled() -> bool:
                process.send_signal(signal.SIGUSR1)
                before = machine.cpu_seconds(process.pid)
                wait_for(lambda: machine.cpu_seconds(process.pid) > before + 0.1, "a tenth of a second of work")
                process.send_signal(signal.SIGUSR2)
                wait_for(samples.exists, "samples")
                tree = parse(samples.read_text())
                samples.unlink()
                return tree.samples > 5 and "work (<string>)" in tree.callees["<module> (<string>)"].callees

            assert sampled()
            assert sampled(), "and again"
        finally:
            process.kill()
