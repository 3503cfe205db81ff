"""The examples in the help of commands: every one is a line that the command takes, and most run on a real node."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sidecar.cli.options import examples_of
from sidecar.cli.root import cli
from tests.conftest import StartNode
from tests.http.paper_cli import run

ELSEWHERE = ("up", "demo", "serve", "pipeline", "bench", "doctor")
"""They run for long, on Spark, or on settings that are not here; tests of their own run them."""
NOTHING_THERE = {
    "producer release orders --partition": 4,  # nobody owns it
    "producer release": 2,  # which partition? one of the examples gives each an owner of its own
    "producer fence": 2,
    "dedup show orders billing": 3,  # it has not written
    "dedup forget": 3,
}
ORDER = ("topic create", "topic set", "shadow create", "", "shadow delete", "topic unset", "topic delete")
"""What has to be there comes first, and what takes it away in the end."""


def commands(group: click.Group = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(commands())


def words_of(example: str) -> list[str]:
    """The command's words, without what the shell does with its output."""
    found = re.fullmatch(r"source <\((.*)\)|(.*?) > \S+|(.*)", example)
    assert found is not None
    program, *words = shlex.split(next(each for each in found.groups() if each is not None))
    assert program == "sidecar"
    return words


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_examples_that_it_takes(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    command = COMMANDS[path]
    assert examples_of(command), "no example"
    for example in examples_of(command):
        words = words_of(example)
        inner = len(path.split())
        assert words[:inner] == path.split(), example
        command.make_context(path, words[inner:])  # raises UsageError


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_every_command_shows_its_examples_one_a_line(path: str):
    said = run(*path.split(), "--help")
    shown = " ".join(said.out.split())
    assert said.code == 0
    assert "Examples:" in shown
    assert all(" ".join(example.split()) in shown for example in examples_of(COMMANDS[path]))


def place(example: str) -> int:
    return next((index for index, each in enumerate(ORDER) if each and example.startswith(each)), ORDER.index(""))


@pytest.mark.usefixtures("nothing_set")
def test_examples_that_harm_nobody_do_what_they_say_on_a_real_node(
    node_process: StartNode, monkeypatch: pytest.MonkeyPatch
):
    node = node_process()
    monkeypatch.setenv("SIDECAR_ADMIN_URL", node.admin_url)
    examples = [
        shlex.join(words_of(example))
        for path, command in COMMANDS.items()
        if not path.startswith(ELSEWHERE)
        for example in examples_of(command)
        if "--watch" not in example and "/" not in example and "--config" not in example
    ]
    examples.sort(key=place)
    run("topic", "delete", "orders", "--yes")  # another test may have left it in this Kafka
    codes = {example: run(*shlex.split(example)).code for example in examples}
    wanted = {
        example: next((code for start, code in NOTHING_THERE.items() if example.startswith(start)), 0)
        for example in examples
    }
    # A second example of the same change finds it done already.
    wanted["topic create orders --partitions 6 --replication-factor 3 --access exclusive --dedup"] = 4
    wanted["shadow create orders-audit --source orders --allow User:audit"] = 4
    wanted["topic delete orders --force --yes"] = 3
    assert codes == wanted
    assert len(codes) > 25
