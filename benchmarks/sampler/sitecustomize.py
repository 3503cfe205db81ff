"""Samples the CPU time of the process that imports it: the interpreter does so at its start, by this file's name, where
PYTHONPATH holds this directory. The benchmarks start a node so with `--profile`; nothing else ever does.

SIGUSR1 starts sampling, SIGUSR2 ends it and writes what was found to the file that BENCH_SAMPLES names: one line for
each stack, outermost function first, `;` between functions, and how often it was seen.

The timer runs on CPU time (ITIMER_PROF), so waiting, and being kept from a core by others, counts for nothing; a
profiler that looks from outside cannot tell those from work. A signal is handled between two steps of Python: time
spent in the event loop or the kernel shows at the function that runs next, which for received bytes is `buffer`
or `buffer_updated`.
"""

import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

_INTERVAL_S = 0.001  # the kernel rounds it up to its own tick

_stacks: Counter[tuple[str, ...]] = Counter()


def _sample(_signal: int, frame: FrameType | None) -> None:
    stack: list[str] = []
    while frame is not None:
        code = frame.f_code
        stack.append(f"{code.co_qualname} ({Path(code.co_filename).name})")
        frame = frame.f_back
    _stacks[tuple(reversed(stack))] += 1


def _begin(_signal: int, _frame: FrameType | None) -> None:
    _stacks.clear()
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)


def _end(_signal: int, _frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    target = Path(os.environ["BENCH_SAMPLES"])
    draft = target.with_suffix(".draft")
    draft.write_text("".join(f"{';'.join(stack)} {count}\n" for stack, count in _stacks.items()))
    draft.replace(target)


if "BENCH_SAMPLES" in os.environ:
    signal.signal(signal.SIGPROF, _sample)
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _end)
