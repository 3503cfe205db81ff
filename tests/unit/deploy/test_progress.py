"""What compose.yaml's clients share: a part that stands still ends the program, and its health check says so before."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.deploy.files import ROOT
from tests.wait import wait_until


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("progress", ROOT / "deploy" / "compose" / "progress.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("PROGRESS_FILE", str(tmp_path / "progress"))
    return module


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_part_that_stands_still_ends_the_program_with_1_and_is_named(
    progress: ModuleType, capsys: pytest.CaptureFixture[str]
):
    parts = progress.Progress(["quick", "slow"], still_s=1.0)
    parts.moved("quick")
    parts._last["slow"] -= 2.0

    assert await progress.run([for_ever()], parts) == 1
    assert capsys.readouterr().err == "nothing happens any more: slow\n"


async def test_a_program_is_not_healthy_before_every_part_has_moved(progress: ModuleType):
    parts = progress.Progress(["quick", "slow"])

    async def begin() -> None:
        parts.moved("quick")
        await asyncio.sleep(0)
        assert progress.main() == 1
        parts.moved("slow")
        await wait_until(lambda: progress.main() == 0, "a fresh file")

    assert await progress.run([begin()], parts) == 0


async def test_a_part_that_comes_to_its_end_ends_the_program_with_0(progress: ModuleType):
    async def short() -> None:
        await asyncio.sleep(0)

    assert await progress.run([for_ever(), short()], progress.Progress(["all"])) == 0


async def test_what_a_part_raises_is_raised(progress: ModuleType):
    async def broken() -> None:
        raise LookupError("a defect")

    with pytest.raises(LookupError, match="a defect"):
        await progress.run([broken()], progress.Progress(["all"]))


async def test_a_part_that_fails_as_it_may_is_begun_again(progress: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "AGAIN_S", 0)
    begun: list[int] = []

    async def part() -> None:
        begun.append(len(begun))
        raise OSError("refused") if len(begun) < 3 else LookupError

    with pytest.raises(LookupError):
        await progress.again("part", part, (OSError,))
    assert begun == [0, 1, 2]


def test_a_program_is_healthy_while_its_file_is_fresh(progress: ModuleType, tmp_path: Path):
    path = tmp_path / "progress"
    assert progress.main() == 1
    path.touch()
    assert progress.main() == 0
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert progress.main() == 1
