"""What a setting is: its default and its description, what it takes, and what is wrong with a value, said so that
"needs …" can follow. Pure, without pydantic: a running node imports it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Annotated, Any, Final, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

_ESCAPED: Final = "In a user's name and password / ? # are written %2F %3F %23"


class Address(NamedTuple):
    """A host, by name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def wildcard(self) -> bool:
        """True for 0.0.0.0 and ::, at which nobody can be reached."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def loopback(self) -> bool:
        """True where only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def parse(cls, text: str) -> Address:
        """From `host:port` or `[IPv6]:port`. Raises ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError("an IPv6 address stands in brackets, as in [::1]:19092")
        if not colon or not host or any(c.isspace() or c in "/@," for c in host):
            raise ValueError("is not of the form host:port")
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            raise ValueError(f"has no port from 0 to 65535 behind the last colon but {port!r}")
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class Needs:
    """What a setting takes: in words that follow "needs", and a pattern (ECMA 262) that every right value matches.

    `read` makes a value of what was written, which is of the type `written` (None: of its own); `check` gets the value
    and gives the one that is taken. Both raise ValueError. `words`: it takes one of these.
    """

    text: str
    pattern: str = ""
    check: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    written: Any = None
    words: tuple[str, ...] = ()


def one_of(*words: str, text: str = "") -> Needs:
    """One of these words. `text`: how they are named, where not in this order."""
    return Needs(text or f"{', '.join(words[:-1])} or {words[-1]}", words=words)


def _address(value: Any) -> Address:
    return value if isinstance(value, Address) else Address.parse(str(value))


def _target(value: Address) -> Address:
    if value.wildcard or value.port == 0:
        raise ValueError("nobody can connect to a wildcard address or to port 0")
    return value


def split_addresses(value: Any) -> list[Any]:
    """The addresses of a list with commas. Raises ValueError for none."""
    found = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not found:
        raise ValueError("names no address")
    return list(cast("list[Any]", found))


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("is no number")  # noqa: TRY004 - pydantic collects ValueErrors
    return value


def check_redis_url(value: str) -> str:
    """The same. Raises ValueError for what no Redis client takes."""
    url = urlsplit(value)
    if url.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError(f"has scheme {url.scheme!r}")
    if url.scheme == "unix":
        return value
    _check_place(url)
    if not re.fullmatch(r"(/\d*)?", url.path):
        raise ValueError(f"names a database that is not a number. {_ESCAPED}")
    return value


def check_http_url(value: str) -> str:
    """Without a slash at its end. Raises ValueError for what is no URL of HTTP."""
    url = urlsplit(value)
    if url.scheme not in {"http", "https"}:
        raise ValueError(f"has scheme {url.scheme!r}")
    _check_place(url)
    return value.rstrip("/")


def check_registry_url(value: str | None) -> str | None:
    """As `check_http_url`, and nothing may stand after the path."""
    if value is None:
        return None
    url = urlsplit(value)
    if url.query or url.fragment:
        raise ValueError("has a query or a fragment")
    return check_http_url(value)


def _check_place(url: SplitResult) -> None:
    try:
        port = url.port
    except ValueError:  # its message holds what stands in place of a port: a piece of a password
        raise ValueError(f"has no port from 0 to 65535 behind its host. {_ESCAPED}") from None
    if not url.hostname:
        raise ValueError("names no host")
    if port == 0:
        raise ValueError("names port 0")


def check_cluster(value: str) -> str:
    """The same. Raises ValueError for a name that topics cannot bear."""
    # Without dots `sidecar.<cluster>.<topic>` has one reading; the suffixes are those of the internal topics.
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value):
        raise ValueError("has other characters, or is too long")
    if value.endswith(("_snapshots", "_events")):
        raise ValueError("would share internal topics with another cluster")
    return value


ONE: Final = r"[^\s/@,]+:[0-9]{1,5}\s*"
HOST_PORT: Final = Needs("host:port, such as 127.0.0.1:19092", rf"^\s*{ONE}$", read=_address, written=str)
URL: Final = {"redis": r"^([rR][eE][dD][iI][sS]{1,2}|[uU][nN][iI][xX])://", "http": r"^[hH][tT][tT][pP][sS]?://"}


HTTP_URL: Final = Needs("http://host:port/path or https://host/path", URL["http"])


def _not_empty(value: str | None) -> str | None:
    if value == "":
        raise ValueError("is empty")
    return value


Endpoint = Annotated[Address, HOST_PORT]
Target = Annotated[Address, replace(HOST_PORT, check=_target)]
Flag = Annotated[bool, Needs("true or false")]
RequiredText = Annotated[str, Needs("text", "^(.|\\s)+$")]
Text = Annotated[str | None, Needs("text", "^(.|\\s)+$", _not_empty)]
File = Annotated[str | None, Needs("the path of a file", "^.+$", _not_empty)]
Count = Annotated[int, Needs("a whole number", read=_no_flag)]
Milliseconds = Annotated[int, Needs("a whole number of milliseconds", read=_no_flag)]
Bytes = Annotated[int, Needs("a whole number of bytes", read=_no_flag)]
Protocol = Annotated[str, one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")]


def as_it_is(check: Callable[[str], object]) -> Callable[[Any], Any]:
    """Has `check` raise ValueError for what is wrong; a value that is right stays as it was written."""

    def checked(value: str | None) -> str | None:
        if value is not None:
            check(value)
        return value

    return checked


def setting(default: Any, text: str, *, between: tuple[int, int] | None = None, shown: bool = True) -> Any:
    """A setting's default and its description for `--help`, the reference and editors. `between`: the bounds of a
    number, both included. `shown`: False where its value may hold a password.
    """
    low, high = between or (None, None)
    return field(default=default, repr=shown, metadata={"description": text, "ge": low, "le": high})


def optional(text: str, example: str, default: Any = None, *, secret: bool = False, shown: bool = True) -> Any:
    """As `setting`, of one that is not set by default: `example` is a value that it may have. `secret`: it is never
    shown, and has no flag: a command line can be read by everybody on the machine.
    """
    metadata = {"description": text, "examples": [example], "secret": secret}
    return field(default=default, repr=shown and not secret, metadata=metadata)


def check_header(value: str) -> str:
    """The name of a record header. Raises ValueError for none, or one that is too long."""
    if not 1 <= len(value.encode()) <= 255:
        raise ValueError("is not 1 to 255 bytes long")
    return value


def check_token(token: str | None) -> str | None:
    """The same. Raises ValueError, without the token in it, for one that no HTTP header can carry."""
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise ValueError("has spaces or characters outside ASCII, which no HTTP header can carry")
    return token
