"""What of a client's request is in the audit log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.gateway.audit import _listed, act_of
from sidecar.gateway.enforcement import AmendedExchange
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.slices import AtWork
from sidecar.protocol.limits import PORTION
from sidecar.protocol.messages.admin import DELETE_TOPICS
from sidecar.protocol.topic_ids import NO_TOPIC_ID

KNOWN, UNKNOWN = bytes(range(16)), bytes(15) + b"\x07"
CONNECTION = SimpleNamespace(peer="127.0.0.1:5", answer_ready=lambda _: None)
CLIENT = cast("Any", SimpleNamespace(identity=None, principal="User:alice", connection=CONNECTION))


def deletion(version: int, fields: dict[str, Any]) -> tuple[AmendedExchange, Request]:
    data = DELETE_TOPICS.encode_request(version, 1, b"tool", fields | {"timeout_ms": 1000})
    request = Request(20, version, 1, b"tool", Frame(bytearray(data), 0, len(data), True), 14 + len(b"tool"))
    return AmendedExchange(cast("Any", CONNECTION), request), request


@pytest.mark.parametrize("is_answered", [True, False])
async def test_topics_that_are_deleted_by_id_are_told_by_name_as_far_as_it_is_known(is_answered: bool) -> None:
    asked: list[tuple[str | None, bytes]] = [("orders", NO_TOPIC_ID), (None, KNOWN), (None, UNKNOWN)]
    named = [{"name": name, "topic_id": topic_id} for name, topic_id in asked]
    exchange, request = deletion(6, {"topics": named})
    if is_answered:
        rows = [("orders", NO_TOPIC_ID, 0), ("billing", KNOWN, 0), (None, UNKNOWN, 100)]
        responses = [{"name": name, "topic_id": found, "error_code": code} for name, found, code in rows]
        exchange.answer([DELETE_TOPICS.encode_answer(6, 1, {"responses": responses})])
    act = await act_of(CLIENT, exchange, request)
    assert act is not None
    by_id = ("billing" if is_answered else "id AAECAwQFBgcICQoLDA0ODw", "id AAAAAAAAAAAAAAAAAAAABw")
    assert act.on == ("orders", *by_id)
    assert act.errors == (("UNKNOWN_TOPIC_ID",) if is_answered else ())


async def test_topics_that_are_deleted_by_name_are_told_by_name() -> None:
    exchange, request = deletion(5, {"topic_names": ["orders", "billing"]})
    exchange.answer([DELETE_TOPICS.encode_answer(5, 1, {"responses": [{"name": "orders", "error_code": 0}]})])
    act = await act_of(CLIENT, exchange, request)
    assert act is not None
    assert act.on == ("orders", "billing")


async def test_what_names_thousands_is_put_together_in_portions() -> None:
    count = 4 * PORTION
    exchange, request = deletion(5, {"topic_names": [f"t{number}" for number in range(count)]})
    responses = [{"name": f"t{number}", "error_code": 29} for number in range(count)]
    exchange.answer([DELETE_TOPICS.encode_answer(5, 1, {"responses": responses})])
    before = AtWork.slices
    act = await act_of(CLIENT, exchange, request)
    assert act is not None
    assert (len(act.on), act.more, act.result) == (100, count - 100, "refused")
    reading = AtWork.slices - before
    steps = _listed(range(count))
    assert sum(1 for _ in steps) == 4
    assert reading >= 2 * 4
