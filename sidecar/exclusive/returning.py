"""Batches that a topic with sequence ids refused, and that their clients send again.

`dedup.turned_away` decides which batches may continue; this module decides which answers count as turned away, and the
answer. The batch of a client that may not write is not opened: earlier batches are checked only at its gate
(`ClientReply.out_of_turn`).
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sidecar.dedup.content import Content
from sidecar.dedup.gate import DUPLICATE
from sidecar.dedup.names import producer_name
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.dedup.turned_away import IdsOf, Kept, KeptBytes, Turn, TurnedAway
from sidecar.exclusive.partitions import Topic
from sidecar.exclusive.producing import Producing
from sidecar.forwarder.outcome import Outcome
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.errors import APPEND_IN_DOUBT, NOT_APPENDED, ErrorCode
from sidecar.protocol.produce import ProducePart

_COMES_AGAIN: Final = APPEND_IN_DOUBT | NOT_APPENDED | {ErrorCode.CORRUPT_MESSAGE}
"""Errors after which clients send a batch again."""
_TURNS: Final = {
    Turn.GO: None,
    Turn.AGAIN: Outcome(
        ErrorCode.LEADER_NOT_AVAILABLE, message="an earlier batch of this producer must be sent again first; try again"
    ),
    Turn.LATE: Outcome(
        ErrorCode.POLICY_VIOLATION,
        message="these sequence ids were refused before and are not in the log; higher ones have been written since",
    ),
}
_LOST: Final = Outcome(
    ErrorCode.LEADER_NOT_AVAILABLE, message="too many batches were refused on this connection; reconnect"
)


class Door(NamedTuple):
    """What an answer needs from its node: room for refused batches, the topics with a state, monotonic time."""

    kept: KeptBytes
    topics: Mapping[bytes, Topic]
    now: Callable[[], float]


class ClientReply(Reply):
    """The reply to a client's batch; what is remembered of the batch after it."""

    __slots__ = ("_batch", "_client", "_door", "_header", "_ids", "_part")

    def __init__(
        self,
        door: Door,
        client: Producing,
        part: ProducePart,
        header: BatchHeader,
        batch: memoryview,
        send: Callable[[Outcome], None],
        topic_id: bytes = b"",
    ) -> None:
        super().__init__(send, topic_id, client.allowance)
        self._door = door
        self._client = client
        self._part = part
        self._header = header
        self._batch = batch
        self._ids: IdsOf | None = None

    def answer(self, outcome: Outcome) -> None:
        if outcome.error or self._client.governed.turned_away:
            self._remember(self._header, outcome)
        self.send(outcome)

    def out_of_turn(self, content: Content) -> Outcome | None:
        client, part = self._client, self._part
        if self._header.producer_id < 0 or client.governed.turned_away:
            self._ids = IdsOf(content.marks, content.lowest)
        away = client.governed.turned_away.get((part.topic, part.partition))
        topic = self._door.topics.get(part.topic)
        if away is None or topic is None or (ids := topic.ids) is None:
            return None
        kept = self._door.kept if client.is_alive() else KeptBytes()  # a closed connection has no room any more
        room = kept.of(client.connection_id)
        away.open(lambda batch, records: _opened(client, ids, records, batch), room)
        if away.is_lost:
            client.sever()
            return _LOST
        turn = away.turn_of(content, self._door.now())
        if not away:
            del client.governed.turned_away[part.topic, part.partition]
        return _TURNS[turn]

    def _remember(self, header: BatchHeader, outcome: Outcome) -> None:
        """Note the answer to a batch. After an error its client may send it again; without one it is in the log."""
        client, key, error = self._client, (self._part.topic, self._part.partition), outcome.error
        topic, away = self._door.topics.get(self._part.topic), client.governed.turned_away.get(key)
        comes_again = error in _COMES_AGAIN and header.producer_id < 0
        is_refused = error == ErrorCode.POLICY_VIOLATION
        matters = comes_again or is_refused or (away is not None and outcome is not DUPLICATE)
        if topic is None or topic.ids is None or not matters or not client.is_alive():
            return
        found = self._ids
        if found is not None and not found.marks:
            return
        if away is None:
            away = client.governed.turned_away[key] = TurnedAway()
        if found is None:
            if comes_again or is_refused:
                kept = Kept(header.records, comes_again, self._door.now())
                away.keep(self._batch, kept, self._door.kept.of(client.connection_id))
            if not away:
                del client.governed.turned_away[key]
        elif comes_again:
            away.add(found, self._door.now())
        elif is_refused:
            away.refuse(found)
        elif not error:
            away.written(found)


def _opened(client: Producing, ids: TopicIds, records: int, batch: memoryview) -> Content:
    name = producer_name(client.producer[0])
    return Content(batch, records, ids.services.headers, name, at_once=True, names_limit=ids.services.names_limit)
