"""Nodes on paper behind the HTTP side of a real one, with TLS where the settings say so, and what they log."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sidecar.admin.server import AdminServer
from sidecar.gateway.owners import OwnerAnswer
from sidecar.node.port import AccessMode, Policy, ProducerIds, Topic
from sidecar.settings import Address, load
from sidecar.telemetry import logs
from sidecar.telemetry.hooks import NodeMetrics
from tests.unit.admin.paper_node import PaperNode

TOKEN, READ_TOKEN = "s3cret-operate", "s3cret-read"
ANY_PORT = Address("127.0.0.1", 0)
OWNER = OwnerAnswer("billing", "pid:7", AccessMode.EXCLUSIVE, 1_700_000_000_000, "10.0.0.1:5", 4)
ORDERS = Topic("orders", 3, Policy(AccessMode.EXCLUSIVE), 4, OWNER, serving_node=1)
BILLING = ProducerIds("billing", -1, {0: 8, 2: 7}, {0: 70, 2: None}, {0: 1_700_000_000_000, 2: 0}, False)


@dataclass
class PaperServer:
    node: PaperNode
    server: AdminServer
    url: str


@asynccontextmanager
async def paper_server(**settings: Any) -> AsyncIterator[PaperServer]:
    """A server at a free port, with these settings."""
    told = replace(load(), admin_listen=ANY_PORT, admin_advertise=ANY_PORT, **settings)
    node = PaperNode(ORDERS, Topic("plain", 1))
    node.ids["orders"] = {"billing": BILLING}
    server = AdminServer(node, NodeMetrics({0: "Produce"}, "0.1.0"), told)
    await server.start()
    scheme = "http" if told.admin_ssl_certificate is None else "https"
    try:
        yield PaperServer(node, server, f"{scheme}://{server.address}")
    finally:
        await server.stop()


class Log:
    """What is logged from now on, as JSON."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        logs.configure("debug", "json", stream=self._out)

    @property
    def text(self) -> str:
        return self._out.getvalue()

    def events(self, name: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.text.splitlines()]
        return [{k: v for k, v in each.items() if k not in ("ts", "event")} for each in found if each["event"] == name]
