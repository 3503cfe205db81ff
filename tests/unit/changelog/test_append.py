"""What an appender and a journal make of every answer of a leader, and of none: `sidecar.changelog.changelog`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from metadata.clock import elapsed
from sidecar.changelog import Appender, AppendRefusedError, AppendUncertainError, Journal
from sidecar.changelog.records import RawRecord
from sidecar.network.backoff import RetryTimeoutError
from sidecar.protocol import caller
from sidecar.protocol.batch import read_header
from sidecar.protocol.caller import Channel, CoordinatorKind, DisconnectedError, FencedError, TopicLayout
from sidecar.protocol.calls.logs import Appended
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition

if TYPE_CHECKING:
    from sidecar.protocol.caller import Upstream

PARTITION = TopicPartition("__log", 0)
WRITER = Stamp(ProducerId(7), ProducerEpoch(3))
A, B = [RawRecord(b"policy/a", b"A")], [RawRecord(b"policy/b", b"B")]

Answer = Callable[["Leader", bytes], Appended]


class Leader:
    """The log of one partition and what is answered; implements `sidecar.protocol.caller.Upstream`.

    A repeat of a stamped batch, known by its first sequence, gets the offset of the first one, as Kafka does.
    `script` has what happens to the next appends; once it is at its end, `then` does.
    """

    def __init__(self, *script: Answer, then: Answer | None = None, led: int | None = None) -> None:
        self.log: list[bytes] = []
        self.looked = 0
        self._script = list(script)
        self._then = then or appended
        self._led = led
        """So many look-ups find a leader, later ones do not."""

    def take(self, batch: bytes) -> Appended:
        sequence = read_header(batch, 0, len(batch)).base_sequence
        for offset, kept in enumerate(self.log):
            if read_header(kept, 0, len(kept)).base_sequence == sequence:
                return answer(0, offset)
        self.log.append(batch)
        return answer(0, len(self.log) - 1)

    async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
        self.looked += 1
        leads = self._led is None or self.looked <= self._led
        return TopicLayout(UUID(int=1), {0: 1 if leads else -1})

    async def call(
        self,
        broker_id: int | None,
        request: Any,
        *,
        timeout: float | None = None,
        channel: Channel = caller.SHARED_CHANNEL,
    ) -> Any:
        happens = self._script.pop(0) if self._script else self._then
        return happens(self, request.batch)

    async def call_pair(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def coordinator(self, key: str, kind: CoordinatorKind) -> int:
        raise NotImplementedError

    def forget_coordinator(self, key: str, kind: CoordinatorKind) -> None:
        raise NotImplementedError

    async def brokers(self) -> Collection[int]:
        return [1]

    def journal(self, deadline: float = 0.02) -> Journal:
        return Journal(
            Appender(cast("Upstream", self), {PARTITION.topic: UUID(int=1)}, deadline=deadline), PARTITION, WRITER
        )


def answer(error: int, offset: int = -1) -> Appended:
    return Appended(error, Offset(offset), -1, 0, None)


def appended(leader: Leader, batch: bytes) -> Appended:
    return leader.take(batch)


def appended_but(error: int) -> Answer:
    def happens(leader: Leader, batch: bytes) -> Appended:
        leader.take(batch)
        return answer(error)

    return happens


def refused(error: int) -> Answer:
    return lambda leader, batch: answer(error)


def lost(leader: Leader, batch: bytes) -> Appended:
    leader.take(batch)
    raise DisconnectedError("the connection was lost")


def not_sent(leader: Leader, batch: bytes) -> Appended:
    raise DisconnectedError("nobody listens", sent=False)


@pytest.mark.parametrize("error", sorted(APPEND_IN_DOUBT))
async def test_behind_an_append_in_doubt_a_journal_takes_nothing_more(error: ErrorCode) -> None:
    """The leader appends, answers with an error because it lost its place, and nobody leads for a while. Another batch
    under the same sequence would be taken for a repeat: its answer would be the first one's offset.
    """
    leader = Leader(appended_but(error), led=1)
    journal = leader.journal()
    with pytest.raises(AppendUncertainError):
        await journal.append(A)
    with pytest.raises(AppendUncertainError, match="unknown batch in front"):
        await journal.append(B)
    assert len(leader.log) == 1


@pytest.mark.parametrize("error", sorted(APPEND_IN_DOUBT))
async def test_the_identical_batch_goes_again_until_its_place_is_known(error: ErrorCode) -> None:
    leader = Leader(appended_but(error))
    journal = leader.journal(deadline=5.0)
    assert await journal.append(A) == 0
    assert await journal.append(B) == 1


@pytest.mark.parametrize("error", sorted(NOT_APPENDED))
async def test_what_a_leader_surely_did_not_append_leaves_its_sequence_to_the_next(error: ErrorCode) -> None:
    leader = Leader(refused(error), led=1)
    journal = leader.journal()
    with pytest.raises(RetryTimeoutError):
        await journal.append(A)
    leader.looked = 0
    assert await journal.append(B) == 0


@pytest.mark.parametrize(
    "final", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
)
async def test_a_refusal_says_nothing_of_an_earlier_try_in_doubt(final: ErrorCode) -> None:
    leader = Leader(lost, refused(final))
    journal = leader.journal(deadline=5.0)
    with pytest.raises(AppendUncertainError):
        await journal.append(A)
    with pytest.raises(AppendUncertainError, match="unknown batch in front"):
        await journal.append(B)


async def test_a_leader_that_may_not_be_looked_up_says_nothing_of_an_earlier_try_in_doubt() -> None:
    class Forbidden(Leader):
        async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
            if refresh:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no more")
            return await super().layout(topic)

    with pytest.raises(AppendUncertainError):
        await Forbidden(lost).journal(deadline=5.0).append(A)
    with pytest.raises(AppendUncertainError):
        await Forbidden(appended_but(ErrorCode.NOT_LEADER_OR_FOLLOWER)).journal(deadline=5.0).append(A)


async def test_a_batch_that_is_refused_at_once_is_surely_not_in_the_log() -> None:
    leader = Leader(refused(ErrorCode.MESSAGE_TOO_LARGE))
    journal = leader.journal()
    with pytest.raises(AppendRefusedError):
        await journal.append(A)
    assert await journal.append(B) == 0


async def test_a_repeat_that_is_known_without_its_offset_is_in_doubt() -> None:
    """46 says that a batch of these sequences is in the log, not where, nor that it is this one."""
    journal = Leader(refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)).journal()
    with pytest.raises(AppendUncertainError):
        await journal.append(A)


async def test_a_code_that_is_not_known_here_leaves_a_doubt() -> None:
    journal = Leader(appended_but(4321)).journal()
    with pytest.raises(AppendUncertainError):
        await journal.append(A)
    with pytest.raises(AppendUncertainError, match="unknown batch in front"):
        await journal.append(B)


async def test_a_fenced_journal_takes_nothing_more() -> None:
    journal = Leader(refused(ErrorCode.INVALID_PRODUCER_EPOCH)).journal()
    with pytest.raises(FencedError):
        await journal.append(A)
    with pytest.raises(AppendUncertainError):
        await journal.append(B)


async def test_looking_for_a_leader_leaves_no_doubt() -> None:
    class Away(Leader):
        async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "metadata lags")

    class Silent(Leader):
        async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
            raise DisconnectedError("no answer to a question for the leader")

    for leader in (Away(), Silent(), Leader(then=not_sent)):
        journal = leader.journal()
        for _ in range(2):
            with pytest.raises(RetryTimeoutError):
                await journal.append(A)


async def test_an_offset_in_front_of_what_was_read_before_is_another_records() -> None:
    leader = Leader(lambda leader, batch: answer(0, 4))
    journal = leader.journal()
    with pytest.raises(AppendUncertainError, match="is another record"):
        await journal.append(A, known_end=Offset(5))
    with pytest.raises(AppendUncertainError, match="unknown batch in front"):
        await journal.append(B)


async def test_nothing_is_sent_under_an_epoch_whose_fence_may_be_forgotten() -> None:
    leader, now = Leader(), elapsed()
    kept = Appender(cast("Upstream", leader), {PARTITION.topic: UUID(int=1)})
    assert await Journal(kept, PARTITION, WRITER, until=now + 60.0).append(A) == 0
    with pytest.raises(FencedError):
        await Journal(kept, PARTITION, WRITER, until=now).append(B)
    assert len(leader.log) == 1
