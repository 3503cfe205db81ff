"""What cannot be taken back: on a terminal somebody is asked, and told who is hit; a script says conditions instead."""

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from sidecar.admin.asked import PAGE_SIZE
from sidecar.cli import confirm
from sidecar.cli.pipeline.compact import compact
from sidecar.cli.root import cli
from sidecar.gateway.owners import OwnerAnswer
from sidecar.node.port import AccessMode, Policy, ProducerIds, Scope, Shadow
from tests.http.paper_cli import ORDERS, OWNER, Running, Said, run

pytestmark = pytest.mark.usefixtures("nothing_set")

NAMED = "billing (pid:7 at 10.0.0.1:5), generation 4"
DESTROYS = {
    "producer fence orders": NAMED,
    "producer release orders": NAMED,
    "topic unset orders": NAMED,
    "topic delete orders --force": NAMED,
    "dedup forget orders billing": "0: 8",
    "shadow delete orders-audit": "orders stays",
    "cursor reset orders-audit --group audit --to earliest": "No group audit has a cursor in orders-audit. Make one",
}


@pytest.fixture
def full(running: Running) -> Running:
    """A node that has everything that can be destroyed."""
    running.node.known["orders"] = replace(ORDERS, policy=Policy(AccessMode.EXCLUSIVE, True))
    running.node.ids["orders"] = {"billing": ProducerIds("billing", 8, {0: 8}, {0: 70}, {0: 0}, False)}
    running.node.shadows.views["orders-audit"] = Shadow("orders-audit", "orders", ("User:*",), 0, is_made=True)
    return running


def at_a_terminal(running: Running, monkeypatch: pytest.MonkeyPatch, command: str, typed: str) -> Said:
    monkeypatch.setattr(confirm, "is_asked_by_a_person", lambda: True)
    words = ["--admin-url", running.url, *command.split()]
    done = CliRunner().invoke(cli, words, prog_name="sidecar", input=typed)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return Said(done.exit_code, done.stdout, done.stderr)


def state(running: Running) -> str:
    """All that a command could have changed."""
    node = running.node
    return repr((node.known, node.ids, node.shadows.views, [call for call in node.calls if call[0] == "reset_cursor"]))


@pytest.mark.parametrize(("command", "told"), DESTROYS.items())
def test_a_person_is_asked_with_what_is_hit_and_no_is_no(
    full: Running, monkeypatch: pytest.MonkeyPatch, command: str, told: str
):
    said = at_a_terminal(full, monkeypatch, command, "n\n")
    assert (said.code, said.out) == (1, "")
    assert told in said.err
    assert "[y/N]" in said.err
    after_no = state(full)
    done = at_a_terminal(full, monkeypatch, command, "y\n")
    assert done.code == 0, done.err
    assert state(full) != after_no


@pytest.mark.parametrize("command", DESTROYS)
def test_yes_and_scripts_are_not_asked(full: Running, monkeypatch: pytest.MonkeyPatch, command: str):
    said = run("--admin-url", full.url, *command.split())  # standard input is no terminal here
    assert said.code == 0, said.err
    assert "[y/N]" not in said.err


@pytest.mark.parametrize("command", DESTROYS)
def test_yes_is_an_answer_beforehand(full: Running, monkeypatch: pytest.MonkeyPatch, command: str):
    said = at_a_terminal(full, monkeypatch, f"{command} --yes", "")
    assert said.code == 0, said.err
    assert "[y/N]" not in said.err


OTHER = OwnerAnswer("other", "pid:9", AccessMode.EXCLUSIVE, 0, "10.0.0.2:6", 11)
BY_PARTITION = replace(
    ORDERS, policy=Policy(AccessMode.EXCLUSIVE, scope=Scope.PARTITION), owner=None, owners={0: OWNER, 1: OTHER}
)


def test_the_question_about_a_partition_names_its_owner_alone(running: Running, monkeypatch: pytest.MonkeyPatch):
    running.node.known["orders"] = BY_PARTITION
    said = at_a_terminal(running, monkeypatch, "producer fence orders --partition 1", "n\n")
    assert "other (pid:9 at 10.0.0.2:6), generation 11" in said.err
    assert "billing" not in said.err


@pytest.mark.parametrize("owners", [{}, {0: OWNER}, {0: OWNER, 1: OTHER}])
@pytest.mark.parametrize("what", ["fence", "release"])
def test_without_a_partition_nothing_is_asked_where_each_has_its_owner_and_the_node_says_so(
    running: Running, monkeypatch: pytest.MonkeyPatch, what: str, owners: dict[int, OwnerAnswer]
):
    running.node.known["orders"] = replace(BY_PARTITION, owners=owners)
    said = at_a_terminal(running, monkeypatch, f"producer {what} orders", "y\n")
    assert (said.code, "say which one" in said.err, "[y/N]" in said.err) == (2, True, False)


def test_the_question_about_a_topic_names_the_owners_of_all_partitions(
    running: Running, monkeypatch: pytest.MonkeyPatch
):
    running.node.known["orders"] = BY_PARTITION
    said = at_a_terminal(running, monkeypatch, "topic delete orders", "n\n")
    assert "partition 0: billing (pid:7 at 10.0.0.1:5), generation 4; partition 1: other (" in said.err


def test_where_nobody_owns_the_topic_nothing_is_asked_and_the_node_says_so(
    running: Running, monkeypatch: pytest.MonkeyPatch
):
    said = at_a_terminal(running, monkeypatch, "producer fence plain", "")
    assert (said.code, "nobody owns plain" in said.err, "[y/N]" in said.err) == (4, True, False)


def test_shadows_behind_the_first_page_are_told_too(running: Running, monkeypatch: pytest.MonkeyPatch):
    names = [f"orders-{number:04}" for number in range(PAGE_SIZE + 2)]
    running.node.shadows.views = {name: Shadow(name, "orders", ("User:*",), 0, is_made=True) for name in names}
    said = at_a_terminal(running, monkeypatch, "topic delete orders --force", "n\n")
    assert f"and its shadows {', '.join(names)} with" in said.err


@pytest.mark.parametrize(("typed", "code", "is_there"), [("y\r", 0, False), ("n\r", 1, True)])
def test_a_real_terminal_is_one(full: Running, typed: str, code: int, is_there: bool):
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "--admin-url", full.url, "topic", "delete", "orders", "--force"],
            stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        os.write(ours, typed.encode())
        _, err = process.communicate(timeout=60)
    finally:
        os.close(theirs)
        os.close(ours)
    assert (process.returncode, "orders" in full.node.known) == (code, is_there), err
    assert "All records of orders are lost, and its shadows orders-audit" in err


def test_a_table_that_would_be_replaced_is_asked_about_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(confirm, "is_asked_by_a_person", lambda: True)
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    words = ["orders", "--to", str(tmp_path / "lake"), "--bootstrap", "127.0.0.1:9"]
    said = CliRunner().invoke(compact, words, input="n\n")
    assert (said.exit_code, f"There is a table at {tmp_path / 'lake'}" in said.stderr) == (1, True)
    new = CliRunner().invoke(compact, ["orders", "--to", str(tmp_path / "new"), "--bootstrap", "127.0.0.1:x"])
    assert "There is a table" not in new.stderr


Heard = list[tuple[str, str | None]]


@contextmanager
def a_node_where_the_generation_is(current: int, heard: Heard) -> Iterator[str]:
    """The part of REST that `--if-generation` is about."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            owner = {"name": "billing", "session": "pid:7", "client": "10.0.0.1:5", "since": "x", "mode": "exclusive"}
            self.answer(200, {"topic": "orders", "generation": current, "owner": owner})

        def do_POST(self) -> None:
            heard.append((self.path, self.headers["If-Match"]))
            if self.headers["If-Match"] in {None, f'"{current}"'}:
                self.answer(200, {"owner": None})
            else:
                self.answer(412, {"error_code": 412, "message": f"the generation is {current}"})

        def answer(self, status: int, body: dict[str, object]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("what", ["fence", "release"])
def test_a_script_ends_the_owner_it_has_seen_and_nobody_who_came_since(what: str):
    heard: Heard = []
    with a_node_where_the_generation_is(8, heard) as url:
        late = run("--admin-url", url, "producer", what, "orders", "--if-generation", "7")
        right = run("--admin-url", url, "producer", what, "orders", "--if-generation", "8")
        plain = run("--admin-url", url, "producer", what, "orders")
    assert (late.code, late.out, "the generation is 8" in late.err) == (4, "", True)
    assert (right.code, plain.code) == (0, 0)
    path = f"/v1/topics/orders/{what}"
    assert heard == [(path, '"7"'), (path, '"8"'), (path, None)]


def test_a_person_ends_the_owner_that_the_question_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(confirm, "is_asked_by_a_person", lambda: True)
    heard: Heard = []
    with a_node_where_the_generation_is(8, heard) as url:
        CliRunner().invoke(cli, ["--admin-url", url, "producer", "fence", "orders"], input="y\n")
    assert heard == [("/v1/topics/orders/fence", '"8"')]
