"""What a keep-alive notes of where a writer stands: what was acknowledged to it, nothing that a leader alone says."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.protocol.calls.transactions import ActiveProducer, PartitionProducers
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.protocol.ids import StampedSequence as Stamped
from sidecar.takeover.succession import NOTHING
from sidecar.takeover.tails import Look, Tail
from sidecar.writing.upkeep import acknowledged_tails

WRITER = Stamp(ProducerId(7), ProducerEpoch(4))


@dataclass
class Epoch:
    last: int
    sent: tuple[int, ...] = (0,)
    taken: Any = field(default_factory=lambda: SimpleNamespace(scope=SimpleNamespace(topic="orders"), stamp=WRITER))

    def wrote(self) -> tuple[int, ...]:
        return () if self.last == NOTHING else (0,)

    def touched(self) -> tuple[int, ...]:
        return self.sent

    def acknowledged(self, partition: int) -> int:
        return self.last


def look(*active: ActiveProducer) -> Look:
    return Look({0: 50}, {0: 1}, {TopicPartition("orders", 0): PartitionProducers(0, None, active)})


def remembers(last_sequence: int, epoch: int = 4) -> ActiveProducer:
    return ActiveProducer(Stamp(ProducerId(7), ProducerEpoch(epoch)), last_sequence, 0, 0, -1)


def tails(epoch: Epoch, *active: ActiveProducer) -> dict[int, Tail]:
    return acknowledged_tails(look(*active), cast(Any, epoch))


@pytest.mark.parametrize(("remembered", "acknowledged"), [(9, 9), (9, 12)])
def test_what_a_leader_remembers_and_has_acknowledged_is_noted(remembered: Stamped, acknowledged: int) -> None:
    assert tails(Epoch(acknowledged), remembers(remembered)) == {0: Tail(remembered, 50)}


@pytest.mark.parametrize("acknowledged", [NOTHING, 8])
def test_what_it_has_not_acknowledged_is_not(acknowledged: int) -> None:
    assert tails(Epoch(acknowledged), remembers(9)) == {}


def test_where_nothing_was_ever_sent_nothing_is_in_front_of_the_end() -> None:
    assert tails(Epoch(NOTHING, sent=())) == {0: Tail(NOTHING, 50)}
    assert tails(Epoch(NOTHING, sent=()), remembers(-1)) == {0: Tail(NOTHING, 50)}
    assert tails(Epoch(NOTHING)) == {}  # it may be on its way


def test_the_end_is_not_in_front_of_what_the_next_epoch_wrote() -> None:
    """The epoch was replaced (`SlotEpoch.renew`) while its keep-alive was under way. A takeover begins to read the next
    one's batches where this one's tail says.
    """
    assert tails(Epoch(NOTHING, sent=()), remembers(2, epoch=5)) == {}
