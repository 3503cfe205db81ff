"""Whom a process really talks to: the far ends of its TCP connections, from the kernel.

A client that was told a broker's address by mistake would use it, and everything would work.
"""

from __future__ import annotations

import psutil


class Watch:
    """The connections of a process and of the children it has at the start, collected over time."""

    def __init__(self, pid: int) -> None:
        parent = psutil.Process(pid)
        self._processes = [parent, *parent.children(recursive=True)]

    def look(self) -> set[str]:
        """`host:port` of every far end now; nothing once the processes have ended."""
        found: set[str] = set()
        for process in self._processes:
            try:
                connections = process.net_connections(kind="tcp")
            except psutil.NoSuchProcess:
                continue
            for connection in connections:
                if connection.status != psutil.CONN_LISTEN and connection.raddr:
                    host, port = connection.raddr
                    found.add(f"{host.removeprefix('::ffff:')}:{port}")
        return found

    def kill(self) -> None:
        """End the children and the process, at once."""
        for process in reversed(self._processes):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
