"""Kafka, Valkey and the processes beside them as one unit with a state directory: what `sidecar up` runs.

A lock on the directory lets one process at a time use it; the run file shows others what that process runs. The kernel
releases the lock however its holder ends, and the holder's children end with it. So a lock or run file that is left
over has no effect.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, Self

from sidecar.local.certificates import private_directory
from sidecar.local.errors import AlreadyRunningError, LocalError, VariablesError
from sidecar.local.jars import DEFAULT_VERSION
from sidecar.local.kafka import Kafka
from sidecar.local.kafka_config import VERSION_VARIABLE, KafkaConfig, default_version, parse_version
from sidecar.local.ports import is_open
from sidecar.local.process import Child, Command, Identity
from sidecar.local.progress import Listener, silent
from sidecar.local.secured import NODE, Secrets
from sidecar.local.valkey import TlsKeys, Valkey, ValkeyConfig

STATE_VARIABLE = "SIDECAR_STATE_DIR"
KAFKA_PORT_VARIABLE = "SIDECAR_LOCAL_KAFKA_PORT"
REDIS_PORT_VARIABLE = "SIDECAR_LOCAL_REDIS_PORT"
DEFAULT_KAFKA_PORT = 29092
DEFAULT_REDIS_PORT = 26379

_POLL = 0.1


def default_state_directory() -> Path:
    """SIDECAR_STATE_DIR, else `sidecar` under XDG_STATE_HOME or ~/.local/state."""
    if chosen := os.environ.get(STATE_VARIABLE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "sidecar"


def _port(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or not 0 <= int(text) <= 65_535:
        raise VariablesError((variable, text, "needs a port from 0 (a free one) to 65535."))
    return int(text)


def _version() -> str:
    text = default_version()
    try:
        parse_version(text)
    except LocalError:
        advice = f"needs a version of Apache Kafka such as {DEFAULT_VERSION}."
        raise VariablesError((VERSION_VARIABLE, text, advice)) from None
    return text


@dataclass(frozen=True, slots=True)
class StackConfig:
    """The data directory, the ports (0: a free one) and the version of Kafka.

    `secured`: None, or the hosts besides this machine in the node's certificate; then every client has to log in.
    """

    directory: Path = field(default_factory=default_state_directory)
    kafka_port: int = field(default_factory=lambda: _port(KAFKA_PORT_VARIABLE, DEFAULT_KAFKA_PORT))
    redis_port: int = field(default_factory=lambda: _port(REDIS_PORT_VARIABLE, DEFAULT_REDIS_PORT))
    kafka_version: str = field(default_factory=_version)
    secured: tuple[str, ...] | None = None

    @classmethod
    def of(cls, **said: Path | int | tuple[str, ...] | None) -> Self:
        """The given values that are not None; the rest comes from the environment. Raises VariablesError with all
        problems.
        """
        values: dict[str, Any] = {}
        problems: list[tuple[str, str, str]] = []
        for each in fields(cls):
            try:
                value = said.get(each.name)
                values[each.name] = (
                    each.default_factory() if value is None and callable(each.default_factory) else value
                )
            except VariablesError as error:
                problems += error.problems
        if problems:
            raise VariablesError(*problems)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses that a node needs: bootstrap servers of Kafka and the URL of Redis."""

    kafka: str
    redis: str


@dataclass(frozen=True, slots=True)
class Part:
    """One process of a stack; `address` is the `host:port` it serves, its log is at `log`."""

    name: str
    identity: Identity
    address: str
    log: str

    @property
    def answers(self) -> bool:
        """Whether this very process runs and its port accepts connections."""
        host, _, port = self.address.rpartition(":")
        return self.identity.alive() and is_open(int(port), host)


@dataclass(frozen=True, slots=True)
class Running:
    """The content of a run file: the stack that another process runs."""

    owner: Identity
    endpoints: Endpoints | None
    parts: tuple[Part, ...]


def find_running(directory: Path) -> Running | None:
    """What runs on this state directory now, or None if its last owner has ended (or there was none)."""
    noted = _read_run_file(directory)
    return noted if noted is not None and noted.owner.alive() else None


class Stack:
    """Start it, `spawn` a node beside it, `wait`, `stop`; or use it as a context manager, which stops it."""

    def __init__(self, config: StackConfig | None = None) -> None:
        self.config = config or StackConfig()
        self._lock: IO[str] | None = None
        self._kafka: Kafka | None = None
        self._valkey: Valkey | None = None
        self._parts: list[tuple[Child, str]] = []  # in order of start, with their addresses
        self._endpoints: Endpoints | None = None
        self._secrets: Secrets | None = None

    @property
    def secrets(self) -> Secrets:
        """Its passwords and certificates. Raises LocalError if it is secured and was not started."""
        if self._secrets is None:
            raise LocalError("no secured stack has been started")
        return self._secrets

    @property
    def kafka(self) -> Kafka:
        """The cluster. Raises LocalError before a start."""
        if self._kafka is None:
            raise LocalError("the stack has not been started")
        return self._kafka

    @property
    def children(self) -> list[Child]:
        """All processes, in order of start."""
        return [child for child, _ in self._parts]

    def start(self, progress: Listener = silent) -> Endpoints:
        """Start Valkey and Kafka and wait until they serve.

        Raises AlreadyRunningError if another process uses this state directory (`find_running` returns what it runs),
        and LocalError for everything that the user can fix; then nothing is left running.
        """
        directory = self.config.directory.absolute()
        kept = directory / "secured"
        if self.config.secured is None and kept.exists():
            raise LocalError(
                f"{directory} holds a Kafka whose topics need a login and would be open to everybody now: add --secure,"
                f" or name another directory with --state-dir or {STATE_VARIABLE}"
            )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._take_lock(directory)
            _end_orphans(directory)
            self._write_run_file()
            if self.config.secured is not None:
                self._secrets = Secrets(kept)
                self._secrets.certificate(NODE, self.config.secured)
                for part in ("kafka", "valkey"):
                    private_directory(directory / part)
        except OSError as error:
            self.stop()
            raise LocalError(
                f"{directory} cannot hold the data ({error.strerror}): name a directory that you may write to with "
                f"--state-dir or {STATE_VARIABLE}"
            ) from None
        try:
            secrets = self._secrets
            users = {"aclfile": str(secrets.redis_users())} if secrets else {}
            keys = TlsKeys(secrets.certificate("redis"), secrets.ca) if secrets else None
            valkey = self._valkey = Valkey(directory / "valkey", ValkeyConfig(self.config.redis_port, users, keys))
            redis_url = valkey.start(progress)
            for child in valkey.children:
                self._add(child, f"127.0.0.1:{valkey.port}")
            ports = (self.config.kafka_port,) if self.config.kafka_port else ()
            security = secrets.broker_security() if secrets else None
            config = KafkaConfig(self.config.kafka_version, ports=ports, heap_mb=400, security=security)
            kafka = self._kafka = Kafka(directory / "kafka", config)
            bootstrap = kafka.start(progress)
            self._add(kafka.child(1), bootstrap)
            self._endpoints = Endpoints(bootstrap, redis_url)
            self._write_run_file()
        except BaseException:
            self.stop()
            raise
        return self._endpoints

    def spawn(self, command: Command, address: str, ready: Callable[[], bool], timeout: float = 30.0) -> Child:
        """Start one more process, for example a node, that serves `address`; returns once `ready()`.

        Raises StartError, with the end of its log, if it ends or is not ready within `timeout` seconds. It has been
        stopped then; the rest keeps running.
        """
        child = Child.start(command)
        try:
            child.wait_until(ready, timeout)
        except BaseException:
            child.kill()
            raise
        self._add(child, address)
        return child

    def wait(self, timeout: float | None = None) -> Child | None:
        """Block until a process ends by itself, and return it; None after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is None or time.monotonic() < deadline:
            for child in self.children:
                if not child.alive:
                    return child
            time.sleep(_POLL)
        return None

    def stop(self, on_stop: Callable[[str], None] = lambda _name: None) -> None:
        """Stop everything, the last started first; calls `on_stop` with each name beforehand. May be called again."""
        for child in reversed(self.children):
            on_stop(child.name)
            child.stop()
        for server in (self._kafka, self._valkey):  # these have a shutdown of their own, and may be half started
            if server is not None:
                server.stop()
        self._parts.clear()
        self._endpoints = None
        if self._lock is not None:
            with suppress(OSError):  # a file that is left over has no effect
                _run_file(self.config.directory).unlink()
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take_lock(self, directory: Path) -> None:
        lock = (directory / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise AlreadyRunningError(f"another process runs the parts in {directory}") from None
        self._lock = lock

    def _add(self, child: Child, address: str) -> None:
        self._parts.append((child, address))
        self._write_run_file()

    def _write_run_file(self) -> None:
        parts = [Part(child.name, child.identity, address, str(child.command.log)) for child, address in self._parts]
        running = Running(Identity.of(os.getpid()), self._endpoints, tuple(parts))
        path = _run_file(self.config.directory)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(running), indent=1))
        draft.replace(path)


def _run_file(directory: Path) -> Path:
    return directory.absolute() / "run.json"


def _read_run_file(directory: Path) -> Running | None:
    try:
        noted: dict[str, Any] = json.loads(_run_file(directory).read_text())
        parts = [Part(**{**part, "identity": Identity(**part["identity"])}) for part in noted["parts"]]
        endpoints = Endpoints(**noted["endpoints"]) if noted["endpoints"] else None
        return Running(Identity(**noted["owner"]), endpoints, tuple(parts))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _end_orphans(directory: Path) -> None:
    """End processes of an earlier owner that was killed, on systems without a parent-death signal."""
    noted = _read_run_file(directory)
    for part in noted.parts if noted else ():
        if part.identity.alive():
            with suppress(ProcessLookupError):
                os.kill(part.identity.pid, signal.SIGKILL)
            while part.identity.alive():
                time.sleep(_POLL)
