"""`sidecar bench` on a real node in front of a real Kafka: what it counts, what it says, and that nothing is left."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from jsonschema_rs import Draft202012Validator

from sidecar.cli.api import AdminApi
from sidecar.cli.bench.command import percentile
from sidecar.cli.bench.load import Clients, Load, Writer, _LoadPartition
from sidecar.cli.bench.stage import Stage, describe
from sidecar.local.ports import free_ports
from sidecar.protocol.addresses import addresses
from sidecar.protocol.codec import Codec
from sidecar.settings import AdminAccess
from tests.conftest import StartNode
from tests.http.paper_cli import Said, run
from tests.nodes import NodeProcess
from tests.services import Services
from tests.wait import wait_for

SIDECAR = (sys.executable, "-m", "sidecar")
SMALL = ("--records", "1000", "--size", "100", "--batch-size", "1000", "--partitions", "2", "--round-trips", "20")

TARGETS = {"direct", "node"}
NUMBER = {"type": "number", "exclusiveMinimum": 0}
RATE = {
    "type": "object",
    "required": ["records", "records_per_second", "megabytes_per_second", "rounds"],
    "additionalProperties": False,
    "properties": {
        "records": {"type": "integer"},
        "records_per_second": NUMBER,
        "megabytes_per_second": NUMBER,
        "rounds": {"type": "array", "items": {"type": "object", "required": ["records", "seconds"]}},
    },
}
LATENCY = {
    "type": "object",
    "required": ["samples", "p50", "p99", "p99_9", "max"],
    "additionalProperties": False,
    "properties": {"samples": {"type": "integer"}, "p50": NUMBER, "p99": NUMBER, "p99_9": NUMBER, "max": NUMBER},
}
SCHEMA = {
    "type": "object",
    "required": ["targets", "options", "throughput", "latency_ms", "ratio"],
    "additionalProperties": False,
    "properties": {
        "targets": {"additionalProperties": {"type": "array", "items": {"type": "string"}}},
        "options": {"type": "object"},
        "throughput": {"additionalProperties": RATE},
        "latency_ms": {"additionalProperties": LATENCY},
        "ratio": {"anyOf": [{"type": "null"}, {"additionalProperties": NUMBER}]},
    },
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SIDECAR_") and not name.startswith("SIDECAR_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def bench(node: NodeProcess, *arguments: str, code: int = 0) -> Said:
    said = run("bench", "--admin-url", node.admin_url, *arguments)
    assert said.code == code, said.out + said.err
    return said


def left(services: Services) -> list[str]:
    """Topics that benchmarks made; Kafka tells of all its topics where none is named."""
    from sidecar.cli.bench.client import Connection  # noqa: PLC0415
    from sidecar.protocol.calls.admin import DescribeTopics  # noqa: PLC0415

    with Connection(addresses(services.kafka_bootstrap)[0]) as connection:
        found = connection.ask(DescribeTopics(None))
    return [topic.name for topic in found.topics if topic.name.startswith("sidecar-bench-")]


def governed(node: NodeProcess) -> list[dict[str, Any]]:
    return list(AdminApi(AdminAccess(node.admin_url, None)).topics(governed=True))


@pytest.mark.parametrize("options", [(), ("--access", "shared", "--clients", "2", "--compression", "zstd")])
def test_a_run_measures_both_says_so_and_leaves_nothing(
    node_process: StartNode, services: Services, options: tuple[str, ...]
):
    node = node_process()
    done = bench(node, "--kafka", services.kafka_bootstrap, *SMALL, "--rounds", "2", *options, "-o", "json")
    found = json.loads(done.out)
    Draft202012Validator(SCHEMA).validate(found)
    assert found["throughput"].keys() == found["latency_ms"].keys() == TARGETS
    assert found["targets"]["node"] == [node.bootstrap]
    for target in TARGETS:
        assert found["throughput"][target]["records"] == 2 * 1000
        assert [each["records"] for each in found["throughput"][target]["rounds"]] == [1000, 1000]
        assert found["latency_ms"][target]["samples"] == 2 * 20
    assert found["ratio"].keys() == {"records_per_second", "p50", "p99", "p99_9"}
    assert "round 2 of 2: direct" in done.err
    assert ('"policy.set"' in node.log) is bool(options), "an ordinary topic gets no policy"
    wait_for(lambda: left(services) == [], "the topics to be gone", 20)
    assert governed(node) == []


def test_people_get_a_table_of_figures_on_stdout(node: NodeProcess, services: Services):
    lines = bench(node, "--kafka", services.kafka_bootstrap, *SMALL, "--rounds", "1").out.splitlines()
    assert lines[0].split() == ["STRAIGHT", "TO", "KAFKA", "THROUGH", "THE", "NODE", "RATIO"]
    firsts = [line.split()[0] for line in lines[1:]]
    assert firsts == ["records/s", "MB/s", "p50", "p99", "p99.9", "max"]


def test_without_a_kafka_that_can_be_reached_it_ends_with_5_or_measures_the_node_alone(
    node_process: StartNode, services: Services
):
    node = node_process()
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    refused = bench(node, "--kafka", nowhere, *SMALL, code=5)
    assert nowhere in refused.err
    assert "--no-direct" in refused.err
    assert refused.out == ""
    wait_for(lambda: left(services) == [], "the topics to be gone", 20)
    alone = json.loads(bench(node, "--no-direct", *SMALL, "--rounds", "1", "-o", "json").out)
    Draft202012Validator(SCHEMA).validate(alone)
    assert (alone["throughput"].keys(), alone["ratio"]) == ({"node"}, None)
    wait_for(lambda: left(services) == [], "the topics to be gone", 20)
    node.stop()
    assert "no node answers" in bench(node, "--no-direct", code=5).err


def test_a_node_is_not_taken_for_kafka(node: NodeProcess):
    assert "names a node" in bench(node, "--kafka", node.bootstrap, *SMALL, code=2).err


def test_more_owners_than_partitions_are_refused_before_anything_is_asked():
    said = run("bench", "--access", "exclusive", "--clients", "3", "--partitions", "2")
    assert (said.code, "one owner" in said.err) == (2, True)


def test_a_run_that_is_ended_deletes_its_topics(node: NodeProcess, services: Services, tmp_path: Path):
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [
                *SIDECAR, "bench", "--admin-url", node.admin_url, "--kafka", services.kafka_bootstrap,
                "--records", "20000", "--size", "100", "--rounds", "100", "--access", "exclusive",
            ],
            stdout=subprocess.DEVNULL, stderr=err, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(
            lambda: "round 1 of 100" in (tmp_path / "err").read_text() or process.poll() is not None, "a round", 60
        )
        assert len(left(services)) == 2, (tmp_path / "err").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: left(services) == [], "the topics to be gone", 20)
    assert not [found for found in governed(node) if found["topic"].startswith("sidecar-bench-")]
    assert "left behind" not in (tmp_path / "err").read_text()


@pytest.mark.parametrize("codec", list(Codec))
async def test_what_is_counted_is_in_the_log_and_every_client_can_read_it(
    node: NodeProcess, services: Services, codec: Codec
):
    api = AdminApi(AdminAccess(node.admin_url, None))
    load = Load(record_bytes=50, batch_bytes=1000, acks=-1, codec=codec, in_flight=5, seconds=60)
    with Stage({"node": addresses(node.bootstrap)}, api) as stage:
        leaders = stage.create("node", 3, -1)
        with Clients(stage.topics["node"], leaders, load, 2) as clients:
            assert clients.append(1003).records == 1003
            assert len(clients.round_trips(4)) == 4
        values = await read_all(services, stage.topics["node"], 3)
    settling, warm = 3, 3
    assert len(values) == 1003 + 4 + settling + warm
    assert {len(value) for value in values} == {50}


async def read_all(services: Services, topic: str, partitions: int) -> list[bytes]:
    """By a client that is not ours, past the node."""
    consumer = AIOKafkaConsumer(bootstrap_servers=services.kafka_bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        everything = [TopicPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(everything)
        ends = await consumer.end_offsets(everything)
        values: list[bytes] = []
        while any([await consumer.position(each) < ends[each] for each in everything]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                values += [record.value or b"" for record in records]
    finally:
        await consumer.stop()
    return values


def test_time_ends_a_round_with_what_was_acknowledged(node: NodeProcess):
    load = Load(record_bytes=10, batch_bytes=10, acks=-1, codec=Codec.NONE, in_flight=1, seconds=1.0)
    with Stage({"node": addresses(node.bootstrap)}, AdminApi(AdminAccess(node.admin_url, None))) as stage:
        writer = Writer(stage.topics["node"], stage.create("node", 1, -1), load)
        try:
            done = writer.append(10_000_000, threading.Event())
            found = describe(addresses(node.bootstrap), stage.topics["node"])
        finally:
            writer.close()
    assert 0 < done < 10_000_000
    assert found.topic(stage.topics["node"]).leaders.keys() == {0}


def test_what_is_sent_is_made_before_the_clock_runs(node: NodeProcess, monkeypatch: pytest.MonkeyPatch):
    """More lanes than batches of the round that does not count, a last batch that is not full, two writers."""
    load = Load(record_bytes=10, batch_bytes=220, acks=-1, codec=Codec.NONE, in_flight=5, seconds=60)
    made: list[float] = []
    began: list[float] = []
    make, append = _LoadPartition.prepare, Writer.append

    def prepare(its: _LoadPartition, records: int) -> None:
        if records not in its._frames:
            made.append(time.perf_counter())
        make(its, records)

    def appended(writer: Writer, records: int, stop: threading.Event) -> int:
        began.append(time.perf_counter())
        return append(writer, records, stop)

    monkeypatch.setattr(_LoadPartition, "prepare", prepare)
    monkeypatch.setattr(Writer, "append", appended)
    with Stage({"node": addresses(node.bootstrap)}, AdminApi(AdminAccess(node.admin_url, None))) as stage:
        leaders = stage.create("node", 6, -1)
        with Clients(stage.topics["node"], leaders, load, 2) as clients:
            assert clients.append(10).records == 10
            began.clear()
            assert clients.append(167).records == 167
    assert max(made) < min(began)


def test_percentiles_are_values_that_were_measured():
    ranked = list(range(1, 1001))
    assert [percentile(ranked, share) for share in (0.5, 0.99, 0.999)] == [501, 991, 1000]
    assert percentile([7], 0.999) == 7
