"""Logins that break off or turn to garbage, wrong logins where the node itself decides, and secrets that change.

`docs/internals/testing.md` has the table of all cells: mechanism, side, and what is wrong; these are those that
`test_refusals`, `test_listener`, `test_key_sets` and `test_nodes_at_brokers` do not have.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from sidecar.local import Valkey
from sidecar.local.ports import HOST
from sidecar.protocol.caller import BadAnswerError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.security import SASL_AUTHENTICATE
from sidecar.security.credentials import PasswordCredentials
from sidecar.security.errors import LoginError
from sidecar.security.exchange import Connection, login
from sidecar.security.users import user_line
from tests.kafka.security.secured import NODE, PASSWORD, SCRAM, Secured, Wire, wire
from tests.kafka.security.test_key_sets import Issuer, serving_keys
from tests.kafka.security.test_limits import metric
from tests.kafka.security.test_logins import renewed
from tests.kafka.security.test_refusals import (
    MECHANISMS,
    WRONG,
    ends,
    right,
    said_of,
    token,
    token_endpoint,
    towards,
    unknown_user,
    works,
    wrong_secret,
)  # fmt: skip
from tests.nodes import NodeProcess
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from sidecar.security.credentials import Credentials

    Unique = Callable[[str], str]

PASSWORDS: Final = ("PLAIN", *SCRAM)
VERIFIED: Final = [
    *(("relay", mechanism) for mechanism in MECHANISMS),
    *(("file", mechanism) for mechanism in PASSWORDS),
    ("jwks", "OAUTHBEARER"),
]
"""Who checks a login at a listener, and the mechanisms that it can check."""
GARBAGE: Final = b"\xff\xfe\x00 no message \x01\x01"
NOISE: Final = b"\x00\x00\x00\x0cGET / HTTP/1"
"""The frame of something else."""
FAULTS: Final = ("cut", "garbage", "noise")
each_verified = pytest.mark.parametrize(("verifier", "mechanism"), VERIFIED)


@dataclass
class Nodes:
    """A node for each verifier."""

    by_verifier: dict[str, NodeProcess]
    users: Path
    issuer: Issuer

    def wire(self, verifier: str) -> Any:
        return wire(int(self.by_verifier[verifier].bootstrap.rpartition(":")[2]))

    def right(self, verifier: str, mechanism: str, name: str = "alice") -> Credentials:
        if verifier == "jwks":
            return token(text=self.issuer.sign(600, sub=name)[0])
        return right(mechanism, name)


@pytest.fixture(scope="module")
def nodes(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    directory = tmp_path_factory.mktemp("broken-logins")
    users = directory / "users.toml"
    list_users(users, alice=PASSWORD, bob=PASSWORD)
    for mechanism in SCRAM:
        for name in ("alice", "bob"):
            secured.scram_user(name, mechanism)
    with serving_keys() as issuer, Valkey(directory / "valkey") as valkey:
        ways: dict[str, dict[str, Any]] = {
            "relay": {},
            "file": {"SASL_AUTHENTICATION": "file", "SASL_USERS_FILE": str(users)},
            "jwks": {
                "SASL_AUTHENTICATION": "jwks",
                "SASL_JWKS_URL": issuer.url,
                "SASL_AUDIENCE": "kafka",
                "SASL_ISSUER": "https://idp.example",
            },
        }
        started: dict[str, NodeProcess] = {}
        try:
            for way, settings in ways.items():
                (directory / way).mkdir()
                started[way] = NodeProcess(
                    directory / way,
                    f"{HOST}:{secured.ports['SASL_PLAINTEXT']}",
                    valkey.url,
                    cluster=f"broken-{way}",
                    SECURITY_PROTOCOL="SASL_PLAINTEXT",
                    AUTHORIZER="none",
                    KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT",
                    KAFKA_SASL_MECHANISM="PLAIN",
                    KAFKA_SASL_USERNAME=NODE,
                    KAFKA_SASL_PASSWORD=PASSWORD,
                    **settings,
                ).start()
            yield Nodes(started, users, issuer)
        finally:
            for node in started.values():
                node.stop()
    for node in started.values():
        node.check_log()
        assert PASSWORD not in node.log
        assert WRONG not in node.log


def list_users(file: Path, **passwords: str) -> None:
    file.write_text("\n".join(["[users]", *(user_line(*each) for each in passwords.items()), ""]))


class CutError(Exception):
    """The client has gone, in the middle of a message."""


def faulty(wire: Wire, at: int, fault: str) -> Callable[[bytes], Awaitable[bytes]]:
    """Sends what it is given; in place of message `at` (0: the handshake) something else."""
    count = itertools.count()

    async def send(frame: bytes) -> bytes:
        if next(count) != at:
            return await wire.send(frame)
        if fault == "cut":
            wire._writer.write(frame[: len(frame) // 2])
            await wire._writer.drain()
            wire._writer.transport.abort()
            raise CutError
        if fault == "noise":
            return await wire.send(NOISE)
        version, correlation_id = int.from_bytes(frame[6:8], "big"), int.from_bytes(frame[8:12], "big")
        return await wire.send(
            SASL_AUTHENTICATE.encode_request(version, correlation_id, b"node", {"auth_bytes": GARBAGE})
        )

    return send


async def breaks(wire: Wire, credentials: Credentials, at: int, fault: str) -> None:
    """The login with a fault is refused, or ends, and the connection with it."""
    connection = Connection(faulty(wire, at, fault), itertools.count(1), "node")
    if fault == "cut":
        with pytest.raises(CutError):
            await login(connection, credentials)
        return
    if fault == "noise" or at == 0:  # what is no request of a login is not answered
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, LoginError, BadAnswerError)):
            await login(connection, credentials)
    else:
        with pytest.raises(LoginError) as refused:
            await login(connection, credentials)
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await ends(wire)


def messages(mechanism: str) -> range:
    """The numbers of a login's messages: the handshake, and one or two of the mechanism's."""
    return range(3 if mechanism in SCRAM else 2)


# At the listener ------------------------------------------------------------------------------------------------------


@each_verified
async def test_a_login_that_breaks_off_or_turns_to_garbage_is_nobodys_and_holds_nothing(
    nodes: Nodes, verifier: str, mechanism: str
) -> None:
    async def once(at: int, fault: str) -> None:
        async with nodes.wire(verifier) as wire:
            await breaks(wire, nodes.right(verifier, mechanism), at, fault)

    await asyncio.gather(*(once(at, fault) for at in messages(mechanism) for fault in FAULTS))
    await nothing_is_left(nodes, verifier, mechanism)


@each_verified
async def test_another_login_that_breaks_off_or_turns_to_garbage_ends_the_connection(
    nodes: Nodes, verifier: str, mechanism: str
) -> None:
    """In mid-stream: the connection was let in before."""

    async def again(at: int, fault: str) -> None:
        async with nodes.wire(verifier) as wire:
            await wire.login(nodes.right(verifier, mechanism))
            assert await works(wire)
            await asyncio.sleep(1.1)  # sooner another login is refused with 34
            if (at, fault) == (0, "garbage"):  # no login has begun: as a broker does, 34 and nothing else
                connection = Connection(faulty(wire, at, fault), itertools.count(1), "node")
                with pytest.raises(BadAnswerError):
                    await login(connection, nodes.right(verifier, mechanism))
                assert await works(wire)
                return
            await breaks(wire, nodes.right(verifier, mechanism), at, fault)

    await asyncio.gather(*(again(at, fault) for at in messages(mechanism) for fault in FAULTS))
    await nothing_is_left(nodes, verifier, mechanism)


async def nothing_is_left(nodes: Nodes, verifier: str, mechanism: str) -> None:
    """No login is under way, and the next one is let in."""
    node = nodes.by_verifier[verifier]

    async def is_over() -> bool:
        return await asyncio.to_thread(metric, node, "sidecar_logins_under_way") == 0

    await wait_for_async(is_over, "the end of all logins", 20)
    async with nodes.wire(verifier) as wire:
        await wire.login(nodes.right(verifier, mechanism))
        assert await works(wire)


DECIDED: Final = [each for each in VERIFIED if each[0] != "relay"]
"""By the node; what brokers decide is in `test_refusals`."""
each_decided = pytest.mark.parametrize(("verifier", "mechanism"), DECIDED)


@each_decided
@pytest.mark.parametrize("wrong", [wrong_secret, unknown_user])
async def test_a_wrong_secret_and_an_unknown_user_are_refused_at_first_and_in_mid_stream(
    nodes: Nodes, verifier: str, mechanism: str, wrong: Callable[[str], Credentials]
) -> None:
    for logged_in in (False, True):
        async with nodes.wire(verifier) as wire:
            if logged_in:
                await wire.login(nodes.right(verifier, mechanism))
                await asyncio.sleep(1.1)
            with pytest.raises(LoginError) as refused:
                await wire.login(wrong(mechanism))
            assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await ends(wire)


@each_decided
async def test_a_connection_cannot_become_another_users(nodes: Nodes, verifier: str, mechanism: str) -> None:
    async with nodes.wire(verifier) as wire:
        await wire.login(nodes.right(verifier, mechanism))
        await asyncio.sleep(1.1)
        with pytest.raises(LoginError) as refused:
            await wire.login(nodes.right(verifier, mechanism, "bob"))
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await ends(wire)


@pytest.mark.parametrize(("verifier", "mechanism"), [("file", "OAUTHBEARER"), *(("jwks", each) for each in PASSWORDS)])
async def test_a_mechanism_that_the_verifier_does_not_have_is_refused(
    nodes: Nodes, verifier: str, mechanism: str
) -> None:
    async with nodes.wire(verifier) as wire:
        with pytest.raises(LoginError) as refused:
            await wire.login(right(mechanism))
        assert refused.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        await ends(wire)


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_password_that_changes_in_the_file_counts_for_new_logins_of_open_connections_too(
    nodes: Nodes, mechanism: str
) -> None:
    before, after = (PasswordCredentials(mechanism, "carol", each) for each in (PASSWORD, f"{PASSWORD} anew"))
    list_users(nodes.users, alice=PASSWORD, bob=PASSWORD, carol=PASSWORD)
    await wait_for_async(lambda: lets_in(nodes, "file", before), "the new user", 20)
    await check_change(
        nodes,
        "file",
        (before, after),
        lambda: list_users(nodes.users, alice=PASSWORD, bob=PASSWORD, carol=f"{PASSWORD} anew"),
    )


@pytest.mark.parametrize("mechanism", [*SCRAM])
async def test_a_password_that_changes_at_brokers_counts_for_new_logins_of_open_connections_too(
    secured: Secured, nodes: Nodes, mechanism: str, unique: Unique
) -> None:
    """PLAIN's passwords are in the brokers' settings, and no key of theirs has signed the tokens of these tests."""
    name = unique("carol")
    before, after = (PasswordCredentials(mechanism, name, each) for each in (PASSWORD, f"{PASSWORD} anew"))
    secured.scram_user(name, mechanism)
    await wait_for_async(lambda: lets_in(nodes, "relay", before), "the new user", 20)
    await check_change(nodes, "relay", (before, after), lambda: secured.scram_user(name, mechanism, f"{PASSWORD} anew"))


async def check_change(
    nodes: Nodes, verifier: str, passwords: tuple[Credentials, Credentials], change: Callable[[], object]
) -> None:
    """New logins take the new password, those of open connections too; what is open goes on until then."""
    before, after = passwords
    async with nodes.wire(verifier) as gone, nodes.wire(verifier) as stays:
        for each in (gone, stays):
            await each.login(before)
        change()
        await wait_for_async(lambda: lets_in(nodes, verifier, after), "the new password", 20)
        assert not await lets_in(nodes, verifier, before)
        assert await works(gone), "an open connection goes on"
        with pytest.raises(LoginError, match="Authentication failed"):
            await renewed(gone, before)
        await ends(gone)
        await renewed(stays, after)
        assert await works(stays)


async def lets_in(nodes: Nodes, verifier: str, credentials: Credentials) -> bool:
    async with nodes.wire(verifier) as wire:
        try:
            await wire.login(credentials)
        except LoginError as error:
            if error.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return False
        return await works(wire)


# At the broker --------------------------------------------------------------------------------------------------------


@dataclass
class Broken:
    """A port in front of a broker's, and how often it has done what is wrong with it."""

    port: int
    faults: int = 0


@asynccontextmanager
async def broken_broker(port: int, at: int, fault: str) -> AsyncIterator[Broken]:
    """Its answer number `at` is cut or garbage: 0 is that to ApiVersions, as a node asks for it first. -1: it answers
    the first bytes of a connection so, whatever they are.
    """
    broken = Broken(0)
    serving: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, port)
        try:
            for number in itertools.count(-1):
                if number == -1:
                    found = b"" if at != number or not await reader.read(1) else GARBAGE
                else:
                    back.write(await framed(reader))
                    found = await framed(there)
                if number == at:
                    broken.faults += 1
                    writer.write(found[: len(found) // 2] if fault == "cut" else found[:8] + GARBAGE * 4)
                    await writer.drain()
                    return
                writer.write(found)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            back.close()
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(accept, HOST, 0)
    broken.port = server.sockets[0].getsockname()[1]
    try:
        yield broken
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def framed(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_broker_that_breaks_off_a_login_or_answers_garbage_is_named_and_nothing_is_believed(
    secured: Secured, nodes: Nodes, mechanism: str
) -> None:
    assert nodes
    if mechanism in SCRAM:
        secured.scram_user(NODE, mechanism)
    async with token_endpoint() as url:
        assert not await said_of(secured, "SASL_PLAINTEXT", **towards(mechanism, url))
        for at in messages(mechanism):
            for fault in ("cut", "garbage"):
                async with broken_broker(secured.ports["SASL_PLAINTEXT"], at + 1, fault) as broken:
                    said = await said_of(at_port(secured, broken.port), "SASL_PLAINTEXT", **towards(mechanism, url))
                assert broken.faults, (at, fault)
                assert f"{HOST}:{broken.port}" in said, (at, fault)
                assert PASSWORD not in said


@pytest.mark.parametrize("fault", ["cut", "garbage"])
async def test_a_broker_that_breaks_off_a_handshake_of_tls_is_named(
    secured: Secured, tmp_path: Path, fault: str
) -> None:
    certificate, key = secured.authority.issue(NODE, file="broken-handshake")
    shown = {"ssl_certificate": str(certificate), "ssl_key": str(key)}
    assert not await said_of(secured, "SSL", **shown)
    async with broken_broker(secured.ports["SSL"], -1, fault) as broken:
        said = await said_of(at_port(secured, broken.port), "SSL", **shown)
    assert broken.faults
    assert f"{HOST}:{broken.port}" in said


def at_port(secured: Secured, port: int) -> Secured:
    """The same broker behind another port."""
    return dataclasses.replace(secured, ports={**secured.ports, "SASL_PLAINTEXT": port, "SSL": port})
