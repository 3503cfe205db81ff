"""What `python -m tests.sim.behaviour` says if it cannot compare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sim.behaviour import __main__ as command


def test_a_revision_that_this_simulator_cannot_play_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its process ends as it imports something that it has not: here, the simulator."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()

    @contextmanager
    def tree(revision: str, *, whole: bool) -> Iterator[Path]:
        yield tmp_path

    monkeypatch.setattr(command, "_tree_of", tree)
    monkeypatch.setattr(sys, "argv", ["behaviour", "compare", "HEAD", "--seeds", "0"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "cannot play the product of HEAD" in said
    assert "No module named" in said
    assert "--whole" in said
