"""An authority on disk: what it signs is trusted, also by a strict OpenSSL, and it is kept while it holds."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509

from sidecar.local import certificates
from sidecar.local.certificates import Authority, private_directory, write_private


def shake_hands(keys: Path, ca: Path, host: str) -> None:
    """Raises ssl.SSLError where a client that checks everything does not trust the server."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=ca)
    server.load_cert_chain(keys)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.settimeout(10)

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except ssl.SSLError:
            theirs.close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with client.wrap_socket(ours, server_hostname=host) as connection:
            connection.recv(1)
    finally:
        ours.close()
        serving.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "node-1.example.com"])
def test_what_it_signs_is_trusted_for_each_host_it_names(tmp_path: Path, host: str) -> None:
    authority = Authority(tmp_path, "tests")
    keys = write_private(tmp_path / "own.pem", authority.issue("own", ["127.0.0.1", "localhost", "node-1.example.com"]))
    shake_hands(keys, authority.ca, host)


def test_it_is_trusted_for_no_other_host_and_by_nobody_else(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    keys = write_private(tmp_path / "own.pem", Authority(tmp_path, "tests").issue("own", ["localhost"]))
    for ca, host in ((tmp_path / "ca.pem", "example.com"), (Authority(other, "tests").ca, "localhost")):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(keys, ca, host)


def test_an_authority_is_kept_and_made_anew_in_its_last_year(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr(certificates, "_OF_AUTHORITY", dt.timedelta(days=364))
        first = Authority(tmp_path, "tests").ca.read_bytes()
    second = Authority(tmp_path, "tests").ca.read_bytes()
    assert second != first
    kept = Authority(tmp_path, "other name")
    assert kept.ca.read_bytes() == second
    keys = write_private(tmp_path / "own.pem", kept.issue("own", ["localhost"]))
    shake_hands(keys, kept.ca, "localhost")


def test_without_its_key_it_is_made_anew(tmp_path: Path) -> None:
    first = Authority(tmp_path, "tests").ca.read_bytes()
    (tmp_path / "ca.key").unlink()
    assert Authority(tmp_path, "tests").ca.read_bytes() != first


def test_a_certificate_holds_for_a_year_and_names_its_subject(tmp_path: Path) -> None:
    (made,) = x509.load_pem_x509_certificates(Authority(tmp_path, "tests").issue("kafka", ["127.0.0.1"]))
    assert made.subject.rfc4514_string() == "CN=kafka"
    assert dt.timedelta(days=364) < made.not_valid_after_utc - dt.datetime.now(dt.UTC) <= dt.timedelta(days=365)
    assert made.not_valid_before_utc < dt.datetime.now(dt.UTC)


def test_private_files_are_private_whatever_was_there(tmp_path: Path) -> None:
    directory = tmp_path / "open"
    directory.mkdir(mode=0o755)
    old, draft = directory / "secret", directory / "secret.new"
    for each in (old, draft):
        each.write_text("old")
        each.chmod(0o644)
    write_private(private_directory(directory) / "secret", "new")
    assert old.read_text() == "new"
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [path.name for path in directory.iterdir()] == ["secret"]
