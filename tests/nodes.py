"""A sidecar node as tests run it: a child process, forked (`tests.forked`) or started like any user's.

Its log is part of every test: an exception that nobody caught fails the test that started the node.
"""

import http.client
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from sidecar.local.errors import StartError
from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests import forked

UNCAUGHT = re.compile(
    r"Traceback \(most recent call last\)"
    r"|Task exception was never retrieved"
    r"|Future exception was never retrieved"
    r"|Exception in callback"
    r"|Exception ignored in"
    r"|Task was destroyed but it is pending"
    r"|was never awaited"
    r"|Fatal Python error"
)
_PORT_ATTEMPTS = 3


class NodeProcess:
    """One node. `settings` are names without the prefix (`LEASE_MS="500"`), laid over what every node here gets."""

    def __init__(
        self,
        directory: Path,
        kafka_bootstrap: str,
        redis_url: str,
        *,
        cluster: str,
        node_id: int = 1,
        **settings: str,
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self._log = directory / f"node-{cluster}-{node_id}.log"
        self._ports = (0, 0)
        self._child: Child | None = None
        self._environment: dict[str, str] = {}
        """What its process gets besides settings."""
        self._settings = {
            "BOOTSTRAP_SERVERS": kafka_bootstrap,
            "REDIS_URL": redis_url,
            "CLUSTER": cluster,
            "NODE_ID": str(node_id),
            **settings,
        }

    @property
    def bootstrap(self) -> str:
        """`host:port` for Kafka clients."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def admin_url(self) -> str:
        """The root of the REST interface."""
        return f"http://{HOST}:{self._ports[1]}"

    @property
    def child(self) -> Child:
        """Its process, for its pid and state. Raises AssertionError before the first start."""
        assert self._child is not None, "the node has not been started"
        return self._child

    @property
    def log(self) -> str:
        """All it wrote, over restarts too."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self, timeout: float = 30.0, *, ready: bool = True) -> "NodeProcess":
        """Start it, on free ports the first time, on the same ones later.

        Returns once `/readyz` says 200; with `ready=False` once `/livez` does. Raises StartError with its log.
        """
        first = self._ports == (0, 0)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if first:
                client, admin = free_ports(2)
                self._ports = (client, admin)
            try:
                self._launch("/readyz" if ready else "/livez", timeout)
            except StartError:
                taken = first and "address already in use" in self.child.log_text().lower()
                self.child.kill()
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
                self._log.unlink()
            else:
                break
        return self

    def _launch(self, path: str, timeout: float) -> None:
        inherited: Mapping[str, str | None] = {name: None for name in os.environ if name.startswith("SIDECAR_")}
        listen, admin = (f"{HOST}:{port}" for port in self._ports)
        settings = {"LISTEN": listen, "ADMIN_LISTEN": admin, **self._settings}
        environment = {
            **inherited,
            **{f"SIDECAR_{name}": value for name, value in settings.items()},
            **self._environment,
        }
        command = Command(
            f"node {self.node_id} of {self.cluster}",
            (sys.executable, "-W", "error", "-X", "faulthandler", "-m", "sidecar", "serve"),
            self._log,
            environment,
            self._log.parent,  # a sidecar.toml where the tests run must not count
        )
        self._child = self._begin(command)
        self._child.wait_until(lambda: self.status(path) == http.client.OK, timeout)

    def _begin(self, command: Command) -> Child:
        return fork(command) or Child.start(command)

    def status(self, path: str = "/readyz") -> int | None:
        """The HTTP status of `path` on the admin port, None where nobody answers."""
        connection = http.client.HTTPConnection(HOST, self._ports[1], timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def stop(self, grace: float = 30.0) -> int:
        """SIGTERM and wait; the exit code, negative where it had to be killed after `grace` seconds."""
        return self.child.stop(grace)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.child.kill()

    def pause(self) -> None:
        """SIGSTOP: connected and silent."""
        self.child.pause()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self.child.resume()

    def check_log(self, allow: str | None = None) -> None:
        """Fail where the log tells of an exception nobody caught; lines that match the pattern `allow` do not count."""
        lines = self.log.splitlines()
        for number, line in enumerate(lines):
            if UNCAUGHT.search(line) and not (allow and re.search(allow, line)):
                around = "\n".join(lines[max(0, number - 5) : number + 40])
                raise AssertionError(f"node {self.node_id} wrote of an uncaught exception:\n{around}")


class CommandedNode(NodeProcess):
    """A node that is started with `python -m sidecar serve`, for tests of the start itself."""

    def _begin(self, command: Command) -> Child:
        return Child.start(command)


def fork(command: Command, patch: str = "") -> Child | None:
    """What `Child.start(command)` does, by a fork; None where `sidecar serve` would refuse the settings.

    `patch`: as in `tests.forked.start`.
    """
    assert command.directory is not None
    environment = {**os.environ, **command.environment}
    log_start = command.log.stat().st_size if command.log.exists() else 0
    given = {name: value for name, value in environment.items() if value is not None}
    process = forked.start(given, command.directory, command.log, patch)
    return None if process is None else Child(command, cast("subprocess.Popen[bytes]", process), log_start)


@contextmanager
def running_node(
    directory: Path, kafka_bootstrap: str, redis_url: str, kind: type[NodeProcess] = NodeProcess, /, **settings: str
) -> Iterator[NodeProcess]:
    """A node that is the only one of its cluster, and a look at its log at the end."""
    cluster = f"t-{uuid.uuid4().hex[:8]}"
    node = kind(directory, kafka_bootstrap, redis_url, cluster=cluster, node_id=1, **settings)
    node.start()
    try:
        yield node
    finally:
        node.stop()
    node.check_log()
