"""Kafka's tools: what operators do with records, replicas, rules, credentials, quotas and transactions."""

from __future__ import annotations

import json
import re

from ..runtime import Cell, check, same, until
from .cluster import node_ids
from .kit import create_topic, file_with, numbered, produce, read, run, scenarios
from .transactions import open_transaction


@scenarios("list-offsets")
def list_offsets(cell: Cell) -> None:
    topic = create_topic(cell)
    produce(cell, topic, numbered(5))
    first = int(
        read(cell, topic, 1, "--formatter-property", "print.timestamp=true")[0]
        .split("\t")[0]
        .removeprefix("CreateTime:")
    )
    for time, expected in (("-2", ["0"]), ("-1", ["5"]), (str(first), ["0"]), (str(first + 86_400_000), [])):
        found = run(cell, "kafka-get-offsets", "--topic", topic, "--time", time).lines()
        same(found, [f"{topic}:0:{offset}" for offset in expected], f"offset at {time}")
    newest = run(cell, "kafka-get-offsets", "--topic", topic, "--time", "-3").out
    check(re.fullmatch(rf"{re.escape(topic)}:0:[0-4]\n", newest), f"offset of the newest timestamp: {newest}")


@scenarios("delete-records")
def delete_records(cell: Cell) -> None:
    topic = create_topic(cell)
    produce(cell, topic, numbered(5))
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1}
    with file_with(json.dumps(wanted)) as path:
        done = run(cell, "kafka-delete-records", "--offset-json-file", path).out
    check(f"partition: {topic}-0\tlow_watermark: 3" in done, f"deleting records: {done}")
    same(read(cell, topic, 2), ["3", "4"], "values left")


@scenarios("log-dirs")
def log_dirs(cell: Cell) -> str:
    topic = create_topic(cell, partitions=2)
    produce(cell, topic, numbered(5))
    out = run(cell, "kafka-log-dirs", "--describe", "--topic-list", topic).lines()
    found = json.loads(next(line for line in out if line.startswith("{")))
    nodes = node_ids(cell)
    same(sorted(str(broker["broker"]) for broker in found["brokers"]), sorted(nodes), "nodes that answered")
    folders = [folder for broker in found["brokers"] for folder in broker["logDirs"]]
    same({folder["error"] for folder in folders}, {None}, "errors")
    sizes = {one["partition"]: one["size"] for folder in folders for one in folder["partitions"]}
    same(sorted(sizes), [f"{topic}-0", f"{topic}-1"], "partitions found")
    check(sum(sizes.values()) > 0, "all partitions are empty")
    return f"{len(nodes)} node(s)"


@scenarios("elect-leaders")
def elect_leaders(cell: Cell) -> None:
    topic = create_topic(cell)
    out = run(cell, "kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0").out
    check(f"Valid replica already elected for partitions {topic}-0" in out, f"election: {out}")


@scenarios("reassignments")
def reassignments(cell: Cell) -> None:
    out = run(cell, "kafka-reassign-partitions", "--list").out
    same(out.strip(), "No partition reassignments found.", "reassignments")


@scenarios("acls")
def acls(cell: Cell) -> str:
    topic, principal = cell.name("topic"), "User:alice"
    rule = (
        "--allow-principal",
        principal,
        "--operation",
        "Read",
        "--topic",
        topic,
        "--resource-pattern-type",
        "prefixed",
    )
    listing = ("--list", "--topic", topic, "--resource-pattern-type", "prefixed")
    if not cell.secured:
        refused = run(cell, "kafka-acls", "--add", *rule, expected=1)
        check("SecurityDisabledException" in refused.out + refused.err, f"without an authorizer: {refused}")
        return "security is disabled"
    run(cell, "kafka-acls", "--add", *rule)
    until("the rule is listed", lambda: f"principal={principal}" in run(cell, "kafka-acls", *listing).out)
    run(cell, "kafka-acls", "--remove", "--force", *rule)
    until("the rule is gone", lambda: f"principal={principal}" not in run(cell, "kafka-acls", *listing).out)
    return ""


@scenarios("scram")
def scram(cell: Cell) -> None:
    entity = ("--entity-type", "users", "--entity-name", cell.name("user"))
    run(cell, "kafka-configs", *entity, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    until(
        "the credential",
        lambda: "SCRAM-SHA-256=iterations=8192" in run(cell, "kafka-configs", *entity, "--describe").out,
    )
    run(cell, "kafka-configs", *entity, "--alter", "--delete-config", "SCRAM-SHA-256")
    until("none is left", lambda: "SCRAM-SHA-256" not in run(cell, "kafka-configs", *entity, "--describe").out)


@scenarios("quotas")
def quotas(cell: Cell) -> None:
    entity = ("--entity-type", "users", "--entity-name", cell.name("user"))
    run(cell, "kafka-configs", *entity, "--alter", "--add-config", "producer_byte_rate=1000000")
    until("the quota", lambda: "producer_byte_rate=1000000" in run(cell, "kafka-configs", *entity, "--describe").out)
    run(cell, "kafka-configs", *entity, "--alter", "--delete-config", "producer_byte_rate")
    until("no quota", lambda: "producer_byte_rate" not in run(cell, "kafka-configs", *entity, "--describe").out)


@scenarios("producers")
def producers(cell: Cell) -> None:
    topic = create_topic(cell)
    produce(cell, topic, numbered(6))
    lines = run(cell, "kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0").lines()
    same(len(lines), 2, "lines")
    row = dict(zip(lines[0].split(), lines[1].split(), strict=True))
    same((row["ProducerEpoch"], row["LastSequence"]), ("0", "5"), "epoch and last sequence")


@scenarios("transactions")
def transactions(cell: Cell) -> None:
    topic = create_topic(cell)
    writing = open_transaction(cell, topic, records=50, per_second=25)

    def state() -> list[str]:
        lines = run(cell, "kafka-transactions", "list").lines()
        return [row[-1] for row in map(str.split, lines) if row[:1] == [cell.name("txn")]]

    until("the transaction is open", lambda: state() == ["Ongoing"])
    described = run(cell, "kafka-transactions", "describe", "--transactional-id", cell.name("txn")).lines()
    row = described[1].split()
    check("Ongoing" in row and f"{topic}-0" in row, f"description: {described}")
    writing.end()
    until("it is over", lambda: state() == ["CompleteCommit"])
