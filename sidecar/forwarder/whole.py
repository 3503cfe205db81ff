"""A client's request that is passed to one leader unchanged, except for its header and the stamps of its batches.

The usual case of an owner's request, and the cheapest: neither request nor answer is encoded again. Each batch is in
its lane all the same. If the leader answers with an error, or not at all, each lane gets the outcome of its batch, as
for batches that it sent itself, and retries it if needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sidecar.forwarder.append import Outcome
from sidecar.protocol import produce_upstream
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import new_tuple

if TYPE_CHECKING:
    from sidecar.forwarder.append import Append
    from sidecar.forwarder.lane import Lane
    from sidecar.network.framing import Frame
    from sidecar.network.upstream import UpstreamLostError
    from sidecar.protocol.batch import Numbers
    from sidecar.protocol.produce import ProducePart


_NOT_ASKED: Final[dict[int, Outcome]] = {}


class Link(Protocol):
    """The connection that a request went out on."""

    def answered(self, reply: WholeReply) -> None:
        """A request of it has its answer, or will get none."""
        ...


class Asker(Protocol):
    """Who is to be answered: with the leader's answer as it is, or else with each batch's outcome, once."""

    correlation_id: int
    version: int

    def answer_frame(self, frame: Frame) -> None: ...
    def settle_outcome(self, part: ProducePart, outcome: Outcome) -> None: ...


class WholeRequest(NamedTuple):
    """A Produce request with acks=all for partitions of one topic and nothing besides. `body` is where in the owned
    frame the client id ends; `batches` are windows on that frame.
    """

    frame: Frame
    body: int
    timeout_ms: int
    batches: list[tuple[ProducePart, memoryview, Numbers]]
    asker: Asker


class WholeReply:
    """Waits for the answer to a whole request. Implements `sidecar.forwarder.brokers.UnderWay`."""

    __slots__ = ("_asker", "_link", "_sent", "correlation_id", "sent_at")

    def __init__(
        self, link: Link, correlation_id: int, asker: Asker, sent: list[tuple[Lane, Append]], sent_at: float
    ) -> None:
        self._link = link
        self._asker = asker
        self._sent = sent
        self.correlation_id = correlation_id
        self.sent_at = sent_at

    @property
    def partitions(self) -> list[tuple[bytes, int]]:
        return [(lane.topic, lane.partition) for lane, _ in self._sent]

    def answer_received(self, frame: Frame) -> None:
        asker = self._asker
        appended = self._appended(frame)
        if appended is None:
            outcomes = self._outcomes(frame)
            self._link.answered(self)
            sent, self._sent = self._sent, []
            for lane, append in sent:
                lane.settled(append, outcomes.get(lane.partition) or Outcome(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._link.answered(self)
        sent, self._sent = self._sent, []
        for lane, append in sent:
            lane.acknowledged(append, appended.get(lane.partition))
        produce_upstream.rename_answer(frame.buffer, frame.start, frame.end, asker.version, asker.correlation_id)
        asker.answer_frame(frame)

    def _appended(self, frame: Frame) -> dict[int, Outcome] | None:
        """Where the batches are in the log, as far as anybody wants to hear it; None where not all of them are."""
        place = frame.buffer, frame.start, frame.end, self._asker.version, len(self._sent)
        if self._sent[0][1].witness is None:  # with sequence ids all of a topic's batches have one
            return _NOT_ASKED if produce_upstream.all_appended(*place) else None
        found = produce_upstream.appended(*place)
        if found is None:
            return None
        return {partition: new_tuple(Outcome, (0, *told, None)) for partition, *told in found}

    def _outcomes(self, frame: Frame) -> dict[int, Outcome]:
        results, _ = produce_upstream.decode_answer(frame.buffer, frame.start, frame.end, self._asker.version)
        return {result.partition: Outcome.of(result) for result in results}

    def answer_lost(self, error: UpstreamLostError) -> None:
        self._link.answered(self)
        outcome = Outcome.lost(sent=error.sent)
        sent, self._sent = self._sent, []
        for lane, append in sent:
            lane.settled(append, outcome)
