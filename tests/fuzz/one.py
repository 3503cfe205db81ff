"""One target in a process of its own: under libFuzzer, which ends the process, or (`replay`) each input that is kept,
once.

`python -m tests.fuzz.one TARGET fuzz DIRECTORY [libFuzzer's options]` · `… TARGET replay [FILE…]` ·
`… TARGET seeds DIRECTORY`
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import tracemalloc
from pathlib import Path
from typing import Any, Final

from tests.fuzz import corpus

_MOST_BYTES: Final = 96 * 1024 * 1024
"""What one input may make a target hold at a time, beside what it held before."""


def _target(name: str) -> Any:
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def _fuzz(name: str, options: list[str]) -> None:
    atheris: Any = importlib.import_module("atheris")  # there is no wheel of it for every machine

    with atheris.instrument_imports(include=["sidecar"], enable_loader_override=False):
        target = _target(name)
    again = f"{sys.executable} -m tests.fuzz.one {name} fuzz"  # libFuzzer merges in processes that it starts so
    atheris.Setup([again, *options], target.play, enable_python_coverage=True)
    atheris.Fuzz()


def _replay(name: str, files: list[str]) -> None:
    target = _target(name)
    inputs = [Path(file).read_bytes() for file in files] or corpus.inputs_of(name)
    tracemalloc.start()
    for data in inputs:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        try:
            target.play(data)
        except BaseException:
            print(f"{name}: {data[:100]!r} of {len(data)} bytes", file=sys.stderr)
            raise
        held = tracemalloc.get_traced_memory()[1] - before
        assert held <= _MOST_BYTES, f"{name}: {data[:100]!r} takes {held} bytes"
    print(f"{name}: {len(inputs)} inputs")


def _seeds(name: str, directory: str) -> None:
    into = Path(directory)
    into.mkdir(parents=True, exist_ok=True)
    for data in (*_target(name).seeds(), *corpus.inputs_of(name)):
        (into / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


if __name__ == "__main__":
    _, _name, _what, *_rest = sys.argv
    {"fuzz": _fuzz, "replay": _replay}[_what](_name, _rest) if _what != "seeds" else _seeds(_name, _rest[0])
