"""All settings with their defaults, bounds and descriptions, and how they are read and checked, with pydantic-settings.

Imported while settings are being read, never by a running node (`sidecar.settings`). Every problem is found in one go,
and each names the setting, where its value stood, the value, and what would be right.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.settings.told import SECRETS, Resolved, Told, full_name, text_of
from sidecar.settings.values import (
    DEDUPLICATES_ALL,
    DEFAULT_ADMIN_URL,
    ENV_PREFIX,
    Address,
    Problem,
    Settings,
    SettingsError,
    check_token,
    find_config,
    read_toml,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

_NOT_OURS: Final = ("SIDECAR_STATE_DIR", "SIDECAR_LOCAL_", "SIDECAR_PURE")
"""Beginnings of variables that belong to `sidecar up` and its embedded parts."""
_SECURITY: Final = re.compile(r"SIDECAR_(KAFKA_)?(TLS|SASL|SSL|SECURITY)(_(?!SERVICE_|PORT$|PORT_)|$)")
"""Variables that ask for TLS or SASL; a Kubernetes Service called so has others made (`…_SERVICE_HOST`, `…_PORT`)."""
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


def _addresses(value: Any) -> list[Any]:
    found = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not found:
        raise ValueError("names no address")
    return list(cast("list[Any]", found))


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("is no number")  # noqa: TRY004 - pydantic collects ValueErrors
    return value


def _redis_url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError(f"has scheme {url.scheme!r}")
    if url.scheme == "unix":
        return value
    _check_place(url)
    if not re.fullmatch(r"(/\d*)?", url.path):
        raise ValueError(f"names a database that is not a number. {_ESCAPED}")
    return value


def _http_url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in {"http", "https"}:
        raise ValueError(f"has scheme {url.scheme!r}")
    _check_place(url)
    return value.rstrip("/")


def _registry_url(value: str | None) -> str | None:
    if value is None:
        return None
    url = urlsplit(value)
    if url.query or url.fragment:
        raise ValueError("has a query or a fragment")
    return _http_url(value)


def _check_place(url: SplitResult) -> None:
    try:
        port = url.port
    except ValueError:  # its message holds what stands in place of a port: a piece of a password
        raise ValueError(f"has no port from 0 to 65535 behind its host. {_ESCAPED}") from None
    if not url.hostname:
        raise ValueError("names no host")
    if port == 0:
        raise ValueError("names port 0")


def _cluster(value: str) -> str:
    # Without dots `sidecar.<cluster>.<topic>` has one reading; the suffixes are those of the internal topics.
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value):
        raise ValueError("has other characters, or is too long")
    if value.endswith(("_snapshots", "_events")):
        raise ValueError("would share internal topics with another cluster")
    return value


Endpoint = Annotated[Address, BeforeValidator(_address, json_schema_input_type=str)]
Target = Annotated[Endpoint, AfterValidator(_target)]
Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

_ONE: Final = r"[^\s/@,]+:[0-9]{1,5}\s*"
_HOST_PORT: Final = Needs("host:port, such as 127.0.0.1:19092", rf"^\s*{_ONE}$")
_URL: Final = {"redis": r"^([rR][eE][dD][iI][sS]{1,2}|[uU][nN][iI][xX])://", "http": r"^[hH][tT][tT][pP][sS]?://"}
_YES_NO: Final = Needs("true or false")
_GRACE: Final = 3_600_000


def _whole(low: int, high: int, unit: str = "") -> Any:
    """Constraints of a whole number, both ends included, as metadata of a field."""
    return Field(ge=low, le=high), BeforeValidator(_no_flag), Needs(f"a whole number{unit} from {low} to {high}")


def _header(value: str) -> str:
    """The name of a record header. Raises ValueError for none, or one that is too long."""
    if not 1 <= len(value.encode()) <= 255:
        raise ValueError("is not 1 to 255 bytes long")
    return value


def _is(text: str, example: str | None = None) -> Any:
    """The description of a setting, for `--help`, the reference and editors, and a value where there is no default."""
    return Field(description=text, examples=None if example is None else [example])


class Schema(BaseSettings):
    """Settings of a sidecar node and of the tools that talk to it."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        enable_decoding=False,  # lists are written with commas, not as JSON
        env_ignore_empty=True,  # `${X:-}` in a compose file means "not set"
        extra="forbid",
        validate_default=True,
        title="sidecar.toml",
    )

    bootstrap_servers: Annotated[
        tuple[Target, ...],
        BeforeValidator(_addresses, json_schema_input_type=str | list[str]),
        _is("Brokers of the Kafka behind the sidecar, host:port, separated by commas."),
        Needs(
            "one or more host:port, separated by commas, such as kafka-1:9092,kafka-2:9092",
            rf"^[\s,]*{_ONE}(,[\s,]*{_ONE})*[\s,]*$",
        ),
    ] = (Address("127.0.0.1", 9092),)
    redis_url: Annotated[
        str,
        AfterValidator(_redis_url),
        _is("Redis that arbitrates between nodes. It needs maxmemory-policy noeviction."),
        Needs("redis://[user:password@]host:port/database, rediss:// for TLS or unix:// for a socket", _URL["redis"]),
    ] = "redis://127.0.0.1:6379/0"
    listen: Annotated[Endpoint, _is("Address for Kafka clients."), _HOST_PORT] = Address("127.0.0.1", 19092)
    advertise: Annotated[
        Endpoint | None,
        _is(
            "Address that the node gives to clients; `listen` by default, required if that is a wildcard.",
            "127.0.0.1:19092",
        ),
        _HOST_PORT,
    ] = None
    admin_listen: Annotated[Endpoint, _is("Address for health, metrics and REST."), _HOST_PORT] = Address(
        "127.0.0.1", 18080
    )
    admin_advertise: Annotated[
        Endpoint | None,
        _is(
            (
                "Where other nodes reach `admin_listen`; by default that address, or the host of `advertise` if it is"
                " a wildcard."
            ),
            "127.0.0.1:18080",
        ),
        _HOST_PORT,
    ] = None
    node_id: Annotated[
        int, *_whole(0, 2**31 - 1), _is("Number of this node, unique in its cluster; clients see it as the broker id.")
    ] = 1
    cluster: Annotated[
        str,
        AfterValidator(_cluster),
        _is("Name shared by the nodes that work together on one Kafka; part of internal topic names."),
        Needs("1 to 64 letters, digits, - or _, not ending in _snapshots or _events", "^[A-Za-z0-9_-]{1,64}$"),
    ] = "default"
    lease_ms: Annotated[
        int, *_whole(100, 600_000, " of milliseconds"), _is("How long a silent node keeps its topics.")
    ] = 3_000
    reconnect_grace_ms: Annotated[
        int,
        *_whole(0, _GRACE, " of milliseconds"),
        _is("How long a topic waits for its owner after the node that served it died."),
    ] = 5_000
    disconnect_grace_ms: Annotated[
        int,
        *_whole(0, _GRACE, " of milliseconds"),
        _is("How long a topic waits for its owner after the owner's last connection was closed."),
    ] = 0
    admin_url: Annotated[
        str,
        AfterValidator(_http_url),
        _is("For tools: the admin address of a node."),
        Needs("http://host:port", _URL["http"]),
    ] = DEFAULT_ADMIN_URL
    admin_token: Annotated[
        str | None,
        AfterValidator(check_token),
        _is("Bearer token for writes over HTTP. Without one they are accepted from loopback only.", "change-me"),
        Needs("text without spaces", "^[!-~]+$"),
    ] = None
    deduplication: Annotated[
        bool,
        _is(
            "Deduplication by sequence id on every topic without a nearer policy. True governs all topics except"
            " internal"
            " ones, so none of them accepts transactions. Use the same value on all nodes."
        ),
        _YES_NO,
    ] = False
    sequence_id_header: Annotated[
        str,
        AfterValidator(_header),
        _is("The record header that carries a sequence id."),
        Needs("text of 1 to 255 bytes", "^(.|\\s){1,255}$"),
    ] = "sidecar-sequence-id"
    producer_name_header: Annotated[
        str,
        AfterValidator(_header),
        _is("The record header that carries a producer name."),
        Needs("text of 1 to 255 bytes", "^(.|\\s){1,255}$"),
    ] = "sidecar-producer-name"
    producer_names_limit: Annotated[
        int,
        *_whole(1, 10_000_000),
        _is("Producer names per partition whose highest sequence ids the node remembers."),
    ] = 10_000
    linger_ms: Annotated[
        int,
        *_whole(0, 60_000, " of milliseconds"),
        _is("How long the node collects batches of governed topics before it sends them to Kafka."),
    ] = 0
    linger_bytes: Annotated[
        int,
        *_whole(16 * 1024, 64 * 1024 * 1024, " of bytes"),
        _is("Size of collected batches of governed topics at which the node sends them without waiting longer."),
    ] = 1024 * 1024
    retry_buffer_bytes: Annotated[
        int,
        *_whole(1, 2**40, " of bytes"),
        _is("Batches of governed topics that may wait for Kafka; above that producers get 19 NOT_ENOUGH_REPLICAS."),
    ] = 32 * 1024 * 1024
    queue_limit: Annotated[
        int, *_whole(0, 1_000_000), _is("Sessions that may wait for one topic (wait_for_exclusive).")
    ] = 1_000
    schema_registry_url: Annotated[
        str | None,
        AfterValidator(_registry_url),
        _is(
            "Schema registry with Confluent's API, which a node serves under /schemas, also for shadows. A name and"
            " password in it are sent if a request has none.",
            "http://127.0.0.1:8081",
        ),
        Needs(
            "http:// or https://[user:password@]host:port, with a path where the registry's API has one", _URL["http"]
        ),
    ] = None
    kafka_connect_timeout_ms: Annotated[
        int, *_whole(10, 600_000, " of milliseconds"), _is("Timeout for opening a connection to a broker.")
    ] = 3_000
    kafka_request_timeout_ms: Annotated[
        int,
        *_whole(100, 3_600_000, " of milliseconds"),
        _is("Timeout for the node's own requests to Kafka."),
    ] = 30_000
    redis_timeout_ms: Annotated[
        int, *_whole(10, 600_000, " of milliseconds"), _is("Timeout for one answer of Redis.")
    ] = 1_000
    max_request_bytes: Annotated[
        int,
        *_whole(1_024, 2**31 - 1, " of bytes"),
        _is("Largest Produce request a client may send; requests of other APIs may have 4 MiB."),
    ] = 100 * 1024 * 1024
    log_level: Annotated[
        Level, _is("The lowest level of events that are logged."), Needs("debug, info, warning or error")
    ] = "info"
    log_format: Annotated[
        Format,
        _is("json: an event per line; console: for people; auto: console on a terminal."),
        Needs("json, console or auto"),
    ] = "auto"

    @field_validator("advertise")
    @classmethod
    def _advertise(cls, value: Address | None, info: ValidationInfo) -> Address | None:
        listen: Address | None = info.data.get("listen")
        if value is None:
            if listen is not None and listen.wildcard:
                raise ValueError(
                    f"is required, as SIDECAR_LISTEN is {listen}: say at which address clients reach this node"
                )
            return listen
        if value.wildcard:
            raise ValueError("no client can connect to a wildcard address")
        if value.port == 0 and (listen is None or listen.port != 0):
            raise ValueError("no client can connect to port 0")
        return value

    @field_validator("admin_listen")
    @classmethod
    def _admin_listen(cls, value: Address, info: ValidationInfo) -> Address:
        listen: Address | None = info.data.get("listen")
        if listen is not None and value.port == listen.port != 0 and (value.host == listen.host or listen.wildcard):
            raise ValueError("is the address of SIDECAR_LISTEN: each needs a port of its own")
        return value

    @field_validator("admin_advertise")
    @classmethod
    def _admin_advertise(cls, value: Address | None, info: ValidationInfo) -> Address | None:
        listen: Address | None = info.data.get("admin_listen")
        advertise: Address | None = info.data.get("advertise")
        if value is None:
            return listen._replace(host=advertise.host) if listen and listen.wildcard and advertise else listen
        if value.wildcard or value.port == 0:
            raise ValueError("no node can connect to a wildcard address or to port 0")
        return value

    @classmethod
    def settings_customise_sources(
        cls, *_: Any, init_settings: Any, **_sources: Any
    ) -> tuple[PydanticBaseSettingsSource]:
        """`resolve` merges the sources by itself, as it has to know where each value comes from."""
        return (init_settings,)


def needs(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    return next((each.text for each in field.metadata if isinstance(each, Needs)), "another value")


def is_secret(name: str) -> bool:
    """True where the value is never shown."""
    return name in SECRETS


def shown_default(name: str) -> str:
    """The default as people write it, "" where there is none."""
    return text_of(name, Schema.model_fields[name].default)


def json_schema() -> dict[str, Any]:
    """JSON schema of sidecar.toml, for editors. It refuses nothing that is right; it cannot tell what fits together."""
    schema = Schema.model_json_schema(mode="validation")
    for name, found in schema["properties"].items():
        field = Schema.model_fields[name]
        kinds: list[dict[str, Any]] = [each for each in found.pop("anyOf", [found]) if each.get("type") != "null"]
        pattern = next((each.pattern for each in field.metadata if isinstance(each, Needs)), "")
        for kind in kinds:
            if kind.get("type") == "array":
                kind |= {"minItems": 1, "items": {"type": "string", "pattern": _HOST_PORT.pattern}}
            elif pattern:
                kind["pattern"] = pattern
        found.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
        found.update(title=full_name(name), description=f"{field.description} Takes {needs(field)}.")
        if field.default is None:
            found.pop("default", None)  # TOML has no null
        elif not isinstance(field.default, str | int):
            found["default"] = text_of(name, field.default)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def resolve(flags: Mapping[str, object], config: Path | None) -> Resolved:
    """See `sidecar.settings.resolve`."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    path = find_config(config)
    if path is not None:
        try:
            _take(_known(read_toml(path), path, problems), f"{path}", values, origins)
        except SettingsError as error:
            problems.extend(error.problems)
    _take(EnvSettingsSource(Schema)(), "environment", values, origins)
    problems.extend(_unserved_security())
    _take({name: value for name, value in flags.items() if value is not None}, "flag", values, origins)
    try:
        found = Schema(**values)
    except ValidationError as error:
        problems.extend(_problems(error, origins))
        raise SettingsError(problems, _unknown_variables()) from None
    if problems:
        raise SettingsError(problems, _unknown_variables())
    settings = Settings(**{name: getattr(found, name) for name in Schema.model_fields})
    given = {name: value for name, value in flags.items() if value is not None}
    told = Told(settings, origins, given, None if path is None else str(path))
    return Resolved(told, tuple(_warnings(settings)))


def _take(found: Mapping[str, Any], origin: str, values: dict[str, Any], origins: dict[str, str]) -> None:
    for name, value in found.items():
        values[name] = value
        origins[name] = origin


def _known(table: dict[str, Any], path: Path, problems: list[Problem]) -> dict[str, Any]:
    for key in sorted(table.keys() - Schema.model_fields.keys()):
        near = get_close_matches(key.lower(), Schema.model_fields, 1)
        advice = (
            f"there is no such setting; did you mean {near[0]}?" if near else "there is no such setting: take it out."
        )
        problems.append(Problem(key, str(path), "", advice))
    return {key: value for key, value in table.items() if key in Schema.model_fields}


def _problems(error: ValidationError, origins: Mapping[str, str]) -> list[Problem]:
    found: dict[str, Problem] = {}
    for each in error.errors(include_url=False):
        name = str(each["loc"][0])
        field = Schema.model_fields[name]
        said = str(each["ctx"]["error"]) if each["type"] == "value_error" and "ctx" in each else ""
        advice = (
            f"{said}. It needs {needs(field)}." if said and "required" not in said else said or f"needs {needs(field)}."
        )
        value = "" if name not in origins else text_of(name, each["input"])
        found.setdefault(name, Problem(full_name(name), origins.get(name, "not set"), value, advice))
    return list(found.values())


def _unserved_security() -> list[Problem]:
    """Whoever asks for security must not get a node without."""
    advice = "this version has no TLS and no SASL, to clients or to Kafka: keep both in a closed network; take it out"
    asked = sorted(name for name, value in os.environ.items() if value and _SECURITY.match(name.upper()))
    return [Problem(name, "environment", "", advice) for name in asked]


def _unknown_variables() -> list[Problem]:
    """A misspelt variable is told; it is no error, as orchestrators set some of their own."""
    known = {full_name(name) for name in Schema.model_fields}
    found: list[Problem] = []
    for name in sorted(os.environ):
        ours = name.startswith(ENV_PREFIX) and not name.startswith(_NOT_OURS)
        if ours and name.upper() not in known and not _SECURITY.match(name.upper()):
            near = get_close_matches(name, known, 1, cutoff=0.8)
            advice = f"ignored: there is no such setting{f'; did you mean {near[0]}?' if near else '.'}"
            found.append(Problem(name, "environment", "", advice))
    return found


def _warnings(settings: Settings) -> list[Problem]:
    found = _unknown_variables()
    if settings.redis_timeout_ms >= settings.lease_ms:
        advice = f"is not below SIDECAR_LEASE_MS ({settings.lease_ms}): one slow answer of Redis can cost the lease."
        found.append(Problem("SIDECAR_REDIS_TIMEOUT_MS", "settings", str(settings.redis_timeout_ms), advice))
    if settings.deduplication:
        found.append(Problem("SIDECAR_DEDUPLICATION", "settings", "true", DEDUPLICATES_ALL))
    return found
