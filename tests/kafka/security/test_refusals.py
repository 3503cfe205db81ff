"""Every mechanism over TLS, and everything that may be wrong with a login: at a node's listener, whose logins a broker
checks, and at the broker, where the node logs in itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from sidecar.cli.checks.finding import Level
from sidecar.cli.checks.kafka import check_kafka
from sidecar.local import Valkey
from sidecar.local.ports import HOST
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.cluster import METADATA
from sidecar.security.credentials import Credentials, PasswordCredentials, TokenCredentials
from sidecar.security.errors import LoginError
from sidecar.security.tls import TlsFiles, client_context
from sidecar.security.tokens import Token, Tokens
from sidecar.settings import resolve
from tests.certificates import Authority
from tests.kafka.security.secured import LENIENT_SESSION_MS, NODE, PASSWORD, SCRAM, Secured, Wire
from tests.nodes import NodeProcess
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from pathlib import Path

Unique = Callable[[str], str]

ANY_TOPIC = {"topics": None, "allow_auto_topic_creation": False}
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
PASSWORDS = ("PLAIN", *SCRAM)
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
WRONG = "a wrong secret"


@dataclass
class Served:
    """A node over SASL_SSL, and the authority that its certificate is of."""

    node: NodeProcess
    authority: Authority

    @asynccontextmanager
    async def wire(self, trust: Authority | None = None) -> AsyncIterator[Wire]:
        context = client_context(TlsFiles(ca=(trust or self.authority).ca))
        host, port = self.node.bootstrap.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        try:
            yield Wire(reader, writer)
        finally:
            writer.transport.abort()


@pytest.fixture(scope="module")
def secured(lenient: Secured) -> Secured:
    for mechanism in SCRAM:
        for name in ("alice", "bob", NODE):
            lenient.scram_user(name, mechanism)
    return lenient


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("valkey")) as running:
        yield running


def start(secured: Secured, valkey: Valkey, directory: Path, cluster: str, **settings: str) -> Served:
    authority = Authority(directory, "nodes")
    certificate, key = authority.issue("node", file="node")
    given: dict[str, Any] = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SSL_CERTIFICATE": str(certificate),
        "SSL_KEY": str(key),
        "AUTHORIZER": "none",
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SSL_CA": str(secured.authority.ca),
        "KAFKA_SASL_MECHANISM": "PLAIN",
        "KAFKA_SASL_USERNAME": NODE,
        "KAFKA_SASL_PASSWORD": PASSWORD,
    }
    kafka = f"{HOST}:{secured.ports['SASL_SSL']}"
    chosen = {name: value for name, value in {**given, **settings}.items() if value}
    node = NodeProcess(directory, kafka, valkey.url, cluster=cluster, **chosen)
    return Served(node.start(), authority)


@pytest.fixture(scope="module")
def served(secured: Secured, valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = start(secured, valkey, tmp_path_factory.mktemp("node"), "refusing")
    yield running
    running.node.stop()
    running.node.check_log()
    for secret in (PASSWORD, WRONG):
        assert secret not in running.node.log


class Said:
    """A token of these claims, without a signature, or any other text."""

    def __init__(self, **claims: Any) -> None:
        self._claims = claims

    async def token(self) -> Token:
        text = self._claims.get("text")
        if text is None:
            parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in ({"alg": "none"}, self._claims)]
            text = ".".join(part.decode().rstrip("=") for part in parts) + "."
        return Token(text, None)

    async def close(self) -> None:
        pass


def token(**claims: Any) -> Credentials:
    now = time.time()
    return TokenCredentials(Tokens(Said(**({"sub": "alice", "iat": now, "exp": now + 600} | claims))))


def right(mechanism: str, name: str = "alice") -> Credentials:
    return token(sub=name) if mechanism == "OAUTHBEARER" else PasswordCredentials(mechanism, name, PASSWORD)


def wrong_secret(mechanism: str) -> Credentials:
    return token(text="not.a.token") if mechanism == "OAUTHBEARER" else PasswordCredentials(mechanism, "alice", WRONG)


def unknown_user(mechanism: str) -> Credentials:
    """A token names whom it likes where no key is known: one that names nobody is the nearest."""
    return token(sub="") if mechanism == "OAUTHBEARER" else PasswordCredentials(mechanism, "nobody", PASSWORD)


async def works(wire: Wire) -> bool:
    return bool((await wire.ask_table(METADATA, 5, ANY_TOPIC))["brokers"])


async def ends(wire: Wire) -> None:
    """The node has closed the connection: nothing more is answered."""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await works(wire)


# At the listener ------------------------------------------------------------------------------------------------------


@each_mechanism
async def test_who_shows_the_right_secret_is_let_in(served: Served, mechanism: str) -> None:
    async with served.wire() as wire:
        await wire.login(right(mechanism))
        assert await works(wire)


@each_mechanism
@pytest.mark.parametrize("wrong", [wrong_secret, unknown_user])
async def test_a_wrong_secret_or_an_unknown_user_is_refused_and_the_connection_closed(
    served: Served, mechanism: str, wrong: Callable[[str], Credentials]
) -> None:
    async with served.wire() as wire:
        with pytest.raises(LoginError) as refused:
            await wire.login(wrong(mechanism))
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await ends(wire)


async def test_nothing_is_answered_before_the_login(served: Served) -> None:
    async with served.wire() as wire:
        await ends(wire)
    assert '"reason": "not_logged_in"' in served.node.log


async def test_an_expired_token_is_refused(served: Served) -> None:
    async with served.wire() as wire:
        with pytest.raises(LoginError):
            await wire.login(token(iat=time.time() - 100, exp=time.time() - 50))
        await ends(wire)


@each_mechanism
async def test_an_expired_session_is_closed(served: Served, mechanism: str) -> None:
    """KIP-368: the broker's time for a session holds at the node."""
    async with served.wire() as wire:
        session = await wire.login(right(mechanism))
        assert session.lifetime_s is not None
        assert 0 < session.lifetime_s <= LENIENT_SESSION_MS / 1_000
        await asyncio.sleep(session.lifetime_s)
        await ends(wire)
    assert '"reason": "session_ended"' in served.node.log


@each_mechanism
async def test_a_wrong_secret_in_mid_stream_ends_a_connection_that_was_let_in(served: Served, mechanism: str) -> None:
    async with served.wire() as wire:
        await wire.login(right(mechanism))
        assert await works(wire)
        await asyncio.sleep(1.1)  # sooner a broker too refuses another login with 34
        with pytest.raises(LoginError) as refused:
            await wire.login(wrong_secret(mechanism))
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await ends(wire)


@each_mechanism
async def test_a_connection_cannot_become_another_users_in_mid_stream(served: Served, mechanism: str) -> None:
    async with served.wire() as wire:
        await wire.login(right(mechanism))
        await asyncio.sleep(1.1)
        with pytest.raises(LoginError) as refused:
            await wire.login(right(mechanism, "bob"))
        assert "Cannot change principals" in str(refused.value)
        await ends(wire)


@pytest.mark.parametrize("only", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_mechanism_that_the_node_does_not_offer_is_refused_and_the_others_named(
    secured: Secured, valkey: Valkey, tmp_path: Path, only: str, unique: Unique
) -> None:
    served = start(secured, valkey, tmp_path, unique("c"), SASL_MECHANISMS=only)
    try:
        for mechanism in MECHANISMS:
            async with served.wire() as wire:
                if mechanism == only:
                    await wire.login(right(mechanism))
                    assert await works(wire)
                    continue
                with pytest.raises(LoginError) as refused:
                    await wire.login(right(mechanism))
                assert refused.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                assert f"it offers {only}" in str(refused.value)
                await ends(wire)
    finally:
        served.node.stop()


@each_mechanism
async def test_a_reloaded_certificate_is_shown_to_new_connections_and_old_ones_go_on(
    secured: Secured, valkey: Valkey, tmp_path: Path, mechanism: str, unique: Unique
) -> None:
    """Who trusts the authority of before alone is refused from then on."""
    served = start(secured, valkey, tmp_path, unique("c"))
    other = tmp_path / "other"
    other.mkdir()
    try:
        async with served.wire() as before:
            await before.login(right(mechanism))
            later = Authority(other, "later")
            for made in later.issue("node", file="node"):
                (tmp_path / made.name).write_bytes(made.read_bytes())

            async def is_shown() -> bool:
                try:
                    async with served.wire(later) as wire:
                        await wire.login(right(mechanism))
                        return await works(wire)
                except ssl.SSLError:
                    return False

            await wait_for_async(is_shown, "the new certificate", 20)
            with pytest.raises(ssl.SSLCertVerificationError):
                async with served.wire():
                    pass

            async def goes_on() -> bool:
                try:
                    await before.login(right(mechanism))
                except LoginError as error:
                    if error.code != ErrorCode.ILLEGAL_SASL_STATE:  # less than a second behind the login of before
                        raise
                    return False
                return True

            await wait_for_async(goes_on, "another login on the connection of before", 5)
            assert await works(before)
    finally:
        served.node.stop()


# At the broker --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def token_endpoint(
    lifetime_s: float = 600, refuses: Callable[[], bool] = bool, **claims: Any
) -> AsyncIterator[str]:
    """Gives a token to a client that knows the secret, unless it `refuses` (RFC 6749, 4.4)."""

    async def answer(request: web.Request) -> web.Response:
        if (
            refuses()
            or request.headers["Authorization"] != f"Basic {base64.b64encode(f'{NODE}:secret'.encode()).decode()}"
        ):
            return web.json_response({"error": "invalid_client"}, status=401)
        now = time.time()
        found = await Said(**({"sub": NODE, "iat": now, "exp": now + lifetime_s} | claims)).token()
        return web.json_response({"access_token": found.value, "token_type": "bearer"})

    application = web.Application()
    application.add_routes([web.post("/token", answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    try:
        server: Any = site._server
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}/token"
    finally:
        await runner.cleanup()


async def said_of(secured: Secured, protocol: str = "SASL_SSL", port: str = "", **settings: str) -> str:
    """What `sidecar doctor` says of a node with these settings, "" where nothing is wrong. `port`: the listener that it
    asks, where that is for another protocol.
    """
    given: dict[str, Any] = {
        "bootstrap_servers": f"{HOST}:{secured.ports[port or protocol]}",
        "redis_url": "redis://127.0.0.1:1",
        "kafka_security_protocol": protocol,
        **({"kafka_ssl_ca": str(secured.authority.ca)} if protocol.endswith("SSL") else {}),
        **{f"kafka_{name}": value for name, value in settings.items()},
    }
    found = await check_kafka(resolve(given, None).settings, [])
    return " ".join(each.detail for each in found if each.level is Level.FAIL)


def password(mechanism: str, name: str = NODE, secret: str = PASSWORD) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": name, "sasl_password": secret}


def by_token(url: str, secret: str = "secret") -> dict[str, str]:
    return {
        "sasl_mechanism": "OAUTHBEARER", "sasl_token_url": url, "sasl_client_id": NODE, "sasl_client_secret": secret,
    }  # fmt: skip


def towards(mechanism: str, url: str) -> dict[str, str]:
    """The right secret. `url`: of the token endpoint."""
    return by_token(url) if mechanism == "OAUTHBEARER" else password(mechanism)


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_node_with_a_wrong_secret_or_an_unknown_name_is_refused_by_the_broker(
    secured: Secured, mechanism: str
) -> None:
    assert not await said_of(secured, **password(mechanism))
    for wrong in (password(mechanism, secret=WRONG), password(mechanism, name="nobody")):
        said = await said_of(secured, **wrong)
        assert "Authentication failed" in said
        assert WRONG not in said


async def test_a_node_with_a_wrong_or_expired_token_is_refused(secured: Secured) -> None:
    async with token_endpoint() as url:
        assert not await said_of(secured, **by_token(url))
        assert "invalid_client" in await said_of(secured, **by_token(url, WRONG))
    async with token_endpoint(-50) as url:
        assert "a token that has ended" in await said_of(secured, **by_token(url))
    async with token_endpoint(text="not.a.token") as url:
        assert await said_of(secured, **by_token(url))


@pytest.mark.parametrize("mechanism", [*SCRAM, "OAUTHBEARER"])
async def test_a_node_with_a_mechanism_that_brokers_do_not_offer_is_refused(secured: Secured, mechanism: str) -> None:
    """PLAIN is refused in `test_logins`, where the broker does not offer it."""
    async with token_endpoint() as url:
        said = await said_of(secured, "SASL_PLAINTEXT", **towards(mechanism, url))
    assert f"the broker refuses {mechanism}; it offers PLAIN" in said


@pytest.mark.parametrize(
    ("protocol", "port", "reason"),
    [
        ("SASL_PLAINTEXT", "PLAINTEXT", "there is no login at this port"),
        ("SASL_PLAINTEXT", "SASL_SSL", "closed the connection"),
        ("SASL_SSL", "SASL_PLAINTEXT", "is this a port without TLS?"),
        ("SASL_SSL", "SSL", "wants one"),
    ],
)
async def test_a_login_at_a_port_that_is_for_something_else_is_said(
    secured: Secured, protocol: str, port: str, reason: str
) -> None:
    assert reason in await said_of(secured, protocol, port, **password("PLAIN"))


def start_towards(secured: Secured, valkey: Valkey, directory: Path, cluster: str, **settings: str) -> Served:
    """A node that logs in at the broker with these settings."""
    named = {f"KAFKA_{name.upper()}": value for name, value in settings.items()}
    return start(secured, valkey, directory, cluster, **{"KAFKA_SASL_USERNAME": "", "KAFKA_SASL_PASSWORD": "", **named})


@each_mechanism
async def test_a_node_whose_secret_goes_wrong_in_mid_stream_says_so_and_recovers(
    secured: Secured, valkey: Valkey, tmp_path: Path, mechanism: str, unique: Unique
) -> None:
    """Its sessions end and their renewal is refused; with the right secret back it is ready again, by itself. The
    broker forgets a SCRAM password, PLAIN's changes in its file, and the token endpoint refuses.
    """
    file, refuses = tmp_path / "password", asyncio.Event()

    def change(*, wrong: bool) -> None:
        if mechanism in SCRAM:
            secured.scram_user(NODE, mechanism, "another" if wrong else PASSWORD)
        file.write_text(WRONG if wrong else PASSWORD)
        (refuses.set if wrong else refuses.clear)()

    change(wrong=False)
    async with token_endpoint(LENIENT_SESSION_MS / 1_000, refuses.is_set) as url:
        settings = towards(mechanism, url)
        if mechanism == "PLAIN":
            settings |= {"sasl_password": "", "sasl_password_file": str(file)}
        served = await asyncio.to_thread(start_towards, secured, valkey, tmp_path, unique("c"), **settings)

        async def says(status: int) -> bool:
            return await asyncio.to_thread(served.node.status) == status

        try:
            change(wrong=True)
            reason = "invalid_client" if mechanism == "OAUTHBEARER" else "Authentication failed"

            async def is_said() -> bool:
                return await says(503) and reason in served.node.log  # the last token serves until its end

            await wait_for_async(is_said, "a node that is not ready", 60)
            change(wrong=False)
            await wait_for_async(lambda: says(200), "a node that is ready", 60)
        finally:
            change(wrong=False)
            await asyncio.to_thread(served.node.stop)


@each_mechanism
async def test_a_reloaded_authority_is_asked_by_new_connections_to_brokers_and_old_ones_go_on(
    secured: Secured, valkey: Valkey, tmp_path: Path, mechanism: str, unique: Unique
) -> None:
    """Each login of a client opens a connection to a broker; the node's own stay open, and their logins are renewed."""
    trusted, other = tmp_path / "trusted.pem", tmp_path / "other"
    other.mkdir()
    trusted.write_bytes(secured.authority.ca.read_bytes())
    async with token_endpoint() as url:
        settings = {**towards(mechanism, url), "ssl_ca": str(trusted)}
        served = await asyncio.to_thread(start_towards, secured, valkey, tmp_path, unique("c"), **settings)

        async def lets_in() -> bool:
            async with served.wire() as wire:
                try:
                    await wire.login(right(mechanism))
                except (LoginError, asyncio.IncompleteReadError, ConnectionError):
                    return False
                return await works(wire)

        async def refuses() -> bool:
            return not await lets_in()

        try:
            assert await lets_in()
            trusted.write_bytes(Authority(other, "other").ca.read_bytes())
            await wait_for_async(refuses, "a broker that is not trusted", 20)
            assert "its certificate is not trusted" in served.node.log
            await asyncio.sleep(LENIENT_SESSION_MS / 1_000)  # the sessions of the node's own connections end meanwhile
            assert await asyncio.to_thread(served.node.status) == 200
            trusted.write_bytes(secured.authority.ca.read_bytes())
            await wait_for_async(lets_in, "a broker that is trusted", 20)
        finally:
            await asyncio.to_thread(served.node.stop)
