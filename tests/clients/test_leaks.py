"""The matrix has to notice a proxy that hands out the brokers' addresses: everything works through one of those."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.local.jars import Jars
from sidecar.local.java import find_java

from . import setting
from .features import CLIENTS
from .outcome import Outcome, Route
from .run import CellId, MatrixRun, Target
from .setting import Behind

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _serve(server: socket.socket, upstream: tuple[str, int]) -> None:
    with contextlib.ExitStack() as connections, contextlib.suppress(OSError):
        while True:
            client = connections.enter_context(server.accept()[0])
            broker = connections.enter_context(socket.create_connection(upstream))
            for pair in ((client, broker), (broker, client)):
                threading.Thread(target=_copy, args=pair, daemon=True).start()


@pytest.fixture
def forwarder(behind: Behind) -> Iterator[str]:
    """The address of something that passes bytes on to Kafka and looks at none of them."""
    host, port = behind.bootstrap.split(",")[0].rsplit(":", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, (host, int(port))))
        thread.start()
        try:
            yield "{}:{}".format(*server.getsockname())
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def test_no_client_passes_through_a_proxy_that_leaks_the_brokers_addresses(
    forwarder: str, behind: Behind, jars: Jars, tmp_path: Path
) -> None:
    brokers = setting.direct(behind).brokers
    target = Target(Route.NODE, forwarder, frozenset({forwarder}), brokers, secured=True)
    run = MatrixRun({Route.NODE: target}, setting.commands(find_java(), jars), jars.paths, tmp_path)
    cells = [CellId(Route.NODE, client.name, "cluster") for client in CLIENTS]
    run.start(cells)
    try:
        results = {cell.client: run.result(cell) for cell in cells}
    finally:
        run.close()
    assert {client: result.outcome for client, result in results.items()} == dict.fromkeys(results, Outcome.FAILED)
    told = {
        client: result.detail for client, result in results.items() if not any(one in result.detail for one in brokers)
    }
    assert told == {}, "failed for another reason than the leaked address"
