"""Certificates for servers of tests."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from cryptography import x509

from sidecar.local.certificates import Issuer, certificate_pem, common_name, key_pem, new_key
from sidecar.local.ports import HOST


def certificate(directory: Path) -> tuple[str, str]:
    """A self-signed one for this machine, and its key, both PEM; the first is left in `ca.pem` too."""
    issuer = Issuer(common_name(HOST), new_key())
    chain = certificate_pem(issuer.sign(issuer.name, issuer.key.public_key(), [HOST], dt.timedelta(days=1))).decode()
    (directory / "ca.pem").write_text(chain)
    return chain, key_pem(issuer.key).decode()


class Authority:
    """Signs certificates, and leaves what it makes as PEM files in a directory: its own as `ca.pem`."""

    def __init__(self, directory: Path, name: str = "tests") -> None:
        self._directory = directory
        self._issuer = Issuer(common_name(name), new_key())
        self.lifetime = dt.timedelta(days=1)
        """How long certificates that are issued from now on are valid."""
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(certificate_pem(self._issuer.own(self.lifetime)))

    def issue(
        self, subject: x509.Name | str, *, file: str = "own", password: str | None = None, host: str = HOST
    ) -> tuple[Path, Path]:
        """Files with a certificate for `subject` (a name, or its common name) at an address, and with its key."""
        key = new_key()
        named = common_name(subject) if isinstance(subject, str) else subject
        made = self._issuer.sign(named, key.public_key(), [host], self.lifetime)
        certificate, kept = self._directory / f"{file}.pem", self._directory / f"{file}-key.pem"
        certificate.write_bytes(certificate_pem(made))
        kept.write_bytes(key_pem(key, password))
        return certificate, kept
