"""What a setting takes: values read from text, and what is wrong with one, said so that "needs …" can follow. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from sidecar.settings.values import Address

_ESCAPED: Final = "In a user's name and password / ? # are written %2F %3F %23"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a setting takes: in words that follow "needs", and a pattern (ECMA 262) that every right value matches."""

    text: str
    pattern: str = ""


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
HOST_PORT: Final = Needs("host:port, such as 127.0.0.1:19092", rf"^\s*{ONE}$")
URL: Final = {"redis": r"^([rR][eE][dD][iI][sS]{1,2}|[uU][nN][iI][xX])://", "http": r"^[hH][tT][tT][pP][sS]?://"}
TEXT: Final = Needs("text", "^(.|\\s)+$")


def _not_empty(value: str | None) -> str | None:
    if value == "":
        raise ValueError("is empty")
    return value


Endpoint = Annotated[Address, BeforeValidator(_address, json_schema_input_type=str), HOST_PORT]
MaybeEndpoint = Annotated[Endpoint | None, HOST_PORT]
Target = Annotated[Endpoint, AfterValidator(_target)]
Flag = Annotated[bool, Needs("true or false")]
Level = Annotated[Literal["debug", "info", "warning", "error"], Needs("debug, info, warning or error")]
Format = Annotated[Literal["auto", "json", "console"], Needs("json, console or auto")]
Text = Annotated[str | None, AfterValidator(_not_empty), TEXT]
File = Annotated[str | None, AfterValidator(_not_empty), Needs("the path of a file", "^.+$")]
Count = Annotated[int, BeforeValidator(_no_flag), Needs("a whole number")]
Milliseconds = Annotated[int, BeforeValidator(_no_flag), Needs("a whole number of milliseconds")]
Bytes = Annotated[int, BeforeValidator(_no_flag), Needs("a whole number of bytes")]


def as_it_is(check: Callable[[str], object]) -> AfterValidator:
    """Has `check` raise ValueError for what is wrong; a value that is right stays as it was written."""

    def checked(value: str | None) -> str | None:
        if value is not None:
            check(value)
        return value

    return AfterValidator(checked)


class SettingsGroup(BaseSettings):
    """Settings that belong together. They are checked here and found by `sources`, which has to know where each value
    comes from.
    """

    @classmethod
    def settings_customise_sources(
        cls, *_: Any, init_settings: Any, **_sources: Any
    ) -> tuple[PydanticBaseSettingsSource]:
        """The values that a caller gives, and no others."""
        return (init_settings,)


def setting(default: Any, text: str, *, between: tuple[int, int] | None = None) -> Any:
    """A setting's default and its description for `--help`, the reference and editors. `between`: the bounds of a
    number, both included.
    """
    low, high = between or (None, None)
    return Field(default, description=text, ge=low, le=high)


def optional(text: str, example: str, default: Any = None) -> Any:
    """As `setting`, of one that is not set by default: `example` is a value that it may have."""
    return Field(default, description=text, examples=[example])


def check_header(value: str) -> str:
    """The name of a record header. Raises ValueError for none, or one that is too long."""
    if not 1 <= len(value.encode()) <= 255:
        raise ValueError("is not 1 to 255 bytes long")
    return value
