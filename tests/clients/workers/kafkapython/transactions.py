"""kafka-python: transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition

from .. import records
from ..runtime import Cell, same, until
from .kit import consumer, create_topic, producer, read_to_end, scenarios, send, take, write


@contextmanager
def transactional(cell: Cell) -> Iterator[KafkaProducer]:
    """A producer whose transactional id is registered with the coordinator."""
    with producer(cell, transactional_id=cell.name("txn")) as client:
        client.init_transactions()
        yield client


def visible(cell: Cell, topic: str, isolation: str) -> list[bytes | None]:
    return records.values(read_to_end(cell, topic, isolation=isolation))


@scenarios("txn-commit")
def commit(cell: Cell) -> None:
    topic = create_topic(cell)
    with transactional(cell) as client:
        for start in (0, 3):
            client.begin_transaction()
            send(client, topic, records.numbered(3, partition=0, start=start))
            same(len(visible(cell, topic, "read_uncommitted")), start + 3, "records seen uncommitted")
            same(len(visible(cell, topic, "read_committed")), start, "records seen committed, before the commit")
            client.commit_transaction()
            until("the commit is seen", lambda seen=start + 3: len(visible(cell, topic, "read_committed")) == seen)


@scenarios("txn-abort")
def abort(cell: Cell) -> None:
    topic = create_topic(cell)
    with transactional(cell) as client:
        client.begin_transaction()
        send(client, topic, records.numbered(3, partition=0))
        client.abort_transaction()
        client.begin_transaction()
        send(client, topic, records.numbered(2, partition=0, start=3))
        client.commit_transaction()
    until("the commit is seen", lambda: visible(cell, topic, "read_committed"))
    same(visible(cell, topic, "read_committed"), [b"3", b"4"], "values seen committed")
    same(visible(cell, topic, "read_uncommitted"), [b"0", b"1", b"2", b"3", b"4"], "values seen uncommitted")


@scenarios("txn-offsets")
def offsets(cell: Cell) -> None:
    source, target, group = create_topic(cell, "in"), create_topic(cell, "out"), cell.name("group")
    place = TopicPartition(source, 0)
    write(cell, source, records.numbered(5, partition=0))
    with (
        transactional(cell) as writing,
        consumer(cell, source, group=group, isolation_level="read_committed") as reading,
    ):
        for count, finish in ((3, writing.commit_transaction), (2, writing.abort_transaction)):
            writing.begin_transaction()
            send(writing, target, [one.content() for one in take(reading, count)])
            position = OffsetAndMetadata(reading.position(place), "", -1)
            writing.send_offsets_to_transaction({place: position}, reading.group_metadata())
            finish()
            until("the offset of the group", lambda: reading.committed(place) == 3)
    same(visible(cell, target, "read_committed"), [b"0", b"1", b"2"], "values copied")
    with consumer(cell, source, group=group) as after:
        same(records.values(take(after, 2)), [b"3", b"4"], "values read by the next member")
