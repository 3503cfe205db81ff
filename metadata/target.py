"""What a Redis URL names: pure reading of text, nothing is resolved or opened.

The forms and the names of the options are those that Redis clients share, less everything that would change how a
script is sent: retries and timeouts are settings of the node.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMS: Final = "redis://[[user]:password@]host[:port][/db], rediss://… (TLS), unix://[[user]:password@]path[?db=N]"
_TLS_OPTIONS: Final = frozenset(
    {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname"}
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server is and how to log in. `path` is set for a Unix socket, else `host` and `port`."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Without credentials."""
        return self.path or f"{self.host}:{self.port}"


def parse_url(url: str) -> Target:
    """Read a Redis URL; certificates it names are loaded.

    TLS options: `ssl_ca_certs`, `ssl_ca_path` (default: the system's), `ssl_certfile`, `ssl_keyfile`, `ssl_password` (a
    client certificate), `ssl_check_hostname` (default true; the certificate itself is always verified).
    Raises ValueError; its message never holds a password.
    """
    parts, port = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls_options = {name: options.pop(name) for name in sorted(_TLS_OPTIONS & options.keys())}
    database = options.pop("db", "")
    if options:
        raise ValueError(f"unknown option in the Redis URL: {', '.join(sorted(options))}")
    if tls_options and parts.scheme != "rediss":
        raise ValueError(f"only rediss:// takes {', '.join(tls_options)} in the Redis URL")
    path = unquote(parts.path)
    on_socket = parts.scheme == "unix"
    if not on_socket:
        database = database or path.strip("/")
    if database and not (database.isascii() and database.isdecimal()):
        raise ValueError("the database in the Redis URL must be a number")
    user, password = unquote(parts.username or "") or None, unquote(parts.password or "") or None
    if user and not password:
        raise ValueError("the Redis URL names a user without a password")
    return Target(
        host=unquote(parts.hostname or "localhost"),
        port=port or 6379,
        path=path if on_socket else None,
        user=user,
        password=password,
        database=int(database or 0),
        tls=_tls(tls_options) if parts.scheme == "rediss" else None,
    )


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        _refuse()  # What the library says can hold a piece of the password.
    if (
        "://" not in url
        or parts.scheme not in ("redis", "rediss", "unix")
        or (parts.scheme == "unix" and not parts.path)
    ):
        _refuse()
    return parts, port


def _refuse() -> NoReturn:
    raise ValueError(f"the Redis URL is none of {_FORMS}") from None


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    check_hostname = options.get("ssl_check_hostname", "true").lower()
    if check_hostname not in ("true", "false"):
        raise ValueError("ssl_check_hostname in the Redis URL must be true or false")
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"))
        if "ssl_certfile" in options:
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password"))
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"a certificate that the Redis URL names cannot be used: {error.strerror or error}") from None
    context.check_hostname = check_hostname == "true"
    return context
