"""Settings of what clients may take of a node: connections, time, memory, traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from sidecar.protocol.limits import MOST_CONNECTIONS, MOST_ELEMENTS, OPENED_A_SECOND, SLICE
from sidecar.settings.checks import Bytes, Count, Flag, Milliseconds, Needs, setting

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Limits:
    """Per node, as Kafka's are per broker."""

    max_connections: Count = setting(
        0,
        "Connections of clients: Kafka's `max.connections`. 0: as many as open files allow.",
        between=(0, MOST_CONNECTIONS),
    )
    max_connections_per_ip: Count = setting(
        0,
        "Connections from one address: Kafka's `max.connections.per.ip`. Of IPv6 a /64 counts as one. 0: half of"
        " all connections.",
        between=(0, MOST_CONNECTIONS),
    )
    max_connections_per_ip_overrides: Annotated[
        str,
        Needs(
            "address:limit, separated by commas, such as 192.0.2.10:5000,[2001:db8::]:100", r"^[0-9A-Fa-f.:,\s\[\]]*$"
        ),
    ] = setting(
        "",
        "Addresses with another limit than that: Kafka's `max.connections.per.ip.overrides`. 0: none may connect."
        " An IPv6 address stands for its /64.",
    )
    max_connections_per_principal: Count = setting(
        0, "Connections of one principal, where clients authenticate. 0: no limit.", between=(0, MOST_CONNECTIONS)
    )
    max_claims_per_principal: Count = setting(
        10_000,
        "Free strings and reader claims that one principal may own, and places in their queues, where clients"
        " authenticate. 0: no limit but that of all, 100,000.",
        between=(0, 100_000),
    )
    max_connection_creation_rate: Count = setting(
        1_000,
        "New connections per second, averaged over 10 seconds: Kafka's `max.connection.creation.rate`. One address"
        " may have half of them. 0: no limit.",
        between=(0, 1_000_000),
    )
    reserved_files: Count = setting(
        0,
        "Open files that clients never get: for the node's own connections and for the admin port. 0: three eighths"
        " of those that the process may open, 512 at most.",
        between=(0, 1_000_000),
    )
    connections_max_idle_ms: Milliseconds = setting(
        600_000,
        "A client's connection without traffic is closed after this time: Kafka's `connections.max.idle.ms`. One"
        " that wrote to a governed topic or claimed something stays. 0: never.",
        between=(0, _DAY_MS),
    )
    login_timeout_ms: Milliseconds = setting(
        10_000,
        "How long a client may take for its TLS handshake, for its login, and without a login for a request.",
        between=(100, 600_000),
    )
    max_unfinished_handshakes: Count = setting(
        1_024,
        "Connections of one listener with TLS whose handshake is not finished. For one more the oldest is closed.",
        between=(16, MOST_CONNECTIONS),
    )
    logins_at_once: Count = setting(
        64,
        "Logins that are relayed to brokers at one time. One address may have a quarter of them.",
        between=(4, 10_000),
    )
    queued_max_request_bytes: Bytes = setting(
        64 * 1024 * 1024,
        "Memory for requests of all clients that are being received, or wait: for a broker, a login, an owner, an"
        " earlier request. Kafka's `queued.max.request.bytes`. While it is used up clients that need more are not"
        " read; those that wait for nothing are, a little at a time.",
        between=(1024 * 1024, 2**40),
    )
    queued_max_response_bytes: Bytes = setting(
        80 * 1024 * 1024,
        "Memory for answers to all clients that are being received or were not read yet. While it is used up large"
        " answers of brokers wait, and connections are closed whose clients take nothing of their answers for a"
        " second; beyond one and a half times of it the one with the most is closed at once. An answer counts until its"
        " client has taken all of it.",
        between=(1024 * 1024, 2**40),
    )
    max_request_elements: Count = setting(
        MOST_ELEMENTS,
        "Elements of all arrays of one request, some 10 µs of the node's time each: partitions of ListOffsets,"
        " DeleteRecords or OffsetForLeaderEpoch. Requests of other APIs may have as much less as by default, such as"
        " 20,000 of Fetch and 15,000 of Produce. A connection that sends more is closed.",
        between=(1_000, 10_000_000),
    )
    turn_elements: Count = setting(
        SLICE,
        "Elements of one client's requests that are taken up before other clients have their turn, some 10 µs each;"
        " a longer request is taken up so many at a time.",
        between=(16, 100_000),
    )
    decompression_byte_rate: Bytes = setting(
        OPENED_A_SECOND,
        "Bytes of records per second and connection that are decompressed to read their sequence ids, those of large"
        " batches. Beyond that batches wait, for two seconds at most, and have to come again.",
        between=(1024 * 1024, 2**40),
    )
    quota_producer_byte_rate: Bytes = setting(
        0,
        "Bytes of Produce requests per second and principal: Kafka's `producer_byte_rate`. 0: no quota.",
        between=(0, 2**40),
    )
    quota_consumer_byte_rate: Bytes = setting(
        0,
        "Bytes of answers to Fetch per second and principal: Kafka's `consumer_byte_rate`. 0: no quota.",
        between=(0, 2**40),
    )
    quota_request_rate: Count = setting(
        0, "Requests per second and principal, of any API. 0: no quota.", between=(0, 10_000_000)
    )
    client_quotas: Flag = setting(
        True,
        "Read Kafka's client quotas, and enforce them for what this node sends in its own name: governed batches, polls"
        " that readers share, and what brokers see under another user than the client's. Takes DESCRIBE_CONFIGS on the"
        " cluster.",
    )
    shadow_max_readers: Count = setting(
        0,
        "Connections that may read one shadow at a node at a time; others get 6 NOT_LEADER_OR_FOLLOWER for it and"
        " ask again. 0: no bound.",
        between=(0, 1_000_000),
    )
    shadow_consumer_byte_rate: Bytes = setting(
        0,
        "Bytes of records per second that all readers of one shadow together get from a node; beyond that they are"
        " not read for a while, as with Kafka's `consumer_byte_rate`. 0: no bound.",
        between=(0, 2**40),
    )
    log_limit: Count = setting(
        100,
        "Rejected clients and failed requests of one kind that are logged within 5 seconds. The rest is counted in"
        " `sidecar_log_events_left_out_total`.",
        between=(1, 1_000_000),
    )
