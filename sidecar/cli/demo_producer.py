"""The producers of `sidecar demo`: plain aiokafka, one process each; nothing here knows of a sidecar but the client id.

    python -m sidecar.cli.demo_producer BOOTSTRAP TOPIC NAME

Sends a record every 100 ms and prints one line per outcome: `ack OFFSET VALUE`, or `refused CODE MESSAGE` and the end.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

_INTERVAL_S = 0.1


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(bootstrap: str, topic: str, name: str) -> None:
    """Send until refused, or killed."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=name, enable_idempotence=True)
    await producer.start()
    number = 0
    try:
        while True:
            value = f"{name} writes {number}"
            try:
                sent = await producer.send_and_wait(topic, value.encode(), partition=0)
            except KafkaError as error:
                _print(f"refused {getattr(error, 'errno', -1)} {type(error).__name__}")
                return
            _print(f"ack {sent.offset} {value}")
            number += 1
            await asyncio.sleep(_INTERVAL_S)
    finally:
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
