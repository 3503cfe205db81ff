"""What programs read of an event: the same that people do, and nothing where an earlier version wrote it."""

from __future__ import annotations

import json
from contextvars import copy_context
from typing import Any

import pytest

from sidecar.admin.judged import Behalf, JudgedRequest
from sidecar.admin.rest import server_sent
from sidecar.admin.shapes import EVENT
from sidecar.v1 import state_pb2 as state

SHADOW = state.Shadow(source="orders", allow=["User:audit"], auto_reset_backlog_entries=5)
RESET = state.CursorReset(group="audit", limit=5, partition=[0, 3], from_offset=[1, 2], to_offset=[9, 8])


def shown(kind: state.Event.Kind, detail: str = "", **details: Any) -> dict[str, Any]:
    """The event as JSON, without what all have."""
    record = state.Event(id=b"1", kind=kind, topic="orders", detail=detail)
    if details:
        record.details.CopyFrom(state.EventDetails(**details))
    return EVENT.to_json(record)


@pytest.mark.parametrize(
    ("kind", "said", "wanted"),
    [
        (state.Event.DEPOSED, {"by": "billing"}, {"by": "billing"}),
        (state.Event.CLAIMED, {"deposed": "billing"}, {"deposed": "billing"}),
        (state.Event.DEPOSED, {"reason": "shared producers write now"}, {"reason": "shared producers write now"}),
        (state.Event.POLICY, {"deleted": True}, {"deleted": True}),
        (
            state.Event.SHADOW,
            {"shadow": SHADOW},
            {"source": "orders", "allow": ["User:audit"], "auto_reset_backlog_entries": 5},
        ),
        (
            state.Event.SHADOW,
            {"shadow": state.Shadow(source="orders"), "long_allow": True},
            {"source": "orders", "auto_reset_backlog_entries": 0},
        ),
        (state.Event.SHADOW, {"closed": "the source is gone"}, {"closed": "the source is gone"}),
        (state.Event.SHADOW, {"closed": ""}, {"closed": ""}),
        (
            state.Event.SHADOW,
            {"reset": RESET},
            {
                "reset": {
                    "group": "audit",
                    "limit": 5,
                    "partitions": {"0": {"before": 1, "after": 9}, "3": {"before": 2, "after": 8}},
                }
            },
        ),
    ],
)
def test_details_are_an_object(kind: state.Event.Kind, said: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = shown(kind, "for people", **said)
    assert (found["details"], found["detail"]) == (wanted, "for people")


def test_a_policy_is_an_object_beside_its_text() -> None:
    body = '{"access_mode": "exclusive", "deduplication": true}'
    found = shown(state.Event.POLICY, body)
    assert (found["details"], found["detail"]) == ({"policy": json.loads(body)}, body)


@pytest.mark.parametrize("detail", ["deleted", '{"access_mode": "of tomorrow"}', "[1]", ""])
def test_a_policy_that_cannot_be_read_is_left_to_people(detail: str) -> None:
    found = shown(state.Event.POLICY, detail)
    assert "details" not in found
    assert found["detail"] == detail


def test_an_event_of_an_earlier_version_has_no_details() -> None:
    assert "details" not in shown(state.Event.DEPOSED, "by billing")


def test_an_event_of_a_newer_node_is_passed_over() -> None:
    newer = state.Event(kind=99)  # pyright: ignore[reportArgumentType]
    assert server_sent((7, newer)) == server_sent(None)
    assert server_sent((7, state.Event(kind=state.Event.POLICY))).startswith(b"id: 7\nevent: policy\ndata: {")


def test_who_may_not_see_producer_ids_sees_none_in_details() -> None:
    def seen() -> object:
        JudgedRequest(Behalf("anonymous", "10.0.0.9"), sees_ids=False).begin()
        return shown(state.Event.DEPOSED, by="pid:7")["details"]

    assert copy_context().run(seen) == {"by": "pid:***"}
