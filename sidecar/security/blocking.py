"""Logs in on a blocking connection; Spark jobs use these."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from sidecar.security.credentials import Credentials
from sidecar.security.exchange import Connection, Session, login


def log_in(
    round_trip: Callable[[bytes], bytes], correlation_ids: Iterator[int], client_id: str, credentials: Credentials
) -> Session:
    """`round_trip` sends a whole request frame and returns the whole frame of its answer. Raises what `login` raises.

    It runs in a thread of its own: the caller's may run an event loop already, as in a notebook.
    """

    async def send(request: bytes) -> bytes:
        return round_trip(request)

    with ThreadPoolExecutor(1) as thread:
        connection = Connection(send, correlation_ids, client_id)
        return thread.submit(lambda: asyncio.run(login(connection, credentials))).result()
