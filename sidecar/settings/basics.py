"""Settings of a node itself: its addresses, its cluster, and how it treats topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from sidecar.settings.checks import (
    ONE,
    URL,
    Address,
    Bytes,
    Count,
    Endpoint,
    Flag,
    Milliseconds,
    Needs,
    Target,
    check_cluster,
    check_header,
    check_http_url,
    check_redis_url,
    check_registry_url,
    one_of,
    optional,
    setting,
    split_addresses,
)
from sidecar.settings.listeners import NAME_PATTERN, NamedAddress, NamedProtocol, parse_listeners, parse_protocols

DEFAULT_ADMIN_URL: Final = "http://127.0.0.1:18080"
_GRACE: Final = 3_600_000
_LISTENER: Final = rf"\s*{NAME_PATTERN}://[^\s/@,]*:[0-9]{{1,5}}\s*"
_PROTOCOL: Final = rf"\s*{NAME_PATTERN}:[A-Za-z_]+\s*"
Header = Annotated[str, Needs("text of 1 to 255 bytes", "^(.|\\s){1,255}$", check_header)]


def _listed(form: str, one: str, parse: Callable[[str], tuple[Any, ...]]) -> Needs:
    """What a list in one text has to be: each like the pattern `one`, which people know as `form`."""

    def read(value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else parse(str(value))

    return Needs(f"{form}, separated by commas", f"^{one}(,{one})*$", read=read, written=str)


Level = Annotated[str, one_of("debug", "info", "warning", "error")]
Format = Annotated[str, one_of("auto", "json", "console", text="json, console or auto")]


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Basics:
    """All but the admin port (`Admin`), how connections begin (`Listener`, `TowardsKafka`), and what clients may do
    (`Rules`) and take (`Limits`).
    """

    bootstrap_servers: Annotated[
        tuple[Target, ...],
        Needs(
            "one or more host:port, separated by commas, such as kafka-1:9092,kafka-2:9092",
            rf"^[\s,]*{ONE}(,[\s,]*{ONE})*[\s,]*$",
            read=split_addresses,
            written=str | list[str],
        ),
    ] = setting(
        (Address("127.0.0.1", 9092),), "Brokers of the Kafka behind the sidecar, host:port, separated by commas."
    )
    redis_url: Annotated[
        str,
        Needs(
            "redis://[user:password@]host:port/database, rediss:// for TLS or unix:// for a socket",
            URL["redis"],
            check_redis_url,
        ),
    ] = setting(
        "redis://127.0.0.1:6379/0",
        "Redis that arbitrates between nodes. It needs maxmemory-policy noeviction. With TLS:"
        " rediss://user:password@host:port/0?ssl_ca_certs=/etc/sidecar/redis-ca.pem.",
        shown=False,
    )
    listen: Endpoint = setting(Address("127.0.0.1", 19092), "Address for Kafka clients.")
    advertise: Endpoint = optional(
        "Address that the node gives to clients; `listen` by default, required if that is a wildcard.",
        "127.0.0.1:19092",
    )
    listeners: Annotated[
        tuple[NamedAddress, ...], _listed("NAME://host:port", _LISTENER, partial(parse_listeners, bound=True))
    ] = optional(
        "Several addresses for Kafka clients, each with a name: Kafka's `listeners`. In place of `listen`,"
        " `advertise` and `security_protocol`.",
        "INSIDE://0.0.0.0:19092,OUTSIDE://0.0.0.0:19093",
        (),
    )
    advertised_listeners: Annotated[
        tuple[NamedAddress, ...], _listed("NAME://host:port", _LISTENER, partial(parse_listeners, bound=False))
    ] = optional(
        "Address that the node gives to clients of each listener: Kafka's `advertised.listeners`. By default the"
        " address in `listeners`, required where that is a wildcard.",
        "INSIDE://sidecar-1:19092,OUTSIDE://kafka.example:19093",
        (),
    )
    listener_security_protocol_map: Annotated[
        tuple[NamedProtocol, ...], _listed("NAME:PROTOCOL", _PROTOCOL, parse_protocols)
    ] = optional(
        "How connections to each listener begin: Kafka's `listener.security.protocol.map`. A listener that is"
        " called like a protocol needs no entry.",
        "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
        (),
    )
    admin_listen: Endpoint = setting(Address("127.0.0.1", 18080), "Address for health, metrics and REST.")
    admin_advertise: Endpoint = optional(
        "Where other nodes reach `admin_listen`; by default that address, or the host of `advertise` if it is"
        " a wildcard.",
        "127.0.0.1:18080",
    )
    node_id: Count = setting(
        1, "Number of this node, unique in its cluster; clients see it as the broker id.", between=(0, 2**31 - 1)
    )
    cluster: Annotated[
        str,
        Needs(
            "1 to 64 letters, digits, - or _, not ending in _snapshots or _events",
            "^[A-Za-z0-9_-]{1,64}$",
            check_cluster,
        ),
    ] = setting("default", "Name shared by the nodes that work together on one Kafka; part of internal topic names.")
    lease_ms: Milliseconds = setting(3_000, "How long a silent node keeps its topics.", between=(100, 600_000))
    reconnect_grace_ms: Milliseconds = setting(
        5_000, "How long a topic waits for its owner after the node that served it died.", between=(0, _GRACE)
    )
    disconnect_grace_ms: Milliseconds = setting(
        0, "How long a topic waits for its owner after the owner's last connection was closed.", between=(0, _GRACE)
    )
    admin_url: Annotated[str, Needs("http://host:port", URL["http"], check_http_url)] = setting(
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
        Needs(
            "http:// or https://[user:password@]host:port, with a path where the registry's API has one",
            URL["http"],
            check_registry_url,
        ),
    ] = optional(
        "Schema registry with Confluent's API, which a node serves under /schemas, also for shadows. A name and"
        " password in it are sent if a request has none.",
        "http://127.0.0.1:8081",
        shown=False,
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
