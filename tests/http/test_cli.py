"""Commands against the HTTP side of a node on paper: what they print, where, and with which exit code."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from sidecar.cli import confirm
from sidecar.cli.checks.finding import Finding
from sidecar.cli.checks.node import NodeView
from sidecar.cli.root import cli
from sidecar.gateway.sequence_ids import State
from sidecar.node.port import (
    AccessMode,
    Check,
    ClientFacts,
    Deduplicated,
    NewTopic,
    Policy,
    ProducerIds,
    Refusal,
    Shadow,
    UnavailableError,
)
from tests.http.paper_cli import ORDERS, Running, Said, run, unused_url
from tests.wait import wait_for

pytestmark = pytest.mark.usefixtures("nothing_set")


def test_topics_are_listed_as_table_json_and_yaml(running: Running):
    table = run("--admin-url", running.url, "topic", "list")
    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()] == ["TOPIC", "orders", "plain"]
    assert "billing (pid:7)" in table.out
    as_json = json.loads(run("topic", "list", "-o", "json", "--admin-url", running.url).out)
    as_yaml = yaml.safe_load(run("-o", "yaml", "topic", "list", "--admin-url", running.url).out)
    assert as_json == as_yaml
    assert [topic["topic"] for topic in as_json] == ["orders", "plain"]
    governed = json.loads(run("topic", "list", "--governed", "-o", "json", "--admin-url", running.url).out)
    assert [topic["topic"] for topic in governed] == ["orders"]


def test_a_list_of_topics_says_which_are_shadows(running: Running):
    head, *_ = run("--admin-url", running.url, "topic", "list").out.splitlines()
    assert "SHADOW OF" not in head
    running.node.known["orders"] = replace(ORDERS, shadows=["plain"])
    head, orders, plain = run("--admin-url", running.url, "topic", "list").out.splitlines()
    assert head.endswith("SHADOW OF")
    assert (orders.split()[-1], plain.split()[-1]) == ("-", "orders")


def test_a_topic_is_shown_with_its_owner_and_who_waits(running: Running):
    said = run("--admin-url", running.url, "topic", "show", "orders")
    for part in ("exclusive", "billing (pid:7)", "2023-11-14T22:13:20.000Z", "10.0.0.1:5", "next"):
        assert part in said.out
    assert said.err == ""


def test_a_policy_is_set_and_unset(running: Running):
    said = run("--admin-url", running.url, "topic", "set", "plain", "--access", "exclusive", "--no-dedup", "-o", "json")
    assert (said.code, json.loads(said.out)["policy"]) == (0, {"access_mode": "exclusive", "deduplication": False})
    assert running.node.calls[-1] == ("merge_policy", "plain", Policy(AccessMode.EXCLUSIVE, False))
    run("--admin-url", running.url, "topic", "set", "plain", "--log-append-time", "--dedup", "--exclusive-reader")
    assert running.node.calls[-1] == ("merge_policy", "plain", Policy(None, True, True, None, True))
    gone = run("--admin-url", running.url, "topic", "unset", "plain")
    assert (gone.code, gone.out) == (0, "")
    assert run("--admin-url", running.url, "topic", "unset", "plain").code == 3


def test_a_topic_is_created_with_settings_and_a_policy(running: Running):
    options = "--partitions 6 --replication-factor 3 --config retention.ms=60000 --config cleanup.policy=compact"
    create = ("--admin-url", running.url, "topic", "create", "new")
    made = run(*create, *options.split(), "--access", "exclusive", "--dedup", "-o", "json")
    assert (made.code, json.loads(made.out)["partitions"]) == (0, 6)
    configs = {"retention.ms": "60000", "cleanup.policy": "compact"}
    policy = Policy(access_mode=AccessMode.EXCLUSIVE, deduplication=True)
    assert running.node.calls[-1] == ("create_topic", NewTopic("new", 6, 3, configs), policy)
    again = run(*create)
    assert (again.code, "there is a topic new already" in again.err) == (4, True)
    assert running.node.calls[-1] == ("create_topic", NewTopic("new"), None)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--config retention.ms", "write KEY=VALUE"),
        ("--config =1", "write KEY=VALUE"),
        ("--config a=1 --config a=2", "--config a is given twice"),
        ("--partitions 0", "x>=1"),
    ],
)
def test_a_topic_with_options_that_make_no_sense_is_not_created(running: Running, wrong: str, said: str):
    refused = run("--admin-url", running.url, "topic", "create", "new", *wrong.split())
    assert (refused.code, running.node.calls) == (2, [])
    assert said in refused.err


def test_what_was_refused_is_shown_with_its_reason(running: Running):
    assert "nothing was refused lately" in run("--admin-url", running.url, "refusals").err
    running.node.refused = [
        Refusal("late;mode=exclusive", "10.0.0.9", "orders", 44, "billing (pid:7) owns it", 12, 0, 1_700_000_000_000),
        Refusal("typo;mode=exclusiv", "10.0.0.8", "", 42, "client.id: mode 'exclusiv' is none of …", 3, 0, 0),
    ]
    shown = run("--admin-url", running.url, "refusals").out
    for part in ("2023-11-14T22:13:20.000Z", "12", "late;mode=exclusive", "10.0.0.9", "44 POLICY_VIOLATION", "(pid:7)"):
        assert part in shown
    of_one = json.loads(run("--admin-url", running.url, "refusals", "orders", "-o", "json").out)
    assert [each["count"] for each in of_one] == [12, 3]
    of_another = json.loads(run("--admin-url", running.url, "refusals", "other", "-o", "json").out)
    assert [each["count"] for each in of_another] == [3]
    assert run("--admin-url", running.url, "refusals", "--watch", "-o", "json").code == 2


def test_a_prefix_is_set_like_a_topic(running: Running):
    said = run("--admin-url", running.url, "topic", "set", "payments.*", "--access", "shared", "-o", "json")
    assert json.loads(said.out)["topic"] == "payments.*"


IDS = ProducerIds("billing/eu", -1, {0: 8, 2: 7}, {0: 70, 2: None}, {0: 1_700_000_000_000, 2: 0}, False)


def test_sequence_ids_are_shown_by_name_and_of_one_name(running: Running):
    running.node.ids["orders"] = {"billing/eu": IDS}
    url = ("--admin-url", running.url)
    named = run(*url, "dedup", "show", "orders")
    assert [line.split()[0] for line in named.out.splitlines()] == ["PRODUCER", "billing/eu"]
    assert "0: 8, 2: 7" in named.out
    listed = json.loads(run(*url, "dedup", "show", "orders", "-o", "json").out)
    assert listed == [{"name": "billing/eu", "last_sequence_id": -1, "last_sequence_ids": {"0": 8, "2": 7}}]
    one = run(*url, "dedup", "show", "orders", "billing/eu")
    for part in ("billing/eu", "-1", "2023-11-14T22:13:20.000Z", "70"):
        assert part in one.out
    as_json = json.loads(run(*url, "dedup", "show", "orders", "billing/eu", "-o", "json").out)
    as_yaml = yaml.safe_load(run(*url, "dedup", "show", "orders", "billing/eu", "-o", "yaml").out)
    assert as_json == as_yaml
    assert (as_json["in_use"], as_json["offsets"]) == (False, {"0": 70, "2": None})


def test_a_name_is_forgotten_once_and_never_while_it_is_in_use(running: Running):
    running.node.ids["orders"] = {"billing/eu": IDS, "busy": replace(IDS, name="busy", in_use=True)}
    url = ("--admin-url", running.url)
    said = run(*url, "dedup", "forget", "orders", "billing/eu")
    assert (said.code, said.out) == (0, "")
    assert "'billing/eu' are forgotten" in said.err
    assert run(*url, "dedup", "forget", "orders", "billing/eu").code == 3
    assert run(*url, "dedup", "forget", "orders", "busy").code == 4
    assert run(*url, "dedup", "show", "orders", "billing/eu").code == 3
    assert run(*url, "dedup", "show", "plain").code == 4
    assert run(*url, "dedup", "show", "nope", "billing/eu").code == 3
    assert run("--admin-url", unused_url(), "dedup", "show", "orders").code == 5


@pytest.mark.parametrize(
    ("arguments", "typed", "code", "forgotten"),
    [((), "n\n", 1, False), ((), "y\n", 0, True), ((), "", 1, False), (("--yes",), "", 0, True)],
)
def test_on_a_terminal_forgetting_is_asked_for(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    typed: str,
    code: int,
    forgotten: bool,
):
    running.node.ids["orders"] = {"billing": replace(IDS, name="billing")}
    monkeypatch.setattr(confirm, "is_asked_by_a_person", lambda: True)
    command = ["--admin-url", running.url, "dedup", "forget", "orders", "billing", *arguments]
    said = CliRunner().invoke(cli, command, prog_name="sidecar", input=typed)
    assert (said.exit_code, said.stdout) == (code, "")
    assert ("Forget its sequence ids?" in said.stderr) is not bool(arguments)
    assert ("billing" not in running.node.ids["orders"]) is forgotten


@pytest.mark.parametrize(("typed", "code", "is_deleted"), [("y\n", 0, True), ("n\n", 1, False)])
def test_deleting_a_topic_asks_a_person_and_names_its_shadows(
    running: Running, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, is_deleted: bool
):
    monkeypatch.setattr(confirm, "is_asked_by_a_person", lambda: True)
    running.node.shadows.views["orders-audit"] = Shadow("orders-audit", "orders", ("User:*",), 0, is_made=True)
    command = ["--admin-url", running.url, "topic", "delete", "orders", "--force"]
    said = CliRunner().invoke(cli, command, prog_name="sidecar", input=typed)
    assert (said.exit_code, said.stdout) == (code, "")
    assert "All records of orders are lost, and its shadows orders-audit with the cursors" in said.stderr
    assert "Its owner is billing (pid:7 at 10.0.0.1:5), generation 4." in said.stderr
    assert ("orders" not in running.node.known) is is_deleted
    assert running.node.shadows.views.keys() == (set() if is_deleted else {"orders-audit"})


def test_a_topic_says_what_is_known_of_its_sequence_ids(running: Running):
    reading = replace(ORDERS, deduplication=State.READING, deduplication_detail="7 of 9 offsets read")
    running.node.known["orders"] = replace(reading, producers=[IDS])
    said = run("--admin-url", running.url, "topic", "show", "orders")
    assert "reading; 7 of 9 offsets read" in said.out
    assert "billing/eu" in said.out
    assert "sequence ids" not in run("--admin-url", running.url, "topic", "show", "plain").out


def test_the_status_counts_topics_by_what_is_known_of_their_sequence_ids(running: Running):
    url = ("--admin-url", running.url)
    assert "sequence ids" not in run(*url, "status").out
    running.node.deduplicated = Deduplicated(ready=4, lost=1)
    assert "4 ready, 1 lost (topics served here)" in run(*url, "status").out


def test_the_doctor_finds_topics_whose_sequence_ids_are_lost(running: Running, monkeypatch: pytest.MonkeyPatch):
    running.node.deduplicated = Deduplicated(ready=4, lost=1)
    for check in ("check_kafka", "check_redis", "check_advertised"):
        monkeypatch.setattr(f"sidecar.cli.doctor.{check}", nothing_found)
    said = run("--admin-url", running.url, "doctor", "-o", "json")
    (found,) = [each for each in json.loads(said.out)["checks"] if each["name"] == "sequence ids"]
    detail = "lost in partitions of 1 topic: these accept no batches"
    assert (said.code, found["level"], found["detail"]) == (10, "fail", detail)
    assert "sidecar topic show" in found["remedy"]


def test_the_doctor_warns_before_names_are_forgotten(running: Running, monkeypatch: pytest.MonkeyPatch):
    running.node.deduplicated = Deduplicated(ready=4, crowded=1)
    for check in ("check_kafka", "check_redis", "check_advertised"):
        monkeypatch.setattr(f"sidecar.cli.doctor.{check}", nothing_found)
    said = run("--admin-url", running.url, "doctor", "-o", "json")
    (found,) = [each for each in json.loads(said.out)["checks"] if each["name"] == "producer names"]
    assert found["level"] == "warn"
    assert "SIDECAR_PRODUCER_NAMES_LIMIT" in found["remedy"]


def test_the_doctor_says_what_a_node_waits_for_that_can_tell_no_topics_yet(
    running: Running, monkeypatch: pytest.MonkeyPatch
):
    running.node.readiness = [Check("kafka", False, "no broker answers")]

    async def not_yet(*, governed: bool) -> list[str]:
        raise UnavailableError("Kafka does not answer")

    monkeypatch.setattr(running.node, "topic_names", not_yet)
    for check in ("check_kafka", "check_redis", "check_advertised"):
        monkeypatch.setattr(f"sidecar.cli.doctor.{check}", nothing_found)
    said = run("--admin-url", running.url, "doctor", "-o", "json")
    (found,) = [each for each in json.loads(said.out)["checks"] if each["name"] == "node"]
    assert (said.code, found["level"], found["detail"]) == (10, "fail", "kafka: no broker answers")


@pytest.mark.parametrize("command", ["check-config", "serve", "doctor"])
def test_deduplication_of_everything_is_warned_of(running: Running, monkeypatch: pytest.MonkeyPatch, command: str):
    monkeypatch.setenv("SIDECAR_DEDUPLICATION", "true")
    if command == "serve":
        monkeypatch.setattr("sidecar.cli.serve.become_node", lambda settings, workers: None)
    for check in ("check_kafka", "check_redis", "check_advertised"):
        monkeypatch.setattr(f"sidecar.cli.doctor.{check}", nothing_found)
    said = run("--admin-url", running.url, command) if command == "doctor" else run(command)
    assert said.code == 0
    assert "SIDECAR_DEDUPLICATION" in said.out + said.err
    assert "transactions are refused" in said.out + said.err


def test_owners_and_those_who_wait_are_listed(running: Running):
    rows = json.loads(run("--admin-url", running.url, "producer", "list", "-o", "json").out)
    assert [(row["topic"], row["role"], row["name"], row["generation"]) for row in rows] == [
        ("orders", "owner", "billing", 4),
        ("orders", "waiting", "next", None),
    ]
    assert run("--admin-url", running.url, "producer", "list", "plain", "-o", "json").out.strip() == "[]"


@pytest.mark.parametrize("what", ["fence", "release"])
def test_an_owner_ends_and_without_one_it_is_a_conflict(running: Running, what: str):
    said = run("--admin-url", running.url, "producer", what, "orders")
    assert said.code == 0
    assert "nobody" in said.out
    again = run("--admin-url", running.url, "producer", what, "orders")
    assert (again.code, again.out) == (4, "")
    assert "nobody owns orders" in again.err
    assert run("--admin-url", running.url, "producer", what, "nope").code == 3
    run("--admin-url", running.url, "producer", what, "orders", "--partition", "2")
    assert running.node.calls[-1] == (what, "orders", 2)


def test_exit_codes_tell_failures_apart(running: Running, monkeypatch: pytest.MonkeyPatch):
    url = ("--admin-url", running.url)
    assert run(*url, "topic", "show", "nope").code == 3
    assert run(*url, "topic", "set", "__x", "--access", "shared").code == 2
    assert run(*url, "topic", "set", "orders").code == 2
    assert run(*url, "topic", "set", "orders", "--access", "private").code == 2
    assert run(*url, "nonsense").code == 2
    assert run("--admin-url", unused_url(), "status").code == 5
    assert run("--admin-url", "nonsense", "status").code == 2
    running.node.down = "Redis is away"
    unavailable = run(*url, "topic", "show", "orders")
    assert (unavailable.code, "Redis is away" in unavailable.err) == (5, True)
    running.node.down, running.node.bug = "", RuntimeError("x")
    assert run(*url, "topic", "show", "orders").code == 1
    running.node.bug = None


def test_a_refusal_for_want_of_the_token_says_how_to_give_it(running: Running, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_ADMIN_TOKEN", "wrong")
    other = run("--admin-url", running.url, "producer", "fence", "orders")
    monkeypatch.delenv("SIDECAR_ADMIN_TOKEN")
    none = run("--admin-url", running.url, "producer", "fence", "orders")
    for refused, told in (other, "another token"), (none, "without its token"):
        assert (refused.code, told in refused.err, "SIDECAR_ADMIN_TOKEN" in refused.err) == (1, True, True)
        assert "Bearer" not in refused.err


@pytest.mark.parametrize("to", ["bogus", "-1", "", "2026-13-01T00:00:00Z"])
def test_where_a_cursor_can_be_moved_is_named_before_anything_is_asked(to: str):
    said = run("--admin-url", unused_url(), "cursor", "reset", "audit", "--group", "g", "--to", to)
    assert (said.code, "earliest, latest, an offset, or a time" in said.err) == (2, True)


def test_a_token_that_no_header_can_carry_is_told_without_being_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_ADMIN_TOKEN", "hunter2\n")
    said = run("--admin-url", unused_url(), "status")
    assert (said.code, "SIDECAR_ADMIN_TOKEN" in said.err, "hunter2" in said.err) == (2, True, False)


@pytest.mark.parametrize("path", ["", "/p@th"])
def test_a_password_in_the_address_of_a_node_is_not_shown(running: Running, path: str):
    for url, code in (unused_url(), 5), (running.url, 3), ("http://h:x", 2):
        said = run("--admin-url", url.replace("//", "//somebody:hunter2@") + path, "topic", "show", "nope")
        assert (said.code, "hunter2" in said.err) == (code, False)


@pytest.mark.parametrize("url", ["http://[::1", "http://a b:1", f"http://{'ä' * 70}:1", "http://127.0.0.1:1/ä"])
def test_an_address_that_can_be_none_is_told_as_such(url: str):
    said = run("--admin-url", url, "status")
    assert (said.code, "http://host:port" in said.err) == (2, True)


@pytest.mark.parametrize("command", ["topic show", "shadow show", "cursor list", "dedup show orders"])
def test_a_name_that_is_not_utf_8_is_told_as_such(command: str):
    said = run("--admin-url", unused_url(), *command.split(), "a\udcff")
    assert (said.code, "UTF-8" in said.err) == (2, True)


def test_the_status_tells_a_node_that_is_not_ready_by_its_exit_code(running: Running):
    said = run("--admin-url", running.url, "status")
    assert said.code == 0
    assert "orders" in said.out
    running.node.readiness = [Check("redis", False, "connection refused")]
    unready = run("--admin-url", running.url, "status", "-o", "json")
    assert unready.code == 10
    assert json.loads(unready.out)["ready"] is False
    text = run("--admin-url", running.url, "status").out
    assert "not ready" in text
    assert "connection refused" in text


def test_the_status_shows_a_node_whose_kafka_hangs_without_its_topics(
    running: Running, monkeypatch: pytest.MonkeyPatch
):
    answer = threading.Event()

    async def hang(*, governed: bool) -> list[str]:
        await asyncio.to_thread(answer.wait)
        return []

    monkeypatch.setattr(running.node, "topic_names", hang)
    monkeypatch.setattr("sidecar.cli.status._TIMEOUT", 0.2)
    try:
        said = run("--admin-url", running.url, "status")
        assert said.code == 5
        assert "node 1 of cluster default" in " ".join(said.out.split())
        assert "topics" not in said.out
        assert "error: the topics cannot be listed" in said.err
        running.node.readiness = [Check("kafka", False, "silent")]
        said = run("--admin-url", running.url, "status", "-o", "json")
        assert (said.code, json.loads(said.out)["topics"], json.loads(said.out)["ready"]) == (10, None, False)
        assert "does not answer within" in said.err
    finally:
        answer.set()


CLIENT = ClientFacts(
    1, "billing;mode=exclusive", "billing", AccessMode.EXCLUSIVE, ("apache-kafka-java", "4.1.1"),
    "User:alice", "OUTSIDE", "10.0.0.1:5",
    1_700_000_000_000, 7, 100, 200, 1,
)  # fmt: skip


EVIL = "\x1b[2Jevil"


def test_the_status_shows_who_is_connected_where_that_is_asked_for(running: Running):
    running.node.connected = [CLIENT, replace(CLIENT, client_id=EVIL, software=(None, None), principal=EVIL)]
    url = ("--admin-url", running.url)
    assert "billing;mode=exclusive" not in run(*url, "status").out
    said = run(*url, "status", "--clients")
    shown = r"billing;mode=exclusive +User:alice +OUTSIDE +apache-kafka-java 4\.1\.1 +2023-11-14T22:13:20\.000Z"
    assert re.search(shown, said.out)
    assert "\x1b[2J" not in said.out
    found = json.loads(run(*url, "status", "--clients", "-o", "json").out)
    assert [each["requests"] for each in found["clients"]] == [7, 7]
    assert "topics" in found
    running.node.connected = []
    assert "no clients" in run(*url, "status", "--clients").out


def test_the_status_is_watched_until_ctrl_c(running: Running, tmp_path: Path):
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "--admin-url", running.url, "status", "--watch"],
            stdout=out, stderr=subprocess.PIPE, cwd=REPOSITORY,
        )  # fmt: skip
    try:

        def screens() -> list[str]:
            return (tmp_path / "out").read_text().split(running.url)[1:]

        wait_for(screens, "a screen", 60)
        running.node.down = "Redis is away\x1b[2J"
        wait_for(lambda: r"Redis is away\x1b[2J" in screens()[-1], "what is wrong, and no word to the terminal")
        running.node.down = ""
        wait_for(lambda: len(screens()) > 2 and "billing (pid:7)" in screens()[-1], "the node as before")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, b"")
    finally:
        process.kill()
        process.wait()
    assert "billing (pid:7)" in screens()[0]
    assert run("--admin-url", running.url, "status", "--watch", "-o", "json").code == 2


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("topic show nope", 3, "sidecar topic list"),
        ("topic unset plain", 3, "sidecar topic list --governed"),
        ("producer fence plain", 4, "sidecar producer list plain"),
        ("dedup show plain", 4, "sidecar topic show plain"),
        ("dedup show orders nobody", 3, "sidecar dedup show orders"),
        ("shadow show nope", 3, "sidecar shadow list"),
        ("cursor list nope", 3, "sidecar shadow list"),
        ("topic delete audit", 4, "sidecar shadow delete audit"),
        ("topic delete audit --force", 4, "sidecar shadow delete audit"),
        ("topic delete orders", 4, "sidecar shadow list orders"),
    ],
)
def test_a_refusal_says_with_what_to_look_further(running: Running, command: str, code: int, told: str):
    running.node.known["orders"] = replace(ORDERS, policy=Policy(AccessMode.EXCLUSIVE, True))
    running.node.ids["orders"] = {}
    running.node.shadows.views["audit"] = Shadow("audit", "orders", ("User:*",), 0, is_made=True)
    said = run("--admin-url", running.url, *command.split())
    assert (said.code, said.err.splitlines()[-1]) == (code, f"  -> {told}")


def test_a_health_check_tells_ready_unready_and_absent_apart(running: Running):
    assert run("--admin-url", running.url, "healthcheck") == Said(0, "ready\n", "")
    running.node.readiness = [Check("redis", False, "connection refused")]
    unready = run("healthcheck", "--admin-url", running.url)
    assert (unready.code, unready.out) == (10, "")
    assert "redis: connection refused" in unready.err
    assert run("--admin-url", running.url, "healthcheck", "--live").code == 0
    assert run("--admin-url", unused_url(), "healthcheck").code == 5


def test_a_server_that_is_no_sidecar_is_told_as_such():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        said = run("--admin-url", f"http://127.0.0.1:{server.getsockname()[1]}", "status")
        thread.join(10)
    assert (said.code, "is it a sidecar?" in said.err) == (1, True)


def test_wrong_settings_are_told_all_at_once_with_exit_code_2(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_NODE_ID", "one")
    monkeypatch.setenv("SIDECAR_LISTEN", "0.0.0.0:19092")
    Path("sidecar.toml").write_text("lese_ms = 1\n")
    for command in ("check-config", "serve"):
        said = run(command, "--cluster", "a.b")
        assert (said.code, said.out) == (2, "")
        for part in (
            "4 problems",
            "SIDECAR_NODE_ID = one (environment)",
            "SIDECAR_ADVERTISE",
            "lese_ms",
            "= a.b (flag)",
        ):
            assert part in said.err
    config = run("doctor", "-o", "json")
    assert config.code == 10
    assert [check["name"] for check in json.loads(config.out)["checks"]] == ["config"] * 3


def test_up_tells_wrong_variables_of_its_parts_along_with_wrong_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_LEASE_MS", "1")
    monkeypatch.setenv("SIDECAR_LOCAL_KAFKA_PORT", "abc")
    monkeypatch.setenv("SIDECAR_LOCAL_REDIS_PORT", "65536")
    monkeypatch.setenv("SIDECAR_LOCAL_KAFKA_VERSION", "four")
    said = run("up", "--redis-port", "0")
    assert (said.code, said.out) == (2, "")
    for part in (
        "3 problems",
        "SIDECAR_LEASE_MS = 1 (environment)",
        "SIDECAR_LOCAL_KAFKA_PORT = abc (environment): needs a port",
        "SIDECAR_LOCAL_KAFKA_VERSION = four (environment): needs a version",
    ):
        assert part in said.err
    monkeypatch.delenv("SIDECAR_LEASE_MS")
    monkeypatch.setenv("SIDECAR_FOO", "1")
    alone = run("up", "--redis-port", "0")
    assert (alone.code, "2 problems" in alone.err, "warning: SIDECAR_FOO" in alone.err) == (2, True, True)


def test_variables_of_the_embedded_parts_do_not_stop_the_doctor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_LOCAL_KAFKA_PORT", "abc")
    monkeypatch.setenv("SIDECAR_ADMIN_URL", unused_url())
    monkeypatch.setattr("sidecar.cli.doctor.look_at_node", lambda _api: NodeView([]))
    monkeypatch.setattr("sidecar.cli.doctor.check_kafka", nothing_found)
    monkeypatch.setattr("sidecar.cli.doctor.check_redis", nothing_found)
    assert "the settings are valid" in run("doctor").out


async def nothing_found(*_: object) -> list[Finding]:
    return []


@pytest.mark.parametrize("command", ["check-config", "serve", "up", "config show", "doctor"])
def test_a_misspelt_variable_is_told_beside_wrong_settings(command: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_NODE_ID", "one")
    monkeypatch.setenv("SIDECAR_LEASE", "900")
    said = run(*command.split())
    assert said.code == (10 if command == "doctor" else 2)
    for part in ("SIDECAR_NODE_ID = one", "SIDECAR_LEASE (environment)", "did you mean SIDECAR_LEASE_MS?"):
        assert part in said.out + said.err


@pytest.mark.parametrize(
    "command",
    [
        "status", "healthcheck", "topic list", "topic show orders", "topic set orders --access shared",
        "topic unset orders", "producer list", "producer fence orders", "producer release orders",
        "dedup show orders", "dedup show orders billing", "dedup forget orders billing",
    ],
)  # fmt: skip
def test_problems_of_a_file_that_was_asked_for_are_told_by_every_command(running: Running, command: str):
    Path("bad.toml").write_text("lese_ms = 1\nnode_id = -1\n")
    said = run("--admin-url", running.url, *command.split(), "--config", "bad.toml")
    assert (said.code, said.out, running.node.calls) == (2, "", [])
    assert "2 problems" in said.err
    assert "lese_ms (bad.toml): there is no such setting; did you mean lease_ms?" in said.err


def test_right_settings_pass_and_odd_ones_are_warnings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_PORT", "tcp://10.0.0.1:19092")
    said = run("check-config")
    assert said.code == 0
    assert "warning: SIDECAR_PORT" in said.err


def test_settings_are_shown_with_their_origin_and_without_secrets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIDECAR_NODE_ID", "4")
    Path("other.toml").write_text("linger_ms = 5\n")
    shown = run("config", "show", "--origin", "--config", "other.toml", "--lease-ms", "900", "-o", "json")
    rows = {row["setting"]: (row["value"], row["origin"]) for row in json.loads(shown.out)}
    assert rows["SIDECAR_NODE_ID"] == ("4", "environment")
    assert rows["SIDECAR_LINGER_MS"] == ("5", "other.toml")
    assert rows["SIDECAR_LEASE_MS"] == ("900", "flag")
    assert rows["SIDECAR_CLUSTER"] == ("default", "default")
    assert rows["SIDECAR_ADMIN_TOKEN"][0] == "***"
    assert "--admin-token" not in run("serve", "--help").out
    assert "origin" not in json.loads(run("config", "show", "-o", "json").out)[0]


def test_the_schema_is_json():
    assert json.loads(run("config", "schema").out)["additionalProperties"] is False


TWO_LISTENERS = (
    *("--listeners", "INSIDE://127.0.0.1:19092,OUTSIDE://127.0.0.1:19192"),
    *("--listener-security-protocol-map", "INSIDE:PLAINTEXT,OUTSIDE:SSL"),
    *("--listener-outside-ssl-certificate", "/tls.pem", "--listener-outside-ssl-client-auth=none"),
)


def test_a_setting_of_one_listener_has_a_flag():
    rows = {row["setting"]: row["value"] for row in json.loads(run("config", "show", "-o", "json", *TWO_LISTENERS).out)}
    assert rows["SIDECAR_LISTENER_OUTSIDE_SSL_CERTIFICATE"] == "/tls.pem"
    assert rows["SIDECAR_LISTENER_OUTSIDE_SSL_CLIENT_AUTH"] == "none"
    told = run("check-config", *TWO_LISTENERS)
    assert (told.code, "listener OUTSIDE: SSL at 127.0.0.1:19192 as 127.0.0.1:19192" in told.err) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listener-outside-ssl-key-password", "secret"), "No such option"),
        (("--listener-outside-ssl-certificate",), "requires an argument"),
        (("--listener-elsewhere-ssl-ca", "/ca.pem"), "has no listener ELSEWHERE"),
    ],
)
def test_a_flag_of_one_listener_that_cannot_be_is_told(arguments: tuple[str, ...], said: str):
    found = run("check-config", *TWO_LISTENERS, *arguments)
    assert found.code == 2
    assert said in found.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "127.0.0.1:0"),
        ("--admin-listen", "127.0.0.1:19093"),
        ("--listeners", "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:3", "--ssl-certificate", "/tls.pem"),
        ("--listeners", "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:18082", "--ssl-certificate", "/tls.pem"),
        (*("--listeners", "PLAINTEXT://127.0.0.1:1", "--advertised-listeners", "PLAINTEXT://host:65534"),),
    ],
)
def test_workers_need_ports_of_their_own(arguments: tuple[str, ...]):
    said = run("serve", "--workers", "4", *arguments)
    assert said.code == 2
    assert "workers" in said.err


@pytest.mark.parametrize(
    "command",
    ["", "serve", "up", "status", "doctor", "topic set", "producer fence", "dedup show", "dedup forget", "config show"],
)
def test_every_command_explains_itself(command: str):
    said = run(*command.split(), "--help")
    assert said.code == 0
    assert "Usage" in said.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str):
    said = run("completion", shell)
    assert said.code == 0
    assert "_SIDECAR_COMPLETE" in said.out


REPOSITORY = Path(__file__).parents[2]


def test_a_reader_that_goes_away_is_no_error_message(running: Running):
    done = subprocess.run(
        f"{sys.executable} -m sidecar --admin-url {running.url} topic list | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.stderr == ""
