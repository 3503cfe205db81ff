"""aiokafka: `write BOOTSTRAP CLIENT_ID TOPIC` sends the sequence ids that it reads, one per line, and prints the
outcome of each; `read BOOTSTRAP TOPIC GROUP COUNT` prints COUNT values of a topic or shadow.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


def make_producer(bootstrap: str, client_id: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        enable_idempotence=True,
        request_timeout_ms=24 * 3600 * 1000,  # how long a record may wait for the topic
        connections_max_idle_ms=None,  # never
    )


async def send(producer: AIOKafkaProducer, topic: str, number: str) -> str:
    try:
        await producer.send_and_wait(topic, number.encode(), headers=[("sidecar-sequence-id", number.encode())])
    except KafkaError as error:
        return f"error {type(error).__name__}"
    return "ok"


def make_consumer(bootstrap: str, topic: str, group: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def write(bootstrap: str, client_id: str, topic: str) -> None:
    async with make_producer(bootstrap, client_id) as producer:
        while line := await asyncio.to_thread(sys.stdin.readline):
            number = line.strip()
            print(number, await send(producer, topic, number), flush=True)


async def read(bootstrap: str, topic: str, group: str, count: int) -> None:
    async with make_consumer(bootstrap, topic, group) as consumer:
        while count:
            print((await consumer.getone()).value.decode(), flush=True)
            count -= 1
        await consumer.commit()


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "write":
        asyncio.run(write(arguments[0], arguments[1], arguments[2]))
    else:
        asyncio.run(read(arguments[0], arguments[1], arguments[2], int(arguments[3])))
