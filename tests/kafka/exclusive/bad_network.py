"""The way between nodes in this process and Kafka's leaders, for the batches of governed topics: not to be relied on.

Nothing is invented. Of what is lost the answer does not come; what is late is given up before it gets there, if it ever
does.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sidecar.forwarder import forwarder as links
from sidecar.forwarder import gathered
from sidecar.network.framing import Frame
from sidecar.network.upstream import Reply, UpstreamConnection, UpstreamLostError
from sidecar.protocol.primitives import Octets

Send = Callable[[links.LeaderLink, UpstreamConnection, list[Octets], links.UnderWay, int], None]


@dataclass
class Nobody:
    """Waits for an answer that nobody wants any more. Implements `sidecar.network.upstream.Reply`."""

    correlation_id: int

    def answer_received(self, frame: Frame) -> None: ...
    def answer_lost(self, error: UpstreamLostError) -> None: ...


class BadNetwork:
    """`lost` and `late` are shares of the requests, `happened` says how many it were."""

    def __init__(self, rng: random.Random, patch: pytest.MonkeyPatch) -> None:
        self.lost, self.late = 0.05, 0.0
        self.happened: Counter[str] = Counter()
        self._random = rng
        patch.setattr(links.LeaderLink, "_send", self._delaying(links.LeaderLink._send))
        for kind in (gathered.GatheredReply, links.WholeReply):
            patch.setattr(kind, "answer_received", self._losing(kind.answer_received))

    def _happens(self, what: str, share: float) -> bool:
        happens = self._random.random() < share
        self.happened[what] += happens
        return happens

    def _losing(self, told: Callable[[Any, Frame], None]) -> Callable[[Any, Frame], None]:
        def received(reply: Any, frame: Frame) -> None:
            if self._happens("lost", self.lost):
                # Noticed at once: with more written behind it Kafka would not know the batch again (KIP-98).
                reply.answer_lost(UpstreamLostError("lost", sent=True))
            else:
                told(reply, frame)

        return received

    def _delaying(self, send: Send) -> Send:
        def sent(
            link: links.LeaderLink,
            connection: UpstreamConnection,
            message: list[Octets],
            reply: links.UnderWay,
            timeout_ms: int,
        ) -> None:
            if not self._happens("late", self.late):
                send(link, connection, message, reply, timeout_ms)
                return
            later, rng = asyncio.get_running_loop().call_later, self._random
            later(rng.choice([0.0, 0.0, 0.05, 0.3]), reply.answer_lost, UpstreamLostError("late", sent=True))
            if rng.random() < 0.5:
                copy: list[Octets] = [bytes(part) for part in message]  # its client may have the buffer back by then
                nobody: Reply = Nobody(reply.correlation_id)
                later(rng.uniform(0.0, 1.0), connection.send_parts, copy, nobody)

        return sent
