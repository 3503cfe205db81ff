"""Every API and version that a node serves, by number: the first thing that an input says."""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.gateway.apis.table import ALL_APIS
from sidecar.gateway.logins import VERSIONS as LOGINS


class Call(NamedTuple):
    """An API in one version."""

    key: int
    version: int


CALLS: Final = tuple(
    Call(key, version)
    for key, first, last in (
        *((api.key, min(api.first, api.lowest_advertised), api.last) for api in ALL_APIS.values()),
        *((served.key, served.min, served.max) for served in LOGINS),
    )
    for version in range(first, last + 1)
)
