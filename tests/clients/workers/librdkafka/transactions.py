"""confluent-kafka: transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

from .. import records
from ..runtime import Cell, same, until
from .kit import WAIT_S, consumer, create_topic, producer, read_to_end, scenarios, send, take, write


@contextmanager
def transactional(cell: Cell) -> Iterator[Producer]:
    """A producer whose transactional id is registered with the coordinator."""
    with producer(cell, transactional_id=cell.name("txn")) as client:
        client.init_transactions(WAIT_S)
        yield client


def visible(cell: Cell, topic: str, isolation: str) -> list[bytes | None]:
    return records.values(read_to_end(cell, topic, isolation=isolation))


def until_seen(cell: Cell, topic: str, values: list[bytes | None]) -> None:
    """The answer to EndTxn precedes the markers: a moment later they are there, and nothing else."""
    until("the committed values", lambda: visible(cell, topic, "read_committed") == values)


@scenarios("txn-commit")
def commit(cell: Cell) -> None:
    topic = create_topic(cell)
    with transactional(cell) as client:
        for start in (0, 3):
            client.begin_transaction()
            send(client, topic, records.numbered(3, partition=0, start=start))
            same(len(visible(cell, topic, "read_uncommitted")), start + 3, "records seen uncommitted")
            same(len(visible(cell, topic, "read_committed")), start, "records seen committed, before the commit")
            client.commit_transaction(WAIT_S)
            until_seen(cell, topic, [b"%d" % number for number in range(start + 3)])


@scenarios("txn-abort")
def abort(cell: Cell) -> None:
    topic = create_topic(cell)
    with transactional(cell) as client:
        client.begin_transaction()
        send(client, topic, records.numbered(3, partition=0))
        client.abort_transaction(WAIT_S)
        client.begin_transaction()
        send(client, topic, records.numbered(2, partition=0, start=3))
        client.commit_transaction(WAIT_S)
    same(visible(cell, topic, "read_uncommitted"), [b"0", b"1", b"2", b"3", b"4"], "values seen uncommitted")
    until_seen(cell, topic, [b"3", b"4"])


def committed(client: Consumer, topic: str) -> int:
    return client.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset


@scenarios("txn-offsets")
def offsets(cell: Cell) -> None:
    source, target, group = create_topic(cell, "in"), create_topic(cell, "out"), cell.name("group")
    write(cell, source, records.numbered(5, partition=0))
    with transactional(cell) as writing, consumer(cell, group, isolation_level="read_committed") as reading:
        reading.subscribe([source])
        for count, finish in ((3, writing.commit_transaction), (2, writing.abort_transaction)):
            writing.begin_transaction()
            send(writing, target, [one.content() for one in take(reading, count)])
            writing.send_offsets_to_transaction(
                reading.position([TopicPartition(source, 0)]), reading.consumer_group_metadata(), WAIT_S
            )
            finish(WAIT_S)
            same(committed(reading, source), 3, "offset of the group")
    same(visible(cell, target, "read_committed"), [b"0", b"1", b"2"], "values copied")
    with consumer(cell, group) as after:
        after.subscribe([source])
        same(records.values(take(after, 2)), [b"3", b"4"], "values read by the next member")
