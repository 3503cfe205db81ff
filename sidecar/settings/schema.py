"""All settings with their defaults, bounds and descriptions, for pydantic-settings.

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.settings.admin import Admin
from sidecar.settings.checks import (
    HOST_PORT,
    ONE,
    URL,
    YES_NO,
    Endpoint,
    Format,
    Level,
    Needs,
    Target,
    about,
    check_cluster,
    check_header,
    check_http_url,
    check_redis_url,
    check_registry_url,
    split_addresses,
    whole,
)
from sidecar.settings.limits import Limits
from sidecar.settings.listener import Listener
from sidecar.settings.listeners import (
    NAME_PATTERN,
    OWN_SETTINGS,
    PREFIX,
    NamedAddress,
    NamedProtocol,
    parse_listeners,
    parse_protocols,
    protocol_of,
)
from sidecar.settings.loaded import SECRETS, full_name, text_of
from sidecar.settings.rules import Rules
from sidecar.settings.towards_kafka import TowardsKafka
from sidecar.settings.values import DEFAULT_ADMIN_URL, ENV_PREFIX, Address

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_GRACE: Final = 3_600_000
_LISTENER: Final = rf"\s*{NAME_PATTERN}://[^\s/@,]*:[0-9]{{1,5}}\s*"
_PROTOCOL: Final = rf"\s*{NAME_PATTERN}:[A-Za-z_]+\s*"
_HEADER: Final = (AfterValidator(check_header), Needs("text of 1 to 255 bytes", "^(.|\\s){1,255}$"))


def _listed(form: str, one: str, parse: Callable[[str], tuple[Any, ...]]) -> tuple[BeforeValidator, Needs]:
    """What a list in one text has to be: each like the pattern `one`, which people know as `form`."""

    def read(value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else parse(str(value))

    return (
        BeforeValidator(read, json_schema_input_type=str),
        Needs(f"{form}, separated by commas", f"^{one}(,{one})*$"),
    )


class Basics(BaseSettings):
    """All but the admin port (`Admin`), how connections begin (`Listener`, `TowardsKafka`), and what clients may do
    (`Rules`) and take (`Limits`).
    """

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
        BeforeValidator(split_addresses, json_schema_input_type=str | list[str]),
        about("Brokers of the Kafka behind the sidecar, host:port, separated by commas."),
        Needs(
            "one or more host:port, separated by commas, such as kafka-1:9092,kafka-2:9092",
            rf"^[\s,]*{ONE}(,[\s,]*{ONE})*[\s,]*$",
        ),
    ] = (Address("127.0.0.1", 9092),)
    redis_url: Annotated[
        str,
        AfterValidator(check_redis_url),
        about(
            "Redis that arbitrates between nodes. It needs maxmemory-policy noeviction. With TLS:"
            " rediss://user:password@host:port/0?ssl_ca_certs=/etc/sidecar/redis-ca.pem."
        ),
        Needs("redis://[user:password@]host:port/database, rediss:// for TLS or unix:// for a socket", URL["redis"]),
    ] = "redis://127.0.0.1:6379/0"
    listen: Annotated[Endpoint, about("Address for Kafka clients."), HOST_PORT] = Address("127.0.0.1", 19092)
    advertise: Annotated[
        Endpoint | None,
        about(
            "Address that the node gives to clients; `listen` by default, required if that is a wildcard.",
            "127.0.0.1:19092",
        ),
        HOST_PORT,
    ] = None
    listeners: Annotated[
        tuple[NamedAddress, ...],
        *_listed("NAME://host:port", _LISTENER, partial(parse_listeners, bound=True)),
        about(
            "Several addresses for Kafka clients, each with a name: Kafka's `listeners`. In place of `listen`,"
            " `advertise` and `security_protocol`.",
            "INSIDE://0.0.0.0:19092,OUTSIDE://0.0.0.0:19093",
        ),
    ] = ()
    advertised_listeners: Annotated[
        tuple[NamedAddress, ...],
        *_listed("NAME://host:port", _LISTENER, partial(parse_listeners, bound=False)),
        about(
            "Address that the node gives to clients of each listener: Kafka's `advertised.listeners`. By default the"
            " address in `listeners`, required where that is a wildcard.",
            "INSIDE://sidecar-1:19092,OUTSIDE://kafka.example:19093",
        ),
    ] = ()
    listener_security_protocol_map: Annotated[
        tuple[NamedProtocol, ...],
        *_listed("NAME:PROTOCOL", _PROTOCOL, parse_protocols),
        about(
            "How connections to each listener begin: Kafka's `listener.security.protocol.map`. A listener that is"
            " called like a protocol needs no entry.",
            "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
        ),
    ] = ()
    admin_listen: Annotated[Endpoint, about("Address for health, metrics and REST."), HOST_PORT] = Address(
        "127.0.0.1", 18080
    )
    admin_advertise: Annotated[
        Endpoint | None,
        about(
            (
                "Where other nodes reach `admin_listen`; by default that address, or the host of `advertise` if it is"
                " a wildcard."
            ),
            "127.0.0.1:18080",
        ),
        HOST_PORT,
    ] = None
    node_id: Annotated[
        int, *whole(0, 2**31 - 1), about("Number of this node, unique in its cluster; clients see it as the broker id.")
    ] = 1
    cluster: Annotated[
        str,
        AfterValidator(check_cluster),
        about("Name shared by the nodes that work together on one Kafka; part of internal topic names."),
        Needs("1 to 64 letters, digits, - or _, not ending in _snapshots or _events", "^[A-Za-z0-9_-]{1,64}$"),
    ] = "default"
    lease_ms: Annotated[
        int, *whole(100, 600_000, " of milliseconds"), about("How long a silent node keeps its topics.")
    ] = 3_000
    reconnect_grace_ms: Annotated[
        int,
        *whole(0, _GRACE, " of milliseconds"),
        about("How long a topic waits for its owner after the node that served it died."),
    ] = 5_000
    disconnect_grace_ms: Annotated[
        int,
        *whole(0, _GRACE, " of milliseconds"),
        about("How long a topic waits for its owner after the owner's last connection was closed."),
    ] = 0
    admin_url: Annotated[
        str,
        AfterValidator(check_http_url),
        about("For tools: the admin address of a node."),
        Needs("http://host:port", URL["http"]),
    ] = DEFAULT_ADMIN_URL
    deduplication: Annotated[
        bool,
        about(
            "Deduplication by sequence id on every topic without a nearer policy. True governs all topics except"
            " internal ones, so none of them accepts transactions. Use the same value on all nodes."
        ),
        YES_NO,
    ] = False
    sequence_id_header: Annotated[str, *_HEADER, about("The record header that carries a sequence id.")] = (
        "sidecar-sequence-id"
    )
    producer_name_header: Annotated[str, *_HEADER, about("The record header that carries a producer name.")] = (
        "sidecar-producer-name"
    )
    producer_names_limit: Annotated[
        int,
        *whole(1, 10_000_000),
        about("Producer names per partition whose highest sequence ids the node remembers."),
    ] = 10_000
    linger_ms: Annotated[
        int,
        *whole(0, 60_000, " of milliseconds"),
        about("How long the node collects batches of governed topics before it sends them to Kafka."),
    ] = 0
    linger_bytes: Annotated[
        int,
        *whole(16 * 1024, 64 * 1024 * 1024, " of bytes"),
        about("Size of collected batches of governed topics at which the node sends them without waiting longer."),
    ] = 1024 * 1024
    retry_buffer_bytes: Annotated[
        int,
        *whole(1, 2**40, " of bytes"),
        about("Batches of governed topics that may wait for Kafka; above that producers get 19 NOT_ENOUGH_REPLICAS."),
    ] = 32 * 1024 * 1024
    queue_limit: Annotated[
        int, *whole(0, 1_000_000), about("Sessions that may wait for one topic (wait_for_exclusive).")
    ] = 1_000
    shared_fetch_max_wait_ms: Annotated[
        int,
        *whole(0, 20_000, " of milliseconds"),
        about(
            "How long readers at the end of a log wait for a record at most, where thousands do: then they wait longer"
            " than they asked for (fetch.max.wait.ms), 2 ms for each of them. 0: never longer."
        ),
    ] = 5_000
    shared_fetch_min_readers: Annotated[
        int,
        *whole(2, 1_000_000),
        about(
            "From how many readers of a partition on the node polls the broker once for all of them. Below that, each"
            " reader's own request goes to the broker, and gets a record a little earlier."
        ),
    ] = 4
    schema_registry_url: Annotated[
        str | None,
        AfterValidator(check_registry_url),
        about(
            "Schema registry with Confluent's API, which a node serves under /schemas, also for shadows. A name and"
            " password in it are sent if a request has none.",
            "http://127.0.0.1:8081",
        ),
        Needs(
            "http:// or https://[user:password@]host:port, with a path where the registry's API has one", URL["http"]
        ),
    ] = None
    kafka_connect_timeout_ms: Annotated[
        int, *whole(10, 600_000, " of milliseconds"), about("Timeout for opening a connection to a broker.")
    ] = 3_000
    kafka_request_timeout_ms: Annotated[
        int,
        *whole(100, 3_600_000, " of milliseconds"),
        about("Timeout for the node's own requests to Kafka."),
    ] = 30_000
    redis_timeout_ms: Annotated[
        int, *whole(10, 600_000, " of milliseconds"), about("Timeout for one answer of Redis.")
    ] = 1_000
    max_request_bytes: Annotated[
        int,
        *whole(1_024, 2**31 - 1, " of bytes"),
        about("Largest Produce request a client may send; requests of other APIs may have 4 MiB."),
    ] = 100 * 1024 * 1024
    log_level: Annotated[
        Level, about("The lowest level of events that are logged."), Needs("debug, info, warning or error")
    ] = "info"
    log_format: Annotated[
        Format,
        about("json: an event per line; console: for people; auto: console on a terminal."),
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

    @field_validator("advertised_listeners")
    @classmethod
    def _advertised_listeners(cls, value: tuple[NamedAddress, ...], info: ValidationInfo) -> tuple[NamedAddress, ...]:
        bound = {each.name: each.address for each in info.data.get("listeners", ())}
        if not bound:
            return value  # `sidecar.settings.listener` says what is wrong with it
        for name, address in value:
            if name not in bound:
                raise ValueError(f"names {name}, which SIDECAR_LISTENERS does not: that has {', '.join(bound)}")
            if address.wildcard:
                raise ValueError(f"gives {name} a wildcard address, to which no client can connect")
            if address.port == 0 and bound[name].port != 0:
                raise ValueError(f"gives {name} port 0, to which no client can connect")
        advertised = {each.name for each in value}
        if missing := [name for name, address in bound.items() if address.wildcard and name not in advertised]:
            raise ValueError(
                f"is required for {', '.join(missing)}, which SIDECAR_LISTENERS has at a wildcard address: say at which"
                " address clients reach this node"
            )
        return value

    @field_validator("listener_security_protocol_map")
    @classmethod
    def _protocol_map(cls, value: tuple[NamedProtocol, ...], info: ValidationInfo) -> tuple[NamedProtocol, ...]:
        names = [each.name for each in info.data.get("listeners", ())]
        if missing := [name for name in names if protocol_of(name, value) is None]:
            raise ValueError(f"is required for {', '.join(missing)}: it says with which protocol a listener begins")
        return value

    @field_validator("admin_listen")
    @classmethod
    def _admin_listen(cls, value: Address, info: ValidationInfo) -> Address:
        named: tuple[NamedAddress, ...] = info.data.get("listeners", ())
        listen: Address | None = info.data.get("listen")
        taken = [each.address for each in named] or ([] if listen is None else [listen])
        if any(value.port == one.port != 0 and (value.host == one.host or one.wildcard) for one in taken):
            name = "SIDECAR_LISTENERS" if named else "SIDECAR_LISTEN"
            raise ValueError(f"is the address of {name}: each needs a port of its own")
        return value

    @field_validator("admin_advertise")
    @classmethod
    def _admin_advertise(cls, value: Address | None, info: ValidationInfo) -> Address | None:
        listen: Address | None = info.data.get("admin_listen")
        advertise: Address | None = info.data.get("advertise")
        named = info.data.get("advertised_listeners") or info.data.get("listeners") or ()
        if value is None:
            if named:  # by the first of them
                advertise = named[0].address
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


class Schema(TowardsKafka, Limits, Rules, Listener, Admin, Basics):
    """Settings of a sidecar node and of the tools that talk to it."""


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
    """JSON schema of sidecar.toml, for editors. It refuses nothing that is right; it cannot check what fits
    together.
    """
    schema = Schema.model_json_schema(mode="validation")
    for name, found in schema["properties"].items():
        field = Schema.model_fields[name]
        kinds: list[dict[str, Any]] = [each for each in found.pop("anyOf", [found]) if each.get("type") != "null"]
        pattern = next((each.pattern for each in field.metadata if isinstance(each, Needs)), "")
        for kind in kinds:
            if kind.get("type") == "array":
                kind |= {"minItems": 1, "items": {"type": "string", "pattern": HOST_PORT.pattern}}
            elif pattern:
                kind["pattern"] = pattern
        found.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
        found.update(title=full_name(name), description=f"{field.description} Takes {needs(field)}.")
        if field.default is None or field.default == ():
            found.pop("default", None)  # TOML has no null
        elif not isinstance(field.default, str | int):
            found["default"] = text_of(name, field.default)
    own = {name: schema["properties"][name] for name in OWN_SETTINGS}
    schema["patternProperties"] = {
        f"^{PREFIX}[a-z0-9_]+_{name}$": {
            **{key: value for key, value in found.items() if key != "default"},
            "title": f"{full_name(PREFIX)}<NAME>_{name.upper()}",
            "description": f"`{name}` of one listener. {found['description']}",
        }
        for name, found in own.items()
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
