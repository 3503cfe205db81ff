"""Real idempotent producers whose broker connections break all the time, in the middle of what they have in flight."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import Producer

from tests.kafka.passthrough.checked import log_of
from tests.kafka.passthrough.fault_proxy import Mode

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

    from sidecar.local.tools import Tools
    from tests.conftest import Unique
    from tests.kafka.passthrough.behind_proxy import BehindProxy


class Breaking:
    """Lets requests get lost for a moment, then ends all connections; again and again until the end of the context."""

    def __init__(self, ground: BehindProxy, every: float) -> None:
        self.lost = 0
        self._ground = ground
        self._every = every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._end.wait(self._every):
            before = self._ground.proxy.swallowed
            self._ground.proxy.become(Mode.SWALLOW)
            time.sleep(0.003)
            self._ground.proxy.cut()
            self._ground.proxy.become(Mode.PASS)
            self.lost += self._ground.proxy.swallowed > before

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_librdkafka_loses_nothing_on_partitions_it_has_never_written_to(
    behind_proxy: BehindProxy, unique: Unique
) -> None:
    """A new producer each round: Kafka would take its first batch there whatever its sequence."""
    rounds, records = 12, 150
    topic = behind_proxy.topic(unique("orders"), partitions=rounds)
    acked, failures = defaultdict[int, list[int]](list), list[str]()

    def done(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acked[message.partition() or 0].append(int(message.value() or b""))
        else:
            failures.append(str(error))

    settings = {"enable.idempotence": True, "batch.num.messages": 1, "linger.ms": 0, "retry.backoff.ms": 20}
    with Breaking(behind_proxy, 0.03) as breaking:
        for number in range(rounds):
            producer = Producer({"bootstrap.servers": behind_proxy.node.bootstrap, **settings})
            for record in range(records):
                producer.produce(topic, b"%d" % record, partition=number, on_delivery=done)
                producer.poll(0.001)
            assert producer.flush(60) == 0
    assert failures == []
    assert breaking.lost >= 10, "requests did get lost"
    log = log_of(behind_proxy.kafka.bootstrap, topic, rounds)
    for number in range(rounds):
        assert sorted(acked[number]) == list(range(records))
        assert [int(value) for value in log[number]] == list(range(records))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_java_loses_nothing_either(
    behind_proxy: BehindProxy, kafka_tools: Tools, unique: Unique, tmp_path: Path
) -> None:
    rounds, records = 4, 3_000
    config = tmp_path / "producer.properties"  # the tool's own default is not to retry
    config.write_text("enable.idempotence=true\nretries=2147483647\nretry.backoff.ms=20\n")
    sent: dict[str, list[dict[str, Any]]] = {}
    with Breaking(behind_proxy, 0.1) as breaking:
        for _ in range(rounds):
            topic = behind_proxy.topic(unique("orders"), partitions=3)
            command = kafka_tools.command(
                "org.apache.kafka.tools.VerifiableProducer",
                *("--bootstrap-server", behind_proxy.node.bootstrap, "--topic", topic),
                *("--max-messages", str(records), "--throughput", "1000", "--acks", "-1"),
                *("--producer.config", str(config)),
            )
            run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert run.returncode == 0, run.stderr
            told = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
            assert [event for event in told if event["name"] == "producer_send_error"] == []
            sent[topic] = [event for event in told if event["name"] == "producer_send_success"]
    assert breaking.lost >= 20
    for topic, events in sent.items():
        assert sorted(int(event["value"]) for event in events) == list(range(records))
        for partition, values in log_of(behind_proxy.kafka.bootstrap, topic, 3).items():
            expected = [int(event["value"]) for event in events if event["partition"] == partition]
            assert [int(value) for value in values] == sorted(expected)
