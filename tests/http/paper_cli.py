"""Commands run in this process, against the HTTP side of a node on paper."""

import asyncio
import socket
import threading
from dataclasses import dataclass, replace
from typing import Self

from click.testing import CliRunner

from sidecar.admin.server import AdminServer
from sidecar.cli.root import cli
from sidecar.gateway.owners import OwnerAnswer, Waiter
from sidecar.node.port import AccessMode, Policy, Topic
from sidecar.settings import Address, load
from sidecar.telemetry.hooks import NodeMetrics
from tests.unit.admin.paper_node import PaperNode

OWNER = OwnerAnswer("billing", "pid:7", AccessMode.EXCLUSIVE, 1_700_000_000_000, "10.0.0.1:5", 4)
ORDERS = Topic(
    "orders", 3, Policy(AccessMode.EXCLUSIVE), 4, OWNER, waiting=[Waiter(None, "next", "pid:8", 0)], serving_node=1
)
TOKEN = "s3cret"


class Running:
    """A node on paper behind its HTTP side, in a thread of its own."""

    def __init__(self) -> None:
        self.node = PaperNode(ORDERS, Topic("plain", 1))
        settings = replace(load(), admin_listen=Address("127.0.0.1", 0), admin_token=TOKEN)
        self._server = AdminServer(self.node, NodeMetrics({0: "Produce"}, "0.1.0"), settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://{self._server.address}"


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


def run(*arguments: str) -> Said:
    result = CliRunner().invoke(cli, list(arguments), prog_name="sidecar")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"
