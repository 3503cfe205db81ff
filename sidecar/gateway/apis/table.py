"""All rows, and the tables that others read from them.

Everything that has no row is refused: an unknown key or version closes the connection (ApiVersions answers error 35).
So an API that a later Kafka adds can never bypass the rules of a node. Clients get the versions that are both in these
rows and served by every upstream broker, and choose the highest of them.
"""

import pkgutil
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from sidecar.gateway.apis.not_served import ROWS
from sidecar.gateway.apis.relays import relayed
from sidecar.gateway.apis.spec import ApiSpec, Services
from sidecar.gateway.client import Apis
from sidecar.protocol.api import OWN_KEYS, api_name
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.calls.admin import ServedVersions


def _rows() -> Iterable[ApiSpec]:
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return (import_module(f"{__package__}.{name}").SPEC for name in names if name[0] == "k" and name[1].isdigit())


ALL_APIS: Final[Mapping[int, ApiSpec]] = {row.key.value: row for row in sorted(_rows(), key=lambda row: row.key)}
"""Every API that is served, by its key. The keys are plain numbers: they are compared for every request."""
APIS: Final = {key: row for key, row in ALL_APIS.items() if key not in OWN_KEYS}
"""Kafka's own APIs."""
OWN_APIS: Final = {key: row for key, row in ALL_APIS.items() if key in OWN_KEYS}
"""The sidecar's own APIs. They are served to every client, but listed in ApiVersions only for clients whose software
name begins with `OWN_SOFTWARE`.
"""
NOT_SERVED: Final = {row.key.value: f"{api_name(row.key)}{row.kip}: {row.why}" for row in ROWS}
"""Why nodes do not serve the other APIs that brokers offer."""
NEWEST: Final = {key: row.last if row.newest is None else row.newest for key, row in APIS.items()} | {
    row.key.value: row.newest for row in ROWS
}
"""The newest version of each API that brokers of Kafka 4.4 offer their clients by ApiVersions. A broker that offers
more is of a newer Kafka: the tests that query one fail until all that it adds is served or in `NOT_SERVED`.
GetTelemetrySubscriptions and PushTelemetry are offered by brokers that have a reporter of metrics.
"""
AUDITED: Final = frozenset(key for key, row in ALL_APIS.items() if row.audit is not None)
FOR_SUPER_USERS: Final = frozenset(key for key, row in ALL_APIS.items() if row.for_super_users)
SHARED_LINKS: Final = {key: row.links for key, row in ALL_APIS.items() if row.links is not None}


def handlers(services: Services, rows: Mapping[int, ApiSpec] = ALL_APIS) -> Apis:
    """The handler of each API: its own, or a relay by its route."""
    hot = {key: row.hot(row, services) for key, row in rows.items() if row.hot is not None}
    cold = {
        key: relayed(row, services) if row.cold is None else row.cold(row, services)
        for key, row in rows.items()
        if row.hot is None
    }
    return Apis(hot, cold)


def served_versions(upstream: Mapping[int, ServedVersions]) -> list[VersionRange]:
    """The API versions that clients see: these rows, limited to the versions that every broker upstream serves.

    The lowest version of Produce is not raised: librdkafka refuses a broker without Produce v0 (KAFKA-18659).
    """
    ranges: list[VersionRange] = []
    for key, row in APIS.items():
        there = upstream.get(key)
        if there is None:
            continue
        low, high = max(row.first, there.lowest), min(row.last, there.highest)
        if low <= high:
            ranges.append(VersionRange(key, row.lowest_advertised if row.lowest_advertised < row.first else low, high))
    return ranges
