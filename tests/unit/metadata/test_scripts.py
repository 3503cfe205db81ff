"""The scripts as files: each says what it takes and answers, and each is loaded."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

from metadata import scripts

DIRECTORY = files("metadata") / "lua"
TEXTS = {entry.name.removesuffix(".lua"): entry.read_text(encoding="utf-8") for entry in DIRECTORY.iterdir()}
COMMON = TEXTS.pop("common")
LOADED = [value for value in vars(scripts).values() if isinstance(value, scripts.Script)]


def test_every_file_is_a_script_and_every_script_a_file():
    assert sorted(script.name for script in LOADED) == sorted(TEXTS)


@pytest.mark.parametrize("script", LOADED, ids=lambda script: script.name)
def test_a_script_is_what_lies_in_its_file_behind_the_common_part(script: scripts.Script):
    assert script.text.decode() == COMMON + TEXTS[script.name]
    assert script.sha.decode() == hashlib.sha1(script.text).hexdigest()


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_script_opens_by_saying_its_keys_arguments_and_reply_and_why_it_may_run_twice(name: str):
    lines = TEXTS[name].splitlines()
    opening = "\n".join(lines[: next(number for number, line in enumerate(lines) if not line.startswith("--"))])
    assert "-- KEYS  1 " in opening
    assert "-- Reply " in opening
    assert "-- Idempotent" in opening or "Reads only." in opening
    assert ("ARGV[" in TEXTS[name] or "#ARGV" in TEXTS[name]) == ("-- ARGV  " in opening)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_script_names_no_key_of_its_own(name: str):
    """Keys come as KEYS: what else a cluster or a proxy could not route."""
    assert "sidecar:" not in TEXTS[name] + COMMON
