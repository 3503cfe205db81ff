"""What a node takes over of settings that were read again, and what becomes of a reading that fails."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.node import reload
from sidecar.node.reload import RereadError, merged, reread
from sidecar.settings import Address, Settings
from sidecar.settings import resolve as resolve_here
from sidecar.settings.loaded import RELOADABLE, LoadedSettings, full_name

OLD = resolve_here({})
NAMES = [each.name for each in fields(Settings) if each.name != "listener_settings"]


def other(name: str) -> object:
    """A value of the same kind that is another one."""
    value = getattr(OLD.settings, name)
    if isinstance(value, Address):
        return Address("10.0.0.1", 1)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return (Address("10.0.0.1", 1),) if isinstance(value, tuple) else f"{value}-other"


@given(st.sets(st.sampled_from(NAMES)))
def test_what_may_change_is_taken_and_all_else_is_named(changed: set[str]) -> None:
    new = LoadedSettings(
        replace(OLD.settings, **{name: other(name) for name in changed}), dict.fromkeys(changed, "a file")
    )
    found, taken, waiting = merged(OLD, new)
    assert set(taken) == {full_name(name) for name in changed & RELOADABLE}
    assert set(waiting) == {full_name(name) for name in changed - RELOADABLE}
    for name in NAMES:
        source = new if name in changed & RELOADABLE else OLD
        assert getattr(found.settings, name) == getattr(source.settings, name)
        assert found.origins.get(name, "default") == source.origins.get(name, "default")


def test_a_value_that_is_taken_out_of_the_file_is_the_default_again() -> None:
    was = replace(OLD, settings=replace(OLD.settings, queue_limit=7), origins={"queue_limit": "sidecar.toml"})
    found, taken, _ = merged(was, OLD)
    assert taken == ["SIDECAR_QUEUE_LIMIT"]
    assert (found.settings.queue_limit, found.origins) == (OLD.settings.queue_limit, {})


async def test_a_worker_is_told_its_own_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("queue_limit = 3\n")
    told = replace(OLD, config=str(file), flags={"node_id": "7"})
    found = await reread(resolve_here({"node_id": "7"}, file).for_worker(2))
    assert (found.settings.node_id, found.settings.queue_limit) == (9, 3)
    assert (await reread(told)).settings.node_id == 7


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('no memory')", "ended with 1: no memory"),
        ('print(\'{"settings": "{}"}\')', "this version cannot read the settings"),
        ("import sys; sys.stdin.read(); print('no JSON')", "this version cannot read the settings"),
        ("import time; time.sleep(60)", "could not be read within 0 s"),
    ],
)
async def test_a_reading_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, said: str
) -> None:
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(reload, "_PROGRAM", tmp_path / "program.py")
    if "sleep" in program:
        monkeypatch.setattr(reload, "_PATIENCE_S", 0.1)
    with pytest.raises(RereadError, match=said):
        await reread(OLD)


async def test_without_a_process_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(RereadError, match="the process that reads the settings cannot start"):
        await reread(OLD)
