"""Plain clients that were told to come again, at the door of a topic with sequence ids.

`dedup.turned_away` says who may go on; here is which answers count as turned away, and what is told.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from sidecar.dedup.content import Content
from sidecar.dedup.gate import DUPLICATE
from sidecar.dedup.turned_away import Turn, TurnedAway
from sidecar.exclusive.identity import producer_name
from sidecar.forwarder.lane import Outcome
from sidecar.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sidecar.dedup.topic import TopicIds
    from sidecar.exclusive.environment import Producing
    from sidecar.exclusive.partitions import PartitionedTopic
    from sidecar.exclusive.topic import GovernedTopic
    from sidecar.protocol.batch import BatchHeader
    from sidecar.protocol.produce import ProducePart

    Topic: TypeAlias = GovernedTopic | PartitionedTopic

_COMES_AGAIN: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which clients send a batch again."""
_TURNS: Final = {
    Turn.GO: None,
    Turn.AGAIN: Outcome(
        ErrorCode.LEADER_NOT_AVAILABLE, message="an earlier batch of this producer has to come again first; try again"
    ),
    Turn.LATE: Outcome(
        ErrorCode.POLICY_VIOLATION,
        message="these sequence ids were not written when they came first, and higher ones have been written since",
    ),
}


def early_answer(
    client: Producing, topic: Topic, part: ProducePart, header: BatchHeader, batch: memoryview, now: float
) -> Outcome | None:
    """The answer to a batch that may not go on, by what its client was not let in with."""
    key, ids = (part.topic, part.partition), topic.ids
    away = client.turned_away.get(key)
    if away is None or ids is None or (content := _content(client, ids, header.records, batch)) is None:
        return None
    turn = away.turn_of(content, now)
    if not away:
        del client.turned_away[key]
    if turn is Turn.LATE and header.producer_id >= 0:  # its client counts these sequences as used
        session = f"pid:{header.producer_id}"
        topic.refusals.note(session, part.partition, header.producer_epoch, header.base_sequence, header.records)
    return _TURNS[turn]


def answered(
    client: Producing,
    topic: Topic,
    part: ProducePart,
    header: BatchHeader,
    batch: memoryview,
    outcome: Outcome,
    now: float,
) -> None:
    """A batch has its answer: with an error its client may come again with it, without one it is in the log."""
    key, error = (part.topic, part.partition), outcome.error
    away = client.turned_away.get(key)
    comes_again = error in _COMES_AGAIN and header.producer_id < 0
    matters = comes_again or error == ErrorCode.POLICY_VIOLATION or (away is not None and outcome is not DUPLICATE)
    if topic.ids is None or not matters:
        return
    content = _content(client, topic.ids, header.records, batch)
    if content is None or not content.has_ids:
        return
    if away is None:
        away = client.turned_away[key] = TurnedAway()
    if comes_again:
        away.add(content, now)
    elif error == ErrorCode.POLICY_VIOLATION:
        away.refuse(content)
    elif not error:
        away.written(content)


def _content(client: Producing, ids: TopicIds, records: int, batch: memoryview) -> Content | None:
    """The ids of a batch, where they are sound."""
    with suppress(KafkaError):
        return Content(batch, records, ids.around.headers, producer_name(client.producer[0]))
    return None
