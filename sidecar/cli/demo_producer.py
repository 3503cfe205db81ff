"""The producers of `sidecar demo`: plain aiokafka, one process each; nothing here knows of a sidecar but the client id.

    python -m sidecar.cli.demo_producer BOOTSTRAP TOPIC NAME [FILE]

FILE has a login over TLS, as librdkafka's settings. Sends a record every 100 ms and prints one line per outcome:
`ack OFFSET VALUE`, or `refused CODE MESSAGE` and the end.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context

_INTERVAL_S = 0.1


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _login(file: str) -> dict[str, Any]:
    """The settings of librdkafka in a file, translated for aiokafka."""
    properties = dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
    return {
        "security_protocol": properties["security.protocol"],
        "sasl_mechanism": properties["sasl.mechanisms"],
        "sasl_plain_username": properties["sasl.username"],
        "sasl_plain_password": properties["sasl.password"],
        "ssl_context": create_ssl_context(cafile=properties["ssl.ca.location"]),
    }


async def main(bootstrap: str, topic: str, name: str, *files: str) -> None:
    """Send records until one is refused, or the process is killed."""
    login = _login(files[0]) if files else {}
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=name, enable_idempotence=True, **login)
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
    asyncio.run(main(*sys.argv[1:]))
