"""What the forge and editors read of this repository: the checks of a pull request, its forms, `.editorconfig`."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.docs.pages import ROOT, tracked

FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
SCHEMAS = {
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.renovate": [ROOT / "renovate.json"],
}
_TABS = ("Makefile", ".go", ".go.txt", "go.mod")
_NO_TEXT = (".png", ".jar")


def test_a_push_and_a_pull_request_run_what_a_developer_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    on = workflow[True]  # YAML 1.1 reads the key `on` as true
    assert on == {"push": {"branches": ["main"]}, "pull_request": None}
    assert workflow["permissions"] == {"contents": "read"}
    [job] = workflow["jobs"].values()
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_files_of_the_forge_follow_their_schemas(schema: str) -> None:
    files = [str(path) for path in SCHEMAS[schema]]
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_forms_and_the_request_name_commands_and_pages_that_exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*FORMS, ROOT / ".github" / "pull_request_template.md")]
    named = set(re.findall(r"\b[A-Z_]+\.md\b", "\n".join(texts)))
    assert named
    assert named <= tracked()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make ([a-z-]+)", "\n".join(texts)))
    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def wrong(name: str, data: bytes) -> list[str]:
    """What of `.editorconfig` a file does not keep."""
    text = data.decode("utf-8")
    problems = ["no newline at its end"] if text and not text.endswith("\n") else []
    problems += ["a carriage return"] if "\r" in text else []
    problems += ["blanks at the end of a line"] if re.search(r"[ \t]$", text, re.MULTILINE) else []
    indented = not name.endswith((*_TABS, ".md", ".sum")) and re.search(r"^\t", text, re.MULTILINE)
    return problems + (["a tab"] if indented else [])


def test_every_file_is_as_editors_are_told_to_write_it() -> None:
    config = configparser.ConfigParser()
    config.read_string("[top]\n" + (ROOT / ".editorconfig").read_text(encoding="utf-8"))
    assert config["*"]["insert_final_newline"] == config["*"]["trim_trailing_whitespace"] == "true"
    assert config["*"]["end_of_line"] == "lf"
    names = [name for name in tracked() if not name.endswith(_NO_TEXT) and not name.startswith("tests/fuzz/")]
    problems = {name: wrong(name, (ROOT / name).read_bytes()) for name in names}
    assert {name: found for name, found in problems.items() if found} == {}


def test_a_file_that_an_editor_would_change_is_found() -> None:
    assert wrong("a.py", b"\tx \r\ny") == ["no newline at its end", "a carriage return", "a tab"]
    assert wrong("a.py", b"x \n") == ["blanks at the end of a line"]
    assert wrong("Makefile", b"a:\n\tb\n") == []


def test_an_owner_of_code_is_named() -> None:
    lines = Path(ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules
    assert all(re.fullmatch(r"\S+( @\S+)+", rule) for rule in rules)
