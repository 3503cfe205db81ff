"""Rules for every file of the repository that no linter knows."""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
FILES = [ROOT / name for name in LISTED.split("\0") if name and (ROOT / name).is_file()]
OURS = [path for path in FILES if path.relative_to(ROOT).parts[0] in {"sidecar", "metadata"}]
MODULES = [path for path in OURS if path.suffix == ".py" and "_pb2" not in path.name]

# Spelled apart, so that this file does not hold what it forbids.
MACHINE = re.compile("/(?:" + "|".join(["wo" + "rk", "ro" + "ot"]) + ")/")
REGISTRY = re.compile(
    r"https?://[^\s\"')]*(?:"
    + "|".join(["ma" + "ven", "py" + "pi", "python" + "hosted", "npm" + "js", "cra" + r"tes\.io"])
    + ")"
)
UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|XX" + r"X)\b")
BEGINS_WITH_TEXT = re.compile(r'(?:\s|#.*\n)*r?"""\s*[^\s"]')


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""  # a picture or an archive


def finds(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """`file:line: text` of each line the pattern is in."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_repository_has_files() -> None:
    assert len(MODULES) > 50
    assert ROOT / "pyproject.toml" in FILES


def test_no_file_knows_a_machine() -> None:
    image = ROOT / "Dockerfile"  # the paths inside an image are its own
    assert not finds(MACHINE, [path for path in FILES if path != image])


def test_no_file_knows_an_address_of_a_package_registry() -> None:
    assert not finds(REGISTRY, FILES)


def test_nothing_is_left_unfinished() -> None:
    assert not finds(UNFINISHED, MODULES)


def test_a_module_says_what_it_is_for() -> None:
    unclear = [path for path in MODULES if not BEGINS_WITH_TEXT.match(text_of(path))]
    assert [str(path.relative_to(ROOT)) for path in unclear if ast.parse(text_of(path)).body] == []


def test_every_package_says_that_it_is_typed() -> None:
    assert {(ROOT / package / "py.typed").is_file() for package in ("sidecar", "metadata")} == {True}
