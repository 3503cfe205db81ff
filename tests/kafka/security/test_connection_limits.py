"""How many connections strangers may have of a node, how fast they come, and the files that are kept back from them.

A well-behaved client's traffic goes on through all of it, and so do health checks, the admin port and the node's own
work with Kafka and Redis.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, Final

import pytest

from sidecar.local.process import Child
from sidecar.security.credentials import PasswordCredentials
from sidecar.security.users import user_line
from tests import raw
from tests.kafka.security.secured import wire
from tests.kafka.security.test_limits import STRANGER, VERSIONS, connect, is_closed, metric, node_with
from tests.kafka.traffic import Traffic
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.wait import wait_for, wait_for_async

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.local.process import Command
    from tests.kafka.security.secured import Wire
    from tests.services import Services

_PASSWORD: Final = "a secret of each"
_FILES: Final = 192
_ADMIN_CONNECTIONS: Final = 12


def refused(node: NodeProcess, reason: str) -> float:
    """How many connections the node has refused for this reason."""
    return metric(node, f'sidecar_client_connections_refused_total{{reason="{reason}"}}')


def test_a_principal_with_too_many_connections_gets_no_more_and_others_do(services: Services, tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("\n".join(["[users]", *(user_line(name, _PASSWORD) for name in ("alice", "bob")), ""]))
    settings = {
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_AUTHENTICATION": "file",
        "SASL_MECHANISMS": "PLAIN",
        "SASL_USERS_FILE": str(users),
        "AUTHORIZER": "none",
        "MAX_CONNECTIONS_PER_PRINCIPAL": "2",
    }
    with node_with(services, tmp_path, settings) as (node, _):
        asyncio.run(_crowd_of_one_principal(node))


async def _crowd_of_one_principal(node: NodeProcess) -> None:
    async def logged_in(name: str, stack: AsyncExitStack) -> Wire:
        found = await stack.enter_async_context(wire(int(node.bootstrap.rpartition(":")[2])))
        await found.login(PasswordCredentials("PLAIN", name, _PASSWORD))
        return found

    async with AsyncExitStack() as opened:
        async with AsyncExitStack() as first:
            served = [await logged_in("alice", first), await logged_in("alice", opened)]
            for number in range(1, 4):
                with pytest.raises(asyncio.IncompleteReadError):
                    await logged_in("alice", opened)
                assert refused(node, "principal") == number
            await logged_in("bob", opened)
            for each in served:
                assert await each.send(VERSIONS), "those that are in stay"

        async def has_room() -> bool:
            with suppress(asyncio.IncompleteReadError):
                return bool(await logged_in("alice", opened))
            return False

        await wait_for_async(has_room, "room, as one of alice's has gone", 20)


def test_who_connects_too_fast_is_closed_at_once_and_takes_nothing_from_others(
    services: Services, tmp_path: Path
) -> None:
    settings = {"MAX_CONNECTION_CREATION_RATE": "6"}  # 60 at once, an address 30
    with node_with(services, tmp_path, settings) as (node, topic), ExitStack() as opened:
        with Traffic(node.bootstrap, topic) as traffic:
            traffic.goes_on()
            strangers = [opened.enter_context(connect(node)) for _ in range(120)]

            def are_closed() -> bool:
                closed = sum(map(is_closed, strangers))
                return closed > 0 and closed == refused(node, "rate")

            wait_for(are_closed, "those that came too fast to be closed, and counted", 20)
            stay = [each for each in strangers if not is_closed(each)]
            assert len(stay) >= 30, "those that came at first"
            stay[0].setblocking(True)
            stay[0].sendall(VERSIONS)
            assert stay[0].recv(4)
            for _ in range(15):  # the other half of the rate is not the stranger's
                with RawClient(node.bootstrap) as newcomer:
                    assert newcomer.ask(raw.api_versions()).error_code == 0
            traffic.goes_on()
            assert node.status("/livez") == node.status("/readyz") == 200

        def is_let_in() -> bool:
            with connect(node) as again, suppress(ConnectionError):
                again.sendall(VERSIONS)
                return bool(again.recv(4))
            return False

        wait_for(is_let_in, "the stranger to be let in again, as time goes by", 20)


class _FewFiles(NodeProcess):
    """A node whose process may open so many files, and not one more."""

    def _begin(self, command: Command) -> Child:
        limited = ("sh", "-c", f'ulimit -n {_FILES} && exec "$@"', "sh", *command.arguments)
        return Child.start(dataclasses.replace(command, arguments=limited))


def test_strangers_who_take_every_file_leave_those_for_brokers_and_the_admin_port(
    services: Services, tmp_path: Path
) -> None:
    with node_with(services, tmp_path, {}, _FewFiles) as (node, topic), ExitStack() as opened:
        with Traffic(node.bootstrap, topic) as traffic:
            traffic.goes_on()  # its connections to the broker are among the files of clients
            strangers: list[socket.socket] = []
            for host in (STRANGER, "127.0.0.3", "127.0.0.4"):
                strangers += [opened.enter_context(connect(node, host)) for _ in range(_FILES)]
            wait_for(lambda: refused(node, "files") > 0, "the end of the files for clients", 20)
            rest = Rest(node.admin_url)
            with ThreadPoolExecutor(_ADMIN_CONNECTIONS) as pool:
                health = [pool.submit(node.status, path) for path in ("/livez", "/readyz") * (_ADMIN_CONNECTIONS // 2)]
                assert {each.result() for each in health} == {200}
            held = metric(node, "process_open_fds")
            assert _FILES // 2 < held < _FILES, "most of them are taken, and some are free"
            made, said = rest.call("POST", "/v1/topics", {"topic": f"{topic}-2", "partitions": 1})
            assert made == 201, said
            changed, _ = rest.call("PUT", f"/v1/topics/{topic}-2/policy", {"access_mode": "exclusive"})
            assert changed == 200, "and writes to it"
            traffic.goes_on()
        for each in strangers:
            each.close()

        def is_served() -> bool:
            with RawClient(node.bootstrap) as newcomer, suppress(ConnectionError):
                return bool(newcomer.ask(raw.produce({(f"{topic}-2", 0): raw.batch()})).responses)
            return False

        wait_for(is_served, "room for a newcomer, when the strangers have gone", 20)
    assert "Too many open files" not in node.log
