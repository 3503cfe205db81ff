"""`sidecar pipeline rebuild` as the command that people run, beside real nodes: state lost, rebuilt, gone on from."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from redis import Redis

from sidecar.cli.pipeline import running
from sidecar.cli.root import cli
from sidecar.v1 import state_pb2 as state
from tests.conftest import OwnValkey, StartNode, Unique
from tests.kafka.dedup.conftest import deduplicate
from tests.kafka.dedup.ids import IdProducer
from tests.kafka.exclusive.deduplicated import deduplicated, log_of, write
from tests.kafka.exclusive.room import free, open_room
from tests.kafka.node_log import events
from tests.logs import read_log, read_messages
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.snapshot_topics import chunks_of, lose_snapshots, open_job
from tests.topics import create_topic
from tests.wait import wait_for_async

pytestmark = pytest.mark.timeout(900)

BATCH, BATCHES = 100, 40
IDS = BATCH * BATCHES
QUICK = ("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2", "--master", "local[2]")


class Cluster:
    """A cluster of nodes beside which jobs are run."""

    def __init__(self, kafka: str, redis: str, name: str) -> None:
        self.kafka, self.redis, self.name = kafka, redis, name

    def command(self, topic: str, *more: str) -> list[str]:
        where = ("--bootstrap", self.kafka, "--redis-url", self.redis, "--cluster", self.name)
        return [sys.executable, "-m", "sidecar", "pipeline", "rebuild", topic, "-o", "json", *where, *QUICK, *more]

    def rebuild_here(self, topic: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> Result:
        """The same in this process, on the session that there is: what it prints, and what it says."""

        @contextmanager
        def lent(*_: object) -> Iterator[SparkSession]:
            yield spark

        monkeypatch.setattr(running, "spark_session", lent)
        found = CliRunner().invoke(cli, self.command(topic)[3:])
        assert found.exit_code == code, found.output
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}

    def rebuild(self, topic: str, *more: str, code: int = 0) -> tuple[dict[str, Any], str]:
        """What it prints, and what it says."""
        done = subprocess.run(
            self.command(topic, *more), env=self.environment, capture_output=True, text=True, timeout=800, check=False
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout or "{}"), done.stderr

    @contextmanager
    def rebuilding(self, topic: str, *more: str) -> Iterator[subprocess.Popen[str]]:
        """One that is under way."""
        with subprocess.Popen(
            self.command(topic, *more), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as job:
            try:
                yield job
            finally:
                with suppress(ProcessLookupError):
                    job.kill()


def first_portion(job: subprocess.Popen[str]) -> int:
    """Wait until some of the log is read and written down: how many records."""
    assert job.stderr is not None
    said: list[str] = []
    for line in job.stderr:
        said.append(line)
        found = re.search(r"([\d,]+) records are read and written down, ([\d,]+) offsets are left", line)
        if found is not None:
            assert found[2] != "0", "nothing is left to be interrupted"
            return int(found[1].replace(",", ""))
    raise AssertionError("".join(said))


def fill(node: NodeProcess, topic: str) -> None:
    """Each of two partitions gets ids 0 to 3,999 of `billing`, and of `north` and `south` by header."""
    producer = IdProducer(node.bootstrap, "billing")
    with producer:
        for partition in (0, 1):
            for start in range(0, IDS, BATCH):
                ids = range(start, start + BATCH)
                assert producer.write(topic, *ids, partition=partition).error == 0
            for name in (b"north", b"south"):
                assert producer.write(topic, *range(partition, 50), partition=partition, name=name).error == 0


@pytest.fixture
def filled(
    services: Services, node_process: StartNode, unique: Unique
) -> Callable[..., tuple[Cluster, str, NodeProcess]]:
    """A topic with ids, whose node was killed, and its cluster: all that was known of the ids is lost."""

    def fill_it(redis: str = "") -> tuple[Cluster, str, NodeProcess]:
        cluster = Cluster(services.kafka_bootstrap, redis or services.redis_url, unique("c"))
        node = node_process(cluster=cluster.name, redis=cluster.redis)
        topic = create_topic(cluster.kafka, 2)
        deduplicate(Rest(node.admin_url), topic)
        fill(node, topic)
        node.kill()
        lose(cluster, topic)
        return cluster, topic, node

    return fill_it


def lose(cluster: Cluster, topic: str) -> None:
    asyncio.run(lose_snapshots(cluster.kafka, cluster.redis, cluster.name, topic))
    assert chunks_of(cluster.kafka, cluster.name, topic) == {}
    client = Redis.from_url(cluster.redis)
    assert not list(client.scan_iter(f"sidecar:{{{cluster.name}}}:*"))
    client.close()


def offsets_of(cluster: Cluster, topic: str, partition: int) -> list[int]:
    return [message.offset() or 0 for message in read_messages(cluster.kafka, topic, partition)]


def test_behind_a_rebuild_a_node_reads_only_the_rest_and_lets_no_duplicate_in(
    filled: Callable[..., tuple[Cluster, str, NodeProcess]],
) -> None:
    cluster, topic, node = filled()
    offsets = {partition: offsets_of(cluster, topic, partition) for partition in (0, 1)}
    # Of each partition one batch of `billing` is left, and what has its name in headers.
    rest = {partition: BATCH + 2 * (50 - partition) for partition in (0, 1)}
    ends = {str(partition): found[-rest[partition]] for partition, found in offsets.items()}
    data, said = cluster.rebuild(topic, "--until", json.dumps(ends))
    assert re.search(r"^[\d,]+ records in [\d.]+ s \(", said, re.MULTILINE)
    assert (data["records"], data["redis"]) == (
        sum(len(found) - rest[partition] for partition, found in offsets.items()),
        True,
    )
    for each in data["partitions"]:
        assert (each["outcome"], each["covered"], each["names"]) == ("rebuilt", ends[str(each["partition"])], 1)

    read_before = len(events(node, "sequence_ids_read"))
    node.start()
    before = {partition: read_log(cluster.kafka, topic, partition) for partition in (0, 1)}
    with IdProducer(node.bootstrap, "billing") as producer:
        for partition in (0, 1):
            for start in (0, IDS - BATCH):
                again = producer.write(topic, *range(start, start + BATCH), partition=partition)
                assert (again.error, again.offset) == (0, -1)
            assert producer.write(topic, 7, 49, partition=partition, name=b"north").offset == -1
            assert producer.write(topic, IDS, partition=partition).offset > 0
            assert producer.write(topic, 50, partition=partition, name=b"north").offset > 0
    for partition in (0, 1):
        assert read_log(cluster.kafka, topic, partition) == [*before[partition], str(IDS).encode(), b"50"]
    read = [event["records"] for event in events(node, "sequence_ids_read")[read_before:]]
    assert sum(read) == sum(rest.values()), read


def test_a_second_run_reads_only_what_came_since(
    filled: Callable[..., tuple[Cluster, str, NodeProcess]], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, topic, node = filled()
    data = json.loads(cluster.rebuild_here(topic, spark, monkeypatch).stdout)
    assert data["records"] == sum(len(offsets_of(cluster, topic, partition)) for partition in (0, 1))
    assert [(each["names"], each["outcome"]) for each in data["partitions"]] == [(3, "rebuilt")] * 2
    again, said = cluster.rebuild(topic)
    assert (again["records"], [each["outcome"] for each in again["partitions"]]) == (0, ["known"] * 2)
    assert "starting Spark" not in said
    node.start()
    with IdProducer(node.bootstrap, "billing") as producer:
        assert producer.write(topic, *range(IDS, IDS + 10)).error == 0
    node.kill()
    last = json.loads(cluster.rebuild_here(topic, spark, monkeypatch).stdout)
    assert last["records"] == 10
    assert {each["partition"]: each["outcome"] for each in last["partitions"]}[0] == "rebuilt"


def test_a_run_that_was_killed_is_gone_on_with_where_it_was(
    filled: Callable[..., tuple[Cluster, str, NodeProcess]], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, topic, _ = filled()
    whole = sum(len(offsets_of(cluster, topic, partition)) for partition in (0, 1))
    with cluster.rebuilding(topic, "--portion", str(IDS)) as job:
        done = first_portion(job)
        job.kill()
    data = json.loads(cluster.rebuild_here(topic, spark, monkeypatch).stdout)
    assert 0 < done < whole
    assert data["records"] <= whole - done
    assert [(each["names"], each["covered"]) for each in data["partitions"]] == [
        (3, each["until"]) for each in data["partitions"]
    ]


def test_redis_may_go_away_meanwhile_and_is_filled_by_the_next_run(
    filled: Callable[..., tuple[Cluster, str, NodeProcess]], own_valkey: OwnValkey
) -> None:
    valkey = own_valkey()
    cluster, topic, _ = filled(valkey.url)
    with cluster.rebuilding(topic, "--portion", str(IDS)) as job:
        first_portion(job)
        valkey.stop()
        out, said = job.communicate(timeout=800)
        assert job.returncode == 1, said
    assert "Redis cannot be reached: it lacks what is known of partitions 0, 1" in said
    data = json.loads(out)
    assert data["redis"] is False
    assert all(each["covered"] == each["until"] for each in data["partitions"])
    valkey.restart()
    again, said = cluster.rebuild(topic)
    assert (again["records"], again["redis"]) == (0, True)
    assert "starting Spark" not in said

    async def copies() -> list[tuple[int, int]]:
        async with open_job(cluster.kafka, valkey.url, cluster.name, topic) as beside:
            found = [await beside.redis_copy(partition) for partition in (0, 1)]
            return [(each.covered, len(each.marks)) for each in found if each is not None]

    assert asyncio.run(copies()) == [(each["until"], 3) for each in data["partitions"]]


async def test_ids_whose_writer_is_forgotten_are_never_anybodys(
    services: Services, unique: Unique, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots had covered them, and are lost: the node refuses too."""
    cluster = Cluster(services.kafka_bootstrap, services.redis_url, unique("c"))
    async with open_room(cluster.kafka, cluster.redis, cluster.name) as room:
        topic = await deduplicated(room, services)
        for name in ("a", "b"):
            party = room.connect(name)
            assert (await write(party, topic, 7))[0] == 0
            ids = room.topic(topic).ids
            assert ids is not None
            await ids.save_all()
            party.close()
            await free(room, topic)
        room.crash()
    await lose_snapshots(cluster.kafka, cluster.redis, cluster.name, topic)
    result = await asyncio.to_thread(cluster.rebuild_here, topic, spark, monkeypatch, code=1)
    (partition,) = json.loads(result.stdout)["partitions"]
    assert partition["outcome"] == "lost"
    assert "the writer of the sequence ids at offset" in partition["problem"]
    assert f"sidecar topic set {topic} --no-dedup" in result.stderr
    written = (await asyncio.to_thread(chunks_of, cluster.kafka, cluster.name, topic)).values()
    assert [list(state.Snapshot.FromString(each).name) for each in written] == [[]], "what is in front of all ids"
    async with open_room(cluster.kafka, cluster.redis, cluster.name, node_id=2, grace=0.1) as room:
        party = room.connect("c")

        async def is_lost() -> bool:
            assert await party.send_ids(topic, [7], sequence=0) == 5
            return bool(room.told.lost)

        await wait_for_async(is_lost, "the node to say that the ids are lost", 30)
        assert await log_of(services, topic) == ["7", "7"]
