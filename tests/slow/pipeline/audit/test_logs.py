"""Real logs: what nodes write passes, and what is seeded past them, straight to Kafka, is counted exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.pipeline.audit.tables import AuditTables
from sidecar.pipeline.errors import OffsetRangeError
from sidecar.pipeline.kafka import Kafka
from sidecar.pipeline.tables import TableError
from sidecar.v1 import state_pb2 as state
from tests.conftest import Unique
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.exclusive.producers import RawProducer, fetch_batches
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.audit.cluster import CLEAN, Nodes, Past, wrote
from tests.topics import create_topic
from tests.wait import wait_for


def exclusive_log(nodes: Nodes, unique: Unique) -> str:
    """Owners take turns, one is killed with its node, duplicates are dropped; two partitions."""
    topic = create_topic(nodes.kafka)
    with RawProducer(nodes.kafka, "before") as before:  # while the topic had no policy
        assert before.send(topic, b"plain").error == 0
    nodes.govern(topic, "exclusive")
    served = nodes.both[0]
    with IdProducer(served.bootstrap, "billing;mode=exclusive") as billing:
        if billing.write(topic, 0, 1, 2).error == 6:
            served = nodes.both[1]
    with IdProducer(served.bootstrap, "billing;mode=exclusive") as billing:
        wrote(billing, topic, 0, 1, 2)
        wrote(billing, topic, 1, 2, 3)  # a batch that is part duplicate
        wrote(billing, topic, 0, 1)  # whole
        wrote(billing, topic, 7)
        wrote(billing, topic, 0, 1, partition=1)
        rival = IdProducer(served.bootstrap, "ledger;mode=exclusive_with_fencing")
        wrote(rival, topic, 0, 1)
        wrote(rival, topic, 0, 1, 5, partition=1)
    served.kill()
    with rival, IdProducer(nodes.other(served).bootstrap, "ledger;mode=exclusive_with_fencing") as after:
        after.producer_id, after._sequences = rival.producer_id, rival._sequences
        wrote(after, topic, 1, 2)
        wrote(after, topic, 9)
        wrote(after, topic, 6, partition=1)
    served.start()
    return topic


def shared_log(nodes: Nodes) -> str:
    """Two sessions write beside each other."""
    topic = create_topic(nodes.kafka)
    nodes.govern(topic, "shared")
    for served in nodes.both:
        with IdProducer(served.bootstrap, "one;") as one, IdProducer(served.bootstrap, "two;") as two:
            if one.write(topic, 0).error == 6:
                continue
            for index in range(3):
                wrote(one, topic, 2 * index, 2 * index + 1)
                wrote(two, topic, index, partition=index % 2)
                wrote(two, topic, index)
    return topic


def test_what_nodes_write_passes_over_takeovers_failovers_drops_and_shared_sessions(
    spark: SparkSession, nodes: Nodes, unique: Unique, tmp_path: Path
) -> None:
    alone, shared = exclusive_log(nodes, unique), shared_log(nodes)
    found = nodes.audit(spark, alone, shared, path=tmp_path / "tables")
    assert [each.totals for each in found] == [CLEAN, CLEAN], [each.examples for each in found]
    assert [each.records for each in found] == [1 + 5 + 2 + 2 + 3 + 2 + 1, 6 + 4]
    assert found[0].gaps == (8 - 7) + (10 - 8)  # of billing and ledger: numbers from 0 on, and ids in both partitions
    runs = DeltaTable(str(tmp_path / "tables" / "runs")).to_pandas()
    told = runs[(runs["topic"] == alone) & runs["control"].isna()]
    generations = {name: set(its["generation"]) for name, its in told.groupby("name")}
    assert set(generations) == {"billing", "ledger"}
    assert len(generations["ledger"]) == 1  # kept over the failover
    assert max(generations["billing"]) < min(generations["ledger"])
    takeovers = DeltaTable(str(tmp_path / "tables" / "takeovers")).to_pandas()
    assert {"claimed", "failover"} <= set(takeovers[takeovers["topic"] == alone]["kind"])
    # A part of the log, through a node, under a shadow's name.
    shadow = f"{alone}-audit"
    node = nodes.both[0]
    status, answer = Rest(node.admin_url).call("POST", f"/v1/topics/{alone}/shadows", {"name": shadow})
    assert status == 201, answer
    begin = json.dumps({"0": 4, "1": 2})
    (part,) = nodes.audit(spark, shadow, bootstrap=node.bootstrap, begin=begin)
    assert part.totals == CLEAN
    assert 0 < part.records < found[0].records


@dataclass
class Seeded:
    topic: str
    records: int


@pytest.fixture
def seeded(nodes: Nodes, services: Services) -> Seeded:
    """A log with violations of every kind: 2 duplicates, 1 regression, 2 batches interleaved, 3 unowned, 2 missing."""
    topic = create_topic(nodes.kafka, partitions=1)
    nodes.govern(topic, "shared")
    served = nodes.both[0]
    with IdProducer(served.bootstrap, "sharer;") as sharer:
        if sharer.write(topic, 0).error == 6:
            served = nodes.both[1]
    with IdProducer(served.bootstrap, "sharer;") as sharer:
        wrote(sharer, topic, 0, 1)
    with IdProducer(served.bootstrap, "billing;mode=exclusive_with_fencing") as billing:
        wrote(billing, topic, 0, 1, 10, 20)
    wait_for(lambda: Rest(served.admin_url).topic(topic)["owner"] is None, "the owner to be gone")
    topic_id = _snapshot_of(nodes, topic)
    data = [each for each in fetch_batches(nodes.kafka, topic) if not each.is_control]
    shared, owned = data[0], data[-1]
    for node in nodes.both:
        node.stop()
    admin = AdminClient({"bootstrap.servers": nodes.kafka})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    probe = RawProducer(nodes.kafka, "probe")
    for partition in (1, 2):
        wait_for(lambda p=partition: probe.send(topic, [], partition=p).error not in (3, 5, 6), "a leader")
    probe.close()
    owner, sharing = (owned.producer_id, owned.producer_epoch), (shared.producer_id, shared.producer_epoch)
    past = Past(nodes.kafka, topic)
    past.write(owner, 4, 10, 20)  # duplicates
    past.write(owner, 6, 15)  # a regression
    past.write(owner, 7, b"x1")  # malformed: told, and no violation
    past.write((-1, -1), -1, None)  # nobody's
    past.write((-1, -1), -1, None, None)
    past.write((owner[0] + 1_000_000, 0), 0, None)
    past.write(owner, 0, None, partition=1)
    past.write(sharing, 0, None, partition=1)  # interleaved
    past.write(sharing, 1, None, None, partition=1)
    past.write(owner, 3, None, partition=2)  # missing: what comes before it
    snapshot = state.Snapshot(
        topic_id=topic_id, covered=100, number=1_000, chunk=0, chunks=1, name=[b"billing"], id=[30], offset=[3],
        seen_s=[0], at_ms=0,
    )  # fmt: skip
    from zlib import crc32  # noqa: PLC0415

    names = f"__sidecar_{nodes.cluster}_snapshots"
    key = f"{topic}/0/0/0".encode()
    batch = build_batch([RawRecord(key, snapshot.SerializeToString())], None)
    past.raw(names, crc32(topic.encode()) % 8, batch)  # missing: an id that nodes remember
    past.close()
    return Seeded(topic, 1 + 1 + 4 + 2 + 1 + 1 + 4 + 4 + 3)


def _snapshot_of(nodes: Nodes, topic: str) -> bytes:
    with Kafka(nodes.kafka) as kafka:
        return kafka.topic_id(topic)


VIOLATIONS = {"duplicates": 2, "regressions": 1, "interleaved": 2, "unowned": 3, "missing": 2}


def test_violations_seeded_past_the_node_are_counted_exactly_and_kept_once(
    spark: SparkSession, nodes: Nodes, seeded: Seeded, tmp_path: Path
) -> None:
    path = tmp_path / "tables"
    (found,) = nodes.audit(spark, seeded.topic, path=path)
    assert found.totals == VIOLATIONS, found.examples
    assert found.malformed == 1
    assert {each["kind"] for each in found.examples} == {*VIOLATIONS, "malformed"}
    before = {name: len(DeltaTable(str(path / name)).to_pandas()) for name in ("runs", "violations", "verdicts")}
    (again,) = nodes.audit(spark, seeded.topic, path=path)
    assert again.totals == VIOLATIONS
    assert before == {name: len(DeltaTable(str(path / name)).to_pandas()) for name in before}
    verdicts = DeltaTable(str(path / "verdicts")).to_pandas()
    assert {kind: int(verdicts.iloc[0][kind]) for kind in VIOLATIONS} == VIOLATIONS
    assert not verdicts.iloc[0]["passes"]

    with pytest.raises(TableError, match=r"holds records of the Kafka cluster .*, not another"):
        AuditTables(spark, str(path), "another")
    (tmp_path / "file").write_text("no table")
    with pytest.raises(TableError, match="is no set of tables of audits"):
        AuditTables(spark, str(tmp_path / "file"), "any")
    with pytest.raises(OffsetRangeError, match="is not in its log"):
        nodes.audit(spark, seeded.topic, begin='{"0": 1000000, "1": 0, "2": 0}')


def test_the_command_says_the_verdict_as_json_writes_a_page_and_fails(
    nodes: Nodes, seeded: Seeded, tmp_path: Path
) -> None:
    page = tmp_path / "audit.html"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}
    environment |= {"SIDECAR_BOOTSTRAP_SERVERS": nodes.kafka, "SIDECAR_REDIS_URL": nodes.redis}
    arguments = ("-m", "sidecar", "pipeline", "audit", seeded.topic, "--cluster", nodes.cluster, "-o", "json")
    options = ("--html", str(page), "--master", "local[1]", "--conf", "spark.ui.enabled=false")
    done = subprocess.run(
        [sys.executable, *arguments, *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["topic", "records", "violations", "gaps", "examples"]
    assert found["topic"] == seeded.topic
    assert found["violations"] == VIOLATIONS
    text = page.read_text()
    assert text.count("<svg") == 2
    assert "violated" in text
    assert "http://" not in text.replace("http://www.w3.org/", "")  # it needs nothing else
    assert "src=" not in text
