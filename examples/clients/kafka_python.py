"""kafka-python: `write BOOTSTRAP CLIENT_ID TOPIC` sends the sequence ids that it reads, one per line, and prints the
outcome of each; `read BOOTSTRAP TOPIC GROUP COUNT` prints COUNT values of a topic or shadow.
"""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError


def make_producer(bootstrap: str, client_id: str) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        enable_idempotence=False,  # an idempotent one cannot send anything more once a record is refused
        max_in_flight_requests_per_connection=1,
        retries=2**31 - 1,
        delivery_timeout_ms=24 * 3600 * 1000,  # how long a record may wait for the topic
        connections_max_idle_ms=24 * 3600 * 1000,
    )


def send(producer: KafkaProducer, topic: str, number: str) -> str:
    headers = [("sidecar-sequence-id", number.encode())]
    try:
        producer.send(topic, number.encode(), headers=headers).get()
    except KafkaError as error:
        return f"error {type(error).__name__}"
    return "ok"


def make_consumer(bootstrap: str, topic: str, group: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def write(bootstrap: str, client_id: str, topic: str) -> None:
    producer = make_producer(bootstrap, client_id)
    for line in sys.stdin:
        number = line.strip()
        print(number, send(producer, topic, number), flush=True)
    producer.close()


def read(bootstrap: str, topic: str, group: str, count: int) -> None:
    consumer = make_consumer(bootstrap, topic, group)
    for message in consumer:
        print(message.value.decode(), flush=True)
        count -= 1
        if not count:
            break
    consumer.commit()
    consumer.close()


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "write":
        write(arguments[0], arguments[1], arguments[2])
    else:
        read(arguments[0], arguments[1], arguments[2], int(arguments[3]))
