"""Whether a client's connection is read, by its state."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sidecar.network.budget import Budget
from sidecar.network.framing import Frame, Framer, Outbox
from sidecar.network.handling import Pause
from sidecar.network.replies import Replies


class PaperWire:
    def __init__(self) -> None:
        self.reads: list[bool] = []

    def read(self, on: bool) -> None:
        self.reads.append(on)


def of(framer: Framer) -> tuple[Budget, PaperWire]:
    budget, wire = Budget(framer, Replies(Outbox(), lambda *_: None), None, lambda *_, **__: None), PaperWire()
    budget.wire = cast("Any", wire)
    return budget, wire


@pytest.mark.parametrize(
    ("state", "is_read"),
    [
        ({}, True),
        ({"pauses": Pause.THROTTLED}, False),
        ({"pauses": Pause.HELD}, False),
        ({"pauses": Pause.HELD, "is_parked": True}, True),
        ({"pauses": Pause.HELD | Pause.CLIENT_FULL, "is_parked": True}, False),
        ({"pauses": Pause.HELD, "is_parked": True, "waiting": 31}, True),
        ({"pauses": Pause.HELD, "is_parked": True, "waiting": 32}, False),
        ({"starves": True}, False),
        ({"starves": True, "pauses": Pause.HELD, "is_parked": True}, False),
        ({"is_behind": True}, False),
    ],
    ids=str,
)
def test_a_connection_is_read_while_it_may_go_on_or_its_first_request_is_parked(
    state: dict[str, int], is_read: bool
) -> None:
    framer = Framer(1_000)
    budget, wire = of(framer)
    framer.is_behind = bool(state.pop("is_behind", False))
    budget.waiting.extend([Frame(bytearray(10), 0, 10, True)] * state.pop("waiting", 0))
    for name, value in state.items():
        setattr(budget, name, value)
    budget.settle()
    assert (budget.is_read, wire.reads) == (is_read, [] if is_read else [False])


def test_requests_are_taken_up_again_when_the_last_reason_is_taken_back() -> None:
    budget, wire = of(Framer(1_000))
    budget.pause(Pause.HELD)
    budget.pause(Pause.CLIENT_FULL)
    assert [budget.resume(reason) for reason in (Pause.HELD, Pause.HELD, Pause.CLIENT_FULL)] == [False, False, True]
    assert wire.reads == [False], "whoever takes up requests reads on after them"
    budget.settle()
    assert wire.reads == [False, True]
