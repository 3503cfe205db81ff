"""Inputs to begin with, made of Kafka's own definitions: messages of every API and version that name what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.gateway.apis.table import OWN_APIS
from tests.fuzz.calls import CALLS
from tests.sim import wire
from tests.unit.protocol import kio_entities

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS: Final = (
    "ordinary", "owned", "queued", "shared", "counted", "ledger", "split", "tallied", "guarded", "mirror",
)  # fmt: skip
_TEXTS: Final = (
    *TOPICS,
    "",
    "group",
    "range",
    "consumer",
    "SCRAM-SHA-256",
    "sidecar.default.owned",
    "__sidecar_default",
)
_IDS: Final[tuple[tuple[tuple[bytes, bytes], ...], ...]] = ((), ((b"sidecar-sequence-id", b"3"),))
_EACH: Final = 2
_ALL: Final[Any] = list(HealthCheck)


def batch(headers: tuple[tuple[bytes, bytes], ...] = (), producer_id: int = -1) -> bytes:
    """An ordinary one."""
    plain = producer_id < 0
    return wire.batch_of([wire.Writable(b"v", headers)], 1_760_000_000_000, producer_id, -1 if plain else 0, 0)


def kafka_bodies() -> Iterator[tuple[int, bytes]]:
    """The number of a call, and a body behind the client id: of each call a few, the same every time."""
    numbers = (st.sampled_from((0, 1, -1, 2, 4)), st.sampled_from((-1, 0, 1, 1000, 2**31 - 1)))
    by_type = {
        "string": st.sampled_from(_TEXTS),
        "int16": numbers[0],
        "int32": numbers[1],
        "int64": numbers[1],
        "records": st.sampled_from((b"", *(batch(headers, pid) for headers in _IDS for pid in (-1, 5)))),
    }
    with mock.patch.dict(kio_entities._BY_TYPE, by_type):
        for number, call in enumerate(CALLS):
            if call.key in OWN_APIS or not kio_entities.has(call.key, call.version):
                continue
            cls = kio_entities.entity(call.key, call.version, "request")
            for message in _some(kio_entities.messages(cls)):
                tags = b"\0" if kio_entities.is_flexible(cls) else b""
                yield number, tags + kio_entities.body(message)


def _some(strategy: st.SearchStrategy[Any]) -> list[Any]:
    found: list[Any] = []

    @settings(max_examples=_EACH, database=None, derandomize=True, deadline=None, suppress_health_check=_ALL)
    @given(strategy)
    def collect(message: Any) -> None:
        found.append(message)

    collect()
    return found
