"""`sidecar up --secure`: what it prints lets clients in, and nothing else does; no secret leaves its file."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import ConnectionError as RedisConnectionError

from sidecar.local import find_running
from sidecar.local.ports import HOST, is_open
from sidecar.local.probe import ask_kafka
from sidecar.local.tools import ToolError, find_tools
from sidecar.security.credentials import PasswordCredentials
from sidecar.security.errors import LoginError
from tests.kafka.security.secured import wire
from tests.up import SIDECAR, Up

pytestmark = pytest.mark.timeout(240)

SECRETS = ("sidecar.password", "admin.password", "app.password", "redis.password", "admin.token", "read.token")
READY_S = 30


class CommandLines:
    """The arguments of all processes that ran at some time: of Kafka's short-lived tools, too."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> bytes:
        """All of them."""
        self._done.set()
        self._thread.join()
        return b"\n".join(self._seen)

    def _look(self) -> None:
        while not self._done.wait(0.01):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self._seen.add(path.read_bytes())
                except OSError:
                    continue  # it has ended


@contextmanager
def running(directory: Path) -> Iterator[Up]:
    with Up(directory, "--secure", "--state-dir", str(directory / "state")) as up:
        up.wait()
        assert up.process.poll() is None, up.err
        yield up


class Secured:
    """One that runs."""

    def __init__(self, up: Up, state: Path, command_lines: bytes) -> None:
        self.up = up
        self.state = state
        self.files = state / "secured"
        self.command_lines = command_lines

    def secret(self, name: str) -> str:
        return (self.files / name).read_text()

    def settings(self, user: str, **more: str) -> dict[str, Any]:
        """As the printed line for Python reads them."""
        told = [line for line in self.up.out.splitlines() if "Python: Producer" in line]
        assert str(self.files / "app.conf") in told[0]
        lines = (self.files / f"{user}.conf").read_text().splitlines()
        return {**dict(line.strip().split("=", 1) for line in lines), **more}

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.files / "ca.pem")

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.up.listen}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    looking = CommandLines()
    try:
        with running(directory) as up:
            seen = looking.stop()
            yield Secured(up, directory / "state", seen)
    finally:
        looking.stop()


def produce(settings: dict[str, Any], topic: str, value: str) -> int:
    """The error code, 0 where it is acknowledged."""
    codes: list[int] = []
    producer = Producer({**settings, "message.timeout.ms": "20000"})
    producer.produce(topic, value, on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(READY_S)
    return codes[0]


def consume(settings: dict[str, Any], group: str, topic: str) -> Message:
    """The first record. Raises KafkaException."""
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(READY_S)
        assert message is not None
        if error := message.error():
            raise KafkaException(error)
        return message
    finally:
        consumer.close()


def test_a_client_with_the_printed_settings_writes_and_reads(secured: Secured) -> None:
    assert produce(secured.settings("app"), "app-orders", "first") == 0
    assert consume(secured.settings("app"), "app-readers", "app-orders").value() == b"first"


def test_kafkas_own_programs_do_with_the_printed_properties(secured: Secured) -> None:
    file, tools = str(secured.files / "app.properties"), find_tools()
    assert f"--bootstrap-server {secured.bootstrap} --producer.config {file}" in secured.up.out
    where = ("--bootstrap-server", secured.bootstrap, "--topic", "app-java")
    tools.run("org.apache.kafka.tools.ConsoleProducer", *where, "--producer.config", file, stdin="from Java\n")
    reader = ("--consumer.config", file, "--group", "app-java", "--from-beginning", "--max-messages", "1")
    read = tools.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *reader)
    assert read.stdout == "from Java\n"


async def test_a_wrong_password_is_refused_with_58_by_the_node_and_by_kafka(secured: Secured) -> None:
    running = find_running(secured.state)
    assert running is not None
    assert running.endpoints is not None
    for address in (secured.bootstrap, running.endpoints.kafka):
        codes: list[int] = []
        for password in ("wrong", secured.secret("app.password")):
            async with wire(int(address.rpartition(":")[2]), secured.context()) as connection:
                try:
                    await connection.login(PasswordCredentials("SCRAM-SHA-512", "app", password))
                    codes.append(0)
                except LoginError as error:
                    codes.append(error.code)
        assert codes == [58, 0]


def test_the_application_gets_29_for_topics_and_30_for_groups_of_others(secured: Secured) -> None:
    application = secured.settings("app")
    assert produce(secured.settings("admin"), "orders", "of somebody else") == 0
    assert produce(application, "orders", "mine") == KafkaError.TOPIC_AUTHORIZATION_FAILED == 29
    with pytest.raises(KafkaException) as refused:
        consume(application, "app-readers", "orders")
    assert refused.value.args[0].code() == 29
    with pytest.raises(KafkaException) as refused:
        consume(application, "readers", "app-orders")
    assert refused.value.args[0].code() == 30
    assert consume(secured.settings("admin"), "readers", "orders").value() == b"of somebody else"


def test_only_kafkas_own_certificate_comes_in_without_a_login(secured: Secured) -> None:
    (name,) = (line for line in (secured.state / "kafka/broker-1/server.properties").read_text().splitlines()
               if line.startswith("listeners="))  # fmt: skip
    ports = {part.split("://")[0]: int(part.rpartition(":")[2]) for part in name.partition("=")[2].split(",")}
    assert ports.keys() == {"CLIENTS", "BROKER", "CONTROLLER"}
    with_certificate = secured.context()
    with_certificate.load_cert_chain(secured.files / "kafka.pem")
    assert ask_kafka(HOST, ports["BROKER"], context=with_certificate) is not None
    for context in (None, secured.context()):
        assert [ask_kafka(HOST, port, context=context) for port in ports.values()] == [None] * 3


def test_the_admin_port_takes_tls_and_tokens(secured: Secured) -> None:
    file, url = secured.files / "curl.conf", f"https://{HOST}:{secured.up.admin}"

    def status(*options: str) -> str:
        command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=READY_S).stdout

    trusting = ("--cacert", str(secured.files / "ca.pem"))
    assert status("-K", str(file), f"{url}/v1/topics") == "200"
    assert status(*trusting, f"{url}/v1/topics") == "401"
    reading = secured.files.parent / "reading.conf"
    reading.write_text(f'header = "Authorization: Bearer {secured.secret("read.token")}"\n')
    assert status(*trusting, "-K", str(reading), f"{url}/v1/topics") == "200"
    fence = ("-X", "PUT", "-d", '{"access_mode": "exclusive"}', f"{url}/v1/topics/app-fenced/policy")
    assert status(*trusting, "-K", str(reading), *fence) == "401"
    assert status("-K", str(file), *fence) in ("200", "201")
    assert status(f"http://{HOST}:{secured.up.admin}/v1/topics") != "200"


def test_the_printed_commands_run(secured: Secured) -> None:
    printed = [line.split() for line in secured.up.out.splitlines() if line.endswith("sidecar.toml")]
    assert [words[-3] for words in printed] == ["exclusive", "doctor"]
    for words in printed:
        command = [*SIDECAR, *words[next(at for at, word in enumerate(words) if word in ("topic", "doctor")) :]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_redis_takes_tls_alone_and_asks_for_a_password(secured: Secured) -> None:
    running = find_running(secured.state)
    assert running is not None
    assert running.endpoints is not None
    url = running.endpoints.redis
    assert url.startswith("rediss://")
    assert url in secured.up.out
    address, _, trusting = url.partition("?")
    assert trusting == f"ssl_ca_certs={secured.files / 'ca.pem'}"
    for refused in (address.replace("rediss", "redis"), address):  # without TLS; trusting others
        with Redis.from_url(refused, retry=None) as open_to_all, pytest.raises(RedisConnectionError):
            open_to_all.ping()
    (server,) = [part for part in running.parts if part.name == "Valkey"]
    listening = [each for each in psutil.Process(server.identity.pid).net_connections() if each.status == "LISTEN"]
    assert listening == [], "no port of its own"
    assert stat.S_IMODE((secured.state / "valkey" / "valkey.sock").stat().st_mode) == 0o600
    with Redis.from_url(url) as nobody, pytest.raises(NoPermissionError):
        nobody.get("sidecar:default:nodes")
    with Redis.from_url(url, username="sidecar", password="wrong") as wrong, pytest.raises(AuthenticationError):
        wrong.ping()
    password = secured.secret("redis.password")
    with Redis.from_url(url, username="sidecar", password=password) as node, pytest.raises(NoPermissionError):
        node.get("other")


def test_no_secret_is_in_a_command_line_a_log_or_what_is_printed(secured: Secured) -> None:
    for part in (b"kafka.tools.StorageTool", b"kafka.Kafka", b"valkey-server", b"tls_front.py", b"node_process.py"):
        assert part in secured.command_lines
    logs = [
        (secured.state / name).read_text() for name in ("node.log", "kafka/broker-1/broker.log", "valkey/valkey.log")
    ]
    assert all(logs)
    written = [secured.command_lines.decode(errors="replace"), secured.up.out, secured.up.err, *logs]
    written.append((secured.state / "run.json").read_text())
    for name in SECRETS:
        secret = secured.secret(name)
        assert len(secret) == 64
        assert [text for text in written if secret in text] == [], name


def test_files_are_for_their_owner_alone(secured: Secured) -> None:
    assert {path.name for path in secured.files.iterdir()} > {*SECRETS, "ca.key", "kafka.pem", "sidecar.toml"}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secured.files.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    for directory in (secured.files, secured.state / "kafka", secured.state / "valkey"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_it_stops_on_ctrl_c_and_goes_on_with_its_users_and_data_but_not_without_logins(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(tmp_path) as up:
        first = Secured(up, state, b"")
        assert produce(first.settings("app"), "app-kept", "kept") == 0
        kept = {name: first.secret(name) for name in (*SECRETS, "ca.pem")}
        parts = find_running(state)
        assert parts is not None
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(60) == 0, up.err
        assert not any(part.identity.alive() for part in parts.parts)
        assert not is_open(up.listen)
    command = [*SIDECAR, *(word for word in up.arguments if word != "--secure")]
    plain = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert plain.returncode == 1
    assert f"{state} holds a Kafka whose topics need a login" in plain.stderr
    assert "add --secure" in plain.stderr
    (tmp_path / "sidecar.toml").write_text('log_level = "debug"\n')
    environment = {"SIDECAR_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT", "SIDECAR_ADMIN_TOKEN": "another"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for name, value in environment.items():
            patch.setenv(name, value)
        with running(tmp_path) as up:
            again = Secured(up, state, b"")
            assert {name: again.secret(name) for name in kept} == kept
            assert consume(again.settings("app"), "app-later", "app-kept").value() == b"kept"
            assert 'log_level = "debug"' in again.secret("sidecar.toml")
            shown = subprocess.run(
                [*SIDECAR, "status", "-o", "json", "--config", str(again.files / "sidecar.toml")],
                env={name: value for name, value in os.environ.items() if name not in environment},
                capture_output=True, text=True, check=True, timeout=60,
            )  # fmt: skip
            assert json.loads(shown.stdout)["listeners"][0]["security_protocol"] == "SASL_SSL"


def test_a_tool_with_a_wrong_password_says_so(secured: Secured, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text((secured.files / "app.properties").read_text().replace(secured.secret("app.password"), "wrong"))
    with pytest.raises(ToolError, match="SaslAuthenticationException"):
        find_tools().run(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", secured.bootstrap, "--command-config", str(wrong), "--list"),
        )
