"""The stage: one Kafka broker, one Valkey, one node or more, all children of this process in its own session.

`sidecar.local` gives each child a session of its own, for the sake of Ctrl-C. Here that would falsify: the scheduler
shares the CPU by session (`machine.scheduler_group`), so what is compared must live in one.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks import machine
from benchmarks.measures import Target
from benchmarks.perf_tools import PerfTools
from benchmarks.raw_client import Connection, DeleteTopic, RefusedError
from sidecar.cluster.nodes import NodeAddress, Placement
from sidecar.local.errors import StartError
from sidecar.local.java import Tuning
from sidecar.local.kafka_config import KafkaConfig, Ports, broker_properties, render
from sidecar.local.ports import HOST, free_ports
from sidecar.local.probe import ask_kafka, ask_redis
from sidecar.local.process import GUARD
from sidecar.local.tools import Tools, find_tools
from sidecar.local.valkey import find_valkey
from sidecar.protocol.calls.admin import CreateTopics, DescribeTopics, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

_READY_S: Final = 60.0
_STOP_S: Final = 20.0
_POLL_S: Final = 0.01
_BROKER_HEAP_MB: Final = 1024
_UNKNOWN_TOPIC: Final = 3
_SAMPLER: Final = Path(__file__).with_name("sampler")
_ROOT: Final = Path(__file__).resolve().parents[1]
PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Single:
    """A node of its own cluster: its process, its ports, and how many seconds it took from its start to be ready."""

    pid: int
    port: int
    admin: int
    seconds: float


class Arena:
    """What runs during a benchmark; a context manager. `directory` takes its data and logs.

    `sampled`: the node can be asked for samples of its CPU time (`benchmarks/sampler`), which it writes to `samples`.
    `nodes` of one cluster are numbered from 1. `settings` are environment variables for them.
    """

    def __init__(
        self, directory: Path, *, sampled: bool = False, nodes: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.samples = directory / "samples"
        self._sampled = sampled
        self._settings = dict(settings or {})
        self.run = uuid.uuid4().hex[:6]
        self.tools: Tools = find_tools()
        self.load = PerfTools(self.tools, self.check_alive)
        self._kafka_port, self._controller_port, self._valkey_port, self._bare_port, *ports = free_ports(4 + 2 * nodes)
        self._node_ports = dict(enumerate(zip(ports[::2], ports[1::2], strict=True), start=1))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def port(self, target: Target) -> int:
        """Where the clients of a target connect."""
        bare = {Target.DIRECT: self._kafka_port, Target.FORWARDER: self._bare_port}
        return bare.get(target) or self.node_port(1)

    def node_port(self, number: int) -> int:
        """Where clients of one node connect."""
        return self._node_ports[number][0]

    def admin_port(self, number: int) -> int:
        """The HTTP port of a node."""
        return self._node_ports[number][1]

    def pid(self, name: str) -> int:
        """The process id of `kafka`, `valkey`, `node` (the first) or `node-2` and so on."""
        return self._running[name].pid

    @property
    def pids(self) -> list[int]:
        """Of everything here."""
        return [process.pid for process in self._running.values()]

    def cpu_seconds(self) -> float:
        """CPU time of everything that this benchmark runs, this process and children that have ended included."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(machine.cpu_seconds, self.pids))

    def topic(self, target: Target, name: str) -> str:
        """The name that a topic of a target has in this run; the exclusive ones share a prefix policy."""
        return f"bench-{self.run}-{target.value}-{name}"

    def __enter__(self) -> Self:
        try:
            self._start_kafka()
            self._start_valkey()
            for number in self._node_ports:
                self.start_node(number)
            self._check_groups()
            self.put_policy(self.topic(Target.EXCLUSIVE, "*"), {"access_mode": "exclusive"})
            self.check_addresses()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            for name in map(_node_name, self._node_ports):
                error.add_note(f"The log of {name} ends with\n{self._log_tail(name)}")
        self.stop()

    def check_alive(self) -> None:
        """Raises StartError where one of the processes has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise StartError(f"{name} ended with exit code {process.returncode}.\n{self._log_tail(name)}")

    def stop(self) -> None:
        """End all, nodes first."""
        for process in reversed(self._running.values()):
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextmanager
    def forwarder(self) -> Iterator[None]:
        """The bare forwarder in front of the broker (`Target.FORWARDER`). Raises StartError."""
        home = self.directory / "forwarder"
        home.mkdir(exist_ok=True)
        command = (sys.executable, "-m", "benchmarks.forwarder", str(self._bare_port), str(self._kafka_port))
        self._start("forwarder", command, home, {"PYTHONPATH": str(_ROOT)})
        try:
            self._await("forwarder", lambda: _controller(self._bare_port) >= 0)
            yield
        finally:
            process = self._running.pop("forwarder")
            process.terminate()
            process.wait(_STOP_S)

    # Topics ---------------------------------------------------------------------------------------------------------

    def create(self, topic: str) -> None:
        """Create a topic on the broker and wait until its partitions have leaders. Raises RefusedError."""
        self.create_all([topic], PARTITIONS)

    def create_all(self, topics: Sequence[str], partitions: int) -> None:
        """Create topics at once and wait until all their partitions have leaders. Raises RefusedError."""
        with Connection(self._kafka_port) as broker:
            wanted = tuple(NewTopic(topic, partitions, 1) for topic in topics)
            for topic, outcome in broker.ask(CreateTopics(wanted, 30_000)).items():
                if outcome.error:
                    raise RefusedError(f"CreateTopics {topic}", outcome.error)

            def led() -> bool:
                found = broker.ask(DescribeTopics(tuple(topics))).topics
                return all(
                    len(topic.partitions) == partitions and all(one.leader >= 0 for one in topic.partitions)
                    for topic in found
                )

            _wait(led, f"leaders of {topics[0]}" + (f" and {len(topics) - 1} more" if len(topics) > 1 else ""))

    def delete(self, topic: str) -> None:
        """Delete a topic; one that is not there is none any more."""
        with Connection(self._kafka_port) as broker:
            code = broker.ask(DeleteTopic(topic))
            if code not in (0, _UNKNOWN_TOPIC):
                raise RefusedError(f"DeleteTopics {topic}", code)

    def leaders(self, topics: Sequence[str]) -> dict[str, int]:
        """The node that leads partition 0 of each topic: every node computes the same placement."""
        nodes = [NodeAddress(number, HOST, port) for number, (port, _) in self._node_ports.items()]
        placement = Placement(nodes)
        return {topic: placement.of_partition(topic.encode(), 0) for topic in topics}

    # Start ----------------------------------------------------------------------------------------------------------

    def _start_kafka(self) -> None:
        home = self.directory / "kafka"
        home.mkdir(parents=True)
        config = KafkaConfig(
            heap_mb=_BROKER_HEAP_MB,
            tuning=Tuning.FAST,
            overrides={
                "auto.create.topics.enable": "false",  # a name that is wrong shall fail, not make a topic
                "log.segment.delete.delay.ms": "1000",  # deleted topics give their space back during the run
            },
        )
        ports = {1: Ports(self._kafka_port, self._controller_port)}
        properties = home / "server.properties"
        properties.write_text(render(broker_properties(config, 1, ports, home / "data")))
        cluster = "bench" + uuid.uuid4().hex[:17]
        self.tools.run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties))
        command = self.tools.command("kafka.Kafka", str(properties), heap_mb=config.heap_mb, tuning=config.tuning)
        self._start("kafka", command, home)
        self._await("kafka", lambda: _controller(self._kafka_port) >= 0)

    def _start_valkey(self) -> None:
        home = self.directory / "valkey"
        home.mkdir()
        settings = {"bind": HOST, "port": str(self._valkey_port), "dir": str(home), "appendonly": "yes", "save": ""}
        settings |= {"appendfsync": "everysec", "maxmemory-policy": "noeviction"}
        arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._start("valkey", (str(find_valkey()), *arguments), home)
        self._await("valkey", lambda: ask_redis(HOST, self._valkey_port) is not None)

    def start_node(self, number: int) -> None:
        """Start a node, again where it was killed, and wait until it is ready. Raises StartError."""
        settings = {"SIDECAR_NODE_ID": str(number), **self._settings}
        if self._sampled:
            path = [str(_SAMPLER), *filter(None, [os.environ.get("PYTHONPATH")])]
            settings |= {"PYTHONPATH": os.pathsep.join(path), "BENCH_SAMPLES": str(self.samples)}
        self._serve(_node_name(number), *self._node_ports[number], settings)

    @contextmanager
    def single(self, name: str, settings: Mapping[str, str]) -> Iterator[Single]:
        """A node beside the numbered ones, of a cluster of its own, which `settings` name; ended afterwards.

        Raises StartError.
        """
        port, admin = free_ports(2)
        began = time.perf_counter()
        self._serve(name, port, admin, settings)
        seconds = time.perf_counter() - began
        try:
            yield Single(self.pid(name), port, admin, seconds)
        finally:
            process = self._running.pop(name)
            process.terminate()
            process.wait(_STOP_S)

    def _serve(self, name: str, port: int, admin: int, settings: Mapping[str, str]) -> None:
        home = self.directory / name
        home.mkdir(exist_ok=True)
        addresses = {"SIDECAR_LISTEN": f"{HOST}:{port}", "SIDECAR_ADMIN_LISTEN": f"{HOST}:{admin}"}
        command = (sys.executable, "-m", "sidecar", "serve")
        self._start(name, command, home, {**self._backends, **addresses, **settings})
        self._await(name, lambda: _answered(admin, "GET", "/readyz") == http.client.OK)

    @property
    def kafka_port(self) -> int:
        """Of the broker itself."""
        return self._kafka_port

    def environment(self) -> dict[str, str]:
        """For commands that work with the same Kafka, Redis and cluster as the nodes, and ask the first of them."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SIDECAR_")}
        asked = {"SIDECAR_ADMIN_URL": f"http://{HOST}:{self.admin_port(1)}"}
        return inherited | self._backends | asked | self._settings

    @property
    def _backends(self) -> dict[str, str]:
        return {
            "SIDECAR_BOOTSTRAP_SERVERS": f"{HOST}:{self._kafka_port}",
            "SIDECAR_REDIS_URL": f"redis://{HOST}:{self._valkey_port}/0",
        }

    def kill_node(self, number: int) -> float:
        """SIGKILL, as a crash would; time.perf_counter() at the kill."""
        process = self._running.pop(_node_name(number))
        killed = time.perf_counter()
        process.kill()
        process.wait()
        return killed

    def _start(self, name: str, command: tuple[str, ...], home: Path, settings: dict[str, str] | None = None) -> None:
        guarded = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(int(signal.SIGKILL)), *command)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SIDECAR_")}
        with (home / "log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                guarded,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=home,
                env=inherited | (settings or {}),
            )

    def _await(self, name: str, ready: Callable[[], bool]) -> None:

        def alive_and_ready() -> bool:
            self.check_alive()
            return ready()

        try:
            _wait(alive_and_ready, name)
        except TimeoutError:
            raise StartError(f"{name} was not ready within {_READY_S:.0f} s.\n{self._log_tail(name)}") from None

    def _log_tail(self, name: str) -> str:
        return (self.directory / name / "log").read_text(errors="replace")[-3000:]

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_groups(self) -> None:
        groups = {machine.scheduler_group(pid) for pid in [os.getpid(), *self.pids]}
        if len(groups) > 1:
            raise StartError("broker, node and clients sit in several scheduler groups: figures would favour the node")

    def put_policy(self, topic: str, policy: dict[str, object], admin: int | None = None) -> None:
        """Set fields of the policy of a topic or prefix, at node 1 or at another admin port. Raises StartError."""
        status = _answered(admin or self.admin_port(1), "PUT", f"/v1/topics/{topic}/policy", policy)
        if status != http.client.OK:
            raise StartError(f"the policy of {topic} was answered {status}.\n{self._log_tail('node')}")

    def make_shadow(self, source: str, name: str) -> None:
        """Make a shadow of a topic. Raises StartError."""
        status = _answered(self.admin_port(1), "POST", f"/v1/topics/{source}/shadows", {"name": name})
        if status != http.client.CREATED:
            raise StartError(f"a shadow of {source} was answered {status}.\n{self._log_tail('node')}")

    def check_addresses(self) -> None:
        """Wait until clients of each node are told the nodes' addresses and no others, which would lead round them.

        Raises StartError.
        """
        ports = {port for port, _ in self._node_ports.values()}

        def told(port: int) -> set[int]:
            view = ask_kafka(HOST, port)
            return {found for _, found in view.brokers.values()} if view is not None else set()

        try:
            _wait(lambda: all(told(port) == ports for port in ports), "nodes to know each other")
        except TimeoutError:
            sent = [sorted(told(port)) for port in ports]
            raise StartError(f"clients of the nodes on ports {sorted(ports)} are sent to {sent}") from None


def _answered(admin: int, method: str, path: str, body: object = None) -> int | None:
    """The HTTP status of a request to a node's admin port; None where nobody answers."""
    connection = http.client.HTTPConnection(HOST, admin, timeout=10)
    with suppress(OSError, http.client.HTTPException):
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            return connection.getresponse().status
        finally:
            connection.close()
    return None


def _node_name(number: int) -> str:
    return "node" if number == 1 else f"node-{number}"


def _controller(port: int) -> int:
    view = ask_kafka(HOST, port)
    return -1 if view is None or not view.brokers else view.controller


def _wait(condition: Callable[[], bool], what: str) -> None:
    """Poll until it holds. Raises TimeoutError."""
    deadline = time.monotonic() + _READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still waiting for {what} after {_READY_S:.0f} s")
        time.sleep(_POLL_S)
