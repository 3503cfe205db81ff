"""How little a command loads: what runs every few seconds, or at every Tab, pays for nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.http.paper_cli import Running, run, unused_url

pytestmark = pytest.mark.usefixtures("nothing_set")
REPOSITORY = Path(__file__).parents[2]

HEAVY = {
    "aiohttp", "aiokafka", "asyncio", "cramjam", "google.protobuf", "prometheus_client", "pydantic", "pyspark",
    "redis", "structlog", "uvloop", "yaml", "zstandard",
}  # fmt: skip
LIGHT = ("--version", "--help", "healthcheck", "healthcheck --live", "topic list", "producer fence orders", "nonsense")


def loaded(url: str, *arguments: str, **variables: str) -> tuple[set[str], int]:
    """The modules that a command has imported at its end, and its exit code."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\n'.join(['', *sys.modules]), file=sys.stderr))\n"
        f"from sidecar.cli import main\nsys.argv = ['sidecar', *{arguments!r}]\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SIDECAR_ADMIN_URL": url, **variables},
        capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60,
    )  # fmt: skip
    return set(done.stderr.splitlines()), done.returncode


@pytest.mark.parametrize("command", LIGHT)
def test_a_light_command_loads_nothing_heavy(running: Running, command: str):
    modules, code = loaded(running.url, *command.split())
    assert code == (2 if command == "nonsense" else 0)
    assert "sidecar.cli.root" in modules
    assert modules & HEAVY == set()
    assert ("rich.console" in modules) is (command in {"--help", "nonsense"})


def test_a_tab_loads_nothing_heavy(running: Running):
    for words in ("sidecar ", "sidecar topic show o"):
        position = str(len(words.split(" ")) - 1)
        modules, code = loaded(
            running.url, COMP_WORDS=words, COMP_CWORD=position, _SIDECAR_COMPLETE="bash_complete"
        )  # fmt: skip
        assert code == 0
        assert modules & HEAVY == set()


@pytest.mark.parametrize("command", ["", "pipeline"])
def test_a_list_of_commands_imports_none_of_them(command: str):
    modules, _ = loaded(unused_url(), *command.split(), "--help")
    assert {each for each in modules if each.startswith("sidecar.cli.")} <= {
        "sidecar.cli.root", "sidecar.cli.group", "sidecar.cli.options", "sidecar.cli.output",
        "sidecar.cli.folding", "sidecar.cli.pipeline",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("topc", "Did you mean 'topic'?"),
        ("topic sho", "Did you mean 'show'?"),
        ("pipeline audt", "Did you mean 'audit'?"),
        ("topic set orders --acess exclusive", "Did you mean '--access'?"),
        ("topic set orders --access exklusive", "'exclusive'"),
    ],
)
def test_what_is_misspelt_is_told_the_nearest(words: str, told: str):
    said = run(*words.split())
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_what_is_near_to_nothing_is_told_without_a_guess():
    said = run("xyzzy")
    assert (said.code, "Did you mean" in said.err, "'xyzzy'" in said.err) == (2, False, True)
