"""Peers that fall silent, told from peers that only do not read; on real sockets of a network of their own."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest

from sidecar.network.handling import Pause
from sidecar.network.idling import ClientWatch
from sidecar.network.keepalive import end_when_stuck, is_silent, probe_when_idle
from tests.wait import wait_for_async, wait_until

LIMIT_S = 0.5


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one TCP connection."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        peer = sockets.enter_context(socket.create_connection(listening.getsockname()))
        ours = sockets.enter_context(listening.accept()[0])
        yield ours, peer


def fill(sock: socket.socket) -> None:
    """Send until nothing more goes."""
    sock.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(1 << 16))


def test_a_peer_that_does_not_read_is_not_silent(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    fill(ours)
    probed: set[int] = set()
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        probed.add(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[4])  # how far probes have backed off
        assert not is_silent(ours, LIMIT_S)
        time.sleep(0.02)
    assert max(probed) >= 2, "else nothing was probed here"


def test_an_idle_peer_is_not_silent(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    ours.sendall(b"x")
    time.sleep(2 * LIMIT_S)
    assert not is_silent(ours, LIMIT_S)


def test_a_broker_that_takes_nothing_is_ended_by_the_kernel(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    end_when_stuck(ours)
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000


class Watched:
    def __init__(self, silent: bool, has_left: bool = False, has_left_muted: bool = False) -> None:
        self.silent = silent
        self.has_left = has_left
        self.has_left_muted = has_left_muted
        self.aborted = False
        self.resumed: list[Pause] = []

    def is_silent(self, limit_s: float) -> bool:
        return self.silent

    def abort(self) -> None:
        self.aborted = True

    def resume(self, reason: Pause) -> None:
        self.resumed.append(reason)
        self.has_left_muted = False


async def test_the_watch_lets_the_requests_go_on_of_who_has_left_while_over_its_quota() -> None:
    connections = [Watched(silent=False, has_left_muted=index == 7) for index in range(10)]
    watch = asyncio.create_task(ClientWatch(lambda: cast("Any", connections), limit_s=0.01).run())
    await wait_until(lambda: not connections[7].has_left_muted, "its requests")
    watch.cancel()
    assert [each.resumed for each in connections] == [[Pause.THROTTLED] if index == 7 else [] for index in range(10)]
    assert not any(each.aborted for each in connections)


async def test_the_watch_ends_those_that_fell_silent_or_have_gone_and_no_others() -> None:
    connections = [Watched(silent=index % 100 == 7, has_left=index % 100 == 8) for index in range(1_000)]
    watch = asyncio.create_task(ClientWatch(lambda: cast("Any", connections), limit_s=0.01).run())
    await wait_for_async(lambda: _all_aborted(connections), "the end of the silent ones")
    connections[0].silent = True
    await wait_for_async(lambda: _all_aborted(connections), "the end of one more")
    watch.cancel()
    assert [each.aborted for each in connections] == [each.silent or each.has_left for each in connections]


async def _all_aborted(connections: list[Watched]) -> bool:
    return all(each.aborted for each in connections if each.silent or each.has_left)


def test_sockets_of_other_kinds_are_left_alone() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        probe_when_idle(ours)
        end_when_stuck(ours)
        assert not is_silent(ours, 0.0)


_VANISHING = textwrap.dedent(
    """
    import socket, subprocess, sys, time
    from sidecar.network.keepalive import is_silent
    full = sys.argv[1] == "full"
    ip = lambda *words: subprocess.run(["ip", *words], check=True)
    ip("link", "set", "lo", "up")
    ip("address", "add", "10.77.0.1/32", "dev", "lo")
    listening = socket.create_server(("127.0.0.1", 0))
    peer = socket.create_connection(listening.getsockname(), source_address=("10.77.0.1", 0))
    ours, _ = listening.accept()
    if full:
        ours.setblocking(False)
        try:
            while True:
                ours.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        time.sleep(0.5)
    ip("address", "delete", "10.77.0.1/32", "dev", "lo")
    if not full:
        ours.send(b"into the void")
    began = time.monotonic()
    while not is_silent(ours, 0.5):
        assert time.monotonic() < began + 20, "never noticed"
        time.sleep(0.05)
    assert time.monotonic() > began + 0.4
    print("noticed")
    """
)


@pytest.mark.parametrize("window", ["open", "full"])
def test_a_peer_whose_machine_is_gone_is_silent(window: str) -> None:
    """Its address is taken away in a network namespace, so nothing comes back: no acknowledgement, no reset."""
    if (
        not (shutil.which("ip") and shutil.which("unshare"))
        or subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no network namespace can be made here")
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-c", _VANISHING, window],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "noticed\n", done.stderr
