"""What commands say where something is missing, empty or not asked for in a table; against a node on paper."""

import json
from dataclasses import replace

import pytest
import yaml

from sidecar.node.port import AccessMode, Policy, Refusal, Shadow, Topic, UnavailableError
from sidecar.shadow.cursors import Cursor, Position
from tests.http.paper_cli import ORDERS, Running, run, unused_url

pytestmark = pytest.mark.usefixtures("nothing_set")


@pytest.mark.parametrize("json_asked", ["-o json", "-ojson", "--output json", "--output=json", "--json"])
def test_an_error_is_json_where_json_is_asked_for(running: Running, json_asked: str):
    for words in (f"{json_asked} topic show nope", f"topic show nope {json_asked}"):
        said = run("--admin-url", running.url, *words.split())
        assert (said.code, said.out) == (3, "")
        found = json.loads(said.err)
        assert found.keys() == {"error_code", "message", "exit_code", "remedy"}
        assert (found["error_code"], found["exit_code"], found["remedy"]) == (404, 3, "sidecar topic list")
        assert "there is no topic nope" in found["message"]


def test_an_error_is_yaml_where_yaml_is_asked_for(running: Running):
    said = run("--admin-url", running.url, "topic", "show", "nope", "-o", "yaml")
    assert yaml.safe_load(said.err)["error_code"] == 404


@pytest.mark.parametrize(
    ("command", "code"),
    [("topic shw", 2), ("topic show", 2), ("topic show a --nope", 2), ("topic set orders", 2), ("status", 5)],
)
def test_errors_of_no_node_are_json_too(command: str, code: int):
    said = run("--json", "--admin-url", unused_url(), *command.split())
    found = json.loads(said.err)
    assert (said.code, found["exit_code"], found["error_code"], said.out) == (code, code, None, "")
    assert found["message"]


def test_json_is_the_same_as_output_json(running: Running):
    asked = ("--admin-url", running.url, "topic", "list")
    assert json.loads(run(*asked, "--json").out) == json.loads(run(*asked, "-o", "json").out)


def test_what_stands_behind_two_dashes_asks_for_nothing(running: Running):
    said = run("--admin-url", running.url, "topic", "show", "--", "--json")
    assert (said.code, said.err.startswith("error: ")) == (3, True)


@pytest.mark.parametrize(
    "command", ["topic show", "topic unset", "topic delete", "shadow show", "cursor list", "dedup show"]
)
def test_an_empty_name_is_called_empty(running: Running, command: str):
    said = run("--admin-url", running.url, *command.split(), "")
    assert (said.code, "a name is empty here" in said.err) == (2, True)


def test_an_empty_name_gets_no_policy(running: Running):
    said = run("--admin-url", running.url, "topic", "set", "", "--access", "exclusive")
    assert (said.code, "a name is empty here" in said.err, running.node.calls) == (2, True, [])


def test_a_policy_of_a_topic_that_is_not_there_is_told_so(running: Running):
    running.node.known["late"] = Topic("late", 0)
    said = run("--admin-url", running.url, "topic", "set", "late", "--access", "exclusive")
    assert (said.code, "there is no topic late yet: the policy waits for it" in said.err) == (0, True)
    assert "`sidecar topic create late`" in said.err
    for there in ("plain", "pay*"):
        assert run("--admin-url", running.url, "topic", "set", there, "--access", "exclusive").err == ""


def test_a_policy_that_was_there_before_the_topic_is_named_when_it_is_made(running: Running):
    running.node.known["again"] = Topic("again", 0, Policy(AccessMode.EXCLUSIVE, True))
    said = run("--admin-url", running.url, "topic", "create", "again")
    assert said.code == 0
    assert "again had a policy before it was there, which holds now (access_mode: exclusive" in said.err
    assert "`sidecar topic unset again`" in said.err
    assert run("--admin-url", running.url, "topic", "create", "fresh", "--access", "exclusive").err == ""


def test_a_missing_topic_is_not_looked_for_with_the_command_that_did_not_find_it(running: Running):
    said = run("--admin-url", running.url, "dedup", "show", "nope", "billing")
    assert (said.code, said.err.splitlines()[-1]) == (3, "  -> sidecar topic list")
    running.node.known["orders"] = replace(ORDERS, policy=Policy(AccessMode.EXCLUSIVE, True))
    running.node.ids["orders"] = {}
    of_a_name = run("--admin-url", running.url, "dedup", "show", "orders", "nobody")
    assert of_a_name.err.splitlines()[-1] == "  -> sidecar dedup show orders"


def test_a_group_without_a_cursor_is_said_to_get_one(running: Running):
    running.node.known["orders"] = ORDERS
    running.node.shadows.views["audit"] = Shadow("audit", "orders", ("User:*",), 0, is_made=True)
    reset = ("--admin-url", running.url, "cursor", "reset", "audit", "--to", "earliest", "--group")
    assert "the group newcomer had no cursor in audit; it has one now" in run(*reset, "newcomer").err
    running.node.shadows.of_groups["audit"] = [Cursor("known", "Empty", 0, {0: Position(5, 7, 2)})]
    assert run(*reset, "known").err == ""


def refused(number: int, topic: str) -> Refusal:
    return Refusal(f"late{number}", "10.0.0.9", topic, 44, "billing (pid:7) owns it", 3, 0, 1_700_000_000_000)


def test_the_status_says_in_a_line_what_was_refused_lately(running: Running):
    asked = ("--admin-url", running.url, "status")
    assert "refusals" not in run(*asked).out
    running.node.refused = [refused(1, "orders"), refused(2, "")]
    (line,) = [line for line in run(*asked).out.splitlines() if line.startswith("refusals")]
    newest = "late1 of orders, 44 POLICY_VIOLATION, 2023-11-14T22:13:20.000Z"
    assert line.split(maxsplit=1)[1] == f"2 (6 times), the newest: {newest}; all: sidecar refusals"
    assert [each["client_id"] for each in json.loads(run(*asked, "--json").out)["refusals"]] == ["late1", "late2"]


def test_a_topic_is_shown_with_what_was_refused_of_it(running: Running):
    asked = ("--admin-url", running.url, "topic", "show", "orders")
    assert "REFUSED" not in run(*asked).out
    running.node.refused = [refused(1, "other"), *(refused(number, "orders") for number in range(2, 9))]
    shown = run(*asked).out
    assert [f"late{number}" in shown for number in range(1, 9)] == [False, *[True] * 5, False, False]
    assert shown.splitlines()[-1] == "2 more: sidecar refusals orders"
    assert len(json.loads(run(*asked, "--json").out)["refusals"]) == 7


def test_a_node_that_cannot_say_what_it_refused_is_shown_all_the_same(
    running: Running, monkeypatch: pytest.MonkeyPatch
):
    def not_yet(_topic: str | None = None) -> list[Refusal]:
        raise UnavailableError("not yet")

    monkeypatch.setattr(running.node, "refusals", not_yet)
    for command in ("status", "topic show orders"):
        said = run("--admin-url", running.url, *command.split(), "--json")
        assert (said.code, json.loads(said.out)["refusals"]) == (0, [])
