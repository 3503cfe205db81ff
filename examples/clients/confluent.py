"""confluent-kafka (librdkafka): `write BOOTSTRAP CLIENT_ID TOPIC` sends the sequence ids that it reads, one per line,
and prints the outcome of each; `read BOOTSTRAP TOPIC GROUP COUNT` prints COUNT values of a topic or shadow.
"""

import sys

from confluent_kafka import Consumer, Producer


def make_producer(bootstrap: str, client_id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "enable.idempotence": True,
            "message.timeout.ms": 0,  # a record may wait for the topic without limit
            "connections.max.idle.ms": 0,
        }
    )


def send(producer: Producer, topic: str, number: str) -> str:
    told: list[str] = []
    producer.produce(
        topic,
        value=number,
        headers={"sidecar-sequence-id": number},
        on_delivery=lambda error, message: told.append(f"error {error.name()}" if error else "ok"),
    )
    producer.flush()
    return told[0]


def make_consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
        }
    )


def write(bootstrap: str, client_id: str, topic: str) -> None:
    producer = make_producer(bootstrap, client_id)
    for line in sys.stdin:
        number = line.strip()
        print(number, send(producer, topic, number), flush=True)


def read(bootstrap: str, topic: str, group: str, count: int) -> None:
    consumer = make_consumer(bootstrap, group)
    consumer.subscribe([topic])
    while count:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            sys.exit(f"error {message.error().name()}")
        print(message.value().decode(), flush=True)
        count -= 1
    consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "write":
        write(arguments[0], arguments[1], arguments[2])
    else:
        read(arguments[0], arguments[1], arguments[2], int(arguments[3]))
