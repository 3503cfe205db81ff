"""All settings with their defaults, bounds and descriptions, for pydantic-settings.

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsConfigDict

from sidecar.settings.admin import Admin
from sidecar.settings.checks import (
    HOST_PORT,
    ONE,
    URL,
    Bytes,
    Count,
    Endpoint,
    Flag,
    Format,
    Level,
    MaybeEndpoint,
    Milliseconds,
    Needs,
    SettingsGroup,
    Target,
    check_cluster,
    check_header,
    check_http_url,
    check_redis_url,
    check_registry_url,
    optional,
    setting,
    split_addresses,
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

_GRACE: Final = 3_600_000
_LISTENER: Final = rf"\s*{NAME_PATTERN}://[^\s/@,]*:[0-9]{{1,5}}\s*"
_PROTOCOL: Final = rf"\s*{NAME_PATTERN}:[A-Za-z_]+\s*"
Header = Annotated[str, AfterValidator(check_header), Needs("text of 1 to 255 bytes", "^(.|\\s){1,255}$")]


def _listed(form: str, one: str, parse: Callable[[str], tuple[Any, ...]]) -> tuple[BeforeValidator, Needs]:
    """What a list in one text has to be: each like the pattern `one`, which people know as `form`."""

    def read(value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else parse(str(value))

    needs = Needs(f"{form}, separated by commas", f"^{one}(,{one})*$")
    return BeforeValidator(read, json_schema_input_type=str), needs


class Basics(SettingsGroup):
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
        Needs(
            "one or more host:port, separated by commas, such as kafka-1:9092,kafka-2:9092",
            rf"^[\s,]*{ONE}(,[\s,]*{ONE})*[\s,]*$",
        ),
    ] = setting(
        (Address("127.0.0.1", 9092),), "Brokers of the Kafka behind the sidecar, host:port, separated by commas."
    )
    redis_url: Annotated[
        str,
        AfterValidator(check_redis_url),
        Needs("redis://[user:password@]host:port/database, rediss:// for TLS or unix:// for a socket", URL["redis"]),
    ] = setting(
        "redis://127.0.0.1:6379/0",
        "Redis that arbitrates between nodes. It needs maxmemory-policy noeviction. With TLS:"
        " rediss://user:password@host:port/0?ssl_ca_certs=/etc/sidecar/redis-ca.pem.",
    )
    listen: Endpoint = setting(Address("127.0.0.1", 19092), "Address for Kafka clients.")
    advertise: MaybeEndpoint = optional(
        "Address that the node gives to clients; `listen` by default, required if that is a wildcard.",
        "127.0.0.1:19092",
    )
    listeners: Annotated[
        tuple[NamedAddress, ...], *_listed("NAME://host:port", _LISTENER, partial(parse_listeners, bound=True))
    ] = optional(
        "Several addresses for Kafka clients, each with a name: Kafka's `listeners`. In place of `listen`,"
        " `advertise` and `security_protocol`.",
        "INSIDE://0.0.0.0:19092,OUTSIDE://0.0.0.0:19093",
        (),
    )
    advertised_listeners: Annotated[
        tuple[NamedAddress, ...], *_listed("NAME://host:port", _LISTENER, partial(parse_listeners, bound=False))
    ] = optional(
        "Address that the node gives to clients of each listener: Kafka's `advertised.listeners`. By default the"
        " address in `listeners`, required where that is a wildcard.",
        "INSIDE://sidecar-1:19092,OUTSIDE://kafka.example:19093",
        (),
    )
    listener_security_protocol_map: Annotated[
        tuple[NamedProtocol, ...], *_listed("NAME:PROTOCOL", _PROTOCOL, parse_protocols)
    ] = optional(
        "How connections to each listener begin: Kafka's `listener.security.protocol.map`. A listener that is"
        " called like a protocol needs no entry.",
        "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
        (),
    )
    admin_listen: Endpoint = setting(Address("127.0.0.1", 18080), "Address for health, metrics and REST.")
    admin_advertise: MaybeEndpoint = optional(
        "Where other nodes reach `admin_listen`; by default that address, or the host of `advertise` if it is"
        " a wildcard.",
        "127.0.0.1:18080",
    )
    node_id: Count = setting(
        1, "Number of this node, unique in its cluster; clients see it as the broker id.", between=(0, 2**31 - 1)
    )
    cluster: Annotated[
        str,
        AfterValidator(check_cluster),
        Needs("1 to 64 letters, digits, - or _, not ending in _snapshots or _events", "^[A-Za-z0-9_-]{1,64}$"),
    ] = setting("default", "Name shared by the nodes that work together on one Kafka; part of internal topic names.")
    lease_ms: Milliseconds = setting(3_000, "How long a silent node keeps its topics.", between=(100, 600_000))
    reconnect_grace_ms: Milliseconds = setting(
        5_000, "How long a topic waits for its owner after the node that served it died.", between=(0, _GRACE)
    )
    disconnect_grace_ms: Milliseconds = setting(
        0, "How long a topic waits for its owner after the owner's last connection was closed.", between=(0, _GRACE)
    )
    admin_url: Annotated[str, AfterValidator(check_http_url), Needs("http://host:port", URL["http"])] = setting(
        DEFAULT_ADMIN_URL, "For tools: the admin address of a node."
    )
    deduplication: Flag = setting(
        False,
        "Deduplication by sequence id on every topic without a nearer policy. True governs all topics except"
        " internal ones, so none of them accepts transactions. Use the same value on all nodes.",
    )
    sequence_id_header: Header = setting("sidecar-sequence-id", "The record header that carries a sequence id.")
    producer_name_header: Header = setting("sidecar-producer-name", "The record header that carries a producer name.")
    producer_names_limit: Count = setting(
        10_000, "Producer names per partition whose highest sequence ids the node remembers.", between=(1, 10_000_000)
    )
    linger_ms: Milliseconds = setting(
        0, "How long the node collects batches of governed topics before it sends them to Kafka.", between=(0, 60_000)
    )
    linger_bytes: Bytes = setting(
        1024 * 1024,
        "Size of collected batches of governed topics at which the node sends them without waiting longer.",
        between=(16 * 1024, 64 * 1024 * 1024),
    )
    retry_buffer_bytes: Bytes = setting(
        32 * 1024 * 1024,
        "Batches of governed topics that may wait for Kafka; above that producers get 19 NOT_ENOUGH_REPLICAS.",
        between=(1, 2**40),
    )
    queue_limit: Count = setting(
        1_000, "Sessions that may wait for one topic (wait_for_exclusive).", between=(0, 1_000_000)
    )
    shared_fetch_max_wait_ms: Milliseconds = setting(
        5_000,
        "How long readers at the end of a log wait for a record at most, where thousands do: then they wait longer"
        " than they asked for (fetch.max.wait.ms), 5 ms for each of them. 0: never longer.",
        between=(0, 20_000),
    )
    shared_fetch_min_readers: Count = setting(
        4,
        "From how many readers of a partition on the node polls the broker once for all of them. Below that, each"
        " reader's own request goes to the broker, and gets a record a little earlier.",
        between=(2, 1_000_000),
    )
    schema_registry_url: Annotated[
        str | None,
        AfterValidator(check_registry_url),
        Needs(
            "http:// or https://[user:password@]host:port, with a path where the registry's API has one", URL["http"]
        ),
    ] = optional(
        "Schema registry with Confluent's API, which a node serves under /schemas, also for shadows. A name and"
        " password in it are sent if a request has none.",
        "http://127.0.0.1:8081",
    )
    kafka_connect_timeout_ms: Milliseconds = setting(
        3_000, "Timeout for opening a connection to a broker.", between=(10, 600_000)
    )
    kafka_request_timeout_ms: Milliseconds = setting(
        30_000, "Timeout for the node's own requests to Kafka.", between=(100, 3_600_000)
    )
    redis_timeout_ms: Milliseconds = setting(1_000, "Timeout for one answer of Redis.", between=(10, 600_000))
    max_request_bytes: Bytes = setting(
        100 * 1024 * 1024,
        "Largest Produce request a client may send; requests of other APIs may have 4 MiB.",
        between=(1_024, 2**31 - 1),
    )
    log_level: Level = setting("info", "The lowest level of events that are logged.")
    log_format: Format = setting("auto", "json: an event per line; console: for people; auto: console on a terminal.")

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


class Schema(TowardsKafka, Limits, Rules, Listener, Admin, Basics):
    """Settings of a sidecar node and of the tools that talk to it."""


def needs(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    words = next((each.text for each in field.metadata if isinstance(each, Needs)), "another value")
    bounds = [str(getattr(each, end)) for each in field.metadata for end in ("ge", "le") if hasattr(each, end)]
    return f"{words} from {' to '.join(bounds)}" if bounds else words


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
