"""What a node says of its readiness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.node.port import NodeState
from sidecar.node.view import NodeView


def running(failing: dict[str, str]) -> Any:
    return cast(
        Any,
        SimpleNamespace(
            state=NodeState.SERVING,
            problem="",
            one_redis=None,
            upstream=SimpleNamespace(view=SimpleNamespace(brokers={1: "here"})),
            rooms=SimpleNamespace(
                loops=SimpleNamespace(failing=lambda: failing),
                changelog=SimpleNamespace(tailer=SimpleNamespace(last_error=None)),
                membership=SimpleNamespace(available=True, problem=""),
            ),
        ),
    )


async def test_a_node_whose_loops_run_is_ready() -> None:
    assert all(check.ok for check in await NodeView(running({})).checks())


@pytest.mark.parametrize("name", ["keep-alive", "heartbeat"])
async def test_a_node_with_a_loop_that_keeps_failing_is_not_ready(name: str) -> None:
    (wrong,) = [check for check in await NodeView(running({name: "ValueError()"})).checks() if not check.ok]
    assert wrong.required
    assert wrong.detail == f"{name} keeps failing: ValueError()"
