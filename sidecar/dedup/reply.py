"""The answer that one batch waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.forwarder.outcome import Outcome
from sidecar.network.aside import Allowance

if TYPE_CHECKING:
    from sidecar.dedup.content import Content


@dataclass(slots=True, eq=False)
class Reply:
    """What a batch carries for its answer. `send` is called once, with the outcome.

    `topic_id`: the topic's id in the request (KIP-516), empty if the request has its name. `allowance`: the limit on
    what threads decompress for the batch's connection.
    """

    send: Callable[[Outcome], None]
    topic_id: bytes = b""
    allowance: Allowance = field(default_factory=Allowance)

    def answer(self, outcome: Outcome) -> None:
        """Answer the batch."""
        self.send(outcome)

    def out_of_turn(self, content: Content) -> Outcome | None:
        """The answer to a batch that its connection has sent too early or too late, by the ids in it; None: it may go
        on. Asked once, when the session may write.
        """
        return None
