"""Kafka's tools: reading without being a member, and finding one's place."""

from __future__ import annotations

from datetime import UTC, datetime

from ..runtime import Cell, same
from .kit import consume, create_topic, numbered, produce, read, run, scenarios, start


@scenarios("seek-ends")
def seek_ends(cell: Cell) -> str:
    topic = create_topic(cell)
    produce(cell, topic, numbered(5))
    same(read(cell, topic, 5), numbered(5), "values from the beginning")
    at = ("--topic", topic, "--partition", "0", "--offset", "latest")
    running = start(cell, "kafka-console-consumer", *at)
    # It says nothing when it stands at the end: write until it sees one.
    for attempt in range(40):
        produce(cell, topic, [f"later {attempt}"])
        if seen := running.look(0.2).lines():
            break
    else:
        running.interrupt()
        raise AssertionError("nothing was read at the end")
    running.interrupt()
    same({line.split()[0] for line in seen}, {"later"}, "values from the end on")
    return "console consumer"


@scenarios("seek-timestamp")
def seek_timestamp(cell: Cell) -> str:
    topic, group = create_topic(cell), cell.name("group")
    for moment in (1_704_067_200_000, 1_704_153_600_000):
        writing = ("--max-messages", "3", "--message-create-time", str(moment), "--throughput", "-1")
        run(cell, "kafka-verifiable-producer", "--topic", topic, *writing)
    between = datetime.fromtimestamp(1_704_110_400, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-datetime", between, "--execute")
    done = run(cell, "kafka-consumer-groups", *reset).lines()
    same([line.split()[-1] for line in done if topic in line], ["3"], "offset of the second day")
    lines = consume(cell, topic, 3, "--group", group, "--formatter-property", "print.offset=true")
    same([line.split("\t")[0] for line in lines], ["Offset:3", "Offset:4", "Offset:5"], "offsets read")
    return "consumer groups"


@scenarios("manual-assignment")
def manual_assignment(cell: Cell) -> str:
    topic = create_topic(cell, partitions=2)
    # A key of this kind goes to the same partition always: which one does not matter.
    produce(cell, topic, [f"key\t{number}" for number in range(5)], "--reader-property", "parse.key=true")
    ends = run(cell, "kafka-get-offsets", "--topic", topic).lines()
    [partition] = [line.split(":")[1] for line in ends if line.split(":")[2] == "5"]
    same(consume(cell, topic, 3, "--partition", partition, "--offset", "2"), ["2", "3", "4"], "values read")
    return "console consumer"


@scenarios("many-partitions")
def many_partitions(cell: Cell) -> str:
    topics = [create_topic(cell, f"{number}", partitions=20) for number in range(3)]
    for topic in topics:
        produce(cell, topic, [f"{number}\t{number}" for number in range(200)], "--reader-property", "parse.key=true")
    pattern = cell.name("[0-2]").replace(".", "[.]")
    arguments = ("--include", pattern, "--from-beginning", "--max-messages", "600", "--timeout-ms", "20000")
    lines = run(cell, "kafka-console-consumer", *arguments, "--formatter-property", "print.partition=true").lines()
    values = sorted(int(line.split("\t")[1]) for line in lines)
    same(values, sorted(list(range(200)) * 3), "values read")
    same({line.split("\t")[0] for line in lines}, {f"Partition:{number}" for number in range(20)}, "partitions read")
    performance = ("--topic", topics[0], "--num-records", "200", "--timeout", "20000", "--hide-header")
    counted = run(cell, "kafka-consumer-perf-test", *performance).lines()
    same([line.split(",")[4].strip() for line in counted], ["200"], "records read by the performance test")
    return "console consumer, performance test"
