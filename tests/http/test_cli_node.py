"""The program as a user runs it: a node of its own process, several of them, tools beside them, all embedded parts."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import UnknownError

from sidecar.cli.api import AdminApi
from sidecar.cli.output import CommandError
from sidecar.local.ports import free_ports, is_open
from sidecar.settings import AdminAccess
from tests.conftest import StartNode, Unique
from tests.http.paper_cli import run
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.up import SIDECAR, Up
from tests.wait import wait_for


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SIDECAR_") and not name.startswith("SIDECAR_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SIDECAR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def sidecar(*arguments: str, code: int = 0) -> str:
    said = run(*arguments)
    assert said.code == code, said.out + said.err
    return said.out


def checks(text: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(text)["checks"]}


def test_a_node_keeps_its_process_id_and_loads_nothing_of_the_command_line(node_process: StartNode):
    node = node_process(by_command=True)
    command = Path(f"/proc/{node.child.pid}/cmdline").read_bytes().decode().split("\0")
    assert Path(command[-5]).name == "node_process.py"
    assert "-W" in command
    maps = Path(f"/proc/{node.child.pid}/maps").read_text()
    assert "uvloop" in maps
    assert "pydantic" not in maps
    assert "greenlet" not in maps


def test_a_node_that_tests_fork_is_what_the_command_starts(node_process: StartNode):
    nodes = [node_process(by_command=by_command, LEASE_MS="5000") for by_command in (True, False)]
    settings = [Rest(node.admin_url).call("GET", "/v1/settings")[1]["items"] for node in nodes]
    of_one = {f"SIDECAR_{name}" for name in ("ADMIN_ADVERTISE", "ADMIN_LISTEN", "ADVERTISE", "CLUSTER", "LISTEN")}
    told, forked = ([each for each in found if each["setting"] not in of_one] for found in settings)
    assert told == forked
    assert len(told) > 20
    assert nodes[1].child.pid != nodes[0].child.pid
    assert "pydantic" not in Path(f"/proc/{nodes[1].child.pid}/maps").read_text()
    assert [node.stop() for node in nodes] == [0, 0]


def test_tools_find_a_ready_node(node_process: StartNode):
    node = node_process()
    url = ("--admin-url", node.admin_url)
    assert sidecar(*url, "healthcheck") == "ready\n"
    status = json.loads(sidecar(*url, "status", "-o", "json"))
    assert (status["ready"], status["state"], status["cluster"]) == (True, "serving", node.cluster)
    assert status["advertise"] == node.bootstrap
    sidecar(*url, "topic", "show", "nope", code=3)
    node.stop()
    sidecar(*url, "healthcheck", code=5)


async def test_an_owner_is_fenced_where_the_generation_is_that_of_the_script(node_process: StartNode, unique: Unique):
    node, topic = node_process(), unique("fenced")
    url = ("--admin-url", node.admin_url)
    command = partial(asyncio.to_thread, sidecar)
    async with AIOKafkaProducer(bootstrap_servers=node.bootstrap, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, b"it is there")
    await command(*url, "topic", "set", topic, "--access", "exclusive")
    async with AIOKafkaProducer(bootstrap_servers=node.bootstrap, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, b"owned")
        generation = json.loads(await command(*url, "topic", "show", topic, "-o", "json"))["generation"]
        for what in ("fence", "release"):
            await command(*url, "producer", what, topic, "--if-generation", str(generation + 1), code=4)
        owner = json.loads(await command(*url, "topic", "show", topic, "-o", "json"))["owner"]
        assert owner["session"].startswith("pid:")
        fenced = await command(*url, "producer", "fence", topic, "--if-generation", str(generation), "-o", "json")
        assert json.loads(fenced)["owner"] is None
        with pytest.raises(UnknownError):  # 90, which aiokafka has no name for
            await producer.send_and_wait(topic, b"never")


def test_weak_settings_of_topics_are_warned_of_when_a_policy_is_set_and_by_the_doctor(
    node_process: StartNode, services: Services, monkeypatch: pytest.MonkeyPatch, unique: Unique
):
    node, prefix = node_process(), unique("weak")
    be_like(node, services, monkeypatch)
    weak, history = f"{prefix}.orders", f"{prefix}.schema-history"
    settings = ("delete.retention.ms=100", "retention.ms=1000", "cleanup.policy=compact,delete")
    sidecar("topic", "create", weak, *(part for each in settings for part in ("--config", each)))
    sidecar("topic", "create", history)
    asked = Rest(node.admin_url).call("PUT", f"/v1/topics/{prefix}.*/policy", {"access_mode": "exclusive"})[1]
    of_settings, of_readers = asked["warnings"]
    assert of_settings.startswith(f"delete.retention.ms=100, retention.ms=1000 of {weak}")
    assert of_readers.startswith(f"{history}:")
    assert "warnings" not in Rest(node.admin_url).call("GET", f"/v1/topics/{weak}")[1]
    found = checks(sidecar("doctor", "-o", "json"))
    assert {found["fences"]["level"], found["readers to the end"]["level"]} == {"warn"}
    assert (found["fences"]["detail"], found["readers to the end"]["detail"]) == (of_settings, of_readers)


def test_the_doctor_names_topics_whose_ids_compaction_may_take(
    node_process: StartNode, services: Services, monkeypatch: pytest.MonkeyPatch, unique: Unique
):
    node, topic = node_process(), unique("ledger")
    be_like(node, services, monkeypatch)
    sidecar("topic", "create", topic, "--config", "cleanup.policy=compact", "--config", "max.compaction.lag.ms=1000")
    sidecar("topic", "set", topic, "--access", "exclusive", "--dedup")
    found = checks(sidecar("doctor", "-o", "json"))["compaction"]
    assert found["level"] == "warn"
    assert f"{topic} (min.compaction.lag.ms 0, needed 86400000)" in found["detail"]
    assert "max.compaction.lag.ms" in found["remedy"]


def test_the_doctor_finds_a_node_and_its_neighbours_well(
    node_process: StartNode, services: Services, monkeypatch: pytest.MonkeyPatch
):
    node = node_process()
    be_like(node, services, monkeypatch)
    found = checks(sidecar("doctor", "-o", "json"))
    assert {name: check["detail"] for name, check in found.items() if check["level"] == "fail"} == {}
    assert {"config", "node", "advertised", "kafka", "bypass", "internal topics", "redis", "open files"} <= found.keys()
    assert node.bootstrap in found["advertised"]["detail"]


def be_like(node: NodeProcess, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_BOOTSTRAP_SERVERS", services.kafka_bootstrap)
    monkeypatch.setenv("SIDECAR_REDIS_URL", services.redis_url)
    monkeypatch.setenv("SIDECAR_CLUSTER", node.cluster)
    monkeypatch.setenv("SIDECAR_ADMIN_URL", node.admin_url)


def be_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node is where this one would be: on the ports by default somebody's own may run."""
    listen, admin = free_ports(2)
    monkeypatch.setenv("SIDECAR_LISTEN", f"127.0.0.1:{listen}")
    monkeypatch.setenv("SIDECAR_ADMIN_LISTEN", f"127.0.0.1:{admin}")
    monkeypatch.setenv("SIDECAR_ADMIN_URL", f"http://127.0.0.1:{admin}")


def test_the_doctor_names_a_remedy_for_what_is_away(monkeypatch: pytest.MonkeyPatch):
    kafka, redis = free_ports(2)
    monkeypatch.setenv("SIDECAR_BOOTSTRAP_SERVERS", f"127.0.0.1:{kafka}")
    monkeypatch.setenv("SIDECAR_REDIS_URL", f"redis://127.0.0.1:{redis}/0")
    be_alone(monkeypatch)
    found = checks(sidecar("doctor", "-o", "json", code=10))
    levels = {name: found[name]["level"] for name in ("config", "node", "kafka", "redis")}
    assert levels == {"config": "ok", "node": "warn", "kafka": "fail", "redis": "fail"}
    assert all(found[name]["remedy"] for name in ("node", "kafka", "redis"))
    blocked = ["", "every node: without Kafka none serves", "claims and takeovers: no topic changes its owner"]
    assert [found[name]["blocks"] for name in ("node", "kafka", "redis")] == blocked
    text = sidecar("doctor", code=10)
    assert f"-> {found['kafka']['remedy']}" in text
    assert text.splitlines()[-1].startswith("2 findings block: kafka, redis; 1 finding does not: node")


def test_the_doctor_refuses_a_redis_that_evicts(own_valkey: Any, services: Services, monkeypatch: pytest.MonkeyPatch):
    valkey = own_valkey(overrides={"maxmemory-policy": "allkeys-lru"})
    monkeypatch.setenv("SIDECAR_BOOTSTRAP_SERVERS", services.kafka_bootstrap)
    monkeypatch.setenv("SIDECAR_REDIS_URL", f"redis://127.0.0.1:{valkey.port}/0")
    be_alone(monkeypatch)
    found = checks(sidecar("doctor", "-o", "json", code=10))
    assert found["redis"]["level"] == "fail"
    assert "noeviction" in found["redis"]["remedy"]


async def test_the_doctor_refuses_internal_topics_that_were_tampered_with(
    node_process: StartNode, services: Services, monkeypatch: pytest.MonkeyPatch
):
    node = node_process()
    be_like(node, services, monkeypatch)
    topic = f"__sidecar_{node.cluster}"
    admin = AIOKafkaAdminClient(bootstrap_servers=services.kafka_bootstrap)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "delete"})])
    finally:
        await admin.close()
    found = json.loads(await asyncio.to_thread(sidecar, "doctor", "-o", "json", code=10))["checks"]
    failures = [check["detail"] for check in found if (check["name"], check["level"]) == (topic, "fail")]
    assert "cleanup.policy is delete, must be compact" in failures


def test_two_workers_are_two_nodes_with_ports_of_their_own(services: Services, unique: Unique, tmp_path: Path):
    listen, admin = two_pairs()
    cluster = unique("c")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *SIDECAR, "serve", "--workers", "2",
                "--listen", f"127.0.0.1:{listen}", "--admin-listen", f"127.0.0.1:{admin}",
                "--bootstrap-servers", services.kafka_bootstrap, "--redis-url", services.redis_url,
                "--node-id", "5", "--cluster", cluster,
            ],
            stderr=log,
        )  # fmt: skip
    try:
        first, second = (AdminApi(AdminAccess(f"http://127.0.0.1:{admin + i}", None), 5) for i in range(2))
        wait_for(lambda: is_ready(first) and is_ready(second), "both nodes", 60)
        wait_for(lambda: len(first.get("/v1/status")["nodes"]) == 2, "the nodes to know each other")
        found = [(each["id"], each["port"]) for each in first.get("/v1/status")["nodes"]]
        assert sorted(found) == [(5, listen), (6, listen + 1)]
        process.terminate()
        assert process.wait(30) == 0
        assert not is_open(listen)
        assert not is_open(listen + 1)
    finally:
        process.kill()
        process.wait()


def two_pairs() -> tuple[int, int]:
    """Two ports whose next ones are free as well."""
    found: list[int] = []
    for port in free_ports(50):
        if not is_open(port) and not is_open(port + 1) and port + 1 not in found:
            found.append(port)
        if len(found) == 2 and abs(found[0] - found[1]) > 1:
            return found[0], found[1]
    raise AssertionError("no free pairs of ports")


def is_ready(api: AdminApi) -> bool:
    try:
        return bool(api.get("/readyz"))
    except CommandError:
        return False


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path) as found:
        yield found


@pytest.mark.timeout(180)
def test_up_starts_everything_says_what_runs_and_stops_it_on_ctrl_c(up: Up):
    up.wait()
    assert f"127.0.0.1:{up.listen}" in up.out, up.err
    commands = [
        line.strip() for line in up.out.splitlines() if "topic set" in line or line.endswith(("status", "doctor"))
    ]
    assert len(commands) == 3
    for command in commands[1:]:
        words = command.partition("--admin-url")[2].split()
        sidecar("--admin-url", *words)
    again = subprocess.run([*SIDECAR, *up.arguments], capture_output=True, text=True, check=True, timeout=60)
    assert str(up.process.pid) in again.stdout
    assert f"127.0.0.1:{up.listen}" in again.stdout
    for option in ("--state-dir", "--listen", "--admin-listen", "--kafka-port 0", "--redis-port 0"):
        assert option in again.stderr
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0, up.err
    assert not is_open(up.listen)
    assert "stopping node" in up.err


def test_up_names_every_port_that_another_program_has_with_the_option_that_moves_it(tmp_path: Path):
    options = ("--listen", "--admin-listen", "--kafka-port", "--redis-port")
    with ExitStack() as others:
        ports = {
            each: others.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for each in options
        }
        words = [
            word
            for option, port in ports.items()
            for word in (option, f"127.0.0.1:{port}" if "listen" in option else str(port))
        ]
        command = [*SIDECAR, "up", "--state-dir", str(tmp_path / "state"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    lines = done.stderr.removeprefix("error: ").splitlines()
    for line, (option, port) in zip(lines, ports.items(), strict=True):
        assert line.startswith(f"127.0.0.1:{port} is in use by another program: choose another one with {option}")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "variables", "directory"),
    [
        (("--state-dir", "/proc/x"), {}, "/proc/x"),
        ((), {"SIDECAR_STATE_DIR": "", "XDG_STATE_HOME": "/etc/passwd"}, "/etc/passwd/sidecar"),
    ],
)
def test_up_names_a_state_directory_that_cannot_be_used(
    arguments: tuple[str, ...], variables: dict[str, str], directory: str
):
    listen, admin = (f"127.0.0.1:{port}" for port in free_ports(2))
    ports = ("--listen", listen, "--admin-listen", admin, "--kafka-port", "0", "--redis-port", "0")
    command, environment = [*SIDECAR, "up", *ports, *arguments], {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"error: {directory} cannot hold the data" in done.stderr
    assert "--state-dir" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("address", "code", "told"),
    [("192.0.2.1:19092", 4, "nobody can listen at 192.0.2.1:19092 ("), ("127.0.0.1:0", 2, "needs a port here, not 0")],
)
def test_up_does_not_start_where_nobody_can_listen(tmp_path: Path, address: str, code: int, told: str):
    command = [*SIDECAR, "up", "--state-dir", str(tmp_path / "state"), "--listen", address, "--kafka-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert told in done.stderr
    assert "--listen" in done.stderr
    assert not (tmp_path / "state").exists()
