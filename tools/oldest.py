"""`make test-oldest`: an environment with the oldest versions that pyproject.toml allows, and the tests that go in it.

    python -m tools.oldest DIRECTORY [pytest's arguments]

Without a file or directory among the arguments it is the tests below that run.

What the product needs is taken from requirements/oldest.txt, everything else that tests need from requirements/dev.txt,
both with their hashes. The product itself is this checkout. DIRECTORY/environment is made anew.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
REQUIREMENTS: Final = ROOT / "requirements"
TESTS: Final = (
    *(f"tests/unit/{room}" for room in ("admin", "cli", "client", "cluster", "dedup", "exclusive", "forwarder")),
    *(
        f"tests/unit/{room}"
        for room in ("gateway", "metadata", "network", "policy", "protocol", "settings", "takeover")
    ),
    *(f"tests/unit/{room}" for room in ("telemetry", "v1", "writing")),
    "tests/unit/local/test_certificates.py",
    "tests/kafka/exclusive/test_ownership.py",
    "tests/kafka/passthrough/test_fetch.py",
    "tests/kafka/client/test_sending.py",
    "tests/http/test_admin_http.py",
    "tests/http/test_cli_node.py",
)
"""The product's own rooms, certificates, and nodes on real servers: ownership, reading, the client library, HTTP,
commands.
"""


def blocks(name: str) -> dict[str, str]:
    """Every pin of a requirements file with its hashes, by package; where systems differ, all of them together."""
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", (REQUIREMENTS / name).read_text(encoding="utf-8").strip()):
        package = re.split(r"==", block, maxsplit=1)[0]
        found[package] = found.get(package, "") + block + "\n"
    return found


def merged() -> str:
    """The requirements of the environment: the product's as old as they may be, those of tests as they are pinned."""
    oldest = blocks("oldest.txt")
    return "".join({**blocks("dev.txt"), **oldest}.values())


def chosen(arguments: Sequence[str]) -> list[str]:
    """What pytest is given: options alone are laid on all tests of here."""
    names_tests = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)
    return [*arguments] if names_tests else [*TESTS, *arguments]


def main(directory: Path, arguments: list[str]) -> int:
    """The exit code of the tests."""
    uv = Path(sys.executable).with_name("uv")
    environment, listed = directory / "environment", directory / "requirements.txt"
    directory.mkdir(parents=True, exist_ok=True)
    listed.write_text(merged(), encoding="utf-8")
    install = [uv, "pip", "install", "--quiet", "--python", environment, "--no-deps"]
    for command in (
        [uv, "venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, environment],
        [*install, "--require-hashes", "-r", listed],
        [*install, "--no-build-isolation", "-e", ROOT],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    pytest = [environment / "bin" / "python", "-m", "pytest", "-q", *chosen(arguments)]
    return subprocess.run(pytest, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
