"""Reads of a shadow's source by name (Fetch before version 13, ListOffsets, OffsetForLeaderEpoch), bound to the topic
that the shadow was created for.

Between the look-up of the source and the broker's answer the source may be deleted and created again. So a question
follows each of these reads on the same connection: has the broker the topic under its id still
(`sidecar.protocol.calls.topic_ids`)? The read's answer is kept until that is known. If the broker has not, the answer
counts as lost: the client looks the leaders up again, and so does the node, which then sees the other topic id.

Requests by topic id (Fetch from version 13 on) need no question, because brokers compare the id themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sidecar.cluster.brokers import CLIENT_ID
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.network.framing import Frame
from sidecar.network.upstream import Reply, UpstreamConnection, UpstreamLostError
from sidecar.protocol.caller import BadAnswerError, Request, decode_frame, encode_frame
from sidecar.protocol.primitives import Octets
from sidecar.shadow.views import Read

_CORRELATION: Final = 0
_ANOTHER: Final = "the source of the shadow was created again, or its leader cannot say"


def send_read(
    upstream: KafkaUpstream,
    connection: UpstreamConnection,
    message: Octets,
    reply: Reply,
    reads: Iterable[Read[Any]],
    *,
    by_id: bool,
) -> None:
    """Send a request for these reads. `by_id`: it names topics by id."""
    sources = {} if by_id else {read.log: (read.topic_id, read.part.partition) for read in reads if read.is_renamed}
    if not sources:
        connection.send_parts([message], reply)
        return
    read = _KeptRead(reply)
    connection.send_parts([message], read)
    check = upstream.topic_check(sources)
    connection.send_parts([encode_frame(check, _CORRELATION, CLIENT_ID)], _Check(read, check))


class _KeptRead:
    """The read: its answer is kept. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("correlation_id", "frame", "reply")

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.correlation_id = reply.correlation_id
        self.frame: Frame | None = None

    def answer_received(self, frame: Frame) -> None:
        self.frame = frame.own()

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.reply.answer_lost(error)


class _Check:
    """The question behind the read. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_question", "_read", "correlation_id")

    def __init__(self, read: _KeptRead, question: Request[bool]) -> None:
        self._read = read
        self._question = question
        self.correlation_id = _CORRELATION

    def answer_received(self, frame: Frame) -> None:
        kept = self._read.frame
        if kept is None:
            return
        try:
            is_same = decode_frame(self._question, _CORRELATION, frame.buffer, frame.start + 4, frame.end)
        except BadAnswerError:
            is_same = False
        if is_same:
            self._read.reply.answer_received(kept)
        else:
            self._read.reply.answer_lost(UpstreamLostError(_ANOTHER, sent=True))

    def answer_lost(self, error: UpstreamLostError) -> None:
        if self._read.frame is not None:
            self._read.reply.answer_lost(error)
