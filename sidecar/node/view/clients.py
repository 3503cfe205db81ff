"""The clients connected to a node, as its HTTP side sees them: a page at a time, whatever their number."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from sidecar.exclusive.identity import shown_name
from sidecar.gateway.client import Client
from sidecar.node.port import ClientFacts

_AT_ONCE: Final = 100
"""Clients that are looked at before the loop may do something else."""


async def page_of(
    clients: Mapping[int, Client], node_id: int, after: int, most: int
) -> tuple[list[ClientFacts], int | None]:
    """`most` clients whose connections have ids above `after`, the oldest first, and the last id looked at where there
    are more. Ids rise and are never used again: a client that stays connected is on exactly one page of several.
    """
    ids = sorted(clients)
    start = bisect_right(ids, after)
    chosen = ids[start : start + most]
    found: list[ClientFacts] = []
    for number, each in enumerate(chosen):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        client = clients.get(each)  # it may have gone meanwhile
        if client is not None:
            found.append(_facts(client, node_id))
    return found, chosen[-1] if start + most < len(ids) else None


def _facts(client: Client, node_id: int) -> ClientFacts:
    identity, connection = client.identity, client.connection
    return ClientFacts(
        node_id=node_id,
        client_id="" if identity is None else shown_name(identity.raw.decode(errors="replace")),
        name="" if identity is None else identity.shown,
        mode=None if identity is None else identity.mode,
        software=(_shown(client.software.name), _shown(client.software.version)),
        principal=_principal(client),
        listener=client.listener,
        address=connection.peer,
        since_ms=connection.since_ms,
        requests=connection.requests,
        bytes_in=connection.bytes_in,
        bytes_out=connection.bytes_out,
        in_flight=connection.unanswered,
    )


def _principal(client: Client) -> str | None:
    """Whose it is; before its login nobody's."""
    return shown_name(client.principal) if client.login is None or client.login.done else None


def _shown(text: str) -> str | None:
    return shown_name(text) or None
