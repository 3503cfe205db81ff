"""All inputs that are kept, once each: those that reach every line that fuzzing reached, and those that were finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.__main__ import PLANS
from tests.fuzz.targets import NAMES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", NAMES)
def test_no_input_that_is_kept_makes_a_target_raise_or_take_memory(name: str) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "tests.fuzz.one", name, "replay"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert done.stdout == f"{name}: {len(corpus.inputs_of(name))} inputs\n"


def test_every_target_has_a_plan_and_inputs_to_begin_with() -> None:
    assert set(PLANS) == set(NAMES)
    assert all(corpus.read(corpus.path_of("corpus", name)) for name in NAMES)
    assert sum(plan.share for plan in PLANS.values()) == 1_000


def test_inputs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "corpus" / "some.txt"
    assert corpus.write(path, [b"longer", b"\0\xff", b"", b"longer"]) == 3
    path.write_text(f"# what it is\n{path.read_text()}AAE=  # and why\n")
    assert corpus.read(path) == [b"\0\xff", b"longer", b"\0\1"]
