"""An Apache Kafka cluster of one or more child processes on loopback, in KRaft mode, its data in a directory.

Nodes are combined brokers and controllers numbered from 1. A data directory can be started again by the same or a newer
Kafka version, also on other ports. Brokers are not supervised after the start: callers have to check whether they still
run.
"""

import base64
import json
import ssl
import subprocess
import uuid
from pathlib import Path
from typing import Self

from sidecar.local import ports as free
from sidecar.local.class_archive import ClassArchive
from sidecar.local.errors import LocalError, PortInUseError, StartError
from sidecar.local.kafka_config import KafkaConfig, Ports, broker_properties, parse_version, render
from sidecar.local.ports import HOST
from sidecar.local.probe import ask_kafka, gives_producer_ids
from sidecar.local.process import Child, Command
from sidecar.local.progress import Listener, Step, silent
from sidecar.local.tools import Tools, find_tools

_PORT_ATTEMPTS = 3
_FORMAT_TIMEOUT = 60
_DUMP_GRACE = 60  # seconds for a class archive on a busy machine; 2 to 4 on an idle one
_ENDED_WELL = (0, 143)  # a JVM that ran its shutdown hooks after SIGTERM exits with 128 + 15
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    # The whole configuration, several times per start: it is in server.properties anyway.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)


def new_cluster_id() -> str:
    """A random cluster id in Kafka's format. It has no leading dash, which the formatting tool would take for an
    option.
    """
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return "0" + cluster[1:] if cluster.startswith("-") else cluster


class Kafka:
    """A cluster under `directory`. `start` and `stop` it, or use it as a context manager."""

    def __init__(self, directory: Path, config: KafkaConfig | None = None) -> None:
        self.directory = directory.absolute()
        self.config = config or KafkaConfig()
        self._cluster = ""
        self._ports: dict[int, Ports] = {}
        self._children: dict[int, Child] = {}
        self._dumping: ClassArchive | None = None
        self._tools: Tools | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` of every broker, comma-separated; known once started."""
        return ",".join(self.address(number) for number in self.config.numbers)

    @property
    def tools(self) -> Tools:
        """Kafka's own command line tools, of the same version."""
        if self._tools is None:
            self._tools = find_tools(self.config.version)
        return self._tools

    def address(self, broker: int) -> str:
        """`host:port` of one broker."""
        return f"{HOST}:{self._ports[broker].client}"

    def inner_port(self, broker: int) -> int:
        """The port for connections between brokers: the clients' port, unless clients have to log in."""
        return self._ports[broker].broker or self._ports[broker].client

    def child(self, broker: int) -> Child:
        """The process of one broker, for its pid, its state and its log."""
        return self._children[broker]

    @property
    def children(self) -> list[Child]:
        """The processes of all brokers that were started."""
        return list(self._children.values())

    def start(self, progress: Listener = silent, timeout: float = 60.0) -> str:
        """Start all brokers and wait until each serves and knows all others; returns `bootstrap`.

        `timeout`, in seconds, is for the brokers, not for a download. Raises LocalError; then nothing is left running.
        """
        self._tools = find_tools(self.config.version, progress)
        progress(Step("kafka", f"starting Kafka {self.config.version}", 0, self.config.brokers))
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._choose_ports()
            try:
                self._prepare()
                self._launch(progress, timeout)
            except PortInUseError:
                self.stop()
                if self.config.ports or attempt == _PORT_ATTEMPTS:
                    raise
            except BaseException:
                self.stop(grace=0)
                raise
            else:
                break
        self._write_notes(self._cluster, self.config.version)
        return self.bootstrap

    def stop(self, grace: float = 20.0) -> None:
        """Stop all brokers in good order, each with `grace` seconds before SIGKILL; may be called again.

        They stop one after the other, as each hands its partitions to the rest. The last of several is killed at once:
        it would wait for a quorum until the grace is over, and no broker is left to take its partitions.
        """
        if self._dumping is not None and grace:
            grace += _DUMP_GRACE
        for number, child in sorted(self._children.items(), reverse=True):
            child.stop(0 if number == 1 and len(self._children) > 1 else grace)
        self._adopt_archive()

    def kill(self, broker: int = 1) -> None:
        """Send SIGKILL, which is like a crash."""
        self._children[broker].kill()

    def pause(self, broker: int = 1) -> None:
        """Send SIGSTOP: the broker stays alive and connected, but does not respond."""
        self._children[broker].pause()

    def resume(self, broker: int = 1) -> None:
        """Send SIGCONT after `pause`."""
        self._children[broker].resume()

    def restart(self, broker: int = 1, timeout: float = 60.0) -> None:
        """Start a broker again on its port, after stopping it if it still runs; returns when it serves again."""
        self._children[broker].stop()
        if broker == 1:
            self._adopt_archive()
        self._children[broker] = self._spawn(broker)
        self._children[broker].wait_until(lambda: self._serves(broker), timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _choose_ports(self) -> None:
        count = self.config.brokers
        client = list(self.config.ports) or free.free_ports(count)
        for port in client:
            if not free.is_free(port):
                raise PortInUseError(f"port {port}, meant for Kafka, is in use by another program")
        controller = free.free_ports(count, avoid=client)
        broker = free.free_ports(count, avoid=client) if self.config.security else [0] * count
        each = zip(client, controller, broker, strict=True)
        self._ports = {number: Ports(*ports) for number, ports in zip(self.config.numbers, each, strict=True)}

    def _home(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}"

    def _prepare(self) -> None:
        """Write every node's properties and format all new data directories at once."""
        self._cluster = self._cluster_id()
        self._context = self.config.security.context() if self.config.security else None
        formatting: dict[int, subprocess.Popen[str]] = {}
        for number in self.config.numbers:
            home = self._home(number)
            home.mkdir(parents=True, exist_ok=True)
            properties = broker_properties(self.config, number, self._ports, home / "data")
            (home / "server.properties").write_text(render(properties))
            if not (home / "data" / "meta.properties").exists():
                arguments = ["format", "--ignore-formatted", "-t", self._cluster, "-c", str(home / "server.properties")]
                command = self.tools.command("kafka.tools.StorageTool", *arguments)
                formatting[number] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
        failed: list[str] = []
        for number, process in formatting.items():
            try:
                output, _ = process.communicate(timeout=_FORMAT_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
            if process.returncode != 0:
                failed.append(f"broker {number}: {output}")
        if failed:
            raise StartError("Kafka's data directories could not be formatted.\n" + "\n".join(failed))

    def _launch(self, progress: Listener, timeout: float) -> None:
        self._children = {}
        archive = ClassArchive.of(self.tools.java, self.tools.jars)
        wanted = self.config.leave_archive and self.config.brokers == 1 and not archive.exists
        self._dumping = archive if wanted else None
        for number in self.config.numbers:
            self._children[number] = self._spawn(number, dump=self._dumping if number == 1 else None)
        for done, number in enumerate(self.config.numbers, 1):
            child = self._children[number]
            try:
                child.wait_until(lambda number=number: self._serves(number), timeout)
            except StartError as error:
                if "Address already in use" in child.log_text():
                    raise PortInUseError(f"a port meant for Kafka is in use by another program.\n{error}") from error
                raise
            progress(Step("kafka", f"Kafka {self.config.version} on {self.bootstrap}", done, self.config.brokers))

    def _spawn(self, broker: int, *, dump: ClassArchive | None = None) -> Child:
        home, java, jars = self._home(broker), self.tools.java, self.tools.jars
        archived = dump.flags_to_dump() if dump else ClassArchive.of(java, jars).flags_to_use()
        flags = (*java.flags(self.config.heap_mb, self.config.tuning), *archived, *_LOGGING)
        program = (str(java.path), *flags, jars.argument, "kafka.Kafka", str(home / "server.properties"))
        return Child.start(Command(f"Kafka broker {broker}", program, home / "broker.log", directory=home))

    def _adopt_archive(self) -> None:
        """Keep the class archive that broker 1 dumped, if it did; it has ended."""
        if self._dumping is not None and 1 in self._children:
            self._dumping.adopt(complete=self._children[1].exit_code in _ENDED_WELL)
        self._dumping = None

    def _serves(self, broker: int) -> bool:
        """Whether a broker serves. It opens its port once the controller accepts it; it may not know all others yet.

        Producer ids are checked last: without them an idempotent client of a new cluster begins with a warning.
        """
        port = self.inner_port(broker)
        view = ask_kafka(HOST, port, context=self._context)
        expected = {number for number in self.config.numbers if self._children[number].alive}
        if view is None or view.cluster_id != self._cluster or view.controller < 0:
            return False  # another cluster took the port a moment ago; our broker is about to notice
        return expected <= view.brokers.keys() and gives_producer_ids(HOST, port, context=self._context)

    def _notes(self) -> Path:
        return self.directory / "cluster.json"

    def _cluster_id(self) -> str:
        """The id of the cluster whose data is here, or a new one. Raises LocalError if the data does not match."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._notes().exists():
            self._write_notes(new_cluster_id(), self.config.version)
        notes = json.loads(self._notes().read_text())
        if notes["brokers"] != self.config.brokers:
            raise LocalError(
                f"{self.directory} holds a cluster of {notes['brokers']} brokers, not {self.config.brokers}"
            )
        if parse_version(notes["version"]) > parse_version(self.config.version):
            raise LocalError(
                f"{self.directory} was written by Kafka {notes['version']}, which {self.config.version} cannot read: "
                "choose another state directory or remove this one"
            )
        return notes["cluster_id"]

    def _write_notes(self, cluster: str, version: str) -> None:
        notes = {"cluster_id": cluster, "version": version, "brokers": self.config.brokers}
        draft = self._notes().with_suffix(".new")
        draft.write_text(json.dumps(notes))
        draft.replace(self._notes())
