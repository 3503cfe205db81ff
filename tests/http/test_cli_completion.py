"""What is completed; and that the shells themselves run the script that `sidecar completion` prints."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from socket import create_server

import pytest
from click.shell_completion import ShellComplete

from sidecar.cli.root import cli
from sidecar.node.port import ProducerIds, Shadow
from sidecar.shadow.cursors import Cursor
from tests.http.paper_cli import Running, unused_url
from tests.programs import program

pytestmark = pytest.mark.usefixtures("nothing_set")

Complete = Callable[..., list[str]]

BASH = """
source <(sidecar completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_sidecar_completion sidecar
printf '%s\\n' "${COMPREPLY[@]}"
"""
# What zsh's own menu would be given: completing needs a terminal there, the script does not.
ZSH = """
compdef() { :; }
_describe() { print -l -- "${(@P)${@[(r)completions_with_descriptions]}}"; }
compadd() { print -l -- "${completions[@]}"; }
source <(sidecar completion zsh)
words=("$@"); CURRENT=$#
_sidecar_completion
"""
FISH = """
sidecar completion fish | source
complete --do-complete (string join ' ' -- $argv)
"""
# fish completes what stands on the line, bash and zsh have it in words
SHELLS = {
    "bash": ("bash", ["--norc", "--noprofile", "-c", BASH, "bash"]),
    "zsh": ("zsh", ["-f", "-c", ZSH, "zsh"]),
    "fish": ("fish", ["--no-config", "-c", FISH]),
}


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> Complete:
    """The names that are offered for the last word."""

    def ask(url: str, *words: str) -> list[str]:
        monkeypatch.setenv("SIDECAR_ADMIN_URL", url)
        offered = ShellComplete(cli, {}, "sidecar", "_SIDECAR_COMPLETE").get_completions(list(words[:-1]), words[-1])
        return [item.value for item in offered]

    return ask


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """The names that a shell offers for the last word."""
    package, arguments = SHELLS[request.param]
    shell = program(request.param, package)
    (tmp_path / "sidecar").write_text(f'#!/bin/sh\nexec {sys.executable} -m sidecar "$@"\n')
    (tmp_path / "sidecar").chmod(0o755)

    def ask(url: str, *words: str) -> list[str]:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "SIDECAR_ADMIN_URL": url,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        done = subprocess.run(
            [shell, *arguments, "sidecar", *words],
            env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
        )  # fmt: skip
        assert done.stderr == ""
        return [line.partition("\t")[0].partition(":")[0].strip() for line in done.stdout.splitlines() if line.strip()]

    return ask


def test_commands_options_and_values_are_completed_without_a_node(complete: Complete):
    nowhere = unused_url()
    assert complete(nowhere, "to") == ["topic"]
    assert complete(nowhere, "topic", "un") == ["unset"]
    assert sorted(complete(nowhere, "pipeline", "")) == ["audit", "compact", "export", "rebuild", "report"]
    assert complete(nowhere, "producer", "fence", "--if") == ["--if-generation"]
    assert complete(nowhere, "topic", "set", "orders", "--access", "excl") == ["exclusive", "exclusive_with_fencing"]
    assert complete(nowhere, "serve", "--lease") == ["--lease-ms"]


def test_names_are_completed_as_the_node_knows_them(complete: Complete, running: Running):
    running.node.ids["orders"] = {"billing": ProducerIds("billing", 8, {0: 8}, {0: 70}, {0: 0}, False)}
    running.node.shadows.views["orders-audit"] = Shadow("orders-audit", "orders", ("User:*",), 0, is_made=True)
    for command in (("topic", "show"), ("producer", "fence"), ("producer", "list", "plain"), ("shadow", "list")):
        assert complete(running.url, *command, "o") == ["orders"]
    for command in (("shadow", "show"), ("shadow", "delete"), ("cursor", "list")):
        assert complete(running.url, *command, "") == ["orders-audit"]
    assert complete(running.url, "dedup", "show", "orders", "") == ["billing"]
    running.node.shadows.of_groups["orders-audit"] = [Cursor("audit", "EMPTY", 0, {})]
    assert complete(running.url, "cursor", "reset", "orders-audit", "--group", "a") == ["audit"]
    assert complete(running.url, "topic", "show", "x") == []


def test_names_that_a_shell_would_take_for_more_than_a_name_are_not_offered(shell: Complete, running: Running):
    """Clients choose them, and what is completed stands on the line as it is: Enter would run it."""
    hostile = ("b; touch it", "b$(touch it)", "b`touch it`", "b\nrm", "b&rm", "b*", "b'ing", "b ing", "-b", "~b")
    names = (*hostile, "billing", "b/i@1,2+%=x.y_z-")
    running.node.ids["orders"] = {name: ProducerIds(name, 8, {0: 8}, {0: 70}, {0: 0}, False) for name in names}
    found = shell(running.url, "dedup", "show", "orders", "")
    assert sorted(each.partition(",")[0] for each in found) == ["b/i@1", "billing"], "fish ends a name at a comma"


def test_a_node_that_is_away_costs_no_word(complete: Complete):
    assert complete(unused_url(), "topic", "show", "o") == []
    assert complete("nonsense", "topic", "show", "o") == []


def test_a_node_that_is_silent_is_not_waited_for_long(complete: Complete):
    """The test's own limit is what a wait without one would meet."""
    with create_server(("127.0.0.1", 0)) as server:
        assert complete(f"http://127.0.0.1:{server.getsockname()[1]}", "topic", "show", "o") == []


def test_a_server_that_answers_something_else_costs_no_word(complete: Complete):
    with create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[17]")

        thread = threading.Thread(target=answer)
        thread.start()
        assert complete(f"http://127.0.0.1:{server.getsockname()[1]}", "topic", "show", "o") == []
        thread.join(10)
