"""Requests to the admin port, in front of a node on paper: none is answered with 500.

Input: which method and path, then what fills the path's braces and its query up to a line break, then the body. Or, for
255, the bytes of a connection.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import structlog

from sidecar.admin.openapi import document
from sidecar.admin.server import AdminServer
from sidecar.gateway.owners import OwnerAnswer
from sidecar.node.port import AccessMode, Policy, ProducerIds, Topic
from sidecar.settings import load
from sidecar.telemetry.hooks import NodeMetrics
from tests.unit.admin.paper_node import PaperNode

if TYPE_CHECKING:
    from collections.abc import Iterator

_METHODS: Final = ("get", "put", "post", "delete", "patch")
_CALLS: Final = tuple(
    (method.upper(), path) for path, item in document("0.1.0")["paths"].items() for method in _METHODS if method in item
)
_RAW: Final = 0xFF
_TURNS: Final = 60
_OWNER: Final = OwnerAnswer("billing", "pid:7", AccessMode.EXCLUSIVE, 1_700_000_000_000, "10.0.0.1:5", 4)
_IDS: Final = ProducerIds("billing", -1, {0: 8, 2: 7}, {0: 70, 2: None}, {0: 1_700_000_000_000, 2: 0}, False)


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 18_080)})
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Served:
    """An admin server without a socket, made once."""

    def __init__(self) -> None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
        logging.disable(logging.CRITICAL)
        self.loop = asyncio.new_event_loop()
        self.raised: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.raised.append(context))
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.node = PaperNode(
            Topic("orders", 3, Policy(AccessMode.EXCLUSIVE), 4, _OWNER, serving_node=1), Topic("plain", 1)
        )
        self.node.ids = {"orders": {"billing": _IDS}}
        self.server = AdminServer(self.node, NodeMetrics({0: "Produce"}, "0.1.0"), replace(load(), admin_token=None))
        await self.server._runner.setup()

    async def ask(self, data: bytes) -> bytes:
        server: Any = self.server._runner.server
        protocol, transport = server(), _Transport()
        protocol.connection_made(transport)
        protocol.data_received(data)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            if transport.closed:
                break
        protocol.connection_lost(None)
        await asyncio.sleep(0)
        return bytes(transport.written)


_served: list[_Served] = []


def play(data: bytes) -> None:
    if not data:
        return
    if not _served:
        _served.append(_Served())
    served = _served[0]
    if len(served.node.known) > 100 or len(served.node.calls) > 10_000:
        served.loop.run_until_complete(served._start())
    answer = served.loop.run_until_complete(served.ask(_request(data)))
    assert b" 500 " not in answer.partition(b"\r\n")[0], answer[:2_000]
    assert not served.raised, served.raised


def _request(data: bytes) -> bytes:
    if data[0] == _RAW:
        return data[1:]
    method, path = _CALLS[data[0] % len(_CALLS)]
    line, _, body = data[1:].partition(b"\n")
    name, _, query = line.partition(b"?")
    names = name.split(b"\0")
    while "{" in path:
        before, _, rest = path.partition("{")
        filled = names.pop(0) if names else b"orders"
        path = before + quote(filled, safe="%") + rest.partition("}")[2]
    target = path.encode() + (b"?" + quote(query, safe="=&%").encode() if query else b"")
    head = b"Host: 127.0.0.1:18080\r\nConnection: close\r\nContent-Type: application/json\r\n"
    if body:
        head += b"Content-Length: %d\r\n" % len(body)
    return method.encode() + b" " + target + b" HTTP/1.1\r\n" + head + b"\r\n" + body


def seeds() -> Iterator[bytes]:
    bodies = (
        b"",
        b'{"access_mode": "exclusive", "deduplication": true, "scope": "partition", "exclusive_reader": null}',
        b'{"name": "mirror", "allow": ["User:*"]}',
        b'["mirror", "other"]',
        b'{"to": "earliest"}',
        b'{"to": "offset", "offsets": {"0": 5}}',
        b'{"allow": [], "auto_reset_backlog_entries": 5}',
        b"[" * 2_000,
    )
    for number, (method, _) in enumerate(_CALLS):
        for body in bodies if method != "GET" else bodies[:1]:
            yield bytes((number,)) + b"orders\n" + body
        yield bytes((number,)) + b"pay.*\0billing?page_size=2&page_token=a&partition=1&last=3&from=0\n"
    yield b'\xffGET /v1/topics HTTP/1.1\r\nHost: x\r\nIf-Match: "7", *\r\n\r\n'
    head = b"POST /v1/topics/orders/fence HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield b"\xff" + head + b"2\r\n{}\r\n0\r\n\r\n"
