"""A read by name of a shadow's source counts only if the broker has that topic behind it, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.source_check import send_read
from sidecar.network.framing import Frame
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import fetch
from sidecar.protocol.calls.admin import ServedVersions
from sidecar.protocol.calls.topic_ids import HasLogs, HasTopics
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import I32, Reader, Writer
from sidecar.shadow.views import Read

if TYPE_CHECKING:
    from sidecar.network.upstream import Reply, UpstreamConnection
    from sidecar.protocol.primitives import Octets

SOURCE = UUID(int=7)


class Part(NamedTuple):
    topic: bytes
    partition: int


READ = Read(Part(b"audit", 3), b"orders", SOURCE.bytes)
OWN = Read(Part(b"orders", 3), b"orders")


class Connection:
    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Reply]] = []

    def send_parts(self, parts: list[Octets], reply: Reply) -> None:
        self.sent.append((b"".join(parts), reply))


class Waiting:
    """The one who wants the read's answer."""

    correlation_id = 5

    def __init__(self) -> None:
        self.told: list[object] = []

    def answer_received(self, frame: Frame) -> None:
        self.told.append(bytes(frame.buffer[frame.start : frame.end]))

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.told.append(type(error))


def framed(message: bytes) -> Frame:
    return Frame(bytearray(message), 0, len(message), owned=False)


def sent(*reads: Read[Any], by_id: bool = False, served: int = 13) -> tuple[Waiting, list[tuple[bytes, Reply]]]:
    upstream, connection, waiting = KafkaUpstream([], connect_timeout=1, request_timeout=1), Connection(), Waiting()
    upstream._served = {1: ServedVersions(4, served)}
    at: UpstreamConnection = connection  # type: ignore[assignment]
    send_read(upstream, at, b"a read", waiting, reads, by_id=by_id)
    return waiting, connection.sent


def checked(error: int) -> Frame:
    """A leader's answer to the question about the source."""
    element = fetch.error_element(13, 3, error)
    return framed(b"".join(bytes(part) for part in fetch.encode_answer(0, 13, [(SOURCE.bytes, element)])))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, b"an answer"),
        (ErrorCode.NONE, b"an answer"),
        (ErrorCode.UNKNOWN_TOPIC_ID, UpstreamLostError),
        (ErrorCode.INCONSISTENT_TOPIC_ID, UpstreamLostError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, UpstreamLostError),
    ],
)
def test_an_answer_waits_for_what_the_broker_says_of_the_source_behind_it(error: int, told: object) -> None:
    waiting, ((message, read), (_, question)) = sent(READ)
    assert (message, read.correlation_id) == (b"a read", waiting.correlation_id)
    borrowed = framed(b"an answer")
    read.answer_received(borrowed)
    borrowed.buffer[:] = bytes(len(borrowed.buffer))  # the next frame comes to the same place
    assert waiting.told == []
    question.answer_received(checked(error))
    assert waiting.told == [told]


def test_what_is_read_by_id_or_under_its_own_name_is_asked_once() -> None:
    for reads, by_id in (([OWN], False), ([READ], True)):
        waiting, found = sent(*reads, by_id=by_id)
        assert found == [(b"a read", waiting)]


@pytest.mark.parametrize("answered", [False, True])
def test_a_lost_connection_is_told_once(answered: bool) -> None:
    waiting, ((_, read), (_, question)) = sent(READ)
    if answered:
        read.answer_received(framed(b"an answer"))
    else:
        read.answer_lost(UpstreamLostError("gone", sent=True))
    question.answer_lost(UpstreamLostError("gone", sent=True))
    assert waiting.told == [UpstreamLostError]


def test_an_answer_about_the_source_that_makes_no_sense_is_none() -> None:
    waiting, ((_, read), (_, question)) = sent(READ)
    read.answer_received(framed(b"an answer"))
    question.answer_received(framed(I32.pack(4) + I32.pack(0)))
    assert waiting.told == [UpstreamLostError]


def test_a_broker_without_fetch_by_id_is_asked_for_metadata() -> None:
    upstream = KafkaUpstream([], connect_timeout=1, request_timeout=1)
    topics = {b"orders": (SOURCE.bytes, 3)}
    assert upstream.topic_check(topics) == HasTopics({"orders": SOURCE})
    upstream._served = {1: ServedVersions(4, 13)}
    assert upstream.topic_check(topics) == HasLogs({SOURCE.bytes: 3})


@pytest.mark.parametrize(("topic_id", "same"), [(SOURCE, True), (UUID(int=8), False)])
def test_metadata_says_which_topic_has_the_name(topic_id: UUID, same: bool) -> None:
    writer = Writer()
    writer.i32(0)
    writer.array(0, True)
    writer.text(None, True)
    writer.i32(1)
    writer.array(1, True)
    writer.i16(0)
    writer.text("orders", True)
    writer.raw(topic_id.bytes)
    writer.boolean(False)
    writer.array(1, True)
    writer.raw(bytes(2 + 12) + b"\1\1\1\0")  # a partition without replicas
    writer.i32(-1)
    writer.tags(True)
    writer.i32(-1)
    writer.tags(True)
    data = bytes(writer.out)
    assert HasTopics({"orders": SOURCE}).decode(Reader(data, 0, len(data))) is same
