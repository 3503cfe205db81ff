"""Kafka's tools: transactions, with the performance test's producer and the copier of Kafka's system tests."""

from __future__ import annotations

from ..runtime import Cell, check, same, until
from .host import Running
from .kit import create_topic, numbered, produce, read, run, scenarios, start, visible


def open_transaction(cell: Cell, topic: str, records: int, per_second: int) -> Running:
    """A producer that writes for `records / per_second` seconds in one transaction, which it then commits."""
    return start(
        cell,
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", str(records), "--throughput", str(per_second), "--record-size", "10"),
        *("--transactional-id", cell.name("txn"), "--transaction-duration-ms", "600000"),
        *("--command-property", f"bootstrap.servers={cell.bootstrap}"),
    )


@scenarios("txn-commit")
def commit(cell: Cell) -> str:
    topic = create_topic(cell)
    writing = open_transaction(cell, topic, records=100, per_second=25)
    same(len(read(cell, topic, 1, "--isolation-level", "read_uncommitted")), 1, "records seen uncommitted")
    same(visible(cell, topic, "read_committed"), [], "values seen committed, before the commit")
    check(writing.look().exit is None, "the transaction was over before it was looked at")
    writing.end()
    until("the commit is seen", lambda: len(visible(cell, topic, "read_committed")) == 100)
    return "performance test"


def copy(cell: Cell, source: str, target: str, count: int, *options: str, group: str = "group") -> None:
    """Copy records one to a transaction, the offsets of the group committed with each."""
    run(
        cell,
        "transactional-message-copier",
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target, "--max-messages", str(count)),
        *("--consumer-group", cell.name(group), "--transaction-size", "1", "--transactional-id", cell.name("copier")),
        *("--use-group-metadata", *options),
    )


@scenarios("txn-abort")
def abort(cell: Cell) -> str:
    source, target = create_topic(cell, "in"), create_topic(cell, "out")
    produce(cell, source, numbered(30))
    # Each of the 30 is aborted and tried again with a chance of a third. An abort that comes before the record was sent
    # leaves nothing in the log, so one round may show none.
    for copies in range(1, 6):
        copy(cell, source, target, 30, "--enable-random-aborts", group=f"group-{copies}")
        same(visible(cell, target, "read_committed"), numbered(30) * copies, "values seen committed")
        if len(visible(cell, target, "read_uncommitted")) > 30 * copies:
            break
    else:
        check(False, "no aborted record is seen uncommitted")
    return "transactional copier"


@scenarios("txn-offsets")
def offsets(cell: Cell) -> str:
    source, target = create_topic(cell, "in"), create_topic(cell, "out")
    produce(cell, source, numbered(5))
    copy(cell, source, target, 3)
    same(visible(cell, target, "read_committed"), numbered(3), "values copied")
    copy(cell, source, target, 2)
    same(visible(cell, target, "read_committed"), numbered(5), "values copied after the group went on")
    return "transactional copier"
