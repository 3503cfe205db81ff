"""SIGHUP: a real node reads its file again, and takes over what may change while it runs."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from tests.conftest import StartNode, Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import CommandedNode, NodeProcess
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

POLICY_VIOLATION, BUFFER_FULL, COME_AGAIN = 44, 19, 7


@dataclass
class Reloaded:
    """A node with a file in its directory."""

    node: NodeProcess
    file: Path

    @property
    def rest(self) -> Rest:
        return Rest(self.node.admin_url)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.node.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def reload(self, text: str) -> dict[str, float]:
        """Write the file, send SIGHUP, wait; how often it went well and not so far."""
        self.file.write_text(text)
        return self.hangup()

    def hangup(self) -> dict[str, float]:
        """Send SIGHUP, wait; how often it went well and not so far."""
        before = sum(self.counts().values())
        os.kill(self.node.child.pid, signal.SIGHUP)
        wait_for(lambda: sum(self.counts().values()) == before + 1, "the file to be read again")
        return self.counts()

    def counts(self) -> dict[str, float]:
        found = {}
        for line in metrics(self.node).splitlines():
            if line.startswith("sidecar_config_reload_total{"):
                found[line.split('"')[1]] = float(line.rpartition(" ")[2])
        return found

    def setting(self, name: str) -> dict[str, Any]:
        _, answer = self.rest.call("GET", "/v1/settings")
        [found] = [each for each in answer["items"] if each["setting"] == name]
        return found


def metrics(node: NodeProcess) -> str:
    with urlopen(f"{node.admin_url}/metrics", timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def reloaded(node_process: StartNode, tmp_path: Path) -> Reloaded:
    file = tmp_path / "sidecar.toml"
    file.write_text("queue_limit = 5\n")
    return Reloaded(node_process(LOG_FORMAT="json"), file)


def test_the_queue_takes_as_many_as_the_file_says_now(reloaded: Reloaded, services: Services) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(reloaded.rest, topic, "wait_for_exclusive")
    with RawProducer(reloaded.node.bootstrap, "first") as first, RawProducer(reloaded.node.bootstrap, "next") as other:
        wait_for(lambda: first.send(topic, [b"v"]).error == 0, "the topic to be owned")
        assert reloaded.reload("queue_limit = 0\n") == {"success": 1, "failure": 0}
        refused = other.send(topic, [b"v"])
        assert (refused.error, "its queue of 0 is full" in (refused.message or "")) == (POLICY_VIOLATION, True)
        reloaded.reload("queue_limit = 1\n")
        assert other.send(topic, [b"v"]).error == COME_AGAIN
    assert reloaded.setting("SIDECAR_QUEUE_LIMIT") == {
        "setting": "SIDECAR_QUEUE_LIMIT",
        "value": "1",
        "origin": "sidecar.toml",
        "reloadable": True,
    }


def test_an_owner_that_leaves_is_waited_for_as_long_as_the_file_says_now(
    reloaded: Reloaded, services: Services
) -> None:
    reloaded.reload("disconnect_grace_ms = 600000\n")
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(reloaded.rest, topic)
    first = Producer({"bootstrap.servers": reloaded.node.bootstrap, "client.id": "first", "enable.idempotence": True})
    first.produce(topic, b"v")
    assert first.flush(20) == 0
    del first
    wait_for(lambda: reloaded.rest.call("GET", "/v1/status")[1]["client_connections"] == 0, "the owner to be gone")
    with RawProducer(reloaded.node.bootstrap, "rival") as rival:
        refused = rival.send(topic, [b"v"])
        assert (refused.error, refused.message) == (COME_AGAIN, "first may still come back to the topic")
        assert reloaded.rest.topic(topic)["owner"]["name"] == "first"


def test_the_buffer_holds_as_much_as_the_file_says_now(reloaded: Reloaded, services: Services) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(reloaded.rest, topic)
    with RawProducer(reloaded.node.bootstrap, "writer") as writer:
        wait_for(lambda: writer.send(topic, [b"v"]).error == 0, "the topic to be owned")
        reloaded.reload("retry_buffer_bytes = 1\n")
        assert writer.send(topic, [b"v"]).error == BUFFER_FULL
        reloaded.reload("")
        assert writer.send(topic, [b"v"]).error == 0


def test_writes_need_the_token_that_the_file_has_now(reloaded: Reloaded, services: Services) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    path, policy = f"/v1/topics/{topic}/policy", {"access_mode": "exclusive"}
    assert reloaded.rest.call("PUT", path, policy)[0] == 200
    reloaded.reload('admin_token = "hush-hush"\n')
    assert reloaded.rest.call("PUT", path, policy)[0] == 401
    assert reloaded.setting("SIDECAR_ADMIN_TOKEN")["value"] == "***"
    reloaded.reload("")
    assert reloaded.rest.call("PUT", path, policy)[0] == 200
    assert "hush" not in reloaded.node.log


def test_logs_say_as_much_and_look_as_the_file_says_now(node_process: StartNode, tmp_path: Path) -> None:
    reloaded = Reloaded(node_process(), tmp_path / "sidecar.toml")
    reloaded.reload('log_level = "error"\n')
    told = len(reloaded.events("settings_reloaded"))
    reloaded.reload('log_level = "error"\nqueue_limit = 9\n')
    assert len(reloaded.events("settings_reloaded")) == told
    reloaded.reload('log_format = "console"\n')
    assert "settings_reloaded" in reloaded.node.log.splitlines()[-1]
    assert not reloaded.node.log.splitlines()[-1].startswith("{")


def test_a_file_with_a_fault_changes_nothing_and_every_fault_is_told(reloaded: Reloaded) -> None:
    wrong, named = 'queue_limit = "many"\nlog_level = "loud"\n', ("SIDECAR_QUEUE_LIMIT", "SIDECAR_LOG_LEVEL")
    assert reloaded.reload(wrong) == {"success": 0, "failure": 1}
    [told] = reloaded.events("settings_not_reloaded")
    assert all(name in str(told["problems"]) for name in named), told
    assert reloaded.setting("SIDECAR_QUEUE_LIMIT")["value"] == "5"
    assert reloaded.node.status() == 200
    assert reloaded.reload("queue_limit = 6\n") == {"success": 1, "failure": 1}
    assert reloaded.setting("SIDECAR_QUEUE_LIMIT")["value"] == "6"


def test_a_file_that_is_gone_changes_nothing(reloaded: Reloaded) -> None:
    reloaded.reload('admin_token = "hush-hush"\n')
    reloaded.file.unlink()
    assert reloaded.hangup() == {"success": 1, "failure": 1}
    [told] = reloaded.events("settings_not_reloaded")
    assert "sidecar.toml" in str(told["problems"])
    assert reloaded.setting("SIDECAR_ADMIN_TOKEN")["value"] == "***"


def test_a_file_that_came_while_the_node_ran_counts_from_then_on(node_process: StartNode, tmp_path: Path) -> None:
    reloaded = Reloaded(node_process(LOG_FORMAT="json"), tmp_path / "sidecar.toml")
    assert reloaded.reload("queue_limit = 6\n") == {"success": 1, "failure": 0}
    reloaded.file.unlink()
    assert reloaded.hangup() == {"success": 1, "failure": 1}
    assert reloaded.setting("SIDECAR_QUEUE_LIMIT")["value"] == "6"


def test_what_has_to_wait_for_a_restart_is_named_and_stays(reloaded: Reloaded) -> None:
    reloaded.reload("lease_ms = 9000\nqueue_limit = 6\n")
    [waits] = reloaded.events("settings_need_restart")
    assert waits["settings"] == ["SIDECAR_LEASE_MS"]
    assert reloaded.events("settings_reloaded")[-1]["changed"] == ["SIDECAR_QUEUE_LIMIT"]
    lease = reloaded.setting("SIDECAR_LEASE_MS")
    assert (lease["value"], lease["origin"], lease["reloadable"]) == ("3000", "default", False)


def test_a_variable_stays_above_the_file(node_process: StartNode, tmp_path: Path) -> None:
    reloaded = Reloaded(node_process(QUEUE_LIMIT="3"), tmp_path / "sidecar.toml")
    reloaded.reload("queue_limit = 6\n")
    assert reloaded.events("settings_reloaded")[-1]["changed"] == []
    assert reloaded.setting("SIDECAR_QUEUE_LIMIT")["origin"] == "environment"


def test_many_signals_at_once_leave_a_node_with_the_last_file(reloaded: Reloaded) -> None:
    for number in range(20):
        reloaded.file.write_text(f"queue_limit = {number}\n")
        os.kill(reloaded.node.child.pid, signal.SIGHUP)
    wait_for(lambda: reloaded.setting("SIDECAR_QUEUE_LIMIT")["value"] == "19", "the last file to be taken")
    assert reloaded.counts()["failure"] == 0


def test_a_signal_while_a_node_starts_is_heard_when_it_can_be(
    services: Services, tmp_path: Path, unique: Unique
) -> None:
    file = tmp_path / "sidecar.toml"
    file.write_text("queue_limit = 5\n")
    node = CommandedNode(tmp_path, services.kafka_bootstrap, services.redis_url, cluster=unique("c"))
    with ThreadPoolExecutor() as beside:
        starting = beside.submit(node.start)
        wait_for(lambda: is_another_program(node), "the settings to be read and the node to be started")
        file.write_text("queue_limit = 6\n")
        os.kill(node.child.pid, signal.SIGHUP)
        try:
            reloaded = Reloaded(starting.result(), file)
            wait_for(lambda: reloaded.setting("SIDECAR_QUEUE_LIMIT")["value"] == "6", "the file to be read again")
        finally:
            assert node.stop() == 0


def is_another_program(node: NodeProcess) -> bool:
    """Whether the command line has become a node, which has no handler for signals yet."""
    try:
        return "node_process" in Path(f"/proc/{node.child.pid}/cmdline").read_text()
    except (AssertionError, OSError):
        return False
