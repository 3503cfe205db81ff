"""docs/use/leadership.md: processes elect a leader with unmodified clients, by the programs of examples/clients."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Unique
from tests.logs import read_messages
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.docs.test_blocks import run
from tests.unit.docs.pages import page
from tests.wait import wait_for

from .recipes import PATIENCE, CannotBuildError, Program, Recipes

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]
WAIT, FENCING = "wait_for_exclusive", "exclusive_with_fencing"
LANGUAGES = ("java", "go")
each_language = pytest.mark.parametrize("language", LANGUAGES)
Start = Callable[..., Program]


@pytest.fixture
def leader(unique: Unique, rest: Rest, node: NodeProcess, services: Services) -> Iterator[str]:
    """The topic whose owner leads, made by the command of the page."""
    topic = unique("leader")
    [command] = [block.text for block in page("docs/use/leadership.md").blocks if block.language == "sh"]
    words = shlex.split(command.replace("scheduler", topic))
    done = run([sys.executable, "-m", *words], node, services)
    assert done.returncode == 0, done.stderr
    yield topic
    rest.call("DELETE", f"/v1/topics/{topic}?force=true")


@pytest.fixture
def start(recipes: Recipes, node: NodeProcess, leader: str, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as running:

        def candidate(language: str, name: str, mode: str = WAIT) -> Program:
            try:
                command = recipes.command(f"{language}-leader")
            except CannotBuildError as missing:
                if os.environ.get("CI"):
                    raise
                pytest.skip(str(missing))
            return running.enter_context(Program([*command, node.bootstrap, leader, name, mode], tmp_path / name))

        yield candidate


def token(program: Program) -> int:
    """What it leads by; waits until it does."""
    word, _, number = program.heard().partition(" ")
    assert word == "leads"
    return int(number)


def waiting(rest: Rest, topic: str, name: str) -> None:
    wait_for(lambda: name in [each["name"] for each in rest.topic(topic)["waiting"]], f"{name} to wait")


def counted(services: Services, topic: str) -> list[str]:
    """Terms and decisions that count, by the page's rule: a record bears the token of the newest term before it."""
    newest, found = "", list[str]()
    for message in read_messages(services.kafka_bootstrap, topic):
        value = (message.value() or b"").decode()
        if not message.key():
            newest = str(message.offset())
            found.append(f"leads {value}")
        elif value and (message.key() or b"").decode() == newest:
            found.append(f"did {value}")
    return found


@pytest.mark.parametrize(("first", "second"), [("java", "java"), ("go", "go"), ("java", "go"), ("go", "java")])
def test_the_next_in_line_leads_with_a_higher_token_when_the_leader_is_killed(
    first: str, second: str, start: Start, rest: Rest, leader: str, services: Services
) -> None:
    one = start(first, "one")
    old = token(one)
    two = start(second, "two")
    waiting(rest, leader, "two")
    one.say("a")
    assert one.heard() == "did a"
    assert two.quiet()
    one.process.kill()
    assert token(two) > old
    two.say("b")
    assert two.heard() == "did b"
    assert counted(services, leader) == ["leads one", "did a", "leads two", "did b"]


@each_language
def test_a_leader_that_ends_hands_over_and_those_who_wait_lead_in_their_order(
    language: str, start: Start, rest: Rest, leader: str
) -> None:
    names = ("one", "two", "three")
    programs = [start(language, "one")]
    tokens = [token(programs[0])]
    for name in names[1:]:
        programs.append(start(language, name))
        waiting(rest, leader, name)
    for program, after in itertools.pairwise(programs):
        assert program.close() == 0
        tokens.append(token(after))
    assert tokens == sorted(set(tokens))


@each_language
def test_a_leader_that_was_frozen_acts_on_nothing_more_once_another_leads(
    language: str, start: Start, leader: str, services: Services
) -> None:
    one = start(language, "one")
    token(one)
    one.process.send_signal(signal.SIGSTOP)
    one.say("late")
    two = start(language, "two", FENCING)
    token(two)
    two.say("b")
    assert two.heard() == "did b"
    one.process.send_signal(signal.SIGCONT)
    assert one.heard() == "lost"
    assert one.process.wait(PATIENCE) == 4
    assert counted(services, leader) == ["leads one", "leads two", "did b"]


@each_language
def test_a_leader_that_another_one_followed_for_a_while_begins_a_new_term(
    language: str, start: Start, rest: Rest, leader: str, services: Services
) -> None:
    one = start(language, "one")
    first = token(one)
    two = start(language, "two")
    waiting(rest, leader, "two")
    one.process.send_signal(signal.SIGSTOP)
    one.say("late")
    assert rest.call("POST", f"/v1/topics/{leader}/release")[0] == 200  # as where its connection was lost
    second = token(two)
    two.say("b")
    assert two.heard() == "did b"
    one.process.send_signal(signal.SIGCONT)
    waiting(rest, leader, "one")
    assert one.quiet()
    assert two.close() == 0
    assert token(one) > second > first
    one.say("c")
    acted = [one.heard()]
    while acted[-1] != "did c":
        acted.append(one.heard())
    wanted = ["leads one", "leads two", "did b", "leads one", *acted]  # "late" where it was decided in the new term
    assert counted(services, leader) == wanted
