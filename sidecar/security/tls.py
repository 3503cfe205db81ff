"""TLS on both sides: contexts from PEM files that are read again when they change, and the principal of a peer.

TLS 1.2 or newer. New connections get the current context (`files.MadeOfFiles`); open ones keep theirs. All certificates
in a CA file are trusted, intermediate authorities too, as in Java's trust stores.
"""

import ssl
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from sidecar.security.distinguished_names import CertificateError, subject_of
from sidecar.security.files import FileError
from sidecar.security.principal_mapping import PrincipalMapping

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"


class ClientAuth(Enum):
    """Whether clients show a certificate: Kafka's `ssl.client.auth`."""

    NONE = ssl.CERT_NONE
    REQUESTED = ssl.CERT_OPTIONAL
    REQUIRED = ssl.CERT_REQUIRED


class TlsFileError(FileError):
    """A file that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `certificate` holds the chain, its own certificate first; `key` is None where it holds the key, too.
    `ca`: the trusted authorities; without it a client trusts those of the system.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    key_password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, certificate: str | None, key: str | None, ca: str | None, key_password: str | None) -> "TlsFiles":
        """By their names, as settings have them."""
        paths = (None if name is None else Path(name) for name in (certificate, key, ca))
        return cls(*paths, key_password=key_password)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Those that there are."""
        return tuple(path for path in (self.certificate, self.key, self.ca) if path is not None)


def server_context(files: TlsFiles, client_auth: ClientAuth = ClientAuth.NONE) -> ssl.SSLContext:
    """For a listener. Raises TlsFileError."""
    if files.certificate is None:
        raise TlsFileError("a listener with TLS needs a certificate")
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION  # each would be a handshake that is not counted
    _load_certificate(context, files)
    if client_auth is not ClientAuth.NONE:
        if files.ca is None:
            raise TlsFileError("to ask clients for certificates takes a file of those that are trusted to sign them")
        _load_ca(context, files.ca)
        context.verify_mode = client_auth.value
    return context


def client_context(files: TlsFiles, *, check_hostname: bool = True) -> ssl.SSLContext:
    """For connections to a server, which always has to show a certificate that is trusted. Raises TlsFileError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname
    if files.certificate is not None:
        _load_certificate(context, files)
    if files.ca is not None:
        _load_ca(context, files.ca)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def pinned_context(certificate: Path, shown: TlsFiles) -> ssl.SSLContext:
    """For connections to the one server whose certificate this file holds, whatever host it names. Of `shown` the
    client's own certificate counts. Raises TlsFileError.
    """
    text = _check(certificate, _CERTIFICATE, "certificate")
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if shown.certificate is not None:
        _load_certificate(context, shown)
    begin = text.index(_CERTIFICATE)
    end = text.find(_END, begin)
    if end < 0:
        raise TlsFileError(f"the certificate in {certificate} has no end")
    _trust(context, certificate, text[begin : end + len(_END)] + b"\n")  # what is behind it signs others, too
    return context


def principal_of(peer: ssl.SSLObject | ssl.SSLSocket, mapping: PrincipalMapping) -> str:
    """The principal of the other end. Raises NoRuleError, CertificateError."""
    if has_expired(peer):
        raise CertificateError("its certificate has expired since the session began that it resumes")
    certificate = peer.getpeercert(binary_form=True)
    return mapping.principal(None if certificate is None else subject_of(certificate))


def has_expired(peer: ssl.SSLObject | ssl.SSLSocket) -> bool:
    """Whether the certificate of the other end has ended since the session began that this connection resumes.

    OpenSSL verifies certificates in full handshakes alone, and each resumption gives a new ticket: without this a
    client would go on for as long as it comes back in time. A context that was made anew resumes nothing.
    """
    ends = (peer.getpeercert() or {}).get("notAfter") if peer.session_reused else None
    return isinstance(ends, str) and ssl.cert_time_to_seconds(ends) <= time.time()


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    certificate = files.certificate
    assert certificate is not None
    key = files.key or certificate
    _check(certificate, _CERTIFICATE, "certificate")
    _check(key, b"PRIVATE KEY-----", "private key")
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        return files.key_password or ""

    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFileError(f"the key in {key} is not that of the certificate in {certificate}") from None
        if asked and not files.key_password:
            raise TlsFileError(f"the key in {key} is encrypted, and no password is set") from None
        if asked:
            raise TlsFileError(f"the key in {key} cannot be opened with its password") from None
        reason = error.reason or str(error)
        raise TlsFileError(f"certificate {certificate} with key {key} cannot be used: {reason}") from None
    except (OSError, ValueError) as error:
        raise TlsFileError(f"certificate {certificate} with key {key} cannot be used: {error}") from None


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    _trust(context, ca, _check(ca, _CERTIFICATE, "certificate"))


def _trust(context: ssl.SSLContext, ca: Path, text: bytes) -> None:
    try:
        context.load_verify_locations(cadata=text.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)
        raise TlsFileError(f"the trusted certificates in {ca} cannot be used: {reason}") from None


def _check(path: Path, mark: bytes, what: str) -> bytes:
    """What a file holds. Raises TlsFileError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TlsFileError(f"{path} cannot be read: {error.strerror}") from None
    if mark not in text:
        raise TlsFileError(f"there is no {what} in PEM form in {path}")
    return text
