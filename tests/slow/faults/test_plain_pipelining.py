"""A plain producer with several batches in flight: one is told to come again, a later one is written meanwhile.

Without sequences nobody sees the gap. Kafka alone would write the first one behind the other; taken for a duplicate, as
its id is the lower one, it would be acknowledged and lost.
"""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.conftest import Unique
from tests.rest import Rest
from tests.services import Services
from tests.slow.faults.application import Application
from tests.slow.faults.checker import Attempt, Floors, Key, Told, check, summary
from tests.slow.faults.conftest import StartFailing
from tests.slow.faults.failing import FailingNode
from tests.slow.faults.frame_proxy import Fault, FrameProxy, Way
from tests.slow.faults.scene import assert_once, judge, make_topic, read_log
from tests.wait import wait_for

END_TXN = 26
_BUFFER = 6_000
_SLOW_S = 0.05


@pytest.fixture(scope="session")
def small_node(start_failing: StartFailing, proxy: FrameProxy) -> FailingNode:
    """Its buffer for what waits for Kafka holds a few small batches."""
    return start_failing(kafka=proxy.address, RETRY_BUFFER_BYTES=str(_BUFFER))


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_a_batch_that_found_the_buffer_full_is_not_lost(
    small_node: FailingNode, proxy: FrameProxy, services: Services, unique: Unique, mode: str
) -> None:
    """On a busy machine the first one may be answered before the large one is looked at: then once more."""
    told: list[list[bool]] = []
    for _ in range(5):
        told.append(_fill_the_buffer(small_node, proxy, services, unique, mode))
        if told[-1][:2] == [True, False]:
            return
    pytest.fail(f"the buffer was never found full: {told}")


def _fill_the_buffer(
    small_node: FailingNode, proxy: FrameProxy, services: Services, unique: Unique, mode: str
) -> list[bool]:
    """Whether each of three batches was acknowledged, the second of which finds no room while the first has no answer.
    Whatever they were told, nothing is lost.
    """
    topic = make_topic(services.kafka_bootstrap, small_node, mode)
    application = Application(unique("billing"), topic, [small_node.bootstrap], [], plain=True, mode=mode)
    application.write(0)
    first, large, small = ([application.key(number)] for number in (1, 2, 3))
    held = proxy.hold(Way.REPLY, proxy.produce_to(topic))
    connection = application.connect()
    connection.push(topic, 0, application.batch(first), 10_000)
    held.wait()
    connection.push(topic, 0, application.batch(large, padding=_BUFFER - 200), 10_000)
    connection.push(topic, 0, application.batch(small), 10_000)
    Rest(small_node.admin_url).topic(topic)  # the node has had its turn
    held.release()
    told = [application.settles(keys, connection.finish()) for keys in (first, large, small)]
    application.write(2)
    application.write(3)
    application.disconnect()
    assert_once(judge(services.kafka_bootstrap, topic, [application], Floors(4, 1), faults=1))
    return told


def test_a_batch_that_waited_too_long_for_a_takeover_is_not_lost(
    node_behind_proxy: FailingNode, proxy: FrameProxy, services: Services, unique: Unique
) -> None:
    node = node_behind_proxy
    topic = make_topic(services.kafka_bootstrap, node, "exclusive")
    application = Application(unique("billing"), topic, [node.bootstrap], [], plain=True)
    application.write(0)
    application.restart()
    early, late = [application.key(1)], [application.key(2)]
    held = proxy.hold(Way.REPLY, lambda seen: seen.api_key == END_TXN)
    connection = application.connect()
    connection.push(topic, 0, application.batch(early), 10_000)
    held.wait()
    connection.is_answered()  # 5, after two seconds; its client has sent on before it hears of that
    held.release()
    wait_for(lambda: Rest(node.admin_url).topic(topic)["owner"], "the takeover")
    connection.push(topic, 0, application.batch(late), 10_000)
    told = [application.settles(keys, connection.finish()) for keys in (early, late)]
    assert told[0] is False
    application.write(1)
    application.write(2)
    application.disconnect()
    assert_once(judge(services.kafka_bootstrap, topic, [application], Floors(3, 1), faults=1))


@pytest.mark.parametrize("idempotent", [True, pytest.param(False)])
def test_a_real_producer_loses_nothing_while_kafka_is_slow(
    small_node: FailingNode, proxy: FrameProxy, services: Services, unique: Unique, idempotent: bool
) -> None:
    topic = make_topic(services.kafka_bootstrap, small_node, "exclusive")
    name, history = unique("billing"), list[Attempt]()
    producer = Producer(
        {
            "bootstrap.servers": small_node.bootstrap,
            "client.id": f"{name};",
            "enable.idempotence": idempotent,
            "linger.ms": 1,
            "batch.num.messages": 10,
            "retries": 1_000,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 20,
            "log_level": 0,
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        number = int((message.value() or b"").rstrip(b".").rpartition(b":")[2])
        history.append(Attempt(Key(0, name, number), Told.OK if error is None else Told.INFO))

    over, faults, fits = threading.Event(), list[Fault](), proxy.produce_to(topic)

    def slow() -> None:
        while not over.is_set():
            faults.append(proxy.hold(Way.REPLY, fits))
            while not faults[-1].happened and not over.is_set():
                time.sleep(0.002)
            over.wait(_SLOW_S)
            faults[-1].release()

    slowing = threading.Thread(target=slow)
    slowing.start()
    try:
        for number in range(500):
            padding = b"." * (number * 37 % 400)
            headers: dict[str, str | bytes | None] = {"sidecar-sequence-id": str(number).encode()}
            producer.produce(topic, f"{name}:{number}".encode() + padding, headers=headers, on_delivery=delivered)
            producer.poll(0.002)
        producer.flush(90)
    finally:
        over.set()
        slowing.join()
        proxy.forget()
    happened = sum(fault.happened for fault in faults)
    violations = check(read_log(services.kafka_bootstrap, topic), history, Floors(100, 3), faults=happened)
    assert not violations, summary(violations)
