"""A node killed, a Redis that forgets: the same session goes on, nothing acknowledged is lost or there twice."""

import threading
from itertools import count

import redis
from confluent_kafka import KafkaError, Message, Producer

from tests.conftest import OwnValkey, StartNode
from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.node_log import events
from tests.logs import read_log
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

FENCED, REFUSED, AGAIN, DUPLICATE = 90, 44, 7, 46


def test_a_node_killed_and_started_again_goes_on_with_the_same_session(
    services: Services, node_process: StartNode
) -> None:
    node = node_process(LEASE_MS="900", RECONNECT_GRACE_MS="20000")
    rest, topic = Rest(node.admin_url), create_topic(services.kafka_bootstrap)
    govern(rest, topic)
    with RawProducer(node.bootstrap, "billing") as billing:
        billing.initialise()
        assert [billing.send(topic, b"%d" % i, sequence=i).error for i in range(5)] == [0] * 5
        node.kill()
    node.start()
    with (
        RawProducer(node.bootstrap, "rival") as rival,
        RawProducer(node.bootstrap, "billing", billing.producer_id) as again,
    ):
        rival.initialise()
        assert rival.send(topic, b"x", sequence=0).error == AGAIN
        assert again.send(topic, b"4", sequence=4).error == DUPLICATE
        assert again.send(topic, b"5", sequence=5).error == 0
        assert rival.send(topic, b"x", sequence=0).error == REFUSED
        assert rest.topic(topic)["generation"] == 1
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_session_that_does_not_come_back_in_time_loses_the_topic(services: Services, node_process: StartNode) -> None:
    node = node_process(LEASE_MS="900", RECONNECT_GRACE_MS="500")
    rest, topic = Rest(node.admin_url), create_topic(services.kafka_bootstrap)
    govern(rest, topic)
    with RawProducer(node.bootstrap, "billing") as billing:
        billing.initialise()
        billing.send(topic, b"a", sequence=0)
        node.kill()
    node.start()
    wait_for(
        lambda: rest.topic(topic)["owner"] is None, "the owner's time to be over, without anybody asking for it", 5.0
    )
    with RawProducer(node.bootstrap, "rival") as rival:
        rival.initialise()
        assert rival.send(topic, b"b", sequence=0).error == 0
    assert rest.topic(topic)["generation"] == 2


def test_a_deposed_session_stays_deposed_after_a_restart(services: Services, node_process: StartNode) -> None:
    node = node_process()
    topic = create_topic(services.kafka_bootstrap)
    govern(Rest(node.admin_url), topic)
    with (
        RawProducer(node.bootstrap, "a") as first,
        RawProducer(node.bootstrap, "b;mode=exclusive_with_fencing") as second,
    ):
        first.initialise()
        second.initialise()
        assert first.send(topic, b"a", sequence=0).error == 0
        assert second.send(topic, b"b", sequence=0).error == 0
    node.stop()
    node.start()
    with RawProducer(node.bootstrap, "a", first.producer_id) as again:
        assert again.send(topic, b"c", sequence=1).error == FENCED


def test_a_redis_emptied_in_mid_traffic_changes_nothing_and_no_generation_is_reused(
    services: Services, node_process: StartNode, own_valkey: OwnValkey
) -> None:
    valkey = own_valkey()
    node = node_process(redis=valkey.url, LEASE_MS="900")
    rest, topic = Rest(node.admin_url), create_topic(services.kafka_bootstrap)
    govern(rest, topic)
    with RawProducer(node.bootstrap, "one") as one, RawProducer(node.bootstrap, "two") as two:
        one.initialise()
        two.initialise()
        for i in range(30):
            assert one.send(topic, b"%d" % i, sequence=i).error == 0
            if i == 10:
                flush(valkey.url)
        assert two.send(topic, b"x", sequence=0).error == REFUSED
        one.close()
        flush(valkey.url)
        sequences = count(1)  # what was refused counts as used
        wait_for(lambda: two.send(topic, b"x", sequence=next(sequences)).error == 0, "the second to own the topic", 30)
        assert rest.topic(topic)["generation"] == 2
        assert rest.topic(topic)["policy"]["access_mode"] == "exclusive"


def test_while_redis_is_away_the_owner_writes_and_claims_wait(
    services: Services, node_process: StartNode, own_valkey: OwnValkey
) -> None:
    valkey = own_valkey()
    node = node_process(redis=valkey.url, LEASE_MS="900", REDIS_TIMEOUT_MS="300")
    rest, topics = Rest(node.admin_url), [create_topic(services.kafka_bootstrap) for _ in range(2)]
    for topic in topics:
        govern(rest, topic)
    with RawProducer(node.bootstrap, "one") as one:
        one.initialise()
        assert one.send(topics[0], b"0", sequence=0).error == 0
        valkey.pause()
        wait_for(lambda: rest.call("GET", "/readyz")[0] == 503, "readyz to say so")
        assert [one.send(topics[0], b"%d" % i, sequence=i).error for i in (1, 2, 3)] == [0, 0, 0]
        one.begin(topics[1], b"x", sequence=0)
        assert one.finish().error == 5
        valkey.resume()
        wait_for(lambda: one.send(topics[1], b"x", sequence=0).error == 0, "the claim to go through")
    wait_for(lambda: len(events(node, "redis_restored")) == 1, "the log to say so")


def flush(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushall()


def test_an_idempotent_producer_survives_kill_minus_nine_of_its_node_without_loss_or_duplicate(
    services: Services, node_process: StartNode
) -> None:
    node = node_process(LEASE_MS="600", RECONNECT_GRACE_MS="20000")
    topic = create_topic(services.kafka_bootstrap, partitions=1)
    govern(Rest(node.admin_url), topic)
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "client.id": "billing", "enable.idempotence": True, "linger.ms": 1,
         "reconnect.backoff.max.ms": 200, "message.timeout.ms": 60_000, "log_level": 0}
    )  # fmt: skip
    acked: list[bytes] = []
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acked.append(message.value() or b"")
        else:
            failed.append(error.str())

    stop = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        while not stop.is_set():
            if len(producer) < 2_000:
                producer.produce(topic, b"%d" % sent, on_delivery=delivered)
                sent += 1
            producer.poll(0.0005)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        for _ in range(3):
            before = len(acked)
            wait_for(lambda before=before: len(acked) > before + 2_000, "two thousand acknowledgements", 30.0)
            node.kill()
            node.start()
    finally:
        stop.set()
        sending.join()
    assert producer.flush(30) == 0
    assert failed == []
    assert len(acked) >= 6_000
    log = read_log(services.kafka_bootstrap, topic)
    assert log == [b"%d" % i for i in range(sent)]
    assert Rest(node.admin_url).topic(topic)["generation"] == 1
