"""TLS sessions that clients resume at a node: by whose certificate they began counts, and whether it still holds."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from sidecar.security.tls import TlsFiles, client_context
from tests.certificates import Authority
from tests.frames import TIMEOUT
from tests.kafka.security.test_limits import VERSIONS, metric
from tests.nodes import running_node
from tests.rest import Rest
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.nodes import NodeProcess
    from tests.services import Services

_VERSIONS: Final = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
_LIFETIME_S: Final = 5
"""Of a certificate that ends while a test looks on: enough for a handshake on a busy machine."""
each_version = pytest.mark.parametrize("version", _VERSIONS, ids=["1.2", "1.3"])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def trusted(authority: Authority, tmp_path: Path) -> Path:
    """The file of authorities whose clients the node lets in."""
    found = tmp_path / "clients.pem"
    found.write_bytes(authority.ca.read_bytes())
    return found


@pytest.fixture
def node(services: Services, authority: Authority, trusted: Path, tmp_path: Path) -> Iterator[NodeProcess]:
    certificate, key = authority.issue("node", file="node")
    settings: dict[str, Any] = {
        "SECURITY_PROTOCOL": "SSL",
        "SSL_CERTIFICATE": str(certificate),
        "SSL_KEY": str(key),
        "SSL_CLIENT_AUTH": "required",
        "SSL_CA": str(trusted),
        "AUTHORIZER": "none",
    }
    with running_node(tmp_path, services.kafka_bootstrap, services.redis_url, **settings) as running:
        yield running


class Client:
    """Connects under one certificate, and remembers the session of its last connection."""

    def __init__(self, node: NodeProcess, authority: Authority, name: str, version: ssl.TLSVersion) -> None:
        host, port = node.bootstrap.split(":")
        self._place = (host, int(port))
        self._context = client_context(TlsFiles(*authority.issue(name, file=name), authority.ca))
        self._context.maximum_version = version
        self._session: ssl.SSLSession | None = None

    @contextmanager
    def connected(self, *, resumes: bool) -> Iterator[ssl.SSLSocket]:
        """A connection that was served; of TLS 1.3 the session comes behind the handshake. Raises OSError."""
        session = self._session if resumes else None
        assert (session is not None) == resumes
        with (
            socket.create_connection(self._place, TIMEOUT) as plain,
            self._context.wrap_socket(plain, server_hostname=self._place[0], session=session) as found,
        ):
            found.sendall(VERSIONS)
            if not found.recv(4):
                raise ConnectionResetError("the node has closed the connection")
            self._session = found.session
            yield found

    def is_refused(self, *, resumes: bool) -> bool:
        """Whether the node lets it in no more."""
        try:
            with self.connected(resumes=resumes):
                return False
        except OSError:
            return True


def principals(node: NodeProcess) -> dict[str, str]:
    """Who is connected, by address."""
    _, found = Rest(node.admin_url).call("GET", "/v1/clients")
    return {each["address"]: each["principal"] for each in found["items"]}


def address_of(client: ssl.SSLSocket) -> str:
    host, port = client.getsockname()
    return f"{host}:{port}"


@each_version
def test_a_client_that_comes_again_resumes_its_session_and_is_who_it_was(
    node: NodeProcess, authority: Authority, version: ssl.TLSVersion
) -> None:
    clients = {name: Client(node, authority, name, version) for name in ("alice", "bob")}
    for resumes in (False, True, True):  # a session that was resumed may be resumed again
        with ExitStack() as opened:
            for name, client in clients.items():
                found = opened.enter_context(client.connected(resumes=resumes))
                assert found.session_reused is resumes
                assert principals(node)[address_of(found)] == f"User:CN={name}"


@each_version
def test_who_is_trusted_no_more_does_not_come_in_by_a_session_of_before(
    node: NodeProcess, authority: Authority, trusted: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    (tmp_path / "other").mkdir()
    alice = Client(node, authority, "alice", version)
    with alice.connected(resumes=False):
        pass
    with alice.connected(resumes=True) as open_since:
        assert open_since.session_reused
        trusted.write_bytes(Authority(tmp_path / "other").ca.read_bytes())
        wait_for(lambda: alice.is_refused(resumes=True), "the end of the session that may be resumed", 20)
        assert alice.is_refused(resumes=False)
        assert "unable to get local issuer certificate" in node.log or "self-signed certificate" in node.log
        open_since.sendall(VERSIONS)
        assert open_since.recv(4), "an open connection goes on"


@each_version
def test_a_certificate_that_has_ended_since_does_not_come_in_by_its_session(
    node: NodeProcess, authority: Authority, version: ssl.TLSVersion
) -> None:
    authority.lifetime = timedelta(seconds=_LIFETIME_S)
    alice = Client(node, authority, "alice", version)
    ends_at = time.time() + _LIFETIME_S + 1
    with alice.connected(resumes=False):
        pass
    with alice.connected(resumes=True) as found:
        assert found.session_reused
    time.sleep(max(0.0, ends_at - time.time()))
    assert alice.is_refused(resumes=True)
    assert "expired since the session began" in node.log


@pytest.mark.parametrize("fault", ["cut", "garbage"])
def test_a_handshake_that_breaks_off_is_counted_and_others_go_on(
    node: NodeProcess, authority: Authority, fault: str
) -> None:
    failures = 'sidecar_tls_handshakes_total{result="failure"}'
    hello = ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=authority.ca).wrap_bio(ssl.MemoryBIO(), hello, server_hostname="node")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    begun = hello.read()[:100]
    before = metric(node, failures)
    host, port = node.bootstrap.split(":")
    with socket.create_connection((host, int(port)), TIMEOUT) as stranger:
        stranger.sendall(begun + (b"" if fault == "cut" else bytes(1_000)))
        if fault == "cut":
            stranger.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while stranger.recv(100):
                """An alert, until the end."""
    wait_for(lambda: metric(node, failures) == before + 1, "a handshake that failed", 20)
    with Client(node, authority, "alice", _VERSIONS[-1]).connected(resumes=False):
        pass


@each_version
def test_garbage_in_mid_stream_ends_the_connection_alone(
    node: NodeProcess, authority: Authority, version: ssl.TLSVersion
) -> None:
    alice, bob = (Client(node, authority, name, version) for name in ("alice", "bob"))
    with bob.connected(resumes=False) as other, ExitStack() as opened:
        found = opened.enter_context(alice.connected(resumes=False))
        plain = socket.socket(fileno=found.detach())
        opened.callback(plain.close)
        plain.settimeout(TIMEOUT)
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that no key of theirs has made
        with suppress(ConnectionError):
            while plain.recv(100):
                """An alert, until the end."""
        other.sendall(VERSIONS)
        assert other.recv(4)
