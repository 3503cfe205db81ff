"""Settings of what clients may take of a node: connections, time, memory, traffic. Imported while settings are being
read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic_settings import BaseSettings

from sidecar.network.admission import MOST_CONNECTIONS, parse_overrides
from sidecar.settings.checks import Needs, about, whole

_DAY_MS: Final = 86_400_000


def _overrides(value: str) -> str:
    parse_overrides(value)
    return value


class Limits(BaseSettings):
    """Per node, as Kafka's are per broker."""

    max_connections: Annotated[
        int,
        *whole(0, MOST_CONNECTIONS),
        about("Connections of clients: Kafka's `max.connections`. 0: as many as open files allow."),
    ] = 0
    max_connections_per_ip: Annotated[
        int,
        *whole(0, MOST_CONNECTIONS),
        about(
            "Connections from one address: Kafka's `max.connections.per.ip`. Of IPv6 a /64 counts as one. 0: half of"
            " all connections."
        ),
    ] = 0
    max_connections_per_ip_overrides: Annotated[
        str,
        AfterValidator(_overrides),
        about(
            "Addresses with another limit than that: Kafka's `max.connections.per.ip.overrides`. 0: none may connect."
            " An IPv6 address stands for its /64."
        ),
        Needs(
            "address:limit, separated by commas, such as 192.0.2.10:5000,[2001:db8::]:100", r"^[0-9A-Fa-f.:,\s\[\]]*$"
        ),
    ] = ""
    max_connections_per_principal: Annotated[
        int,
        *whole(0, MOST_CONNECTIONS),
        about("Connections of one principal, where clients authenticate. 0: no limit."),
    ] = 0
    max_connection_creation_rate: Annotated[
        int,
        *whole(0, 1_000_000),
        about(
            "New connections per second, averaged over 10 seconds: Kafka's `max.connection.creation.rate`. One address"
            " may have half of them. 0: no limit."
        ),
    ] = 1_000
    reserved_files: Annotated[
        int,
        *whole(0, 1_000_000),
        about(
            "Open files that clients never get: for the node's own connections and for the admin port. 0: three eighths"
            " of those that the process may open, 512 at most."
        ),
    ] = 0
    connections_max_idle_ms: Annotated[
        int,
        *whole(0, _DAY_MS, " of milliseconds"),
        about(
            "A client's connection without traffic is closed after this time: Kafka's `connections.max.idle.ms`. One"
            " that wrote to a governed topic or claimed something stays. 0: never."
        ),
    ] = 600_000
    login_timeout_ms: Annotated[
        int,
        *whole(100, 600_000, " of milliseconds"),
        about("How long a client may take for its TLS handshake, for its login, and without a login for a request."),
    ] = 10_000
    logins_at_once: Annotated[
        int,
        *whole(4, 10_000),
        about("Logins that are relayed to brokers at one time. One address may have a quarter of them."),
    ] = 64
    queued_max_request_bytes: Annotated[
        int,
        *whole(1024 * 1024, 2**40, " of bytes"),
        about(
            "Memory for requests of all clients that are being received, or wait: for a broker, a login, an owner, an"
            " earlier request. Kafka's `queued.max.request.bytes`. While it is used up clients that need more are not"
            " read; those that wait for nothing are, a little at a time."
        ),
    ] = 64 * 1024 * 1024
    queued_max_response_bytes: Annotated[
        int,
        *whole(1024 * 1024, 2**40, " of bytes"),
        about(
            "Memory for answers to all clients that are being received or were not read yet. While it is used up large"
            " answers of brokers wait, and connections are closed whose clients take nothing of their answers for a"
            " second; beyond twice of it the one with the most is closed at once."
        ),
    ] = 128 * 1024 * 1024
    quota_producer_byte_rate: Annotated[
        int,
        *whole(0, 2**40, " of bytes"),
        about("Bytes of Produce requests per second and principal: Kafka's `producer_byte_rate`. 0: no quota."),
    ] = 0
    quota_consumer_byte_rate: Annotated[
        int,
        *whole(0, 2**40, " of bytes"),
        about("Bytes of answers to Fetch per second and principal: Kafka's `consumer_byte_rate`. 0: no quota."),
    ] = 0
    quota_request_rate: Annotated[
        int,
        *whole(0, 10_000_000),
        about("Requests per second and principal, of any API. 0: no quota."),
    ] = 0
    shadow_max_readers: Annotated[
        int,
        *whole(0, 1_000_000),
        about(
            "Connections that may read one shadow at a node at a time; others get 6 NOT_LEADER_OR_FOLLOWER for it and"
            " ask again. 0: no bound."
        ),
    ] = 0
    shadow_consumer_byte_rate: Annotated[
        int,
        *whole(0, 2**40, " of bytes"),
        about(
            "Bytes of records per second that all readers of one shadow together get from a node; beyond that they are"
            " not read for a while, as with Kafka's `consumer_byte_rate`. 0: no bound."
        ),
    ] = 0
    log_limit: Annotated[
        int,
        *whole(1, 1_000_000),
        about(
            "Rejected clients and failed requests of one kind that are logged within 5 seconds. The rest is counted in"
            " `sidecar_log_events_left_out_total`."
        ),
    ] = 100
