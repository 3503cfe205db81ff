"""How a connection is made safe: TLS, and SASL PLAIN (RFC 4616, KIP-12, KIP-152), by the settings that librdkafka has.

`security.protocol` (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; PLAINTEXT where it is not given), `sasl.mechanism`
(PLAIN alone), `sasl.username`, `sasl.password`, `ssl.ca.location` (a file of PEM certificates; else the system's).
Passwords never stand in a message.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from sidecar.pipeline.errors import PipelineError
from sidecar.protocol.caller import FixedRequest, Request
from sidecar.protocol.primitives import Reader, Writer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

OPTIONS: Final = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PLAIN: Final = "PLAIN"


class Outcome(NamedTuple):
    """Error code and what the broker says about it."""

    error: int
    message: str


@dataclass(frozen=True, slots=True)
class SaslHandshake(FixedRequest):
    """Name the mechanism of what follows. Answered by the ones that the broker has."""

    api_key: ClassVar[int] = 17
    api_version: ClassVar[int] = 1

    mechanism: str

    def encode(self, writer: Writer) -> None:
        writer.string(self.mechanism)

    @classmethod
    def decode(cls, reader: Reader) -> Outcome:
        error = reader.i16()
        offered = [reader.string() for _ in range(reader.array(element_bytes=2))]
        return Outcome(error, f"it offers {', '.join(offered) or 'none'}")


@dataclass(frozen=True, slots=True, repr=False)
class SaslAuthenticate(FixedRequest):
    """The one message of PLAIN."""

    api_key: ClassVar[int] = 36
    api_version: ClassVar[int] = 0

    username: str
    password: str

    def encode(self, writer: Writer) -> None:
        writer.nullable_bytes(f"\0{self.username}\0{self.password}".encode())

    @classmethod
    def decode(cls, reader: Reader) -> Outcome:
        error, message = reader.i16(), reader.nullable_string()
        reader.nullable_bytes()
        return Outcome(error, message or "refused")


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """Checked settings of a connection; can be sent to executors."""

    tls: bool = False
    ca_file: str | None = None
    username: str | None = None
    password: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Security:
        """Raises `PipelineError` for a setting that is unknown, missing, or asks for what is not supported."""
        unknown = sorted(set(settings) - set(OPTIONS))
        if unknown:
            raise PipelineError(f"unknown setting {unknown[0]}: there are {', '.join(OPTIONS)}")
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise PipelineError(f"security.protocol {protocol!r}: it is one of {', '.join(_PROTOCOLS)}")
        tls, sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
        for name in settings:
            if (name.startswith("sasl.") and not sasl) or (name.startswith("ssl.") and not tls):
                raise PipelineError(f"{name} has no meaning with security.protocol {protocol}")
        if not sasl:
            return cls(tls, settings.get("ssl.ca.location"))
        if settings.get("sasl.mechanism", _PLAIN).upper() != _PLAIN:
            raise PipelineError(f"sasl.mechanism {settings['sasl.mechanism']!r}: only PLAIN is supported")
        for name in ("sasl.username", "sasl.password"):
            if not settings.get(name):
                raise PipelineError(f"security.protocol {protocol} needs {name}")
        return cls(tls, settings.get("ssl.ca.location"), settings["sasl.username"], settings["sasl.password"])

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        """The socket to speak through. Raises `OSError` for a handshake that fails, `PipelineError` for the file, and
        for a certificate that it does not vouch for.
        """
        if not self.tls:
            return connected
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise PipelineError(f"ssl.ca.location {self.ca_file}: {error}") from None
        try:
            return context.wrap_socket(connected, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            known = self.ca_file or "the system's certificates"
            raise PipelineError(f"ssl.ca.location: {known} do not vouch for {host}: {error.verify_message}") from None

    def log_in(self, call: Callable[[Request[Any]], Any]) -> None:
        """Authenticate where a name is given. Raises `PipelineError` where that is refused."""
        if self.username is None:
            return
        for request in (SaslHandshake(_PLAIN), SaslAuthenticate(self.username, self.password)):
            outcome: Outcome = call(request)
            if outcome.error:
                raise PipelineError(f"sasl.username {self.username} is not let in by {_PLAIN}: {outcome.message}")
