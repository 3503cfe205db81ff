"""What becomes of Kafka's answers to CreateTopics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.node import port
from sidecar.node.view.changes import Changes
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.admin import Outcome
from sidecar.protocol.errors import ErrorCode

CODES: dict[int, type[port.PortError]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: port.ConflictError,
    ErrorCode.INVALID_CONFIG: port.InvalidError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: port.ConflictError,
    ErrorCode.NOT_CONTROLLER: port.UnavailableError,
}


def creation(answer: Outcome | Exception) -> Changes:
    """On a node whose Kafka answers so. Setting a policy fails the test."""

    async def call(_broker: int, _request: object) -> dict[str, Outcome]:
        if isinstance(answer, Exception):
            raise answer
        return {"orders": answer}

    book = SimpleNamespace(exact=lambda _name: None)
    node: Any = SimpleNamespace(
        upstream=SimpleNamespace(call=call, controller=lambda: 1),
        resolver=SimpleNamespace(source=lambda _name: None),
        rooms=SimpleNamespace(governed=SimpleNamespace(env=SimpleNamespace(catalog=SimpleNamespace(book=book)))),
    )
    return Changes(node)


@pytest.mark.parametrize("code", CODES, ids=lambda code: ErrorCode(code).name)
async def test_a_refusal_of_kafkas_is_told_with_its_reason_and_sets_no_policy(code: int) -> None:
    with pytest.raises(CODES[code]) as refused:
        await creation(Outcome(code, "as Kafka says")).create_topic(port.NewTopic("orders"), port.Policy())
    assert "may have been done" not in str(refused.value)


@pytest.mark.parametrize(
    "answer", [Outcome(ErrorCode.REQUEST_TIMED_OUT, None), DisconnectedError("gone", sent=True)], ids=["code", "lost"]
)
async def test_an_answer_in_doubt_says_how_to_look(answer: Outcome | Exception) -> None:
    with pytest.raises(
        port.UnavailableError, match="may have been done anyway: check with `sidecar topic show orders`"
    ):
        await creation(answer).create_topic(port.NewTopic("orders"), port.Policy())
