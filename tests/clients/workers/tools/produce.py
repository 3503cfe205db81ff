"""Kafka's tools: producing."""

from __future__ import annotations

from collections import defaultdict

from ..records import RECORDS_PER_CODEC
from ..runtime import Cell, check, same
from .kit import consume, create_topic, numbered, produce, read, run, scenarios


@scenarios("acks-0", "acks-1", "acks-all")
def acks(cell: Cell) -> str:
    topic = create_topic(cell)
    produce(cell, topic, numbered(20), "--request-required-acks", cell.argument())
    same(read(cell, topic, 20), numbered(20), "values read")
    return "console producer"


@scenarios("compression-none", "compression-gzip", "compression-snappy", "compression-lz4", "compression-zstd")
def compression(cell: Cell) -> str:
    topic = create_topic(cell)
    values = [f"{number:06}" * 170 for number in range(RECORDS_PER_CODEC)]
    produce(cell, topic, values, "--compression-codec", cell.argument())
    same(read(cell, topic, len(values)), values, "values read")
    return "console producer"


@scenarios("idempotent")
def idempotent(cell: Cell) -> str:
    topic = create_topic(cell, partitions=3)
    produce(cell, topic, numbered(900), enable_idempotence="true", batch_size="200", partitioner_ignore_keys="true")
    lines = consume(
        cell,
        topic,
        900,
        "--from-beginning",
        "--formatter-property",
        "print.partition=true",
        "--formatter-property",
        "print.offset=true",
    )
    by_partition: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        partition, _, value = line.split("\t")
        by_partition[partition].append(int(value))
    same(sorted(value for values in by_partition.values() for value in values), list(range(900)), "values, each once")
    check(all(values == sorted(values) for values in by_partition.values()), "a partition is out of order")
    return "console producer"


@scenarios("large-900k")
def large(cell: Cell) -> str:
    topic = create_topic(cell)
    value = "0123456789" * 90_000
    produce(cell, topic, [value])
    check(read(cell, topic, 1) == [value], "the value read is not the one written")
    return "console producer"


@scenarios("large-5m")
def very_large(cell: Cell) -> str:
    topic = create_topic(cell, "allowed", max_message_bytes="6000000")
    value = "0123456789" * 524_288
    produce(cell, topic, [value], max_request_size="6000000")
    check(read(cell, topic, 1) == [value], "the value read is not the one written")
    small = create_topic(cell, "refused")
    refused = produce(cell, small, [value], max_request_size="6000000")
    check(
        "RecordTooLargeException" in refused.err,
        f"5 MB were accepted on a topic that allows 1 MB: {refused.err[-600:]}",
    )
    return "console producer"


@scenarios("headers-tombstones")
def headers_and_tombstones(cell: Cell) -> str:
    topic = create_topic(cell)
    reading = ("parse.headers=true", "parse.key=true", "null.marker=NULL")
    lines = ["a:1,a:2,größe:größer\tk\tv", "NULL\tNULL\tno key", "why:deleted\ttombstone\tNULL", "NULL\t\t"]
    produce(cell, topic, lines, *(one for pair in reading for one in ("--reader-property", pair)))
    printing = ("print.headers=true", "print.key=true", "null.literal=NULL")
    read_back = read(cell, topic, 4, *(one for pair in printing for one in ("--formatter-property", pair)))
    expected = [
        "a:1,a:2,größe:größer\tk\tv",
        "NO_HEADERS\tNULL\tno key",
        "why:deleted\ttombstone\tNULL",
        "NO_HEADERS\t\t",
    ]
    same(read_back, expected, "records")
    return "console producer"


@scenarios("timestamps")
def timestamps(cell: Cell) -> str:
    topic = create_topic(cell)
    moment = 1_704_067_200_000
    writing = ("--max-messages", "5", "--message-create-time", str(moment), "--throughput", "-1")
    run(cell, "kafka-verifiable-producer", "--topic", topic, *writing)
    lines = read(cell, topic, 5, "--formatter-property", "print.timestamp=true")
    stamps = [int(line.split("\t")[0].removeprefix("CreateTime:")) for line in lines]
    same(stamps[0], moment, "first timestamp")
    # The tool lets its clock run on from there.
    check(all(moment <= stamp < moment + 60_000 for stamp in stamps), f"timestamps {stamps}")
    return "verifiable producer"


@scenarios("auto-create")
def auto_create(cell: Cell) -> str:
    topic = cell.name()
    produce(cell, topic, numbered(3))
    same(sorted(consume(cell, topic, 3, "--from-beginning")), numbered(3), "values read")
    return "console producer"
