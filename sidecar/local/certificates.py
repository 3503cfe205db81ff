"""A private certificate authority and the certificates that it signs, as PEM files that only their owner may read."""

import datetime as dt
import ipaddress
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM
_OF_AUTHORITY = dt.timedelta(days=3650)
_OF_SERVER = dt.timedelta(days=365)
_CLOCKS = dt.timedelta(days=1)
"""Certificates begin in the past: clocks of clients may be behind."""


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new key on the curve P-256, which every client knows."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey, password: str | None = None) -> bytes:
    """The key in PKCS #8, as Java reads it."""
    hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, hidden)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM text."""
    return certificate.public_bytes(_PEM)


def common_name(name: str) -> x509.Name:
    """A subject that consists of a common name only."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass(frozen=True, slots=True)
class Issuer:
    """A certificate issuer: its name and its key."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    def own(self, lifetime: dt.timedelta) -> x509.Certificate:
        """Its own certificate, with which others verify what it signs."""
        usage = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        builder = self._builder(self.name, self.key.public_key(), lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(
            x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False),
            critical=True,
        )
        return builder.sign(self.key, hashes.SHA256())

    def sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, hosts: Iterable[str], lifetime: dt.timedelta
    ) -> x509.Certificate:
        """A certificate for servers at these names and addresses, and for clients."""
        named = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])
        return (
            self._builder(subject, key, lifetime).add_extension(named, critical=False).sign(self.key, hashes.SHA256())
        )

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: dt.timedelta
    ) -> x509.CertificateBuilder:
        """A certificate builder with the key identifiers, without which OpenSSL in strict mode (Python from 3.13 on)
        refuses a certificate.
        """
        now = dt.datetime.now(dt.UTC)
        of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS)
            .not_valid_after(now + lifetime)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(of_issuer, critical=False)
        )


class Authority:
    """A certificate authority whose certificate, `ca.pem`, and key, `ca.key`, are stored in a directory. The
    certificate is valid for 10 years, and is replaced in the last year.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.ca = directory / "ca.pem"
        self._key_file = directory / "ca.key"
        self._issuer = self._kept() or self._made(name)

    def issue(self, name: str, hosts: Sequence[str]) -> bytes:
        """A new key and its certificate, valid for a year, with `name` as its subject, as PEM."""
        key = new_key()
        return key_pem(key) + certificate_pem(self._issuer.sign(common_name(name), key.public_key(), hosts, _OF_SERVER))

    def _kept(self) -> Issuer | None:
        if not (self.ca.exists() and self._key_file.exists()):
            return None
        own = x509.load_pem_x509_certificate(self.ca.read_bytes())
        if own.not_valid_after_utc < dt.datetime.now(dt.UTC) + _OF_SERVER:
            return None
        key = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return Issuer(own.subject, key)

    def _made(self, name: str) -> Issuer:
        issuer = Issuer(common_name(name), new_key())
        write_private(self._key_file, key_pem(issuer.key))
        write_private(self.ca, certificate_pem(issuer.own(_OF_AUTHORITY)))
        return issuer


def write_private(path: Path, content: bytes | str) -> Path:
    """Write a file of mode 0600, all of it or nothing. Returns `path`. Raises OSError."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return draft.replace(path)


def private_directory(path: Path) -> Path:
    """Create a directory, or change an existing one to mode 0700. Returns `path`. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
