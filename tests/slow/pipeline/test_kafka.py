"""The blocking Kafka client of jobs, against real brokers: what there is, and logs that change while they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from sidecar.local import Kafka as LocalKafka
from sidecar.local.ports import HOST, free_ports
from sidecar.local.tools import Tools
from sidecar.pipeline import kafka as client
from sidecar.pipeline.errors import (
    CorruptLogError,
    OffsetRangeError,
    PipelineError,
    UnknownTopicError,
    UnreachableError,
)
from sidecar.pipeline.kafka import Kafka, bounds, portion
from sidecar.pipeline.routes import addresses
from sidecar.pipeline.security import Security
from sidecar.protocol import fetch
from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.calls.tails import Fetched
from sidecar.protocol.ids import TopicPartition
from tests.certificates import certificate
from tests.conftest import OwnKafka, Unique
from tests.kafka_calls import kafka_calls
from tests.services import Services
from tests.slow.pipeline.batches import NOW, Written, encode, named
from tests.slow.pipeline.logs import append, move_start, produce
from tests.topics import create_topic
from tests.wait import wait_for

pytestmark = pytest.mark.smoke


@pytest.fixture
def kafka(services: Services) -> Iterator[Kafka]:
    with Kafka(services.kafka_bootstrap, timeout=20) as found:
        yield found


def offsets(sets: Iterator[memoryview]) -> list[tuple[int, int]]:
    """(base offset, offset behind it) of each batch."""
    found: list[tuple[int, int]] = []
    for records in sets:
        for start, size in batch_sizes(records, 0, len(records)):
            header = read_header(records, start, start + size)
            found.append((header.base_offset, header.base_offset + header.last_offset_delta + 1))
    return found


# What there is --------------------------------------------------------------------------------------------------------


def test_a_topic_is_told_with_its_partitions_and_offsets(services: Services, kafka: Kafka) -> None:
    topic = create_topic(services.kafka_bootstrap, 3)
    append(services.kafka_bootstrap, topic, [encode([named(at, at) for at in range(10)])], partition=1)
    move_start(services.kafka_bootstrap, topic, 4, partition=1)
    assert topic in kafka.topics()
    assert kafka.partitions(topic) == [0, 1, 2]
    assert kafka.starts(topic) == {0: 0, 1: 4, 2: 0}
    assert kafka.ends(topic) == {0: 0, 1: 10, 2: 0}
    assert len(kafka.cluster_id) == 22


def test_offsets_at_a_time_are_those_of_the_first_younger_record_or_the_end(services: Services, kafka: Kafka) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    append(services.kafka_bootstrap, topic, [encode([named(at, at) for at in range(10)])])  # a ms each
    assert kafka.offsets_at(topic, NOW + 7) == {0: 7, 1: 0}
    assert kafka.offsets_at(topic, NOW + 100) == {0: 10, 1: 0}
    with pytest.raises(PipelineError, match="-1 ms"):
        kafka.offsets_at(topic, -1)


@pytest.mark.parametrize("name", ["orders-which-nobody-made", "no topic at all?"])
def test_an_unknown_topic_is_told_by_its_name(kafka: Kafka, name: str) -> None:
    for ask in (kafka.partitions, kafka.starts, kafka.ends):
        with pytest.raises(UnknownTopicError, match=name.replace("?", r"\?")):
            ask(name)


def test_a_partition_that_is_none_is_told(services: Services, kafka: Kafka) -> None:
    topic = create_topic(services.kafka_bootstrap, 2)
    with pytest.raises(PipelineError, match=f"{topic} has no partition 2: it has 0 to 1"):
        next(kafka.read(topic, 2, 0, 1))


def test_nobody_there_is_told_by_the_address() -> None:
    (port,) = free_ports(1)
    with pytest.raises(UnreachableError, match=rf"{HOST}:{port} cannot be reached.*Is it up, and is its address"):
        Kafka(f"{HOST}:{port}", timeout=0.5)


def test_a_server_that_speaks_something_else_is_told(services: Services) -> None:
    redis = urlsplit(services.redis_url)
    with pytest.raises(PipelineError, match=f"{redis.port}"):
        Kafka(f"{redis.hostname}:{redis.port}", timeout=1)


def test_addresses_are_read_as_every_client_reads_them() -> None:
    assert addresses("a:1, b,[::1]:3,") == (("a", 1), ("b", 9092), ("::1", 3))
    for wrong in ("", "a:b", "a:0", "a:70000"):
        with pytest.raises(PipelineError):
            addresses(wrong)


# What a log holds -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many answers instead of one: of a few batches each."""
    monkeypatch.setattr(client, "FETCH_BYTES", 20_000)
    monkeypatch.setattr(client, "_FIRST_BYTES", 5_000)


@pytest.fixture
def topic(services: Services) -> str:
    """400 records in 40 batches of ten."""
    topic = create_topic(services.kafka_bootstrap, 1)
    batches = [encode([named(delta, at + delta, b"n" * 100) for delta in range(10)]) for at in range(0, 400, 10)]
    append(services.kafka_bootstrap, topic, batches)
    return topic


@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize(("start", "end"), [(0, 400), (15, 17), (10, 20), (395, 400), (200, 200)])
def test_batches_are_read_in_order_and_none_twice(kafka: Kafka, topic: str, start: int, end: int) -> None:
    """Beyond the range comes no more than one answer."""
    found = offsets(kafka.read(topic, 0, start, end))
    assert all(behind == base for (_, behind), (base, _) in pairwise(found))
    if start == end:
        assert not found
    else:
        assert found[0][0] <= start < found[0][1]
        assert found[-1][1] >= end


@pytest.mark.usefixtures("small_answers")
def test_two_readings_on_one_connection_do_not_take_each_others_answers(kafka: Kafka, topic: str) -> None:
    first, second = kafka.read(topic, 0, 0, 400), kafka.read(topic, 0, 100, 400)
    taken: tuple[list[memoryview], list[memoryview]] = ([], [])
    for _ in range(3):
        taken[0].append(next(first))
        assert kafka.ends(topic) == {0: 400}
        taken[1].append(next(second))
    assert offsets(iter([*taken[0], *first])) == offsets(kafka.read(topic, 0, 0, 400))
    assert offsets(iter([*taken[1], *second])) == offsets(kafka.read(topic, 0, 100, 400))


@pytest.mark.usefixtures("small_answers")
def test_a_reading_that_is_given_up_spoils_nothing(kafka: Kafka, topic: str) -> None:
    reading = kafka.read(topic, 0, 0, 400)
    next(reading)
    reading.close()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert kafka.ends(topic) == {0: 400}
    assert not any(connection._early for connection in kafka._routes._connections.values())  # answers for nobody


def test_empty_answers_never_end_a_range(kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker answers so while remote storage is slow (KIP-405), a new leader while its high watermark lags."""
    ask, asked = kafka._fetched, list[int]()

    def emptied(where: TopicPartition, offset: int, most: int, ahead: Any) -> Fetched | None:
        answer = ask(where, offset, most, ahead)
        asked.append(offset)
        assert answer is not None
        return Fetched(0, 0, fetch.empty_element(answer.element, 0, 11)) if len(asked) <= 4 else answer

    monkeypatch.setattr(kafka, "_fetched", emptied)
    assert offsets(kafka.read(topic, 0, 385, 395)) == [(380, 390), (390, 400)]
    assert asked == [385] * 5


def test_a_range_of_which_nothing_comes_is_an_error(
    services: Services, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Kafka(services.kafka_bootstrap, timeout=0.5) as kafka:
        ask = kafka._fetched

        def emptied(*told: Any) -> Fetched | None:
            answer = ask(*told)
            assert answer is not None
            return Fetched(0, 0, fetch.empty_element(answer.element, 0, 11))

        monkeypatch.setattr(kafka, "_fetched", emptied)
        with pytest.raises(PipelineError, match=r"no records of .* came for 0\.5 s: try again"):
            offsets(kafka.read(topic, 0, 385, 395))


@pytest.mark.usefixtures("small_answers")
def test_retention_that_moves_under_a_reading_is_told_and_nothing_is_skipped(
    services: Services, kafka: Kafka, topic: str
) -> None:
    reading, read = kafka.read(topic, 0, 0, 400), list[memoryview]()
    read.append(next(reading))
    move_start(services.kafka_bootstrap, topic, 390)
    with pytest.raises(OffsetRangeError, match=rf"offset \d+ of {topic}-0 is lost: retention .* to 390") as told:
        read.extend(reading)
    assert f"offset {offsets(iter(read))[-1][1]} of" in str(told.value)


def test_an_end_behind_the_log_is_told_and_not_waited_for_without_end(services: Services, topic: str) -> None:
    with (
        Kafka(services.kafka_bootstrap, timeout=1) as kafka,
        pytest.raises(OffsetRangeError, match="ends at offset 400"),
    ):
        offsets(kafka.read(topic, 0, 390, 410))
    with (
        Kafka(services.kafka_bootstrap, timeout=1) as kafka,
        pytest.raises(OffsetRangeError, match="behind its end, 400"),
    ):
        offsets(kafka.read(topic, 0, 405, 410))


def test_a_topic_deleted_under_a_reading_is_told(services: Services, unique: Unique) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    append(services.kafka_bootstrap, topic, [encode([named(0, 0)])])
    with Kafka(services.kafka_bootstrap, timeout=20) as kafka:
        assert kafka.ends(topic) == {0: 1}
        admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
        admin.delete_topics([topic])[topic].result(20)

        def told() -> str | None:
            """What is said once the broker itself knows: it may serve the log for a moment after the deletion."""
            try:
                offsets(kafka.read(topic, 0, 0, 1))
            except UnknownTopicError as error:
                return str(error)
            return None

        assert topic in (wait_for(told, "the topic to be gone") or "")


def test_a_range_whose_end_compaction_took_ends(own_kafka: OwnKafka) -> None:
    """Its offsets are gone for good, the next record lies behind the end that was asked for."""
    kafka = own_kafka(overrides={"log.cleaner.backoff.ms": "200"}).bootstrap
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1"}
    topic = create_topic(kafka, 1, **settings)
    for at in range(21):  # all of one key, or of none that stays
        append(kafka, topic, [encode([Written(0, (), b"a" if at < 20 else b"b", time_delta=at)])])
    with Kafka(kafka, timeout=20) as reader:
        left = wait_for(lambda: len(found := offsets(reader.read(topic, 0, 0, 21))) == 2 and found, "compaction", 60)
        assert left == [(19, 20), (20, 21)]
        assert all(base >= 15 for base, _ in offsets(reader.read(topic, 0, 3, 15)))


@pytest.mark.slow
def test_a_throttled_reading_misses_nothing(
    own_kafka: OwnKafka, kafka_tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that throttles answers with no partition at all (KIP-219)."""
    kafka = own_kafka(overrides={"quota.window.num": "2"}).bootstrap
    topic = create_topic(kafka, 1)
    produce(kafka, topic, 2_000, size=1_000, **{"batch.num.messages": 50})
    quota = ["--alter", "--add-config", "consumer_byte_rate=400000", "--entity-type", "clients"]
    kafka_tools.run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", kafka, *quota, "--entity-name", "sidecar-pipeline"
    )
    monkeypatch.setattr(client, "_FIRST_BYTES", 300_000)
    monkeypatch.setattr(client, "FETCH_BYTES", 300_000)
    with Kafka(kafka, timeout=20) as reader:
        ask, answers = reader._fetched, list[Fetched | None]()

        def told(*args: Any) -> Fetched | None:
            answers.append(ask(*args))
            return answers[-1]

        monkeypatch.setattr(reader, "_fetched", told)
        found = offsets(reader.read(topic, 0, 0, 2_000))
    assert None in answers
    assert (found[0][0], found[-1][1]) == (0, 2_000)
    assert all(behind == base for (_, behind), (base, _) in pairwise(found))


@pytest.mark.usefixtures("small_answers")
@pytest.mark.slow
def test_a_leader_that_dies_under_a_reading_is_followed(kafka_cluster: LocalKafka, unique: Unique) -> None:
    name = unique("orders")

    async def create() -> int:
        async with kafka_calls(kafka_cluster.bootstrap) as calls:
            await calls.create(name, 1, 3)
            return await calls.leader(TopicPartition(name, 0))

    leader = asyncio.run(create())
    produce(kafka_cluster.bootstrap, name, 2_000, size=100, **{"batch.num.messages": 10})
    with Kafka(kafka_cluster.bootstrap, timeout=60) as reader:
        reading = reader.read(name, 0, 0, 2_000)
        taken = [next(reading)]
        kafka_cluster.kill(leader)
        try:
            found = offsets(iter([*taken, *reading]))
        finally:
            kafka_cluster.restart(leader)
    assert (found[0][0], found[-1][1]) == (0, 2_000)
    assert all(behind == base for (_, behind), (base, _) in pairwise(found))


# Pure parts -----------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_batches_are_told_by_partition_and_offset() -> None:
    where, batch = TopicPartition("orders", 3), encode([named(0, 0)], 7)
    assert bounds(memoryview(batch + batch[:30]), where, 7) == (8, len(batch))
    old = bytearray(batch)
    old[16] = 1
    for wrong, reason in ((b"\0" * 40, "no whole batch"), (batch[:30], "no whole batch"), (bytes(old), "format v1")):
        with pytest.raises(CorruptLogError, match=f"orders-3 from offset 7 on: .*{reason}"):
            bounds(memoryview(wrong), where, 7)
    with pytest.raises(CorruptLogError, match="ends in front of it, at 8"):
        bounds(memoryview(batch), where, 9)


def test_the_last_answer_of_a_range_is_asked_for_with_little_to_spare() -> None:
    assert portion(1_000_000, 100, 100_000) == client.FETCH_BYTES
    assert 100_000 < portion(100, 100, 100_000) < 200_000


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl.cafile": "x"}, "unknown setting ssl.cafile"),
        ({"security.protocol": "TLS"}, "security.protocol 'TLS'"),
        ({"sasl.username": "u"}, "sasl.username has no meaning with security.protocol PLAINTEXT"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u"}, "needs sasl.password"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism 'GSSAPI'"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}, "SCRAM-SHA-256 needs sasl.username"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "needs sasl.oauthbearer.token"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "it is https or none"),
    ],
)
def test_security_that_cannot_be_had_names_its_setting(settings: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        Security.of(settings)


# TLS and SASL ---------------------------------------------------------------------------------------------------------


def test_a_log_is_read_over_tls_by_somebody_who_has_logged_in(own_kafka: OwnKafka, tmp_path: Path) -> None:
    plain, safe, controller = free_ports(3)
    chain, key = (text.replace("\n", " ") for text in certificate(tmp_path))
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="secret";'
    started = own_kafka(
        ports=(plain,),
        overrides={
            "listeners": f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{HOST}:{safe},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{HOST}:{safe}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": key,
        },
    )
    topic = create_topic(started.bootstrap, 1)
    append(started.bootstrap, topic, [encode([named(0, 0)])])
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.username": "reader",
        "sasl.password": "secret",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    with Kafka(f"{HOST}:{safe}", timeout=20, security=security) as kafka:
        assert offsets(kafka.read(topic, 0, 0, 1)) == [(0, 1)]
    with pytest.raises(PipelineError, match=r"the login is refused: .*Authentication failed") as refused:
        Kafka(f"{HOST}:{safe}", timeout=20, security={**security, "sasl.password": "wrong-secret"})
    assert "wrong-secret" not in str(refused.value)
    with pytest.raises(PipelineError, match=f"{HOST}: its certificate is not trusted: self-signed"):
        Kafka(f"{HOST}:{safe}", timeout=0.5, security={**security, "ssl.ca.location": str(other_ca(tmp_path))})
    with pytest.raises(PipelineError, match="nowhere cannot be read"):
        Kafka(f"{HOST}:{safe}", timeout=0.5, security={**security, "ssl.ca.location": str(tmp_path / "nowhere")})


def other_ca(directory: Path) -> Path:
    other = directory / "other"
    other.mkdir()
    certificate(other)
    return other / "ca.pem"
