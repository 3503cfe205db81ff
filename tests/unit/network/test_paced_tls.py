"""TLS records of one client, in turns: how many, and that none is lost, whatever pieces they come in."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import pytest

from sidecar.network.listening import hold_back_nothing
from sidecar.network.paced_tls import RECORDS
from sidecar.network.tls_listening import TlsListener
from sidecar.security.tls import TlsFiles, client_context, server_context
from tests.certificates import Authority
from tests.unit.network.peers import LOOPBACK, on_uvloop

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Shaken:
    """Hooks of a listener; no handshake fails here."""

    def handshake_done(self) -> None:
        """As it should be."""

    def handshake_failed(self, peer: str, reason: str) -> None:
        raise AssertionError(reason)


class Taking(asyncio.BufferedProtocol):
    """Keeps what arrives, and how much of it did in each turn of the loop. It rests now and then where it `rests`."""

    def __init__(self, *, rests: bool) -> None:
        self.taken, self.turns = bytearray(), [0]
        self.ended = asyncio.Event()
        self._rests, self._turn_over = rests, True
        self._buffer = bytearray(256 * 1024)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        hold_back_nothing(self.transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        if self._turn_over:
            self._turn_over = False
            self.turns.append(0)
            asyncio.get_running_loop().call_soon(self._over)
        self.taken += self._buffer[:nbytes]
        self.turns[-1] += nbytes
        if self._rests and len(self.turns) % 3 == 0:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.001, self._resume)

    def _over(self) -> None:
        self._turn_over = True

    def _resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


async def sent(directory: Path, records: Iterable[bytes], pieces: Iterable[int], *, rests: bool = False) -> Taking:
    """What a server takes of these TLS records, each of one write, that come in such pieces."""
    loop, authority, taking = asyncio.get_running_loop(), Authority(directory), Taking(rests=rests)
    context = server_context(TlsFiles(*authority.issue("node"), authority.ca))
    listener = TlsListener(lambda: taking, lambda: context, Shaken())
    await listener.bind(LOOPBACK, 0)
    await listener.start()
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(TlsFiles(ca=authority.ca)).wrap_bio(arriving, leaving, server_hostname=LOOPBACK)
    with socket.create_connection((LOOPBACK, listener.port)) as raw:
        raw.setblocking(False)
        for _ in range(10):
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(raw, leaving.read())
                arriving.write(await loop.sock_recv(raw, 64 * 1024))
        for record in records:
            client.write(record)
        with suppress(ssl.SSLWantReadError):
            client.unwrap()
        bulk, at = leaving.read(), 0
        for size in pieces:
            await loop.sock_sendall(raw, bulk[at : at + size])
            at += size
            await asyncio.sleep(0)
        await loop.sock_sendall(raw, bulk[at:])
        raw.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(taking.ended.wait(), 30)
    await listener.close()
    return taking


@on_uvloop
async def test_small_records_are_decrypted_some_in_each_turn(tmp_path: Path) -> None:
    taking = await sent(tmp_path, [b"x"] * 20_000, ())
    assert len(taking.taken) == 20_000
    assert max(taking.turns) <= 4 * RECORDS  # a turn here has the end of one there, and the beginning of the next


def _some(seed: int) -> tuple[list[bytes], list[int]]:
    chance = random.Random(seed)
    records = [chance.randbytes(chance.choice((1, 2, 30, 700, 16_384))) for _ in range(1_500)]
    return records, [chance.choice((1, 2, 3, 4, 5, 40, 3_000, 90_000)) for _ in range(300)]


@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize("seed", range(3))
@on_uvloop
async def test_nothing_is_lost_in_whatever_pieces_it_comes(tmp_path: Path, seed: int, rests: bool) -> None:
    records, pieces = _some(seed)
    assert (await sent(tmp_path, records, pieces, rests=rests)).taken == b"".join(records)


@pytest.mark.parametrize("rests", [False, True])
async def test_nothing_is_lost_by_the_loop_that_python_has(tmp_path: Path, rests: bool) -> None:
    records, pieces = _some(7)
    assert (await sent(tmp_path, records, pieces, rests=rests)).taken == b"".join(records)
