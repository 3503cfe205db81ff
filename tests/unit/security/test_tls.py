"""Contexts from PEM files: who is let in, how a file that cannot be used is named, and how new ones are taken over."""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sidecar.security import files as watching
from sidecar.security.distinguished_names import CertificateError
from sidecar.security.files import LOOK_S, FileError, MadeOfFiles
from sidecar.security.principal_mapping import PrincipalMapping
from sidecar.security.tls import (
    ClientAuth,
    TlsFileError,
    TlsFiles,
    client_context,
    principal_of,
    server_context,
)
from tests.certificates import Authority

HOST = "127.0.0.1"


class Pair:
    """Both ends of one connection, in memory."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        host: str = HOST,
        *,
        resumes: ssl.SSLSession | None = None,
    ) -> None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(there, back, server_side=True)
        self.client = client.wrap_bio(back, there, server_hostname=host, session=resumes)

    def shake(self) -> Pair:
        """Until both are done. Raises ssl.SSLError."""
        waiting = [self.client, self.server]
        for _ in range(20):
            for end in [*waiting]:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                waiting.remove(end)
        assert not waiting
        return self


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(authority: Authority, subject: str = "node", **options: str) -> TlsFiles:
    certificate, key = authority.issue(subject, file=subject, **options)
    return TlsFiles(certificate, key, authority.ca)


def test_a_server_is_trusted_by_its_authority_and_host(authority: Authority, tmp_path: Path) -> None:
    server = server_context(files(authority))
    trusting = TlsFiles(ca=authority.ca)
    version = Pair(server, client_context(trusting)).shake().client.version()
    assert version == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        Pair(server, client_context(trusting), "127.0.0.2").shake()
    Pair(server, client_context(trusting, check_hostname=False), "127.0.0.2").shake()
    (tmp_path / "other").mkdir()
    stranger = TlsFiles(ca=Authority(tmp_path / "other").ca)
    for check in (True, False):
        with pytest.raises(ssl.SSLCertVerificationError):
            Pair(server, client_context(stranger, check_hostname=check)).shake()


def test_an_authority_of_the_system_is_not_one_of_the_tests(authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Pair(server_context(files(authority)), client_context(TlsFiles())).shake()


def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    for context in (server_context(files(authority)), client_context(TlsFiles(ca=authority.ca))):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_certificate_says_who_a_client_is(authority: Authority) -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*)$/$1/U")
    server = server_context(files(authority), ClientAuth.REQUIRED)
    assert principal_of(Pair(server, client_context(files(authority, "alice"))).shake().server, mapping) == "User:ALICE"


def session_of(pair: Pair) -> ssl.SSLSession | None:
    """What the client may resume; of TLS 1.3 it comes behind the handshake."""
    pair.server.write(b"x")
    assert pair.client.read(1) == b"x"
    return pair.client.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_expired_certificate_is_not_let_in_by_a_session_that_is_resumed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    """OpenSSL verifies none of the certificates of a session that goes on, and each time gives a new ticket."""
    server = server_context(files(authority), ClientAuth.REQUIRED)
    client = client_context(files(authority, "alice"))
    client.maximum_version = version
    session = session_of(Pair(server, client).shake())
    resumed = Pair(server, client, resumes=session).shake()
    assert resumed.server.session_reused
    assert principal_of(resumed.server, PrincipalMapping()) == "User:CN=alice"
    later = time.time() + 2 * authority.lifetime.total_seconds()
    monkeypatch.setattr("sidecar.security.tls.time.time", lambda: later)
    again = Pair(server, client, resumes=session_of(resumed)).shake()
    assert again.server.session_reused
    with pytest.raises(CertificateError, match="has expired"):
        principal_of(again.server, PrincipalMapping())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed_where_other_authorities_are_trusted_meanwhile_or_at_another_listener(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    own = files(authority)
    (tmp_path / "other").mkdir()
    client = client_context(files(authority, "alice"))
    client.maximum_version = version
    session = session_of(Pair(server_context(own, ClientAuth.REQUIRED), client).shake())
    rotated = replace(own, ca=Authority(tmp_path / "other").ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        Pair(server_context(rotated, ClientAuth.REQUIRED), client, resumes=session).shake()
    unknown = client_context(TlsFiles(ca=authority.ca))
    unknown.maximum_version = version
    anonymous = session_of(Pair(server_context(own), unknown).shake())
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        Pair(server_context(own, ClientAuth.REQUIRED), unknown, resumes=anonymous).shake()


def test_a_client_without_a_certificate_is_anonymous_or_refused(authority: Authority) -> None:
    own = files(authority)
    unknown = client_context(TlsFiles(ca=authority.ca))
    requested = Pair(server_context(own, ClientAuth.REQUESTED), unknown).shake()
    assert principal_of(requested.server, PrincipalMapping()) == "User:ANONYMOUS"
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        Pair(server_context(own, ClientAuth.REQUIRED), unknown).shake()


def test_a_client_of_another_authority_is_refused_where_certificates_are_requested(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = replace(files(Authority(tmp_path / "other")), ca=authority.ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        Pair(server_context(files(authority), ClientAuth.REQUESTED), client_context(stranger)).shake()


def test_a_key_may_stand_behind_its_certificate(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("node")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    Pair(server_context(TlsFiles(both)), client_context(TlsFiles(ca=authority.ca))).shake()


def test_a_key_may_be_encrypted(authority: Authority) -> None:
    own = files(authority, password="secret")
    Pair(server_context(replace(own, key_password="secret")), client_context(TlsFiles(ca=authority.ca))).shake()
    assert "secret" not in repr(replace(own, key_password="secret"))
    with pytest.raises(TlsFileError, match=r"node-key\.pem is encrypted, and no password is set"):
        server_context(own)
    with pytest.raises(TlsFileError, match=r"node-key\.pem cannot be opened with its password"):
        server_context(replace(own, key_password="other"))


def test_a_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    own = files(authority)
    other = files(authority, "other")
    empty = tmp_path / "empty.pem"
    empty.touch()
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    gone = tmp_path / "gone.pem"
    for wrong, why in (
        (TlsFiles(), "needs a certificate"),
        (replace(own, certificate=gone), r"gone\.pem cannot be read: No such file"),
        (replace(own, certificate=empty), r"no certificate in PEM form in .*empty\.pem"),
        (replace(own, certificate=damaged), r"damaged\.pem with key .*node-key\.pem cannot be used"),
        (replace(own, key=None), r"no private key in PEM form in .*node\.pem"),
        (replace(own, key=other.key), r"other-key\.pem is not that of the certificate in .*node\.pem"),
        (replace(own, ca=gone), r"gone\.pem cannot be read"),
        (replace(own, ca=damaged), r"trusted certificates in .*damaged\.pem cannot be used"),
        (replace(own, ca=None), "file of those that are trusted"),
    ):
        with pytest.raises(TlsFileError, match=why):
            server_context(wrong, ClientAuth.REQUIRED)


# Files that change ----------------------------------------------------------------------------------------------------


class Watched:
    """A server's context with a clock of its own, and what was told of it."""

    def __init__(self, own: TlsFiles) -> None:
        self.now = 0.0
        self.told: list[FileError | None] = []
        make = partial(server_context, own, ClientAuth.REQUESTED)
        self.context = MadeOfFiles(own.paths, make, self.told.append, lambda: self.now)

    def later(self) -> ssl.SSLContext:
        self.now += LOOK_S
        return self.context()


def serial(server: ssl.SSLContext, authority: Authority) -> object:
    certificate = Pair(server, client_context(TlsFiles(ca=authority.ca))).shake().client.getpeercert()
    assert certificate is not None
    return certificate["serialNumber"]


def test_new_files_are_for_new_connections(authority: Authority) -> None:
    watched = Watched(files(authority))
    first = watched.context()
    assert watched.later() is first
    before = serial(first, authority)
    files(authority)
    assert watched.context() is first  # the files were looked at a moment ago
    second = watched.later()
    assert serial(second, authority) != before
    assert serial(first, authority) == before
    assert watched.told == [None]


def test_files_that_cannot_be_used_leave_the_old_ones_and_are_told_once(authority: Authority) -> None:
    own = files(authority)
    watched = Watched(own)
    first = watched.context()
    assert own.key is not None
    own.key.write_text("nothing")
    for _ in range(3):
        assert watched.later() is first
    assert [str(error) for error in watched.told] == [f"there is no private key in PEM form in {own.key}"]
    own.key.unlink()
    assert watched.later() is first
    assert len(watched.told) == 2
    files(authority)
    assert watched.later() is not first
    assert watched.told[2] is None


def test_a_change_of_the_same_size_at_the_same_time_is_seen_by_the_inode(authority: Authority, tmp_path: Path) -> None:
    """Kubernetes replaces files by turning a symbolic link."""
    own = files(authority)
    watched = Watched(own)
    first = watched.context()
    old = authority.ca.stat()
    copy = tmp_path / "copy.pem"
    copy.write_bytes(authority.ca.read_bytes())
    os.utime(copy, ns=(old.st_atime_ns, old.st_mtime_ns))
    copy.replace(authority.ca)
    assert watched.later() is not first


def test_the_files_are_looked_at_once_a_second(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(files(authority))
    looked: list[Path] = []
    monkeypatch.setattr(watching, "_mark", looked.append)
    for _ in range(100):
        watched.now += LOOK_S / 50
        watched.context()
    assert len(looked) == 3 * 2


def test_a_first_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TlsFileError, match=r"gone\.pem"):
        Watched(TlsFiles(tmp_path / "gone.pem"))
