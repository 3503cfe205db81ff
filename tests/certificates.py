"""Certificates for servers of tests."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sidecar.local.ports import HOST


def certificate(directory: Path) -> tuple[str, str]:
    """A self-signed one for this machine, and its key, both PEM; the first is left in `ca.pem` too."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = dt.datetime.now(dt.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = made.public_bytes(serialization.Encoding.PEM).decode()
    (directory / "ca.pem").write_text(chain)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return chain, key.private_bytes(serialization.Encoding.PEM, *form).decode()


class Authority:
    """Signs certificates, and leaves what it makes as PEM files in a directory: its own as `ca.pem`."""

    def __init__(self, directory: Path, name: str = "tests") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.lifetime = dt.timedelta(days=1)
        """How long certificates that are issued from now on are valid."""
        self.ca = directory / "ca.pem"
        made = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self, subject: x509.Name | str, *, file: str = "own", password: str | None = None, host: str = HOST
    ) -> tuple[Path, Path]:
        """Files with a certificate for `subject` (a name, or its common name) at an address, and with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        if isinstance(subject, str):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        made = self._builder(subject, key.public_key()).add_extension(alternative, critical=False)
        certificate, kept = self._directory / f"{file}.pem", self._directory / f"{file}-key.pem"
        certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden
        kept.write_bytes(key.private_bytes(*form))
        return certificate, kept

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + self.lifetime)
        )
